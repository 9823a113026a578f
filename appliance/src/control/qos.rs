//! Quality of service of adapters and ports.
//!
//! ```text
//!  fields ─▶ QosSpec, QosKeys ─▶ the NIC would take it? ─▶ one transaction: registry keys, row of `qos` ─▶ NIC
//! ```

mod keys;

use vnic_backend::settings::QosKeys;
use vnic_backend::{Buffer, NicError, NotCapable, QosSpec, QosStatus, QpRate, Tsa};

use super::Control;
use super::fields::{Now, etag, named, unchanged};
use super::refused::Refused;
use super::registry::Keys;
use crate::check::Violations;
use crate::events::Owner;
use crate::names;
use crate::registry::{Operation, Refusal};
use crate::store::{Batch, StoreError};
use crate::stored;

/// Name of these settings in events and the registry, and table of the store. Key of a row: `adapters/{adapter}` or
/// `ports/{port}`; value: see [`stored::qos`]. A field that is a key of an adapter's registry is stored in the row, too,
/// but read from the registry.
const STORE: &str = "qos";

/// Quality of service.
pub struct Qos<'a>(pub &'a Control);

/// Quality of service of an adapter or a port at one time.
pub type QosNow = Now<QosStatus>;

/// Key of an owner's row.
fn resource(owner: &Owner) -> String {
    match owner {
        Owner::Adapter(name) => names::of(names::ADAPTERS, name),
        Owner::Port(name) => names::of(names::PORTS, name),
        Owner::Nic => String::new(),
    }
}

fn id(owner: &Owner) -> &str {
    match owner {
        Owner::Adapter(name) | Owner::Port(name) => name,
        Owner::Nic => "",
    }
}

/// Path of a field in a request.
fn path(name: &str) -> String {
    match name {
        "name" => name.to_owned(),
        other => format!("qos.{other}"),
    }
}

fn refused(error: NicError) -> Refused {
    Refused::nic(path)(error)
}

impl Qos<'_> {
    /// Quality of service of an owner. Adapters and ports have one namespace; an owner of the other kind is not found. May block.
    pub fn get(&self, owner: &Owner) -> Result<QosNow, Refused> {
        let status = self.look(owner)?;
        let etag = etag(&stored::qos::encode(&status.spec, &status.keys));
        let warnings = self.warnings(owner, &status);
        Ok(QosNow {
            status,
            warnings,
            etag,
        })
    }

    /// Quality of service of all adapters, then of all ports. May block.
    pub fn list(&self) -> Vec<(Owner, QosNow)> {
        let adapters = self.0.adapter_names().into_iter().map(Owner::Adapter);
        let ports = self.0.port_names().into_iter().map(Owner::Port);
        // An owner that was removed meanwhile is left out.
        let one = |owner: Owner| Some((owner.clone(), self.get(&owner).ok()?));
        adapters.chain(ports).filter_map(one).collect()
    }

    /// Changes the named fields by `write`, unless the settings have changed since an etag; empty: in any case. May block.
    pub fn update(
        &self,
        by: &str,
        owner: &Owner,
        (since, fields): (&str, &[String]),
        write: impl FnOnce(&[&str], &mut QosSpec, &mut QosKeys) -> Result<(), Violations>,
    ) -> Result<QosNow, Refused> {
        let _order = self.0.change_order();
        let what = self
            .change(owner, (since, fields), write)
            .inspect_err(|refused| {
                if refused.wrong_fields().is_some() {
                    self.record_refused(owner.clone(), refused.text(), by);
                }
            })?;
        self.changed(by, owner, what)
    }

    /// Resets quality of service of an owner to the defaults. May block.
    pub fn reset(&self, by: &str, owner: &Owner) -> Result<QosNow, Refused> {
        let _order = self.0.change_order();
        let now = self.look(owner)?;
        let operations = match owner {
            Owner::Adapter(name) => keys::forget(name),
            _ => Vec::new(),
        };
        // The row is removed whatever it has.
        let mut row = Batch::new();
        Qos::forget(&mut row, owner);
        self.carry_out(owner, &now, (QosSpec::default(), row), &operations)?;
        self.changed(
            by,
            owner,
            "everything is as while nothing is configured".to_owned(),
        )
    }

    /// Sets the rate of a queue pair in kbit/s; 0: only the driver's limit. May block.
    pub fn set_queue_pair_rate(&self, adapter: &str, qp: u32, kbps: u32) -> Result<(), Refused> {
        let done = self.0.nic.set_qp_rate(adapter, qp, kbps);
        done.map_err(Refused::nic(|_| "rate_bps".to_owned()))
    }

    /// Rates of queue pairs, by number. May block.
    pub fn queue_pair_rates(&self, adapter: &str) -> Result<Vec<QpRate>, Refused> {
        let mut rates = self.0.nic.qp_rates(adapter).map_err(refused)?;
        rates.sort_by_key(|r| r.qp);
        Ok(rates)
    }

    fn look(&self, owner: &Owner) -> Result<QosStatus, Refused> {
        let found = match owner {
            Owner::Adapter(name) => self.0.nic.adapter(name).map(drop),
            _ => self.0.nic.port(id(owner)).map(drop),
        };
        found.and_then(|()| self.0.nic.qos(id(owner))).map_err(refused)
    }

    /// Records a change as an event.
    fn changed(&self, by: &str, owner: &Owner, what: String) -> Result<QosNow, Refused> {
        self.0.settings_changed(owner.clone(), STORE, what, by);
        self.get(owner)
    }

    fn record_refused(&self, owner: Owner, what: String, by: &str) {
        self.0.settings_refused(owner, STORE, what, by);
    }

    fn warnings(&self, owner: &Owner, now: &QosStatus) -> Vec<String> {
        let (spec, keys) = (&now.spec, &now.keys);
        let mut said = Vec::new();
        if spec.disabled {
            said.push(
                "disabled: trust, maps, traffic classes, pfc, policies, ecn and lifetimes are stored, and none of them acts"
                    .to_owned(),
            );
        }
        let (limits, within) = (now.limits, spec.within(now.limits));
        if within.classes.of_level() != spec.classes.of_level() {
            let (last, parameter) = limits.last(&spec.classes);
            let what = match spec.classes.arbitration {
                Some(_) => "virtual lane",
                None => "traffic class",
            };
            said.push(format!(
                "priority_to_tc: NV parameter {parameter} allows {what} 0 to {last}: priorities of others have {what} {last}"
            ));
        }
        if within.pfc != spec.pfc {
            said.push(format!(
                "pfc: NV parameter NUM_OF_PFC allows {} priorities at a time: the lowest ones have flow control",
                limits.pfc
            ));
        }
        let shares: u32 = spec.classes.share.iter().map(|s| u32::from(*s)).sum();
        if spec.classes.tsa.contains(&Tsa::Ets) && shares < 100 {
            said.push(format!(
                "tc_bandwidth_percent: the shares add up to {shares} %: they count as weights"
            ));
        }
        if keys.priorities.untagged_to_lossless && spec.pfc == 0 {
            said.push("untagged_to_lossless has no effect: no priority has flow control (pfc)".to_owned());
        }
        for (p, tc) in spec.classes.of_priority.iter().enumerate() {
            let drops = spec.ecn[usize::from(*tc & 7)].not_capable == NotCapable::Drop;
            if drops && spec.pfc & 1 << p != 0 {
                said.push(format!(
                    "ecn: traffic class {tc} drops nothing of priority {p}, which has flow control (pfc)"
                ));
            }
        }
        if let Some(queue) = &spec.queue {
            let limited = queue.limit.iter().any(|l| *l != 0);
            if !keys.sending.offload {
                said.push("schedule_queue does not act: *QoSOffload is 0".to_owned());
            } else if limited && !keys.sending.queue_per_priority {
                said.push(
                    "schedule_queue: a traffic class at its maximum holds up the others of the guest, unless \
                     send_queue_per_priority (SendQueuePerPrio) is set"
                        .to_owned(),
                );
            }
        }
        self.promises(owner, spec, &mut said);
        said
    }

    /// Adds a warning if a limited port cannot keep the guarantees of all adapters.
    fn promises(&self, owner: &Owner, spec: &QosSpec, said: &mut Vec<String>) {
        if spec.queue.is_none() && matches!(owner, Owner::Adapter(_)) {
            return;
        }
        let all = self.0.nic.qos_specs();
        let promised: u64 = all
            .iter()
            .filter_map(|(_, spec)| spec.queue.as_ref())
            .flat_map(|queue| queue.guarantee)
            .fold(0, u64::saturating_add);
        let is_port = |name: &String| self.0.nic.port(name).is_ok();
        let concerned = |name: &String| match owner {
            Owner::Port(own) => name == own,
            _ => is_port(name),
        };
        for (name, port) in &all {
            if port.rate != 0 && promised > port.rate && concerned(name) {
                said.push(format!(
                    "schedule_queue: the minima of all adapters add up to {promised} bit/s, more than port {name} has \
                     (rate_bps {}): they are kept in proportion",
                    port.rate
                ));
            }
        }
    }

    /// Carries out a change; returns it in words.
    fn change(
        &self,
        owner: &Owner,
        (since, fields): (&str, &[String]),
        write: impl FnOnce(&[&str], &mut QosSpec, &mut QosKeys) -> Result<(), Violations>,
    ) -> Result<String, Refused> {
        let mut fields = named(fields, stored::qos::names(), "trust")?;
        let now = self.look(owner)?;
        unchanged(since, etag(&stored::qos::encode(&now.spec, &now.keys)))?;
        let (mut spec, mut keys) = (now.spec.clone(), now.keys.clone());
        // Acting watermarks count, not the registry's.
        keys.guard = keys.acting_watermarks();
        write(&fields, &mut spec, &mut keys)?;
        if fields.contains(&"cable_length_m") && !fields.contains(&"buffer_headroom") {
            let (plain, mtu) = (Buffer::default(), self.mtu(owner)?);
            let needed = |metres| Buffer::headroom_for(spec.rate, metres, mtu);
            // The default holds what guests send at a time, and a short cable: a longer one adds what it holds.
            let holds = plain.headroom + needed(spec.buffer.cable_len);
            spec.buffer.headroom = holds.saturating_sub(needed(plain.cable_len));
        }
        if fields.contains(&"storm_critical_ms") && !fields.contains(&"storm_minor_ms") {
            // As in Linux, the minor watermark follows the critical one.
            keys.guard.minor_ms = keys.acting_watermarks().minor_ms;
        }
        if let Owner::Port(_) = owner {
            spec.keys = keys.clone();
        }
        if fields.contains(&"storm_critical_ms") {
            fields.push("storm_minor_ms");
        }
        self.0.nic.check_qos(id(owner), &spec, &keys).map_err(refused)?;
        let operations = match owner {
            Owner::Adapter(name) => keys::write(name, &fields, &keys),
            _ => Vec::new(),
        };
        let mut row = Batch::new();
        if spec != now.spec {
            put(&mut row, owner, &spec, &keys);
        }
        self.carry_out(owner, &now, (spec, row), &operations)?;
        Ok(stored::qos::words(&fields, &self.look(owner)?.spec, &keys))
    }

    fn mtu(&self, owner: &Owner) -> Result<u16, Refused> {
        let mtu = match owner {
            Owner::Adapter(name) => self.0.nic.adapter(name).map(|a| a.spec.mtu),
            _ => self.0.nic.port(id(owner)).map(|p| p.spec.mtu),
        };
        mtu.map_err(refused)
    }

    /// Stores checked settings and applies them.
    fn carry_out(
        &self,
        owner: &Owner,
        before: &QosStatus,
        (spec, row): (QosSpec, Batch),
        operations: &[Operation],
    ) -> Result<(), Refused> {
        match owner {
            Owner::Adapter(name) if !operations.is_empty() => {
                let of = |r: &Refusal| path(keys::field(&r.key).unwrap_or("name"));
                if let Err(error) = self.0.registry.transact_now(name, operations, row) {
                    self.put_back(owner, before);
                    return Err(Keys(self.0).refused("", error, of));
                }
            }
            _ => self.0.store.commit(row)?,
        }
        if spec == before.spec {
            return Ok(());
        }
        self.0.nic.set_qos(id(owner), spec).map_err(|error| {
            self.put_back(owner, before);
            refused(error)
        })
    }

    /// Restores the row of the settings `before`.
    fn put_back(&self, owner: &Owner, before: &QosStatus) {
        let mut batch = Batch::new();
        put(&mut batch, owner, &before.spec, &before.keys);
        if let Err(error) = self.0.store.commit(batch) {
            tracing::error!(
                "qos of {}: what did not act stays stored: {error}",
                resource(owner)
            );
        }
    }

    /// Replaces quality of service of an adapter, but for the fields that are keys of its registry.
    pub(super) fn replace(&self, owner: &Owner, spec: &QosSpec) -> Result<(), Refused> {
        let now = self.look(owner)?;
        self.0
            .nic
            .check_qos(id(owner), spec, &now.keys)
            .map_err(refused)?;
        let mut row = Batch::new();
        put(&mut row, owner, spec, &now.keys);
        self.carry_out(owner, &now, (spec.clone(), row), &[])
    }

    /// Adds the removal of an owner's row to a batch.
    pub(super) fn forget(batch: &mut Batch, owner: &Owner) {
        batch.delete(STORE, resource(owner).as_bytes());
    }

    /// Stored settings of an adapter or a port, if any. A row that cannot be read causes an event.
    pub(super) fn stored(&self, owner: &Owner) -> Option<QosSpec> {
        let rows = match self.0.store.all(STORE) {
            Ok(rows) => rows,
            Err(error) => {
                self.lives_without(owner.clone(), &error.to_string());
                return None;
            }
        };
        let name = resource(owner);
        let (_, bytes) = rows
            .into_iter()
            .find(|(row, _)| row.as_slice() == name.as_bytes())?;
        match stored::qos::decode(&bytes) {
            Ok((mut spec, keys)) => {
                if matches!(owner, Owner::Port(_)) {
                    spec.keys = keys;
                }
                Some(spec)
            }
            Err(problem) => {
                self.lives_without(owner.clone(), &problem);
                None
            }
        }
    }

    /// Records that stored settings cannot act.
    pub(super) fn lives_without(&self, owner: Owner, problem: &str) {
        self.record_refused(owner, format!("what is stored does not act: {problem}"), "");
    }

    /// Applies the settings that are stored for the name of a new port.
    pub(super) fn port_made(&self, port: &str) {
        let owner = Owner::Port(port.to_owned());
        if let Some(spec) = self.stored(&owner)
            && let Err(error) = self.0.nic.set_qos(port, spec)
        {
            self.lives_without(owner, &error.to_string());
        }
    }

    /// Removes the row of a port that is about to be removed, and what else the batch says.
    pub(super) fn forget_port(&self, port: &str, mut batch: Batch) -> Result<(), StoreError> {
        Qos::forget(&mut batch, &Owner::Port(port.to_owned()));
        self.0.store.commit(batch)
    }
}

/// Adds the row of an owner to a batch.
fn put(batch: &mut Batch, owner: &Owner, spec: &QosSpec, keys: &QosKeys) {
    let plain = match owner {
        Owner::Port(_) => *keys == QosKeys::default(),
        _ => true,
    };
    let unkeyed = QosSpec {
        keys: QosKeys::default(),
        ..spec.clone()
    };
    if plain && unkeyed == QosSpec::default() {
        Qos::forget(batch, owner);
    } else {
        batch.put(STORE, resource(owner).as_bytes(), stored::qos::encode(spec, keys));
    }
}
