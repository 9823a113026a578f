//! Sending side of an uplink port, towards the wire.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vnic_engine::counters::PortCounter as P;
use vnic_engine::offload::Accepts;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::DropReason;
use vnic_fabric::qos::Tpid;
use vnic_fabric::switch::PortId;
use vnic_wire::MacAddr;

use super::device::TxHalf;
use super::frames::{SEND_BURST, Sent};
use super::packet::Train;
use crate::datapath::{
    FRAME_MAX, Gate, Link, Metadata, OutFrame, PortCounters, Priorities, Receiver, Ticket, Way,
};
use crate::mem;

/// Largest number of frames that wait to be sent.
const STAGE_LIMIT: usize = 512;
/// Largest number of free buffers that are kept.
const POOL: usize = 2 * SEND_BURST;
/// Largest number of free buffers of trains that are kept.
const TRAINS: usize = 16;
/// Bytes before a frame in its buffer, for the header that a device needs.
const ROOM: usize = 16;

/// A buffer with one frame, and room before it. Old bytes stay, so that nothing has to be cleared.
#[derive(Default)]
pub struct FrameBuf {
    bytes: Vec<u8>,
    len: usize,
}

impl FrameBuf {
    /// The buffer as a frame of this length, with any bytes.
    pub fn frame(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < ROOM + len {
            self.bytes.resize(ROOM + len, 0);
        }
        self.len = len;
        &mut self.bytes[ROOM..ROOM + len]
    }

    /// The frame behind a header of this length.
    fn with_header(&self, header: usize) -> &[u8] {
        &self.bytes[ROOM - header..ROOM + self.len]
    }

    /// As [`FrameBuf::with_header`], to be changed.
    fn with_header_mut(&mut self, header: usize) -> &mut [u8] {
        &mut self.bytes[ROOM - header..ROOM + self.len]
    }

    /// Becomes a copy with room for a train.
    fn copy_of(&mut self, other: &FrameBuf) {
        self.frame(FRAME_MAX);
        self.len = other.len;
        let used = ..ROOM + other.len;
        self.bytes[used].copy_from_slice(&other.bytes[used]);
    }

    /// Appends bytes to the frame.
    fn append(&mut self, more: &[u8]) {
        let end = ROOM + self.len;
        self.bytes[end..end + more.len()].copy_from_slice(more);
        self.len += more.len();
    }
}

/// Sending side of an uplink port, on the core that serves it.
pub struct PortTx {
    device: TxHalf,
    /// Counters of the port.
    pub counters: Arc<PortCounters>,
    /// Offloads that the device accepts.
    pub accepts: Accepts,
    staged: VecDeque<Staged>,
    /// Number of frames in `staged`.
    waiting: usize,
    pool: Vec<FrameBuf>,
    trains: Vec<FrameBuf>,
    /// Whether the port is in the list of receivers to be flushed.
    pub touched: bool,
    /// Queues of the port, if quality of service is configured or the peer has paused it.
    pub receiver: Option<Box<Receiver>>,
    /// Flow control of the link.
    pub link: Link,
    /// Tags on the wire.
    tpid: Tpid,
    priorities: Priorities,
}

/// A frame that waits to be sent, behind the header that the device needs; or several that leave as one.
struct Staged {
    buf: FrameBuf,
    /// The train, if other frames may join.
    train: Option<Train>,
    frames: usize,
    /// Bytes of all frames.
    bytes: usize,
    /// Metadata of the first frame, which counts for all. A bond's ticket lives until the frames have left or were dropped.
    meta: Metadata,
}

impl Staged {
    /// Joins the frame of a buffer, if both may leave as one. A buffer of `trains` has room for both; the first one's buffer
    /// goes to `pool`.
    fn join(
        &mut self,
        buf: &FrameBuf,
        header: usize,
        trains: &mut Vec<FrameBuf>,
        pool: &mut Vec<FrameBuf>,
    ) -> bool {
        let Some(train) = &mut self.train else {
            return false;
        };
        let frame = buf.with_header(header);
        let Some(from) = train.take(self.buf.with_header(header), frame) else {
            return false;
        };
        if self.frames == 1 {
            let mut long = trains.pop().unwrap_or_default();
            long.copy_of(&self.buf);
            pool.push(std::mem::replace(&mut self.buf, long));
        }
        self.buf.append(&frame[from..]);
        self.count(buf.len);
        true
    }

    /// Lets `emit` write a frame behind others, if it may leave with them: its headers temporarily overwrite the end of the
    /// frame before it.
    #[inline]
    fn build(&mut self, len: usize, header: usize, emit: impl Fn(&mut [u8]) -> Option<()>) -> bool {
        let Some(train) = self.train.as_mut().filter(|_| self.frames > 1) else {
            return false;
        };
        let end = ROOM + self.buf.len;
        let from = end - train.head();
        let bytes = &mut self.buf.bytes;
        // The headers of the first frame stay.
        if from < ROOM + train.head() || from + header + len > bytes.len() {
            return false;
        }
        let mut saved = [0; Train::HEAD_MAX];
        let saved = &mut saved[..train.head()];
        saved.copy_from_slice(&bytes[from..end]);
        let (device, frame) = bytes[from..from + header + len].split_at_mut(header);
        device.fill(0);
        let stays = emit(frame).is_some()
            && train
                .take(&bytes[ROOM - header..end], &bytes[from..from + header + len])
                .is_some();
        bytes[from..end].copy_from_slice(saved);
        if stays {
            self.buf.len = from + header + len - ROOM;
            self.count(len);
        }
        stays
    }

    fn count(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
    }

    /// Bytes for the device.
    fn message(&mut self, header: usize) -> &[u8] {
        if self.frames > 1
            && let Some(train) = &self.train
        {
            train.close(self.buf.with_header_mut(header));
        }
        self.buf.with_header(header)
    }
}

/// The last waiting entry, if a frame with this metadata may leave with it.
#[inline]
fn last<'a>(staged: &'a mut VecDeque<Staged>, meta: &Metadata) -> Option<&'a mut Staged> {
    let slot = |m: &Metadata| m.ticket.as_ref().map(Ticket::slot);
    let alike = |last: &Staged| {
        (last.meta.gate, last.meta.priority) == (meta.gate, meta.priority) && slot(&last.meta) == slot(meta)
    };
    staged.back_mut().filter(|last| alike(last))
}

impl PortTx {
    /// Sending side of an open device.
    pub fn new(device: TxHalf, mac: MacAddr, counters: Arc<PortCounters>) -> Self {
        PortTx {
            link: Link::new(mac),
            accepts: device.accepts(),
            device,
            counters,
            staged: VecDeque::new(),
            waiting: 0,
            pool: Vec::new(),
            trains: Vec::new(),
            touched: false,
            receiver: None,
            tpid: Tpid::default(),
            priorities: Priorities::default(),
        }
    }

    /// Sets the TPID of tags on the wire. With another than 0x8100 the device, which would look for that, is given finished frames.
    pub fn set_tpid(&mut self, tpid: Tpid) {
        if tpid != self.tpid {
            self.tpid = tpid;
            self.accepts = self.accepted();
        }
    }

    fn accepted(&self) -> Accepts {
        match self.tpid.is_plain() {
            true => self.device.accepts(),
            false => Accepts::NONE,
        }
    }

    /// Replaces the device after it was opened again. Frames that waited for the old one are lost.
    pub fn replace(&mut self, device: TxHalf) {
        self.drop_staged(DropReason::PortTransmit);
        self.device = device;
        self.accepts = self.accepted();
    }

    /// Drops waiting frames. Returns their number.
    pub fn drop_staged(&mut self, reason: DropReason) -> u64 {
        let frames = std::mem::take(&mut self.waiting) as u64;
        self.staged.clear();
        self.counters.drops.add(reason as usize, frames);
        frames
    }

    /// Takes a copy of a frame for the wire. It leaves with [`PortTx::flush`].
    pub fn put(&mut self, f: &OutFrame<'_>, meta: &Metadata) -> Result<(), DropReason> {
        if self.waiting >= STAGE_LIMIT {
            self.count_drop(DropReason::PortTransmit);
            return Err(DropReason::PortTransmit);
        }
        let mut buf = self.pool.pop().unwrap_or_default();
        let (head, tail) = buf.frame(f.len()).split_at_mut(f.head.len());
        head.copy_from_slice(f.head);
        let done = mem::gather(f.segs, f.skip, tail);
        // No bytes of an earlier frame may go out.
        tail[done..].fill(0);
        self.tag(&mut buf);
        let header = self.device.header_len();
        buf.with_header_mut(header)[..header].copy_from_slice(&f.hdr.emit(0)[..header]);
        self.stage(buf, meta);
        Ok(())
    }

    /// Takes a frame of this length that `emit` writes: directly behind other frames if it may leave with them, so that it is
    /// not copied. If `emit` returns `None`, there is no frame.
    #[inline]
    pub fn build(&mut self, len: usize, emit: impl Fn(&mut [u8]) -> Option<()>) {
        if self.waiting >= STAGE_LIMIT {
            return self.count_drop(DropReason::PortTransmit);
        }
        let header = self.device.header_len();
        let meta = Metadata::of(PortId(0));
        if self.tpid.is_plain()
            && let Some(last) = last(&mut self.staged, &meta)
            && last.build(len, header, &emit)
        {
            self.waiting += 1;
            return;
        }
        let mut buf = self.pool.pop().unwrap_or_default();
        if emit(buf.frame(len)).is_none() {
            return self.keep(buf);
        }
        self.tag(&mut buf);
        buf.with_header_mut(header)[..header].copy_from_slice(&NetHdr::default().emit(0)[..header]);
        self.stage(buf, &meta);
    }

    /// Gives a frame the tag of the wire.
    #[inline]
    fn tag(&self, buf: &mut FrameBuf) {
        if !self.tpid.is_plain() {
            self.tpid.give(buf.with_header_mut(0));
        }
    }

    /// Queues a frame, joined to those before it or by itself.
    fn stage(&mut self, buf: FrameBuf, meta: &Metadata) {
        self.waiting += 1;
        let header = self.device.header_len();
        if let Some(last) = last(&mut self.staged, meta)
            && last.join(&buf, header, &mut self.trains, &mut self.pool)
        {
            return self.keep(buf);
        }
        let joins = self.device.joins();
        self.staged.push_back(Staged {
            train: joins.then(|| Train::of(buf.with_header(header))).flatten(),
            frames: 1,
            bytes: buf.len,
            buf,
            meta: meta.clone(),
        });
    }

    /// Keeps a buffer for later.
    fn keep(&mut self, buf: FrameBuf) {
        if self.pool.len() < POOL {
            self.pool.push(buf);
        }
    }

    /// Whether there is room for this many frames.
    pub fn has_room(&self, frames: usize) -> bool {
        self.waiting == 0 || self.waiting + frames <= STAGE_LIMIT
    }

    /// Sends MAC control at once, before all waiting frames.
    pub fn send_control(&mut self, frame: &[u8]) {
        let header = NetHdr::default().emit(0);
        let bytes = [&header[..self.device.header_len()], frame].concat();
        // A lost device takes nothing, and the receiving half notices the loss.
        let _ = self.device.send(&[&bytes]);
    }

    /// Sends frames that their senders' cores have committed. False: frames are held back.
    pub fn flush(&mut self, open: impl Fn(Gate) -> bool) -> bool {
        loop {
            let ready = self
                .staged
                .iter_mut()
                .take_while(|s| s.meta.gate.is_none_or(&open))
                .take(SEND_BURST);
            let header = self.device.header_len();
            let burst: ArrayVec<&[u8], SEND_BURST> = ready.map(|s| s.message(header)).collect();
            if burst.is_empty() {
                drop(burst);
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
                    let frames = self.recycle();
                    self.counters.drops.add(DropReason::PortTransmit as usize, frames);
                }
                Sent::Full => return false,
            }
        }
    }

    /// Counts the first entry, which the device has taken.
    fn sent(&mut self) {
        if let Some(first) = self.staged.front() {
            let (frames, bytes) = (first.frames as u64, first.bytes as u64);
            self.priorities
                .frames(first.meta.priority, first.buf.with_header(0), frames, bytes);
            self.counters.io.add(P::TxFrames as usize, frames);
            self.counters.io.add(P::TxBytes as usize, bytes);
        }
        self.recycle();
    }

    /// Removes the first entry. Returns its number of frames.
    fn recycle(&mut self) -> u64 {
        let Some(Staged { buf, frames, .. }) = self.staged.pop_front() else {
            return 0;
        };
        self.waiting -= frames;
        if frames == 1 {
            self.keep(buf);
        } else if self.trains.len() < TRAINS {
            self.trains.push(buf);
        }
        frames as u64
    }

    /// Counts a frame that did not reach the wire.
    pub fn count_drop(&self, reason: DropReason) {
        self.counters.drops.add(reason as usize, 1);
    }
}

#[cfg(test)]
mod tests;
