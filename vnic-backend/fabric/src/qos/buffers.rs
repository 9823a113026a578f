//! Room for frames that wait at a port, by source and priority: when a source is told to wait (XOFF) and to go on (XON),
//! and which frames are dropped (IEEE 802.1Q clause 36 and annex N).
//!
//! ```text
//!   0 ......... xon ......... threshold │ headroom, each source and priority its own
//!   └──────── shared: size ────────────┘└─ what was under way when XOFF was told ─┘
//! ```
//!
//! The threshold of a source and priority is `xoff`, but never more than what is left of the shared room, times beta. So no
//! source takes all of it, those that come late get a part, and the shared room is never exceeded (dynamic thresholds, Choudhury
//! and Hahne 1998). The room may be in parts, each for some priorities. From the threshold on a lossy priority drops. A lossless one sends XOFF and goes on
//! in its headroom, which no other can take: a source that stops within it (the frame that found no room included) loses
//! nothing, however many sources there are. XON comes when the headroom is free again and no more than `xon` is in the
//! shared room (less in proportion if the threshold is lower).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Buffer, PRIORITIES, PortQos};
use crate::DropReason;

/// A change of what a source is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Port of the source.
    pub source: u16,
    /// Priorities that shall wait, a bit each; all others may go.
    pub xoff: u8,
}

/// Bytes of one source and priority that wait.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    shared: u32,
    headroom: u32,
}

#[derive(Debug, Clone, Default)]
struct Source {
    rooms: [Room; PRIORITIES],
    /// Priorities over their threshold, a bit each.
    xoff: u8,
    /// Priorities that the source was told to stop, a bit each.
    told: u8,
    /// Whether the source is in the list of changes.
    listed: bool,
}

/// Room for frames that wait at a port.
#[derive(Debug)]
pub struct Buffers {
    settings: Buffer,
    /// Lossless priorities, a bit each.
    lossless: u8,
    sources: Vec<Source>,
    /// Part of the shared room by priority, and each part's bytes; without parts the first is all of it.
    part_of: [u8; PRIORITIES],
    size: [u32; PRIORITIES],
    /// Bytes of all sources in each part.
    shared: [u64; PRIORITIES],
    headroom: u64,
    /// Sources over their threshold, by priority.
    over: [u16; PRIORITIES],
    silent: bool,
    changes: VecDeque<u16>,
}

impl Buffers {
    /// No frame waits.
    pub fn new(qos: &PortQos) -> Buffers {
        let mut this = Buffers {
            settings: qos.buffer,
            lossless: qos.lossless(),
            sources: Vec::new(),
            part_of: [0; PRIORITIES],
            size: [0; PRIORITIES],
            shared: [0; PRIORITIES],
            headroom: 0,
            over: [0; PRIORITIES],
            silent: false,
            changes: VecDeque::new(),
        };
        this.divide();
        this
    }

    /// Divides the room as the settings say; what waits is counted in its part.
    fn divide(&mut self) {
        (self.size, self.part_of) = match self.settings.parts {
            Some(parts) => (parts.size, parts.of_priority.map(|part| part & 7)),
            None => {
                let mut size = [0; PRIORITIES];
                size[0] = self.settings.size;
                (size, [0; PRIORITIES])
            }
        };
        self.shared = [0; PRIORITIES];
        for source in &self.sources {
            for (room, part) in source.rooms.iter().zip(self.part_of) {
                self.shared[usize::from(part)] += u64::from(room.shared);
            }
        }
    }

    /// Takes another configuration; frames that wait stay. May bring changes.
    pub fn configure(&mut self, qos: &PortQos) {
        self.settings = qos.buffer;
        self.lossless = qos.lossless();
        self.divide();
        for source in 0..self.sources.len() {
            for p in 0..PRIORITIES {
                let room = self.sources[source].rooms[p];
                let full = room.shared != 0 && room.shared >= self.threshold(p);
                let over = self.lossless & 1 << p != 0 && (room.headroom != 0 || full);
                self.set_over(source, p, over);
            }
        }
    }

    /// Admits a frame of `bytes` bytes, or says why it is dropped.
    #[inline]
    pub fn admit(&mut self, source: u16, priority: u8, bytes: u32) -> Result<(), DropReason> {
        let (i, p) = (usize::from(source), usize::from(priority) % PRIORITIES);
        let bit = 1 << p;
        if self.sources.len() <= i {
            self.sources.resize(i + 1, Source::default());
        }
        let threshold = self.threshold(p);
        let settings = self.settings;
        let part = usize::from(self.part_of[p]);
        let fits = u64::from(bytes) <= self.free(p);
        let source = &mut self.sources[i];
        let room = &mut source.rooms[p];
        if source.xoff & bit == 0 && room.shared < threshold && fits {
            room.shared += bytes;
            self.shared[part] += u64::from(bytes);
            if self.lossless & bit != 0 && self.sources[i].rooms[p].shared >= self.threshold(p) {
                self.set_over(i, p, true);
            }
            return Ok(());
        }
        if self.lossless & bit == 0 {
            return Err(DropReason::EgressFull);
        }
        let admitted = bytes <= settings.headroom.saturating_sub(room.headroom);
        if admitted {
            room.headroom += bytes;
            self.headroom += u64::from(bytes);
        }
        // With no frame waiting the source would never be told to go on.
        if room.headroom != 0 || room.shared != 0 {
            self.set_over(i, p, true);
        }
        if admitted {
            Ok(())
        } else {
            Err(DropReason::LosslessOverflow)
        }
    }

    /// Releases the room of a frame that has left.
    #[inline]
    pub fn release(&mut self, source: u16, priority: u8, bytes: u32) {
        let (i, p) = (usize::from(source), usize::from(priority) % PRIORITIES);
        let Some(source) = self.sources.get_mut(i) else {
            return;
        };
        let room = &mut source.rooms[p];
        // The headroom first: it has to be free before the next XOFF.
        let headroom = bytes.min(room.headroom);
        let shared = (bytes - headroom).min(room.shared);
        room.headroom -= headroom;
        room.shared -= shared;
        let (over, room) = (source.xoff & 1 << p != 0, *room);
        self.headroom -= u64::from(headroom);
        self.shared[usize::from(self.part_of[p])] -= u64::from(shared);
        if over && room.headroom == 0 && room.shared <= self.xon(p) {
            self.set_over(i, p, false);
        }
    }

    /// Sets whether no source is told to wait any more (storm prevention).
    pub fn set_silent(&mut self, silent: bool) {
        if silent == self.silent {
            return;
        }
        self.silent = silent;
        for i in 0..self.sources.len() {
            self.list(i);
        }
    }

    /// The next change of what a source is told.
    #[inline]
    pub fn poll_change(&mut self) -> Option<Change> {
        while let Some(i) = self.changes.pop_front() {
            let source = &mut self.sources[usize::from(i)];
            source.listed = false;
            let xoff = if self.silent { 0 } else { source.xoff };
            if source.told != xoff {
                source.told = xoff;
                return Some(Change { source: i, xoff });
            }
        }
        None
    }

    /// Priorities with a source over its threshold, a bit each. The source is told to wait, or would be without
    /// [`Buffers::set_silent`].
    #[inline]
    pub fn pausing(&self) -> u8 {
        (0..PRIORITIES)
            .filter(|p| self.over[*p] != 0)
            .fold(0, |all, p| all | 1 << p)
    }

    /// Bytes in use, in the shared room and the headroom.
    pub fn used(&self) -> u64 {
        self.shared.iter().sum::<u64>() + self.headroom
    }

    /// Bytes that are left of a priority's part of the room.
    fn free(&self, priority: usize) -> u64 {
        let part = usize::from(self.part_of[priority]);
        u64::from(self.size[part]).saturating_sub(self.shared[part])
    }

    /// Bytes of a source and priority in the shared room from which on it waits or drops.
    fn threshold(&self, priority: usize) -> u32 {
        // (Below 2^45.)
        let part = self.free(priority) * u64::from(self.settings.beta) / 100;
        // Not above xoff, which is a u32.
        part.min(u64::from(self.settings.xoff)) as u32
    }

    /// Bytes in the shared room at which a source and priority may go on.
    fn xon(&self, priority: usize) -> u32 {
        let Buffer { xoff, xon, .. } = self.settings;
        let part = u64::from(self.threshold(priority)) * u64::from(xon) / u64::from(xoff.max(1));
        part.min(u64::from(xon)) as u32
    }

    fn set_over(&mut self, source: usize, priority: usize, over: bool) {
        let bit = 1 << priority;
        if (self.sources[source].xoff & bit != 0) == over {
            return;
        }
        self.sources[source].xoff ^= bit;
        if over {
            self.over[priority] += 1;
        } else {
            self.over[priority] -= 1;
        }
        self.list(source);
    }

    fn list(&mut self, source: usize) {
        if !core::mem::replace(&mut self.sources[source].listed, true) {
            // The number was a u16 when it was made.
            self.changes.push_back(source as u16);
        }
    }
}

#[cfg(test)]
mod tests;
