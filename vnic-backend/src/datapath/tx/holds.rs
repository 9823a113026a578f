//! Reasons not to read a transmit queue's ring. A reason is rare, and one flag says whether there is any.

use vnic_engine::virtio_net::NetHdr;

use super::debt::Debt;
use super::rest::Rest;
use crate::ring::{Broken, Fault};

/// Reasons not to read a transmit queue's ring.
#[derive(Default)]
pub(super) struct Holds {
    /// Whether there is any reason.
    any: bool,
    /// Fault of the ring.
    broken: Broken,
    /// Whether no more buffers are taken.
    stopped: bool,
    /// Priority of the next frame, if that may not be sent.
    closed: Option<u8>,
    /// Rest of a request that is sent in parts.
    rest: Option<Box<Rest>>,
    /// Cost of the queue's frames for which other queues have not had their turns yet.
    debt: Debt,
}

impl Holds {
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.any
    }

    #[cold]
    fn look(&mut self) {
        self.any = self.broken.is()
            || self.stopped
            || self.closed.is_some()
            || self.rest.is_some()
            || self.debt.any();
    }

    /// Whether the ring is neither broken nor stopped.
    pub(super) fn runs(&self) -> bool {
        !self.broken.is() && !self.stopped
    }

    pub(super) fn breaks(&mut self, fault: Fault) {
        self.broken.set(fault);
        self.rest = None;
        self.look();
    }

    /// The fault of the ring, reported once.
    pub(super) fn take_fault(&mut self) -> Option<Fault> {
        self.broken.take()
    }

    /// Stops the queue. The rest of a request that is sent in parts is dropped, as at a reset of a device.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.rest = None;
        self.look();
    }

    #[inline(always)]
    pub(super) fn closed(&self) -> Option<u8> {
        self.closed
    }

    pub(super) fn close(&mut self, priority: u8) {
        self.closed = Some(priority);
        self.any = true;
    }

    pub(super) fn open(&mut self) {
        self.closed = None;
        self.look();
    }

    /// Owes for a look at a frame of `bytes` bytes in `pieces` descriptors, also for one that then has to wait and is looked
    /// at again. True: the turn ends with it.
    pub(super) fn owe_pieces(&mut self, bytes: u64, pieces: usize) -> bool {
        let heavy = self.debt.pieces(bytes, pieces);
        self.any |= self.debt.any();
        heavy
    }

    /// Owes for a sent frame of `bytes` bytes. True: the turn ends with it.
    pub(super) fn owe_segments(&mut self, bytes: u64, hdr: &NetHdr) -> bool {
        let heavy = self.debt.segments(bytes, hdr);
        self.any |= self.debt.any();
        heavy
    }

    /// Owes for an interrupt of the guest.
    #[cold]
    pub(super) fn owe_call(&mut self) {
        self.debt.call();
        self.any = true;
    }

    /// Pays with a turn, if that much is owed. True: the turn is paid, and other queues have it.
    pub(super) fn pay(&mut self) -> bool {
        let pays = self.debt.pay();
        self.look();
        pays
    }

    pub(super) fn begin(&mut self, rest: Box<Rest>) {
        self.rest = Some(rest);
        self.any = true;
    }

    /// Whether a request is being sent in parts.
    pub(super) fn in_parts(&self) -> bool {
        self.rest.is_some()
    }

    pub(super) fn take_rest(&mut self) -> Option<Box<Rest>> {
        let rest = self.rest.take();
        self.look();
        rest
    }
}
