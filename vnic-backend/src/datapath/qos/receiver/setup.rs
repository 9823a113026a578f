//! Receivers come, change and go.

use std::sync::Arc;

use vnic_fabric::DropReason;
use vnic_fabric::switch::PortId;

use super::super::super::core::Core;
use super::super::super::outputs::{Slot, is_roce};
use super::super::QosChange;
use super::{CLASSES, Counted, Receiver, classifies};
use crate::types::QueueStatus;

impl Core {
    /// What is configured at a port counts from now on for what it is given. With `closed`: priorities that its wire's other
    /// end has stopped, a bit each.
    pub(in super::super) fn set_up_receiver(&mut self, port: PortId, closed: u8) {
        let now = self.now;
        let change = self.qos.acting(port, &self.out);
        let counters = match self.out.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => Counted::Guest(a.counters.clone()),
            Some(Slot::Uplink(p)) => Counted::Wire(p.counters.clone()),
            _ => return,
        };
        let mut receiver = match self.out.take_receiver(port) {
            Some(mut r) => {
                r.closed = closed;
                if *r.change == *change {
                    r.settle();
                } else {
                    r.configure(change, &mut self.out.signals, now);
                }
                r
            }
            None => {
                let needed = closed != 0 || change.qos.queues() || classifies(&change.qos);
                if !needed {
                    return;
                }
                let mut r = Box::new(Receiver::new(port, change, counters, now));
                r.closed = closed;
                for (source, change) in self.qos.all() {
                    if let Some(queue) = &change.qos.queue {
                        r.queues.set_guarantee(source.0, &queue.guarantee);
                    }
                }
                r
            }
        };
        receiver.tell(&mut self.out.signals, now);
        // The next round sees whether it is needed at all.
        self.out.list(&mut receiver);
        self.out.put_receiver(receiver);
        self.out.round.waiting.look();
    }

    /// A receiver was lost in a panic: nobody waits for it any more, and there is a new one.
    #[cold]
    pub fn mend_receiver(&mut self, port: PortId) {
        self.out.taken = None;
        self.out.queued.retain(|p| *p != port);
        self.out.signals.forget(port);
        let closed = match self.out.slots.get(usize::from(port.0)) {
            Some(Slot::Uplink(p)) => p.link.paused(),
            _ => 0,
        };
        self.set_up_receiver(port, closed);
        self.out.round.waiting.look();
    }

    /// A port is removed: what waits for it is gone with it.
    pub fn forget_receiver(&mut self, port: PortId) {
        let reason = DropReason::ReceiverDown;
        if let Some(mut r) = self.out.take_receiver(port) {
            self.out.drop_queued(&mut r, reason, |_| true);
            self.out.taken = None;
        }
        self.out.queued.retain(|p| *p != port);
        self.out.signals.forget(port);
        self.out.round.waiting.look();
        self.set_guarantees(port, None);
    }

    /// An adapter's guest, or a bond's member, is gone: what waits for it is dropped. Answers how many frames that is.
    pub fn drop_queued(&mut self, port: PortId) -> u64 {
        let Some(mut r) = self.out.take_receiver(port) else {
            return 0;
        };
        let before = r.queues.len();
        let roce = match self.out.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.takes_roce,
            _ => false,
        };
        let gone = |bytes: &[u8]| !(roce && is_roce(bytes));
        self.out.drop_queued(&mut r, DropReason::ReceiverDown, gone);
        // Who is not there does not stand still.
        r.moved = 0xff;
        self.out.list(&mut r);
        r.tell(&mut self.out.signals, self.now);
        let gone = before - r.queues.len();
        self.out.put_receiver(r);
        gone as u64
    }

    /// Every local receiver hears what the frames of a source are sure to get, or that the source is gone.
    fn set_guarantees(&mut self, source: PortId, guarantee: Option<&[u64; CLASSES]>) {
        for slot in &mut self.out.slots {
            let Some(Some(receiver)) = slot.receiver() else {
                continue;
            };
            match guarantee {
                Some(guarantee) => receiver.queues.set_guarantee(source.0, guarantee),
                None => receiver.queues.forget_source(source.0),
            }
        }
    }

    /// A port is configured so from now on, whoever serves it.
    pub fn set_receiver(&mut self, id: PortId, change: &Arc<QosChange>) {
        let guarantee = change.qos.queue.as_ref().map_or([0; CLASSES], |q| q.guarantee);
        self.set_guarantees(id, Some(&guarantee));
        let closed = match self.out.slots.get(usize::from(id.0)) {
            Some(Slot::Uplink(p)) => p.link.paused(),
            _ => 0,
        };
        self.set_up_receiver(id, closed);
        self.configure_link(id);
    }

    /// How the receiving side of a port stands.
    pub fn receiver_status(&mut self, id: PortId, status: &mut QueueStatus) {
        let slot = self.out.slots.get_mut(usize::from(id.0));
        if let Some(Slot::Uplink(p)) = &slot {
            status.paused |= p.link.paused();
            status.pausing |= p.link.told();
        }
        let Some(Some(r)) = slot.and_then(Slot::receiver) else {
            return;
        };
        status.bytes = r.lengths();
        status.frames += r.queues.len() as u64;
        status.storm = r.guard.is_tripped();
        status.stalled = r.lifetime.stalled();
        if !status.storm && matches!(r.counters, Counted::Guest(_)) {
            status.pausing |= r.buffers.pausing();
        }
    }
}
