//! An event before it has its number.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::SystemTime;

use vnic_backend::{NicEvent, NicEventKind};
use vnic_control::v1;
use vnic_control::v1::event::Severity;

use super::kinds::{self, Kind};
use super::words::{self, Level, Told, told};
use super::{ControlEvent, describe};
use crate::names;

/// Owner of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// No adapter or port.
    Nic,
    /// An adapter.
    Adapter(String),
    /// A port.
    Port(String),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Wall-clock time.
    pub time: SystemTime,
    /// Time in nanoseconds of CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Severity.
    pub level: Level,
    /// Kind.
    pub kind: &'static Kind,
    /// Owner.
    pub owner: Owner,
    /// Separates sums of events of one owner and kind. It must not depend on what a guest chooses: there is a sum for each key.
    pub key: u64,
    /// Message for people.
    pub message: String,
    /// Facts for programs.
    pub parameters: Vec<(&'static str, String)>,
    /// Number of events that are summed up in this one; 0: it is a single event.
    pub suppressed: u64,
}

/// CLOCK_MONOTONIC, in nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

impl Record {
    /// Record of an event of the NIC. `is_port` says whether a name is a port's.
    pub fn of(event: &NicEvent, is_port: impl FnOnce(&str) -> bool) -> Record {
        let name = || event.owner.clone();
        let either = matches!(
            event.kind,
            NicEventKind::Fault(_)
                | NicEventKind::PauseStormWarning
                | NicEventKind::PauseStorm
                | NicEventKind::PauseStormOver
                | NicEventKind::ClassStalled { .. }
                | NicEventKind::LoopSuspected { .. }
        );
        let is_bond = matches!(
            event.kind,
            NicEventKind::BondAdded | NicEventKind::BondRemoved | NicEventKind::BondLink { .. }
        );
        let owner = match &event.kind {
            _ if event.owner.is_empty() => Owner::Nic,
            NicEventKind::PortAdded
            | NicEventKind::PortRemoved
            | NicEventKind::PortLink { .. }
            | NicEventKind::BondMemberLost { .. }
            | NicEventKind::BondMemberBack { .. }
            | NicEventKind::LacpPartnerFound { .. }
            | NicEventKind::LacpPartnerLost { .. }
            | NicEventKind::LldpNeighbourFound { .. }
            | NicEventKind::LldpNeighbourLost { .. }
            | NicEventKind::DcbxChanged { .. }
            | NicEventKind::DcbxSeveralPeers { .. }
            | NicEventKind::DcbxRefused { .. } => Owner::Port(name()),
            _ if is_bond => Owner::Nic,
            _ if either && is_port(&event.owner) => Owner::Port(name()),
            _ => Owner::Adapter(name()),
        };
        // The event was delayed a little: its time on CLOCK_MONOTONIC is computed from its age.
        let ago = event.time.elapsed().unwrap_or_default();
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(0);
        let now = Record::now(describe(event), owner);
        Record {
            time: event.time,
            monotonic_ns: now.monotonic_ns.saturating_sub(ago),
            key: words::key(&event.kind),
            suppressed: words::suppressed(&event.kind),
            ..now
        }
    }

    /// Record of an event that happens now.
    pub fn now(told: Told, owner: Owner) -> Record {
        Record {
            time: SystemTime::now(),
            monotonic_ns: monotonic_ns(),
            level: told.level,
            kind: told.kind,
            owner,
            key: 0,
            message: told.message,
            parameters: told.facts,
            suppressed: 0,
        }
    }

    /// Record of a loss of events between the NIC and the log.
    pub fn gap() -> Record {
        let message = "more happened than could be written down: events before this one are missing";
        Record::now(told(&kinds::EVENTS_LOST, message), Owner::Nic)
    }

    /// Whether the event is stored at once: errors, and WinOF-2's events.
    pub fn urgent(&self) -> bool {
        self.level == Level::Error || self.kind.id < kinds::OURS
    }

    /// Message that is stored and sent under its revision.
    pub fn into_event(self, revision: u64, boot_id: &str) -> v1::Event {
        let (mut adapter, mut port) = (String::new(), String::new());
        match &self.owner {
            Owner::Nic => {}
            Owner::Adapter(name) => adapter = names::of(names::ADAPTERS, name),
            Owner::Port(name) => port = names::of(names::PORTS, name),
        }
        let parameters = self.parameters.into_iter();
        v1::Event {
            revision,
            time: Some(self.time.into()),
            monotonic_ns: self.monotonic_ns,
            id: self.kind.id,
            severity: severity(self.level).into(),
            kind: self.kind.name.to_owned(),
            adapter,
            port,
            message: self.message,
            parameters: parameters.map(|(k, v)| (k.to_owned(), v)).collect(),
            suppressed: self.suppressed,
            boot_id: boot_id.to_owned(),
        }
    }
}

impl From<ControlEvent> for Record {
    fn from(event: ControlEvent) -> Record {
        let mut record = Record::now(event.describe(), event.owner());
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        record.key = match &event {
            // The sum of one refused client does not hide others.
            ControlEvent::AccessRefused { by, .. }
            | ControlEvent::ConnectionRefused { by, .. }
            | ControlEvent::ConnectionEnded { by, .. } => hash.hash_one(by),
            // Different events are recorded one by one: only accepted clients cause them.
            _ => hash.hash_one(&record.parameters),
        };
        record
    }
}

/// Severity of a level in the gRPC interface.
pub fn severity(level: Level) -> Severity {
    match level {
        Level::Info => Severity::Info,
        Level::Warn => Severity::Warning,
        Level::Error => Severity::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_know_to_what_it_happened() {
        let of = |owner: &str, kind| {
            let event = NicEvent {
                time: SystemTime::now(),
                owner: owner.to_owned(),
                kind,
            };
            Record::of(&event, |name| name == "p0")
        };
        let fault = || {
            NicEventKind::Fault(vnic_backend::FaultInjection {
                id: 3,
                name: "lossy".to_owned(),
                what: vnic_backend::Injected::More(7),
            })
        };
        assert_eq!(of("p0", fault()).owner, Owner::Port("p0".to_owned()));
        assert_eq!(of("vf0", fault()).owner, Owner::Adapter("vf0".to_owned()));
        let record = of("", fault());
        assert_eq!(
            (record.owner.clone(), record.suppressed, record.key),
            (Owner::Nic, 7, 3)
        );
        assert_eq!(record.message, "fault 3 \"lossy\": 7 more frames");
        assert_eq!(record.parameters[1], ("fault", "lossy".to_owned()));
        let record = of("p0", NicEventKind::PortLink { up: false });
        assert_eq!((record.level, record.kind.name), (Level::Warn, "port_link"));
        assert!(record.monotonic_ns > 0 && !record.urgent());
        let event = record.into_event(9, "boot");
        assert_eq!((event.revision, event.port.as_str()), (9, "ports/p0"));
        assert_eq!((event.id, event.severity()), (0x1112, Severity::Warning));

        for (kind, id) in [
            (NicEventKind::DroplessTimeout { queue: 2 }, 75),
            (NicEventKind::DroplessEntered, 77),
            (NicEventKind::DroplessExited, 78),
        ] {
            let record = of("vf0", kind);
            assert!(record.urgent() && record.kind.levels.contains(&record.level));
            assert_eq!(record.kind.id, id);
        }
    }
}
