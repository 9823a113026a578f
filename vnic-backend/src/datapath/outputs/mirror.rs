//! Mirror sessions of a core: copies of a source's frames for a destination, beside the frames' own way.
//!
//! A copy is made where a capture sees the frame and leaves at the end of the round. No destination is a source, so that no
//! copy is copied.

use std::collections::VecDeque;
use std::sync::Arc;

use vnic_engine::counters::CoreCounter;
use vnic_fabric::switch::PortId;

use super::super::counters::CoreCounters;
use super::super::frame::{Metadata, OutFrame, OwnedFrame};
use crate::types::{Direction, MirrorTally};

/// Bytes of copies that wait for the end of a round; further frames are not copied.
const WAITING_MAX: usize = 8 << 20;

/// A session whose source and destination exist.
#[derive(Clone)]
pub struct Mirror {
    /// The port whose frames are copied.
    pub source: PortId,
    /// The port that gets the copies.
    pub destination: PortId,
    /// Whether frames that enter the switch at the source are copied.
    pub ingress: bool,
    /// Whether frames that leave the switch at the source are copied.
    pub egress: bool,
    /// Counts of the session.
    pub tally: Arc<MirrorTally>,
}

impl Mirror {
    /// Whether the session copies frames of this port and direction.
    fn wants(&self, port: PortId, direction: Direction) -> bool {
        self.source == port
            && match direction {
                Direction::Ingress => self.ingress,
                Direction::Egress => self.egress,
            }
    }
}

/// A copy on its way.
pub struct MirrorCopy {
    /// The copy; its source is its destination, so that no sender waits for it.
    pub frame: OwnedFrame,
    /// The port that gets the copy.
    pub destination: PortId,
    tally: Arc<MirrorTally>,
}

impl MirrorCopy {
    /// Counts the copy: it was sent to its destination, or lost.
    pub fn count(&self, sent: bool, counters: &CoreCounters) {
        count(&self.tally, sent, counters);
    }
}

fn count(tally: &MirrorTally, sent: bool, counters: &CoreCounters) {
    tally.count(sent);
    let counter = match sent {
        true => CoreCounter::Mirrored,
        false => CoreCounter::MirrorLost,
    };
    counters.add(counter as usize, 1);
}

/// Sessions of a core, and copies that wait for the end of the round.
#[derive(Default)]
pub struct Mirrors {
    sessions: Vec<Mirror>,
    copies: VecDeque<MirrorCopy>,
    bytes: usize,
}

impl Mirrors {
    /// Replaces the sessions.
    pub fn set(&mut self, sessions: Vec<Mirror>) {
        self.sessions = sessions;
    }

    /// Whether there is no session, and no copy of an earlier one.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.copies.is_empty()
    }

    /// Whether a session copies frames between these ports.
    pub fn concern(&self, from: PortId, to: PortId) -> bool {
        self.sessions.iter().any(|m| m.source == from || m.source == to)
    }

    /// Whether copies wait.
    pub fn wait(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Copies a frame for each session that wants it.
    pub(super) fn copy(
        &mut self,
        port: PortId,
        direction: Direction,
        f: &OutFrame<'_>,
        counters: &CoreCounters,
    ) {
        for session in self.sessions.iter().filter(|m| m.wants(port, direction)) {
            let destination = session.destination;
            let room = self.bytes + f.len() + OwnedFrame::COST <= WAITING_MAX;
            let copy = room
                .then(|| OwnedFrame::copy(f, Metadata::of(destination)))
                .flatten();
            let Some(frame) = copy else {
                count(&session.tally, false, counters);
                continue;
            };
            self.bytes += frame.cost();
            self.copies.push_back(MirrorCopy {
                frame,
                destination,
                tally: session.tally.clone(),
            });
        }
    }

    /// The next copy that has to leave.
    pub fn next(&mut self) -> Option<MirrorCopy> {
        let copy = self.copies.pop_front()?;
        self.bytes -= copy.frame.cost();
        Some(copy)
    }
}
