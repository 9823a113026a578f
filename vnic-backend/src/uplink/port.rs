//! An uplink port, towards the wire.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vnic_engine::counters::PortCounter as P;
use vnic_engine::offload::Accepts;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::DropReason;
use vnic_wire::MacAddr;

use super::device::{SEND_BURST, Sent, TxHalf};
use crate::datapath::{BY_TAG, Gate, Link, OutFrame, PortCounters, Priorities, Receiver, Ticket, Way};
use crate::mem;

/// Frames waiting to be sent.
const STAGE_LIMIT: usize = 512;
/// Buffers kept for later.
const POOL: usize = 64;

/// Towards the wire.
pub struct PortTx {
    device: TxHalf,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// What the device takes unfinished.
    pub accepts: Accepts,
    staged: VecDeque<Staged>,
    pool: Vec<Vec<u8>>,
    /// Is it in the list of receivers to be flushed?
    pub touched: bool,
    /// Priority of the frame that comes next, as the port's receiver classifies it; [`BY_TAG`]: nobody does.
    pub priority: u8,
    /// Ticket of the frame that comes next, at a member of a bond.
    pub ticket: Option<Ticket>,
    /// Quality of service of what it is given, if anything is configured or its wire's other end says wait.
    pub receiver: Option<Box<Receiver>>,
    /// Flow control of its wire.
    pub link: Link,
    priorities: Priorities,
}

/// A frame that waits to be sent, behind the header that the device wants.
struct Staged {
    bytes: Vec<u8>,
    gate: Option<Gate>,
    priority: u8,
    /// The bond's, until it has left or was dropped.
    ticket: Option<Ticket>,
}

impl PortTx {
    /// For an open device.
    pub fn new(device: TxHalf, mac: MacAddr, counters: Arc<PortCounters>) -> Self {
        PortTx {
            link: Link::new(mac),
            accepts: device.accepts(),
            device,
            counters,
            staged: VecDeque::new(),
            pool: Vec::new(),
            touched: false,
            priority: BY_TAG,
            ticket: None,
            receiver: None,
            priorities: Priorities::default(),
        }
    }

    /// The device was opened again. What waited for the one before is lost with it.
    pub fn replace(&mut self, device: TxHalf) {
        self.drop_staged(DropReason::PortTransmit);
        self.accepts = device.accepts();
        self.device = device;
    }

    /// Drops what waits. Answers how many frames that is.
    pub fn drop_staged(&mut self, reason: DropReason) -> u64 {
        let frames = self.staged.len() as u64;
        self.staged.clear();
        self.counters.drops.add(reason as usize, frames);
        frames
    }

    /// Copies a frame for the wire. It leaves with [`PortTx::flush`].
    pub fn put(&mut self, f: &OutFrame<'_>, gate: Option<Gate>) -> Result<(), DropReason> {
        if self.staged.len() >= STAGE_LIMIT {
            self.count_drop(DropReason::PortTransmit);
            return Err(DropReason::PortTransmit);
        }
        let mut buf = self.pool.pop().unwrap_or_default();
        buf.clear();
        let header = self.device.header_len();
        buf.extend_from_slice(&f.hdr.emit(0)[..header]);
        buf.extend_from_slice(f.head);
        buf.resize(header + f.len(), 0);
        mem::gather(f.segs, f.skip, &mut buf[header + f.head.len()..]);
        self.staged.push_back(Staged {
            bytes: buf,
            gate,
            priority: self.priority,
            ticket: self.ticket.clone(),
        });
        Ok(())
    }

    /// Is there room for so many frames?
    pub fn has_room(&self, frames: usize) -> bool {
        self.staged.is_empty() || self.staged.len() + frames <= STAGE_LIMIT
    }

    /// Sends MAC control at once: it waits for nobody.
    pub fn send_control(&mut self, frame: &[u8]) {
        let header = NetHdr::default().emit(0);
        let bytes = [&header[..self.device.header_len()], frame].concat();
        // A device that is gone takes nothing; that is found out elsewhere.
        let _ = self.device.send(&[&bytes]);
    }

    /// Sends what its senders' cores have committed. False while frames are held back.
    pub fn flush(&mut self, open: impl Fn(Gate) -> bool) -> bool {
        loop {
            let ready = self
                .staged
                .iter()
                .take_while(|s| s.gate.is_none_or(&open))
                .take(SEND_BURST);
            let burst: ArrayVec<&[u8], SEND_BURST> = ready.map(|s| &s.bytes[..]).collect();
            if burst.is_empty() {
                return self.device.push() && self.staged.is_empty();
            }
            let answer = self.device.send(&burst);
            drop(burst);
            match answer {
                Sent::Some(n) => {
                    for _ in 0..n {
                        self.sent();
                    }
                    self.priorities.flush(&self.counters.link, Way::Sent);
                }
                Sent::Refused => {
                    self.count_drop(DropReason::PortTransmit);
                    self.recycle();
                }
                Sent::Full => return false,
            }
        }
    }

    /// Counts the first frame, which the device has taken.
    fn sent(&mut self) {
        let header = self.device.header_len();
        if let Some(Staged { bytes, priority, .. }) = self.staged.front() {
            let frame = bytes.get(header..).unwrap_or_default();
            self.priorities.frame(*priority, frame, frame.len() as u64);
            self.counters.io.add(P::TxFrames as usize, 1);
            self.counters.io.add(P::TxBytes as usize, frame.len() as u64);
        }
        self.recycle();
    }

    /// The first frame is done with.
    fn recycle(&mut self) {
        if let Some(Staged { bytes, ticket, .. }) = self.staged.pop_front() {
            drop(ticket);
            if self.pool.len() < POOL {
                self.pool.push(bytes);
            }
        }
    }

    /// Counts a frame that did not reach the wire.
    pub fn count_drop(&self, reason: DropReason) {
        self.counters.drops.add(reason as usize, 1);
    }
}
