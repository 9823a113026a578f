//! The NIC as a transparent clock of PTP (IEEE 1588-2019 clause 10.2): the time from the arrival of an event message to its
//! departure is added to its correctionField. It arrives when a core takes it from a ring, or the kernel from a wire, and departs
//! when it is put into a ring, or given to the device of an uplink.

use std::time::{Duration, SystemTime};

use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;
use vnic_wire::ptp::Event;

use super::super::clock::Clock;
use super::super::frame::{Arrival, OutFrame, OwnedFrame};

/// A timestamp that is older does not count: the system's clock was set meanwhile.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Ports whose PTP messages are timed.
#[derive(Default)]
pub struct Timed(Vec<PortId>);

impl Timed {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether messages between these ports are timed.
    pub fn concern(&self, from: PortId, to: PortId) -> bool {
        self.0.contains(&from) || self.0.contains(&to)
    }

    /// Adds or removes a port.
    pub fn set(&mut self, port: PortId, timed: bool) {
        self.0.retain(|p| *p != port);
        if timed {
            self.0.push(port);
        }
    }
}

/// The instant, by a core's clock, at which a frame that a core takes now came to the kernel or to hardware: `stamp` is that in ns since
/// 1970.
#[cold]
pub fn instant_of(clock: &Clock, stamp: u64) -> Instant {
    let now = clock.now();
    let stamped = SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp);
    let age = SystemTime::now().duration_since(stamped).unwrap_or_default();
    // The clock of a test has nothing to do with the kernel's.
    let counts = age < AGE_MAX && clock.sleeps();
    let age = if counts { nanos(age) } else { 0 };
    Instant(now.0.saturating_sub(age))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the checksum of a frame with this header is there already.
fn is_finished(hdr: &NetHdr) -> bool {
    hdr.flags & NetHdr::NEEDS_CSUM == 0
}

/// Calls `give` with a frame that was held for this time: with the time in it, if it is an event message. False: it is none.
pub fn timed(f: &OutFrame<'_>, held: Duration, give: impl FnOnce(&OutFrame<'_>)) -> bool {
    let mut first = [0; HEAD_MAX];
    let n = f.peek(&mut first);
    let Some(event) = Event::find(&first[..n]) else {
        return false;
    };
    let mut whole;
    let head = if f.head.len() > n {
        whole = f.head.to_vec();
        &mut whole[..]
    } else {
        &mut first[..n]
    };
    event.add(head, nanos(held), is_finished(&f.hdr));
    let more = head.len() - f.head.len();
    give(&OutFrame {
        head,
        skip: f.skip + more,
        tail: f.tail - more,
        ..*f
    });
    true
}

impl OwnedFrame {
    /// Adds the time since the frame was timed last, if it was.
    #[cold]
    pub fn time(&mut self, now: Instant) {
        if let (Some(event), Arrival::Timed(before)) = (Event::find(&self.bytes), self.meta.arrived) {
            self.meta.arrived = Arrival::Timed(now);
            let finished = is_finished(&self.hdr);
            event.add(&mut self.bytes, nanos(now.since(before)), finished);
        }
    }
}
