//! Frames of a bond whose flow is about to move: they wait until what went before them has arrived.

use std::collections::VecDeque;

use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::lag::{Flow, SlotId};
use vnic_fabric::switch::PortId;
use vnic_fabric::{Instant, TagEdit};

use super::super::frame::{RawFrame, SNAP};
use super::super::link::Gate;
use crate::mem::Seg;

/// Bytes that wait at most: what comes in 10 ms at 6 Gbit/s.
const HELD_MAX: usize = 8 << 20;
/// What a frame takes beside its own bytes.
const FRAME_COST: usize = 256;

/// A frame that waits: a copy of our own.
pub struct HeldFrame {
    bytes: Box<[u8]>,
    hdr: NetHdr,
    /// What it is.
    pub flow: Flow,
    /// Who sent it.
    pub source: PortId,
    /// What the switch wants done to its tag.
    pub tag: TagEdit,
    /// As for any frame from another core.
    pub gate: Option<Gate>,
}

impl HeldFrame {
    /// Of a frame that may not go yet.
    pub fn new(f: &RawFrame<'_>, flow: Flow, source: PortId, tag: TagEdit, gate: Option<Gate>) -> HeldFrame {
        HeldFrame {
            bytes: f.to_owned_bytes(),
            hdr: f.hdr,
            flow,
            source,
            tag,
            gate,
        }
    }

    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn cost(&self) -> usize {
        self.bytes.len() + FRAME_COST
    }

    /// Uses it as any other frame.
    pub fn with<R>(&mut self, go: impl FnOnce(&RawFrame<'_>) -> R) -> R {
        let segs = [Seg {
            ptr: self.bytes.as_mut_ptr(),
            len: self.bytes.len() as u32,
        }];
        let wanted = if self.hdr.flags | self.hdr.gso_type == 0 {
            SNAP
        } else {
            HEAD_MAX
        };
        go(&RawFrame {
            head: &self.bytes[..self.bytes.len().min(wanted)],
            len: self.bytes.len(),
            hdr: self.hdr,
            segs: &segs,
            skip: 0,
        })
    }
}

/// Frames of one slot, in the order in which they came.
pub struct Line {
    /// Of which slot.
    pub slot: SlotId,
    /// When to ask for the first one again.
    pub until: Instant,
    /// One or more.
    pub frames: VecDeque<HeldFrame>,
}

/// See the module.
#[derive(Default)]
pub struct Held {
    /// Those that wait, by slot.
    pub lines: Vec<Line>,
    bytes: usize,
}

impl Held {
    /// Is there room for a frame of so many bytes?
    pub fn has_room(&self, len: usize) -> bool {
        self.bytes + len + FRAME_COST <= HELD_MAX
    }

    /// A frame waits behind those of its slot.
    pub fn push(&mut self, slot: SlotId, until: Instant, frame: HeldFrame) {
        self.bytes += frame.cost();
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
    pub fn pop(&mut self, line: usize) -> Option<HeldFrame> {
        let frames = &mut self.lines.get_mut(line)?.frames;
        let frame = frames.pop_front()?;
        if frames.is_empty() {
            self.lines.swap_remove(line);
        }
        self.bytes -= frame.cost();
        Some(frame)
    }

    /// When one may go, at the earliest.
    pub fn next_time(&self) -> Option<Instant> {
        self.lines.iter().map(|line| line.until).min()
    }
}
