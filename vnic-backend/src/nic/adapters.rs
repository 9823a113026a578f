//! Adapters of the control plane.

use std::sync::Arc;
use std::thread::JoinHandle;

use vnic_engine::settings::{AdapterSettings, CongestionKeys, QosKeys};
use vnic_fabric::access_list::AccessList;

use super::state::{AdapterEntry, Imposed, ListEntry, RdmaEntry, State, not_found};
use super::{Inner, Nic, acting, congestion, mirrors, qos, settings};
use crate::check;
use crate::datapath::{AdapterCounters, Side};
use crate::rdma::{Function, Identity, RdmaCounters, device_config};
use crate::rehearsal::acts;
use crate::types::*;
use crate::vhost::{self, Endpoint};

/// Setup of an adapter: its parameters, and the settings that act on it before a guest can attach.
#[derive(Debug, Clone)]
pub struct AdapterSetup {
    /// Parameters of the adapter.
    pub spec: AdapterSpec,
    /// Settings of the adapter's registry.
    pub settings: AdapterSettings,
    /// Quality of service.
    pub qos: QosSpec,
    /// Congestion control.
    pub congestion: CongestionSpec,
}

impl From<AdapterSpec> for AdapterSetup {
    /// Makes the setup of a new adapter with default settings.
    fn from(spec: AdapterSpec) -> AdapterSetup {
        AdapterSetup {
            spec,
            settings: AdapterSettings::default(),
            qos: QosSpec::default(),
            congestion: CongestionSpec::default(),
        }
    }
}

/// What an adapter keeps when a restart makes it anew.
#[derive(Clone)]
struct Kept {
    /// Port of the adapter at the switch.
    id: PortId,
    /// Counters of the adapter.
    counters: Arc<AdapterCounters>,
    /// Counters of the RDMA function.
    rdma: Option<Arc<RdmaCounters>>,
    /// The operator's entries of the GID table, by index.
    gids: Vec<(u16, GidSetting)>,
}

impl Nic {
    /// Adds an adapter and opens its socket. On return the socket listens, and the whole setup acts. An error about a setting
    /// names its key.
    pub fn add_adapter(&self, setup: impl Into<AdapterSetup>) -> Result<AdapterStatus, NicError> {
        let setup = setup.into();
        congestion::check(&setup.congestion)?;
        self.inner.check_spec(&setup.spec, &setup.settings)?;
        let mut state = self.inner.state()?;
        state.free_name("adapter", &setup.spec.name)?;
        state.check_macs(&setup.spec, &setup.settings)?;
        if state.adapters.len() >= ADAPTERS_MAX {
            return Err(NicError::Limit(format!(
                "a NIC has at most {ADAPTERS_MAX} adapters"
            )));
        }
        let kept = Kept {
            id: state.free_id(),
            counters: Arc::new(AdapterCounters::new(usize::from(*QUEUE_PAIRS_RANGE.end()))),
            rdma: None,
            gids: Vec::new(),
        };
        let name = setup.spec.name.clone();
        let entry = self.inner.make_adapter(&state, setup, kept)?;
        let status = entry.adapter.status();
        state.names.insert(status.port, name.clone());
        state.adapters.insert(name.clone(), entry);
        self.inner.bind_faults(&state, &name);
        mirrors::bind(&self.inner, &state);
        qos::bind(&self.inner, &mut state);
        self.inner.preset(&mut state);
        drop(state);
        self.inner.hub.publish(&name, NicEventKind::AdapterAdded);
        Ok(status)
    }

    /// Changes the specification of an adapter. VLANs, anti-spoofing, further addresses, P_Keys and the users of VMMs act on return,
    /// under traffic; the rest waits for [`Nic::restart_adapter`]. An error leaves everything unchanged.
    pub fn update_adapter(&self, mut spec: AdapterSpec) -> Result<AdapterStatus, NicError> {
        let state = self.inner.state()?;
        let entry = state.adapter(&spec.name)?;
        let (before, waiting) = (entry.adapter.spec(), entry.adapter.wanted());
        spec.data_core = spec.data_core.or(before.data_core);
        self.inner.check_spec(&spec, &entry.wanted)?;
        state.check_macs(&spec, &entry.wanted)?;
        acts()?;
        if spec == *waiting {
            return Ok(entry.adapter.status());
        }
        let acting = at_once(&before, &spec);
        let settings = entry.adapter.settings();
        let (id, voices) = (entry.adapter.id, &self.inner.voices);
        // Under the lock, so that two calls reach all cores in the same order.
        voices.configure(id, settings::port_config(&acting, &settings));
        voices.take_part(id, acting.moving.clone());
        if acting.pkeys != before.pkeys {
            let pkeys = acting.pkeys;
            self.inner.workers[entry.adapter.core].call(move |w| w.set_pkeys(id, pkeys));
        }
        let waits = acting != spec;
        entry.adapter.set_specs(acting, spec);
        let status = entry.adapter.status();
        drop(state);
        let event = NicEventKind::AdapterChanged { waits };
        self.inner.hub.publish(&status.spec.name, event);
        Ok(status)
    }

    /// Detaches the adapter's guest and removes it and its socket.
    pub fn remove_adapter(&self, name: &str) -> Result<(), NicError> {
        self.inner.state()?.adapter(name)?;
        acts()?;
        let entry = self.inner.state()?.adapters.remove(name);
        let mut entry = entry.ok_or_else(|| not_found("adapter", name))?;
        self.inner.lock().lists.remove(name);
        self.inner.end_adapter(&mut entry);
        qos::bind(&self.inner, &mut self.inner.lock());
        self.inner.forget(entry.adapter.id, name);
        self.inner.preset(&mut self.inner.lock());
        self.inner.hub.publish(name, NicEventKind::AdapterRemoved);
        Ok(())
    }

    /// Applies what waits for a restart ([`Nic::configure_adapter`], [`Nic::update_adapter`]), and closes the connection to the
    /// adapter's guest, so that its link goes down and comes back when its VMM reconnects. If the adapter cannot be made with
    /// its new specification, it is made with the old one, and the new one waits on.
    pub fn restart_adapter(&self, name: &str) -> Result<AdapterStatus, NicError> {
        self.inner.state()?.adapter(name)?;
        acts()?;
        if let Some(status) = self.inner.make_anew(name)? {
            self.inner.preset(&mut self.inner.lock());
            return Ok(status);
        }
        let (adapter, rdma) = self.inner.endpoints(name)?;
        self.apply_waiting(name)?;
        self.inner.preset(&mut self.inner.lock());
        adapter.restart();
        if let Some(rdma) = rdma {
            rdma.restart();
        }
        Ok(adapter.status())
    }

    /// Sets the access list of an adapter, under traffic: each frame meets the old list or the new one. Rules without effect
    /// remove it.
    pub fn set_access_list(&self, adapter: &str, rules: acl::Rules) -> Result<AccessListStatus, NicError> {
        self.inner.state()?.adapter(adapter)?;
        self.restore_access_list(adapter, rules)
    }

    /// As [`Nic::set_access_list`], for an adapter that may be added later: it never is without its list.
    pub fn restore_access_list(
        &self,
        adapter: &str,
        rules: acl::Rules,
    ) -> Result<AccessListStatus, NicError> {
        check::access_list(&rules)?;
        acts()?;
        let mut state = self.inner.state()?;
        let before = state.lists.get(adapter);
        let entry = ListEntry {
            revision: before.map_or(0, |entry| entry.revision) + 1,
            list: Arc::new(AccessList::new(rules, before.map(|entry| &*entry.list))),
        };
        state.lists.insert(adapter.to_owned(), entry);
        if let Ok(there) = state.adapter(adapter) {
            let (id, list) = (there.adapter.id, state.in_force(adapter));
            self.inner.workers[there.adapter.core].call(move |w| w.set_access_list(id, list));
        }
        Ok(state.access_list(adapter))
    }

    /// The access list of an adapter.
    pub fn access_list(&self, adapter: &str) -> Result<AccessListStatus, NicError> {
        let state = self.inner.state()?;
        state.adapter(adapter)?;
        Ok(state.access_list(adapter))
    }

    /// Access lists of all adapters, by name.
    pub fn access_lists(&self) -> Vec<AccessListStatus> {
        let state = self.inner.lock();
        state
            .adapters
            .keys()
            .map(|name| state.access_list(name))
            .collect()
    }

    /// Status of an adapter.
    pub fn adapter(&self, name: &str) -> Result<AdapterStatus, NicError> {
        Ok(self.inner.adapter(name)?.status())
    }

    /// What the driver of an adapter's Ethernet function has set by its control queue, if it has one.
    pub fn ethernet_driver(&self, name: &str) -> Result<Option<EthernetDriver>, NicError> {
        Ok(self.inner.adapter(name)?.driver())
    }

    /// Status of all adapters, by name.
    pub fn adapters(&self) -> Vec<AdapterStatus> {
        let state = self.inner.lock();
        state.adapters.values().map(|e| e.adapter.status()).collect()
    }
}

/// Specification that acts after a change from `before` to `wanted` under traffic.
fn at_once(before: &AdapterSpec, wanted: &AdapterSpec) -> AdapterSpec {
    let first_stays = before.macs.first() == wanted.macs.first();
    let macs = if first_stays { &wanted.macs } else { &before.macs };
    AdapterSpec {
        macs: macs.clone(),
        vlan: wanted.vlan.clone(),
        anti_spoofing: wanted.anti_spoofing,
        wake: wanted.wake.clone(),
        wake_patterns: wanted.wake_patterns.clone(),
        pkeys: wanted.pkeys,
        moving: if first_stays {
            wanted.moving.clone()
        } else {
            before.moving.clone()
        },
        socket_access: SocketAccess {
            users: wanted.socket_access.users.clone(),
            ..before.socket_access.clone()
        },
        ..before.clone()
    }
}

impl State {
    /// Refuses addresses that another adapter has, or will have after its next restart.
    fn check_macs(&self, spec: &AdapterSpec, settings: &AdapterSettings) -> Result<(), NicError> {
        check::free_macs("macs", &spec.macs, self.others(spec))?;
        check::free_macs("mac-address-list", &settings.macs, self.others(spec))
    }

    /// Names and addresses of the other adapters, without the one to or from which the adapter's guest moves: both have the same.
    pub(super) fn others<'a>(
        &'a self,
        spec: &'a AdapterSpec,
    ) -> impl Iterator<Item = (String, impl Iterator<Item = MacAddr>)> + 'a {
        let of_one_guest = |name: &str, entry: &AdapterEntry| {
            let theirs = entry.adapter.wanted();
            let both = [(&theirs.moving, spec.name.as_str()), (&spec.moving, name)];
            both.iter()
                .any(|(moving, peer)| moving.as_ref().is_some_and(|m| m.is_with(peer)))
        };
        let others = self.adapters.iter().filter(|(name, _)| **name != spec.name);
        let others = others.filter(move |(name, entry)| !of_one_guest(name, entry));
        others.map(|(_, entry)| entry.owned())
    }
}

impl Inner {
    /// Checks a specification, and settings for it.
    fn check_spec(&self, spec: &AdapterSpec, settings: &AdapterSettings) -> Result<(), NicError> {
        check::adapter(spec, &self.config)?;
        check::settings(settings, spec)
    }

    /// Makes an adapter of a checked setup; its sockets listen on return.
    fn make_adapter(&self, state: &State, setup: AdapterSetup, kept: Kept) -> Result<AdapterEntry, NicError> {
        let AdapterSetup {
            mut spec,
            settings,
            qos,
            congestion,
        } = setup;
        let imposed = state.imposed;
        let change = acting::of_adapter(&qos, &settings.qos, imposed)?;
        acts()?;
        let plain =
            congestion == CongestionSpec::default() && settings.congestion == CongestionKeys::default();
        let default =
            qos == QosSpec::default() && settings.qos == QosKeys::default() && imposed == Imposed::default();
        let load = |core: usize| state.adapters.values().filter(|e| e.adapter.core == core).count();
        let core = self.core_for(spec.data_core, load);
        spec.data_core = Some(self.config.data_cores[core]);
        let config = settings::port_config(&spec, &settings);
        let allowed = AllowedAddresses::new(&spec.allowed_addresses);
        let (id, pairs) = (kept.id, usize::from(spec.queue_pairs));
        let (workers, hub, voices) = (self.workers.clone(), self.hub.clone(), self.voices.clone());
        let (name, moving) = (spec.name.clone(), spec.moving.clone());
        let adapter = Arc::new(Endpoint::new(
            spec,
            id,
            core,
            kept.counters.clone(),
            workers,
            hub,
            voices,
        )?);
        let vlans = config.vlan.clone();
        let config = self.voices.enter(id, &name, moving, config);
        let side = Side::Adapter(adapter.counters.clone(), pairs, allowed);
        self.add_to_cores(id, core, &config, side);
        if let Some(list) = state.in_force(&adapter.spec().name) {
            self.workers[core].post(move |w| w.set_access_list(id, Some(list)));
        }
        let mut entry = AdapterEntry {
            adapter,
            rdma: None,
            wanted: settings.clone(),
            qos,
            imposed,
            congestion,
            program: Default::default(),
            threads: Vec::new(),
        };
        let opened = self.add_rdma(state, &mut entry, vlans, &kept).and_then(|()| {
            if !default {
                self.send_qos(id, change);
            }
            self.start_with(&entry.adapter, settings, true);
            if !plain {
                self.send_congestion(&entry);
            }
            open_sockets(&mut entry, self.config.confine)
        });
        if let Err(error) = opened {
            self.end_adapter(&mut entry);
            return Err(error);
        }
        Ok(entry)
    }

    /// Makes an adapter anew whose specification waits for a restart; `None`: none waits. Nobody sees a NIC without the adapter.
    fn make_anew(&self, name: &str) -> Result<Option<AdapterStatus>, NicError> {
        let threads = {
            let mut state = self.state()?;
            let entry = state.adapter_mut(name)?;
            if entry.adapter.spec() == entry.adapter.wanted() {
                return Ok(None);
            }
            entry.endpoints().for_each(|endpoint| endpoint.end());
            std::mem::take(&mut entry.threads)
        };
        // Without the lock: a thread may be busy with its VMM, and other adapters are not to wait for that.
        close(threads);
        let mut state = self.state()?;
        let old = state.adapters.remove(name);
        let mut old = old.ok_or_else(|| not_found("adapter", name))?;
        let (acting, wanted) = (old.adapter.spec(), old.adapter.wanted());
        let kept = self.kept(&old);
        let setup = |spec: &AdapterSpec| AdapterSetup {
            spec: spec.clone(),
            settings: old.wanted.clone(),
            qos: old.qos.clone(),
            congestion: old.congestion.clone(),
        };
        let (new, before) = (setup(&wanted), setup(&acting));
        self.end_adapter(&mut old);
        let made = match self.make_adapter(&state, new, kept.clone()) {
            Ok(entry) => Ok((entry, None)),
            Err(error) => self
                .make_adapter(&state, before, kept)
                .map(|entry| (entry, Some(error))),
        };
        let (entry, refused) = match made {
            Ok(made) => made,
            Err(error) => {
                qos::bind(self, &mut state);
                drop(state);
                self.forget(old.adapter.id, name);
                self.hub.publish(name, NicEventKind::AdapterRemoved);
                return Err(error);
            }
        };
        if refused.is_some() {
            let acting = AdapterSpec::clone(&entry.adapter.spec());
            entry.adapter.set_specs(acting, AdapterSpec::clone(&wanted));
        }
        let status = entry.adapter.status();
        state.adapters.insert(name.to_owned(), entry);
        mirrors::bind(self, &state);
        match refused {
            Some(error) => Err(error),
            None => Ok(Some(status)),
        }
    }

    /// What an adapter keeps when it is made anew.
    fn kept(&self, entry: &AdapterEntry) -> Kept {
        let id = entry.adapter.id;
        let rows = self.workers[entry.adapter.core].call(move |w| w.functions.snapshot(id));
        let rows = rows.flatten().map(|snapshot| snapshot.gids).unwrap_or_default();
        let operators = rows.into_iter().filter(|row| row.source == GidSource::Operator);
        let setting = |row: GidRow| {
            let GidRow {
                index,
                gid,
                kind,
                vlan,
                ..
            } = row;
            (index, GidSetting { gid, kind, vlan })
        };
        Kept {
            id,
            counters: entry.adapter.counters.clone(),
            rdma: entry.rdma.as_ref().map(|rdma| rdma.counters.clone()),
            gids: operators.map(setting).collect(),
        }
    }

    /// Gives an adapter its RDMA function, if it is to have one.
    fn add_rdma(
        &self,
        state: &State,
        entry: &mut AdapterEntry,
        vlans: VlanMode,
        kept: &Kept,
    ) -> Result<(), NicError> {
        let spec = entry.adapter.spec();
        let (Some(_), Some(&mac)) = (&spec.rdma_socket, spec.macs.first()) else {
            return Ok(());
        };
        let counters = kept.rdma.clone().unwrap_or_default();
        let config = device_config(mac, spec.mtu, spec.rdma_memory_mib);
        let identity = Identity::new(mac, vlans, self.gids.clone())
            .allowing(&spec.allowed_addresses)
            .with_mtu(spec.mtu)
            .with_flows(spec.rdma_flows);
        let mut function =
            Function::new(config, identity, counters.clone()).map_err(|e| NicError::Limit(e.to_string()))?;
        function.set_pkeys(spec.pkeys);
        for (index, gid) in &kept.gids {
            // An entry that the new address's own GIDs leave no room for is gone.
            let _ = function.set_gid_by_operator(Some(*index), Some(*gid));
        }
        for rule in state.verbs_faults.of(&spec.name) {
            function.add_verbs_rule(rule);
        }
        let id = entry.adapter.id;
        self.workers[entry.adapter.core].post(move |w| w.add_function(id, function));
        entry.rdma = Some(RdmaEntry {
            endpoint: Arc::new(entry.adapter.rdma()?),
            counters,
        });
        Ok(())
    }

    /// Ends an adapter: its sockets, then its port of the switch.
    pub(super) fn end_adapter(&self, entry: &mut AdapterEntry) {
        for endpoint in entry.endpoints() {
            endpoint.end();
        }
        close(std::mem::take(&mut entry.threads));
        self.voices.leave(entry.adapter.id);
        self.remove_from_cores(entry.adapter.id);
    }
}

/// Waits for the threads of sockets that were told to end, and removes the sockets.
fn close(threads: Vec<(Arc<Endpoint>, JoinHandle<()>)>) {
    for (endpoint, thread) in threads {
        let _ = thread.join();
        endpoint.remove_socket();
    }
}

/// Opens the sockets of an adapter; they listen on return.
fn open_sockets(entry: &mut AdapterEntry, confine: bool) -> Result<(), NicError> {
    let endpoints: Vec<_> = entry.endpoints().cloned().collect();
    for endpoint in endpoints {
        let thread = vhost::spawn(endpoint.clone(), confine)?;
        entry.threads.push((endpoint, thread));
    }
    Ok(())
}
