//! Why a transmit queue's ring is not simply read. Hardly ever there is a reason, and a queue that has none is asked once.

use vnic_engine::virtio_net::NetHdr;

use super::debt::Debt;
use super::rest::Rest;
use crate::ring::{Broken, Fault};

/// See the module.
#[derive(Default)]
pub(super) struct Holds {
    /// There is a reason.
    any: bool,
    /// The guest broke the ring.
    broken: Broken,
    /// No more buffers are taken.
    stopped: bool,
    /// The next frame has this priority, which may not be sent.
    closed: Option<u8>,
    /// What is left of a request that is sent in parts.
    rest: Option<Box<Rest>>,
    /// What its frames have cost and others have not had their turns for yet.
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

    /// Neither broken nor stopped.
    pub(super) fn runs(&self) -> bool {
        !self.broken.is() && !self.stopped
    }

    pub(super) fn breaks(&mut self, fault: Fault) {
        self.broken.set(fault);
        self.rest = None;
        self.look();
    }

    /// What the guest did to the ring, told once.
    pub(super) fn take_fault(&mut self) -> Option<Fault> {
        self.broken.take()
    }

    /// What has not gone of a request that is sent in parts is forgotten, as a device's are at a reset.
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

    /// Owes for a look at a frame of so many bytes in so many pieces, also for one that then has to wait, and will be looked at
    /// again; true: the turn ends with it.
    pub(super) fn owe_pieces(&mut self, bytes: u64, pieces: usize) -> bool {
        let heavy = self.debt.pieces(bytes, pieces);
        self.any |= self.debt.any();
        heavy
    }

    /// Owes for a frame of so many bytes that has gone; true: the turn ends with it.
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

    /// Pays with a turn, if that much is owed; true: others have this one as well.
    pub(super) fn pay(&mut self) -> bool {
        let pays = self.debt.pay();
        self.look();
        pays
    }

    pub(super) fn begin(&mut self, rest: Box<Rest>) {
        self.rest = Some(rest);
        self.any = true;
    }

    /// Is a request being sent in parts?
    pub(super) fn in_parts(&self) -> bool {
        self.rest.is_some()
    }

    pub(super) fn take_rest(&mut self) -> Option<Box<Rest>> {
        let rest = self.rest.take();
        self.look();
        rest
    }
}
