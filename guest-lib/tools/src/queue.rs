//! A queue pair of a type that is chosen at run time.

use vnic_verbs::{
    Access, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Endpoint, Error, PostError,
    ProtectionDomain, QpType, QueuePair, RateLimit, Rc, RecvWr, SendWr, SharedReceiveQueue, Uc, Ud,
};

/// The queue key of perftest and of libibverbs' examples.
pub const QKEY: u32 = 0x1111_1111;
/// Bytes in front of a datagram: the GRH (IBTA 8.3), or an IP header in its place.
pub const GRH: u32 = 40;

/// Sizes of a queue pair's queues.
#[derive(Debug, Clone, Copy)]
pub struct Depths {
    /// Sends that may be outstanding.
    pub sends: u32,
    /// Receives that may be posted.
    pub receives: u32,
    /// Inline bytes of a send.
    pub inline: u32,
}

/// A queue pair, and for datagrams their destination.
pub enum Queue {
    /// Reliable connection.
    Rc(QueuePair<Rc>),
    /// Unreliable connection.
    Uc(QueuePair<Uc>),
    /// Unreliable datagram.
    Ud(QueuePair<Ud>, Option<Destination>),
}

/// Destination of datagrams.
pub struct Destination {
    handle: AddressHandle,
    number: u32,
    qkey: u32,
}

/// Does the same for each type.
macro_rules! each {
    ($queue:expr, $qp:ident => $what:expr) => {
        match $queue {
            Queue::Rc($qp) => $what,
            Queue::Uc($qp) => $what,
            Queue::Ud($qp, _) => $what,
        }
    };
}

impl Queue {
    /// Makes a queue pair, in INIT: receives may be posted.
    pub fn new(
        kind: QpType,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        depths: Depths,
        srq: Option<&SharedReceiveQueue>,
    ) -> Result<Queue, Error> {
        macro_rules! build {
            ($kind:ty) => {{
                let builder = pd
                    .qp::<$kind>(cq, cq)
                    .max_send_wr(depths.sends)
                    .max_recv_wr(depths.receives)
                    .max_inline(depths.inline);
                match srq {
                    Some(srq) => builder.srq(srq).build()?,
                    None => builder.build()?,
                }
            }};
        }
        // Rights of the peer: everything that its keys allow.
        let access = ConnectOptions::default().access;
        match kind {
            QpType::Rc => {
                let qp = build!(Rc);
                qp.to_init(access)?;
                Ok(Queue::Rc(qp))
            }
            QpType::Uc => {
                let qp = build!(Uc);
                // UC has no READs and atomics.
                qp.to_init(Access::REMOTE_WRITE)?;
                Ok(Queue::Uc(qp))
            }
            QpType::Ud => {
                let qp = build!(Ud);
                qp.to_init(QKEY)?;
                Ok(Queue::Ud(qp, None))
            }
            other => Err(Error::Invalid(format!(
                "these tools have no queue pairs of type {other:?}"
            ))),
        }
    }

    /// Number of the queue pair.
    pub fn number(&self) -> u32 {
        each!(self, qp => qp.number())
    }

    /// PSN of its first packet.
    pub fn psn(&self) -> u32 {
        each!(self, qp => qp.psn())
    }

    /// Goes to RTS, towards a peer.
    pub fn connect(
        &mut self,
        pd: &ProtectionDomain,
        peer: &Endpoint,
        qkey: u32,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        match self {
            Queue::Rc(qp) => qp.connect(peer, options),
            Queue::Uc(qp) => qp.connect(peer, options),
            Queue::Ud(qp, destination) => {
                qp.activate(QKEY)?;
                *destination = Some(Destination {
                    handle: pd.create_ah(&AddressVector {
                        dgid: peer.gid,
                        dmac: peer.mac,
                        sgid_index: options.gid_index,
                        service_level: options.service_level,
                        traffic_class: options.traffic_class,
                        ..AddressVector::default()
                    })?,
                    number: peer.qpn,
                    qkey,
                });
                Ok(())
            }
        }
    }

    /// Limits the rate of the queue pair.
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<(), Error> {
        each!(self, qp => qp.set_rate_limit(limit))
    }

    /// Posts a send. A datagram goes to the peer.
    #[inline]
    pub fn send(&self, request: SendWr<'_>) -> Result<usize, PostError> {
        self.send_all(&mut [request])
    }

    /// Posts sends, with one doorbell. Datagrams go to the peer.
    #[inline]
    pub fn send_all(&self, requests: &mut [SendWr<'_>]) -> Result<usize, PostError> {
        if let Queue::Ud(_, Some(to)) = self {
            for request in requests.iter_mut() {
                *request = request.to(&to.handle, to.number, to.qkey);
            }
        }
        each!(self, qp => qp.post_send(requests))
    }

    /// Posts receives.
    #[inline]
    pub fn receive(&self, requests: &[RecvWr<'_>]) -> Result<usize, PostError> {
        each!(self, qp => qp.post_recv(requests))
    }
}
