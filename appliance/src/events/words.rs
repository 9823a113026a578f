//! Events in words and numbers, for people and for programs: decided here and nowhere else.

use super::kinds::{self, Kind};
use vnic_backend::{AttachState, Claim, FaultInjection, GidConflict, Injected, NicEvent, NicEventKind};

/// How much an event matters to the person who runs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Normal life.
    Info,
    /// Someone should look: a guest or a VMM misbehaves.
    Warn,
    /// A bug of the daemon.
    Error,
}

impl Level {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warn => "warning",
            Level::Error => "error",
        }
    }
}

/// The level and the words of an event: the only place where they are decided.
pub fn describe(event: &NicEvent) -> (Level, String) {
    match &event.kind {
        NicEventKind::AdapterAdded => (Level::Info, "adapter added".to_owned()),
        NicEventKind::AdapterRemoved => (Level::Info, "adapter removed".to_owned()),
        NicEventKind::AdapterState(AttachState::Failed) => (
            Level::Error,
            "a bug took the adapter down; the other adapters run on. `vnicctl adapter restart` brings it back; \
             please report the log lines before this one"
                .to_owned(),
        ),
        NicEventKind::AdapterState(AttachState::Detached) => {
            (Level::Info, "detached: nobody is connected to the socket".to_owned())
        }
        NicEventKind::AdapterState(AttachState::Attached) => {
            (Level::Info, "attached: a VMM is connected, no driver runs".to_owned())
        }
        NicEventKind::AdapterState(AttachState::Up) => {
            (Level::Info, "up: the guest's driver runs".to_owned())
        }
        NicEventKind::RdmaState(state) => rdma_state(*state),
        NicEventKind::GidChanged { index, gid, added } => {
            let (gid, what) = (std::net::Ipv6Addr::from(*gid), if *added { "added" } else { "gone" });
            (Level::Info, format!("GID {gid} at index {index} {what}"))
        }
        NicEventKind::GidConflict(c) => (Level::Warn, gid_conflict(c)),
        NicEventKind::RdmaFault { what } => (
            Level::Warn,
            format!("the driver of the RDMA function did something illegal: {what}"),
        ),
        NicEventKind::RingFault { ring, what } => (
            Level::Warn,
            format!(
                "ring {ring} stopped: the guest wrote something illegal into it ({what}); it starts again when \
                 the guest resets the device"
            ),
        ),
        NicEventKind::SpoofedSource { source } => (
            Level::Warn,
            format!(
                "frames from {source} are dropped: it is not an address of this adapter. Give the VM the \
                 adapter's own address (mac= of its network device; `vnicctl adapter show` tells it), or set \
                 anti_spoofing = false"
            ),
        ),
        NicEventKind::SpoofedAddress(claim) => (Level::Warn, spoofed_address(claim)),
        NicEventKind::ProtocolError { what } => (Level::Warn, format!("refused the VMM: {what}")),
        // The words of the three are WinOF-2's.
        NicEventKind::DroplessEntered => (
            Level::Info,
            "Dropless mode entered. For more details, please refer to the user manual document".to_owned(),
        ),
        NicEventKind::DroplessExited => (
            Level::Info,
            "Dropless mode exited. For more details, please refer to the user manual document.".to_owned(),
        ),
        NicEventKind::DroplessTimeout { queue } => (
            Level::Warn,
            format!("Delay drop timer timed out for RQ Index {queue}. Dropless mode feature is now disabled"),
        ),
        NicEventKind::PauseStormWarning => (
            Level::Warn,
            "the receive path stands still while senders are told to wait: longer than the minor watermark \
             (DeviceRxStallWatermark)"
                .to_owned(),
        ),
        NicEventKind::PauseStorm => (
            Level::Warn,
            "the receive path stands still for longer than the critical watermark (DeviceRxStallTimeout): no sender is \
             told to wait any more, on any priority, until it moves"
                .to_owned(),
        ),
        NicEventKind::PauseStormOver => (
            Level::Info,
            "the receive path moves again: flow control is as configured".to_owned(),
        ),
        NicEventKind::ClassStalled { class } => (
            Level::Warn,
            format!(
                "traffic class {class} is stalled: too many of its frames waited too long (TCHeadOfQueueLifeTimeLimit, \
                 TCStallCount); what waits in it is dropped"
            ),
        ),
        NicEventKind::PortAdded => (Level::Info, "port added".to_owned()),
        NicEventKind::PortRemoved => (Level::Info, "port removed".to_owned()),
        NicEventKind::PortLink { up: true } => (Level::Info, "link up".to_owned()),
        NicEventKind::PortLink { up: false } => (Level::Warn, "link down".to_owned()),
        NicEventKind::BondAdded => (Level::Info, format!("bond {} made", event.owner)),
        NicEventKind::BondRemoved => (Level::Info, format!("bond {} removed", event.owner)),
        NicEventKind::BondLink { up: true } => (Level::Info, format!("link of bond {} up", event.owner)),
        NicEventKind::BondLink { up: false } => (
            Level::Warn,
            format!("link of bond {} down: no member may carry frames", event.owner),
        ),
        NicEventKind::BondMemberLost { bond, took, dropped } => (
            Level::Warn,
            format!(
                "carries no frames of bond {bond} any more; its flows moved within {:.3} ms, {dropped} frames that \
                 waited were dropped",
                took.as_secs_f64() * 1000.0
            ),
        ),
        NicEventKind::BondMemberBack { bond } => (Level::Info, format!("may carry frames of bond {bond}")),
        NicEventKind::LacpPartnerFound { bond, partner } => {
            (Level::Info, format!("bond {bond} hears LACP partner {partner}"))
        }
        NicEventKind::LacpPartnerLost { bond } => (
            Level::Warn,
            format!("bond {bond} does not hear its LACP partner any more"),
        ),
        NicEventKind::FaultAdded { id, name, action } => (
            Level::Warn,
            format!(
                "fault {id} \"{name}\" added: frames suffer on purpose ({action}) until `vnicctl fault remove {name}`"
            ),
        ),
        NicEventKind::FaultRemoved { id, name, injected } => (
            Level::Info,
            format!("fault {id} \"{name}\" removed; it hit {injected} frames"),
        ),
        NicEventKind::Fault(FaultInjection { id, name, what }) => {
            (Level::Info, format!("fault {id} \"{name}\": {}", injected(what)))
        }
    }
}

/// The level and the words for a state of an RDMA function.
fn rdma_state(state: AttachState) -> (Level, String) {
    let (level, text) = match state {
        AttachState::Detached => (Level::Info, "detached: nobody is connected to its socket"),
        AttachState::Attached => (
            Level::Info,
            "attached: a VMM or a process is connected, no driver runs",
        ),
        AttachState::Up => (Level::Info, "up: a driver runs"),
        AttachState::Failed => (
            Level::Error,
            "taken down by a bug; `vnicctl adapter restart` brings it back; please report the log lines before \
             this one",
        ),
    };
    (level, format!("RDMA function {text}"))
}

fn spoofed_address(claim: &Claim) -> String {
    match claim {
        Claim::Address(address) => format!(
            "frames that claim {address} are dropped: it is none of the adapter's allowed_addresses. Give the guest one of \
             these (`vnicctl adapter show` tells them), or add {address} to allowed_addresses"
        ),
        Claim::DhcpServer => {
            "answers as a DHCP server are dropped: the adapter has allowed_addresses. Run the server \
                              where there is no such list, or leave out the list"
                .to_owned()
        }
        Claim::Hidden => {
            "frames are dropped whose addresses cannot be seen (malformed, or behind too many headers): the \
                          adapter has allowed_addresses. Leave out the list if the guest must send them"
                .to_owned()
        }
    }
}

fn gid_conflict(c: &GidConflict) -> String {
    let (gid, vlan, other) = (std::net::Ipv6Addr::from(c.gid), c.vlan, c.other);
    let whose = if c.ours {
        "this adapter has it"
    } else {
        "the other one was first and has it, until it gives it back"
    };
    format!("GID {gid} in VLAN {vlan} is claimed by {other} as well: {whose}")
}

/// What kind of event it is: its number and its name are a contract.
pub fn kind(event: &NicEventKind) -> &'static Kind {
    match event {
        NicEventKind::AdapterAdded => &kinds::ADAPTER_ADDED,
        NicEventKind::AdapterRemoved => &kinds::ADAPTER_REMOVED,
        NicEventKind::AdapterState(_) => &kinds::ADAPTER_STATE,
        NicEventKind::RdmaState(_) => &kinds::RDMA_STATE,
        NicEventKind::GidChanged { .. } => &kinds::GID_CHANGED,
        NicEventKind::GidConflict(_) => &kinds::GID_CONFLICT,
        NicEventKind::RdmaFault { .. } => &kinds::RDMA_FAULT,
        NicEventKind::RingFault { .. } => &kinds::RING_FAULT,
        NicEventKind::SpoofedSource { .. } => &kinds::SPOOFED_SOURCE,
        NicEventKind::SpoofedAddress(_) => &kinds::SPOOFED_ADDRESS,
        NicEventKind::ProtocolError { .. } => &kinds::PROTOCOL_ERROR,
        NicEventKind::DroplessEntered => &kinds::DROPLESS_ENTERED,
        NicEventKind::DroplessExited => &kinds::DROPLESS_EXITED,
        NicEventKind::DroplessTimeout { .. } => &kinds::DROPLESS_TIMEOUT,
        NicEventKind::PauseStormWarning => &kinds::PAUSE_STORM_WARNING,
        NicEventKind::PauseStorm => &kinds::PAUSE_STORM,
        NicEventKind::PauseStormOver => &kinds::PAUSE_STORM_OVER,
        NicEventKind::ClassStalled { .. } => &kinds::CLASS_STALLED,
        NicEventKind::PortAdded => &kinds::PORT_ADDED,
        NicEventKind::PortRemoved => &kinds::PORT_REMOVED,
        NicEventKind::PortLink { .. } => &kinds::PORT_LINK,
        NicEventKind::BondAdded => &kinds::BOND_ADDED,
        NicEventKind::BondRemoved => &kinds::BOND_REMOVED,
        NicEventKind::BondLink { .. } => &kinds::BOND_LINK,
        NicEventKind::BondMemberLost { .. } => &kinds::BOND_MEMBER_LOST,
        NicEventKind::BondMemberBack { .. } => &kinds::BOND_MEMBER_BACK,
        NicEventKind::LacpPartnerFound { .. } => &kinds::LACP_PARTNER_FOUND,
        NicEventKind::LacpPartnerLost { .. } => &kinds::LACP_PARTNER_LOST,
        NicEventKind::FaultAdded { .. } => &kinds::FAULT_ADDED,
        NicEventKind::FaultRemoved { .. } => &kinds::FAULT_REMOVED,
        NicEventKind::Fault(_) => &kinds::FAULT_INJECTED,
    }
}

/// The facts of an event, for programs.
pub fn parameters(event: &NicEventKind) -> Vec<(&'static str, String)> {
    match event {
        NicEventKind::AdapterAdded
        | NicEventKind::AdapterRemoved
        | NicEventKind::DroplessEntered
        | NicEventKind::DroplessExited
        | NicEventKind::PauseStormWarning
        | NicEventKind::PauseStorm
        | NicEventKind::PauseStormOver
        | NicEventKind::PortAdded
        | NicEventKind::PortRemoved
        | NicEventKind::BondAdded
        | NicEventKind::SpoofedAddress(Claim::DhcpServer | Claim::Hidden)
        | NicEventKind::BondRemoved => Vec::new(),
        NicEventKind::AdapterState(state) | NicEventKind::RdmaState(state) => {
            vec![("state", state.name().to_owned())]
        }
        NicEventKind::GidChanged { index, gid, added } => vec![
            ("index", index.to_string()),
            ("gid", std::net::Ipv6Addr::from(*gid).to_string()),
            ("added", added.to_string()),
        ],
        NicEventKind::GidConflict(c) => vec![
            ("gid", std::net::Ipv6Addr::from(c.gid).to_string()),
            ("vlan", c.vlan.to_string()),
            ("other", c.other.to_string()),
            ("ours", c.ours.to_string()),
        ],
        NicEventKind::RdmaFault { what } => vec![("what", what.clone())],
        NicEventKind::RingFault { ring, what } => {
            vec![("ring", ring.to_string()), ("what", what.clone())]
        }
        NicEventKind::SpoofedSource { source } => vec![("source", source.to_string())],
        NicEventKind::SpoofedAddress(Claim::Address(address)) => vec![("address", address.to_string())],
        NicEventKind::ProtocolError { what } => vec![("what", what.clone())],
        NicEventKind::DroplessTimeout { queue } => vec![("queue", queue.to_string())],
        NicEventKind::ClassStalled { class } => vec![("class", class.to_string())],
        NicEventKind::PortLink { up } | NicEventKind::BondLink { up } => vec![("up", up.to_string())],
        NicEventKind::BondMemberLost { bond, took, dropped } => vec![
            ("bond", bond.clone()),
            ("took_us", took.as_micros().to_string()),
            ("dropped", dropped.to_string()),
        ],
        NicEventKind::BondMemberBack { bond } | NicEventKind::LacpPartnerLost { bond } => {
            vec![("bond", bond.clone())]
        }
        NicEventKind::LacpPartnerFound { bond, partner } => {
            vec![("bond", bond.clone()), ("partner", partner.to_string())]
        }
        NicEventKind::FaultAdded { id, name, action } => vec![
            ("fault_id", id.to_string()),
            ("fault", name.clone()),
            ("action", (*action).to_owned()),
        ],
        NicEventKind::FaultRemoved { id, name, injected } => vec![
            ("fault_id", id.to_string()),
            ("fault", name.clone()),
            ("injected", injected.to_string()),
        ],
        NicEventKind::Fault(FaultInjection { id, name, what }) => {
            let mut all = vec![("fault_id", id.to_string()), ("fault", name.clone())];
            if let Injected::One {
                from,
                to,
                effect,
                len,
                roce,
            } = what
            {
                all.push(("from", from.clone()));
                all.push(("to", to.clone()));
                all.push(("effect", effect.clone()));
                all.push(("bytes", len.to_string()));
                if let Some((opcode, qp, psn)) = roce {
                    all.push(("opcode", opcode.to_string()));
                    all.push(("destination_qp", qp.to_string()));
                    all.push(("psn", psn.to_string()));
                }
            }
            all
        }
    }
}

/// What of an event its sum is made by, besides its owner and kind: the rule of a fault. Nothing that a guest chooses.
pub fn key(event: &NicEventKind) -> u64 {
    match event {
        NicEventKind::Fault(FaultInjection { id, .. })
        | NicEventKind::FaultAdded { id, .. }
        | NicEventKind::FaultRemoved { id, .. } => u64::from(*id),
        _ => 0,
    }
}

/// How many more events of its kind it sums up.
pub fn suppressed(event: &NicEventKind) -> u64 {
    match event {
        NicEventKind::Fault(FaultInjection {
            what: Injected::More(n),
            ..
        }) => *n,
        _ => 0,
    }
}

/// What a fault rule did, in words.
fn injected(what: &Injected) -> String {
    match what {
        Injected::More(1) => "one more frame".to_owned(),
        Injected::More(n) => format!("{n} more frames"),
        Injected::One {
            from,
            to,
            effect,
            len,
            roce,
        } => {
            let roce = roce.map_or_else(String::new, |(opcode, qp, psn)| {
                format!(", opcode {opcode:#04x}, QP {qp:#x}, PSN {psn}")
            });
            format!("{effect}, frame from {from} to {to} of {len} bytes{roce}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::MacAddr;

    fn described(kind: NicEventKind) -> (Level, String) {
        describe(&NicEvent {
            time: std::time::SystemTime::UNIX_EPOCH,
            owner: "vf0".to_owned(),
            kind,
        })
    }

    #[test]
    fn a_spoofed_source_tells_the_cure() {
        let (level, text) = described(NicEventKind::SpoofedSource {
            source: MacAddr([2, 0, 0, 0, 0, 1]),
        });
        assert_eq!(level, Level::Warn);
        for part in [
            "02:00:00:00:00:01",
            "mac=",
            "vnicctl adapter show",
            "anti_spoofing = false",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_spoofed_address_tells_the_cure() {
        let address = |text: &str| Claim::Address(text.parse().expect("an address"));
        let fields = parameters(&NicEventKind::SpoofedAddress(address("fd00::9")));
        assert_eq!(fields, [("address", "fd00::9".to_owned())]);
        for (claim, parts) in [
            (address("10.0.0.9"), ["10.0.0.9", "allowed_addresses"]),
            (address("fd00::9"), ["fd00::9", "allowed_addresses"]),
            (Claim::DhcpServer, ["DHCP server", "allowed_addresses"]),
            (Claim::Hidden, ["cannot be seen", "allowed_addresses"]),
        ] {
            let (level, text) = described(NicEventKind::SpoofedAddress(claim));
            assert_eq!(level, Level::Warn);
            for part in parts {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
    }

    #[test]
    fn gids_are_told_as_addresses() {
        let kind = NicEventKind::GidChanged {
            index: 7,
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 5],
            added: true,
        };
        assert_eq!(described(kind.clone()).1, "GID ::ffff:10.0.0.5 at index 7 added");
        let facts = [("index", "7"), ("gid", "::ffff:10.0.0.5"), ("added", "true")];
        assert_eq!(parameters(&kind), facts.map(|(k, v)| (k, v.to_owned())));
        assert_eq!(
            described(NicEventKind::RdmaState(AttachState::Failed)).0,
            Level::Error
        );
        let fault = NicEventKind::RdmaFault {
            what: "send queue of QP 5: index beyond the ring".to_owned(),
        };
        assert_eq!(described(fault.clone()).0, Level::Warn);
        assert_eq!(super::kind(&fault).name, "rdma_fault");
    }

    #[test]
    fn a_conflict_tells_whose_the_address_is() {
        let mut conflict = GidConflict {
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 5],
            vlan: 7,
            other: MacAddr([2, 0, 0, 0, 0, 1]),
            ours: false,
        };
        let (level, text) = described(NicEventKind::GidConflict(conflict));
        assert_eq!(level, Level::Warn);
        for part in ["::ffff:10.0.0.5", "VLAN 7", "02:00:00:00:00:01", "was first"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        conflict.ours = true;
        let kind = NicEventKind::GidConflict(conflict);
        assert!(described(kind.clone()).1.ends_with("this adapter has it"));
        assert_eq!(parameters(&kind).len(), 4);
    }

    #[test]
    fn only_bugs_of_ours_are_errors() {
        assert_eq!(
            described(NicEventKind::AdapterState(AttachState::Failed)).0,
            Level::Error
        );
        assert_eq!(
            described(NicEventKind::RingFault {
                ring: 1,
                what: "loop".to_owned()
            })
            .0,
            Level::Warn
        );
    }
}
