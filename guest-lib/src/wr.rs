//! Work requests.

use vnic_device::queue::{Bind, Operation, Target};

pub use vnic_device::queue::{SendHead, send_flags};

use crate::memory::Sge;
use crate::pd::AddressHandle;

/// Flags that follow from the rest of a request.
const NOT_GIVEN: u8 = send_flags::INLINE | send_flags::TARGET;

/// Where the bytes of a work request are: nowhere, one element, several, or (inline) in the request itself.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a>(pub(crate) Place<'a>);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    One(Sge),
    Many(&'a [Sge]),
    Inline(&'a [u8]),
    Atomic(Sge, u64, u64),
    Bind(Bind),
}

impl<'a> Data<'a> {
    /// No bytes.
    pub const NONE: Data<'static> = Data(Place::Many(&[]));

    /// Inline data. They are copied when the request is posted: they need not be registered, and may change
    /// afterwards.
    pub const fn inline(bytes: &'a [u8]) -> Data<'a> {
        Data(Place::Inline(bytes))
    }

    /// Data of an atomic: the 8 bytes that the old value comes to, the operand that is compared or added, and the
    /// value that is swapped in.
    pub const fn atomic(into: Sge, compare_or_add: u64, swap: u64) -> Data<'a> {
        Data(Place::Atomic(into, compare_or_add, swap))
    }

    /// Bytes of the elements, or inline.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.0 {
            Place::Inline(bytes) => bytes.len() as u64,
            _ => self.elements().iter().map(|sge| u64::from(sge.len)).sum(),
        }
    }

    /// The scatter/gather elements; none for inline data.
    pub(crate) fn elements(&self) -> &[Sge] {
        match &self.0 {
            Place::One(sge) | Place::Atomic(sge, ..) => std::slice::from_ref(sge),
            Place::Many(sges) => sges,
            Place::Inline(_) | Place::Bind(_) => &[],
        }
    }
}

impl From<Sge> for Data<'_> {
    fn from(sge: Sge) -> Self {
        Data(Place::One(sge))
    }
}

impl<'a> From<&'a [Sge]> for Data<'a> {
    fn from(sges: &'a [Sge]) -> Self {
        Data(Place::Many(sges))
    }
}

impl<'a, const N: usize> From<&'a [Sge; N]> for Data<'a> {
    fn from(sges: &'a [Sge; N]) -> Self {
        Data(Place::Many(sges))
    }
}

/// A work request for a send queue (`ibv_send_wr`). It completes visibly only if it is
/// [`signaled`](SendWr::signaled), if the queue pair signals all, or if it fails.
///
/// ```
/// use vnic_verbs::{Data, SendWr};
///
/// # let (addr, rkey) = (0x1000, 0x2000);
/// let write = SendWr::write(Data::inline(b"hello"), addr, rkey).id(1).signaled();
/// let last = SendWr::send(Data::NONE).imm(42).solicited().fence();
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "a work request does nothing until it is posted"]
pub struct SendWr<'a> {
    pub(crate) head: SendHead,
    pub(crate) data: Data<'a>,
    pub(crate) has_destination: bool,
    /// Where a request of an initiator of dynamic connections goes.
    pub(crate) target: Option<Target>,
    /// Whether the request was built from parts that do not go together. Posting refuses it.
    pub(crate) contradicts: bool,
}

impl<'a> SendWr<'a> {
    #[inline]
    fn new(operation: Operation, data: Data<'a>) -> SendWr<'a> {
        SendWr {
            head: SendHead {
                operation: operation.number(),
                ..SendHead::default()
            },
            data,
            has_destination: false,
            target: None,
            contradicts: false,
        }
    }

    fn remote(operation: Operation, data: Data<'a>, addr: u64, rkey: u32) -> SendWr<'a> {
        let mut wr = SendWr::new(operation, data);
        wr.head.remote = addr;
        wr.head.rkey = rkey;
        wr
    }

    /// A request of an operation and data, for programs that have them as numbers. Posting refuses parts that do
    /// not go together.
    #[inline]
    pub fn of(operation: Operation, data: Data<'a>) -> SendWr<'a> {
        SendWr::new(operation, data)
    }

    /// A request by its head as the device reads it, which also says where a datagram goes. Posting refuses parts
    /// that do not go together.
    #[inline]
    pub fn from_parts(head: SendHead, data: Data<'a>) -> SendWr<'a> {
        SendWr {
            contradicts: head.flags & NOT_GIVEN != 0,
            head,
            data,
            has_destination: true,
            target: None,
        }
    }

    /// Sets the remote address and key.
    #[inline]
    pub fn at(mut self, addr: u64, rkey: u32) -> SendWr<'a> {
        self.head.remote = addr;
        self.head.rkey = rkey;
        self
    }

    /// Sets the immediate data or the key, whichever the operation has.
    #[inline]
    pub fn number(mut self, imm_or_key: u32) -> SendWr<'a> {
        self.head.imm = imm_or_key;
        self
    }

    /// Sets the flags by their bits ([`send_flags`]). INLINE and TARGET are not among them: the data and the target say that.
    #[inline]
    pub fn flags(mut self, flags: u8) -> SendWr<'a> {
        self.contradicts |= flags & NOT_GIVEN != 0;
        self.head.flags = flags | self.head.flags & send_flags::TARGET;
        self
    }

    /// The same request with other data.
    #[inline]
    pub fn with_data<'b>(&self, data: Data<'b>) -> SendWr<'b> {
        SendWr {
            head: self.head,
            data,
            has_destination: self.has_destination,
            target: self.target,
            contradicts: self.contradicts,
        }
    }

    /// An RDMA WRITE to `addr` under the peer's key.
    pub fn write(data: impl Into<Data<'a>>, addr: u64, rkey: u32) -> SendWr<'a> {
        SendWr::remote(Operation::Write, data.into(), addr, rkey)
    }

    /// An RDMA READ from `addr` under the peer's key.
    pub fn read(data: impl Into<Data<'a>>, addr: u64, rkey: u32) -> SendWr<'a> {
        SendWr::remote(Operation::Read, data.into(), addr, rkey)
    }

    /// A SEND.
    pub fn send(data: impl Into<Data<'a>>) -> SendWr<'a> {
        SendWr::new(Operation::Send, data.into())
    }

    /// A COMPARE & SWAP: if the 8 bytes at `addr` are `compare`, they become `swap`. Their old value comes into
    /// `into`.
    pub fn compare_swap(into: Sge, addr: u64, rkey: u32, compare: u64, swap: u64) -> SendWr<'a> {
        SendWr::remote(
            Operation::CompareSwap,
            Data(Place::Atomic(into, compare, swap)),
            addr,
            rkey,
        )
    }

    /// A FETCH & ADD to the 8 bytes at `addr`. Their old value comes into `into`.
    pub fn fetch_add(into: Sge, addr: u64, rkey: u32, add: u64) -> SendWr<'a> {
        SendWr::remote(Operation::FetchAdd, Data(Place::Atomic(into, add, 0)), addr, rkey)
    }

    /// A LOCAL INVALIDATE of a key: of a window of type 2, or of a region with that right.
    pub fn local_invalidate(key: u32) -> SendWr<'a> {
        let mut wr = SendWr::new(Operation::LocalInvalidate, Data::NONE);
        wr.head.imm = key;
        wr
    }

    /// A bind, which [`MemoryWindow::bind`](crate::MemoryWindow::bind) makes.
    pub(crate) fn bind(bind: Bind) -> SendWr<'a> {
        SendWr::new(Operation::BindMw, Data(Place::Bind(bind)))
    }

    /// Sets the id, which the completion gives back.
    #[inline]
    pub fn id(mut self, id: u64) -> SendWr<'a> {
        self.head.wr_id = id;
        self
    }

    /// Makes the request complete visibly also when it succeeds.
    pub fn signaled(mut self) -> SendWr<'a> {
        self.head.flags |= send_flags::SIGNALED;
        self
    }

    /// Asks for an event at the receiver.
    pub fn solicited(mut self) -> SendWr<'a> {
        self.head.flags |= send_flags::SOLICITED;
        self
    }

    /// Makes the request wait for the READs and atomics before it.
    pub fn fence(mut self) -> SendWr<'a> {
        self.head.flags |= send_flags::FENCE;
        self
    }

    /// Lets the device fill in the checksums of a raw packet's IPv4, TCP and UDP headers.
    pub fn checksum(mut self) -> SendWr<'a> {
        self.head.flags |= send_flags::CHECKSUM;
        self
    }

    /// Lets the device cut a raw packet with TCP or UDP into segments of `size` bytes of payload, each with a copy of the headers, whose lengths
    /// and checksums the device makes. For devices with [`Capabilities::SEGMENTS`](crate::Capabilities::SEGMENTS).
    pub fn segments(mut self, size: u16) -> SendWr<'a> {
        self.head.flags |= send_flags::SEGMENT;
        self.head.remote_srq = size.into();
        self
    }

    /// Adds immediate data to a WRITE or SEND.
    pub fn imm(mut self, imm: u32) -> SendWr<'a> {
        self.head.imm = imm;
        self.becomes(&[
            (Operation::Write, Operation::WriteImm),
            (Operation::Send, Operation::SendImm),
        ])
    }

    /// Makes a SEND invalidate a key of the peer.
    pub fn invalidate(mut self, rkey: u32) -> SendWr<'a> {
        self.head.imm = rkey;
        self.becomes(&[(Operation::Send, Operation::SendInvalidate)])
    }

    /// Sets the destination of a datagram. With the highest bit of `qkey` the queue pair's own Q_Key is used.
    #[inline]
    pub fn to(mut self, handle: &AddressHandle, qp: u32, qkey: u32) -> SendWr<'a> {
        // Numbers of queue pairs have 24 bits.
        self.contradicts |= qp > vnic_device::doorbell::NUMBER_MAX;
        self.head.remote = SendHead::datagram(handle.number(), qp);
        self.head.rkey = qkey;
        self.has_destination = true;
        self
    }

    /// Sets the target of a request of a [`DcInitiator`](crate::DcInitiator): the way there, its number, and the access key with which it
    /// was made.
    #[inline]
    pub fn to_target(mut self, handle: &AddressHandle, target: u32, access_key: u64) -> SendWr<'a> {
        self.contradicts |= target > vnic_device::doorbell::NUMBER_MAX;
        self.head.flags |= send_flags::TARGET;
        self.target = Some(Target {
            access_key,
            address_handle: handle.number(),
            qp: target,
        });
        self
    }

    /// Sets the peer's shared receive queue, for XRC.
    #[inline]
    pub fn to_srq(mut self, srq: u32) -> SendWr<'a> {
        self.head.remote_srq = srq;
        self
    }

    fn becomes(mut self, table: &[(Operation, Operation)]) -> SendWr<'a> {
        let to = table
            .iter()
            .find(|(from, to)| [from.number(), to.number()].contains(&self.head.operation));
        match to {
            Some((_, to)) => self.head.operation = to.number(),
            None => self.contradicts = true,
        }
        self
    }
}

/// A work request for a receive queue (`ibv_recv_wr`).
///
/// ```no_run
/// # fn example(region: &vnic_verbs::MemoryRegion) -> Result<(), vnic_verbs::Error> {
/// use vnic_verbs::RecvWr;
///
/// let elements = [region.slice(..40), region.slice(64..1064)];
/// let receive = RecvWr::new(&elements).id(3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "a work request does nothing until it is posted"]
pub struct RecvWr<'a> {
    pub(crate) id: u64,
    pub(crate) data: Data<'a>,
}

impl<'a> RecvWr<'a> {
    /// A receive into these elements. Datagrams need 40 bytes more, in front.
    #[inline]
    pub fn new(data: impl Into<Data<'a>>) -> RecvWr<'a> {
        RecvWr {
            id: 0,
            data: data.into(),
        }
    }

    /// Sets the id, which the completion gives back.
    #[inline]
    pub fn id(mut self, id: u64) -> RecvWr<'a> {
        self.id = id;
        self
    }
}
