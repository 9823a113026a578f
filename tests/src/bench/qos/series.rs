//! What streams have carried, at many times: rates, and how even they are.

use std::time::{Duration, Instant};

/// Length of a window of [`Series::windows`].
pub const WINDOW: Duration = Duration::from_millis(10);

/// Bytes of each stream since the beginning, each time they were looked at.
#[derive(Debug, Default)]
pub struct Series {
    samples: Vec<(Instant, Vec<u64>)>,
    /// Share of its CPU that the thread got that got less of it: the NIC's or the guests'.
    pub share: Option<f64>,
}

impl Series {
    /// They are so many now.
    pub fn push(&mut self, at: Instant, bytes: Vec<u64>) {
        self.samples.push((at, bytes));
    }

    /// bit/s of a stream from the first sample to the last.
    pub fn rate(&self, stream: usize) -> f64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => between(first, last, stream),
            _ => 0.0,
        }
    }

    /// bit/s of a stream from each sample to the next.
    pub fn windows(&self, stream: usize) -> Vec<f64> {
        self.samples
            .windows(2)
            .map(|pair| between(&pair[0], &pair[1], stream))
            .collect()
    }

    /// Time from the first sample to the last.
    pub fn time(&self) -> Duration {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => last.0 - first.0,
            _ => Duration::ZERO,
        }
    }
}

fn between(first: &(Instant, Vec<u64>), last: &(Instant, Vec<u64>), stream: usize) -> f64 {
    let of = |sample: &(Instant, Vec<u64>)| sample.1.get(stream).copied().unwrap_or_default();
    let time = (last.0 - first.0).as_secs_f64();
    8.0 * of(last).saturating_sub(of(first)) as f64 / time
}

/// Standard deviation as a share of the mean; 0 without values.
pub fn unevenness(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    if mean > 0.0 { square.sqrt() / mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_windows() {
        let mut series = Series::default();
        assert_eq!((series.rate(0), series.time()), (0.0, Duration::ZERO));
        let start = Instant::now();
        for (ms, bytes) in [(0, [5, 0]), (10, [1005, 0]), (20, [4005, 7])] {
            series.push(start + Duration::from_millis(ms), bytes.to_vec());
        }
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.max(1.0);
        assert!(near(series.rate(0), 1_600_000.0));
        let windows = series.windows(0);
        assert!(near(windows[0], 800_000.0) && near(windows[1], 2_400_000.0));
        assert!(near(unevenness(&windows), 0.5));
        assert!(near(unevenness(&[3.0, 3.0]), 0.0));
    }
}
