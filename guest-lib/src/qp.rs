//! Queue pairs.
//!
//! A handle has only the methods that its type of queue pair allows:
//!
//! ```compile_fail,E0599
//! # fn wrong(qp: &vnic_verbs::QueuePair<vnic_verbs::Ud>, peer: &vnic_verbs::Endpoint) {
//! // Datagrams have no peer to connect to.
//! let _ = qp.connect(peer, &vnic_verbs::ConnectOptions::default());
//! # }
//! ```
//! ```compile_fail,E0599
//! # fn wrong(qp: &vnic_verbs::QueuePair<vnic_verbs::XrcTarget>, sge: vnic_verbs::Sge) {
//! // The receiving end of XRC does not send.
//! let _ = qp.post_send(&[vnic_verbs::SendWr::send(sge)]);
//! # }
//! ```
//! ```compile_fail,E0599
//! # fn wrong(qp: &vnic_verbs::QueuePair<vnic_verbs::XrcInitiator>, sge: vnic_verbs::Sge) {
//! // The sending end of XRC does not receive.
//! let _ = qp.post_recv(&[vnic_verbs::RecvWr::new(sge)]);
//! # }
//! ```
//! ```compile_fail,E0277
//! struct Mine;
//! // There are seven types of queue pairs, and no program adds one.
//! impl vnic_verbs::QpKind for Mine {
//!     const TYPE: vnic_verbs::QpType = vnic_verbs::QpType::Rc;
//! }
//! ```

mod attributes;
mod builder;
mod endpoint;
mod flush;
mod modify;
pub(crate) mod receive;
mod send;
mod sending;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, Ordering::Acquire};
use std::sync::{Arc, Mutex};

use vnic_device::command::Opcode;
use vnic_device::command::device::JudgePost;
use vnic_device::command::qp::Multicast;
use vnic_device::doorbell::Kind;
use vnic_device::queue::SendLimits;
use vnic_device::verbs::{Post, QpState, QpType};

pub use attributes::{
    ConnectOptions, QpAttributes, QpMask, QpQuery, RateLimit, RtrAttributes, RtsAttributes,
};
pub use builder::QpBuilder;
pub use endpoint::Endpoint;
pub use sending::{SendQueue, Sending};

use crate::cq::Consumed;
use crate::driver::Core;
use crate::driver::doorbells::bell;
use crate::flow::{Flow, FlowRule};
use crate::sync::lock;
use crate::wr::{Data, RecvWr, SendWr};
use crate::{
    CompletionQueue, Error, Gid, PostError, PostReason, ProtectionDomain, SharedReceiveQueue, XrcDomain,
};
use receive::ReceiveRing;
use send::SendRing;

mod sealed {
    pub trait Sealed {}
}

/// A type of queue pair.
pub trait QpKind: sealed::Sealed + Send + Sync + 'static {
    /// Number of the type in the contract.
    const TYPE: QpType;
}

/// A type that has a send queue.
pub trait Sends: QpKind {}
/// A type that has a receive queue, its own or a shared one.
pub trait Receives: QpKind {}
/// A type that has one peer.
pub trait Connected: QpKind {}
/// A type that is made from a protection domain and two completion queues.
pub trait Plain: Sends + Receives {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $($ability:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl QpKind for $name {
            const TYPE: QpType = QpType::$name;
        }
        $(impl $ability for $name {})*
    )*};
}

kinds! {
    /// Reliable connection.
    Rc: Sends Receives Connected Plain;
    /// Unreliable connection.
    Uc: Sends Receives Connected Plain;
    /// Unreliable datagram.
    Ud: Sends Receives Plain;
    /// Whole Ethernet frames.
    RawPacket: Sends Receives Plain;
    /// Sending end of an extended reliable connection.
    XrcInitiator: Sends Connected;
    /// Receiving end of an extended reliable connection.
    XrcTarget: Connected;
    /// Initiator of dynamic connections: each of its requests names a target
    /// ([`SendWr::to_target`](crate::SendWr::to_target)).
    DcInitiator: Sends;
    /// Target of dynamic connections: it takes the requests of all initiators that know its access key.
    DcTarget:;
}

/// A queue pair. Clones are the same queue pair; it is destroyed with the last clone.
pub struct QueuePair<K: QpKind> {
    pub(crate) inner: Arc<Qp>,
    kind: PhantomData<fn() -> K>,
}

// Wide: what `create_qp` was given stays beside what it made for as long as the queue pair lives.
pub(crate) struct Qp {
    core: Arc<Core>,
    epoch: u32,
    number: u32,
    limits: SendLimits,
    signal_all: bool,
    psn: u32,
    /// The state that the program asked for last; an error may have changed the device's state since.
    state: AtomicU8,
    /// Held while the queue pair is modified.
    modifying: Mutex<()>,
    send: Mutex<SendRing>,
    receive: Mutex<ReceiveRing>,
    consumed: Arc<Consumed>,
    _pd: Option<ProtectionDomain>,
    _xrcd: Option<XrcDomain>,
    send_cq: Option<CompletionQueue>,
    receive_cq: Option<CompletionQueue>,
    srq: Option<SharedReceiveQueue>,
}

impl<K: QpKind> Clone for QueuePair<K> {
    fn clone(&self) -> Self {
        QueuePair {
            inner: Arc::clone(&self.inner),
            kind: PhantomData,
        }
    }
}

impl<K: QpKind> std::fmt::Debug for QueuePair<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "QueuePair<{:?}>({:#x}, {:?})",
            K::TYPE,
            self.inner.number,
            self.inner.state()
        )
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let memory = (lock(&self.send).memory(), lock(&self.receive).memory());
        self.core
            .end(self.epoch, Opcode::DestroyQp, self.number, Box::new(memory));
        for cq in self.send_cq.iter().chain(&self.receive_cq) {
            cq.detach(self.number);
        }
    }
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Qp({:#x}, {:?})", self.number, self.state())
    }
}

impl Qp {
    fn state(&self) -> QpState {
        QpState::from_number(self.state.load(Acquire)).unwrap_or(QpState::Err)
    }

    /// Completions of this queue pair free its places from now on.
    fn attach(self: &Arc<Qp>) {
        let posted = || Arc::<Qp>::downgrade(self) as _;
        if let Some(cq) = &self.send_cq {
            cq.attach(self.number, &self.consumed, false, posted());
        }
        if let (Some(cq), None) = (&self.receive_cq, &self.srq) {
            cq.attach(self.number, &self.consumed, true, posted());
        }
    }

    /// Asks the device whether a work request may be posted.
    #[cold]
    fn ask(&self, post: Post, operation: u8, data: &Data<'_>) -> Result<(), PostReason> {
        let request = JudgePost {
            post: post.number(),
            queue: self.number,
            bytes: data.bytes(),
            operation: operation.into(),
            reserved: 0,
        };
        self.core.ask(self.epoch, request)
    }

    /// Rings the doorbell for what was written, if anything was.
    #[inline]
    fn posted(&self, kind: Kind, producer: u32, any: bool) -> Result<(), PostReason> {
        if any {
            self.core
                .ring(self.epoch, bell(kind, self.number, producer))
                .map_err(|_| PostReason::Gone)
        } else if self.core.is_alive(self.epoch) {
            Ok(())
        } else {
            Err(PostReason::Gone)
        }
    }
}

impl<K: QpKind> QueuePair<K> {
    /// Number of the queue pair.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Number of the first packet that [`connect`](QueuePair::connect) sends: chosen at random when the queue
    /// pair was made.
    pub fn psn(&self) -> u32 {
        self.inner.psn
    }

    /// The state that the program asked for last. [`query`](QueuePair::query) asks the device.
    pub fn state(&self) -> QpState {
        self.inner.state()
    }

    /// The completion queue of sends.
    pub fn send_cq(&self) -> Option<&CompletionQueue> {
        self.inner.send_cq.as_ref()
    }

    /// The completion queue of receives.
    pub fn recv_cq(&self) -> Option<&CompletionQueue> {
        self.inner.receive_cq.as_ref()
    }

    /// The shared receive queue, if the queue pair has one.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.inner.srq.as_ref()
    }

    /// Most elements of a send.
    pub fn max_send_sge(&self) -> u32 {
        self.inner.limits.elements
    }

    /// Most inline bytes of a send.
    pub fn max_inline(&self) -> u32 {
        self.inner.limits.inline
    }
}

impl<K: Sends> QueuePair<K> {
    /// Posts sends: all, or those before the first that is refused. All of them take one doorbell; nothing is
    /// allocated.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>, region: &vnic_verbs::MemoryRegion) -> Result<(), vnic_verbs::PostError> {
    /// use vnic_verbs::{Data, SendWr};
    ///
    /// let first = SendWr::send(Data::inline(b"hello"));
    /// let second = SendWr::send(region.slice(..1024)).id(2).signaled();
    /// qp.post_send(&[first, second])?; // one doorbell
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<usize, PostError> {
        let none = |reason| PostError { posted: 0, reason };
        let mut sending = self.sending().map_err(none)?;
        for (posted, wr) in wrs.iter().enumerate() {
            if let Err(reason) = sending.post(wr) {
                sending.ring().map_err(none)?;
                return Err(PostError { posted, reason });
            }
        }
        sending.ring().map_err(none)?;
        Ok(wrs.len())
    }

    /// Begins to post sends one by one.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>, region: &vnic_verbs::MemoryRegion) -> Result<(), vnic_verbs::PostReason> {
    /// use vnic_verbs::SendWr;
    ///
    /// let mut sending = qp.sending()?;
    /// for at in 0..4 {
    ///     sending.post(&SendWr::send(region.slice(at * 64..(at + 1) * 64)))?;
    /// }
    /// sending.ring()?; // one doorbell for all
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn sending(&self) -> Result<Sending<'_>, PostReason> {
        Sending::new(&self.inner)
    }

    /// The send queue, without the type of its queue pair.
    #[inline(always)]
    pub fn send_queue(&self) -> SendQueue<'_> {
        SendQueue(&self.inner)
    }

    /// Whether all sends complete visibly.
    pub fn signals_all(&self) -> bool {
        self.inner.signal_all
    }

    /// Blocks of the send ring. A send takes a block for each 64 bytes of its own, and at least one.
    pub fn send_blocks(&self) -> u32 {
        lock(&self.inner.send).blocks()
    }
}

impl<K: Receives> QueuePair<K> {
    /// Posts receives: all, or those before the first that is refused. All of them take one doorbell; nothing
    /// is allocated.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>, region: &vnic_verbs::MemoryRegion) -> Result<(), vnic_verbs::PostError> {
    /// use vnic_verbs::RecvWr;
    ///
    /// qp.post_recv(&[RecvWr::new(region.slice(..4096)).id(7)])?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<usize, PostError> {
        self.post_recv_from(wrs.iter().copied())
    }

    /// As [`post_recv`](QueuePair::post_recv), but takes the work requests from an iterator, which must not use
    /// the queue pair.
    #[inline]
    pub fn post_recv_from<'a>(&self, wrs: impl IntoIterator<Item = RecvWr<'a>>) -> Result<usize, PostError> {
        let qp = &*self.inner;
        let mut ring = lock(&qp.receive);
        let reason = match qp.state() {
            QpState::Reset => Some(PostReason::State(QpState::Reset)),
            _ if ring.entries() == 0 => Some(PostReason::NoQueue),
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(PostError { posted: 0, reason });
        }
        let consumed = qp.consumed.receive.load(Acquire);
        let watched = qp.core.watches(Post::Receive);
        let from = ring.producer();
        let mut posted = 0;
        let mut refused = None;
        for wr in wrs {
            if watched && let Err(reason) = qp.ask(Post::Receive, 0, &wr.data) {
                refused = Some(reason);
                break;
            }
            if let Err(reason) = ring.write(&wr, consumed) {
                refused = Some(reason);
                break;
            }
            posted += 1;
        }
        if let Err(reason) = qp.posted(Kind::Receive, ring.producer(), posted > 0) {
            ring.take_back(from);
            return Err(PostError { posted: 0, reason });
        }
        match refused {
            None => Ok(posted),
            Some(reason) => Err(PostError { posted, reason }),
        }
    }
}

impl QueuePair<RawPacket> {
    /// Lets the queue pair have frames that come for the adapter. The flow ends when it is dropped; the queue pair stays as long.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::RawPacket>) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::flow::{FlowRule, flow_headers};
    ///
    /// let mut rule = FlowRule::default();
    /// rule.headers = flow_headers::IPV4 | flow_headers::UDP;
    /// (rule.value.destination_port, rule.mask.destination_port) = (4791, 0xffff);
    /// let flow = qp.create_flow(&rule)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_flow(&self, rule: &FlowRule) -> Result<Flow, Error> {
        let qp = &self.inner;
        Flow::new(&qp.core, qp.epoch, qp.number, rule, Arc::clone(qp) as _)
    }
}

impl QueuePair<Ud> {
    /// Joins a multicast group: the queue pair receives what is sent to it.
    ///
    /// ```no_run
    /// # fn example(qp: &vnic_verbs::QueuePair<vnic_verbs::Ud>) -> Result<(), vnic_verbs::Error> {
    /// qp.attach_multicast("ff0e::1".parse()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach_multicast(&self, group: Gid) -> Result<(), Error> {
        self.multicast(Opcode::AttachMulticast, group)
    }

    /// Leaves a multicast group.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), Error> {
        self.multicast(Opcode::DetachMulticast, group)
    }

    fn multicast(&self, opcode: Opcode, group: Gid) -> Result<(), Error> {
        let qp = &*self.inner;
        let body = Multicast {
            qp: qp.number,
            reserved: 0,
            gid: group.0,
        };
        qp.core.call(qp.epoch, opcode, &body)
    }
}
