//! The NIC as a transparent clock of PTP (IEEE 1588-2019 clause 10.2): the time from the arrival of an event message to its
//! departure is added to its correctionField. It arrives when a core takes it from a ring, or the kernel from a wire, and departs
//! when it is put into a ring, or given to the device of an uplink.

use std::time::{Duration, SystemTime};

use vnic_engine::counters::CoreCounter;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;
use vnic_wire::ptp::Event;

use super::super::frame::{Metadata, OutFrame, OwnedFrame};
use super::round::Round;
use super::slot::Receivers;

/// A kernel's timestamp that is older does not count: its clock was set meanwhile.
const AGE_MAX: Duration = Duration::from_secs(1);

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

impl Round {
    /// Arrival of frames that come now, if any may have to be timed.
    #[inline]
    pub fn arrival(&self) -> Option<Instant> {
        match self.timed.is_empty() {
            true => None,
            false => Some(self.waiting.clock.now()),
        }
    }

    /// As [`Round::arrival`], of a frame that the kernel has given this time: ns since 1970, 0: none.
    #[inline]
    pub fn arrival_at(&self, stamp: u64) -> Option<Instant> {
        let now = self.arrival()?;
        Some(match stamp {
            0 => now,
            stamp => self.before(now, stamp),
        })
    }

    #[cold]
    fn before(&self, now: Instant, stamp: u64) -> Instant {
        let stamped = SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp);
        let age = SystemTime::now().duration_since(stamped).unwrap_or_default();
        // The clock of a test has nothing to do with the kernel's.
        let counts = age < AGE_MAX && self.waiting.clock.sleeps();
        let age = if counts { nanos(age) } else { 0 };
        Instant(now.0.saturating_sub(age))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the checksum of a frame with this header is there already.
fn is_finished(hdr: &NetHdr) -> bool {
    hdr.flags & NetHdr::NEEDS_CSUM == 0
}

impl Receivers<'_> {
    /// Hands a complete frame that arrived at this time to a receiver: timed, if it is a PTP message of a timed port.
    #[cold]
    pub(super) fn put_timed(
        &mut self,
        arrived: Instant,
        port: PortId,
        f: &OutFrame<'_>,
        meta: &Metadata,
        comment: Option<&str>,
    ) {
        let mut first = [0; HEAD_MAX];
        let n = f.peek(&mut first);
        let concerned = self.round.timed.concern(meta.source, port);
        let Some(event) = Event::find(&first[..n]).filter(|_| concerned) else {
            let meta = Metadata {
                arrived: None,
                ..meta.clone()
            };
            return self.put_on(port, f, &meta, comment);
        };
        let now = self.round.waiting.clock.now();
        let mut whole;
        let head = if f.head.len() > n {
            whole = f.head.to_vec();
            &mut whole[..]
        } else {
            &mut first[..n]
        };
        event.add(head, nanos(now.since(arrived)), is_finished(&f.hdr));
        self.round.counters.add(CoreCounter::PtpTimed as usize, 1);
        let more = head.len() - f.head.len();
        let f = OutFrame {
            head,
            skip: f.skip + more,
            tail: f.tail - more,
            ..*f
        };
        let meta = Metadata {
            arrived: Some(now),
            ..meta.clone()
        };
        self.put_on(port, &f, &meta, comment);
    }
}

impl OwnedFrame {
    /// Adds the time since the frame was timed last, if it was.
    #[cold]
    pub fn time(&mut self, now: Instant) {
        if let (Some(event), Some(before)) = (Event::find(&self.bytes), self.meta.arrived.replace(now)) {
            let finished = is_finished(&self.hdr);
            event.add(&mut self.bytes, nanos(now.since(before)), finished);
        }
    }
}
