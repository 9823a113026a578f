//! Events of the NIC.

use super::*;

/// An event, for logs, event streams and watchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicEvent {
    /// Time of the event.
    pub time: SystemTime,
    /// Name of the adapter, port or bond; empty if the event is about none.
    pub owner: String,
    /// Kind of the event.
    pub kind: NicEventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicEventKind {
    /// An adapter was added.
    AdapterAdded,
    /// An adapter was removed.
    AdapterRemoved,
    /// The specification of an adapter was changed.
    AdapterChanged {
        /// Whether a part of it waits for a restart.
        waits: bool,
    },
    /// An adapter between which and another one a guest moves begins to speak for the guest's addresses, or falls silent: the guest
    /// began to run there, or stopped.
    GuestMoved {
        /// Part of the adapter in the move.
        part: MovePart,
        /// The other adapter; `None`: it is an adapter of another daemon.
        peer: Option<String>,
        /// Whether the adapter speaks.
        speaks: bool,
    },
    /// An adapter's attach state changed.
    AdapterState(AttachState),
    /// The attach state of an adapter's RDMA function changed.
    RdmaState(AttachState),
    /// An entry of an adapter's GID table was added or removed.
    GidChanged {
        /// Index of the entry.
        index: u16,
        /// The GID, in network order.
        gid: [u8; 16],
        /// Whether the GID was added; otherwise it was removed.
        added: bool,
    },
    /// An adapter claims a GID that another one claims, too.
    GidConflict(GidConflict),
    /// The driver of an RDMA function did something invalid with a queue; the text says what stops.
    RdmaFault {
        /// The invalid action.
        what: String,
    },
    /// Requests of an adapter's RDMA function ended because the peer did not answer, or was not ready, as often as the queue pair
    /// tries (at most once a second).
    RdmaGaveUp(RdmaGaveUp),
    /// Packets came for an adapter's RDMA function with a P_Key that was not that of their queue pair (at most once a second).
    BadPkey(PkeyViolation),
    /// The program of an adapter's congestion control could not handle an event: the first one, and the one after which DCQCN has
    /// taken over.
    ProgramFault(Faults),
    /// What has become of connections of an adapter's communication management (of each kind at most once a second).
    RdmaConnections(ConnectionReport),
    /// A guest wrote something invalid into a ring; the queue is stopped until the guest resets it.
    RingFault {
        /// vhost-user ring index (2·pair for receive, 2·pair+1 for transmit).
        ring: u16,
        /// The invalid content.
        what: String,
    },
    /// A guest sent a frame from an address that is not its own (reported once per address and attach).
    SpoofedSource {
        /// The address that the guest used.
        source: MacAddr,
    },
    /// A magic packet came for an adapter whose guest does not run (at most once a second for an adapter).
    MagicPacket {
        /// The station that sent it.
        source: MacAddr,
        /// Name of the adapter or port by which it came.
        by: String,
    },
    /// A frame with a pattern of the adapter's came while its guest does not run (at most once a second for an adapter, with magic packets).
    WakePattern {
        /// The station that sent it.
        source: MacAddr,
        /// Name of the adapter or port by which it came.
        by: String,
        /// The pattern.
        pattern: String,
    },
    /// A guest claims an address that its adapter's `allowed_addresses` do not contain (reported once per claim and attach).
    SpoofedAddress(Claim),
    /// A VMM sent something that the device must refuse.
    ProtocolError {
        /// The problem and its remedy.
        what: String,
    },
    /// A VMM has connected several times in a row, and its guest's driver never ran: QEMU does so that asks for more queue pairs than
    /// there are. Reported once.
    VmmUnused {
        /// The VMM's process.
        by: Caller,
        /// Queue pairs that the adapter offers.
        queue_pairs: u16,
    },
    /// Processes tried to be the VMM of an adapter and were turned away. The first is reported at once, further ones as a sum:
    /// each minute, and when the adapter's VMM leaves.
    VmmRefused {
        /// The VMM that has the adapter; `None`: `socket_users` does not list the callers' users.
        owner: Option<Caller>,
        /// The last process that was turned away.
        by: Caller,
        /// Number of attempts since the last such event.
        refused: u64,
    },
    /// The operator switched dropless mode on.
    DroplessEntered,
    /// The operator switched dropless mode off.
    DroplessExited,
    /// A frame waited too long for a receive buffer: it was dropped, and dropless mode is off.
    DroplessTimeout {
        /// The receive queue.
        queue: u16,
    },
    /// The receive path of an adapter or a port does not move, and has paused senders for longer than the minor watermark.
    PauseStormWarning,
    /// The receive path has paused senders for longer than the critical watermark: no sender is paused, on any priority,
    /// until the path moves.
    PauseStorm,
    /// The receive path moves again: flow control is as configured.
    PauseStormOver,
    /// Too many frames of a traffic class waited too long at its head: the class's waiting frames are dropped.
    ClassStalled {
        /// The traffic class.
        class: u8,
    },
    /// Addresses move between this port and another again and again: both lead to the same network, or two stations have
    /// the same address. The first is reported when it is noticed, further moves as a sum a minute.
    LoopSuspected {
        /// Name of the other port.
        other: String,
        /// VLAN of the address.
        vlan: u16,
        /// The address that moved last.
        mac: MacAddr,
        /// Number of moves since the last such event, of all addresses.
        moves: u64,
    },
    /// An uplink port was added.
    PortAdded,
    /// An uplink port was removed.
    PortRemoved,
    /// An uplink port's link changed.
    PortLink {
        /// Whether the link is up.
        up: bool,
    },
    /// A bond was added.
    BondAdded,
    /// A bond was removed; its ports are ports of the switch again.
    BondRemoved,
    /// A bond's link changed: it is up while any member may carry frames.
    BondLink {
        /// Whether the link is up.
        up: bool,
    },
    /// A member port of a bond may not carry frames any more: its link went down, or its LACP partner is gone.
    BondMemberLost {
        /// The bond.
        bond: String,
        /// Time from the notice of the loss until the port's flows were on other members.
        took: Duration,
        /// Frames that waited in the port's queues and were dropped.
        dropped: u64,
    },
    /// A member port of a bond may carry frames again. Flows come back to it after the bond's failback delay.
    BondMemberBack {
        /// The bond.
        bond: String,
    },
    /// A port hears a station by link layer discovery.
    LldpNeighbourFound {
        /// Identifier of its chassis.
        chassis: String,
        /// Identifier of its port.
        port: String,
        /// Name of the system, if it says one.
        system: String,
    },
    /// A port does not hear a station any more.
    LldpNeighbourLost {
        /// Identifier of its chassis.
        chassis: String,
        /// Identifier of its port.
        port: String,
        /// Name of the system, if it has said one.
        system: String,
        /// Why.
        why: LldpLost,
    },
    /// What acts on a port by data center bridging exchange has changed.
    DcbxChanged {
        /// What acts now, and whose it is.
        outcome: DcbxOutcome,
    },
    /// Several stations on the link of a port speak data center bridging exchange: none of them counts.
    DcbxSeveralPeers {
        /// How many.
        peers: usize,
    },
    /// A port is willing, and cannot have the classes of its peer; or both ends of a link cannot agree.
    DcbxRefused {
        /// Why.
        why: &'static str,
    },
    /// A member port of a bond has an LACP partner.
    LacpPartnerFound {
        /// The bond.
        bond: String,
        /// System address of the partner.
        partner: MacAddr,
    },
    /// A member port of a bond has no LACP partner any more.
    LacpPartnerLost {
        /// The bond.
        bond: String,
    },
    /// A fault rule was added and acts.
    FaultAdded {
        /// Number of the rule.
        id: u32,
        /// Name of the rule.
        name: String,
        /// Name of the rule's action.
        action: &'static str,
    },
    /// A fault rule was removed.
    FaultRemoved {
        /// Number of the rule.
        id: u32,
        /// Name of the rule.
        name: String,
        /// Frames on which the rule acted.
        injected: u64,
    },
    /// A rule for verbs was added and acts.
    VerbsFaultAdded {
        /// Number of the rule.
        id: u32,
        /// Name of the rule.
        name: String,
        /// Name of the rule's action.
        action: &'static str,
    },
    /// A rule for verbs was removed.
    VerbsFaultRemoved {
        /// Number of the rule.
        id: u32,
        /// Name of the rule.
        name: String,
        /// What it hit.
        injected: u64,
    },
    /// A rule for verbs hit something for the first time.
    VerbsFaultHit {
        /// Number of the rule.
        id: u32,
        /// Name of the rule.
        name: String,
    },
    /// A recording of work requests began.
    RecordingStarted {
        /// Adapters that it is about.
        adapters: Vec<String>,
    },
    /// A recording of work requests ended.
    RecordingStopped {
        /// Requests that it has noted.
        requests: u64,
    },
    /// A fault rule acted on a frame for this adapter or port; a report of several frames has no owner.
    Fault(FaultInjection),
}
