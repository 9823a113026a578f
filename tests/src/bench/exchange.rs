//! The bare ring exchange: what two threads on the two CPUs of a bench can hand each other at best.
//!
//! The first thread posts 8-byte entries in batches of [`BATCH`] into a ring of [`SLOTS`]; the second copies each
//! batch into a second ring; the first takes it back. An exchange is one entry there and back. Up to [`SLOTS`]
//! entries are under way: the shape of a virtqueue without descriptors, buffers or a device. Virtual CPUs
//! may be neighbours or far apart, and every figure of the data path follows this one.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Entries of a ring.
pub const SLOTS: usize = 256;
/// Entries handed over at once.
pub const BATCH: usize = 32;

#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// One direction: entries, and how many were written. How many were taken follows from the other direction.
struct Ring {
    entries: Vec<AtomicU64>,
    written: Line<AtomicUsize>,
}

impl Ring {
    fn new() -> Ring {
        let entries = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Ring {
            entries,
            written: Line::default(),
        }
    }

    fn write(&self, at: usize, value: impl Fn(usize) -> u64) {
        for i in at..at + BATCH {
            self.entries[i % SLOTS].store(value(i), Ordering::Relaxed);
        }
        self.written.0.store(at + BATCH, Ordering::Release);
    }

    fn read(&self, at: usize) -> Option<[u64; BATCH]> {
        if self.written.0.load(Ordering::Acquire) == at {
            return None;
        }
        Some(std::array::from_fn(|k| {
            self.entries[(at + k) % SLOTS].load(Ordering::Relaxed)
        }))
    }
}

/// Exchanges per second between threads pinned to the two CPUs, over about `time`.
pub fn measure(cpus: [usize; 2], time: Duration) -> Result<f64> {
    let (there, back) = (Ring::new(), Ring::new());
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|s| {
        let echo = s.spawn(|| -> Result<()> {
            let pinned = pin(cpus[1]);
            ready.wait();
            pinned?;
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                match there.read(at) {
                    Some(batch) => {
                        back.write(at, |i| batch[i - at]);
                        at += BATCH;
                    }
                    None => std::hint::spin_loop(),
                }
            }
            Ok(())
        });
        let post = s.spawn(|| -> Result<f64> {
            let pinned = pin(cpus[0]);
            ready.wait();
            let rate = pinned.map(|()| exchange(&there, &back, time));
            stop.store(true, Ordering::Relaxed);
            rate
        });
        let rate = post
            .join()
            .map_err(|_| anyhow::anyhow!("the posting thread panicked"))?;
        echo.join()
            .map_err(|_| anyhow::anyhow!("the echoing thread panicked"))??;
        rate
    })
}

fn exchange(there: &Ring, back: &Ring, time: Duration) -> f64 {
    let (mut posted, mut taken, mut sum) = (0, 0, 0u64);
    let start = Instant::now();
    let mut look = 0u32;
    loop {
        if posted - taken + BATCH <= SLOTS {
            there.write(posted, |i| i as u64);
            posted += BATCH;
        }
        if let Some(batch) = back.read(taken) {
            sum = batch.iter().fold(sum, |s, v| s.wrapping_add(*v));
            taken += BATCH;
        }
        look = look.wrapping_add(1);
        if look.is_multiple_of(4096) && start.elapsed() >= time {
            break;
        }
    }
    let elapsed = start.elapsed();
    std::hint::black_box(sum);
    taken as f64 / elapsed.as_secs_f64()
}

/// Pins the calling thread.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("pinning a thread to CPU {cpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_back_in_order_and_whole() {
        let (there, back) = (Ring::new(), Ring::new());
        assert!(there.read(0).is_none());
        for at in (0..4 * SLOTS).step_by(BATCH) {
            there.write(at, |i| i as u64);
            let batch = there.read(at).expect("written");
            assert_eq!(batch[0], at as u64);
            back.write(at, |i| batch[i - at]);
            assert_eq!(
                back.read(at).expect("written")[BATCH - 1],
                (at + BATCH - 1) as u64
            );
        }
    }

    #[test]
    fn two_threads_exchange_something() {
        let rate = measure([0, 0], Duration::from_millis(50)).expect("CPU 0 exists");
        assert!(rate > 0.0, "{rate}");
    }
}
