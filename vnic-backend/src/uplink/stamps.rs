//! Times of arrival that a device's hardware gives to frames (`Documentation/networking/timestamping.rst` of the kernel).
//!
//! They are of the device's own clock (`/dev/ptpN`), which an operator or a PTP daemon may set to any time. Both clocks are read
//! together once a second, and a time of the one becomes that of the other by the last two readings.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

use super::sys;

/// Filters of received frames (`linux/net_tstamp.h`): none, all, and the event messages of PTP, version 2.
const NONE: u32 = libc::HWTSTAMP_FILTER_NONE;
const ALL: u32 = libc::HWTSTAMP_FILTER_ALL;
const PTP: u32 = libc::HWTSTAMP_FILTER_PTP_V2_EVENT;
/// Readings of which the one that took the shortest time counts.
const READINGS: usize = 5;
/// Shortest time between two samples that tell how fast a clock runs, in ns.
const APART: i64 = 100_000_000;
/// Largest deviation of a clock's speed: what is beyond it is a clock that was set.
const DEVIATION: f64 = 0.1;

/// Stamping of a device's hardware, as the port's owner has it. When it ends, the device stamps what it has stamped before.
#[derive(Debug)]
pub struct Stamping {
    clock: Arc<DeviceClock>,
    before: Option<(String, [u32; 3])>,
    /// Whether the device is gone: one of its name is another one.
    gone: AtomicBool,
}

/// The clock of a device, and what is known of it.
#[derive(Debug)]
pub struct DeviceClock {
    device: File,
    known: Mutex<Mapping>,
}

/// From times of a device's clock to the system's, both in ns since 1970.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Mapping {
    device: i64,
    system: i64,
    /// Time of the system that passes in a time of the device, less one.
    faster: f64,
}

/// A data core's view of a device's clock, and sums of what it has stamped.
pub struct Stamps {
    clock: Arc<DeviceClock>,
    mapping: Mapping,
    sums: Sums,
}

/// Frames that hardware has stamped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Number of the frames.
    pub frames: u64,
    /// From their arrival to when a data core took them, in ns together.
    pub wait: u64,
}

impl Stamping {
    /// Has a device stamp the event messages of PTP, or all frames if it can only do that, unless it stamps received frames already:
    /// then others want it so. `None`: its hardware has no clock, or none for them.
    pub fn start(ifname: &str) -> io::Result<Option<Stamping>> {
        let Some((index, filters)) = sys::hardware_stamps(ifname) else {
            return Ok(None);
        };
        let Some(filter) = [PTP, ALL].into_iter().find(|filter| filters >> filter & 1 != 0) else {
            return Ok(None);
        };
        let path = format!("/dev/ptp{index}");
        let device =
            File::open(&path).map_err(|e| io::Error::new(e.kind(), format!("opening {path}: {e}")))?;
        let clock = DeviceClock {
            device,
            known: Mutex::default(),
        };
        clock.look()?;
        // (Drivers before Linux 3.14 tell nobody.)
        let [flags, sent, received] = sys::hwtstamp(ifname).unwrap_or_default();
        let mut stamping = Stamping {
            clock: Arc::new(clock),
            before: None,
            gone: AtomicBool::new(false),
        };
        if received == NONE {
            sys::set_hwtstamp(ifname, [flags, sent, filter]).map_err(|e| {
                let cure = match Errno::from_io_error(&e) {
                    Some(Errno::PERM) => " (it needs the capability CAP_NET_ADMIN)",
                    _ => "",
                };
                io::Error::new(e.kind(), format!("SIOCSHWTSTAMP of {ifname}: {e}{cure}"))
            })?;
            stamping.before = Some((ifname.to_owned(), [flags, sent, NONE]));
        }
        Ok(Some(stamping))
    }

    /// Looks at both clocks again.
    pub fn look(&self) {
        // A device that was taken away has no time: frames of it come no more.
        let _ = self.clock.look();
    }

    /// Notes that the device is gone: there is nothing to give back.
    pub fn lost(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// A data core's view.
    pub fn stamps(&self) -> Stamps {
        Stamps {
            clock: self.clock.clone(),
            mapping: Mapping::default(),
            sums: Sums::default(),
        }
    }
}

impl Drop for Stamping {
    fn drop(&mut self) {
        if let Some((ifname, before)) = &self.before
            && !self.gone.load(Ordering::Relaxed)
        {
            // A device that goes now stamps nothing.
            let _ = sys::set_hwtstamp(ifname, *before);
        }
    }
}

impl DeviceClock {
    /// Reads both clocks.
    fn look(&self) -> io::Result<()> {
        let mut best: Option<(i64, i64, i64)> = None;
        for _ in 0..READINGS {
            let before = nanos(clock_gettime(ClockId::Realtime));
            let device = nanos(clock_gettime_dynamic(DynamicClockId::Dynamic(
                self.device.as_fd(),
            ))?);
            let after = nanos(clock_gettime(ClockId::Realtime));
            let took = after - before;
            if took >= 0 && best.is_none_or(|(shortest, ..)| took < shortest) {
                best = Some((took, device, before + took / 2));
            }
        }
        if let Some((_, device, system)) = best {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            *known = known.next(device, system);
        }
        Ok(())
    }
}

impl Mapping {
    /// With a reading of both clocks.
    fn next(self, device: i64, system: i64) -> Mapping {
        let (passed, by_system) = (device - self.device, system - self.system);
        let faster = (by_system - passed) as f64 / passed as f64;
        let tells = self.device != 0 && passed >= APART && faster.abs() <= DEVIATION;
        Mapping {
            device,
            system,
            faster: if tells { faster } else { 0.0 },
        }
    }

    /// The system's time at a time of the device.
    fn system(&self, device: i64) -> i64 {
        let since = device.wrapping_sub(self.device);
        let more = (since as f64 * self.faster) as i64;
        self.system.wrapping_add(since).wrapping_add(more)
    }
}

impl Stamps {
    /// The system's time, in ns since 1970, at a time of the device. Counts it as that of a frame which a data core takes now.
    #[cold]
    pub fn arrived(&mut self, device: u64) -> u64 {
        // The owner may be writing it: then the one before serves.
        if let Ok(known) = self.clock.known.try_lock() {
            self.mapping = *known;
        }
        let at = self.mapping.system(device.cast_signed());
        let now = nanos(clock_gettime(ClockId::Realtime));
        self.sums.frames += 1;
        self.sums.wait += now.saturating_sub(at).max(0).cast_unsigned();
        at.max(0).cast_unsigned()
    }

    /// Sums since the last call.
    pub fn take(&mut self) -> Sums {
        std::mem::take(&mut self.sums)
    }
}

fn nanos(time: Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn times_of_a_device_become_those_of_the_system() {
        // The device's clock began with 1 s when the system's had 1000 s.
        let first = Mapping::default().next(S, 1000 * S);
        assert_eq!(first.system(S + 5), 1000 * S + 5);
        assert_eq!(first.system(S - 7), 1000 * S - 7);
        // It is 20 ppm slower: 1 s of it are 1.00002 s.
        let second = first.next(2 * S, 1001 * S + 20_000);
        assert_eq!(second.system(2 * S), 1001 * S + 20_000);
        assert_eq!(second.system(3 * S), 1002 * S + 40_000);
        assert_eq!(second.system(2 * S - S / 2), 1000 * S + S / 2 + 10_000);
    }

    #[test]
    fn a_clock_that_was_set_runs_as_the_systems_until_the_next_look() {
        let first = Mapping::default().next(S, 1000 * S);
        for (device, system) in [
            (900 * S, 1001 * S),
            (S / 2, 1001 * S),
            // Set by a tenth of the time and more.
            (2 * S + S / 5, 1001 * S),
            // The system's clock was.
            (2 * S, 500 * S),
            // Two looks at once tell nothing.
            (S + 1000, 1000 * S + 1050),
            (S, 1000 * S),
        ] {
            let next = first.next(device, system);
            assert_eq!(next.faster, 0.0, "{device} {system}");
            assert_eq!(next.system(device + 9), system + 9);
        }
    }

    #[test]
    fn the_loopback_device_has_no_clock() {
        assert!(Stamping::start("lo").expect("an answer").is_none());
        assert!(Stamping::start("no-such-device").expect("an answer").is_none());
    }
}
