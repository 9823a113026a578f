//! The vocabulary of the verbs (IBTA volume 1, chapters 10 and 11; names as in `ibv_*(3)`). Types with numbers come
//! from the contract with the driver (proto/device).

use core::fmt;

use bitflags::bitflags;
use smallvec::SmallVec;
pub use vnic_device::queue::CompletionKind as CompletionOp;
use vnic_device::queue::Operation;
pub use vnic_device::verbs::{CompletionStatus as Status, Mtu, MwType, QpState, QpType};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

/// A queue pair's number, 24 bits (IBTA 9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QpNumber(pub u32);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    )*};
}

handles! {
    /// A protection domain.
    PdHandle;
    /// A memory region: its own handle, not its keys.
    MrHandle;
    /// A memory window.
    MwHandle;
    /// A completion queue.
    CqHandle;
    /// A shared receive queue; its number on the wire for XRC as well (24 bits).
    SrqHandle;
    /// An address handle.
    AhHandle;
    /// An XRC domain.
    XrcdHandle;
}

bitflags! {
    /// Rights of a key (IBTA 10.6.3; `ibv_access_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The own QPs may write here: receive buffers, destinations of READ and atomics.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may READ.
        const REMOTE_READ = 1 << 2;
        /// Peers may do atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from zero instead of from the start of the region.
        const ZERO_BASED = 1 << 5;
        /// Work requests, also a peer's SEND, may invalidate the region's key (as those of fast-registered regions,
        /// IBTA 10.6.5); registering it again makes it valid.
        const INVALIDATE = 1 << 6;
    }
}

impl Access {
    /// Rights of peers.
    pub const REMOTE: Access = Access::REMOTE_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC);
}

/// A piece of the function's memory: an address that the shell's [`Memory`](super::Memory) understands, and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Address.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// A scatter/gather element (IBTA 10.8.2; `ibv_sge`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sge {
    /// Address in the region that `lkey` names.
    pub addr: u64,
    /// Length in bytes; 0: no bytes.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// A list of scatter/gather elements; short ones need no allocation.
pub type SgList = SmallVec<[Sge; 4]>;

/// Where a packet goes (IBTA 11.2.2.1, `ibv_ah_attr`, as RoCE needs it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AddressVector {
    /// GID of the destination.
    pub dgid: Gid,
    /// Ethernet address of the destination or of the next hop: the control plane or the guest resolved it.
    pub dmac: MacAddr,
    /// Index in the own GID table; the kind of the entry decides between RoCE v1 and v2.
    pub sgid_index: u16,
    /// Traffic class: DSCP and ECN of the IP header.
    pub traffic_class: u8,
    /// Flow label, 20 bits (IPv6 and GRH).
    pub flow_label: u32,
    /// Hop limit or TTL.
    pub hop_limit: u8,
    /// Service level, 0..=15; its lower three bits are the priority in a tag (IBTA annex A16), the fourth one that the tag is drop eligible.
    pub service_level: u8,
}

/// Operation of a send work request (IBTA 11.4.1; `ibv_wr_opcode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendOp {
    /// RDMA WRITE to a remote address under a remote key.
    Write {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
    },
    /// RDMA WRITE with immediate data.
    WriteImm {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate data.
        imm: u32,
    },
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// RDMA READ.
    Read {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Atomic compare and swap of 8 bytes.
    CompareSwap {
        /// Remote address, a multiple of 8.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// Value that must be there.
        compare: u64,
        /// Value that replaces it.
        swap: u64,
    },
    /// Atomic fetch and add of 8 bytes.
    FetchAdd {
        /// Remote address, a multiple of 8.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// What is added, modulo 2^64.
        add: u64,
    },
    /// Invalidates a local key: a type 2 window or a region that allows it.
    LocalInvalidate(u32),
    /// Binds a memory window (type 2, or type 1 on behalf of the bind verb).
    BindMw(MwBind),
    /// SEND that invalidates a key of the receiver.
    SendInvalidate(u32),
}

impl SendOp {
    /// The operation, without its arguments.
    #[inline]
    pub const fn operation(&self) -> Operation {
        // In the order of the numbers: no table is needed.
        match self {
            SendOp::Write { .. } => Operation::Write,
            SendOp::WriteImm { .. } => Operation::WriteImm,
            SendOp::Send => Operation::Send,
            SendOp::SendImm(_) => Operation::SendImm,
            SendOp::Read { .. } => Operation::Read,
            SendOp::CompareSwap { .. } => Operation::CompareSwap,
            SendOp::FetchAdd { .. } => Operation::FetchAdd,
            SendOp::LocalInvalidate(_) => Operation::LocalInvalidate,
            SendOp::BindMw(_) => Operation::BindMw,
            SendOp::SendInvalidate(_) => Operation::SendInvalidate,
        }
    }
}

/// A memory window's new binding (IBTA 10.6.7.2; `ibv_mw_bind_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MwBind {
    /// The window.
    pub mw: MwHandle,
    /// The new key: a type 2 window's owner chooses the low 8 bits; for type 1 the device does.
    pub rkey: u32,
    /// The region under it.
    pub mr: MrHandle,
    /// First address, in the region's addresses.
    pub addr: u64,
    /// Length in bytes; 0 unbinds.
    pub len: u64,
    /// Rights of peers; `ZERO_BASED` is allowed.
    pub access: Access,
}

bitflags! {
    /// Flags of a send work request (`ibv_send_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u8 {
        /// Wait until the READs and atomics before it are complete.
        const FENCE = 1 << 0;
        /// Complete visibly also on success.
        const SIGNALED = 1 << 1;
        /// Ask for an event at the receiver.
        const SOLICITED = 1 << 2;
        /// Raw packet: fill in the checksums of IPv4, TCP and UDP.
        const CHECKSUM = 1 << 5;
        /// Raw packet: cut the frame into segments of [`SendWr::segment`] bytes of payload.
        const SEGMENT = 1 << 6;
    }
}

/// Data of a send work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendData {
    /// Registered memory that the data are gathered from (for READ and atomics scattered to).
    Sges(SgList),
    /// Inline bytes, copied when posted.
    Inline(SmallVec<[u8; 64]>),
}

impl SendData {
    /// Makes the data inline bytes: the first `len` of these, at most all.
    #[inline]
    pub fn set_inline(&mut self, bytes: [u8; 64], len: usize) {
        let bytes = SmallVec::from_buf_and_len(bytes, len.min(64));
        match self {
            SendData::Inline(inline) => *inline = bytes,
            SendData::Sges(_) => *self = SendData::Inline(bytes),
        }
    }

    /// Makes the data a list, empty at first.
    #[inline]
    pub fn set_list(&mut self) -> &mut SgList {
        if let SendData::Inline(_) = self {
            *self = SendData::Sges(SgList::new());
        }
        match self {
            SendData::Sges(list) => {
                list.clear();
                list
            }
            SendData::Inline(_) => unreachable!("it was made a list"),
        }
    }
}

impl Default for SendData {
    fn default() -> SendData {
        SendData::Sges(SgList::new())
    }
}

/// Destination of a datagram (`ibv_send_wr.wr.ud`), or of a DC request, where the queue key means nothing
/// (`mlx5dv_wr_set_dc_addr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdDestination {
    /// Address handle, of the same protection domain.
    pub ah: AhHandle,
    /// QP there; 0xffffff for multicast.
    pub qp: QpNumber,
    /// Queue key. With the top bit set, the QP's own is used (IBTA 10.2.5).
    pub qkey: u32,
}

/// A send work request (`ibv_send_wr`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendWr {
    /// Id that the completion gives back.
    pub id: u64,
    /// The shell's own number, which the completion gives back besides `id`.
    pub tag: u32,
    /// Operation.
    pub op: SendOp,
    /// Flags.
    pub flags: SendFlags,
    /// Data.
    pub data: SendData,
    /// UD and DC only: destination.
    pub ud: Option<UdDestination>,
    /// XRC: number of the remote SRQ. Raw packet with [`SendFlags::SEGMENT`]: bytes of payload of a segment.
    pub remote_srq: u32,
    /// DC only: access key of the target.
    pub access_key: u64,
}

impl SendWr {
    /// Bytes of payload of a segment, of a frame that is to be cut.
    pub fn segment(&self) -> Option<u32> {
        self.flags.contains(SendFlags::SEGMENT).then_some(self.remote_srq)
    }

    /// Bytes of the message, or those asked for.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        match (&self.op, &self.data) {
            (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, _) => 8,
            (SendOp::BindMw(_) | SendOp::LocalInvalidate(_), _) => 0,
            (_, SendData::Sges(sges)) => sges.iter().map(|s| u64::from(s.len)).sum(),
            (_, SendData::Inline(bytes)) => bytes.len() as u64,
        }
    }
}

impl Default for SendWr {
    /// A SEND of no bytes.
    fn default() -> SendWr {
        SendWr {
            id: 0,
            tag: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            data: SendData::default(),
            ud: None,
            remote_srq: 0,
            access_key: 0,
        }
    }
}

/// A receive work request (`ibv_recv_wr`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecvWr {
    /// Id that the completion gives back.
    pub id: u64,
    /// The shell's own number, which the completion gives back besides `id`.
    pub tag: u32,
    /// Memory for the message. For UD the first 40 bytes are the GRH's.
    pub sges: SgList,
}

/// The sender of a datagram, in its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdSource {
    /// QP of the sender.
    pub qp: QpNumber,
    /// Ethernet address of the sender.
    pub mac: MacAddr,
    /// VLAN that the datagram came on.
    pub vlan: Option<u16>,
    /// Service level, by the tag.
    pub service_level: u8,
    /// Network header of the datagram.
    pub network: NetworkHeader,
}

/// Where a message is from, and what comes with it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The peer of the connection, or the work request was a send.
    #[default]
    Peer,
    /// The sender of a datagram. A GRH's 40 bytes are at the front of the buffer.
    Datagram(UdSource),
    /// A wire: a raw packet QP's frame.
    Frame {
        /// Whether its checksums were found right.
        checksum_ok: bool,
        /// When it arrived at the machine, or at the QP.
        arrived: Instant,
    },
}

/// Kinds of network headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NetworkHeader {
    /// The GRH of RoCE v1.
    Grh,
    /// IPv6.
    Ipv6,
    /// IPv4.
    Ipv4,
}

/// A work completion (`ibv_wc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Completion {
    /// Id of the work request.
    pub wr_id: u64,
    /// Tag of the work request.
    pub tag: u32,
    /// How the work request ended.
    pub status: Status,
    /// Kind of the work request; means nothing when `status` is an error.
    pub op: CompletionOp,
    /// The local QP.
    pub qp: QpNumber,
    /// Bytes received, READ or fetched.
    pub byte_len: u32,
    /// Immediate data of the message.
    pub imm: Option<u32>,
    /// Key that the sender invalidated.
    pub invalidated: Option<u32>,
    /// Where the message is from.
    pub origin: Origin,
    /// Whether the sender asked for an event (counts for `Arm::Solicited`).
    pub solicited: bool,
}

impl Completion {
    /// A completion without further fields.
    #[inline]
    pub const fn new(wr_id: u64, tag: u32, qp: QpNumber, op: CompletionOp, status: Status) -> Completion {
        Completion {
            wr_id,
            tag,
            status,
            op,
            qp,
            byte_len: 0,
            imm: None,
            invalidated: None,
            origin: Origin::Peer,
            solicited: false,
        }
    }
}

/// Completions that raise an event (`ibv_req_notify_cq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// Any completion.
    Next,
    /// A solicited completion, or an error.
    Solicited,
}

/// An event besides completions (IBTA 11.6.3; `ibv_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// An armed completion queue has a completion.
    Completion(CqHandle),
    /// A completion queue overran: it is in error.
    CqError(CqHandle),
    /// A QP failed for a reason of the device.
    QpFatal(QpNumber),
    /// The peer sent what the QP cannot accept.
    QpRequestError(QpNumber),
    /// The peer violated the QP's protection.
    QpAccessError(QpNumber),
    /// First packet on a QP that was ready to receive only.
    CommunicationEstablished(QpNumber),
    /// The send queue has drained.
    SendQueueDrained(QpNumber),
    /// A QP in error will take no more from its shared receive queue.
    LastWqeReached(QpNumber),
    /// Fewer receives than the limit are left.
    SrqLimitReached(SrqHandle),
    /// A shared receive queue failed.
    SrqError(SrqHandle),
    /// Accesses to a region on demand wait for pages: [`Device::page_fault`](super::Device::page_fault) says for which.
    PageFault(MrHandle),
    /// Something has happened to connections: [`Cm::poll_event`](super::cm::Cm::poll_event) says what. Told once until all is taken.
    Connections,
}

/// Most bytes of a message (IBTA 9.7.8: 2^31).
pub const MESSAGE_MAX: u32 = 1 << 31;

/// Rate limit of a send queue (`ibv_qp_rate_limit_attr`). By default there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RateLimit {
    /// Rate in kbit/s, with all that a packet takes on the wire; 0: not limited.
    pub rate: u32,
    /// Bytes that may be sent at once after a pause; 0: the device chooses.
    pub max_burst: u32,
    /// Bytes of a usual packet: a hint, which changes nothing here.
    pub typical_packet: u16,
}

/// Attributes of a QP that `modify` sets and `query` returns (`ibv_qp_attr`).
// Wide: the attributes of the verb that modifies a QP (IBTA 11.2.5.2), as `ibv_qp_attr` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpAttributes {
    /// State to go to, or current state.
    pub state: QpState,
    /// State that the caller believes the QP to be in.
    pub current_state: QpState,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Queue key (UD).
    pub qkey: u32,
    /// First PSN that the QP expects.
    pub rq_psn: Psn,
    /// First PSN that the QP sends.
    pub sq_psn: Psn,
    /// QP of the peer.
    pub destination_qp: QpNumber,
    /// Rights of the peer.
    pub access: Access,
    /// The way to the peer.
    pub address: Option<AddressVector>,
    /// Index in the P_Key table.
    pub pkey_index: u16,
    /// Whether an event is raised when the send queue has drained.
    pub drained_event: bool,
    /// READs and atomics that the QP may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics that the QP holds resources for as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR timer that the QP asks for (0..=31).
    pub min_rnr_timer: u8,
    /// Physical port, from 1.
    pub port: u8,
    /// ACK timeout: 4.096 µs · 2^n; 0 waits for ever (0..=31).
    pub timeout: u8,
    /// Retries before giving up (0..=7).
    pub retry_count: u8,
    /// RNR retries before giving up; 7: never (0..=7).
    pub rnr_retry: u8,
    /// UDP source port, if it is chosen (49152..=65535); otherwise it follows from the address's flow label, or without one from
    /// the QP number.
    pub udp_source_port: Option<u16>,
}

/// First of the UDP source ports that RoCEv2 uses (annex A17: 0xc000..=0xffff).
pub(super) const SOURCE_PORT_FIRST: u16 = 0xc000;

impl Default for QpAttributes {
    /// Attributes of a new QP.
    fn default() -> QpAttributes {
        QpAttributes {
            state: QpState::Reset,
            current_state: QpState::Reset,
            path_mtu: Mtu::Mtu1024,
            qkey: 0,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            destination_qp: QpNumber(0),
            access: Access::empty(),
            address: None,
            pkey_index: 0,
            drained_event: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port: 1,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            udp_source_port: None,
        }
    }
}

bitflags! {
    /// Which attributes count (`ibv_qp_attr_mask`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AttributeMask: u32 {
        /// `state`.
        const STATE = 1 << 0;
        /// `path_mtu`.
        const PATH_MTU = 1 << 1;
        /// `qkey`.
        const QKEY = 1 << 2;
        /// `rq_psn`.
        const RQ_PSN = 1 << 3;
        /// `sq_psn`.
        const SQ_PSN = 1 << 4;
        /// `destination_qp`.
        const DESTINATION_QP = 1 << 5;
        /// `access`.
        const ACCESS = 1 << 6;
        /// `address`.
        const ADDRESS = 1 << 7;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 8;
        /// `drained_event`.
        const DRAINED_EVENT = 1 << 9;
        /// `max_rd_atomic`.
        const MAX_RD_ATOMIC = 1 << 10;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 11;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 12;
        /// `port`.
        const PORT = 1 << 13;
        /// `timeout`.
        const TIMEOUT = 1 << 14;
        /// `retry_count`.
        const RETRY_COUNT = 1 << 15;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 16;
        /// `udp_source_port`.
        const UDP_SOURCE_PORT = 1 << 17;
        /// `current_state`: the verb fails in another state.
        const CURRENT_STATE = 1 << 18;
    }
}

/// Attributes of a new QP (`ibv_qp_init_attr_ex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain. An XRC target has none: `None`.
    pub pd: Option<PdHandle>,
    /// Completion queue of sends. A target of XRC or DC sends nothing: `None`.
    pub send_cq: Option<CqHandle>,
    /// Completion queue of receives. `None` for both ends of XRC, where the SRQ names it, and for a DC initiator.
    pub recv_cq: Option<CqHandle>,
    /// Shared receive queue instead of an own one.
    pub srq: Option<SrqHandle>,
    /// XRC target: its domain.
    pub xrcd: Option<XrcdHandle>,
    /// Send work requests that may be outstanding.
    pub max_send_wr: u32,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: u32,
    /// Most elements of a send.
    pub max_send_sge: u32,
    /// Most elements of a receive.
    pub max_recv_sge: u32,
    /// Most bytes of an inline send.
    pub max_inline: u32,
    /// Whether all sends complete visibly.
    pub signal_all: bool,
}

/// Why a verb was refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum VerbsError {
    /// There is no such object, or it was destroyed.
    #[error("no such {0}")]
    NoSuch(Object),
    /// The device has as many objects as it can.
    #[error("the limit of {limit} {object}s is reached")]
    LimitReached {
        /// Kind of the objects.
        object: Object,
        /// How many there may be.
        limit: u32,
    },
    /// Other objects still use the object.
    #[error("the {object} is used by {users} other objects")]
    InUse {
        /// Kind of the object.
        object: Object,
        /// Number of its users.
        users: u32,
    },
    /// A value is out of its range.
    #[error("{what} is {value}; it must be between {min} and {max}")]
    OutOfRange {
        /// Name of the argument.
        what: &'static str,
        /// Value that was given.
        value: u64,
        /// Least value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// The objects are of different protection domains.
    #[error("the {0} belongs to another protection domain")]
    OtherDomain(Object),
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The verb is not possible in this state.
    #[error("not possible in state {0:?}")]
    State(QpState),
    /// The type of QP has no such transition.
    #[error("no way from {from:?} to {to:?}")]
    Transition {
        /// State it is in.
        from: QpState,
        /// State that was asked for.
        to: QpState,
    },
    /// The transition needs other attributes, or does not allow some.
    #[error("missing attributes {missing:?}, unexpected attributes {unexpected:?}")]
    Attributes {
        /// Attributes that are needed and not given.
        missing: AttributeMask,
        /// Attributes that are given and not allowed.
        unexpected: AttributeMask,
    },
    /// An argument contradicts another or the type of QP.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// Protection domain.
    Pd,
    /// Memory region.
    Mr,
    /// Memory window.
    Mw,
    /// Completion queue.
    Cq,
    /// Queue pair.
    Qp,
    /// Shared receive queue.
    Srq,
    /// Address handle.
    Ah,
    /// XRC domain.
    Xrcd,
    /// Entry of the GID table.
    Gid,
    /// Multicast group membership.
    Multicast,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Object::Pd => "protection domain",
            Object::Mr => "memory region",
            Object::Mw => "memory window",
            Object::Cq => "completion queue",
            Object::Qp => "queue pair",
            Object::Srq => "shared receive queue",
            Object::Ah => "address handle",
            Object::Xrcd => "XRC domain",
            Object::Gid => "GID table entry",
            Object::Multicast => "multicast membership",
        })
    }
}
