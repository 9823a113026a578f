//! The machines of one port.

use vnic_wire::MacAddr;
use vnic_wire::lacp::{self, Frame, Lacpdu, Marker, Participant, State, System};

use super::{
    AGGREGATE_WAIT, FAST_PERIODIC, Group, LONG_TIMEOUT, PortView, SHORT_TIMEOUT, SLOW_PERIODIC,
    TRANSMIT_LIMIT,
};
use crate::Instant;

/// State of the receive machine (802.1AX-2014 figure 6-18). INITIALIZE takes no time, LACP_DISABLED is a bond without LACP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receive {
    /// The link is down.
    PortDisabled,
    /// The partner was not heard for too long; it is asked to speak often.
    Expired,
    /// The partner was not heard then either: the port takes it for one that does not speak.
    Defaulted,
    /// The partner is heard.
    Current,
}

/// State of the mux machine with coupled control (figure 6-22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mux {
    /// In no group.
    Detached,
    /// In a group; others may still come.
    Waiting,
    /// In a group, and the partner does not say yet that it is, too.
    Attached,
    /// In use.
    CollectingDistributing,
}

/// What all ports say of the system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Us {
    pub(super) system: System,
    pub(super) key: u16,
}

/// The machines of one port.
// Wide: the variables that the port's machines share (IEEE 802.1AX, Link Aggregation Control Protocol).
#[derive(Debug, Clone)]
pub(super) struct Port {
    identifier: lacp::Port,
    up: bool,
    state: State,
    partner: Participant,
    receive: Receive,
    current_while: Option<Instant>,
    /// When the periodic machine fires, and whether it is fast; `None`: NO_PERIODIC.
    periodic: Option<(Instant, bool)>,
    /// Need to transmit (NTT).
    ntt: bool,
    mux: Mux,
    wait_while: Instant,
    selected: bool,
    /// Times of the last transmissions, oldest first.
    transmitted: [Option<Instant>; TRANSMIT_LIMIT],
    answer: Option<Marker>,
    /// Collecting and distributing, as the caller knows them.
    told: (bool, bool),
    sent: u64,
    received: u64,
    markers: u64,
}

/// The partner of a port that hears nothing: nobody, who neither aggregates nor is in sync. But the real partner might only
/// speak when spoken to, and so is spoken to often.
const NOBODY: Participant = Participant {
    system: System {
        priority: 0,
        address: MacAddr([0; 6]),
    },
    key: 0,
    port: lacp::Port {
        priority: 0,
        number: 0,
    },
    state: State::TIMEOUT,
};

impl Port {
    /// A port whose link is down. It is individual only if its partner is: we aggregate.
    pub(super) fn new(identifier: lacp::Port, active: bool, short_timeout: bool) -> Port {
        let mut port = Port {
            identifier,
            up: false,
            state: State::AGGREGATION | State::DEFAULTED,
            partner: NOBODY,
            receive: Receive::PortDisabled,
            current_while: None,
            periodic: None,
            ntt: false,
            mux: Mux::Detached,
            wait_while: Instant(0),
            selected: false,
            transmitted: [None; TRANSMIT_LIMIT],
            answer: None,
            told: (false, false),
            sent: 0,
            received: 0,
            markers: 0,
        };
        port.configure(active, short_timeout);
        port
    }

    pub(super) fn configure(&mut self, active: bool, short_timeout: bool) {
        let state = self.state.with(State::ACTIVITY, active);
        let state = state.with(State::TIMEOUT, short_timeout);
        self.ntt |= state != self.state;
        self.state = state;
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    pub(super) fn identifier(&self) -> lacp::Port {
        self.identifier
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.mux, Mux::Attached | Mux::CollectingDistributing)
    }

    fn actor(&self, us: Us) -> Participant {
        Participant {
            system: us.system,
            key: us.key,
            port: self.identifier,
            state: self.state,
        }
    }

    fn set(&mut self, flags: State, on: bool) {
        self.state = self.state.with(flags, on);
    }

    /// Sets Port_enabled.
    pub(super) fn set_link(&mut self, now: Instant, up: bool) {
        if self.up == up {
            return;
        }
        self.up = up;
        self.partner.state = self.partner.state.with(State::SYNCHRONIZATION, false);
        if up {
            self.expire(now);
            // Not in the standard, which would wait for the periodic machine: this is a second faster.
            self.ntt = true;
        } else {
            (self.receive, self.current_while) = (Receive::PortDisabled, None);
            self.set(State::EXPIRED, false);
            (self.ntt, self.answer) = (false, None);
        }
    }

    /// Entry of EXPIRED.
    fn expire(&mut self, now: Instant) {
        self.receive = Receive::Expired;
        let state = self.partner.state.with(State::SYNCHRONIZATION, false);
        self.partner.state = state.with(State::TIMEOUT, true);
        self.current_while = Some(now + SHORT_TIMEOUT);
        self.set(State::EXPIRED, true);
    }

    /// recordDefault, and update_Default_Selected before it.
    fn default_partner(&mut self) {
        self.selected &= is_same(&self.partner, &NOBODY);
        self.partner = NOBODY;
        self.set(State::DEFAULTED, true);
        self.set(State::EXPIRED, false);
    }

    /// port_moved: the partner's port was heard elsewhere.
    pub(super) fn forget_moved(&mut self, system: System, number: u16) {
        if !self.up && self.partner.system == system && self.partner.port.number == number {
            self.default_partner();
        }
    }

    /// Entry of CURRENT.
    pub(super) fn receive(&mut self, now: Instant, us: Us, pdu: &Lacpdu) {
        self.received += 1;
        let actor = self.actor(us);
        // update_Selected.
        self.selected &= is_same(&pdu.actor, &self.partner);
        // update_NTT.
        let told = State::ACTIVITY | State::TIMEOUT | State::SYNCHRONIZATION | State::AGGREGATION;
        let knows_us = is_same(&pdu.partner, &actor);
        self.ntt |= !knows_us || pdu.partner.state.only(told) != actor.state.only(told);
        // recordPDU.
        let theirs = pdu.actor.state;
        let maintained = theirs.has(State::ACTIVITY)
            || actor.state.has(State::ACTIVITY) && pdu.partner.state.has(State::ACTIVITY);
        let in_sync =
            theirs.has(State::SYNCHRONIZATION) && maintained && (knows_us || !theirs.has(State::AGGREGATION));
        self.partner = pdu.actor;
        self.partner.state = theirs.with(State::SYNCHRONIZATION, in_sync);
        self.set(State::DEFAULTED | State::EXPIRED, false);
        self.receive = Receive::Current;
        let often = self.state.has(State::TIMEOUT);
        self.current_while = Some(now + if often { SHORT_TIMEOUT } else { LONG_TIMEOUT });
    }

    /// Answers a marker. One answer waits, the newest.
    pub(super) fn marker(&mut self, marker: Marker) {
        self.markers += 1;
        self.answer = marker.answer().or(self.answer);
    }

    /// Runs the receive and periodic machines.
    pub(super) fn run_timers(&mut self, now: Instant) {
        while let Some(at) = self.current_while.filter(|at| *at <= now) {
            if self.receive == Receive::Current {
                // At the time of the timer, so that a late call has the effect of a timely one.
                self.expire(at);
            } else {
                (self.receive, self.current_while) = (Receive::Defaulted, None);
                self.default_partner();
            }
        }
        let speaks = self.state.has(State::ACTIVITY) || self.partner.state.has(State::ACTIVITY);
        if !self.up || !speaks {
            (self.periodic, self.ntt) = (None, false);
            return;
        }
        let fast = self.partner.state.has(State::TIMEOUT);
        let next = now + if fast { FAST_PERIODIC } else { SLOW_PERIODIC };
        match self.periodic {
            // NO_PERIODIC goes to FAST_PERIODIC, which goes on at once if the partner wants to hear seldom.
            None => self.periodic = Some((next, fast)),
            Some((at, was_fast)) if at <= now || fast && !was_fast => {
                self.ntt = true;
                self.periodic = Some((next, fast));
            }
            Some((_, true)) if !fast => self.periodic = Some((next, fast)),
            Some(_) => {}
        }
    }

    /// The group that the port could be in; `None`: its partner is not known, or is this system.
    pub(super) fn group(&self, member: usize, us: Us) -> Option<Group> {
        let partner = &self.partner;
        let is_somebody = partner.system.address != MacAddr::default();
        if self.state.has(State::DEFAULTED) || !is_somebody || partner.system.address == us.system.address {
            return None;
        }
        let alone = !partner.state.has(State::AGGREGATION);
        Some((partner.system, partner.key, alone.then_some(member)))
    }

    pub(super) fn select(&mut self, now: Instant, selected: bool) {
        if selected && self.mux == Mux::Detached {
            (self.mux, self.wait_while) = (Mux::Waiting, now + AGGREGATE_WAIT);
        }
        self.selected = selected;
    }

    /// When the port has waited for others; `None`: it does not wait.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        (self.mux == Mux::Waiting).then_some(self.wait_while)
    }

    /// Runs the mux machine. `ready`: all ports that wait for the aggregator have waited.
    pub(super) fn run_mux(&mut self, ready: bool) {
        loop {
            let in_sync = self.partner.state.has(State::SYNCHRONIZATION);
            let next = match self.mux {
                Mux::Waiting | Mux::Attached if !self.selected => Mux::Detached,
                Mux::Waiting if ready => Mux::Attached,
                Mux::Attached if in_sync => Mux::CollectingDistributing,
                Mux::CollectingDistributing if !self.selected || !in_sync => Mux::Attached,
                _ => return,
            };
            (self.mux, self.ntt) = (next, true);
            self.set(State::SYNCHRONIZATION, self.is_attached());
            let in_use = next == Mux::CollectingDistributing;
            self.set(State::COLLECTING | State::DISTRIBUTING, in_use);
        }
    }

    /// Collecting and distributing, if the caller does not know them yet.
    pub(super) fn news(&mut self) -> Option<(bool, bool)> {
        let now = (
            self.state.has(State::COLLECTING),
            self.state.has(State::DISTRIBUTING),
        );
        (core::mem::replace(&mut self.told, now) != now).then_some(now)
    }

    /// Runs the transmit machine.
    pub(super) fn transmit(&mut self, now: Instant, us: Us) -> Option<Frame> {
        if !self.up {
            return None;
        }
        if let Some(answer) = self.answer.take() {
            return Some(Frame::Marker(answer));
        }
        if !self.ntt || self.periodic.is_none() || self.may_send_at().is_some_and(|at| at > now) {
            return None;
        }
        self.ntt = false;
        self.transmitted.rotate_left(1);
        self.transmitted[TRANSMIT_LIMIT - 1] = Some(now);
        self.sent += 1;
        Some(Frame::Lacpdu(Lacpdu {
            actor: self.actor(us),
            partner: self.partner,
            max_delay: 0,
        }))
    }

    /// When the transmit machine may send; `None`: now.
    fn may_send_at(&self) -> Option<Instant> {
        self.transmitted[0].map(|oldest| oldest + FAST_PERIODIC)
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        let speaks = self.ntt && self.periodic.is_some();
        let sends = speaks.then(|| self.may_send_at().unwrap_or(Instant(0)));
        let timers = [self.current_while, self.periodic.map(|(at, _)| at), sends];
        timers.into_iter().flatten().min()
    }

    pub(super) fn view(&self, us: Us) -> PortView {
        PortView {
            receive: self.receive,
            mux: self.mux,
            selected: self.selected,
            actor: self.actor(us),
            partner: self.partner,
            sent: self.sent,
            received: self.received,
            markers: self.markers,
        }
    }
}

/// Whether two participants are the same for selection.
fn is_same(a: &Participant, b: &Participant) -> bool {
    let aggregates = |p: &Participant| p.state.has(State::AGGREGATION);
    (a.system, a.key, a.port) == (b.system, b.key, b.port) && aggregates(a) == aggregates(b)
}
