//! A queue pair of any type.

use vnic_verbs::{
    DcInitiator, DcTarget, Error, HashQueuePair, QpAttributes, QpMask, QueuePair, RateLimit, RawPacket, Rc,
    Uc, Ud, XrcInitiator, XrcTarget, qp::QpQuery,
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
    Hash(HashQueuePair),
}

/// Does the same for every type, and something else for hash queue pairs.
macro_rules! whichever {
    ($qp:expr, $inner:ident => $what:expr, $hash:pat => $other:expr) => {
        match $qp {
            AnyQp::Rc($inner) => $what,
            AnyQp::Uc($inner) => $what,
            AnyQp::Ud($inner) => $what,
            AnyQp::Raw($inner) => $what,
            AnyQp::XrcSend($inner) => $what,
            AnyQp::XrcRecv($inner) => $what,
            AnyQp::DcInitiator($inner) => $what,
            AnyQp::DcTarget($inner) => $what,
            AnyQp::Hash($hash) => $other,
        }
    };
}

/// EOPNOTSUPP: a hash queue pair has no states, no attributes and no rate.
fn stateless<T>() -> Result<T, Error> {
    Err(Error::os("a hash queue pair is neither modified nor queried")(
        rustix::io::Errno::OPNOTSUPP,
    ))
}

impl AnyQp {
    /// Number of the queue pair.
    pub fn number(&self) -> u32 {
        whichever!(self, qp => qp.number(), qp => qp.number())
    }

    /// Changes the attributes that `mask` names.
    pub fn modify(&self, attributes: &QpAttributes, mask: QpMask) -> Result<(), Error> {
        whichever!(self, qp => qp.modify(attributes, mask), _ => stateless())
    }

    /// Asks the device for its attributes.
    pub fn query(&self) -> Result<QpQuery, Error> {
        whichever!(self, qp => qp.query(), _ => stateless())
    }

    /// Limits the rate of the queue pair.
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        whichever!(self, qp => qp.set_rate_limit(limit), _ => stateless())
    }
}
