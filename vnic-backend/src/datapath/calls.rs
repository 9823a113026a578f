//! Interrupts to guests: sent at once, or owed for a while (`engine::moderation` decides).

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::moderation::{Decision, Method, Moderation};
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use crate::call::notify;
use crate::ring::SplitRing;

pub use crate::call::Call;

/// Interrupts that are due so soon are sent together: a look at all that are owed is not free.
const TOGETHER: Duration = Duration::from_micros(8);

/// How the guest hears of one ring.
pub struct Calls {
    call: Option<Arc<Call>>,
    moderation: Moderation,
    /// What the guest saw before the first batch for which it is owed an interrupt.
    from: u16,
    /// Buffers that it had made available when that was last looked at.
    available: u16,
}

impl Calls {
    /// Through this descriptor.
    pub fn new(call: Option<Arc<Call>>, method: Method) -> Calls {
        Calls {
            call,
            moderation: Moderation::new(method),
            from: 0,
            available: 0,
        }
    }

    /// Is an interrupt owed?
    #[inline]
    pub fn owes(&self) -> bool {
        self.moderation.due().is_some()
    }

    /// Until when.
    #[inline]
    pub fn due(&self) -> Option<Instant> {
        self.moderation.due()
    }

    /// The ring has shown what is behind `before`; `frames` is how many frames ever.
    #[inline(never)]
    pub fn shown(
        &mut self,
        ring: &SplitRing,
        before: u16,
        wanted: bool,
        now: Instant,
        frames: u64,
    ) -> Decision {
        let owed = self.owes();
        let from = if owed { self.from } else { before };
        let unseen = ring.published().wrapping_sub(from);
        if owed && unseen > ring.size() {
            // A ring shows no more than it holds: what is older was taken.
            self.from = ring.published().wrapping_sub(ring.size());
        }
        let decision = self
            .moderation
            .shown(now, wanted, frames, unseen >= ring.size() / 4);
        match decision {
            Decision::Interrupt => notify(self.call.as_deref()),
            Decision::Later if !owed => (self.from, self.available) = (before, ring.available()),
            Decision::Later | Decision::Nothing => {}
        }
        decision
    }

    /// An interrupt may be due. True if it was sent.
    fn expire(&mut self, ring: &SplitRing, now: Instant) -> bool {
        if self.due().is_none_or(|due| due > now + TOGETHER) {
            return false;
        }
        let available = ring.available();
        let progress = std::mem::replace(&mut self.available, available) != available;
        let wanted = ring.wants_interrupt(self.from);
        let sent = self.moderation.expire(now, wanted, progress) == Decision::Interrupt;
        if sent {
            notify(self.call.as_deref());
        }
        sent
    }

    /// Sends what is owed now, because the ring stops. True if that was something.
    pub fn settle(&mut self) -> bool {
        let owed = self.moderation.settle();
        if owed {
            notify(self.call.as_deref());
        }
        owed
    }

    /// Another method from now on. True if an interrupt was owed and sent.
    pub fn set_method(&mut self, method: Method) -> bool {
        let owed = self.settle();
        self.moderation = Moderation::new(method);
        owed
    }

    /// Interrupts the guest here from now on.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.call = call;
    }

    /// Changes of the profile since this was last asked.
    pub fn take_transitions(&mut self) -> u64 {
        self.moderation.take_transitions()
    }
}

/// A ring whose guest may be owed an interrupt.
pub trait Caller {
    /// Its interrupts, and the ring.
    fn calls(&mut self) -> (&mut Calls, &SplitRing);
    /// An interrupt was sent.
    fn count_call(&self);

    /// Sends an interrupt that is due. Answers until when one is still owed.
    fn call_due(&mut self, now: Instant) -> Option<Instant> {
        let (calls, ring) = self.calls();
        let sent = calls.expire(ring, now);
        let due = calls.due();
        if sent {
            self.count_call();
        }
        due
    }

    /// Sends what is owed now, because the ring stops.
    fn settle_calls(&mut self) {
        if self.calls().0.settle() {
            self.count_call();
        }
    }

    /// Another method from now on.
    fn set_method(&mut self, method: Method) {
        if self.calls().0.set_method(method) {
            self.count_call();
        }
    }
}

/// Interrupts that a core owes.
pub struct Owed {
    /// No interrupt is due before.
    pub next: Instant,
    /// Receive queues that may owe one.
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
    /// Asks each queue for its interrupt if it is due; it says until when it owes one, if it does.
    pub fn settle(&mut self, mut queue: impl FnMut(PortId, u8) -> Option<Instant>) {
        let mut next = Instant(u64::MAX);
        self.queues.retain(|&(port, q)| {
            let due = queue(port, q);
            next = due.map_or(next, |due| next.min(due));
            due.is_some()
        });
        self.next = next;
    }

    /// A ring owes an interrupt until then.
    #[inline]
    pub fn until(&mut self, due: Instant) {
        self.next = self.next.min(due);
    }

    /// A receive queue owes an interrupt until then.
    pub fn by(&mut self, port: PortId, queue: u8, due: Instant) {
        self.until(due);
        if !self.queues.contains(&(port, queue)) {
            self.queues.push((port, queue));
        }
    }
}
