//! Times and rates.

use std::time::{Duration, Instant};

/// Most samples that are kept.
const KEPT: usize = 1 << 20;

/// Times of single iterations. Beyond 2^20 only every second, fourth, … one is kept; minimum, maximum and average stay
/// exact.
#[derive(Debug, Clone)]
pub struct Times {
    kept: Vec<u32>,
    /// Iterations of which one is kept.
    stride: u64,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

/// Statistics of times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of times.
    pub count: u64,
    /// Shortest time.
    pub min: f64,
    /// Longest time.
    pub max: f64,
    /// Median.
    pub typical: f64,
    /// Mean.
    pub average: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Time that 99 of 100 do not exceed.
    pub p99: f64,
    /// Time that 999 of 1000 do not exceed.
    pub p999: f64,
}

impl Times {
    /// No times yet.
    pub fn new() -> Times {
        Times {
            kept: Vec::new(),
            stride: 1,
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.count.is_multiple_of(self.stride) {
            if self.kept.len() == KEPT {
                let mut place = 0usize;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.kept.push(u32::try_from(ns).unwrap_or(u32::MAX));
            }
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Statistics of the times; `None` without any.
    pub fn summary(&self) -> Option<Summary> {
        self.parts(1.0)
    }

    /// Statistics of one way, if the times are there and back.
    pub fn one_way(&self) -> Option<Summary> {
        self.parts(2.0)
    }

    /// Statistics of one of so many equal parts of each time.
    fn parts(&self, parts: f64) -> Option<Summary> {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        let micros = |ns: f64| ns / 1000.0 / parts;
        // Nearest rank: the smallest value that at least that part of all does not exceed.
        let rank = |part: f64| -> Option<f64> {
            let place = (part * sorted.len() as f64).ceil() as usize;
            let ns = sorted.get(place.saturating_sub(1))?;
            Some(micros(f64::from(*ns)))
        };
        let average = self.sum as f64 / self.count.max(1) as f64;
        let squares: f64 = sorted.iter().map(|ns| (f64::from(*ns) - average).powi(2)).sum();
        Some(Summary {
            count: self.count,
            min: micros(self.min as f64),
            max: micros(self.max as f64),
            typical: rank(0.5)?,
            average: micros(average),
            deviation: micros((squares / sorted.len() as f64).sqrt()),
            p99: rank(0.99)?,
            p999: rank(0.999)?,
        })
    }
}

/// Measures an average rate, and the best one over a part of the run.
#[derive(Debug, Clone)]
pub struct Meter {
    start: Instant,
    /// Messages of a part.
    part: u64,
    mark: (Instant, u64),
    best: f64,
    last: (Instant, u64),
}

/// Rates in messages and bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Best rate, MiB/s.
    pub peak: f64,
    /// Average rate, MiB/s.
    pub average: f64,
    /// Millions of messages a second.
    pub messages: f64,
}

impl Meter {
    /// Begins to measure now. `part`: messages over which the peak is measured.
    pub fn start(part: u64) -> Meter {
        let now = Instant::now();
        Meter {
            start: now,
            part: part.max(1),
            mark: (now, 0),
            best: 0.0,
            last: (now, 0),
        }
    }

    /// Notes that so many messages are done by now.
    pub fn done(&mut self, messages: u64) {
        self.done_at(messages, Instant::now());
    }

    fn done_at(&mut self, messages: u64, now: Instant) {
        self.last = (now, messages);
        let since = messages - self.mark.1;
        if since >= self.part {
            let seconds = (now - self.mark.0).as_secs_f64().max(1e-9);
            self.best = self.best.max(since as f64 / seconds);
            self.mark = (now, messages);
        }
    }

    /// The rates of messages of `bytes` bytes, from the beginning to the last one that was done.
    pub fn rate(&self, bytes: u64) -> Rate {
        let seconds = (self.last.0 - self.start).as_secs_f64().max(1e-9);
        let messages = self.last.1 as f64 / seconds;
        let mib = |rate: f64| rate * bytes as f64 / f64::from(1 << 20);
        Rate {
            peak: mib(self.best.max(messages)),
            average: mib(messages),
            messages: messages / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut times = Times::new();
        assert_eq!(times.summary(), None);
        for us in (1..=1000).rev() {
            times.add(Duration::from_micros(us));
        }
        let s = times.summary().expect("a summary");
        assert_eq!((s.count, s.min, s.max, s.typical), (1000, 1.0, 1000.0, 500.0));
        assert_eq!((s.p99, s.p999), (990.0, 999.0));
        assert!(
            (s.average - 500.5).abs() < 1e-9 && (s.deviation - 288.675).abs() < 0.001,
            "{s:?}"
        );
        let mut one = Times::new();
        one.add(Duration::from_nanos(1500));
        let s = one.summary().expect("a summary");
        assert_eq!((s.min, s.typical, s.p999, s.deviation), (1.5, 1.5, 1.5, 0.0));
    }

    #[test]
    fn very_many_samples_are_thinned_out() {
        let mut times = Times::new();
        for ns in 0..5_000_000u64 {
            times.add(Duration::from_nanos(ns % 1000));
        }
        assert!(
            times.kept.len() <= KEPT && times.kept.len() > KEPT / 4,
            "{}",
            times.kept.len()
        );
        let s = times.summary().expect("a summary");
        assert_eq!((s.count, s.min, s.max), (5_000_000, 0.0, 0.999));
        assert!(
            (s.typical - 0.5).abs() < 0.01 && (s.p99 - 0.99).abs() < 0.01,
            "{s:?}"
        );
    }

    #[test]
    fn rates() {
        let mut meter = Meter::start(10);
        let at = |ms: u64| meter.start + Duration::from_millis(ms);
        let (a, b, c) = (at(100), at(110), at(1000));
        meter.done_at(5, a);
        meter.done_at(5 + 10, b);
        meter.done_at(100, c);
        let rate = meter.rate(1 << 20);
        assert!(
            (rate.average - 100.0).abs() < 1e-6 && (rate.messages - 1e-4).abs() < 1e-9,
            "{rate:?}"
        );
        assert!((rate.peak - 15.0 / 0.11).abs() < 1e-3, "{rate:?}");
    }
}
