//! Sending of a device: turns of queue pairs, time, marking, P_Keys, and rates.

use alloc::sync::Arc;

use vnic_wire::cm::ServiceId;
use vnic_wire::pkey::PkeyTable;
use vnic_wire::time::Instant;

use super::super::congestion::{Congestion, FlowStatus};
use super::super::counters::ReceivedByPriority;
use super::super::limits::in_range;
use super::super::marking::{Marking, policy_port};
use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::observation::{OBSERVER, Tap};
use super::super::pacing::{RATE_MAX_KBPS, RATE_MIN_KBPS};
use super::super::packet::Sink;
use super::super::partition::PkeyViolation;
use super::super::types::{Object, QpNumber, QpType, RateLimit, VerbsError};
use super::Device;
use super::members::FAILURES;

/// Turns in a row without a packet after which a call of `transmit` ends.
const SILENT_TURNS: u32 = 16;

fn check_rate(what: &'static str, kbps: u32) -> Result<(), VerbsError> {
    match kbps {
        0 => Ok(()),
        rate => in_range(what, rate, RATE_MIN_KBPS, RATE_MAX_KBPS),
    }
}

impl Device {
    /// Gives the sink what may be sent now, QP after QP, until there is nothing or the sink is full.
    ///
    /// The sink's `open` bounds a call: it is asked before each packet and each turn, and a full sink costs nothing, however
    /// many QPs wait; nor do closed priorities. QPs of one priority take turns, and so do open priorities. Work that makes no
    /// packets (binding, invalidating, failing) does not fill the sink; after many turns of such work in a row the call ends as
    /// well, and [`wants_transmit`](Device::wants_transmit) says that there may be more.
    pub fn transmit(&mut self, now: Instant, memory: &dyn Memory, sink: &mut dyn Sink) {
        if self.shared.observed.is_some() {
            return self.transmit_observed(now, memory, sink);
        }
        let mut silent = 0;
        self.shared.held = 0;
        if self.shared.notifier.priorities() != 0 {
            let shared = &mut self.shared;
            shared.notifier.send(&mut shared.counters, sink);
            if let Some(gsi) = &mut self.gsi {
                gsi.send(&mut self.shared, now, sink);
            }
        }
        while !self.shared.ready.is_empty() {
            let open = sink.open();
            let Some(number) = self.shared.ready.pop(open) else {
                self.shared.held = self.shared.ready.priorities();
                if open != 0 {
                    self.shared.note_closed(now, open);
                }
                self.shared.marks.hit(match open {
                    0 => Mark::SinkFull,
                    _ => Mark::PriorityClosed,
                });
                break;
            };
            let Some(qp) = self.qps.get_mut(number.0) else {
                continue;
            };
            let turned = qp.transmit(&mut self.shared, now, memory, sink);
            if turned.more {
                self.shared.ready.push(qp.priority(), number);
            }
            silent = if turned.sent { 0 } else { silent + 1 };
            if silent == SILENT_TURNS {
                break;
            }
        }
        // The sink knows what it was given.
        self.shared.regions.take_pieces();
        self.fail_overrun();
    }

    /// As [`transmit`](Device::transmit), with a look at what is sent.
    #[cold]
    #[inline(never)]
    fn transmit_observed(&mut self, now: Instant, memory: &dyn Memory, sink: &mut dyn Sink) {
        let Some(mut observations) = self.shared.observed.take() else {
            return;
        };
        let mut tap = Tap {
            sink,
            observations: &mut observations,
            now,
        };
        self.transmit(now, memory, &mut tap);
        self.shared.observed = Some(observations);
    }

    /// Whether [`transmit`](Device::transmit) may have something.
    pub fn wants_transmit(&self) -> bool {
        !self.shared.ready.is_empty() || self.has_messages()
    }

    /// Whether there are messages that belong to no queue pair: [`transmit`](Device::transmit) sends them first.
    pub fn has_messages(&self) -> bool {
        self.shared.notifier.priorities() != 0
    }

    /// When [`handle_timeout`](Device::handle_timeout) must be called, at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        let shared = &self.shared;
        let first = |a: Option<Instant>, b: Option<Instant>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let queue_pairs = first(shared.timers.next(), shared.paced.next());
        let failures = (!shared.overrun.is_empty()).then_some(shared.now);
        first(first(queue_pairs, failures), shared.notifier.next_timeout())
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeouts(now, usize::MAX);
    }

    /// As [`handle_timeout`](Device::handle_timeout), for at most `most` queue pairs: if there are more,
    /// [`next_timeout`](Device::next_timeout) is still not later than `now`. Returns how many there were.
    pub fn handle_timeouts(&mut self, now: Instant, most: usize) -> usize {
        let mut handled = 0;
        self.shared.now = now;
        self.shared.notifier.handle_timeout(now);
        self.shared.failures = FAILURES;
        for _ in 0..most {
            let Some(number) = self.shared.timers.pop(now) else {
                break;
            };
            handled += 1;
            if let Some(qp) = self.qps.get_mut(number.0) {
                qp.handle_timeout(&mut self.shared, now);
            } else if number == OBSERVER {
                self.shared.with_observed(|all, timers| all.end_old(timers, now));
            } else if let Some(gsi) = &mut self.gsi {
                gsi.handle_timeout(&mut self.shared, now);
            }
        }
        for _ in 0..most {
            let Some(number) = self.shared.paced.pop(now) else {
                break;
            };
            handled += 1;
            if let Some(qp) = self.qps.get_mut(number.0) {
                qp.resume(&mut self.shared);
            }
        }
        self.fail_overrun();
        handled
    }

    /// Rules of marking.
    pub fn marking(&self) -> &Marking {
        &self.shared.marking
    }

    /// Sets whether QPs that are connected from now on all send from UDP port 49152, or each from its own. Datagrams follow at
    /// once.
    pub fn pin_source_port(&mut self, pin: bool) {
        self.shared.pin_source_port = pin;
    }

    /// Changes the rules of marking, for packets of all QPs and address handles: also those that are sent again.
    pub fn set_marking(&mut self, marking: Marking) {
        if self.shared.marking == marking {
            return;
        }
        self.shared.marking = marking;
        self.shared.apart = self.shared.marking.sorts() || self.shared.observed.is_some();
        self.remark();
    }

    /// Sets the P_Keys of the port, under traffic: queue pairs have what is at their index now.
    pub fn set_pkeys(&mut self, table: PkeyTable) {
        if self.shared.partitions.table == table {
            return;
        }
        self.shared.partitions.table = table;
        for (_, qp) in self.qps.iter_mut() {
            qp.look_up_pkey(&self.shared);
        }
    }

    /// The P_Keys of the port.
    pub fn pkeys(&self) -> &PkeyTable {
        &self.shared.partitions.table
    }

    /// Takes the report of packets with a wrong P_Key since the last one, if there were any.
    pub fn take_pkey_violation(&mut self) -> Option<PkeyViolation> {
        self.shared.partitions.violation.take()
    }

    /// Whether there is one.
    pub fn has_pkey_violation(&self) -> bool {
        self.shared.partitions.violation.is_some()
    }

    /// Says which service a queue pair's connection is for, for policies by port, until it is reset.
    pub fn set_service(&mut self, qp: QpNumber, service: ServiceId) -> Result<(), VerbsError> {
        let qp = self.qps.get_mut(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        qp.set_service_port(&mut self.shared, policy_port(service));
        Ok(())
    }

    /// Marks the packets of all QPs and address handles anew.
    fn remark(&mut self) {
        let shared = &mut self.shared;
        for handle in shared.ahs.iter_mut() {
            let reaction = shared.congestion.reaction;
            handle.priority = shared
                .marking
                .apply(&mut handle.path, &handle.address, 0, reaction);
        }
        for (_, qp) in self.qps.iter_mut() {
            qp.remark(&mut self.shared);
        }
    }

    /// Settings of congestion control.
    pub fn congestion(&self) -> &Congestion {
        &self.shared.congestion
    }

    /// Changes the settings of congestion control. QPs that are limited keep their rate, if the algorithm is still on for them.
    pub fn set_congestion(&mut self, congestion: Congestion, now: Instant) {
        let shared = &mut self.shared;
        let before = core::mem::replace(&mut shared.congestion, congestion);
        shared.now = now;
        shared.needs = shared.congestion.control.needs();
        // An idle time is only seen if there is a flow.
        let zero_touch = shared.congestion.zero_touch;
        shared.needs.from_start |= zero_touch.slow_restart_idle;
        let window = core::mem::replace(&mut shared.window, zero_touch.most());
        shared.notifier.set(shared.congestion.point);
        let restart = !Arc::ptr_eq(&before.control, &shared.congestion.control)
            || before.line_rate != shared.congestion.line_rate;
        if before.reaction != shared.congestion.reaction {
            self.remark();
        }
        for (_, qp) in self.qps.iter_mut() {
            qp.adopt_congestion(&mut self.shared, now, restart);
            if before.zero_touch != zero_touch {
                qp.adopt_zero_touch(&mut self.shared, now, window);
            }
        }
    }

    /// QPs that are limited now.
    pub fn flows(&mut self, now: Instant) -> impl Iterator<Item = FlowStatus> + '_ {
        let (all, shared) = (self.qps.iter_mut(), &self.shared);
        all.filter_map(move |(number, qp)| qp.flow_status(shared, QpNumber(number), now))
    }

    /// Priorities of which [`transmit`](Device::transmit) may have something, a bit each.
    #[inline]
    pub fn ready_priorities(&self) -> u8 {
        self.shared.ready.priorities() | self.shared.notifier.priorities()
    }

    /// Priority of a QP's packets; for datagrams: of the next one.
    pub fn qp_priority(&self, qp: QpNumber) -> Option<u8> {
        self.qps.get(qp.0).map(|qp| qp.priority())
    }

    /// Packets that came since the last call, by priority. (The sink counts packets that are sent.)
    pub fn take_received(&mut self) -> ReceivedByPriority {
        core::mem::take(&mut self.shared.received)
    }

    /// Sets the rate of a QP's send queue, in any state; RESET takes it away. Packets under way are not held up.
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

    /// Sets the highest rate of a QP, whatever its user sets, in kbit/s; 0: any. It stays until the QP is destroyed.
    pub fn set_qp_ceiling(&mut self, qp: QpNumber, kbps: u32, now: Instant) -> Result<(), VerbsError> {
        check_rate("rate in kbit/s", kbps)?;
        let found = self.qps.get_mut(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        found.set_ceiling(&mut self.shared, kbps, now);
        Ok(())
    }

    /// QPs with a rate: the one that the user has set, and the highest that the operator allows, in kbit/s.
    pub fn paced_qps(&mut self) -> impl Iterator<Item = (QpNumber, RateLimit, u32)> + '_ {
        let all = self
            .qps
            .iter_mut()
            .map(|(n, qp)| (QpNumber(n), qp.rate(), qp.ceiling()));
        all.filter(|(_, limit, ceiling)| limit.rate > 0 || *ceiling > 0)
    }
}
