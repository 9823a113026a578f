//! Counter blocks of one owner each: its data core writes them, any thread reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use vnic_engine::counters::{
    self, AdapterValues, Block, CoreCounter, DcbxCounter, DepthHistogram, LinkCounter, LinkValues,
    MeshCounters, PortCounter, PortValues, PriorityCounter, QueueCounter, TimeHistogram,
};
use vnic_engine::rdma::Counters as Rdma;
use vnic_fabric::DropReason;

use crate::rdma::RdmaCounters;
use crate::types::DcbxCounters;

/// Drops by [`DropReason`].
pub type Drops = Block<{ DropReason::ALL.len() }>;

/// Counters of the link of an adapter or uplink: by priority, and of its flow control.
#[derive(Default)]
pub struct LinkCounters {
    /// Counters by priority.
    pub priorities: [Block<{ PriorityCounter::COUNT }>; 8],
    /// Counters of all priorities together.
    pub link: Block<{ LinkCounter::COUNT }>,
    /// Last values that were read of priority 0, in the order of [`TRAFFIC`].
    rest: [AtomicU64; TRAFFIC.len()],
}

/// Counters that the data path keeps for priorities 1 to 7 only: priority 0 has the rest of the totals.
const TRAFFIC: [PriorityCounter; 4] = [
    PriorityCounter::RxFrames,
    PriorityCounter::RxBytes,
    PriorityCounter::TxFrames,
    PriorityCounter::TxBytes,
];

impl LinkCounters {
    /// All values. `totals` are the owner's frames and bytes of all priorities, in the order of [`TRAFFIC`], read before.
    fn read(&self, totals: [u64; TRAFFIC.len()]) -> Box<LinkValues> {
        let mut values = LinkValues {
            priorities: std::array::from_fn(|p| self.priorities[p].snapshot()),
            all: self.link.snapshot(),
        };
        for ((counter, total), rest) in TRAFFIC.into_iter().zip(totals).zip(&self.rest) {
            let of = |values: &[u64; PriorityCounter::COUNT]| values[counter as usize];
            let others = values.priorities[1..].iter().map(of).fold(0, u64::wrapping_add);
            // The other priorities were read later than the total: the difference is never too large, but may be less than
            // the last value. A counter does not go back.
            let now = total.saturating_sub(others);
            values.priorities[0][counter as usize] = rest.fetch_max(now, Ordering::Relaxed).max(now);
        }
        Box::new(values)
    }
}

/// Counters of an adapter. They live as long as the adapter, whatever its guest does.
pub struct AdapterCounters {
    life: u64,
    /// Counters by queue pair.
    pub queues: Box<[Block<{ QueueCounter::COUNT }>]>,
    /// Drops by reason.
    pub drops: Drops,
    /// Counters of the adapter's link.
    pub link: LinkCounters,
    /// Gauges of frames that wait for receive buffers.
    pub waits: WaitGauges,
    /// Frames that a transmit ring held at looks that found some.
    pub depth: DepthHistogram,
}

impl AdapterCounters {
    /// Zeroes for `pairs` queue pairs.
    pub fn new(pairs: usize) -> Self {
        AdapterCounters {
            life: Life::default().0,
            queues: (0..pairs).map(|_| Block::default()).collect(),
            drops: Drops::default(),
            link: LinkCounters::default(),
            waits: WaitGauges::default(),
            depth: DepthHistogram::default(),
        }
    }

    /// All values, without pairs that were never used: an adapter offers more pairs than most guests use.
    pub fn read(&self, name: &str, core: usize, rdma: Option<&RdmaCounters>) -> AdapterValues {
        let used = |(queue, values): &(u16, [u64; QueueCounter::COUNT])| {
            *queue == 0 || values.iter().any(|v| *v != 0)
        };
        let queues: Vec<_> = (0..).zip(self.queues.iter().map(Block::snapshot)).collect();
        let rdma = rdma.map(|block| Box::new(block.counts.snapshot()));
        let totals = totals(&queues, rdma.as_deref());
        AdapterValues {
            name: name.into(),
            life: self.life,
            core: u32::try_from(core).unwrap_or(u32::MAX),
            link: self.link.read(totals),
            queues: queues.into_iter().filter(used).collect(),
            drops: read_drops(&self.drops),
            rdma,
        }
    }
}

/// Frames and bytes of an adapter's Ethernet queues and RDMA function, in the order of [`TRAFFIC`].
fn totals(
    queues: &[(u16, [u64; QueueCounter::COUNT])],
    rdma: Option<&[u64; Rdma::COUNT]>,
) -> [u64; TRAFFIC.len()] {
    let ethernet = [
        QueueCounter::RxFrames,
        QueueCounter::RxBytes,
        QueueCounter::TxFrames,
        QueueCounter::TxBytes,
    ]
    .map(|c| {
        let values = queues.iter().map(|(_, values)| values[c as usize]);
        values.fold(0, u64::wrapping_add)
    });
    let names = [
        ["rx_vport_rdma_unicast_packets", "rx_vport_rdma_multicast_packets"],
        ["rx_vport_rdma_unicast_bytes", "rx_vport_rdma_multicast_bytes"],
        ["tx_vport_rdma_unicast_packets", "tx_vport_rdma_multicast_packets"],
        ["tx_vport_rdma_unicast_bytes", "tx_vport_rdma_multicast_bytes"],
    ];
    let of = |name: &str| {
        let place = Rdma::NAMES.iter().position(|n| *n == name);
        rdma.zip(place).map_or(0, |(values, i)| values[i])
    };
    let mut totals = ethernet;
    for (total, [unicast, multicast]) in totals.iter_mut().zip(names) {
        *total = total.wrapping_add(of(unicast)).wrapping_add(of(multicast));
    }
    totals
}

/// Multicast frames of a burst. Most bursts have none: there is then nothing to add up.
#[derive(Default)]
pub struct Groups {
    multicast: u64,
    multicast_bytes: u64,
    broadcast: u64,
    broadcast_bytes: u64,
}

impl Groups {
    /// Counts a frame with this head.
    #[inline]
    pub fn frame(&mut self, head: &[u8], len: u64) {
        if head.first().is_some_and(|first| first & 1 != 0) {
            self.group(head, len);
        }
    }

    #[inline(never)]
    fn group(&mut self, head: &[u8], len: u64) {
        self.multicast += 1;
        self.multicast_bytes += len;
        if head.starts_with(&[0xff; 6]) {
            self.broadcast += 1;
            self.broadcast_bytes += len;
        }
    }

    /// Adds the sums to four counters: frames and bytes of multicast, and of broadcast among them.
    #[inline]
    pub fn flush(&mut self, block: &Block<{ QueueCounter::COUNT }>, to: [QueueCounter; 4]) {
        if self.multicast > 0 {
            let sums = std::mem::take(self);
            let values = [
                sums.multicast,
                sums.multicast_bytes,
                sums.broadcast,
                sums.broadcast_bytes,
            ];
            for (counter, value) in to.into_iter().zip(values) {
                block.add(counter as usize, value);
            }
        }
    }
}

/// Gauges of frames that wait for receive buffers of an adapter: one writer, readers on any thread.
#[derive(Default)]
pub struct WaitGauges {
    /// Time-out of dropless mode in 100 µs, if the mode is on; otherwise 0.
    pub on: AtomicU8,
    /// Time-out of dropless mode that was set last, in 100 µs.
    pub timeout: AtomicU8,
    /// Frames in the reserve.
    pub reserved: AtomicU64,
    /// Largest number of frames in the reserve so far.
    pub reserved_max: AtomicU64,
    /// Frames beyond the reserve.
    pub beyond: AtomicU64,
    /// Bytes of memory of all waiting frames.
    pub bytes: AtomicU64,
    /// Largest value of `bytes` so far.
    pub bytes_max: AtomicU64,
}

impl WaitGauges {
    pub fn add(&self, cost: u64) {
        let bytes = self.bytes.load(Ordering::Relaxed) + cost;
        self.bytes.store(bytes, Ordering::Relaxed);
        self.bytes_max.fetch_max(bytes, Ordering::Relaxed);
    }

    pub fn remove(&self, cost: u64) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.bytes.store(bytes.saturating_sub(cost), Ordering::Relaxed);
    }
}

/// Priority of a frame that was not classified: its tag counts, as without a configuration.
pub const BY_TAG: u8 = 8;

/// Priority of a frame with this head and this classification, which may be [`BY_TAG`].
pub fn priority_of(priority: u8, head: &[u8]) -> u8 {
    match (priority, head.get(12..15)) {
        (BY_TAG, Some([0x81, 0x00, tci])) => tci >> 5,
        (BY_TAG, _) => 0,
        (priority, _) => priority,
    }
}

/// Direction of frames on a link, as its [`PriorityCounter`]s see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the guest, or from the wire.
    Received,
    /// From the guest, or to the wire.
    Sent,
}

/// Frames of a burst by priority. Those of priority 0 are not reported: they are the rest of the owner's totals. So an
/// untagged frame costs nothing without a configuration.
#[derive(Default)]
pub struct Priorities {
    /// Frames and bytes.
    sums: [(u64, u64); 8],
    /// Priorities with frames, a bit each.
    any: u8,
}

impl Priorities {
    /// Counts a frame with this head, of this priority or [`BY_TAG`].
    #[inline(always)]
    pub fn frame(&mut self, priority: u8, head: &[u8], len: u64) {
        self.frames(priority, head, 1, len);
    }

    /// Counts frames with this head, of this priority or [`BY_TAG`], and all their bytes.
    #[inline(always)]
    pub fn frames(&mut self, priority: u8, head: &[u8], frames: u64, bytes: u64) {
        if priority != BY_TAG {
            self.add(priority, frames, bytes);
        } else if matches!(head.get(12..14), Some([0x81, 0x00])) {
            self.tagged(head, frames, bytes);
        }
    }

    #[inline(never)]
    fn tagged(&mut self, head: &[u8], frames: u64, bytes: u64) {
        self.add(priority_of(BY_TAG, head), frames, bytes);
    }

    #[inline(always)]
    fn add(&mut self, priority: u8, more: u64, len: u64) {
        let (frames, bytes) = &mut self.sums[usize::from(priority & 7)];
        *frames += more;
        *bytes += len;
        self.any |= 1 << (priority & 7);
    }

    /// Adds the sums to the counters. Called before the owner's totals of the same frames are added: a reader takes the
    /// difference.
    #[inline]
    pub fn flush(&mut self, link: &LinkCounters, way: Way) {
        if self.any != 0 {
            self.flush_all(link, way);
        }
    }

    #[inline(never)]
    fn flush_all(&mut self, link: &LinkCounters, way: Way) {
        let (f, b) = match way {
            Way::Received => (PriorityCounter::RxFrames, PriorityCounter::RxBytes),
            Way::Sent => (PriorityCounter::TxFrames, PriorityCounter::TxBytes),
        };
        let all = self.sums.iter_mut().zip(&link.priorities).enumerate();
        for (p, (sums, block)) in all.filter(|(p, _)| self.any >> p & 1 != 0) {
            let (frames, bytes) = std::mem::take(sums);
            if p != 0 {
                block.add(f as usize, frames);
                block.add(b as usize, bytes);
            }
        }
        self.any = 0;
    }
}

/// Counters of an uplink port.
#[derive(Default)]
pub struct PortCounters {
    life: Life,
    /// Traffic.
    pub io: Block<{ PortCounter::COUNT }>,
    /// Counters of the uplink's link.
    pub link: LinkCounters,
    /// Drops by reason.
    pub drops: Drops,
    /// Counters of data center bridging exchange; who holds the lock of the state writes them.
    dcbx: Block<{ DcbxCounter::COUNT }>,
    /// Counters of the mesh behind the port, which writes them.
    mesh: Option<Arc<MeshCounters>>,
}

impl PortCounters {
    /// Zeroes for a port with this mesh behind it.
    pub fn of_mesh(mesh: Arc<MeshCounters>) -> PortCounters {
        PortCounters {
            mesh: Some(mesh),
            ..PortCounters::default()
        }
    }

    /// Counts what data center bridging exchange did. The caller holds the lock of the state.
    pub fn count_dcbx(&self, new: DcbxCounters) {
        for (counter, n) in [
            (DcbxCounter::RxDcbxFrames, new.received),
            (DcbxCounter::RxDcbxErrors, new.errors),
            (DcbxCounter::TxDcbxFrames, new.sent),
            (DcbxCounter::DcbxChanges, new.changes),
        ] {
            self.dcbx.add(counter as usize, n);
        }
    }

    /// Counters of data center bridging exchange.
    pub fn dcbx(&self) -> DcbxCounters {
        let get = |counter: DcbxCounter| self.dcbx.get(counter as usize);
        DcbxCounters {
            received: get(DcbxCounter::RxDcbxFrames),
            errors: get(DcbxCounter::RxDcbxErrors),
            sent: get(DcbxCounter::TxDcbxFrames),
            changes: get(DcbxCounter::DcbxChanges),
        }
    }

    /// All values.
    pub fn read(&self, name: &str) -> PortValues {
        let io = self.io.snapshot();
        let totals = [
            PortCounter::RxFrames,
            PortCounter::RxBytes,
            PortCounter::TxFrames,
            PortCounter::TxBytes,
        ];
        PortValues {
            name: name.into(),
            life: self.life.0,
            link: self.link.read(totals.map(|c| io[c as usize])),
            io,
            dcbx: self.dcbx.snapshot(),
            drops: read_drops(&self.drops),
            mesh: self.mesh.as_ref().map(|mesh| Box::new(mesh.snapshot())),
        }
    }
}

/// Counters of a data core.
pub type CoreCounters = Block<{ CoreCounter::COUNT }>;

/// Times of a data core.
#[derive(Debug, Default)]
pub struct CoreTimes {
    /// Rounds that found work.
    pub round: TimeHistogram,
    /// Wake-ups by other cores and by the control plane.
    pub wake_up: TimeHistogram,
}

fn read_drops(drops: &Drops) -> counters::Drops {
    let all = DropReason::ALL.iter();
    all.map(|r| (r.name(), drops.get(*r as usize))).collect()
}

/// A number that no other owner of counters of this process has.
pub struct Life(u64);

impl Default for Life {
    fn default() -> Life {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Life(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
