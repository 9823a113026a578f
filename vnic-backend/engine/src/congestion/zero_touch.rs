//! Zero touch RoCE: facilities of a reliable sender for networks that lose packets, without flow control and without marks
//! (WinOF-2 Ethernet Network, Zero Touch RoCE; register ROCE_ACCL). Each is on or off by itself.
//!
//! What adapters do behind these names is not published. Here the ACK timer follows the round trips by RFC 6298, the window
//! is a number of packets, and slow restart is that of the window, or of a flow that congestion control limits.

use core::time::Duration;

/// Settings of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroTouch {
    /// Whether the ACK timer follows measured round trips (`AdpRetrans`).
    pub adaptive: bool,
    /// Shortest time of the adaptive timer, unless the queue pair's own timeout is shorter.
    pub floor: Duration,
    /// Longest time of the adaptive timer; none: the queue pair's own timeout, which is never exceeded.
    pub ceiling: Option<Duration>,
    /// Whether the window is limited (`TxWindow`).
    pub limited: bool,
    /// Request packets of a queue pair that may be unacknowledged, if that is limited: 1 to [`WINDOW_MAX`].
    pub window: u32,
    /// Whether a sender begins with a small window or a low rate after a loss (`SlowStart`).
    pub slow_restart: bool,
    /// Whether it does so after an idle time, too (`roce_slow_restart_idle_en`).
    pub slow_restart_idle: bool,
    /// Whether lost packets of WRITEs and READs are sent again one by one, to and from a peer that does so, too
    /// (`RDMA_SELECTIVE_REPEAT_EN`, `selective_repeat_forced_en`).
    pub selective: bool,
    /// Ways that packets of a queue pair's WRITEs take at a time, each with a UDP source port: 1 to 16. More than one needs
    /// `selective` (`roce_multipath_ways`).
    pub multipath: u32,
}

/// Most ways that packets of a queue pair take.
pub const WAYS_MAX: u32 = 16;

/// Most request packets that a queue pair may have unacknowledged: half of what PSNs can order (IBTA 9.7.2).
pub const WINDOW_MAX: u32 = 1 << 22;

impl Default for ZeroTouch {
    fn default() -> Self {
        ZeroTouch {
            adaptive: true,
            floor: Duration::from_millis(4),
            ceiling: None,
            limited: true,
            window: 1024,
            slow_restart: true,
            slow_restart_idle: false,
            selective: false,
            multipath: 1,
        }
    }
}

impl ZeroTouch {
    /// No facility is on.
    pub const OFF: ZeroTouch = ZeroTouch {
        adaptive: false,
        floor: Duration::from_millis(4),
        ceiling: None,
        limited: false,
        window: 1024,
        slow_restart: false,
        slow_restart_idle: false,
        selective: false,
        multipath: 1,
    };

    /// Request packets of a queue pair that may be unacknowledged.
    pub fn most(&self) -> u32 {
        match self.limited {
            true => self.window.clamp(1, WINDOW_MAX),
            false => WINDOW_MAX,
        }
    }

    /// Ways that packets of a queue pair's WRITEs take.
    pub fn ways(&self) -> usize {
        match self.selective {
            true => self.multipath.clamp(1, WAYS_MAX) as usize,
            false => 1,
        }
    }

    /// Time of the adaptive ACK timer. `own`: the queue pair's own timeout in ns; 0, no timer, stays so (IBTA 9.7.6.1.3).
    pub fn timeout(&self, own: u64, trips: &RoundTrips) -> u64 {
        if !self.adaptive {
            return own;
        }
        let most = self.ceiling.map_or(own, |ceiling| nanos(ceiling).max(1).min(own));
        let first = match trips.measured() {
            true => trips.expected().max(nanos(self.floor)),
            // RFC 6298 (2.1) has a time for that; here it is what the program asked for.
            false => most,
        };
        first.saturating_mul(1 << trips.doublings.min(63)).min(most)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Estimate of a sender's round trips (RFC 6298, section 2; times in ns).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// SRTT; 0: nothing was measured.
    smoothed: u32,
    /// RTTVAR.
    variation: u32,
    /// How often the timer was doubled since the last measurement.
    doublings: u8,
}

impl RoundTrips {
    /// A round trip was measured, of a packet that has one answer (Karn: an answer to one that was sent again may be to either).
    pub fn measure(&mut self, trip: Duration) {
        let trip = u32::try_from(trip.as_nanos()).unwrap_or(u32::MAX).max(1);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (trip, trip / 2);
        } else {
            let off = u64::from(self.smoothed.abs_diff(trip));
            // beta is 1/4, alpha 1/8. (Means of 32-bit numbers are 32-bit numbers.)
            self.variation = ((3 * u64::from(self.variation) + off) / 4) as u32;
            self.smoothed = ((7 * u64::from(self.smoothed) + u64::from(trip)) / 8).max(1) as u32;
        }
        self.doublings = 0;
    }

    /// The timer ran out: the next time is twice as long (5.5), until a round trip is measured.
    pub fn back_off(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// Whether anything was measured.
    pub fn measured(&self) -> bool {
        self.smoothed != 0
    }

    /// SRTT + 4 RTTVAR in ns (2.2, 2.3).
    pub fn expected(&self) -> u64 {
        u64::from(self.smoothed) + 4 * u64::from(self.variation)
    }

    /// SRTT, if anything was measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.measured()
            .then(|| Duration::from_nanos(self.smoothed.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 4096 << 14;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn on(floor: u64) -> ZeroTouch {
        ZeroTouch {
            floor: us(floor),
            ..ZeroTouch::default()
        }
    }

    #[test]
    fn round_trips_are_those_of_rfc_6298() {
        let mut trips = RoundTrips::default();
        let settings = on(0);
        assert_eq!((trips.smoothed(), settings.timeout(OWN, &trips)), (None, OWN));
        // First: SRTT = R, RTTVAR = R / 2, RTO = 3 R.
        trips.measure(us(100));
        assert_eq!((trips.smoothed, trips.variation), (100_000, 50_000));
        assert_eq!(settings.timeout(OWN, &trips), 300_000);
        // The next: RTTVAR first, with the old SRTT.
        trips.measure(us(180));
        assert_eq!((trips.smoothed, trips.variation), (110_000, 57_500));
        assert_eq!(settings.timeout(OWN, &trips), 340_000);
        trips.measure(us(110));
        assert_eq!((trips.smoothed, trips.variation), (110_000, 43_125));
        // Steady round trips leave SRTT alone.
        for _ in 0..100 {
            trips.measure(us(110));
        }
        assert_eq!(trips.smoothed, 110_000);
        assert!(settings.timeout(OWN, &trips) < 110_100, "{trips:?}");
    }

    #[test]
    fn the_timer_has_a_floor_and_a_ceiling() {
        let mut trips = RoundTrips::default();
        trips.measure(us(10));
        assert_eq!(on(500).timeout(OWN, &trips), 500_000);
        // The queue pair's own timeout is the most, also below the floor.
        assert_eq!(on(500).timeout(4096 << 3, &trips), 4096 << 3);
        trips.measure(Duration::from_secs(9));
        assert_eq!(on(500).timeout(OWN, &trips), OWN);
        let capped = ZeroTouch {
            ceiling: Some(us(2000)),
            ..on(500)
        };
        assert_eq!(capped.timeout(OWN, &trips), 2_000_000);
        // The ceiling acts before anything was measured.
        assert_eq!(capped.timeout(OWN, &RoundTrips::default()), 2_000_000);
        // No timer stays none, and without the facility only the queue pair's own counts.
        assert_eq!(capped.timeout(0, &trips), 0);
        assert_eq!(ZeroTouch::OFF.timeout(OWN, &trips), OWN);
    }

    #[test]
    fn it_doubles_up_to_the_ceiling_until_something_is_measured() {
        let mut trips = RoundTrips::default();
        trips.measure(us(1000));
        let settings = on(0);
        let times = [(); 7].map(|()| {
            let time = settings.timeout(OWN, &trips);
            trips.back_off();
            time
        });
        let ms = 1_000_000;
        assert_eq!(times, [3 * ms, 6 * ms, 12 * ms, 24 * ms, 48 * ms, OWN, OWN]);
        (0..1000).for_each(|_| trips.back_off());
        assert_eq!(settings.timeout(u64::MAX, &trips), u64::MAX);
        trips.measure(us(1000));
        assert_eq!(settings.timeout(OWN, &trips), 2_500_000);
    }

    #[test]
    fn nothing_overflows() {
        let mut trips = RoundTrips::default();
        trips.measure(Duration::ZERO);
        assert_eq!(trips.expected(), 1);
        for _ in 0..100 {
            trips.measure(Duration::MAX);
        }
        assert!(trips.expected() >= u64::from(u32::MAX) - 10);
    }

    #[test]
    fn the_window_is_the_operators() {
        assert_eq!(ZeroTouch::default().most(), 1024);
        assert_eq!(ZeroTouch::OFF.most(), WINDOW_MAX);
    }
}
