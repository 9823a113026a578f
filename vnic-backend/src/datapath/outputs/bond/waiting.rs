//! Frames of a bond whose flow is about to move: they wait until what went before them has arrived.

use std::collections::VecDeque;

use vnic_fabric::lag::{Flow, SlotId};
use vnic_fabric::{Instant, TagEdit};

use super::super::super::frame::OwnedFrame;

/// Bytes that wait at most: what comes in 10 ms at 6 Gbit/s.
const HELD_MAX: usize = 8 << 20;

/// A frame that waits.
pub struct WaitingFrame {
    /// The frame.
    pub frame: OwnedFrame,
    /// What it is.
    pub flow: Flow,
    /// What the switch wants done to its tag.
    pub tag: TagEdit,
}

/// Frames of one slot, in the order in which they came.
pub struct Line {
    /// Of which slot.
    pub slot: SlotId,
    /// When to ask for the first one again.
    pub until: Instant,
    /// One or more.
    pub frames: VecDeque<WaitingFrame>,
}

/// See the module.
#[derive(Default)]
pub struct WaitingFlows {
    /// Those that wait, by slot.
    pub lines: Vec<Line>,
    bytes: usize,
}

impl WaitingFlows {
    /// Is there room for a frame of so many bytes?
    pub fn has_room(&self, len: usize) -> bool {
        self.bytes + len + OwnedFrame::COST <= HELD_MAX
    }

    /// A frame waits behind those of its slot.
    pub fn push(&mut self, slot: SlotId, until: Instant, frame: WaitingFrame) {
        self.bytes += frame.frame.cost();
        match self.lines.iter_mut().find(|line| line.slot == slot) {
            Some(line) => line.frames.push_back(frame),
            None => self.lines.push(Line {
                slot,
                until,
                frames: VecDeque::from([frame]),
            }),
        }
    }

    /// The first frame of a line waits no longer. A line without frames is gone, and another one is in its place.
    pub fn pop(&mut self, line: usize) -> Option<WaitingFrame> {
        let frames = &mut self.lines.get_mut(line)?.frames;
        let frame = frames.pop_front()?;
        if frames.is_empty() {
            self.lines.swap_remove(line);
        }
        self.bytes -= frame.frame.cost();
        Some(frame)
    }

    /// The frames of a line, none of which waits any longer. The line is gone, and another one is in its place.
    pub fn take(&mut self, line: usize) -> VecDeque<WaitingFrame> {
        let frames = self.lines.swap_remove(line).frames;
        self.bytes -= frames.iter().map(|held| held.frame.cost()).sum::<usize>();
        frames
    }

    /// When one may go, at the earliest.
    pub fn next_time(&self) -> Option<Instant> {
        self.lines.iter().map(|line| line.until).min()
    }
}
