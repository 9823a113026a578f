//! Frames of a bond whose flow is about to move: they wait until the frames before them have arrived.

use std::collections::VecDeque;

use vnic_fabric::lag::{Flow, SlotId};
use vnic_fabric::{Instant, TagEdit};

use super::super::super::frame::OwnedFrame;

/// Bytes that wait at most: about 10 ms at 6 Gbit/s.
const HELD_MAX: usize = 8 << 20;

/// A frame that waits.
pub struct WaitingFrame {
    /// The frame.
    pub frame: OwnedFrame,
    /// Flow of the frame.
    pub flow: Flow,
    /// Edit of the frame's tag that the switch wants.
    pub tag: TagEdit,
}

/// Frames of one slot, in the order in which they came.
pub struct Line {
    /// Slot of the frames.
    pub slot: SlotId,
    /// When to ask again for the first frame.
    pub until: Instant,
    /// The frames, one or more.
    pub frames: VecDeque<WaitingFrame>,
}

/// Waiting frames of a bond.
#[derive(Default)]
pub struct WaitingFlows {
    /// Waiting frames by slot.
    pub lines: Vec<Line>,
    bytes: usize,
}

impl WaitingFlows {
    /// Whether there is room for a frame of this length.
    pub fn has_room(&self, len: usize) -> bool {
        self.bytes + len + OwnedFrame::COST <= HELD_MAX
    }

    /// Queues a frame behind those of its slot.
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

    /// Takes the first frame of a line. If it was the last one, the last line of the list takes the line's place.
    pub fn pop(&mut self, line: usize) -> Option<WaitingFrame> {
        let frames = &mut self.lines.get_mut(line)?.frames;
        let frame = frames.pop_front()?;
        if frames.is_empty() {
            self.lines.swap_remove(line);
        }
        self.bytes -= frame.frame.cost();
        Some(frame)
    }

    /// Removes a line and returns its frames. The last line of the list takes its place.
    pub fn take(&mut self, line: usize) -> VecDeque<WaitingFrame> {
        let frames = self.lines.swap_remove(line).frames;
        self.bytes -= frames.iter().map(|held| held.frame.cost()).sum::<usize>();
        frames
    }

    /// Earliest time at which a frame may go.
    pub fn next_time(&self) -> Option<Instant> {
        self.lines.iter().map(|line| line.until).min()
    }
}
