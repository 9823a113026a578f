//! Interrupts to guests: sent at once, or coalesced (`engine::moderation` decides).

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::moderation::{Decision, Method, Moderation};
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::by_thread::ByThread;
use crate::call::notify;
use crate::ring::Ring;

pub use crate::call::Call;

/// Interrupts that are due within this time are sent together: a look at all that are owed is not free.
const TOGETHER: Duration = Duration::from_micros(8);

/// Interrupts of one ring to its guest.
pub struct Calls {
    call: Option<Arc<Call>>,
    /// The thread that interrupts in place of the data core.
    by: Option<ByThread>,
    moderation: Moderation,
    /// Used index that the guest saw before the first batch for which an interrupt is owed.
    from: u16,
    /// Available index of the ring at the last look.
    available: u16,
}

impl Calls {
    /// Interrupts through this eventfd.
    pub fn new(call: Option<Arc<Call>>, method: Method) -> Calls {
        Calls {
            call,
            by: None,
            moderation: Moderation::new(method),
            from: 0,
            available: 0,
        }
    }

    /// Whether an interrupt is owed.
    #[inline]
    pub fn owes(&self) -> bool {
        self.moderation.due().is_some()
    }

    /// When the owed interrupt is due.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        self.moderation.due()
    }

    /// Decides on an interrupt for used entries after `before`, which the ring has shown; `frames` counts all frames ever.
    #[inline(never)]
    pub fn shown(&mut self, ring: &Ring, before: u16, wanted: bool, now: Instant, frames: u64) -> Decision {
        let owed = self.owes();
        let from = if owed { self.from } else { before };
        let unseen = ring.distance(from, ring.published());
        if owed && unseen > ring.size() {
            // A ring shows no more than it holds: the guest has taken older entries.
            self.from = ring.lap_before(ring.published());
        }
        let decision = self
            .moderation
            .shown(now, wanted, frames, unseen >= ring.size() / 4);
        match decision {
            Decision::Interrupt => self.notify(),
            Decision::Later if !owed => (self.from, self.available) = (before, ring.available()),
            Decision::Later | Decision::Nothing => {}
        }
        decision
    }

    /// Sends an owed interrupt if it is due. True: it was sent.
    fn expire(&mut self, ring: &Ring, now: Instant) -> bool {
        if self.due().is_none_or(|due| due > now + TOGETHER) {
            return false;
        }
        let available = ring.available();
        let progress = std::mem::replace(&mut self.available, available) != available;
        let wanted = ring.wants_interrupt(self.from);
        let sent = self.moderation.expire(now, wanted, progress) == Decision::Interrupt;
        if sent {
            self.notify();
        }
        sent
    }

    /// Sends an owed interrupt now, because the ring stops. True: one was sent.
    pub fn settle(&mut self) -> bool {
        let owed = self.moderation.settle();
        if owed {
            self.notify();
        }
        owed
    }

    /// The moderation method.
    pub fn method(&self) -> Method {
        self.moderation.method()
    }

    /// Changes the moderation method. True: an owed interrupt was sent.
    pub fn set_method(&mut self, method: Method) -> bool {
        let owed = self.settle();
        self.moderation = Moderation::new(method);
        owed
    }

    /// Sets the call eventfd of the guest.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.call = call;
    }

    /// Lets a thread interrupt in place of the data core, or not.
    pub fn set_thread(&mut self, by: Option<ByThread>) {
        self.by = by;
    }

    /// Whether a thread interrupts in place of the data core.
    pub fn is_threaded(&self) -> bool {
        self.by.is_some()
    }

    /// Interrupts the guest.
    fn notify(&self) {
        match (&self.call, &self.by) {
            (Some(call), Some(by)) => by.call(call),
            (call, _) => notify(call.as_deref()),
        }
    }

    /// Changes of the profile since the last call.
    pub fn take_transitions(&mut self) -> u64 {
        self.moderation.take_transitions()
    }
}

/// A ring with moderated interrupts.
pub trait Caller {
    /// The interrupts of the ring, and the ring.
    fn calls(&mut self) -> (&mut Calls, &Ring);
    /// Counts a sent interrupt.
    fn count_call(&self);

    /// Sends an interrupt that is due. Returns when the one that is still owed is due.
    fn call_due(&mut self, now: Instant) -> Option<Instant> {
        let (calls, ring) = self.calls();
        let sent = calls.expire(ring, now);
        let due = calls.due();
        if sent {
            self.count_call();
        }
        due
    }

    /// Sends an owed interrupt now, because the ring stops.
    fn settle_calls(&mut self) {
        if self.calls().0.settle() {
            self.count_call();
        }
    }

    /// Changes the moderation method, if it is another, and who interrupts: a thread, or the data core.
    fn follow_method(&mut self, method: Method, by: Option<&ByThread>) {
        self.calls().0.set_thread(by.cloned());
        if self.calls().0.method() != method {
            self.set_method(method);
        }
    }

    /// Changes the moderation method.
    fn set_method(&mut self, method: Method) {
        if self.calls().0.set_method(method) {
            self.count_call();
        }
    }
}

/// Owed interrupts of a core.
pub struct Owed {
    /// Time before which no interrupt is due.
    pub next: Instant,
    /// Receive queues that may owe an interrupt.
    queues: Vec<(PortId, u8)>,
}

impl Default for Owed {
    fn default() -> Self {
        Owed {
            next: Instant(u64::MAX),
            queues: Vec::new(),
        }
    }
}

impl Owed {
    /// Lets each queue send its interrupt if it is due; `queue` returns when the queue's next one is due.
    pub fn settle(&mut self, mut queue: impl FnMut(PortId, u8) -> Option<Instant>) {
        let mut next = Instant(u64::MAX);
        self.queues.retain(|&(port, q)| {
            let due = queue(port, q);
            next = due.map_or(next, |due| next.min(due));
            due.is_some()
        });
        self.next = next;
    }

    /// Records that a ring owes an interrupt until then.
    #[inline]
    pub fn until(&mut self, due: Instant) {
        self.next = self.next.min(due);
    }

    /// Records that a receive queue owes an interrupt until then.
    pub fn by(&mut self, port: PortId, queue: u8, due: Instant) {
        self.until(due);
        if !self.queues.contains(&(port, queue)) {
            self.queues.push((port, queue));
        }
    }
}
