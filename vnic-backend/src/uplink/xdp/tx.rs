//! Sending half: frames to the wire.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::Attached;
use super::memory::{Area, Filled, Given, Piece};
use crate::uplink::frames::{SEND_BURST, Sent};

/// Calls in a row in which the kernel takes nothing, before it is left alone.
const IDLE_CALLS: usize = 3;

/// The sending half of a port: one queue of the device, so that frames stay in order.
pub struct XdpTx {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) tx: Given<Piece>,
    pub(super) completed: Filled<u64>,
    pub(super) area: Area,
    /// Bytes of a chunk, a power of two.
    pub(super) chunk: usize,
    /// Chunks that are not the kernel's.
    pub(super) free: Vec<u64>,
    /// Bytes of the longest frame.
    pub(super) longest: usize,
    /// Whether the driver reads the ring by itself once it was woken. Otherwise only a system call sends.
    pub(super) zero_copy: bool,
    /// Whether the kernel has reported that the device is switched off or gone.
    pub(super) down: bool,
    pub(super) _port: Arc<Attached>,
}

impl XdpTx {
    /// Sends frames, at most [`SEND_BURST`].
    pub fn send(&mut self, frames: &[&[u8]]) -> Sent {
        if self.down {
            // A call finds out whether it still is. Frames in the ring would leave much too late, when the device comes back.
            self.down = false;
            self.call();
            if self.down {
                return Sent::Refused;
            }
        }
        self.reap();
        let mut taken = 0;
        for frame in frames.iter().take(SEND_BURST) {
            if frame.is_empty() || frame.len() > self.longest {
                if taken == 0 {
                    return Sent::Refused;
                }
                break;
            }
            if !self.place(frame) {
                break;
            }
            taken += 1;
        }
        if taken > 0 {
            self.tx.publish();
        }
        self.push();
        if taken == 0 { Sent::Full } else { Sent::Some(taken) }
    }

    /// Sends frames that were taken and have not left. True: nothing is left to do for them.
    pub fn push(&mut self) -> bool {
        if self.zero_copy {
            if self.tx.waiting() > 0 && self.tx.needs_wakeup() {
                self.call();
            }
            return true;
        }
        let mut waiting = self.tx.waiting();
        let mut idle = 0;
        // A call sends a batch, and returns EAGAIN if there is more.
        while waiting > 0 && idle < IDLE_CALLS && !self.down {
            self.call();
            let now = self.tx.waiting();
            idle = if now < waiting { 0 } else { idle + 1 };
            waiting = now;
        }
        waiting == 0 || self.down
    }

    fn call(&mut self) {
        match rustix::net::send(&*self.socket, &[], SendFlags::DONTWAIT) {
            // EBUSY: the device has dropped a frame, as a link without a receiver does.
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
            Err(_) => self.down = true,
        }
    }

    /// Copies a frame into chunks and the ring, if there is room for all of it.
    fn place(&mut self, frame: &[u8]) -> bool {
        let count = frame.len().div_ceil(self.chunk);
        if self.free.len() < count {
            return false;
        }
        // The ring has an entry for each chunk, so it has room.
        let mut left = count;
        for bytes in frame.chunks(self.chunk) {
            let Some(at) = self.free.pop() else { return false };
            left -= 1;
            if let Some(to) = self.area.bytes(at, bytes.len() as u32) {
                to.copy_from_slice(bytes);
            }
            self.tx.push(Piece::new(at, bytes.len() as u32, left > 0));
        }
        true
    }

    /// Takes back the chunks of sent frames.
    fn reap(&mut self) {
        let ready = self.completed.ready();
        for _ in 0..ready {
            let Some(at) = self.completed.peek(0) else { break };
            self.completed.pass(1);
            let at = at & !(self.chunk as u64 - 1);
            // More chunks than there are would be an error of the kernel: the ring's room depends on their number.
            if self.free.len() < self.free.capacity() && self.area.bytes(at, self.chunk as u32).is_some() {
                self.free.push(at);
            }
        }
        if ready > 0 {
            self.completed.release();
        }
    }
}
