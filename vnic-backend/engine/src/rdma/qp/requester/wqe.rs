//! A work request in the send queue.

use vnic_device::queue::Operation;
use vnic_wire::psn::Psn;

use super::super::super::pool::Item;
use super::super::super::types::{Completion, CompletionOp, QpNumber, SendData, SendOp, SendWr, Status};

/// Operations that bring bytes back.
pub(super) const FETCHING: u32 =
    Operation::Read.bit() | Operation::CompareSwap.bit() | Operation::FetchAdd.bit();

/// Where a send work request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super::super) enum Stage {
    /// Nothing of it was sent.
    Posted,
    /// Nothing of it can be sent: it ends this way when its turn comes.
    Doomed(Status),
    /// It has its PSNs; some of it was sent.
    Started,
    /// It has ended this way, and is reported when those before it are.
    Ended(Status),
}

/// What is left of a send work request when it is over.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Finished {
    pub id: u64,
    pub tag: u32,
    pub op: CompletionOp,
    /// Bytes that its completion names.
    pub byte_len: u32,
    /// It completes visibly in any case.
    pub signaled: bool,
}

impl Finished {
    /// Its completion.
    #[inline(always)]
    pub fn completion(&self, qp: QpNumber, status: Status) -> Completion {
        Completion {
            byte_len: self.byte_len,
            ..Completion::new(self.id, self.tag, qp, self.op, status)
        }
    }
}

/// A send work request in the queue.
#[derive(Debug)]
pub(in super::super::super) struct SendWqe {
    pub wr: SendWr,
    /// Bytes of the message, or those asked for.
    pub len: u64,
    pub stage: Stage,
    /// First PSN, once started.
    pub first: Psn,
    /// PSNs it takes: packets sent, or for READ packets expected. 0 for local work.
    pub psns: u32,
    /// Number among the requests (IBTA 9.7.7.2: SSN), once started.
    pub(super) ssn: u32,
}

impl Default for SendWqe {
    fn default() -> SendWqe {
        SendWqe {
            wr: SendWr::default(),
            len: 0,
            stage: Stage::Posted,
            first: Psn::new(0),
            psns: 0,
            ssn: 0,
        }
    }
}

impl Item for SendWqe {
    #[inline]
    fn release(&mut self) {
        let spilled = match &self.wr.data {
            SendData::Sges(sges) => sges.spilled(),
            SendData::Inline(bytes) => bytes.spilled(),
        };
        if spilled {
            self.wr.data = SendData::default();
        }
    }
}

impl SendWqe {
    /// What is known of a request when its queue takes it.
    #[inline]
    pub fn begin(&mut self, stage: Stage) {
        self.len = self.wr.bytes();
        self.stage = stage;
        (self.psns, self.ssn) = (0, 0);
    }

    /// What its completion is about.
    #[inline]
    pub fn op(&self) -> CompletionOp {
        match self.wr.op.operation() {
            Operation::Send | Operation::SendImm | Operation::SendInvalidate => CompletionOp::Send,
            Operation::Write | Operation::WriteImm => CompletionOp::Write,
            Operation::Read => CompletionOp::Read,
            Operation::CompareSwap => CompletionOp::CompareSwap,
            Operation::FetchAdd => CompletionOp::FetchAdd,
            Operation::BindMw => CompletionOp::BindMw,
            Operation::LocalInvalidate => CompletionOp::LocalInvalidate,
        }
    }

    /// Bytes that its completion names.
    pub fn byte_len(&self) -> u32 {
        if self.awaits_response() {
            self.len as u32
        } else {
            0
        }
    }

    pub fn is_read(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. })
    }

    pub fn is_atomic(&self) -> bool {
        matches!(self.wr.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Is it answered by data rather than by an acknowledge?
    pub fn awaits_response(&self) -> bool {
        self.wr.op.operation().bit() & FETCHING != 0
    }

    pub(super) fn is_local(&self) -> bool {
        matches!(self.wr.op, SendOp::BindMw(_) | SendOp::LocalInvalidate(_))
    }

    /// Does it take a receive of the peer's?
    pub(super) fn takes_receive(&self) -> bool {
        matches!(
            self.wr.op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::WriteImm { .. }
        )
    }

    /// Its last PSN. It has one or more.
    pub fn last(&self) -> Psn {
        self.first.add(self.psns.wrapping_sub(1))
    }

    /// Is the PSN one of its?
    pub fn holds(&self, psn: Psn) -> bool {
        self.stage == Stage::Started && u32::try_from(psn.distance(self.first)).is_ok_and(|d| d < self.psns)
    }
}
