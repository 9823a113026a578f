//! Table of all kinds of events: number, name, severity, meaning. The gRPC interface, `vnicctl event kinds` and
//! `docs/events.md` are made from it.

use super::Level;

/// A kind of event.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Number. Below [`OURS`] it is WinOF-2's.
    pub id: u32,
    /// Name for programs.
    pub name: &'static str,
    /// Origin: who can cause the event.
    pub origin: Origin,
    /// Severities that an event of this kind can have.
    pub levels: &'static [Level],
    /// Meaning.
    pub meaning: &'static str,
}

/// Origin of an event. The log has a share for each origin, so that a flood of one origin does not displace the others' events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The daemon and its operators.
    Operator,
    /// Refused clients, and networks.
    Outside,
    /// Guests, their VMMs, and frames.
    Guest,
}

impl Origin {
    /// Number of origins.
    pub const COUNT: usize = 3;

    /// Origin of the events of a number; of an unknown number `Guest`.
    pub fn of(id: u32) -> Origin {
        let found = KINDS.binary_search_by_key(&id, |kind| kind.id);
        found.map_or(Guest, |i| KINDS[i].origin)
    }

    /// Name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Operator => "operator",
            Outside => "outside",
            Guest => "guest",
        }
    }
}

/// First number of this NIC's own events. WinOF-2's documents use numbers up to 0x1AE.
pub const OURS: u32 = 0x1000;

macro_rules! kinds {
    ($($name:ident = $id:literal, $text:literal, $origin:expr, $levels:expr, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub static $name: Kind = Kind {
            id: $id,
            name: $text,
            origin: $origin,
            levels: &$levels,
            meaning: $meaning,
        };)*

        /// All kinds, by number.
        pub static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

use Level::{Error, Info, Warn};
use Origin::{Guest, Operator, Outside};

kinds! {
    DROPLESS_TIMEOUT = 75, "dropless_timeout", Guest, [Warn],
        "A packet waited for a receive buffer longer than DelayDropTimeout: it was dropped, and dropless mode is off.";
    DROPLESS_ENTERED = 77, "dropless_entered", Guest, [Info], "Dropless mode was switched on.";
    DROPLESS_EXITED = 78, "dropless_exited", Guest, [Info], "Dropless mode was switched off.";

    DAEMON_STARTED = 0x1000, "daemon_started", Operator, [Info, Warn],
        "The daemon started. A warning if the one before it did not end in order: events of its last second may be missing.";
    DAEMON_STOPPED = 0x1001, "daemon_stopped", Operator, [Info], "The daemon was asked to end, and ends.";
    STATE_RESET = 0x1002, "state_reset", Operator, [Error], "Stored state was given up and begins anew.";
    EVENTS_LOST = 0x1003, "events_lost", Guest, [Warn],
        "More happened than could be written down: events before this one are missing.";
    ACCESS_REFUSED = 0x1004, "access_refused", Outside, [Warn], "A client asked for what its role may not do, or its connection was refused, or ended: its certificate or role does not hold any more, it never spoke, or it was idle where others were too many.";
    SETTINGS_CHANGED = 0x1005, "settings_changed", Operator, [Info], "Stored settings were changed.";
    SETTINGS_REFUSED = 0x1006, "settings_refused", Operator, [Warn], "A change of settings, or a stored setting, was refused.";
    ADAPTER_RESTARTED = 0x1007, "adapter_restarted", Operator, [Info], "An adapter was restarted on request.";
    CERTIFICATES_LOADED = 0x1008, "certificates_loaded", Operator, [Info, Warn],
        "The certificates of the control interface, and roles, were read again. A warning if they were refused: the old ones stay.";

    STORED_ADAPTER_SHADOWED = 0x1009, "stored_adapter_shadowed", Operator, [Warn],
        "An adapter made at run time did not come back: the configuration has its name, address or socket.";
    EVENTS_NOT_STORED = 0x100A, "events_not_stored", Operator, [Error],
        "The file of the event log cannot be used: events are kept in memory and are gone when the daemon ends.";
    PANIC = 0x100B, "panic", Operator, [Error],
        "A thread of the daemon panicked: a bug. What it was doing has failed; the log has the place in the source.";
    THREAD_ENDED = 0x100C, "thread_ended", Operator, [Error],
        "A thread or task that the daemon needs ended by a panic: `/livez` and health say that the daemon is not well until it is restarted.";
    STORED_PORT_SHADOWED = 0x100D, "stored_port_shadowed", Operator, [Warn],
        "A port made at run time did not come back: the configuration has its name, or its device is not there.";
    LOG_LEVEL_CHANGED = 0x100E, "log_level_changed", Operator, [Info], "The filter of the daemon's log was changed, until the daemon ends.";
    CONFIG_APPLIED = 0x100F, "config_applied", Operator, [Info, Warn],
        "A configuration file was applied while the daemon runs. A warning if it was refused, or undone because a step was refused.";

    MIGRATION_PREPARED = 0x1010, "migration_prepared", Operator, [Info],
        "The move of a guest between two adapters is prepared: the target has the guest's addresses and settings, and waits for the guest.";
    MIGRATION_DONE = 0x1011, "migration_done", Operator, [Info],
        "The move of a guest is over: its addresses belong to the target for good.";
    MIGRATION_CANCELLED = 0x1012, "migration_cancelled", Operator, [Info],
        "The move of a guest was given up: its addresses belong to the source as before.";

    ADAPTER_ADDED = 0x1100, "adapter_added", Operator, [Info], "An adapter was made.";
    ADAPTER_REMOVED = 0x1101, "adapter_removed", Operator, [Info], "An adapter was removed.";
    ADAPTER_STATE = 0x1102, "adapter_state", Guest, [Info, Error],
        "A VMM or a driver came or went. An error if a bug took the adapter down.";
    RDMA_STATE = 0x1103, "rdma_state", Guest, [Info, Error],
        "The VMM or the driver of an adapter's RDMA function came or went. An error if a bug took the function down.";
    GID_CHANGED = 0x1104, "gid_changed", Guest, [Info], "A GID came or went.";
    RDMA_FAULT = 0x1105, "rdma_fault", Guest, [Warn], "The driver of an RDMA function did something illegal.";
    RING_FAULT = 0x1106, "ring_fault", Guest, [Warn], "A guest wrote something illegal into a ring, which stopped.";
    SPOOFED_SOURCE = 0x1107, "spoofed_source", Guest, [Warn],
        "A guest sends from an address that is not its adapter's: these frames are dropped.";
    PROTOCOL_ERROR = 0x1108, "protocol_error", Guest, [Warn], "A VMM broke the vhost-user protocol and was refused.";
    GID_CONFLICT = 0x1109, "gid_conflict", Guest, [Warn],
        "An adapter claims a GID that another adapter in its VLAN claims, too.";
    SPOOFED_ADDRESS = 0x110A, "spoofed_address", Guest, [Warn],
        "A guest claims an address that its adapter's `allowed_addresses` do not allow: these frames are dropped.";
    VMM_REFUSED = 0x110B, "vmm_refused", Guest, [Warn],
        "Processes tried to be the VMM of an adapter and were turned away: another VMM has it, or `socket_users` does not list them.";
    RDMA_GAVE_UP = 0x110C, "rdma_gave_up", Guest, [Warn],
        "Requests of an RDMA function ended after all retries: how many, and what the adapter dropped since the last such event.";
    ADAPTER_CHANGED = 0x110D, "adapter_changed", Operator, [Info],
        "The settings of an adapter were changed. Those that cannot act under traffic wait for a restart of the adapter.";
    VMM_UNUSED = 0x110E, "vmm_unused", Guest, [Warn],
        "A VMM connects again and again and its guest's driver never runs. Often it wants more queue pairs than the adapter offers.";
    MIGRATION_SWITCHED = 0x110F, "migration_switched", Guest, [Info],
        "A guest began to run on the other adapter of a move, and its addresses went there; or it stopped at the source, which gave them up.";
    PORT_ADDED = 0x1110, "port_added", Operator, [Info], "A port was made.";
    PORT_REMOVED = 0x1111, "port_removed", Operator, [Info], "A port was removed.";
    PORT_LINK = 0x1112, "port_link", Outside, [Info, Warn], "The link of a port came up. A warning if it went down.";
    MAGIC_PACKET = 0x1113, "magic_packet", Guest, [Info],
        "A magic packet (Wake-on-LAN) came for an adapter whose guest does not run.";
    WOKEN = 0x1114, "woken", Operator, [Info, Warn],
        "What an adapter says of magic packets and patterns (`wake`) was done. A warning if it could not be done.";
    WAKE_PATTERN = 0x1115, "wake_pattern", Guest, [Info],
        "A frame with a pattern of `wake_patterns` came for an adapter whose guest does not run.";
    PAUSE_STORM_WARNING = 0x1118, "pause_storm_warning", Guest, [Warn],
        "Senders were told to wait by a receiver that stood still for longer than the minor watermark.";
    PAUSE_STORM = 0x1119, "pause_storm", Guest, [Warn],
        "A receiver stood still for longer than the critical watermark: senders are not told to wait for it until it moves.";
    PAUSE_STORM_OVER = 0x111A, "pause_storm_over", Guest, [Info], "A receiver that caused a pause storm moves again: flow control is as configured.";
    CLASS_STALLED = 0x111B, "class_stalled", Guest, [Warn],
        "Too many frames of a traffic class waited too long at its head: what waits in it is dropped.";
    LOOP_SUSPECTED = 0x111C, "loop_suspected", Guest, [Warn],
        "Addresses move between two ports again and again: both lead to the same network, or two stations have the same address.";
    FAULT_ADDED = 0x1120, "fault_added", Operator, [Warn], "A fault rule was added: frames suffer on purpose.";
    FAULT_REMOVED = 0x1121, "fault_removed", Operator, [Info], "A fault rule was removed.";
    FAULT_INJECTED = 0x1122, "fault_injected", Guest, [Info], "A fault rule hit a frame.";
    VERBS_FAULT_ADDED = 0x1123, "verbs_fault_added", Operator, [Warn],
        "A rule for verbs was added: programs are told what is not so on purpose.";
    VERBS_FAULT_REMOVED = 0x1124, "verbs_fault_removed", Operator, [Info], "A rule for verbs was removed.";
    VERBS_FAULT_HIT = 0x1125, "verbs_fault_hit", Guest, [Info], "A rule for verbs hit something for the first time.";
    RECORDING_STARTED = 0x1126, "recording_started", Operator, [Info], "A recording of work requests began.";
    RECORDING_STOPPED = 0x1127, "recording_stopped", Operator, [Info], "A recording of work requests ended.";
    MIRROR_ADDED = 0x1128, "mirror_added", Operator, [Info],
        "A mirror session was made: frames of an adapter or port are copied to another one.";
    MIRROR_REMOVED = 0x1129, "mirror_removed", Operator, [Info], "A mirror session was ended.";
    MIRROR_LOST = 0x112A, "mirror_lost", Operator, [Warn],
        "A mirror session made at run time did not come back: what is stored cannot be read, or contradicts another session.";
    CLOCK_CHANGED = 0x112B, "clock_changed", Operator, [Info], "The NIC's clock was set, moved, or given another frequency.";
    BOND_ADDED = 0x1130, "bond_added", Operator, [Info], "Ports became one: a bond, or team, was made.";
    BOND_REMOVED = 0x1131, "bond_removed", Operator, [Info], "A bond, or team, was removed.";
    BOND_LINK = 0x1132, "bond_link", Outside, [Info, Warn],
        "The link of a bond came up: some member may carry frames. A warning if it went down: none may.";
    BOND_MEMBER_LOST = 0x1133, "bond_member_lost", Outside, [Warn],
        "A port of a bond may not carry frames any more: its link is down, or its LACP partner is gone. Its flows have moved.";
    BOND_MEMBER_BACK = 0x1134, "bond_member_back", Outside, [Info], "A port of a bond may carry frames again.";
    LACP_PARTNER_FOUND = 0x1135, "lacp_partner_found", Outside, [Info], "A port of a bond hears an LACP partner.";
    LACP_PARTNER_LOST = 0x1136, "lacp_partner_lost", Outside, [Warn], "A port of a bond does not hear its LACP partner any more.";
    LLDP_NEIGHBOR_FOUND = 0x1137, "lldp_neighbor_found", Outside, [Info], "A port hears a station by link layer discovery.";
    LLDP_NEIGHBOR_LOST = 0x1138, "lldp_neighbor_lost", Outside, [Info],
        "A port does not hear a station any more: it left, was silent for too long, or the link went down.";
    DCBX_CHANGED = 0x1139, "dcbx_changed", Outside, [Info],
        "What acts on a port by data center bridging exchange (classes, flow control, applications) is the peer's now, or the operator's again.";
    DCBX_SEVERAL_PEERS = 0x113a, "dcbx_several_peers", Outside, [Warn],
        "Several stations on a link speak data center bridging exchange: none of them counts, and the operator's values act.";
    DCBX_REFUSED = 0x113b, "dcbx_refused", Outside, [Warn],
        "A port is willing and cannot have its peer's classes, or both ends of a link cannot agree (DCBX of CEE), and why. The operator's act.";
    MESH_PEER = 0x1140, "mesh_peer", Outside, [Info, Warn], "A daemon joined the mesh behind a port. A warning if it left.";
    MESH_REFUSED = 0x1141, "mesh_refused", Outside, [Warn],
        "Somebody called the mesh behind a port and was refused: no certificate of its CA, or none of the listed names.";
    MESH_TROUBLE = 0x1142, "mesh_trouble", Outside, [Warn], "A daemon that the mesh behind a port shall call is not reached, and why.";
    CONNECTION_ESTABLISHED = 0x1150, "connection_established", Guest, [Info],
        "RDMA connections were established by an adapter's communication management: how many since the last such event, and the last one.";
    CONNECTION_REJECTED = 0x1151, "connection_rejected", Guest, [Warn],
        "RDMA connections that a program asked for, or accepted, were rejected by the peer: how many, and the last one with its reason.";
    CONNECTION_TIMED_OUT = 0x1152, "connection_timed_out", Guest, [Warn],
        "RDMA connections were given up because the peer does not answer: how many since the last such event, and the last one.";
    CONNECTION_DISCONNECTED = 0x1153, "connection_disconnected", Guest, [Info],
        "RDMA connections have ended: how many since the last such event, and the last one.";
    PROGRAM_FAILED = 0x1154, "program_failed", Guest, [Warn],
        "An adapter's program of congestion control could not handle an event: the first one, and the one after which DCQCN takes over.";
    BAD_PKEY = 0x1155, "bad_pkey", Guest, [Warn],
        "Packets came with a P_Key that is not their queue pair's (trap 257 of a subnet): they are dropped. How many since the last such event.";
    SCENARIO_BEGUN = 0x1160, "scenario_begun", Operator, [Warn], "A scenario is played: adapters fail on purpose.";
    SCENARIO_STEP = 0x1161, "scenario_step", Operator, [Info], "A scenario did something to an adapter, or put it back.";
    SCENARIO_OVER = 0x1162, "scenario_over", Operator, [Info, Warn],
        "A scenario is over, and everything it did was put back. A warning if it failed.";
}

/// Kind of a name.
pub fn named(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|k| k.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_in_order() {
        assert!(KINDS.windows(2).all(|w| w[0].id < w[1].id));
        let mut names: Vec<_> = KINDS.iter().map(|k| k.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
        let documented: Vec<_> = KINDS.iter().map(|k| k.id).filter(|id| *id < OURS).collect();
        assert_eq!(documented, [75, 77, 78]);
        assert!(KINDS.iter().all(|k| !k.levels.is_empty()));
        assert_eq!(named("port_link"), Some(&PORT_LINK));
    }
}
