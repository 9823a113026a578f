//! When a queue pair may send: its priority, and its rate.

use alloc::boxed::Box;

use vnic_wire::time::Instant;

use super::super::marks::Mark;
use super::super::pacing::Pace;
use super::super::shared::Shared;
use super::super::types::{QpType, RateLimit};
use super::Qp;

impl Qp {
    /// Priority of what it sends; of datagrams: of the next one.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// What it sends has another priority from now on.
    pub(super) fn set_priority(&mut self, shared: &mut Shared, priority: u8) {
        if priority != self.priority {
            if self.scheduled {
                shared.ready.remove(self.priority, self.number);
                shared.ready.push(priority, self.number);
            }
            self.priority = priority;
        }
    }

    /// Packets are marked by other rules from now on.
    pub fn remark(&mut self, shared: &mut Shared) {
        if self.init.qp_type == QpType::Ud {
            self.follow_datagram(shared);
        } else if let (Some(path), Some(address)) = (&mut self.path, &self.attributes.address) {
            let reaction = shared.congestion.reaction;
            let priority = shared.marking.apply(path, address, self.service_port, reaction);
            self.set_priority(shared, priority);
            let now = shared.now;
            self.adopt_congestion(shared, now, false);
        }
    }

    /// Its connection is for this port from now on, or (0) for none, until it is reset.
    pub fn set_service_port(&mut self, shared: &mut Shared, port: u16) {
        if port != self.service_port {
            self.service_port = port;
            self.remark(shared);
        }
    }

    /// Priority of the next datagram: that of its address handle.
    fn datagram_priority(&self, shared: &Shared) -> u8 {
        let next = shared
            .sends
            .get(self.requester.cursor())
            .and_then(|wqe| wqe.wr.ud);
        let handle = next.and_then(|to| shared.ahs.of_datagram(to.ah.0));
        handle.map_or(self.priority, |handle| handle.priority)
    }

    /// It is on the list of its next datagram.
    pub(super) fn follow_datagram(&mut self, shared: &mut Shared) {
        let priority = self.datagram_priority(shared);
        self.set_priority(shared, priority);
    }

    /// In its turn: the next datagram is of another priority, so that this turn is over.
    #[inline(never)]
    pub(super) fn turns_aside(&mut self, shared: &Shared) -> bool {
        let priority = self.datagram_priority(shared);
        core::mem::replace(&mut self.priority, priority) != priority
    }

    /// Does it wait for its rate, or for its priority to open? What it has not asked an acknowledge for may be half of a
    /// message; that none came says nothing then, and sending again would have to wait, too.
    pub(super) fn is_held(&self, shared: &Shared) -> bool {
        let closed = self.scheduled && shared.held >> self.priority & 1 == 1;
        closed || self.pace.as_ref().is_some_and(|pace| pace.entry.is_armed())
    }

    // Pacing.

    /// Rate that its user has set.
    pub fn rate(&self) -> RateLimit {
        self.pace
            .as_ref()
            .map_or(RateLimit::default(), |pace| pace.wanted)
    }

    /// Rate that the operator allows at most, in kbit/s; 0: any.
    pub fn ceiling(&self) -> u32 {
        self.pace.as_ref().map_or(0, |pace| pace.ceiling)
    }

    /// Its user sets its rate.
    pub fn set_rate(&mut self, shared: &mut Shared, wanted: RateLimit, now: Instant) {
        self.change_pace(shared, wanted, self.ceiling(), now);
    }

    /// The operator sets the most that it may have.
    pub fn set_ceiling(&mut self, shared: &mut Shared, ceiling: u32, now: Instant) {
        self.change_pace(shared, self.rate(), ceiling, now);
    }

    fn change_pace(&mut self, shared: &mut Shared, wanted: RateLimit, ceiling: u32, now: Instant) {
        if self.rate() == wanted && self.ceiling() == ceiling {
            return;
        }
        let flow = self.flow().is_some();
        if wanted.rate == 0 && ceiling == 0 && !flow {
            self.end_pace(shared);
        } else {
            let pace = self.pace.get_or_insert_with(|| Box::new(Pace::new(now)));
            pace.change(now, wanted, ceiling);
            shared.paced.disarm(&mut pace.entry);
        }
        // Whoever waited looks again.
        self.schedule(shared);
    }

    /// It has no rate any more.
    pub(super) fn end_pace(&mut self, shared: &mut Shared) {
        if let Some(mut pace) = self.pace.take() {
            shared.paced.disarm(&mut pace.entry);
            shared.counters.rp_flows_ended += u64::from(pace.flow.is_some());
        }
    }

    /// Its time among those over their rate is over.
    pub fn resume(&mut self, shared: &mut Shared) {
        if let Some(pace) = &mut self.pace {
            pace.entry.fired();
        }
        self.schedule(shared);
    }

    /// Must it wait because of its rate? Then it is called again.
    #[inline]
    pub(super) fn must_wait(&mut self, shared: &mut Shared, now: Instant) -> bool {
        self.pace.is_some() && self.is_over_its_rate(shared, now)
    }

    #[cold]
    #[inline(never)]
    fn is_over_its_rate(&mut self, shared: &mut Shared, now: Instant) -> bool {
        let Some(pace) = &mut self.pace else { return false };
        pace.sent_before = shared.counters.bytes_sent();
        let at = if pace.rate() > 0 { pace.waits(now) } else { None };
        if pace.flow.is_some() {
            return self.flow_waits(shared, now, at);
        }
        let Some(at) = at else { return false };
        shared.marks.hit(Mark::Paced);
        shared.paced.arm(&mut pace.entry, self.number, at);
        true
    }

    /// A request packet of a queue pair with a rate was sent.
    #[cold]
    #[inline(never)]
    pub(super) fn charge(&mut self, shared: &Shared, now: Instant) {
        let Some(pace) = &mut self.pace else { return };
        let bytes = shared.counters.bytes_sent() - pace.sent_before;
        if pace.rate() > 0 {
            pace.sent(bytes);
        }
        if let Some(flow) = &mut pace.flow {
            flow.sent(now, pace.payload, bytes);
        }
    }
}
