//! A queue pair of any type.

use vnic_verbs::{
    Error, PostError, PostReason, QpAttributes, QpMask, QueuePair, RateLimit, Rc, RecvWr, SendWr, Uc, Ud,
    XrcInitiator, XrcTarget, qp::QpQuery,
};

/// A queue pair of any type.
#[derive(Debug, Clone)]
pub enum AnyQp {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(QueuePair<Ud>),
    XrcSend(QueuePair<XrcInitiator>),
    XrcRecv(QueuePair<XrcTarget>),
}

/// The same for every type.
macro_rules! whichever {
    ($qp:expr, $inner:ident => $what:expr) => {
        match $qp {
            AnyQp::Rc($inner) => $what,
            AnyQp::Uc($inner) => $what,
            AnyQp::Ud($inner) => $what,
            AnyQp::XrcSend($inner) => $what,
            AnyQp::XrcRecv($inner) => $what,
        }
    };
}

impl AnyQp {
    /// Its number.
    pub fn number(&self) -> u32 {
        whichever!(self, qp => qp.number())
    }

    /// Changes what `mask` names.
    pub fn modify(&self, attributes: &QpAttributes, mask: QpMask) -> Result<(), Error> {
        whichever!(self, qp => qp.modify(attributes, mask))
    }

    /// What the device says about it.
    pub fn query(&self) -> Result<QpQuery, Error> {
        whichever!(self, qp => qp.query())
    }

    /// Limits its rate.
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        whichever!(self, qp => qp.set_rate_limit(limit))
    }

    /// Most inline bytes of a send.
    pub fn max_inline(&self) -> u32 {
        whichever!(self, qp => qp.max_inline())
    }

    /// Most elements of a send.
    pub fn max_send_sge(&self) -> u32 {
        whichever!(self, qp => qp.max_send_sge())
    }

    /// Posts sends: all, or those before the first that is refused.
    #[inline]
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<usize, PostError> {
        match self {
            AnyQp::Rc(qp) => qp.post_send(wrs),
            AnyQp::Uc(qp) => qp.post_send(wrs),
            AnyQp::Ud(qp) => qp.post_send(wrs),
            AnyQp::XrcSend(qp) => qp.post_send(wrs),
            AnyQp::XrcRecv(_) => Err(NO_QUEUE),
        }
    }

    /// Posts receives: all, or those before the first that is refused.
    #[inline]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<usize, PostError> {
        match self {
            AnyQp::Rc(qp) => qp.post_recv(wrs),
            AnyQp::Uc(qp) => qp.post_recv(wrs),
            AnyQp::Ud(qp) => qp.post_recv(wrs),
            AnyQp::XrcSend(_) | AnyQp::XrcRecv(_) => Err(NO_QUEUE),
        }
    }
}

const NO_QUEUE: PostError = PostError {
    posted: 0,
    reason: PostReason::NoQueue,
};
