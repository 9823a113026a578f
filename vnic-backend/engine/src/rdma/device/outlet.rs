//! How packets are marked, which priorities have something to send, and the rates of queue pairs.

use vnic_wire::time::Instant;

use super::super::counters::ReceivedByPriority;
use super::super::limits::in_range;
use super::super::marking::Marking;
use super::super::pacing::{RATE_MAX_KBPS, RATE_MIN_KBPS};
use super::super::types::{Object, QpNumber, QpType, RateLimit, VerbsError};
use super::Device;

fn check_rate(what: &'static str, kbps: u32) -> Result<(), VerbsError> {
    match kbps {
        0 => Ok(()),
        rate => in_range(what, rate, RATE_MIN_KBPS, RATE_MAX_KBPS),
    }
}

impl Device {
    /// How packets are marked now.
    pub fn marking(&self) -> &Marking {
        &self.shared.marking
    }

    /// Packets are marked so from now on, those of all QPs and address handles: also what is sent again.
    pub fn set_marking(&mut self, marking: Marking) {
        if self.shared.marking == marking {
            return;
        }
        let shared = &mut self.shared;
        shared.marking = marking;
        shared.sorted = shared.marking.sorts();
        for (_, handle) in shared.ahs.iter_mut() {
            handle.priority = shared.marking.apply(&mut handle.path, &handle.address);
        }
        for (_, qp) in self.qps.iter_mut() {
            qp.remark(&mut self.shared);
        }
    }

    /// Priorities of which [`transmit`](Device::transmit) may have something, a bit each.
    #[inline]
    pub fn ready_priorities(&self) -> u8 {
        self.shared.ready.priorities()
    }

    /// Priority of what a QP sends; of datagrams: of the next one.
    pub fn qp_priority(&self, qp: QpNumber) -> Option<u8> {
        self.qps.get(qp.0).map(|qp| qp.priority())
    }

    /// Packets that came since this was last asked, by priority. (What is sent is the sink's to count.)
    pub fn take_received(&mut self) -> ReceivedByPriority {
        core::mem::take(&mut self.shared.received)
    }

    /// Sets the rate of a QP's send queue, in any state; RESET takes it away. What is under way is not held up.
    pub fn set_qp_rate(&mut self, qp: QpNumber, limit: RateLimit, now: Instant) -> Result<(), VerbsError> {
        let found = self.qps.get_mut(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        if found.init.qp_type == QpType::XrcTarget {
            return Err(VerbsError::Invalid("an XRC target has no send queue"));
        }
        check_rate("rate in kbit/s", limit.rate)?;
        if limit.rate == 0 && limit != RateLimit::default() {
            return Err(VerbsError::Invalid("a burst or a packet size without a rate"));
        }
        found.set_rate(&mut self.shared, limit, now);
        Ok(())
    }

    /// Rate of a QP's send queue, as its user has set it.
    pub fn qp_rate(&self, qp: QpNumber) -> Result<RateLimit, VerbsError> {
        let found = self.qps.get(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        Ok(found.rate())
    }

    /// Rate that a QP may have at most, whatever its user sets, in kbit/s; 0: any. It stays until the QP is destroyed.
    pub fn set_qp_ceiling(&mut self, qp: QpNumber, kbps: u32, now: Instant) -> Result<(), VerbsError> {
        check_rate("rate in kbit/s", kbps)?;
        let found = self.qps.get_mut(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        found.set_ceiling(&mut self.shared, kbps, now);
        Ok(())
    }

    /// QPs with a rate: what its user has set, and what it may have at most in kbit/s.
    pub fn paced_qps(&mut self) -> impl Iterator<Item = (QpNumber, RateLimit, u32)> + '_ {
        let all = self
            .qps
            .iter_mut()
            .map(|(n, qp)| (QpNumber(n), qp.rate(), qp.ceiling()));
        all.filter(|(_, limit, ceiling)| limit.rate > 0 || *ceiling > 0)
    }
}
