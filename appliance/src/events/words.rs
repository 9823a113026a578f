//! Kind, severity, message and facts of each event, decided in this file alone.

use std::net::Ipv6Addr;

use vnic_backend::{
    AttachState, Caller, Claim, ConnectionOutcome, ConnectionReport, DcbxSource, FaultInjection, Injected,
    LldpLost, MovePart, NicEvent, NicEventKind, PkeyViolation, RdmaGaveUp,
};

use super::kinds::{self, Kind};

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Normal operation.
    Info,
    /// Someone should look: a guest or a VMM misbehaves.
    Warn,
    /// A bug of the daemon.
    Error,
}

impl Level {
    /// Name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warn => "warning",
            Level::Error => "error",
        }
    }
}

/// Contents of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Kind; its number and name are part of the interface.
    pub kind: &'static Kind,
    /// Severity.
    pub level: Level,
    /// Message for people.
    pub message: String,
    /// Facts for programs.
    pub facts: Vec<(&'static str, String)>,
}

/// Event of a kind, with the kind's first level.
pub fn told(kind: &'static Kind, message: impl Into<String>) -> Told {
    Told {
        kind,
        level: kind.levels[0],
        message: message.into(),
        facts: Vec::new(),
    }
}

impl Told {
    /// Sets the level.
    pub fn at(self, level: Level) -> Told {
        Told { level, ..self }
    }

    /// Adds a fact.
    pub fn fact(mut self, name: &'static str, value: impl ToString) -> Told {
        self.facts.push((name, value.to_string()));
        self
    }
}

/// Event of a kind, with facts that are named as the variables that have them, and a message.
macro_rules! tell {
    ($kind:ident $(, $fact:ident)*; $($message:tt)+) => {
        told(&kinds::$kind, format!($($message)+))$(.fact(stringify!($fact), $fact))*
    };
}
pub(super) use tell;

/// Requests that were given up, and what may be the reason.
fn gave_up(report: &RdmaGaveUp) -> Told {
    let RdmaGaveUp {
        unanswered,
        not_ready,
        drops,
    } = report;
    let of = [
        (unanswered, "that the peer did not answer (RETRY_EXC_ERR)"),
        (not_ready, "for which the peer had no receive (RNR_RETRY_EXC_ERR)"),
    ];
    let of = of.iter().filter(|(count, _)| **count > 0);
    let of: Vec<String> = of.map(|(count, what)| format!("{count} {what}")).collect();
    let drops = drops.iter().map(|(reason, count)| format!("{reason} {count}"));
    let drops = drops.collect::<Vec<_>>().join(", ");
    let cause = match drops.as_str() {
        "" => "the adapter dropped none of its frames since the last such event".to_owned(),
        all => format!("the adapter dropped frames since the last such event: {all}"),
    };
    tell! { RDMA_GAVE_UP, unanswered, not_ready, drops; "the RDMA function gave up requests: {}; {cause}", of.join(", ") }
}

/// Packets of other partitions.
fn bad_pkey(of: &PkeyViolation) -> Told {
    let (qp, own, packets) = (of.qp.0, format!("{:#06x}", of.own), of.packets);
    let (pkey, source) = (
        format!("{:#06x}", of.pkey),
        Ipv6Addr::from(of.source.0).to_canonical(),
    );
    let sender = of
        .source_qp
        .map_or_else(String::new, |qp| format!(", queue pair {:#x}", qp.0));
    let own = match of.own {
        0 => "the adapter is a member of no such partition, or both are limited members".to_owned(),
        _ => format!("the queue pair has {own}"),
    };
    tell! { BAD_PKEY, pkey, qp, source, packets;
        "packets of other partitions are dropped ({packets}): the first came from {source}{sender} with P_Key {pkey} for queue pair \
         {qp:#x}; {own}"
    }
}

/// What has become of connections.
fn connections(report: &ConnectionReport) -> Told {
    let ConnectionReport {
        outcome,
        count,
        service,
        reason,
        ..
    } = report;
    let peer = Ipv6Addr::from(report.peer).to_canonical();
    let last = format!("the last one for {service}, with {peer}");
    match outcome {
        ConnectionOutcome::Established => {
            tell! { CONNECTION_ESTABLISHED, count, service, peer; "{count} RDMA connections established; {last}" }
        }
        ConnectionOutcome::Rejected => {
            tell! { CONNECTION_REJECTED, count, service, peer, reason; "{count} RDMA connections rejected; {last}: {reason}" }
        }
        ConnectionOutcome::TimedOut => {
            tell! { CONNECTION_TIMED_OUT, count, service, peer; "{count} RDMA connections without an answer; {last}" }
        }
        ConnectionOutcome::Disconnected => {
            tell! { CONNECTION_DISCONNECTED, count, service, peer; "{count} RDMA connections ended; {last}" }
        }
    }
}

/// Contents of an event of the NIC.
pub fn describe(event: &NicEvent) -> Told {
    let owner = &event.owner;
    match &event.kind {
        NicEventKind::AdapterAdded => told(&kinds::ADAPTER_ADDED, "adapter added"),
        NicEventKind::AdapterRemoved => told(&kinds::ADAPTER_REMOVED, "adapter removed"),
        NicEventKind::AdapterChanged { waits } => {
            let text = match waits {
                true => "adapter changed; a part waits for `vnicctl adapter restart`",
                false => "adapter changed",
            };
            told(&kinds::ADAPTER_CHANGED, text).fact("waits", waits)
        }
        NicEventKind::GuestMoved { part, peer, speaks } => {
            let peer = peer.as_deref().unwrap_or("another daemon");
            let text = match (part, speaks) {
                (_, false) => format!(
                    "the guest stopped: the adapter has given up its addresses, which {peer} may take"
                ),
                (MovePart::Target, true) => {
                    format!("the guest of {peer} runs here: the adapter has its addresses")
                }
                (MovePart::Source, true) => {
                    "the guest runs here again: the adapter has its addresses".to_owned()
                }
            };
            tell! { MIGRATION_SWITCHED, part, peer, speaks; "{text}" }
        }
        NicEventKind::AdapterState(state) => {
            let (level, text) = match state {
                AttachState::Failed => (
                    Level::Error,
                    "a bug took the adapter down; the other adapters run on. `vnicctl adapter restart` brings it back; \
                     please report the log lines before this one",
                ),
                AttachState::Detached => (Level::Info, "detached: nobody is connected to the socket"),
                AttachState::Attached => (Level::Info, "attached: a VMM is connected, no driver runs"),
                AttachState::Up => (Level::Info, "up: the guest's driver runs"),
            };
            tell! { ADAPTER_STATE, state; "{text}" }.at(level)
        }
        NicEventKind::RdmaState(state) => {
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
            tell! { RDMA_STATE, state; "RDMA function {text}" }.at(level)
        }
        NicEventKind::GidChanged { index, gid, added } => {
            let (gid, what) = (Ipv6Addr::from(*gid), if *added { "added" } else { "gone" });
            tell! { GID_CHANGED, index, gid, added; "GID {gid} at index {index} {what}" }
        }
        NicEventKind::GidConflict(c) => {
            let (gid, vlan, other, ours) = (Ipv6Addr::from(c.gid), c.vlan, c.other, c.ours);
            let whose = match ours {
                true => "this adapter has it",
                false => "the other one was first and has it, until it gives it back",
            };
            tell! { GID_CONFLICT, gid, vlan, other, ours; "GID {gid} in VLAN {vlan} is claimed by {other} as well: {whose}" }
        }
        NicEventKind::RdmaFault { what } => {
            tell! { RDMA_FAULT, what; "the driver of the RDMA function did something illegal: {what}" }
        }
        NicEventKind::RdmaGaveUp(report) => gave_up(report),
        NicEventKind::ProgramFault(failures) => {
            let (faults, stopped) = (failures.count, failures.stopped);
            let last = failures.last.as_deref().unwrap_or_default();
            let then = match stopped {
                true => "dcqcn takes over until a program is loaded again",
                false => "the flow stays as it was",
            };
            tell! { PROGRAM_FAILED, faults, stopped; "the program of congestion control failed: {last} ({faults} in all); {then}" }
        }
        NicEventKind::BadPkey(violation) => bad_pkey(violation),
        NicEventKind::RdmaConnections(report) => connections(report),
        NicEventKind::RingFault { ring, what } => tell! { RING_FAULT, ring, what;
            "ring {ring} stopped: the guest wrote something illegal into it ({what}); it starts again when the guest resets the device"
        },
        NicEventKind::SpoofedSource { source } => tell! { SPOOFED_SOURCE, source;
            "frames from {source} are dropped: it is not an address of this adapter. Give the VM the adapter's own address (mac= of its \
             network device; `vnicctl adapter show` tells it), or set anti_spoofing = false"
        },
        NicEventKind::MagicPacket { source, by } => tell! { MAGIC_PACKET, source, by;
            "a magic packet of {source} by {by}: somebody asks to wake the guest"
        },
        NicEventKind::WakePattern { source, by, pattern } => tell! { WAKE_PATTERN, source, by, pattern;
            "a frame of {source} by {by} has the pattern {pattern}: it is to wake the guest"
        },
        NicEventKind::SpoofedAddress(Claim::Address(address)) => tell! { SPOOFED_ADDRESS, address;
            "frames that claim {address} are dropped: it is none of the adapter's allowed_addresses. Give the guest one of these \
             (`vnicctl adapter show` tells them), or add {address} to allowed_addresses"
        },
        NicEventKind::SpoofedAddress(Claim::DhcpServer) => told(
            &kinds::SPOOFED_ADDRESS,
            "answers as a DHCP server are dropped: the adapter has allowed_addresses. Run the server where there is no \
             such list, or leave out the list",
        ),
        NicEventKind::SpoofedAddress(Claim::Hidden) => told(
            &kinds::SPOOFED_ADDRESS,
            "frames are dropped whose addresses cannot be seen (malformed, or behind too many headers): the adapter has \
             allowed_addresses. Leave out the list if the guest must send them",
        ),
        NicEventKind::ProtocolError { what } => tell! { PROTOCOL_ERROR, what; "refused the VMM: {what}" },
        NicEventKind::VmmRefused { owner, by, refused } => vmm_refused(*owner, *by, *refused),
        NicEventKind::VmmUnused { by, queue_pairs } => {
            let message = format!(
                "the VMM ({by}) connects again and again, and its guest's driver never runs: it may be configured with more \
                 queue pairs than the {queue_pairs} that the adapter offers (QEMU: queues=, and its message \"you are asking more \
                 queues than supported\"; vnicctl adapter set --queue-pairs), or its guest may not boot"
            );
            told(&kinds::VMM_UNUSED, message)
                .fact("by", by)
                .fact("queue_pairs", queue_pairs)
        }
        // The messages of these three are WinOF-2's.
        NicEventKind::DroplessEntered => told(
            &kinds::DROPLESS_ENTERED,
            "Dropless mode entered. For more details, please refer to the user manual document",
        ),
        NicEventKind::DroplessExited => told(
            &kinds::DROPLESS_EXITED,
            "Dropless mode exited. For more details, please refer to the user manual document.",
        ),
        NicEventKind::DroplessTimeout { queue } => tell! { DROPLESS_TIMEOUT, queue;
            "Delay drop timer timed out for RQ Index {queue}. Dropless mode feature is now disabled"
        },
        NicEventKind::PauseStormWarning => told(
            &kinds::PAUSE_STORM_WARNING,
            "the receive path stands still while senders are told to wait: longer than the minor watermark \
             (DeviceRxStallWatermark)",
        ),
        NicEventKind::PauseStorm => told(
            &kinds::PAUSE_STORM,
            "the receive path stands still for longer than the critical watermark (DeviceRxStallTimeout): no sender is \
             told to wait any more, on any priority, until it moves",
        ),
        NicEventKind::PauseStormOver => told(
            &kinds::PAUSE_STORM_OVER,
            "the receive path moves again: flow control is as configured",
        ),
        NicEventKind::ClassStalled { class } => tell! { CLASS_STALLED, class;
            "traffic class {class} is stalled: too many of its frames waited too long (TCHeadOfQueueLifeTimeLimit, TCStallCount); what \
             waits in it is dropped"
        },
        NicEventKind::LoopSuspected {
            other,
            vlan,
            mac,
            moves,
        } => tell! { LOOP_SUSPECTED, other, vlan, mac, moves;
            "loop suspected: addresses move between {other} and {owner} again and again ({moves} times, the last one {mac} in VLAN \
             {vlan}). If both lead to the same network, make a team of them or remove one; otherwise two stations have the same address"
        },
        NicEventKind::PortAdded => told(&kinds::PORT_ADDED, "port added"),
        NicEventKind::PortRemoved => told(&kinds::PORT_REMOVED, "port removed"),
        NicEventKind::PortLink { up } => {
            let (level, text) = match up {
                true => (Level::Info, "link up"),
                false => (Level::Warn, "link down"),
            };
            tell! { PORT_LINK, up; "{text}" }.at(level)
        }
        NicEventKind::BondAdded => told(&kinds::BOND_ADDED, format!("bond {owner} made")).fact("bond", owner),
        NicEventKind::BondRemoved => {
            told(&kinds::BOND_REMOVED, format!("bond {owner} removed")).fact("bond", owner)
        }
        NicEventKind::BondLink { up } => {
            let bond = owner;
            let (level, text) = match up {
                true => (Level::Info, "up"),
                false => (Level::Warn, "down: no member may carry frames"),
            };
            tell! { BOND_LINK, bond, up; "link of bond {bond} {text}" }.at(level)
        }
        NicEventKind::BondMemberLost { bond, took, dropped } => {
            let (took_us, ms) = (took.as_micros(), took.as_secs_f64() * 1000.0);
            tell! { BOND_MEMBER_LOST, bond, took_us, dropped;
                "carries no frames of bond {bond} any more; its flows moved within {ms:.3} ms, {dropped} frames that waited were dropped"
            }
        }
        NicEventKind::BondMemberBack { bond } => {
            tell! { BOND_MEMBER_BACK, bond; "may carry frames of bond {bond}" }
        }
        NicEventKind::LacpPartnerFound { bond, partner } => {
            tell! { LACP_PARTNER_FOUND, bond, partner; "bond {bond} hears LACP partner {partner}" }
        }
        NicEventKind::LacpPartnerLost { bond } => {
            tell! { LACP_PARTNER_LOST, bond; "bond {bond} does not hear its LACP partner any more" }
        }
        NicEventKind::LldpNeighbourFound {
            chassis,
            port,
            system,
        } => {
            tell! { LLDP_NEIGHBOR_FOUND, chassis, port, system; "hears port {port:?} of chassis {chassis}, system {system:?}" }
        }
        NicEventKind::LldpNeighbourLost {
            chassis,
            port,
            system,
            why,
        } => {
            let why = match why {
                LldpLost::Shutdown => "it left",
                LldpLost::Aged => "it was silent for too long",
                LldpLost::Link => "the link is down, or the port does not listen any more",
            };
            tell! { LLDP_NEIGHBOR_LOST, chassis, port, system, why;
                "does not hear port {port:?} of chassis {chassis}, system {system:?}, any more: {why}"
            }
        }
        NicEventKind::DcbxChanged { outcome } => {
            let whose = |source: DcbxSource| match source {
                DcbxSource::Local => "own",
                DcbxSource::Peer => "peer",
            };
            let pfc = match outcome.operational.pfc {
                0 => "none".to_owned(),
                some => {
                    let all = (0..8).filter(|p| some >> p & 1 == 1);
                    all.map(|p| p.to_string()).collect::<Vec<_>>().join(",")
                }
            };
            let pfc_of = whose(outcome.sources.pfc);
            let classes_of = whose(outcome.sources.ets);
            let applications_of = whose(outcome.sources.applications);
            tell! { DCBX_CHANGED, pfc, pfc_of, classes_of, applications_of;
                "DCBX: flow control for priorities {pfc} ({pfc_of}), classes ({classes_of}), applications ({applications_of})"
            }
        }
        NicEventKind::DcbxSeveralPeers { peers } => {
            tell! { DCBX_SEVERAL_PEERS, peers; "{peers} stations speak DCBX on the link: none of them counts" }
        }
        NicEventKind::DcbxRefused { why } => {
            tell! { DCBX_REFUSED, why; "DCBX: {why}" }
        }
        NicEventKind::FaultAdded { id, name, action } => {
            let (fault_id, fault) = (id, name);
            tell! { FAULT_ADDED, fault_id, fault, action;
                "fault {id} \"{name}\" added: frames suffer on purpose ({action}) until `vnicctl fault remove {name}`"
            }
        }
        NicEventKind::FaultRemoved { id, name, injected } => {
            let (fault_id, fault) = (id, name);
            tell! { FAULT_REMOVED, fault_id, fault, injected; "fault {id} \"{name}\" removed; it hit {injected} frames" }
        }
        NicEventKind::VerbsFaultAdded { id, name, action } => {
            let (fault_id, fault) = (id, name);
            tell! { VERBS_FAULT_ADDED, fault_id, fault, action;
                "verbs fault {id} \"{name}\" added: programs suffer on purpose ({action}) until `vnicctl fault verbs remove {name}`"
            }
        }
        NicEventKind::VerbsFaultRemoved { id, name, injected } => {
            let (fault_id, fault) = (id, name);
            tell! { VERBS_FAULT_REMOVED, fault_id, fault, injected; "verbs fault {id} \"{name}\" removed; it has hit {injected} times" }
        }
        NicEventKind::VerbsFaultHit { id, name } => {
            let (fault_id, fault) = (id, name);
            tell! { VERBS_FAULT_HIT, fault_id, fault; "verbs fault {id} \"{name}\" has hit for the first time" }
        }
        NicEventKind::RecordingStarted { adapters } => {
            let adapters = adapters.join(" ");
            tell! { RECORDING_STARTED, adapters; "a recording of work requests began: {adapters}" }
        }
        NicEventKind::RecordingStopped { requests } => {
            tell! { RECORDING_STOPPED, requests; "a recording of work requests ended; it has noted {requests}" }
        }
        NicEventKind::Fault(FaultInjection { id, name, what }) => fault(*id, name, what),
    }
}

/// Contents of an event of callers that were turned away from an adapter's socket.
fn vmm_refused(owner: Option<Caller>, by: Caller, refused: u64) -> Told {
    let why = match owner {
        Some(owner) => format!("the VMM with {owner} has this adapter: give each VM an adapter of its own"),
        None => "socket_users of this adapter does not list it: add the user, or run the VMM as one of them"
            .to_owned(),
    };
    let message = match refused {
        1 => format!("{by} tried to be the VMM and was turned away; {why}"),
        n => format!("{n} more attempts to be the VMM were turned away, the last one of {by}; {why}"),
    };
    let mut told = told(&kinds::VMM_REFUSED, message).fact("refused", refused);
    let facts = [
        ("pid", by.pid.map(i64::from)),
        ("uid", by.uid.map(i64::from)),
        ("owner_pid", owner.and_then(|owner| owner.pid).map(i64::from)),
        ("owner_uid", owner.and_then(|owner| owner.uid).map(i64::from)),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            told = told.fact(name, value);
        }
    }
    told
}

/// Contents of an event of a fault rule.
fn fault(id: u32, name: &str, what: &Injected) -> Told {
    let of_rule = |text: String| {
        let told = told(&kinds::FAULT_INJECTED, format!("fault {id} \"{name}\": {text}"));
        told.fact("fault_id", id).fact("fault", name)
    };
    match what {
        Injected::More(1) => of_rule("one more frame".to_owned()),
        Injected::More(n) => of_rule(format!("{n} more frames")),
        Injected::One {
            from,
            to,
            effect,
            len,
            roce,
        } => {
            let more = roce.map_or_else(String::new, |(opcode, qp, psn)| {
                format!(", opcode {opcode:#04x}, QP {qp:#x}, PSN {psn}")
            });
            let told = of_rule(format!(
                "{effect}, frame from {from} to {to} of {len} bytes{more}"
            ))
            .fact("from", from)
            .fact("to", to)
            .fact("effect", effect)
            .fact("bytes", len);
            match roce {
                None => told,
                Some((opcode, qp, psn)) => told
                    .fact("opcode", opcode)
                    .fact("destination_qp", qp)
                    .fact("psn", psn),
            }
        }
    }
}

/// Key of an event's sums: the number of a fault rule. Nothing that a guest chooses.
pub fn key(event: &NicEventKind) -> u64 {
    match event {
        NicEventKind::Fault(FaultInjection { id, .. })
        | NicEventKind::FaultAdded { id, .. }
        | NicEventKind::FaultRemoved { id, .. }
        | NicEventKind::VerbsFaultAdded { id, .. }
        | NicEventKind::VerbsFaultRemoved { id, .. }
        | NicEventKind::VerbsFaultHit { id, .. } => u64::from(*id),
        _ => 0,
    }
}

/// Number of further events that this one sums up.
pub fn suppressed(event: &NicEventKind) -> u64 {
    match event {
        NicEventKind::Fault(FaultInjection {
            what: Injected::More(n),
            ..
        }) => *n,
        NicEventKind::VmmRefused { refused, .. } if *refused > 1 => *refused,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::{MacAddr, QpNumber};

    fn tell(kind: NicEventKind) -> Told {
        describe(&NicEvent {
            time: std::time::SystemTime::UNIX_EPOCH,
            owner: "vf0".to_owned(),
            kind,
        })
    }

    fn described(kind: NicEventKind) -> (Level, String) {
        let told = tell(kind);
        (told.level, told.message)
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
        let fields = tell(NicEventKind::SpoofedAddress(address("fd00::9"))).facts;
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
        assert_eq!(tell(kind).facts, facts.map(|(k, v)| (k, v.to_owned())));
        assert_eq!(
            described(NicEventKind::RdmaState(AttachState::Failed)).0,
            Level::Error
        );
        let fault = NicEventKind::RdmaFault {
            what: "send queue of QP 5: index beyond the ring".to_owned(),
        };
        assert_eq!(described(fault.clone()).0, Level::Warn);
        assert_eq!(tell(fault).kind.name, "rdma_fault");
    }

    #[test]
    fn requests_that_are_given_up_tell_what_was_dropped() {
        let mut report = RdmaGaveUp {
            unanswered: 3,
            not_ready: 0,
            drops: vec![(vnic_backend::DropReason::VlanNotAllowed, 24)],
        };
        let (level, text) = described(NicEventKind::RdmaGaveUp(report.clone()));
        assert_eq!(level, Level::Warn);
        for part in ["3 that the peer did not answer", "vlan_not_allowed 24"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        report.drops.clear();
        report.not_ready = 1;
        let text = described(NicEventKind::RdmaGaveUp(report)).1;
        for part in ["(RETRY_EXC_ERR), 1 for which", "dropped none of its frames"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn reports_of_connections_tell_the_last_one_and_why() {
        let mut report = ConnectionReport {
            outcome: ConnectionOutcome::Rejected,
            count: 3,
            peer: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 5],
            service: vnic_backend::ServiceId(0x0106_01bd),
            reason: "invalid service ID (8)".to_owned(),
        };
        let (level, text) = described(NicEventKind::RdmaConnections(report.clone()));
        assert_eq!(level, Level::Warn);
        for part in [
            "3 RDMA connections rejected",
            "TCP:445",
            "with 10.0.0.5: invalid service ID (8)",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        report.outcome = ConnectionOutcome::Established;
        let (level, text) = described(NicEventKind::RdmaConnections(report));
        assert_eq!(level, Level::Info);
        assert!(text.contains("3 RDMA connections established"), "{text}");
    }

    #[test]
    fn a_conflict_tells_whose_the_address_is() {
        let mut conflict = vnic_backend::GidConflict {
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
        assert_eq!(tell(kind).facts.len(), 4);
    }

    #[test]
    fn packets_of_other_partitions_tell_both_p_keys() {
        let mut violation = PkeyViolation {
            pkey: 0x8002,
            own: 0x8001,
            qp: QpNumber(0x105),
            packets: 3,
            ..PkeyViolation::default()
        };
        let told = tell(NicEventKind::BadPkey(violation));
        assert_eq!((told.level, told.facts.len()), (Level::Warn, 4));
        for part in [
            "(3)",
            "with P_Key 0x8002 for queue pair 0x105",
            "the queue pair has 0x8001",
        ] {
            assert!(told.message.contains(part), "{part} in {}", told.message);
        }
        (violation.own, violation.qp, violation.source_qp) = (0, QpNumber(1), Some(QpNumber(1)));
        let (_, text) = described(NicEventKind::BadPkey(violation));
        assert!(
            text.contains(", queue pair 0x1 with") && text.contains("no such partition"),
            "{text}"
        );
    }

    #[test]
    fn who_is_turned_away_hears_who_has_the_adapter() {
        let caller = |pid, uid| Caller { pid, uid: Some(uid) };
        let (owner, by) = (Some(caller(Some(7), 1001)), caller(Some(9), 1002));
        let one = tell(NicEventKind::VmmRefused {
            owner,
            by,
            refused: 1,
        });
        for part in ["pid 9, uid 1002", "pid 7, uid 1001", "an adapter of its own"] {
            assert!(one.message.contains(part), "{part} in {}", one.message);
        }
        let sum = NicEventKind::VmmRefused {
            owner,
            by,
            refused: 21,
        };
        assert_eq!(suppressed(&sum), 21);
        assert!(described(sum).1.starts_with("21 more attempts"));
        let by = caller(None, 1002);
        let unlisted = tell(NicEventKind::VmmRefused {
            owner: None,
            by,
            refused: 1,
        });
        assert!(unlisted.message.contains("socket_users"), "{}", unlisted.message);
        let facts = [("refused", "1"), ("uid", "1002")].map(|(name, value)| (name, value.to_owned()));
        assert_eq!(unlisted.facts, facts);
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
