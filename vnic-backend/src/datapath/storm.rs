//! Storm control of an uplink: a limit of the frames that it takes from its wire for all ports of their VLAN.

use std::time::Duration;

use vnic_fabric::Instant;
use vnic_fabric::qos::Bucket;
use vnic_wire::ethernet::MacAddr;

use crate::StormControl;

/// Frames of so much time pass together after silence, and one in any case.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The limits of one uplink.
#[derive(Debug)]
pub struct Storm {
    broadcast: Bucket,
    unknown_unicast: Bucket,
}

impl Storm {
    /// The limits, with all the credit that they gather.
    pub fn new(limits: StormControl) -> Storm {
        // A bucket counts bits and is charged with bytes: a frame is one byte here.
        let bucket = |pps: Option<u32>| Bucket::new(pps.map_or(0, |pps| u64::from(pps) * 8), AT_ONCE);
        Storm {
            broadcast: bucket(limits.broadcast_pps),
            unknown_unicast: bucket(limits.unknown_unicast_pps),
        }
    }

    /// Whether a frame that the switch floods may pass, which is charged then. Multicast always may.
    #[inline]
    pub fn allows(&mut self, now: Instant, head: &[u8]) -> bool {
        let bucket = match head.first_chunk::<6>() {
            Some(&[first, ..]) if first & 1 == 0 => &mut self.unknown_unicast,
            Some(destination) if *destination == MacAddr::BROADCAST.0 => &mut self.broadcast,
            _ => return true,
        };
        let open = bucket.is_open(now);
        if open {
            bucket.charge(now, 1);
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROADCAST: [u8; 6] = [0xff; 6];
    const UNICAST: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const MULTICAST: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

    /// Frames of `us` microseconds, one each, from `from` on, that pass.
    fn passed(storm: &mut Storm, from: u64, us: u64, head: &[u8]) -> usize {
        let times = from..from + us;
        times.filter(|us| storm.allows(Instant(us * 1000), head)).count()
    }

    #[test]
    fn each_kind_has_its_own_rate() {
        let mut storm = Storm::new(StormControl {
            broadcast_pps: Some(1000),
            unknown_unicast_pps: Some(50),
        });
        let second = 1_000_000;
        // What 100 ms of silence gather, and a second's frames.
        assert_eq!(passed(&mut storm, second, second, &BROADCAST), 1100);
        assert_eq!(passed(&mut storm, 2 * second, second, &BROADCAST), 1000);
        assert_eq!(passed(&mut storm, 2 * second, second, &UNICAST), 55);
        assert_eq!(passed(&mut storm, 2 * second, second, &MULTICAST), 1_000_000);
    }

    #[test]
    fn the_least_rate_lets_one_frame_pass_and_no_rate_all() {
        let mut storm = Storm::new(StormControl {
            broadcast_pps: Some(1),
            unknown_unicast_pps: None,
        });
        assert_eq!(passed(&mut storm, 5_000_000, 1000, &BROADCAST), 1);
        assert_eq!(passed(&mut storm, 5_000_000, 1000, &UNICAST), 1000);
        assert_eq!(passed(&mut storm, 6_000_001, 1000, &BROADCAST), 1);
    }
}
