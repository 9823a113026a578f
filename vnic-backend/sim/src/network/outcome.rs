//! What came of a run.

use serde::Serialize;

/// Everything of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// By number of the flow in the scenario.
    pub flows: Vec<FlowOutcome>,
    /// By number of the queue in the scenario's record.
    pub queues: Vec<QueueOutcome>,
    /// Samples.
    pub series: Series,
    /// Sums.
    pub totals: Totals,
    /// Virtual time at the end, in ns.
    pub end: u64,
    /// Of every event, in order: two runs are the same if this is.
    pub hash: u64,
}

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FlowOutcome {
    /// When it began, in ns.
    pub start: u64,
    /// When its last byte was acknowledged.
    pub end: Option<u64>,
    /// Bytes of payload that arrived in order.
    pub delivered: u64,
    /// Of these, since the record's `from`.
    pub measured: u64,
    /// Time that it would take alone, in ns: what its slowdown is relative to.
    pub ideal: u64,
    /// Round trips: how many were measured, their sum and the greatest, in ns. Since the record's `from`.
    pub rtt_count: u64,
    /// See `rtt_count`.
    pub rtt_sum: u64,
    /// See `rtt_count`.
    pub rtt_max: u64,
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// Notifications that its sender handled.
    pub notifications: u64,
}

/// A queue, since the record's `from`, weighted by time.
#[derive(Debug, Clone, Default)]
pub struct QueueOutcome {
    /// Bytes on average.
    pub mean: f64,
    /// Most bytes.
    pub max: u64,
    /// Distribution: bytes by permille of the time, 0..=1000 (so `[500]` is the median).
    pub permille: Vec<u64>,
    /// Bytes on the wire that left it, and time that was measured, in ns: its utilization.
    pub sent: u64,
    /// See `sent`.
    pub time: u64,
    /// Speed of its link.
    pub rate: u64,
}

impl QueueOutcome {
    /// Part of the link's time that it was busy, 0..=1.
    pub fn utilization(&self) -> f64 {
        if self.time == 0 || self.rate == 0 {
            return 0.0;
        }
        self.sent as f64 * 8e9 / (self.rate as f64 * self.time as f64)
    }
}

/// Samples at equal times.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// ns of each sample.
    pub time: Vec<u64>,
    /// Bytes in each recorded queue.
    pub queues: Vec<Vec<u64>>,
    /// bit/s that each recorded flow was allowed (its rate; the line's if it is not limited).
    pub rates: Vec<Vec<u64>>,
    /// bit/s of payload that each recorded flow delivered since the last sample.
    pub delivered: Vec<Vec<u64>>,
    /// Since the last sample, of the whole network: pause frames (XOFF), CNPs, marked packets, drops.
    pub pauses: Vec<u64>,
    /// CNPs.
    pub cnps: Vec<u64>,
    /// Marked packets.
    pub marks: Vec<u64>,
    /// Dropped packets.
    pub drops: Vec<u64>,
}

/// Sums of the whole network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Packets with payload that hosts received.
    pub data_packets: u64,
    /// All packets, times links that they passed.
    pub packet_hops: u64,
    /// Events of the simulation.
    pub events: u64,
    /// XOFF frames, and when the last one was sent, in ns.
    pub pauses: u64,
    /// See `pauses`.
    #[serde(rename = "last_pause_ns")]
    pub last_pause: u64,
    /// XOFF frames since the record's `from`.
    pub pauses_measured: u64,
    /// CNPs.
    pub cnps: u64,
    /// Marked packets.
    pub marks: u64,
    /// Dropped packets.
    pub drops: u64,
    /// When the first packet was marked, and the first pause sent, in ns.
    #[serde(rename = "first_mark_ns")]
    pub first_mark: Option<u64>,
    /// See `first_mark`.
    #[serde(rename = "first_pause_ns")]
    pub first_pause: Option<u64>,
}
