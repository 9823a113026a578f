//! Queues of a port, and which of them goes next: strict classes, then ETS by deficit in bytes on the wire; within a class,
//! what sources are sure to get, then all in turn.

use core::marker::PhantomData;

use super::PortQos;
use crate::Instant;

/// What a queue knows of something that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Port it came from.
    pub source: u16,
    /// Its priority, 0..=7. Its class follows from it.
    pub priority: u8,
    /// Bytes on the wire, [`WIRE_OVERHEAD`](super::WIRE_OVERHEAD) of each frame included.
    pub wire: u32,
    /// Bytes of buffer that it takes.
    pub bytes: u32,
    /// When it came.
    pub since: Instant,
}

/// What goes next. Stays true until the queues are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The traffic class.
    pub class: u8,
    /// Place of the source's queue.
    pub(super) queue: u32,
}

/// See the module. `T` is whatever waits.
#[derive(Debug)]
pub struct Egress<T> {
    items: PhantomData<T>,
}

impl<T> Egress<T> {
    /// Empty queues.
    pub fn new(_qos: &PortQos, _now: Instant) -> Egress<T> {
        todo!()
    }

    /// Another configuration; what waits goes on waiting, in its order.
    pub fn configure(&mut self, _qos: &PortQos, _now: Instant) {
        todo!()
    }

    /// What a source is sure to get of each class, in bit/s (0: nothing); forgotten with [`Egress::forget_source`].
    pub fn set_guarantee(&mut self, _source: u16, _guarantee: &[u64; 8]) {
        todo!()
    }

    /// A source is gone; what it has sent is still sent.
    pub fn forget_source(&mut self, _source: u16) {
        todo!()
    }

    /// May something go at once, because nothing it would have to wait for waits, and there is credit? Then it counts as
    /// sent. `closed`: priorities that may not be sent now, a bit each.
    pub fn pass(&mut self, _now: Instant, _entry: &Entry, _closed: u8) -> bool {
        todo!()
    }

    /// Something waits behind what its source sent in its class before.
    pub fn push(&mut self, _entry: Entry, _item: T) {
        todo!()
    }

    /// Which goes next, if any may.
    pub fn next(&mut self, _now: Instant, _closed: u8) -> Option<Pick> {
        todo!()
    }

    /// What that is.
    pub fn front(&self, _pick: Pick) -> Option<(&Entry, &T)> {
        todo!()
    }

    /// Takes it; it counts as sent.
    pub fn take(&mut self, _now: Instant, _pick: Pick) -> Option<(Entry, T)> {
        todo!()
    }

    /// Takes it without counting it as sent: it is dropped.
    pub fn discard(&mut self, _pick: Pick) -> Option<(Entry, T)> {
        todo!()
    }

    /// What waits longest at the head of a class, whether it may go or not.
    pub fn oldest(&self, _class: u8) -> Option<(Pick, &Entry)> {
        todo!()
    }

    /// When something may go that may not go now for want of credit; `None`: only a push or an opened priority changes
    /// anything.
    pub fn next_time(&self, _now: Instant, _closed: u8) -> Option<Instant> {
        todo!()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of buffer that wait, by class.
    pub fn bytes(&self) -> [u64; 8] {
        todo!()
    }
}
