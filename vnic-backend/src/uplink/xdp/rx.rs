//! Receiving half: frames from the wire, of all receive queues of a device in turn.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{RecvFlags, sockopt};
use vnic_engine::virtio_net::NetHdr;

use super::Attached;
use super::memory::{Area, Filled, Given, Piece};
use super::unfinished::unfinished;
use crate::uplink::frames::Arrived;
use crate::uplink::sys;

/// Frames of a queue before the next queue gets its turn.
const TURN: u32 = 32;
/// Largest number of pieces of a frame in the kernel (`MAX_SKB_FRAGS` and the first).
const PIECES: u32 = 18;

/// A receive queue of the device.
pub struct Queue {
    /// Socket of the queue.
    pub socket: Arc<OwnedFd>,
    /// Received frames.
    pub rx: Filled<Piece>,
    /// Chunks for frames to come.
    pub fill: Given<u64>,
    /// Frames that were lost for lack of room, at the last look.
    pub lost: u64,
    /// Whether the ring was so full that it may have overflowed.
    pub crowded: bool,
    /// Whether frames were taken that are not given back.
    pub taken: bool,
}

/// The receiving half of a port.
pub struct XdpRx {
    pub(super) queues: Vec<Queue>,
    pub(super) area: Area,
    /// Bytes of a chunk, a power of two.
    pub(super) chunk: u64,
    /// The queue that is read, and the number of frames of its turn so far.
    pub(super) at: usize,
    pub(super) given: u32,
    /// The chunk of the frame that was returned last.
    pub(super) held: Option<u64>,
    pub(super) lost: u64,
    /// Whether the device's peer is a kernel, which leaves checksums unfinished.
    pub(super) kernel_peer: bool,
    /// Epoll set of several queues.
    pub(super) all: Option<OwnedFd>,
    pub(super) port: Arc<Attached>,
}

impl XdpRx {
    /// The next frame, if there is one. Never an error: a socket does not know that its device is gone for good.
    #[inline]
    pub fn next<'a>(&'a mut self, buf: &'a mut [u8]) -> io::Result<Option<Arrived<'a>>> {
        if let Some(held) = self.held.take() {
            self.queues[self.at].fill.push(held);
        }
        // Once more than there are queues: the turn of the first may be over, and its ring not empty.
        for _ in 0..=self.queues.len() {
            let queue = &mut self.queues[self.at];
            if self.given < TURN
                && let Some(first) = queue.rx.peek(0)
            {
                self.given += 1;
                queue.taken = true;
                queue.crowded |= queue.rx.ready() > queue.rx.size() / 2;
                return Ok(self.take(first, buf));
            }
            self.at = if self.at + 1 == self.queues.len() {
                0
            } else {
                self.at + 1
            };
            self.given = 0;
        }
        Ok(None)
    }

    /// Gives the chunks of returned frames back to the kernel.
    pub fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.queues[self.at].fill.push(held);
        }
        for queue in self.queues.iter_mut().filter(|q| q.taken) {
            queue.taken = false;
            queue.give_back();
        }
    }

    #[inline]
    fn take<'a>(&'a mut self, first: Piece, buf: &'a mut [u8]) -> Option<Arrived<'a>> {
        if first.goes_on() {
            return self.pieces(buf);
        }
        self.queues[self.at].rx.pass(1);
        self.held = Some(first.offset & !(self.chunk - 1));
        match self.area.bytes(first.offset, first.len) {
            Some(bytes) => {
                let hdr = requested(bytes, self.kernel_peer);
                Some(Arrived {
                    bytes,
                    hdr,
                    lasts: Some(sys::lasting(false)),
                    stamp: 0,
                })
            }
            None => {
                // Not in the area, so there is no chunk to give back. The rest of the burst comes with the next look.
                self.held = None;
                self.lost += 1;
                None
            }
        }
    }

    /// Assembles a frame that is longer than a chunk.
    #[cold]
    fn pieces<'a>(&mut self, buf: &'a mut [u8]) -> Option<Arrived<'a>> {
        let queue = &mut self.queues[self.at];
        let (mut len, mut count, mut whole) = (0, 0, true);
        loop {
            // `None`: the rest is not there yet.
            let piece = queue.rx.peek(count)?;
            count += 1;
            let bytes = self.area.bytes(piece.offset, piece.len);
            match bytes.and_then(|from| Some((buf.get_mut(len..len + from.len())?, from))) {
                Some((to, from)) => {
                    to.copy_from_slice(from);
                    len += from.len();
                }
                None => whole = false,
            }
            if !piece.goes_on() {
                break;
            }
            if count == PIECES {
                whole = false;
                break;
            }
        }
        for _ in 0..count {
            if let Some(piece) = queue.rx.peek(0)
                && self.area.bytes(piece.offset, piece.len).is_some()
            {
                queue.fill.push(piece.offset & !(self.chunk - 1));
            }
            queue.rx.pass(1);
        }
        if !whole {
            self.lost += 1;
            return None;
        }
        let bytes = &mut buf[..len];
        Some(Arrived {
            hdr: requested(bytes, self.kernel_peer),
            bytes,
            lasts: None,
            stamp: 0,
        })
    }

    /// Number of frames, since the last call, that the kernel or this half had no room for.
    pub fn lost(&mut self) -> u64 {
        // The kernel drops frames without room: nearly all chunks of a queue are then in its ring. To ask is a system call.
        for queue in self.queues.iter_mut().filter(|q| q.crowded) {
            queue.crowded = false;
            if let Ok(now) = sockopt::xdp_statistics(&*queue.socket) {
                // A frame that finds the fill ring empty is counted there and in `rx_dropped`; one that finds the receive
                // ring full, only in `rx_ring_full`.
                let sum = now.rx_dropped + now.rx_ring_full.unwrap_or(0);
                self.lost += sum.saturating_sub(queue.lost);
                queue.lost = sum;
            }
        }
        std::mem::take(&mut self.lost)
    }

    /// Descriptor to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match (&self.all, self.queues.first()) {
            (Some(all), _) => all.as_fd(),
            (None, Some(queue)) => queue.socket.as_fd(),
            (None, None) => self.port.link(),
        }
    }
}

impl Queue {
    /// Gives chunks and entries back to the kernel.
    fn give_back(&mut self) {
        self.rx.release();
        self.fill.publish();
        if self.fill.needs_wakeup() {
            // A driver that waits for chunks needs this call; its result does not matter.
            let _ = rustix::net::recv(&*self.socket, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
        }
    }
}

#[inline]
fn requested(bytes: &mut [u8], kernel_peer: bool) -> NetHdr {
    let hdr = if kernel_peer { unfinished(bytes) } else { None };
    hdr.unwrap_or_else(NetHdr::default)
}
