//! Histograms of the data path. Bounds are powers of two: the bucket of a value is found without a loop or a table.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::Scope;

/// Row of the table of histograms.
#[derive(Debug, PartialEq, Eq)]
pub struct HistogramDef {
    /// Name for gRPC and the command line; the Prometheus name is `vnic_<scope>_<name>`, with the unit of time.
    pub name: &'static str,
    /// Kind of the owner.
    pub scope: Scope,
    /// Unit of values and bounds: `ns`, or what is counted.
    pub unit: &'static str,
    /// Binary logarithm of the first bound.
    first: u32,
    /// Meaning in one line.
    pub help: &'static str,
}

/// Binary logarithms of the first bound of times, in nanoseconds, and number of their buckets: 128 ns to 1.07 s, and beyond.
const TIME: (u32, usize) = (7, 25);
/// The same of numbers of buffers: 1 to 32768, the most that a ring of virtio has, and beyond.
const DEPTH: (u32, usize) = (0, 17);

/// Histogram of times in nanoseconds.
pub type TimeHistogram = Histogram<{ TIME.0 }, { TIME.1 }>;
/// Histogram of numbers of buffers.
pub type DepthHistogram = Histogram<{ DEPTH.0 }, { DEPTH.1 }>;

/// Rounds of a data core.
pub static ROUND: HistogramDef = HistogramDef {
    name: "round",
    scope: Scope::Core,
    unit: "ns",
    first: TIME.0,
    help: "Time of rounds of the data core that found work, with the calls of the control plane before them.",
};

/// Wake-ups of a data core.
pub static WAKE_UP: HistogramDef = HistogramDef {
    name: "wake_up",
    scope: Scope::Core,
    unit: "ns",
    first: TIME.0,
    help: "Time from a write to the eventfd of the sleeping data core, by another core or the control plane, to its first look at its work; guests' kicks bear no time and take the same way.",
};

/// Messages of an RDMA function.
pub static MESSAGE_LATENCY: HistogramDef = HistogramDef {
    name: "message_latency",
    scope: Scope::Rdma,
    unit: "ns",
    first: TIME.0,
    help: "Time of a sample of the requests of reliable queue pairs: from the round that took the request from its ring to the end of the round that wrote its completion.",
};

/// Depth of the transmit rings of an adapter.
pub static TX_QUEUE_DEPTH: HistogramDef = HistogramDef {
    name: "tx_queue_depth",
    scope: Scope::AdapterQueue,
    unit: "frames",
    first: DEPTH.0,
    help: "Frames that a transmit ring of the adapter held when the data core looked at it and found some.",
};

/// All histograms.
pub static HISTOGRAMS: [&HistogramDef; 4] = [&ROUND, &WAKE_UP, &MESSAGE_LATENCY, &TX_QUEUE_DEPTH];

impl HistogramDef {
    /// Upper bounds of the buckets, without that of the last one, which has none. A value that equals a bound is below it.
    pub fn bounds(&self, buckets: usize) -> impl Iterator<Item = u64> + use<> {
        let first = self.first;
        (0..buckets.saturating_sub(1) as u32).map(move |i| 1 << (first + i))
    }
}

/// Histogram with one writer (a data thread) and any number of readers. Its first bound is 2^`FIRST`, each further one is
/// twice the one before, and the last of its `N` buckets has none. It has its own cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct Histogram<const FIRST: u32, const N: usize> {
    sum: AtomicU64,
    buckets: [AtomicU64; N],
}

impl<const FIRST: u32, const N: usize> Default for Histogram<FIRST, N> {
    fn default() -> Self {
        Histogram {
            sum: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; N],
        }
    }
}

impl<const FIRST: u32, const N: usize> Histogram<FIRST, N> {
    /// Upper bounds of the buckets, without that of the last one, which has none. A value that equals a bound is below it.
    pub fn bounds() -> impl Iterator<Item = u64> {
        (FIRST..).take(N - 1).map(|bits| 1 << bits)
    }

    /// Counts a value. Only the writer's thread may call this.
    #[inline]
    pub fn add(&self, value: u64) {
        let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
        let bucket = (bits.saturating_sub(FIRST) as usize).min(N - 1);
        let add = |to: &AtomicU64, n: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        };
        add(&self.buckets[bucket], 1);
        add(&self.sum, value);
    }

    /// All values.
    pub fn read(&self) -> HistogramValues {
        HistogramValues {
            buckets: self.buckets.iter().map(|n| n.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// Values of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramValues {
    /// Number of values in each bucket: not of those before it.
    pub buckets: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

impl HistogramValues {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// A histogram with its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSample {
    /// Row of the table.
    pub def: &'static HistogramDef,
    /// Name of the adapter, or number of the data core.
    pub owner: String,
    /// Values since the owner was made.
    pub values: HistogramValues,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        for value in (0..70_000).chain([u64::MAX - 1, u64::MAX]) {
            let histogram = DepthHistogram::default();
            histogram.add(value);
            let values = histogram.read();
            assert_eq!((values.count(), values.sum), (1, value));
            let bounds: Vec<u64> = TX_QUEUE_DEPTH.bounds(values.buckets.len()).collect();
            let expected = bounds.partition_point(|bound| *bound < value);
            assert_eq!(
                values.buckets.iter().position(|n| *n == 1),
                Some(expected),
                "{value}"
            );
        }
    }

    #[test]
    fn bounds_are_what_the_page_says() {
        let times: Vec<u64> = ROUND.bounds(TIME.1).collect();
        assert_eq!((times[0], times[23], times.len()), (128, 1 << 30, 24));
        let depths: Vec<u64> = TX_QUEUE_DEPTH.bounds(DEPTH.1).collect();
        assert_eq!((depths[0], depths[15], depths.len()), (1, 32768, 16));
        assert!(TimeHistogram::bounds().eq(times) && DepthHistogram::bounds().eq(depths));
        let histogram = TimeHistogram::default();
        for value in [0, 128, 129, 1 << 30, (1 << 30) + 1] {
            histogram.add(value);
        }
        let buckets = histogram.read().buckets;
        assert_eq!((buckets[0], buckets[1], buckets[23], buckets[24]), (2, 1, 1, 1));
    }
}
