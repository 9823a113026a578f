//! The judge: what a side of a connection did and heard, what it may hear next, and what each bad news needs as its cause.

use std::collections::BTreeMap;

use vnic_engine::rdma::cm::{ConnectionId, Event};
use vnic_wire::cm::Reason;
use vnic_wire::time::Instant;

use super::plan::{Does, Plan};
use super::{Mark, Outcome};
use crate::oracle::{Judgement, Rule};

/// A connection as a driver knows it: device, life of the device, number.
pub type Key = (usize, u32, ConnectionId);

/// How far a side is, by what its driver did and heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Active: asked. Passive: heard the request.
    Begun,
    /// Active: heard the reply. Passive: accepted.
    Answered,
    /// Active: ready. Passive: heard that the peer is.
    Connected,
    /// Bad news came, or the driver rejected.
    Failed,
    /// Heard that it ends.
    Ended,
    /// Heard that nothing is under way any more.
    Exited,
}

/// A side of a connection.
#[derive(Debug, Clone)]
pub struct Side {
    /// Which attempt it is of.
    pub attempt: usize,
    /// The side that asked.
    pub active: bool,
    /// How far it is.
    pub phase: Phase,
    /// The number at the peer, once known.
    pub peer: Option<u32>,
    /// When its driver asked or accepted.
    pub since: Instant,
    /// Its driver rejected it or destroyed it before it was connected.
    pub refused: bool,
    /// It heard that the peer is unreachable, or its driver destroyed it while it waited.
    pub gave_up: bool,
    /// It was connected once.
    pub connected: bool,
    /// Its driver asked for the end.
    pub disconnects: bool,
    /// Its driver wants to hear no more.
    pub destroyed: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Oracle<'a> {
    plan: &'a Plan,
    pub sides: BTreeMap<Key, Side>,
}

impl<'a> Oracle<'a> {
    pub fn new(plan: &'a Plan) -> Oracle<'a> {
        let sides = BTreeMap::new();
        Oracle { plan, sides }
    }

    /// A side begins.
    pub fn begin(&mut self, key: Key, attempt: usize, active: bool, now: Instant) -> Judgement {
        let side = Side {
            attempt,
            active,
            phase: Phase::Begun,
            peer: None,
            since: now,
            refused: false,
            gave_up: false,
            connected: false,
            disconnects: false,
            destroyed: false,
        };
        match self.sides.insert(key, side) {
            None => Ok(()),
            Some(_) => Rule::Event.broken(format!("{key:?} begins twice")),
        }
    }

    /// A driver is told something.
    pub fn hears(&mut self, key: Key, event: &Event, now: Instant, outcome: &mut Outcome) -> Judgement {
        let wrong = |why: &str| Rule::Event.broken(format!("{key:?} hears {event:?}: {why}"));
        let Some(side) = self.sides.get(&key) else {
            return wrong("there is no such connection");
        };
        if side.destroyed {
            return wrong("it is destroyed");
        }
        use Phase::*;
        let next = match (event, side.active, side.phase) {
            (Event::Response { .. }, true, Begun) => Answered,
            (Event::SidrReply { .. }, true, Begun) => Exited,
            (Event::Established { .. }, false, Answered) => Connected,
            (Event::Rejected { .. }, _, Begun | Answered) => Failed,
            (Event::Unreachable { .. }, true, Begun) | (Event::Unreachable { .. }, false, Answered) => Failed,
            (Event::Disconnected { .. }, _, Connected) | (Event::Disconnected { .. }, false, Answered) => {
                Ended
            }
            (Event::TimewaitExit { .. }, _, Failed | Ended) => Exited,
            _ => return wrong(&format!("it is {:?}", side.phase)),
        };
        let side = side.clone();
        match event {
            Event::Rejected { reject, .. } => self.rejected(key, &side, reject.reason, outcome)?,
            Event::Unreachable { .. } => {
                outcome.mark(Mark::Unreachable, 1);
                let waited = now.since(side.since);
                if waited > self.plan.longest_wait() {
                    return Rule::Progress.broken(format!("{key:?} was waited for {waited:?}"));
                }
                self.unreachable(key, &side)?;
            }
            Event::Established { .. } => outcome.mark(Mark::Established, 1),
            Event::Disconnected { .. } => outcome.mark(Mark::Disconnected, 1),
            _ => {}
        }
        if let Some(side) = self.sides.get_mut(&key) {
            side.phase = next;
            side.connected |= next == Connected;
            side.gave_up |= matches!(event, Event::Unreachable { .. });
            if let Event::Response { reply, .. } = event {
                (side.peer, side.since) = (Some(reply.local_id), now);
            }
        }
        Ok(())
    }

    /// The other sides of an attempt.
    fn others(&self, side: &Side) -> impl Iterator<Item = &Side> {
        let (attempt, active) = (side.attempt, side.active);
        let of = move |s: &&Side| s.attempt == attempt && s.active != active;
        self.sides.values().filter(of)
    }

    fn rejected(&self, key: Key, side: &Side, reason: Reason, outcome: &mut Outcome) -> Judgement {
        let attempt = &self.plan.attempts[side.attempt];
        let crashed = !self.plan.crashes.is_empty();
        let (mark, cause) = match reason {
            Reason::CONSUMER if side.active => (Mark::RequestRejected, self.others(side).any(|s| s.refused)),
            Reason::CONSUMER => (Mark::ReplyRejected, self.others(side).any(|s| s.refused)),
            Reason::TIMEOUT => (Mark::Timeout, self.others(side).any(|s| s.gave_up)),
            Reason::STALE => (Mark::Stale, crashed),
            // A side that its driver destroyed, or one that never was as this one knew it.
            Reason::INVALID_ID => {
                let gone = |s: &Side| s.destroyed || s.gave_up || s.peer.is_some_and(|id| id != key.2.0);
                (
                    Mark::Unknown,
                    crashed || !side.active && self.others(side).any(gone),
                )
            }
            Reason::NO_RESOURCES => {
                let asked = self.plan.attempts.iter().filter(|a| a.to == attempt.to);
                let enough = asked.count() > self.plan.backlog as usize || self.plan.duplicates > 0;
                (Mark::Full, enough)
            }
            Reason::INVALID_SERVICE_ID => (Mark::NoService, !attempt.served),
            _ => (Mark::Unknown, false),
        };
        outcome.mark(mark, 1);
        match cause {
            true => Ok(()),
            false => Rule::Cause.broken(format!("{key:?} is rejected: {reason}")),
        }
    }

    fn unreachable(&self, key: Key, side: &Side) -> Judgement {
        let attempt = &self.plan.attempts[side.attempt];
        let peer = if side.active {
            attempt.passive
        } else {
            attempt.active
        };
        let answers = peer.does != Does::Ignore && self.plan.prompt(peer);
        match self.plan.clean() && answers {
            true => Rule::Cause.broken(format!("{key:?} hears that its peer is unreachable")),
            false => Ok(()),
        }
    }

    /// Whether the sides of each connection agree at the end, before drivers destroy what is left.
    pub fn judge(&self, outcome: &mut Outcome) -> Judgement {
        for (key, side) in &self.sides {
            let attempt = &self.plan.attempts[side.attempt];
            let manner = if side.active {
                attempt.active
            } else {
                attempt.passive
            };
            let asks = if side.active {
                side.phase == Phase::Begun
            } else {
                side.phase == Phase::Answered
            };
            if asks && !side.destroyed {
                return Rule::Progress.broken(format!("{key:?} never hears what became of it: {side:?}"));
            }
            if side.disconnects && side.phase == Phase::Connected && !side.destroyed {
                return Rule::Progress.broken(format!("{key:?} never hears that it has ended"));
            }
            if side.phase == Phase::Connected && side.connected && side.active && !side.destroyed {
                // Somebody ends it, and the network lets it pass.
                let ends = attempt.keep.iter().any(Option::is_some);
                if ends && self.plan.clean() && manner.does == Does::Accept {
                    return Rule::Progress.broken(format!("{key:?} is connected for ever"));
                }
            }
            if !side.active && side.connected && self.plan.crashes.is_empty() {
                let ready = |s: &Side| s.connected && s.peer == Some(key.2.0);
                if !self.others(side).any(ready) {
                    return Rule::Cause.broken(format!("{key:?} is connected, and its peer is not"));
                }
            }
            if side.active && side.connected {
                let ours = |s: &Side, id: u32| s.attempt == side.attempt && side.peer == Some(id);
                let peer = self
                    .sides
                    .iter()
                    .find(|((_, _, id), s)| !s.active && ours(s, id.0));
                let Some((_, peer)) = peer else {
                    return Rule::Cause.broken(format!("{key:?} is connected with nobody"));
                };
                if !peer.connected {
                    outcome.mark(Mark::Half, 1);
                    // A DREQ may overtake the RTU.
                    let ended = matches!(peer.phase, Phase::Ended | Phase::Exited);
                    if self.plan.clean() && self.plan.prompt(manner) && !peer.refused && !ended {
                        return Rule::Progress.broken(format!("{key:?} is connected, its peer is {peer:?}"));
                    }
                }
            }
        }
        self.willing()
    }

    /// Where nothing is in the way, those who want to connect do.
    fn willing(&self) -> Judgement {
        if !self.plan.clean() {
            return Ok(());
        }
        for (n, attempt) in self.plan.attempts.iter().enumerate() {
            let accepts = [attempt.active, attempt.passive]
                .iter()
                .all(|m| m.does == Does::Accept && self.plan.prompt(*m));
            let asked = self.plan.attempts.iter().filter(|a| a.to == attempt.to);
            let room = asked.count() <= self.plan.backlog as usize && self.plan.duplicates == 0;
            if !accepts || !attempt.served || !room || attempt.datagram {
                continue;
            }
            let ready = |s: &Side| s.attempt == n && s.active && s.connected;
            if !self.sides.values().any(ready) {
                return Rule::Completion.broken(format!("attempt {n} came to nothing"));
            }
        }
        Ok(())
    }
}
