//! Counters: declared once, in tables; gRPC, command line, Prometheus and documentation read this table.

pub mod names;
mod values;

use core::sync::atomic::{AtomicU64, Ordering};

use crate::rdma;

pub use values::{AdapterValues, CoreValues, Drops, LinkValues, PortValues, Values};

/// What a counter is attached to, and therefore which labels it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One direction of one queue pair of an adapter: labels `adapter`, `queue`.
    AdapterQueue,
    /// An adapter, with a drop reason: labels `adapter`, `reason`.
    AdapterDrop,
    /// An uplink port: label `port`.
    Port,
    /// An uplink port, with a drop reason: labels `port`, `reason`.
    PortDrop,
    /// A priority of an adapter: labels `adapter`, `priority`.
    AdapterPriority,
    /// A priority of an uplink port: labels `port`, `priority`.
    PortPriority,
    /// The link of an adapter: label `adapter`.
    AdapterLink,
    /// The link of an uplink port: label `port`.
    PortLink,
    /// The RDMA function of an adapter: label `adapter`.
    Rdma,
    /// A data core: label `core`.
    Core,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterDef {
    /// Name for gRPC and the command line; the Prometheus name is `vnic_<scope>_<name>_total`.
    pub name: &'static str,
    /// Where it is attached.
    pub scope: Scope,
    /// One line for people.
    pub help: &'static str,
}

/// One value read from the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The row of the table.
    pub def: &'static CounterDef,
    /// The adapter's or port's name or the data core's number.
    pub owner: alloc::string::String,
    /// The queue pair, for [`Scope::AdapterQueue`].
    pub queue: Option<u16>,
    /// The priority, for [`Scope::AdapterPriority`] and [`Scope::PortPriority`].
    pub priority: Option<u8>,
    /// The drop reason, for the scopes that carry one.
    pub reason: Option<&'static str>,
    /// The monotonic value since the owner was created.
    pub value: u64,
}

/// A block of `N` monotonic counters with one writer (a data thread) and any number of readers. Alone on its
/// cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct Block<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Block([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Block<N> {
    /// Adds `n`. Only the owning data thread may call this: it is a load and a store, not a locked add.
    #[inline]
    pub fn add(&self, i: usize, n: u64) {
        let c = &self.0[i];
        c.store(c.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets one value: for counts that are kept elsewhere. As for [`Block::add`], one thread.
    #[inline]
    pub fn set(&self, i: usize, value: u64) {
        self.0[i].store(value, Ordering::Relaxed);
    }

    /// Reads one value.
    pub fn get(&self, i: usize) -> u64 {
        self.0[i].load(Ordering::Relaxed)
    }

    /// Reads all values.
    pub fn snapshot(&self) -> [u64; N] {
        core::array::from_fn(|i| self.get(i))
    }
}

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident, $table:ident, $scope:expr, { $($variant:ident => ($label:literal, $help:literal),)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $name { $(#[doc = $help] $variant,)* }

        impl $name {
            /// How many there are: the `N` of their [`Block`].
            pub const COUNT: usize = [$($label),*].len();
        }

        #[doc = concat!("The rows of [`", stringify!($name), "`], in its order.")]
        pub static $table: [CounterDef; $name::COUNT] =
            [$(CounterDef { name: $label, scope: $scope, help: $help },)*];
    };
}

counters! {
    /// Counters of a queue pair: `rx` is towards the guest, `tx` from the guest.
    QueueCounter, QUEUE_COUNTERS, Scope::AdapterQueue, {
        TxFrames => ("tx_frames", "Frames taken from the guest's transmit ring (a TSO request counts once)."),
        TxBytes => ("tx_bytes", "Bytes of these frames, without the virtio header and the FCS."),
        TxForwarded => ("tx_forwarded", "Frames from the guest for which the switch found at least one receiver."),
        RxFrames => ("rx_frames", "Frames delivered into the guest's receive ring."),
        RxBytes => ("rx_bytes", "Bytes of these frames, without the virtio header and the FCS."),
        RxMulticast => ("rx_multicast", "Frames delivered to the guest whose destination is a group address."),
        TsoPassed => ("rx_tso_passed", "TCP segmentation requests handed to the receiving guest uncut."),
        TsoCut => ("tx_tso_cut", "TCP segmentation requests cut in software, once for each receiver that needs it."),
        ChecksumFinished => ("tx_checksum_finished", "Partial checksums finished in software, once for each receiver that needs it."),
        RxNotifications => ("rx_notifications", "Interrupts sent to the guest for its receive ring."),
        RxNotificationsSuppressed => ("rx_notifications_suppressed", "Batches delivered without an interrupt because the guest asked for none."),
        RxNotificationsCoalesced => ("rx_notifications_coalesced", "Batches delivered whose interrupt was put off, to be sent for several together."),
        RxProfileTransitions => ("rx_profile_transitions", "Times that adaptive moderation changed between its latency and its bulk profile."),
        TxNotifications => ("tx_notifications", "Interrupts sent to the guest for its transmit ring."),
        TxNotificationsCoalesced => ("tx_notifications_coalesced", "Batches of sent frames completed whose interrupt was put off, to be sent for several together."),
        Kicks => ("kicks", "Wake-ups by the guest's kick while its data core slept."),
        RingFaults => ("ring_faults", "Times a ring was stopped because the guest wrote something illegal into it."),
        RxWaited => ("rx_waited", "Frames that found no receive buffer and waited for one, in the reserve for bursts or in dropless mode."),
        RxWaitedNs => ("rx_waited_ns", "Nanoseconds that these frames waited, all together."),
        DroplessEntries => ("dropless_entries", "Times dropless mode was entered; counted at the first queue."),
        DroplessExits => ("dropless_exits", "Times dropless mode was left, by the operator or because a frame waited too long; counted at the first queue."),
        DroplessTimeouts => ("dropless_timeouts", "Times a frame waited too long for a receive buffer of this queue, which ended dropless mode."),
        RxMulticastBytes => ("rx_multicast_bytes", "Bytes of the frames delivered to the guest whose destination is a group address."),
        RxBroadcast => ("rx_broadcast", "Frames delivered to the guest for the broadcast address; they are in rx_multicast, too."),
        RxBroadcastBytes => ("rx_broadcast_bytes", "Bytes of these frames, without the virtio header and the FCS."),
        TxMulticast => ("tx_multicast", "Frames taken from the guest whose destination is a group address."),
        TxMulticastBytes => ("tx_multicast_bytes", "Bytes of these frames, without the virtio header and the FCS."),
        TxBroadcast => ("tx_broadcast", "Frames taken from the guest for the broadcast address; they are in tx_multicast, too."),
        TxBroadcastBytes => ("tx_broadcast_bytes", "Bytes of these frames, without the virtio header and the FCS."),
        RxRoceMarked => ("rx_roce_marked", "RoCEv2 packets for the guest's Ethernet driver with a congestion mark; counted where congestion control is on for a priority of the adapter."),
        RxCnpHandled => ("rx_cnp_handled", "Congestion notification packets for the guest's Ethernet driver that slowed down a flow of its own RoCE."),
        RxCnpIgnored => ("rx_cnp_ignored", "Those that did not."),
        TxCnpSent => ("tx_cnp_sent", "Congestion notification packets sent for the guest's own RoCE, the guest's own included; the former are counted at the first queue."),
        TxCnpUnknown => ("tx_cnp_unknown", "Marked RoCEv2 packets whose sender was not notified because its queue pair is not known."),
        TxRoceHeld => ("tx_roce_held", "Frames of the guest's own RoCE that waited for the rate of their flow."),
    }
}

counters! {
    /// Counters of an uplink port: `rx` is from the wire, `tx` to the wire.
    PortCounter, PORT_COUNTERS, Scope::Port, {
        RxFrames => ("rx_frames", "Frames received from the uplink."),
        RxBytes => ("rx_bytes", "Bytes of these frames, without the FCS."),
        RxForwarded => ("rx_forwarded", "Frames from the uplink for which the switch found at least one receiver."),
        TxFrames => ("tx_frames", "Frames sent to the uplink."),
        TxBytes => ("tx_bytes", "Bytes of these frames, without the FCS."),
    }
}

counters! {
    /// Counters of a priority: `rx` is what comes over the link to the adapter's guest or from the wire, `tx` what goes the
    /// other way. Of an adapter both ends are the NIC's: pause that it receives holds up what its guest sends.
    PriorityCounter, PRIORITY_COUNTERS, Scope::AdapterPriority, {
        RxFrames => ("rx_frames", "Frames received with this priority."),
        RxBytes => ("rx_bytes", "Bytes of these frames, without the FCS."),
        TxFrames => ("tx_frames", "Frames sent with this priority."),
        TxBytes => ("tx_bytes", "Bytes of these frames, without the FCS."),
        RxPause => ("rx_pause", "Pause frames received for this priority (IEEE 802.1Qbb)."),
        RxPauseUs => ("rx_pause_us", "Microseconds that this priority could not send because the peer said so."),
        RxPauseTransitions => ("rx_pause_transitions", "Times that it went from waiting to sending."),
        TxPause => ("tx_pause", "Pause frames sent for this priority (IEEE 802.1Qbb)."),
        TxPauseUs => ("tx_pause_us", "Microseconds for which senders of this priority were told to wait."),
        RxDiscards => ("rx_discards", "Frames received with this priority and dropped for want of room."),
        RxCongestionDiscards => ("rx_congestion_discards", "Frames dropped because the guest does not keep up and CongestionAction says so."),
        RxMarked => ("rx_marked", "Packets marked (ECN congestion experienced) because the guest does not keep up."),
        EcnMarked => ("ecn_marked", "Packets marked (ECN congestion experienced) on their way to the guest or the wire because too much waited in their traffic class."),
        WredDiscards => ("wred_discards", "Frames dropped on that way before the buffer was full, by chance (WRED)."),
        LifetimeDiscards => ("lifetime_discards", "Frames dropped after too long a wait at the head of their traffic class."),
        StalledDiscards => ("stalled_discards", "Frames dropped because their traffic class was stalled."),
    }
}

counters! {
    /// Counters of a link's flow control; directions as for [`PriorityCounter`].
    LinkCounter, LINK_COUNTERS, Scope::AdapterLink, {
        RxPause => ("rx_pause", "Global pause frames received (IEEE 802.3 annex 31B)."),
        RxPauseUs => ("rx_pause_us", "Microseconds that nothing could be sent because the peer said so."),
        RxPauseTransitions => ("rx_pause_transitions", "Times that sending went from waiting to going on."),
        TxPause => ("tx_pause", "Global pause frames sent."),
        TxPauseUs => ("tx_pause_us", "Microseconds for which senders were told to wait."),
        PauseStormWarnings => ("tx_pause_storm_warnings", "Times that the receive path stood still for longer than the minor watermark."),
        PauseStormErrors => ("tx_pause_storm_errors", "Times that it stood still for longer than the critical watermark: no more pause was sent."),
        ControlFrames => ("rx_control_frames", "MAC control frames received, of all kinds."),
    }
}

counters! {
    /// Counters of a data core.
    CoreCounter, CORE_COUNTERS, Scope::Core, {
        BusyRounds => ("busy_rounds", "Poll rounds that found work."),
        IdleRounds => ("idle_rounds", "Poll rounds that found nothing."),
        Sleeps => ("sleeps", "Times the core went to sleep until a kick."),
        Commands => ("commands", "Commands of the control plane carried out."),
        Panics => ("panics", "Bugs caught: an adapter was taken down, the daemon lives."),
        CaptureLost => ("capture_lost", "Frames that a running capture missed because its reader was too slow."),
        Orphans => ("orphans", "Frames whose receiver was removed while they were on their way."),
        Learned => ("learned_addresses", "Addresses the switch learned or moved."),
        FaultCopies => ("fault_copies", "Extra copies of frames delivered because a fault rule says so."),
        LearnRefused => ("learn_refused", "Addresses not learned because the table or the port's share of it was full."),
    }
}

/// The same rows, of an uplink port.
const fn of_port<const N: usize>(rows: &[CounterDef; N], scope: Scope) -> [CounterDef; N] {
    const NONE: CounterDef = CounterDef {
        name: "",
        scope: Scope::Port,
        help: "",
    };
    let mut out = [NONE; N];
    let mut i = 0;
    while i < N {
        (out[i].name, out[i].scope, out[i].help) = (rows[i].name, scope, rows[i].help);
        i += 1;
    }
    out
}

/// The rows of [`PriorityCounter`] for uplink ports.
pub static PORT_PRIORITY_COUNTERS: [CounterDef; PriorityCounter::COUNT] =
    of_port(&PRIORITY_COUNTERS, Scope::PortPriority);

/// The rows of [`LinkCounter`] for uplink ports.
pub static PORT_LINK_COUNTERS: [CounterDef; LinkCounter::COUNT] = of_port(&LINK_COUNTERS, Scope::PortLink);

/// The row of an adapter's drops.
pub static ADAPTER_DROP: CounterDef = CounterDef {
    name: "drops",
    scope: Scope::AdapterDrop,
    help: "Frames from or for the adapter that were dropped, by reason; each dropped frame (each copy of a flooded one) counts once.",
};

/// The row of a port's drops.
pub static PORT_DROP: CounterDef = CounterDef {
    name: "drops",
    scope: Scope::PortDrop,
    help: "Frames from or for the uplink port that were dropped, by reason; each dropped frame (each copy of a flooded one) counts once.",
};

/// The rows of the RDMA functions' counters, in the order of [`rdma::Counters::TABLE`].
pub static RDMA_COUNTERS: [CounterDef; rdma::Counters::COUNT] = {
    const NONE: CounterDef = CounterDef {
        name: "",
        scope: Scope::Rdma,
        help: "",
    };
    let mut rows = [NONE; rdma::Counters::COUNT];
    let mut i = 0;
    while i < rows.len() {
        let row = &rdma::Counters::TABLE[i];
        (rows[i].name, rows[i].help) = (row.name, row.help);
        i += 1;
    }
    rows
};

/// The unit of an RDMA counter, by its place in [`RDMA_COUNTERS`].
pub fn rdma_unit(place: usize) -> &'static str {
    rdma::Counters::TABLE.get(place).map_or("", |row| row.unit)
}

/// Every counter the data path keeps.
pub fn all() -> impl Iterator<Item = &'static CounterDef> {
    QUEUE_COUNTERS
        .iter()
        .chain([&ADAPTER_DROP])
        .chain(&PRIORITY_COUNTERS)
        .chain(&LINK_COUNTERS)
        .chain(&PORT_COUNTERS)
        .chain([&PORT_DROP])
        .chain(&PORT_PRIORITY_COUNTERS)
        .chain(&PORT_LINK_COUNTERS)
        .chain(&RDMA_COUNTERS)
        .chain(&CORE_COUNTERS)
}
