//! A queue pair of any type.

use vnic_verbs::{
    DcInitiator, DcTarget, Error, QpAttributes, QpMask, QueuePair, RateLimit, RawPacket, Rc, Uc, Ud,
    XrcInitiator, XrcTarget, qp::QpQuery,
};

/// A queue pair of any type.
#[derive(Debug, Clone)]
pub enum AnyQp {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(QueuePair<Ud>),
    Raw(QueuePair<RawPacket>),
    XrcSend(QueuePair<XrcInitiator>),
    XrcRecv(QueuePair<XrcTarget>),
    DcInitiator(QueuePair<DcInitiator>),
    DcTarget(QueuePair<DcTarget>),
}

/// Does the same for every type.
macro_rules! whichever {
    ($qp:expr, $inner:ident => $what:expr) => {
        match $qp {
            AnyQp::Rc($inner) => $what,
            AnyQp::Uc($inner) => $what,
            AnyQp::Ud($inner) => $what,
            AnyQp::Raw($inner) => $what,
            AnyQp::XrcSend($inner) => $what,
            AnyQp::XrcRecv($inner) => $what,
            AnyQp::DcInitiator($inner) => $what,
            AnyQp::DcTarget($inner) => $what,
        }
    };
}

impl AnyQp {
    /// Number of the queue pair.
    pub fn number(&self) -> u32 {
        whichever!(self, qp => qp.number())
    }

    /// Changes the attributes that `mask` names.
    pub fn modify(&self, attributes: &QpAttributes, mask: QpMask) -> Result<(), Error> {
        whichever!(self, qp => qp.modify(attributes, mask))
    }

    /// Asks the device for its attributes.
    pub fn query(&self) -> Result<QpQuery, Error> {
        whichever!(self, qp => qp.query())
    }

    /// Limits the rate of the queue pair.
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        whichever!(self, qp => qp.set_rate_limit(limit))
    }
}
