//! A queue: a ring and the buffers the driver uses with it.

#![expect(
    unsafe_code,
    reason = "the test driver's buffers are shared with the device under test"
)]

use std::collections::VecDeque;

use anyhow::Result;

use super::memory::GuestMem;
use super::packed;
use super::ring::{Desc, INDIRECT, NEXT, Ring, WRITE};
use super::{Layout, NetHdr, Options};

/// Bytes between two pieces of a buffer, which nobody may touch.
const GAP: u32 = 32;

/// One direction of a queue pair.
pub struct Queue {
    /// The ring, for raw access.
    pub ring: Ring,
    write: bool,
    layout: Layout,
    hdr_len: usize,
    /// Bytes of a buffer.
    pub buffer: u32,
    stride: u64,
    /// Descriptors of the ring's table that one buffer takes.
    per: u16,
    /// Indirect tables: address for the device and for us.
    tables: Option<(u64, *mut u8)>,
    /// Where buffers are from now on: address for the device and for us.
    area: (u64, *mut u8),
    home: (u64, *mut u8),
    /// Where each buffer was when it was last made available.
    placed: Vec<(u64, *mut u8)>,
    free: Vec<u16>,
    outstanding: VecDeque<u16>,
}

// SAFETY: as for Ring; the pointers lead into memory that the ring holds.
unsafe impl Send for Queue {}

impl Queue {
    fn shape(o: &Options, write: bool) -> (Layout, u32, u64, u16, u16) {
        let (layout, buffer) = if write {
            (o.rx_layout, o.rx_buffer)
        } else {
            (o.tx_layout, o.tx_buffer)
        };
        let stride = u64::from(buffer + GAP * u32::from(layout.most())).next_multiple_of(64);
        let per = if o.indirect { 1 } else { layout.most() };
        (layout, buffer, stride, per, o.queue_size / per)
    }

    /// Bytes of buffers, and of indirect tables.
    pub(super) fn footprint(o: &Options, write: bool) -> (u64, u64) {
        let (layout, _, stride, _, slots) = Self::shape(o, write);
        let tables = if o.indirect {
            16 * u64::from(layout.most()) * u64::from(slots)
        } else {
            0
        };
        (
            (stride * u64::from(slots)).next_multiple_of(4096),
            tables.next_multiple_of(4096),
        )
    }

    pub(super) fn new(
        mem: &GuestMem,
        o: &Options,
        write: bool,
        ring: Ring,
        area: u64,
        tables: u64,
    ) -> Result<Queue> {
        let (layout, buffer, stride, per, slots) = Self::shape(o, write);
        let (bytes, table_bytes) = Self::footprint(o, write);
        let tables = if o.indirect {
            Some((tables, mem.host(tables, table_bytes)?))
        } else {
            None
        };
        let area = (area, mem.host(area, bytes)?);
        Ok(Queue {
            ring,
            write,
            layout,
            hdr_len: o.hdr_len(),
            buffer,
            stride,
            per,
            tables,
            area,
            home: area,
            placed: vec![area; usize::from(slots)],
            free: (0..slots).rev().collect(),
            outstanding: VecDeque::new(),
        })
    }

    /// All buffers are the driver's again; the ring begins anew.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.free = (0..self.placed.len() as u16).rev().collect();
        self.outstanding.clear();
        self.ring.reset()
    }

    /// Buffers from now on lie at `gpa`; those that the device has stay where they are.
    pub(super) fn move_to(&mut self, mem: &GuestMem, gpa: u64) -> Result<()> {
        self.area = (gpa, mem.host(gpa, self.stride * self.placed.len() as u64)?);
        Ok(())
    }

    /// Buffers from now on lie where they lay in the beginning.
    pub(super) fn move_home(&mut self) {
        self.area = self.home;
    }

    /// Buffers the device has.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Buffers that could be made available.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Calls `f` with offset in the buffer's memory, offset in the frame with its header, and length of each piece.
    #[inline]
    fn pieces(layout: Layout, hdr_len: usize, total: u32, mut f: impl FnMut(u16, u32, u32, u32)) -> u16 {
        let (mut n, mut at) = (0u16, 0u32);
        let mut piece = |len: u32| {
            let len = len.min(total - at);
            if len > 0 {
                f(n, at + u32::from(n) * GAP, at, len);
                n += 1;
                at += len;
            }
            total - at
        };
        match layout {
            Layout::Same => {
                piece(total);
            }
            Layout::Separate => {
                piece(hdr_len as u32);
                piece(total);
            }
            Layout::Split(_) => {
                piece(5);
                let rest = piece(9);
                let part = rest.div_ceil(u32::from(layout.most() - 2)).max(1);
                while piece(part) > 0 {}
            }
        }
        n
    }

    /// Makes a free buffer available with `total` bytes; the device sees it after [`Ring::publish`].
    #[inline]
    pub(super) fn place(&mut self, total: u32) -> Option<u16> {
        let slot = self.free.pop()?;
        let base = self.stride * u64::from(slot);
        let (gpa, host) = (self.area.0 + base, self.area.1.wrapping_add(base as usize));
        self.placed[usize::from(slot)] = (gpa, host);
        let direction = if self.write { WRITE } else { 0 };
        let head = slot * self.per;
        if self.layout == Layout::Same && self.tables.is_none() {
            self.ring.set_desc(
                head,
                Desc {
                    addr: gpa,
                    len: total,
                    flags: direction,
                    next: 0,
                },
            );
        } else {
            let first = if self.tables.is_some() { 0 } else { head };
            let mut descs = [Desc::default(); 64];
            let n = Self::pieces(self.layout, self.hdr_len, total, |i, at, _, len| {
                let next = first + i + 1;
                descs[usize::from(i)] = Desc {
                    addr: gpa + u64::from(at),
                    len,
                    flags: direction | NEXT,
                    next,
                };
            });
            let last = &mut descs[usize::from(n - 1)];
            (last.flags, last.next) = (direction, 0);
            if let Some((table_gpa, table)) = self.tables {
                let at = 16 * u64::from(self.layout.most()) * u64::from(slot);
                let packed = self.ring.packed.is_some();
                for (i, d) in descs.iter().enumerate().take(usize::from(n)) {
                    let bytes = if packed {
                        packed::bytes(*d, n - i as u16)
                    } else {
                        d.bytes()
                    };
                    // SAFETY: each slot's table has room for `most()` descriptors, and `n` is not more.
                    unsafe {
                        table
                            .add(at as usize + 16 * i)
                            .cast::<[u8; 16]>()
                            .write_volatile(bytes)
                    };
                }
                let d = Desc {
                    addr: table_gpa + at,
                    len: 16 * u32::from(n),
                    flags: INDIRECT,
                    next: 0,
                };
                self.ring.set_desc(head, d);
            } else {
                for (i, d) in (first..).zip(descs.iter().take(usize::from(n))) {
                    self.ring.set_desc(i, *d);
                }
            }
        }
        self.outstanding.push_back(head);
        self.ring.offer(head);
        Some(slot)
    }

    /// Fills a buffer that was just placed and not published.
    #[inline]
    pub(super) fn fill(&self, slot: u16, hdr: &[u8], frame: &[u8]) {
        let host = self.placed[usize::from(slot)].1;
        let total = (hdr.len() + frame.len()) as u32;
        let put = |mut at: usize, mut from: usize, mut len: usize| {
            for part in [hdr, frame] {
                if from >= part.len() {
                    from -= part.len();
                    continue;
                }
                let take = len.min(part.len() - from);
                // SAFETY: `at + len` is within the slot: pieces and gaps fit its stride.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr().add(from), host.add(at), take) };
                (at, len, from) = (at + take, len - take, 0);
            }
        };
        Self::pieces(self.layout, self.hdr_len, total, |_, at, from, len| {
            put(at as usize, from as usize, len as usize)
        });
    }

    /// Takes a used buffer back: its slot and length.
    ///
    /// # Panics
    /// When it was not the device's, or not its turn.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(u16, u32)> {
        let (head, len) = self.ring.take()?;
        let expected = self.outstanding.pop_front();
        assert_eq!(
            Some(head),
            expected.map(u32::from),
            "used entry {}: not the buffer whose turn it is",
            self.ring.taken.wrapping_sub(1)
        );
        Some((head as u16 / self.per, len))
    }

    /// The slot's buffer may be used again.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u16) {
        self.free.push(slot);
    }

    /// Appends the first `len` bytes of a received buffer.
    pub(super) fn collect(&self, slot: u16, len: u32, out: &mut Vec<u8>) {
        assert!(
            len <= self.buffer,
            "the device says it wrote {len} bytes into {}",
            self.buffer
        );
        let host = self.placed[usize::from(slot)].1;
        Self::pieces(self.layout, self.hdr_len, self.buffer, |_, at, from, room| {
            let take = len.saturating_sub(from).min(room) as usize;
            let old = out.len();
            out.resize(old + take, 0);
            // SAFETY: the piece is within the slot; `out` is private and has the room.
            unsafe { std::ptr::copy_nonoverlapping(host.add(at as usize), out.as_mut_ptr().add(old), take) };
        });
    }

    /// Header of a frame as the ring wants it.
    #[inline]
    pub(super) fn header(&self, hdr: &NetHdr) -> ([u8; NetHdr::LEN_HASH], usize) {
        let mut bytes = [0; NetHdr::LEN_HASH];
        bytes[..NetHdr::LEN].copy_from_slice(&hdr.emit(0));
        (bytes, self.hdr_len)
    }
}
