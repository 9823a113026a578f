//! Congestion control of a queue pair (reaction point): when it has a [`Flow`], and what that hears.
//!
//! The flow is part of the pacing of the queue pair, so one without a limit of any kind pays for neither. It is made at the
//! first notification or loss, or when the queue pair becomes ready, as its algorithm needs; it is gone when the algorithm
//! has released it, when the priority does not react any more, and in RESET and ERR.
//!
//! ```text
//!  send_packet ─▶ asks, sent ──▶ ┌──────┐
//!  ACK, READ response ─▶ heard ─▶│ Flow │─▶ must_wait: rate, window
//!  NAK, timeout ─▶ lost ────────▶└──────┘
//!  CNP, BECN ─▶ notified ───────────▲
//! ```
//!
//! Requests obey both limits. READ responses have no acknowledge, so that their sender, the responder, hears of them by notifications
//! only, and obeys the rate. An algorithm that hears acknowledges limits them where they are asked for: the requester's flow counts
//! what a READ asks for as sent, and responses as its acknowledge. Their delay is that of the first one.

use alloc::boxed::Box;
use core::time::Duration;

use vnic_wire::bth;
use vnic_wire::int::Sign;
use vnic_wire::opcode::{Opcode, Operation};
use vnic_wire::psn::Psn;
use vnic_wire::roce::Network;
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};

use crate::congestion::{Loss, Notification, Start, UNLIMITED};

use super::super::congestion::FlowStatus;
use super::super::flow::{Answer, Flow};
use super::super::marks::Mark;
use super::super::pacing::{OVERHEAD, Pace};
use super::super::packet::Incoming;
use super::super::shared::Shared;
use super::super::types::{QpNumber, QpState, QpType};
use super::requester::{Stage, WINDOW_RESTART};
use super::{Qp, dynamic};

/// Speed of a port that does not say its own, in bit/s.
const LINE_RATE: u64 = 100_000_000_000;
/// A flow that sent nothing for so long is idle. (Our model: what the adapters take is not published.)
const IDLE: Duration = Duration::from_millis(1);
/// A loss so soon after a notification adds nothing to it: a responder sends both for one gap.
const ONE_CAUSE: Duration = Duration::from_micros(50);

/// Usual hop limits of new packets.
const HOP_LIMITS: [u8; 3] = [64, 128, 255];

/// Switches on the way of a packet with this hop limit. `own`: the hop limit that this side begins with.
fn hops(limit: u8, own: u8) -> u8 {
    let starts = core::iter::once(own).chain(HOP_LIMITS);
    let start = starts.filter(|start| *start >= limit).min();
    start.map_or(0, |start| start - limit)
}

impl Qp {
    /// Its flow, if it has one.
    #[inline]
    pub(super) fn flow(&self) -> Option<&Flow> {
        self.pace.as_ref()?.flow.as_ref()
    }

    fn flow_mut(&mut self) -> Option<&mut Flow> {
        self.pace.as_mut()?.flow.as_mut()
    }

    /// Do senders of its priority react?
    pub(super) fn reacts(&self, shared: &Shared) -> bool {
        // (Nobody tells a raw packet QP of congestion.)
        shared.congestion.reaction >> (self.priority & 7) & 1 == 1 && self.init.qp_type != QpType::RawPacket
    }

    /// When its priority was last seen closed.
    fn closed(&self, shared: &Shared) -> Option<Instant> {
        shared.closed[usize::from(self.priority & 7)]
    }

    /// Can it have a flow? It sends requests, or data that it is asked for.
    fn flows(&self) -> bool {
        let may = self.permissions();
        may.drain || may.respond
    }

    /// What a flow of its begins with.
    fn start(&self, shared: &Shared, rate: Option<u64>) -> Start {
        let datagrams = self.init.qp_type == QpType::Ud;
        let mtu = match datagrams {
            true => shared.mtu.bytes(),
            false => self.attributes.path_mtu.bytes(),
        };
        let opcode = Opcode::new(self.transport(), Operation::SendMiddle);
        let carries = shared.needs.telemetry && shared.trailers;
        let headers = Headers {
            bth: bth::Header {
                telemetry: if carries { Sign::Carried } else { Sign::None },
                ..bth::Header::new(opcode, 0, Psn::new(0))
            },
            xrceth: None,
            dceth: None,
            extended: Extended::None,
        };
        // (A datagram's way is not known yet; IPv4 is the usual one.)
        let frame = match &self.path {
            Some(path) => path.frame_len(&headers, mtu as usize),
            None => 14 + 20 + 8 + headers.len() + vnic_wire::deth::HEADER_LEN + mtu as usize + 4,
        };
        Start {
            line_rate: match shared.congestion.line_rate {
                0 => LINE_RATE,
                rate => rate,
            },
            mtu,
            wire: frame as u32 + OVERHEAD as u32,
            rate,
        }
    }

    /// Makes its flow, if it has none.
    fn ensure_flow(&mut self, shared: &mut Shared, now: Instant) -> &mut Flow {
        let (start, psn) = (self.start(shared, None), self.requester.end);
        let pace = self.pace.get_or_insert_with(|| Box::new(Pace::new(now)));
        pace.flow.get_or_insert_with(|| {
            shared.counters.rp_flows_started += 1;
            let congestion = &shared.congestion;
            let algorithm = congestion.control.start(now, &start);
            let needs = shared.needs;
            Flow::new(algorithm, needs, now, congestion.slack, psn, &start)
        })
    }

    /// It is ready to send: some algorithms begin with that.
    pub(super) fn begin_flow(&mut self, shared: &mut Shared, now: Instant) {
        let sends = self.state() == QpState::Rts && self.init.qp_type != QpType::XrcTarget;
        let reacts = match self.init.qp_type {
            // The priority is that of the datagram.
            QpType::Ud => shared.congestion.reaction != 0,
            _ => self.reacts(shared),
        };
        if sends && reacts && shared.needs.from_start {
            self.ensure_flow(shared, now);
        }
    }

    /// It has no flow any more.
    pub(super) fn end_flow(&mut self, shared: &mut Shared) {
        let Some(pace) = &mut self.pace else { return };
        if pace.flow.take().is_some() {
            shared.counters.rp_flows_ended += 1;
            if pace.rate() == 0 {
                self.end_pace(shared);
            } else {
                shared.paced.disarm(&mut pace.entry);
            }
            // Whoever waited looks again.
            self.schedule(shared);
        }
    }

    /// The device's congestion control has changed. `restart`: its algorithm or parameters have.
    pub fn adopt_congestion(&mut self, shared: &mut Shared, now: Instant, restart: bool) {
        let keeps = match self.init.qp_type {
            QpType::Ud => shared.congestion.reaction != 0,
            _ => self.reacts(shared),
        };
        if !keeps {
            return self.end_flow(shared);
        }
        let slack = shared.congestion.slack;
        let Some(flow) = self.flow_mut() else {
            return self.begin_flow(shared, now);
        };
        flow.set_slack(slack);
        if restart {
            let rate = Some(flow.limits().rate).filter(|rate| *rate != UNLIMITED);
            let algorithm = {
                let start = self.start(shared, rate);
                shared.congestion.control.start(now, &start)
            };
            let needs = shared.needs;
            if let Some(flow) = self.flow_mut() {
                flow.adopt(algorithm, needs, now, slack);
            }
        }
        if self.flow().is_some_and(Flow::is_released) {
            self.end_flow(shared);
        }
        self.look_again(shared, now);
    }

    /// Its limits may have risen while it waits for its rate.
    fn look_again(&mut self, shared: &mut Shared, now: Instant) {
        let Some(pace) = &mut self.pace else { return };
        if !pace.entry.is_armed() {
            return;
        }
        match pace.waits_for(now) {
            Some(at) => shared.paced.arm(&mut pace.entry, self.number, at),
            None => {
                shared.paced.disarm(&mut pace.entry);
                self.schedule(shared);
            }
        }
    }

    /// A congestion notification packet came.
    pub fn receive_notification(&mut self, shared: &mut Shared, now: Instant, packet: &Incoming<'_>) {
        if !self.takes(packet.headers.bth.pkey) {
            return shared.wrong_partition(self.pkey, packet);
        }
        shared.marks.hit(Mark::CnpReceived);
        let period = match packet.headers.extended {
            Extended::Cnp(cnp) if cnp.period > 0 => Some(Duration::from_micros(cnp.period.into())),
            _ => None,
        };
        // Nobody slows a connection down but the peer, and datagrams but those to whom they go.
        let known = match self.init.qp_type {
            QpType::Ud => shared.ahs.lead_to(&packet.path),
            _ => self.is_peers(&packet.path),
        };
        if known && self.notify(shared, now, &Notification { period }) {
            shared.counters.rp_cnp_handled += 1;
            if let Some(flow) = self.flow_mut() {
                flow.notified = Some(now);
            }
        } else {
            shared.counters.rp_cnp_ignored += 1;
        }
    }

    /// Tells its flow to slow down. No: nobody listens.
    fn notify(&mut self, shared: &mut Shared, now: Instant, cnp: &Notification) -> bool {
        if !self.reacts(shared) || !self.flows() {
            return false;
        }
        let start = self.start(shared, None);
        let flow = self.ensure_flow(shared, now);
        if flow.is_done() {
            // It was kept though its limiter was released: a new one begins.
            let algorithm = shared.congestion.control.start(now, &start);
            flow.adopt(algorithm, shared.needs, now, shared.congestion.slack);
        }
        flow.notify(now, cnp);
        if flow.is_released() {
            // An algorithm that limits nothing, or parameters that do not.
            self.end_flow(shared);
            return false;
        }
        self.look_again(shared, now);
        true
    }

    /// Something was acknowledged.
    #[cold]
    #[inline(never)]
    pub(super) fn heard(&mut self, shared: &mut Shared, now: Instant, packet: &Incoming<'_>) {
        let bth = &packet.headers.bth;
        self.requester.trips.selective = bth.selective;
        self.measured(shared, now);
        let oldest = self.requester.oldest;
        if bth.becn {
            self.notify(shared, now, &Notification::default());
        }
        let own = self.path.as_ref().map_or(0, |path| path.network.hop_limit());
        let closed = self.closed(shared);
        let Some(flow) = self.flow_mut() else { return };
        let exact = bth.opcode.operation() == Some(Operation::Acknowledge) && bth.psn.next() == oldest;
        let answer = Answer {
            exact,
            hops: hops(packet.path.network.hop_limit(), own),
            marked: bth.fecn || bth.becn,
            telemetry: packet.telemetry,
            sign: bth.telemetry,
        };
        flow.acknowledged(now, oldest, &answer);
        flow.advance(now, closed);
        self.look_again(shared, now);
    }

    /// Something was lost, and is sent again.
    pub(super) fn lost(&mut self, shared: &mut Shared, now: Instant, loss: Loss) {
        let slow = shared.congestion.zero_touch.slow_restart;
        if shared.congestion.reaction == 0 || !self.reacts(shared) {
            // (A receiver that is not ready is no loss of the network.)
            if slow && loss != Loss::NotReady {
                self.restart_window(shared);
            }
            return;
        }
        let closed = self.closed(shared);
        if self.flow().is_none() && !shared.needs.loss && !slow {
            return;
        }
        self.ensure_flow(shared, now).lost(now, loss);
        if slow {
            if !self.slow_restart(shared, now) && loss != Loss::NotReady {
                self.restart_window(shared);
            }
        } else if let Some(flow) = self.flow_mut() {
            flow.advance(now, closed);
            if flow.is_released() {
                self.end_flow(shared);
            }
        }
        self.look_again(shared, now);
    }

    /// It restarts with a small window (`roce_slow_restart_en`), where no flow limits its rate.
    fn restart_window(&mut self, shared: &mut Shared) {
        if !self.init.qp_type.reliable() {
            return;
        }
        shared.marks.hit(Mark::SlowRestarted);
        let requester = &mut self.requester;
        let restarting = requester.trips.restarting;
        shared.counters.roce_slow_restart += 1;
        let new = restarting.is_none_or(|end| !requester.oldest.before(end));
        shared.counters.roce_slow_restart_trans += u64::from(new);
        requester.trips.restarting = Some(requester.end);
        requester.window = WINDOW_RESTART.min(shared.window);
    }

    /// The first packet since everything was acknowledged is out: behind it, the window is small after an idle time. (A flow
    /// that is limited restarts at its next look.)
    #[inline(never)]
    pub(super) fn was_quiet(&mut self, shared: &mut Shared, now: Instant) {
        if now.since(self.requester.since) > IDLE && !(self.flow().is_some() && self.reacts(shared)) {
            shared.marks.hit(Mark::IdleRestarted);
            self.restart_window(shared);
        }
    }

    /// It slows down by itself, as if it had been notified (`roce_slow_restart_en`). What the adapters do is published by
    /// name only (NVIDIA, How-to Enable/Disable Lossy RoCE Accelerations); the sender counts it as a handled notification.
    /// No: no flow limits it.
    fn slow_restart(&mut self, shared: &mut Shared, now: Instant) -> bool {
        let told = self.flow().and_then(|flow| flow.notified);
        if told.is_some_and(|at| now.since(at) < ONE_CAUSE) {
            return true;
        }
        let restarting = self.flow().is_some_and(|flow| flow.restarting.is_some());
        if !self.notify(shared, now, &Notification::default()) {
            return false;
        }
        let end = self.requester.end;
        if let Some(flow) = self.flow_mut() {
            flow.restarting = Some(end);
        }
        let counters = &mut shared.counters;
        counters.rp_cnp_handled += 1;
        counters.roce_slow_restart += 1;
        counters.roce_slow_restart_cnps += 1;
        counters.roce_slow_restart_trans += u64::from(!restarting);
        true
    }

    /// Must the next request wait, because of the flow's rate or window? `at`: as long as it waits in any case.
    pub(super) fn flow_waits(&mut self, shared: &mut Shared, now: Instant, at: Option<Instant>) -> bool {
        let idle = shared.congestion.zero_touch.slow_restart_idle && self.requester.quiet();
        if idle && self.flow().is_some_and(|flow| now.since(flow.sent_at) > IDLE) && self.reacts(shared) {
            if let Some(flow) = self.flow_mut() {
                flow.sent_at = now;
            }
            self.requester.since = now;
            if !self.slow_restart(shared, now) {
                self.restart_window(shared);
            }
        }
        let (next, bytes) = (self.requester.next_psn(), self.next_payload(shared));
        let reliable = self.init.qp_type.reliable();
        let Some(wait) = self.rate_waits(shared, now) else {
            return at.is_some_and(|at| self.wait_until(shared, at));
        };
        match (wait, at) {
            (Some(a), Some(b)) => self.wait_until(shared, a.max(b)),
            (Some(at), None) | (None, Some(at)) => self.wait_until(shared, at),
            (None, None) => {
                let Some(flow) = self.flow() else { return false };
                let full = reliable && bytes.is_some_and(|bytes| flow.is_full(next, bytes));
                if full && let Some(at) = flow.changes() {
                    self.wait_until(shared, at);
                }
                full
            }
        }
    }

    /// Must a READ response wait, because of the flow's rate?
    #[inline(never)]
    pub(super) fn response_waits(&mut self, shared: &mut Shared, now: Instant) -> bool {
        match self.rate_waits(shared, now) {
            Some(Some(at)) => self.wait_until(shared, at),
            _ => false,
        }
    }

    /// How long its flow has to wait for its rate; none if there is no flow that counts.
    fn rate_waits(&mut self, shared: &mut Shared, now: Instant) -> Option<Option<Instant>> {
        if self.flow().is_none() || !self.reacts(shared) {
            return None;
        }
        let closed = self.closed(shared);
        let flow = self.flow_mut()?;
        flow.advance(now, closed);
        if flow.is_released() {
            self.end_flow(shared);
            // (A flow that limits whoever begins anew has to be made again.)
            return None;
        }
        Some(self.flow_mut()?.waits(now))
    }

    fn wait_until(&mut self, shared: &mut Shared, at: Instant) -> bool {
        if let Some(pace) = &mut self.pace {
            shared.marks.hit(Mark::Paced);
            shared.paced.arm(&mut pace.entry, self.number, at);
        }
        true
    }

    /// Payload of the next request packet, or of the responses to a READ if its flow counts them; none if it asks for data.
    fn next_payload(&self, shared: &Shared) -> Option<u32> {
        let wqe = shared.sends.get(self.requester.cursor())?;
        if wqe.awaits_response() {
            let counts = wqe.is_read() && self.flow().is_some_and(Flow::counts_reads);
            return counts.then_some(wqe.len.min(u32::MAX.into()) as u32);
        }
        let index = match wqe.stage {
            Stage::Started => self.requester.next_psn().distance(wqe.first).max(0) as u64,
            _ => 0,
        };
        let mtu = u64::from(self.attributes.path_mtu.bytes());
        Some(wqe.len.saturating_sub(index * mtu).min(mtu) as u32)
    }

    /// A packet with data was sent.
    pub(super) fn charge_flow(&mut self, now: Instant, payload: u32, frame: u64) {
        if let Some(flow) = self.flow_mut() {
            flow.sent(now, payload, frame);
        }
    }

    /// What people see of its flow, if it limits.
    pub fn flow_status(&mut self, shared: &Shared, number: QpNumber, now: Instant) -> Option<FlowStatus> {
        let (priority, closed) = (self.priority, self.closed(shared));
        let flow = self.flow_mut()?;
        flow.advance(now, closed);
        Some(FlowStatus {
            qp: number,
            priority,
            limits: flow.limits(),
            state: flow.state(),
            notifications: flow.notifications,
        })
    }

    /// A packet of the peer's is missing: besides the NAK it gets a notification, where both slow restart and notification
    /// are on.
    pub(super) fn notify_gap(&self, shared: &mut Shared, packet: &Incoming<'_>) {
        let priority = shared.marking.received(&packet.path) & 7;
        let congestion = &shared.congestion;
        let known = !matches!(packet.path.network, Network::V1 { .. });
        if known && congestion.zero_touch.slow_restart && congestion.notification >> priority & 1 == 1 {
            let (now, to) = (shared.now, self.attributes.destination_qp);
            shared.notifier.marked(now, packet, (to, self.pkey), priority);
        }
    }

    /// Which queue pair of the peer's sent a packet to this one, if that can be told.
    pub fn sender(&self, packet: &Incoming<'_>) -> Option<QpNumber> {
        let may = self.permissions();
        match packet.headers.extended {
            _ if !may.receive && !may.receive_responses => None,
            Extended::Deth(deth) | Extended::DethImm(deth, _) if self.init.qp_type == QpType::Ud => {
                (deth.qkey == self.attributes.qkey).then_some(QpNumber(deth.source_qp))
            }
            _ if self.init.qp_type == QpType::Ud => None,
            _ if self.init.qp_type == QpType::DcTarget => dynamic::sender(self, packet),
            _ => self
                .is_peers(&packet.path)
                .then_some(self.attributes.destination_qp),
        }
    }
}
