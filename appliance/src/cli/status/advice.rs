//! What to do about what counters and events tell: for each drop reason, error counter of RDMA functions and kind of event, a
//! sentence and a command. A row without advice is normal life and no finding.

/// A sentence, and the command that shows more or mends it. `NAME` in the command stands for the adapter or port.
pub type Advice = Option<(&'static str, &'static str)>;

/// Rows of a table: a name, and what to do.
type Rows = &'static [(&'static str, Advice)];

/// Makes a table of rows `name(sentence, command)`, `name(ADVICE)`, and `name()` for one without advice.
macro_rules! rows {
    (@ $text:literal, $command:expr) => { Some(($text, $command)) };
    (@ $advice:ident) => { $advice };
    (@) => { None };
    ($($name:ident($($advice:tt)*),)+) => { &[$((stringify!($name), rows!(@ $($advice)*))),+] };
}

const LIVE: &str = "vnicctl capture live NAME --drops-only";
const QOS: &str = "vnicctl qos show NAME";
const SHOW: &str = "vnicctl adapter show NAME";
const QPS: &str = "vnicctl qp list NAME";
const EVENTS: &str = "vnicctl event list NAME --since 1h --min-severity warning";
const PARTITION: Advice = Some((
    "packets of other partitions come for its queue pairs: compare the P_Keys of both ends",
    "vnicctl subnet partition list",
));
const ALL_EVENTS: &str = "vnicctl event list --since 1h --min-severity warning";
const DROPS_OF_ALL: &str = "vnicctl counter list --name drops --nonzero";

/// Drop reasons.
const DROPS: Rows = rows! {
    runt("its sender makes frames that are too short", LIVE),
    mtu_exceeded("its guest's MTU is above the adapter's: lower one or raise the other", SHOW),
    malformed_offload("its guest's driver asks for offloads that contradict the frame", LIVE),
    invalid_source("its sender uses a group address as source", LIVE),
    spoofed_source("its guest sends from an address that is not the adapter's; if it may: adapter mac add, or --no-anti-spoofing", LIVE),
    vlan_not_allowed("it sends in a VLAN of which it is no member: compare both ends", LIVE),
    hairpin(),
    no_destination(),
    receiver_down(),
    filtered(),
    no_rx_buffer("its guest does not keep up: more queues, larger rings, or dropless mode (registry DelayDropTimeout)", "vnicctl counter show NAME --nonzero"),
    rx_buffer_too_small("its guest posts receive buffers that are smaller than frames for it: see its MTU", SHOW),
    receiver_mtu("its senders have a greater MTU than it has: make them equal", SHOW),
    rx_ring_broken("its guest wrote something illegal into a ring; the ring is back when the driver resets the device", EVENTS),
    port_transmit("its device takes less than is sent: limit senders, or give the port its rate", QOS),
    core_exchange_full("the data core that serves the receiver does not keep up: spread adapters over cores", "vnicctl top --section cores"),
    fault_injected(),
    egress_full("more is sent to it than it takes: limits, shares or a lossless priority", QOS),
    lossless_overflow("its senders do not obey pause, or the headroom is too small", QOS),
    head_of_queue("frames wait too long at the head of a traffic class: the receiver or the rate is too slow", QOS),
    class_stalled("a traffic class stands still: see who pauses it", QOS),
    send_queue_full("its guest sends more than its limits and priorities let go", QOS),
    mac_control("its guest sends pause frames or LACP, which only links speak: switch that off in the guest", LIVE),
    congestion_hint("its guest does not keep up, and CongestionAction says so", "vnicctl registry list NAME"),
    wred("a traffic class is congested, and its ends do not speak ECN", QOS),
    port_receive("its data core does not read the device in time", "vnicctl top --section cores"),
    bond_inactive(),
    spoofed_address("its guest claims an address that allowed_addresses does not list", SHOW),
    storm_control("its wire brings more broadcast or unknown unicast than it may: look for a loop, or raise the limit", "vnicctl port show NAME"),
    own_address("its guest sends to an address of its own: if it means another station, both have the same address", "vnicctl event list --kind loop_suspected"),
    mirror_destination("it is the destination of a mirror session, which gets copies and nothing else", "vnicctl mirror list"),
    access_list("its access list denies the frame: the hits of its rules say which", "vnicctl acl show NAME"),
};

const LOST: Advice = Some((
    "packets are lost on the way: see who drops, and whether a fault rule does",
    DROPS_OF_ALL,
));
const LATE: Advice = Some((
    "acknowledges are late or lost: see who drops, and whether the peer lives",
    DROPS_OF_ALL,
));
const NOT_READY: Advice = Some(("receives are posted too slowly, at the receiving end", QPS));
const REFUSED: Advice = Some((
    "work requests end with an error that the driver is told: a key, a length or an operation is wrong",
    QPS,
));
const STRAY: Advice = Some((
    "a peer sends what no queue pair here takes: compare both ends",
    QPS,
));

/// Error counters of RDMA functions.
const RDMA: Rows = rows! {
    out_of_buffer(NOT_READY),
    out_of_sequence(LOST),
    duplicate_request(),
    resp_rnr_nak(NOT_READY),
    resp_local_length_error(REFUSED),
    resp_local_protection_error(REFUSED),
    resp_local_qp_operation_error(REFUSED),
    resp_remote_access_errors(REFUSED),
    resp_remote_invalid_request(REFUSED),
    resp_cqe_error(),
    rnr_nak_retry_err(NOT_READY),
    packet_seq_err(LOST),
    implied_nak_seq_err(LOST),
    local_ack_timeout_err(LATE),
    req_transport_retries_exceeded("requests ended after all retries: the peer or the way to it is gone; the event says what was dropped", "vnicctl event list NAME --kind rdma_gave_up"),
    req_rnr_retries_exceeded(NOT_READY),
    req_remote_invalid_request(REFUSED),
    req_remote_access_errors(REFUSED),
    req_remote_operation_errors(REFUSED),
    req_local_length_error(REFUSED),
    req_local_protection_error(REFUSED),
    req_local_qp_operation_error(REFUSED),
    req_mw_bind_error(REFUSED),
    req_bad_response(REFUSED),
    req_cqe_error(),
    cq_overrun("a completion queue is smaller than what completes in it", "vnicctl resource list NAME"),
    rx_icrc_encapsulated("packets arrive with flipped bits: a cable, a device, or a fault rule that corrupts", "vnicctl fault list"),
    drop_malformed(STRAY),
    drop_bad_gid("packets come for an address that is not in its GID table", "vnicctl gid list NAME"),
    drop_no_qp(STRAY),
    drop_wrong_transport(STRAY),
    drop_wrong_state(),
    drop_pkey_mismatch(PARTITION),
    drop_qkey_violation(STRAY),
    drop_out_of_sequence(LOST),
    drop_access(REFUSED),
    drop_stale_response(),
};

const MISBEHAVES: Advice = Some(("a guest or its VMM misbehaves; only it suffers", EVENTS));
const CLAIMS: Advice = Some((
    "a guest uses an address that is not its own; if it may: adapter mac add, or its allowed addresses",
    EVENTS,
));
const FLOW_CONTROL: Advice = Some((
    "a receiver stood still and held its senders up: see its guest",
    QOS,
));
const BUG: Advice = Some((
    "a bug of the daemon: report the line of the log; restart the daemon if health fails",
    "vnicctl event list --kind panic",
));
const STORED: Advice = Some((
    "something stored was not used: the event says what wins",
    ALL_EVENTS,
));

/// Kinds of events that can be warnings or errors. Those without advice are told by a state (a port that is down, a rule that is
/// there) or were an answer to the operator.
const EVENT_KINDS: Rows = rows! {
    dropless_timeout("a guest did not keep up, and dropless mode went off", "vnicctl registry set NAME DelayDropTimeout 50"),
    daemon_started("the daemon before this one did not end in order: see the system's log", "journalctl -u vnicd"),
    state_reset("stored settings were given up: put them back", "vnicctl registry import nic.reg"),
    events_lost("more happened than could be written down", ALL_EVENTS),
    access_refused("somebody was refused: give the role, or find out who it was", "vnicctl event list --kind access_refused"),
    settings_refused(),
    certificates_loaded("new certificates were refused and the old ones stay: mend the files", "vnicctl event list --kind certificates_loaded"),
    stored_adapter_shadowed(STORED),
    events_not_stored("the file of the event log cannot be used: see room and rights of the state directory", "vnicctl server info"),
    panic(BUG),
    thread_ended(BUG),
    stored_port_shadowed(STORED),
    config_applied("a configuration was refused and what was there stays: mend the file, and reload it", "vnicctl event list --kind config_applied"),
    adapter_state(),
    rdma_state(),
    rdma_fault(MISBEHAVES),
    ring_fault(MISBEHAVES),
    spoofed_source(CLAIMS),
    protocol_error(MISBEHAVES),
    gid_conflict("two adapters claim one address: change one of them", "vnicctl gid list"),
    spoofed_address(CLAIMS),
    vmm_refused("another process wants an adapter's socket: see who has it, and socket_users", EVENTS),
    rdma_gave_up("requests ended after all retries; the event says what was dropped meanwhile", "vnicctl event list NAME --kind rdma_gave_up"),
    vmm_unused("its VMM starts no driver: it may want more queue pairs than the adapter offers, or its guest does not boot", SHOW),
    port_link(),
    woken("what wakes a guest could not be done: the event says why", "vnicctl event list NAME --kind woken"),
    pause_storm_warning(FLOW_CONTROL),
    pause_storm(FLOW_CONTROL),
    class_stalled(FLOW_CONTROL),
    loop_suspected("two ports lead to one network, or two stations have one address", "vnicctl switch fdb"),
    fault_added(),
    verbs_fault_added(),
    mirror_lost("the session can be made again, or its stored row is given up by removing it", "vnicctl mirror list"),
    bond_link(),
    bond_member_lost(),
    lacp_partner_lost(),
    dcbx_several_peers("DCBX is between two: switch it off at all stations of the link but two", "vnicctl port neighbors NAME"),
    dcbx_refused("the peer's classes have a scheduler or shares that no port of this NIC has, or (CEE) both ends are willing, or neither is, and differ: change it there, or what the port is willing to take", "vnicctl dcbx show NAME"),
    mesh_peer(),
    mesh_refused("somebody called the mesh with a certificate that it does not take", "vnicctl event list --kind mesh_refused"),
    mesh_trouble(),
    connection_rejected("the peer has rejected connections: the event says why, such as that nobody listens", "vnicctl event list NAME --kind connection_rejected"),
    connection_timed_out("the peer does not answer: it, its address or the way to it is wrong or gone", "vnicctl event list NAME --kind connection_timed_out"),
    program_failed("the program of congestion control is wrong: the event says how; mend it and load it again", "vnicctl event list NAME --kind program_failed"),
    bad_pkey(PARTITION),
    scenario_begun(),
    scenario_over("a scenario failed: its log says at which step", "vnicctl fault scenarios"),
};

fn row(rows: Rows, name: &str) -> Option<Advice> {
    rows.iter().find(|(n, _)| *n == name).map(|(_, advice)| *advice)
}

/// What to do about frames that are dropped for this reason.
pub fn of_drop(reason: &str) -> Advice {
    row(DROPS, reason).flatten()
}

/// What to do about an error counter that grows.
pub fn of_rdma(counter: &str) -> Advice {
    row(RDMA, counter).flatten()
}

/// Whether a counter of an RDMA function counts errors.
pub fn is_rdma_error(counter: &str) -> bool {
    row(RDMA, counter).is_some()
}

/// What to do about warnings and errors of a kind.
pub fn of_event(kind: &str) -> Advice {
    row(EVENT_KINDS, kind).flatten()
}

#[cfg(test)]
mod tests {
    use vnic_backend::DropReason;
    use vnic_backend::counters::RDMA_COUNTERS;

    use super::*;
    use crate::events::Level;
    use crate::events::kinds::KINDS;

    fn names(rows: Rows) -> Vec<&'static str> {
        rows.iter().map(|(name, _)| *name).collect()
    }

    #[test]
    fn each_drop_reason_has_a_row() {
        assert_eq!(names(DROPS), DropReason::ALL.map(|r| r.name()));
    }

    #[test]
    fn each_kind_of_event_that_can_be_a_warning_has_a_row() {
        let warn = KINDS
            .iter()
            .filter(|k| k.levels.iter().any(|l| *l != Level::Info));
        let warn: Vec<_> = warn.map(|k| k.name).collect();
        assert_eq!(names(EVENT_KINDS), warn);
    }

    #[test]
    fn rows_of_rdma_are_counters_and_all_that_are_called_errors_are_there() {
        let all: Vec<_> = RDMA_COUNTERS.iter().map(|c| c.name).collect();
        for name in names(RDMA) {
            assert!(all.contains(&name), "{name}");
        }
        let flushed = |n: &str| n.ends_with("_flush_error");
        let errors = all.iter().filter(|n| {
            ["err", "error", "errors", "exceeded"]
                .iter()
                .any(|end| n.ends_with(end))
                || n.starts_with("drop_")
        });
        for name in errors.filter(|n| !flushed(n)) {
            assert!(is_rdma_error(name), "{name}");
        }
    }

    /// The commands are ones: clap takes them.
    #[test]
    fn commands_are_ones() {
        use clap::Parser as _;
        let rows = [DROPS, RDMA, EVENT_KINDS].into_iter().flatten();
        for (name, advice) in rows {
            let Some((_, command)) = advice else { continue };
            if command.starts_with("vnicctl ") {
                let words: Vec<String> = command.split(' ').map(|w| w.replace("NAME", "vf0")).collect();
                let parsed = crate::cli::args::Args::try_parse_from(&words);
                if let Err(error) = parsed {
                    panic!("{name}: {command}: {error}");
                }
            }
        }
    }
}
