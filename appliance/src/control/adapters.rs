//! Adapters of requests and of the configuration: made, stored, and made again when the daemon starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vnic_backend::settings::Value;
use vnic_backend::{
    AdapterSpec, AdapterStatus, MacAddr, NicError, QosSpec, RDMA_MEMORY_DEFAULT, SocketRole, VmmLimits,
};

use super::Control;
use super::access_lists::AccessLists;
use super::congestion::Congestion;
use super::fields;
use super::moves::Moves;
use super::qos::Qos;
use super::refused::Refused;
use super::registry::Keys;
use crate::check::{self, Violations};
use crate::config::{eth_socket, rdma_socket};
use crate::events::{ControlEvent, Owner, Record, kinds, told};
use crate::registry::{Refusal, RegistryError, Scope};
use crate::store::{Batch, StoreError};
use crate::stored;
use crate::stored::adapters::NewAdapter;

/// Table of the store. Key of a row: the adapter's name; value: see [`stored::adapters`].
pub(super) const TABLE: &str = "adapters";
/// Registry key of the list of further addresses.
const MACS: &str = "mac-address-list";

/// Adapters.
pub struct Adapters<'a>(pub &'a Control);

/// Change of the list of further addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Addresses are added.
    Add,
    /// Addresses are removed.
    Remove,
}

/// Path of a field of [`AdapterSpec`] in a request.
fn path(name: &str) -> String {
    match name {
        "name" => "adapter_id".to_owned(),
        "mac" => "adapter.macs".to_owned(),
        other => format!("adapter.{other}"),
    }
}

fn refused(error: NicError) -> Refused {
    Refused::nic(str::to_owned)(error)
}

fn key(refusal: &Refusal) -> String {
    refusal.key.clone()
}

impl Adapters<'_> {
    /// Status of an adapter. May block.
    pub fn get(&self, name: &str) -> Result<AdapterStatus, Refused> {
        self.0.nic.adapter(name).map_err(refused)
    }

    /// ETag of an adapter's settings, with those that are pending.
    pub fn etag(wanted: &AdapterSpec) -> String {
        fields::etag(&stored::adapters::encode(&NewAdapter::from(wanted)))
    }

    /// Makes an adapter and stores it. `found` has the violations that the caller has found already. May block.
    pub fn create(&self, name: &str, new: &NewAdapter, found: Violations) -> Result<AdapterStatus, Refused> {
        let spec = self.spec(name, new, found)?;
        let status = self.add(spec).map_err(Refused::nic(path))?;
        let mut batch = Batch::new();
        batch.put(TABLE, name.as_bytes(), stored::adapters::encode(new));
        if let Err(error) = self.0.store.commit(batch) {
            // An adapter that cannot be stored is not kept.
            let _ = self.0.nic.remove_adapter(name);
            self.0.registry.adapter_taken_back(name);
            return Err(error.into());
        }
        self.0.origins.set_stored(name);
        Ok(status)
    }

    /// Changes fields of an adapter, named as in `vnic.v1.Adapter`, to those of `new`, unless its settings have changed since an
    /// etag; empty: in any case. `found` has the violations that the caller has found already. May block.
    pub fn update(
        &self,
        name: &str,
        (since, fields): (&str, &[String]),
        new: &NewAdapter,
        found: Violations,
    ) -> Result<AdapterStatus, Refused> {
        let _order = self.0.change_order();
        let status = self.get(name)?;
        Moves::none_lasts(&status)?;
        let before = status.wanted;
        fields::unchanged(since, Adapters::etag(&before))?;
        // A value that the daemon has chosen for a stored adapter is not stored by this.
        let row = self.stored(name)?;
        let is_stored = row.is_some();
        let mut wish = row.unwrap_or_else(|| NewAdapter::from(&before));
        for field in fields::named(fields, stored::adapters::FIELDS, "mtu")? {
            wish.take(field, new);
        }
        let spec = self.spec(name, &wish, found)?;
        let status = self.0.nic.update_adapter(spec).map_err(Refused::nic(path))?;
        if is_stored {
            let mut batch = Batch::new();
            batch.put(TABLE, name.as_bytes(), stored::adapters::encode(&wish));
            if let Err(error) = self.0.store.commit(batch) {
                // What cannot be stored does not act.
                let _ = self.0.nic.update_adapter(before);
                return Err(error.into());
            }
        }
        if fields.iter().any(|field| field == "data_core") {
            self.0.origins.set_core(name, new.data_core);
        }
        Ok(status)
    }

    /// The request with which an adapter was made that is stored; `None`: it is not, or cannot be read.
    pub(super) fn stored(&self, name: &str) -> Result<Option<NewAdapter>, StoreError> {
        let row = self.0.store.rows(TABLE, name.as_bytes(), 1)?.into_iter().next();
        let row = row.filter(|(key, _)| key == name.as_bytes() && self.0.origins.is_stored(name));
        let cores = &self.0.settings.nic.data_cores;
        Ok(row.and_then(|(_, row)| stored::adapters::decode(&row, cores).ok()))
    }

    /// Makes an adapter that is wholly specified. May block.
    pub fn declare(&self, spec: &AdapterSpec, stored: bool) -> Result<AdapterStatus, Refused> {
        if !stored {
            return self.add_again(spec.clone()).map_err(Refused::nic(path));
        }
        // Its sockets are where the daemon has them, wherever that is at the next start.
        let (mut new, dir) = (NewAdapter::from(spec), &self.0.settings.socket_dir);
        new.eth_socket
            .take_if(|path| *path == eth_socket(dir, &spec.name));
        new.rdma_socket
            .take_if(|path| *path == rdma_socket(dir, &spec.name));
        self.create(&spec.name, &new, Violations::default())
    }

    /// Changes an adapter to a specification. May block.
    pub fn bring(&self, spec: &AdapterSpec) -> Result<AdapterStatus, Refused> {
        let (is, new) = (self.get(&spec.name)?, NewAdapter::from(spec));
        let mut wanted = NewAdapter::from(&is.wanted);
        if self.0.origins.is_anywhere(&spec.name) {
            wanted.data_core = None;
        }
        let fields: Vec<String> = new.differs(&wanted).into_iter().map(str::to_owned).collect();
        if fields.is_empty() {
            return Ok(is);
        }
        self.update(&spec.name, ("", &fields), &new, Violations::default())
    }

    /// Removes an adapter and all settings that are stored for it, unless its settings have changed since an etag; empty: in any
    /// case. May block.
    pub fn remove(&self, name: &str, since: &str) -> Result<(), Refused> {
        let _order = self.0.change_order();
        let status = self.get(name)?;
        Moves::none_lasts(&status)?;
        fields::unchanged(since, Adapters::etag(&status.wanted))?;
        self.forget(name)?;
        self.0.nic.remove_adapter(name).map_err(refused)?;
        self.0.origins.forget(name);
        Ok(())
    }

    /// Removes an adapter; what is stored for it stays. May block.
    pub fn take_out(&self, name: &str) -> Result<(), Refused> {
        let _order = self.0.change_order();
        Moves::none_lasts(&self.get(name)?)?;
        self.0.nic.remove_adapter(name).map_err(refused)?;
        self.0.registry.adapter_taken_back(name);
        Ok(())
    }

    /// Removes an adapter's row from the store, and no settings.
    pub fn unstore(&self, name: &str) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        self.0.store.commit(batch)
    }

    /// Removes all that is stored for an adapter. May block.
    pub fn forget(&self, name: &str) -> Result<(), Refused> {
        let mut batch = Batch::new();
        batch.delete(TABLE, name.as_bytes());
        Moves::forget(&mut batch, name);
        AccessLists::forget(&mut batch, name);
        Qos::forget(&mut batch, &Owner::Adapter(name.to_owned()));
        Congestion::forget(&mut batch, name);
        let forgotten = self.0.registry.remove_adapter(name, batch);
        forgotten.map_err(|e| Keys(self.0).refused("", e, key))
    }

    /// Restarts an adapter, so that pending settings act; the guest's link goes down and comes back. May block.
    pub fn restart(&self, by: &str, name: &str) -> Result<AdapterStatus, Refused> {
        let status = self.0.registry.restart(name).map_err(refused)?;
        self.0.hub.record(ControlEvent::AdapterRestarted {
            adapter: name.to_owned(),
            by: by.to_owned(),
        });
        Ok(status)
    }

    /// Adds addresses to the list of further addresses of an adapter, or removes them; all of them or none. The list is a
    /// registry key, so that it exists once. May block.
    pub fn edit_macs(
        &self,
        by: &str,
        name: &str,
        macs: &[MacAddr],
        edit: Edit,
    ) -> Result<AdapterStatus, Refused> {
        /// Cause of a refusal.
        enum Why {
            /// The list and the addresses do not fit together.
            List(Violations),
            Registry(RegistryError),
        }
        impl From<RegistryError> for Why {
            fn from(error: RegistryError) -> Why {
                Why::Registry(error)
            }
        }
        self.get(name)?;
        let scope = Scope::Adapter(name.to_owned());
        let done = self.0.registry.edit(&scope, MACS, |stored| {
            let mut list = match stored {
                Some(Value::Macs(list)) => list.clone(),
                _ => Vec::new(),
            };
            let mut wrong = Violations::default();
            for (i, mac) in macs.iter().enumerate() {
                match (edit, list.contains(mac)) {
                    (Edit::Add, true) => {
                        wrong.add(format!("macs[{i}]"), format!("{mac} is in the list already"))
                    }
                    (Edit::Remove, false) => {
                        wrong.add(format!("macs[{i}]"), format!("{mac} is not in the list"))
                    }
                    _ => {}
                }
            }
            wrong.finish(Some(())).map_err(Why::List)?;
            match edit {
                Edit::Add => list.extend_from_slice(macs),
                Edit::Remove => list.retain(|m| !macs.contains(m)),
            }
            Ok((!list.is_empty()).then_some(Value::Macs(list)))
        });
        match done {
            Ok(done) => Keys(self.0).changed(by, &done),
            Err(Why::List(wrong)) => return Err(wrong.into()),
            Err(Why::Registry(error)) => return Err(Keys(self.0).refused(by, error, |_| "macs".to_owned())),
        }
        self.get(name)
    }

    /// Makes an adapter with its stored settings, as [`Adapters::add`] does, and with what migrations have made of it. May block.
    pub fn add_again(&self, spec: AdapterSpec) -> Result<AdapterStatus, NicError> {
        self.add(Moves(self.0).acting(spec))
    }

    /// Makes an adapter with its stored settings. If they are refused now, an event is recorded and the adapter is made
    /// without them. May block.
    fn add(&self, spec: AdapterSpec) -> Result<AdapterStatus, NicError> {
        let (owner, core) = (Owner::Adapter(spec.name.clone()), spec.data_core);
        let slowing = Congestion(self.0).stored(&spec.name);
        let qos = Qos(self.0);
        AccessLists(self.0).before_adding(&spec.name);
        let (status, refused) = match qos.stored(&owner) {
            None => self.0.registry.add_adapter(spec, QosSpec::default(), slowing)?,
            Some(stored) => match self.0.registry.add_adapter(spec.clone(), stored, slowing.clone()) {
                Err(NicError::Invalid { field, problem }) if stored::qos::names().contains(&field) => {
                    qos.lives_without(owner, &format!("{field}: {problem}"));
                    self.0.registry.add_adapter(spec, QosSpec::default(), slowing)?
                }
                other => other?,
            },
        };
        self.0.origins.set_core(&status.spec.name, core);
        if let Some(error) = refused {
            let _ = Keys(self.0).refused("", error, key);
        }
        Ok(status)
    }

    /// Makes the stored adapters again. An adapter that cannot be made causes an event and stays stored. May block.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        for (name, adapter) in self.0.store.all(TABLE)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            match self.again(&name, &adapter) {
                Ok(()) => self.0.origins.set_stored(&name),
                Err(problem) => {
                    let message =
                        format!("the adapter that was made at run time does not come back: {problem}");
                    let told = told(&kinds::STORED_ADAPTER_SHADOWED, message).fact("problem", problem);
                    self.0.hub.record(Record::now(told, Owner::Adapter(name)));
                }
            }
        }
        Ok(())
    }

    fn again(&self, name: &str, adapter: &[u8]) -> Result<(), String> {
        if self.0.nic.adapter(name).is_ok() || self.0.nic.port(name).is_ok() {
            return Err("the configuration has its name".to_owned());
        }
        let new = stored::adapters::decode(adapter, &self.0.settings.nic.data_cores)?;
        let spec = self.spec(name, &new, Violations::default());
        let spec = spec.map_err(|wrong| wrong.to_string())?;
        self.add_again(spec).map_err(|e| e.to_string())?;
        tracing::debug!(owner = name, "adapter made at run time added again");
        Ok(())
    }

    /// Specification of a new adapter: absent values are filled in; no address or socket may be used twice.
    fn spec(&self, name: &str, new: &NewAdapter, found: Violations) -> Result<AdapterSpec, Violations> {
        let mut wrong = Violations::default();
        // An adapter of the same name is the one that changes, or is refused because of its name.
        let others: Vec<_> = self
            .0
            .nic
            .adapters()
            .into_iter()
            .filter(|a| a.spec.name != name)
            .collect();
        let id = wrong.check("adapter_id", check::name(name));
        // Two adapters between which a guest moves have the same addresses.
        let of_one_guest = |a: &&AdapterStatus| a.wanted.moving.as_ref().is_some_and(|m| m.is_with(name));
        let taken: BTreeMap<MacAddr, &str> = others
            .iter()
            .filter(|a| !of_one_guest(a))
            .flat_map(|a| {
                let all = a.spec.macs.iter().chain(&a.wanted.macs).chain(&a.settings.macs);
                all.map(|mac| (*mac, a.spec.name.as_str()))
            })
            .collect();
        let mut macs = new.macs.clone();
        for (i, mac) in macs.iter().enumerate() {
            if let Some(owner) = taken.get(mac) {
                let problem =
                    format!("{mac} belongs to adapter {owner}; each address belongs to one adapter");
                wrong.add(format!("adapter.macs[{i}]"), problem);
            }
        }
        wrong.extend(found);
        if let (true, Some(id)) = (macs.is_empty(), &id) {
            macs.push(self.0.settings.macs.derive(id, &taken.keys().copied().collect()));
        }
        let mut socket = |field: &str, path: &Option<PathBuf>, default: fn(&Path, &str) -> PathBuf| {
            let path = match path {
                Some(path) => path.clone(),
                // `check::name` reports what is wrong with the name.
                None => wrong.check(
                    "adapter_id",
                    check::socket_path(&default(&self.0.settings.socket_dir, id.as_ref()?)),
                )?,
            };
            let uses = |a: &&AdapterStatus| {
                let uses =
                    |spec: &AdapterSpec| spec.eth_socket == path || spec.rdma_socket.as_ref() == Some(&path);
                uses(&a.spec) || uses(&a.wanted)
            };
            if let Some(other) = others.iter().find(uses) {
                wrong.add(
                    format!("adapter.{field}"),
                    format!("{} is the socket of adapter {}", path.display(), other.spec.name),
                );
            }
            Some(path)
        };
        let eth = socket("eth_socket", &new.eth_socket, eth_socket);
        let has_rdma = new.rdma_enabled.unwrap_or(true);
        let rdma = match has_rdma {
            true => socket("rdma_socket", &new.rdma_socket, rdma_socket).map(Some),
            false => Some(None),
        };
        if !has_rdma && new.rdma_socket.is_some() {
            wrong.add(
                "adapter.rdma_socket",
                "an adapter without an RDMA function has no such socket: leave it out, or set rdma_enabled",
            );
        }
        if let (Some(eth), Some(Some(rdma))) = (&eth, &rdma)
            && eth == rdma
        {
            wrong.add(
                "adapter.rdma_socket",
                format!("{} is the socket of the Ethernet function", rdma.display()),
            );
        }
        let limits = VmmLimits::default();
        let found = id.zip(eth.zip(rdma));
        wrong
            .finish(found)
            .map(|(name, (eth_socket, rdma_socket))| AdapterSpec {
                name,
                macs,
                mtu: new.mtu.unwrap_or(check::MTU_DEFAULT),
                queue_pairs: new.queue_pairs.unwrap_or(check::QUEUE_PAIRS_DEFAULT),
                vlan: new.vlan.clone(),
                control_queue: new.control_queue.unwrap_or(false),
                anti_spoofing: new.anti_spoofing.unwrap_or(true),
                allowed_addresses: new.allowed_addresses.clone(),
                data_core: new.data_core,
                eth_socket,
                rdma_socket,
                socket_role: new.socket_role.unwrap_or(SocketRole::Listen),
                socket_access: new.socket_access.clone(),
                rdma_memory_mib: new.rdma_memory_mib.unwrap_or(RDMA_MEMORY_DEFAULT),
                rdma_flows: new.rdma_flows.unwrap_or(true),
                pkeys: new.pkeys,
                vmm: VmmLimits {
                    regions: new.vmm_regions.unwrap_or(limits.regions),
                    descriptors: new.vmm_descriptors.unwrap_or(limits.descriptors),
                },
                wake: new.wake.clone(),
                wake_patterns: new.wake_patterns.clone(),
                moving: None,
            })
    }
}
