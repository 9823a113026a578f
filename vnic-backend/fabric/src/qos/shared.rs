//! The memory that all ports of a switch share, counted by the port that a packet came by and its priority: a packet that
//! does not fit is dropped, and a port that has too much is told to wait (IEEE 802.1Q clause 36; DCQCN, SIGCOMM 2015, section
//! 4).
//!
//! ```text
//!  bytes of (port, priority)
//!      XOFF ─────────────── static: so many; dynamic: factor · (size - reserve - all bytes)
//!      XON  ───────────────  `xon_offset` lower
//! ```
//!
//! The reserve is for packets that still come after everybody was told to wait. [`Buffers`](super::Buffers) is the memory of
//! one adapter.

use alloc::vec::Vec;

use super::PRIORITIES;

/// When a port and priority is told to wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Never.
    Off,
    /// Above so many bytes.
    Static(u64),
    /// Above this part of the free memory: the more ports wait, the less each may hold.
    Dynamic(f64),
}

/// Memory of a switch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedSettings {
    /// Bytes of all packets.
    pub size: u64,
    /// Bytes that a dynamic threshold leaves alone: for packets under way from ports that were told to wait.
    pub reserve: u64,
    /// When a port and priority is told to wait.
    pub threshold: Threshold,
    /// Bytes below the threshold at which the port and priority may go on.
    pub xon_offset: u64,
}

/// The packet does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Packets that came by one port.
#[derive(Debug, Clone, Copy)]
struct Ingress {
    bytes: [u64; PRIORITIES],
    /// Priorities that are told to wait, a bit each.
    xoff: u8,
    /// Factor of a dynamic threshold.
    weight: f64,
}

/// Memory that all ports of a switch share.
#[derive(Debug, Clone)]
pub struct SharedBuffer {
    settings: SharedSettings,
    used: u64,
    most: u64,
    ports: Vec<Ingress>,
}

impl SharedBuffer {
    /// Empty memory of a switch with `ports` ports.
    pub fn new(settings: SharedSettings, ports: usize) -> SharedBuffer {
        SharedBuffer {
            settings,
            used: 0,
            most: 0,
            ports: alloc::vec![Ingress { bytes: [0; PRIORITIES], xoff: 0, weight: 1.0 }; ports],
        }
    }

    /// Multiplies a port's dynamic threshold: a faster link may hold more than a slower one.
    pub fn set_weight(&mut self, port: usize, weight: f64) {
        if let Some(ingress) = self.ports.get_mut(port) {
            ingress.weight = weight;
        }
    }

    /// Bytes above which a port of weight 1 and a priority is told to wait now; `None`: never.
    #[inline]
    pub fn threshold(&self) -> Option<u64> {
        self.weighted(1.0)
    }

    #[inline]
    fn weighted(&self, weight: f64) -> Option<u64> {
        match self.settings.threshold {
            Threshold::Off => None,
            Threshold::Static(bytes) => Some(bytes),
            Threshold::Dynamic(factor) => {
                let free = self
                    .settings
                    .size
                    .saturating_sub(self.settings.reserve)
                    .saturating_sub(self.used);
                Some((factor * weight * free as f64) as u64)
            }
        }
    }

    /// Admits a packet that came by a port (one that there is). True: priorities that the port is told to stop have changed.
    #[inline]
    pub fn admit(&mut self, port: usize, priority: u8, bytes: u32) -> Result<bool, Full> {
        let bytes = u64::from(bytes);
        if self.used + bytes > self.settings.size {
            return Err(Full);
        }
        self.used += bytes;
        self.most = self.most.max(self.used);
        let threshold = self.weighted(self.ports.get(port).map_or(1.0, |i| i.weight));
        let (p, bit) = (usize::from(priority & 7), 1 << (priority & 7));
        let Some(ingress) = self.ports.get_mut(port) else {
            return Ok(false);
        };
        ingress.bytes[p] += bytes;
        let stops = threshold.is_some_and(|most| ingress.bytes[p] > most) && ingress.xoff & bit == 0;
        if stops {
            ingress.xoff |= bit;
        }
        Ok(stops)
    }

    /// Releases a packet that has left. True: priorities that the port is told to stop have changed.
    #[inline]
    pub fn release(&mut self, port: usize, priority: u8, bytes: u32) -> bool {
        let bytes = u64::from(bytes);
        self.used = self.used.saturating_sub(bytes);
        let (p, bit) = (usize::from(priority & 7), 1 << (priority & 7));
        let Some(ingress) = self.ports.get_mut(port) else {
            return false;
        };
        ingress.bytes[p] = ingress.bytes[p].saturating_sub(bytes);
        if ingress.xoff & bit == 0 {
            return false;
        }
        let (waits, weight) = (ingress.bytes[p], ingress.weight);
        let threshold = self.weighted(weight).unwrap_or(u64::MAX);
        // With nothing left there is nothing to wait for, however full the memory is.
        let goes = waits == 0 || waits.saturating_add(self.settings.xon_offset) <= threshold;
        if goes {
            self.ports[port].xoff &= !bit;
        }
        goes
    }

    /// Priorities that the peer of a port is told to stop, a bit each.
    #[inline]
    pub fn stops(&self, port: usize) -> u8 {
        self.ports.get(port).map_or(0, |p| p.xoff)
    }

    /// Bytes that came by a port with a priority.
    pub fn held(&self, port: usize, priority: u8) -> u64 {
        self.ports
            .get(port)
            .map_or(0, |p| p.bytes[usize::from(priority & 7)])
    }

    /// Bytes of all packets.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Most bytes that there ever were.
    pub fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(threshold: Threshold) -> SharedBuffer {
        SharedBuffer::new(
            SharedSettings {
                size: 100_000,
                reserve: 10_000,
                threshold,
                xon_offset: 2_000,
            },
            4,
        )
    }

    #[test]
    fn a_static_threshold_stops_one_port_and_priority() {
        let mut b = buffer(Threshold::Static(10_000));
        for _ in 0..10 {
            assert_eq!(b.admit(1, 3, 1_000), Ok(false));
        }
        assert_eq!(
            (b.admit(1, 4, 1_000), b.admit(2, 3, 1_000)),
            (Ok(false), Ok(false))
        );
        assert_eq!((b.admit(1, 3, 1_000), b.stops(1), b.stops(2)), (Ok(true), 8, 0));
        // Told once.
        assert_eq!(b.admit(1, 3, 1_000), Ok(false));
        let told: Vec<bool> = (0..5).map(|_| b.release(1, 3, 1_000)).collect();
        assert_eq!(told, [false, false, false, true, false]);
        assert_eq!((b.stops(1), b.held(1, 3), b.used()), (0, 7_000, 9_000));
    }

    #[test]
    fn a_dynamic_threshold_shrinks_as_the_memory_fills() {
        let mut b = buffer(Threshold::Dynamic(0.5));
        assert_eq!(b.threshold(), Some(45_000));
        // u > (90000 - u) / 2 at 30000.
        let first = (0..).find(|_| b.admit(0, 0, 1_000) == Ok(true));
        assert_eq!((first, b.used()), (Some(30), 31_000));
        // Another port has the same threshold, with less free: u > (59000 - u) / 2.
        let second = (0..).find(|_| b.admit(1, 0, 1_000) == Ok(true));
        assert_eq!(second, Some(19));
        // The first one goes on when it is 2000 below what is half of the rest.
        let back = (0..).find(|_| b.release(0, 0, 1_000));
        let (waits, limit) = (b.held(0, 0), b.threshold().unwrap_or(0));
        assert!(
            waits + 2_000 <= limit && waits + 1_000 + 2_000 > limit - 500,
            "{back:?} {waits} {limit}"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_and_not_counted() {
        let mut b = buffer(Threshold::Off);
        assert_eq!(b.admit(0, 0, 99_000), Ok(false));
        assert_eq!((b.admit(1, 0, 1_001), b.used()), (Err(Full), 99_000));
        assert_eq!((b.admit(1, 0, 1_000), b.most()), (Ok(false), 100_000));
        assert!(!b.release(0, 0, 99_000) && !b.release(1, 0, 1_000));
        assert_eq!((b.used(), b.most(), b.stops(0)), (0, 100_000, 0));
    }

    #[test]
    fn a_port_with_nothing_left_goes_on_in_a_full_memory() {
        let mut b = buffer(Threshold::Dynamic(1.0));
        assert_eq!(b.admit(0, 0, 80_000), Ok(true));
        assert_eq!(b.admit(1, 0, 15_000), Ok(true));
        assert_eq!(b.threshold(), Some(0));
        assert!(b.release(1, 0, 15_000));
    }

    #[test]
    fn a_port_of_more_weight_holds_more() {
        let mut b = buffer(Threshold::Dynamic(0.1));
        b.set_weight(1, 4.0);
        b.set_weight(99, 4.0);
        let mut until_told = |port: usize| (0..90).find(|_| b.admit(port, 0, 1_000) == Ok(true));
        // 0.1 of 90 000 - 8 000 - ...: above 8 181 bytes; then 0.4 of what is left: above 23 142.
        assert_eq!((until_told(0), until_told(1)), (Some(8), Some(23)));
        assert_eq!((b.held(0, 0), b.held(1, 0)), (9_000, 24_000));
        // It goes on by its own threshold, too: 21 000 + 2 000 are within 0.4 of 60 000.
        let goes = (0..24).find(|_| b.release(1, 0, 1_000));
        assert_eq!((goes, b.held(1, 0)), (Some(2), 21_000));
    }
}
