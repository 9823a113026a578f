//! A frame for a port with configured quality of service: the frame goes at once, waits, or is dropped.

use vnic_engine::counters::{PriorityCounter as P, QueueCounter as Q};
use vnic_engine::offload::{self, Accepts, HEAD_MAX, Request};
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::qos::{Entry, HintAction, Verdict, WIRE_OVERHEAD};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, TagEdit};

use super::super::super::frame::{Metadata, OutFrame, OwnedFrame, RawFrame, for_receiver};
use super::super::Outputs;
use super::super::concern::{INBOUND_MAX, is_roce};
use super::super::receiver::{Counted, Receiver, mark};
use super::super::slot::Slot;

/// Size of a frame at its receiver.
struct Needs {
    /// Bytes on the wire.
    wire: u32,
    /// Frames that the receiver gets.
    frames: usize,
    /// Bytes of the longest frame that the receiver gets.
    longest: usize,
}

/// Size of a frame at its receiver; `None`: its offload request is invalid.
#[inline]
fn measure(f: &RawFrame<'_>, tag: TagEdit, accepts: &Accepts) -> Option<Needs> {
    let shift = match tag {
        TagEdit::Push(_) => 4,
        TagEdit::Pop => -4,
        TagEdit::Keep | TagEdit::Replace(_) => 0,
    };
    let len = f.len.saturating_add_signed(shift);
    let one = Needs {
        wire: len as u32 + WIRE_OVERHEAD,
        frames: 1,
        longest: len,
    };
    if f.hdr.gso_type == NetHdr::GSO_NONE {
        return Some(one);
    }
    let head = &f.head[..f.head.len().min(HEAD_MAX)];
    let request = offload::check(&f.hdr, head, f.len).ok()?;
    let Request::Tso(tso) = request else {
        return Some(one);
    };
    let headers = tso.head_len.saturating_add_signed(shift);
    let payload = f.len.saturating_sub(tso.head_len);
    let frames = payload.div_ceil(tso.gso_size.max(1)).max(1);
    let wire = payload + frames * (headers + WIRE_OVERHEAD as usize);
    let whole = request.accepted_by(accepts);
    Some(Needs {
        wire: wire as u32,
        frames: if whole { 1 } else { frames },
        longest: if whole {
            len
        } else {
            headers + tso.gso_size.min(payload)
        },
    })
}

impl Outputs {
    /// Takes the receiving side of a port out of its place, so that it and its port can be used at once.
    #[inline]
    pub fn take_receiver(&mut self, port: PortId) -> Option<Box<Receiver>> {
        let receiver = self.slots.get_mut(usize::from(port.0))?.receiver()?.take()?;
        self.taken = Some(port);
        Some(receiver)
    }

    /// Puts a receiving side back in its place.
    #[inline]
    pub fn put_receiver(&mut self, receiver: Box<Receiver>) {
        if let Some(place) = self
            .slots
            .get_mut(usize::from(receiver.port.0))
            .and_then(Slot::receiver)
        {
            *place = Some(receiver);
        }
        self.taken = None;
    }

    /// Whether a frame may have to wait at a local adapter. All frames must then go through [`Outputs::give`].
    #[inline]
    pub fn queues_at(&self, port: PortId) -> bool {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.receiver.as_ref().is_some_and(|r| r.queues_frames()),
            _ => false,
        }
    }

    /// Adds a receiver to those that are served each round.
    pub(super) fn list(&mut self, receiver: &mut Receiver) {
        if !receiver.listed {
            receiver.listed = true;
            self.queued.push(receiver.port);
        }
    }

    /// Whether the receiver can take `frames` frames of `len` bytes each.
    #[inline]
    pub(super) fn has_room(&mut self, port: PortId, f: &OutFrame<'_>, len: usize, frames: usize) -> bool {
        let inbound = self.round.inbound.len();
        match self.slots.get_mut(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => {
                if a.takes_roce && is_roce(f.head) {
                    return inbound < INBOUND_MAX;
                }
                match a.queue_for(f) {
                    Some(q) => match a.queues.get_mut(usize::from(q)) {
                        Some(Some(rx)) => rx.has_room(len, frames),
                        _ => true,
                    },
                    None => true,
                }
            }
            Some(Slot::Uplink(p)) => p.has_room(frames),
            _ => true,
        }
    }

    /// How full the queues to the guest are, in thousandths: the larger of the used buffer of the port and of the buffers
    /// that the guest has not given back with the frames that wait for them.
    fn fill(&mut self, r: &Receiver, f: &OutFrame<'_>) -> u32 {
        let thousandths = |part: u64, all: u64| {
            let fill = part.saturating_mul(1000).checked_div(all).unwrap_or(0);
            u32::try_from(fill.min(1000)).unwrap_or(1000)
        };
        let waits = thousandths(r.buffers.used(), r.change.qos.buffer.size.into());
        let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(r.port.0)) else {
            return waits;
        };
        let reserve = a.reserve();
        let Some(Some(rx)) = a.queue_for(f).and_then(|q| a.queues.get_mut(usize::from(q))) else {
            return waits;
        };
        let (behind, most) = rx.behind();
        let guest = thousandths((behind + rx.parked().len()) as u64, (most + reserve) as u64);
        waits.max(guest)
    }

    /// Sends a frame, lets it wait or drops it, at a port with configured quality of service.
    pub fn give_queued(&mut self, r: &mut Receiver, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        let priority = r.priority(f.head, e.tag);
        let meta = &Metadata {
            priority,
            ..meta.clone()
        };
        let accepts = match self.slots.get(usize::from(e.port.0)) {
            Some(Slot::Adapter(a)) => a.accepts,
            _ => Accepts::NONE,
        };
        let needs = if r.queues_frames() && self.receives(e.port) {
            measure(f, e.tag, &accepts)
        } else {
            None
        };
        // Frames that need not wait, that no receiver takes, or whose request is invalid, go past the queues.
        let Some(needs) = needs else {
            return self.give_now(e, f, meta);
        };
        let now = self.round.now;
        let bit = 1u8 << priority;
        let lossless = r.lossless & bit != 0;
        let mut edited;
        let mut f = *f;
        if r.change.qos.hint.enable
            && !lossless
            && let Some(at) = mark::tcp(f.head)
        {
            let fill = self.fill(r, &f.whole());
            match r.congestion.hint.judge(r.change.qos.hint, fill) {
                HintAction::Off => {}
                HintAction::Mark => {
                    edited = [0; HEAD_MAX];
                    let n = f.head.len().min(HEAD_MAX);
                    edited[..n].copy_from_slice(&f.head[..n]);
                    // Packets whose ends do not speak ECN go as they are: "mark" drops none.
                    if mark::mark(&mut edited[..n], at) {
                        f.head = &edited[..n];
                        let block = &r.counters.link().priorities[usize::from(priority)];
                        block.add(P::RxMarked as usize, 1);
                        self.count_marked(r, f.head, at);
                    }
                }
                HintAction::Drop => {
                    return self.refuse(r, priority, &f, needs.frames, DropReason::CongestionHint);
                }
            }
        }
        let level = r.level(f.head, e.tag, priority);
        let mut entry = Entry {
            source: meta.source.0,
            priority,
            level,
            colour: r.colour(f.head, e.tag),
            wire: needs.wire,
            bytes: 0,
            since: now,
        };
        let room = !lossless || self.has_room(e.port, &f.whole(), needs.longest, needs.frames);
        let from = (entry.source, level);
        if room && r.queues.pass_from(now, from, needs.wire, r.closed | r.blocked) {
            let class = r.queues.class(entry.source, level);
            r.passed(priority, class);
            if r.stamps(&f) {
                return self.give_stamped(r, (e, class), &f, meta);
            }
            return self.give_now(e, &f, meta);
        }
        let Outputs {
            bounce, round, pool, ..
        } = self;
        let finished = for_receiver(&f, e.tag, &accepts, bounce, |out| {
            entry.bytes = (out.len() + OwnedFrame::COST) as u32;
            if out.hdr.gso_type == NetHdr::GSO_NONE {
                entry.wire = out.len() as u32 + WIRE_OVERHEAD;
            }
            let verdict = match r.congestion.marks {
                true => r.judge(&entry, out.head),
                false => Verdict::Pass,
            };
            let admitted = match verdict {
                Verdict::Drop => Err(DropReason::Wred),
                _ => r.buffers.admit(entry.source, priority, entry.bytes),
            };
            let copy = admitted.and_then(|()| {
                pool.copy(out, meta.counted()).ok_or_else(|| {
                    r.buffers.release(entry.source, priority, entry.bytes);
                    DropReason::EgressFull
                })
            });
            match copy {
                Ok(mut frame) => {
                    if verdict == Verdict::Mark {
                        r.mark(priority, &mut frame.bytes);
                    }
                    r.push(entry, frame);
                }
                Err(reason) => {
                    r.count_drop(priority, reason);
                    round.offer(e.port, out, Some(reason), None);
                }
            }
        });
        self.count_finished(meta, finished);
        if let Err(reason) = finished {
            r.counters.drop(reason, 1);
        }
        if !room {
            r.blocked |= bit;
        }
        self.list(r);
        r.signal(&mut self.signals, now);
        self.round.waiting.look();
    }

    /// Sends a frame that need not wait, with the record of its queue.
    #[cold]
    fn give_stamped(
        &mut self,
        r: &mut Receiver,
        (e, class): (Egress, u8),
        f: &RawFrame<'_>,
        meta: &Metadata,
    ) {
        let Outputs { bounce, pool, .. } = self;
        let mut copy = None;
        // (RoCE for an RDMA function or a wire is complete: nothing is cut.)
        let finished = for_receiver(f, e.tag, &Accepts::NONE, bounce, |out| {
            copy = pool.copy(out, meta.counted());
        });
        let Some(mut frame) = copy else {
            return self.give_now(e, f, meta);
        };
        self.count_finished(meta, finished);
        r.stamp(self.round.now, class, &mut frame.bytes);
        self.leave(e.port, frame);
    }

    /// Counts a packet that the hint has marked, whose IP header is at `at`, at the queue that gets it.
    #[cold]
    fn count_marked(&mut self, r: &Receiver, head: &[u8], at: usize) {
        let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(r.port.0)) else {
            return;
        };
        let counter = match head.get(at).map(|byte| byte >> 4) {
            Some(6) => Q::RxMarkedIpv6,
            _ => Q::RxMarkedIpv4,
        };
        if let (Counted::Guest(counters), Some(queue)) = (&r.counters, a.queue_for(&OutFrame::of(head)))
            && let Some(block) = counters.queues.get(usize::from(queue))
        {
            block.add(counter as usize, 1);
        }
    }

    /// Drops a frame before it waits, and counts the frames that its request would have made.
    fn refuse(&mut self, r: &Receiver, priority: u8, f: &RawFrame<'_>, frames: usize, reason: DropReason) {
        r.count_drops(priority, reason, frames as u64);
        self.round.offer(r.port, &f.whole(), Some(reason), None);
    }
}
