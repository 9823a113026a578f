//! The vocabulary of the verbs (IBTA volume 1, chapters 10 and 11; names as in `ibv_*(3)`). What has a number there is
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
    /// What a key allows (IBTA 10.6.3; `ibv_access_flags`).
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
    /// Bytes. 0 means none here.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// A list of scatter/gather elements; short ones need no allocation.
pub type SgList = SmallVec<[Sge; 4]>;

/// Where a packet goes (IBTA 11.2.2.1, `ibv_ah_attr`, as RoCE needs it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// GID of the destination.
    pub dgid: Gid,
    /// Its Ethernet address, or that of the next hop: the control plane or the guest resolved it.
    pub dmac: MacAddr,
    /// Own entry of the GID table; its type decides between RoCE v1 and v2.
    pub sgid_index: u16,
    /// Traffic class: DSCP and ECN of the IP header.
    pub traffic_class: u8,
    /// Flow label, 20 bits (IPv6 and GRH).
    pub flow_label: u32,
    /// Hop limit or TTL.
    pub hop_limit: u8,
    /// Service level; with a VLAN its priority (IBTA annex A16).
    pub service_level: u8,
}

/// What a send work request does (IBTA 11.4.1; `ibv_wr_opcode`).
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
    /// What it is, whatever it names.
    #[inline]
    pub const fn operation(&self) -> Operation {
        // In the order of their numbers: nothing has to be looked up.
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
    /// The key it gets: a type 2 window's owner chooses the low 8 bits; for type 1 the device does.
    pub rkey: u32,
    /// The region under it.
    pub mr: MrHandle,
    /// First address, in the region's addresses.
    pub addr: u64,
    /// Bytes; 0 unbinds.
    pub len: u64,
    /// Rights of peers; `ZERO_BASED` is allowed.
    pub access: Access,
}

bitflags! {
    /// How a send work request is carried out (`ibv_send_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u8 {
        /// Waits until the READs and atomics before it are complete.
        const FENCE = 1 << 0;
        /// Completes visibly also when it succeeds.
        const SIGNALED = 1 << 1;
        /// Asks the receiver for an event.
        const SOLICITED = 1 << 2;
    }
}

/// What a send work request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendData {
    /// Gathered from (or for READ and atomics scattered to) registered memory.
    Sges(SgList),
    /// The bytes themselves, copied when posted.
    Inline(SmallVec<[u8; 64]>),
}

impl SendData {
    /// Becomes inline bytes: the first `len` of these, at most all.
    #[inline]
    pub fn set_inline(&mut self, bytes: [u8; 64], len: usize) {
        let bytes = SmallVec::from_buf_and_len(bytes, len.min(64));
        match self {
            SendData::Inline(inline) => *inline = bytes,
            SendData::Sges(_) => *self = SendData::Inline(bytes),
        }
    }

    /// Becomes a list, empty at first.
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

/// Destination of a datagram (`ibv_send_wr.wr.ud`).
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
    /// Comes back in the completion.
    pub id: u64,
    /// The shell's own number: comes back in the completion, beside `id`.
    pub tag: u32,
    /// What to do.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// With what.
    pub data: SendData,
    /// UD only: to whom.
    pub ud: Option<UdDestination>,
    /// XRC only: number of the remote SRQ.
    pub remote_srq: u32,
}

impl Default for SendWr {
    /// A SEND of nothing.
    fn default() -> SendWr {
        SendWr {
            id: 0,
            tag: 0,
            op: SendOp::Send,
            flags: SendFlags::empty(),
            data: SendData::default(),
            ud: None,
            remote_srq: 0,
        }
    }
}

/// A receive work request (`ibv_recv_wr`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub id: u64,
    /// The shell's own number: comes back in the completion, beside `id`.
    pub tag: u32,
    /// Where the message goes. For UD the first 40 bytes are the GRH's.
    pub sges: SgList,
}

/// The sender of a datagram, as the completion tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdSource {
    /// Its QP.
    pub qp: QpNumber,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// VLAN it came on.
    pub vlan: Option<u16>,
    /// Service level (priority of the VLAN tag).
    pub service_level: u8,
}

/// A work completion (`ibv_wc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Completion {
    /// Of the work request.
    pub wr_id: u64,
    /// Of the work request as well: its `tag`.
    pub tag: u32,
    /// How it ended.
    pub status: Status,
    /// What it was; means nothing when `status` is an error.
    pub op: CompletionOp,
    /// The local QP.
    pub qp: QpNumber,
    /// Bytes received, READ or fetched.
    pub byte_len: u32,
    /// Immediate data that came with it.
    pub imm: Option<u32>,
    /// Key that the sender had invalidated.
    pub invalidated: Option<u32>,
    /// UD: from whom. A GRH's 40 bytes are at the front of the buffer.
    pub source: Option<UdSource>,
    /// The sender asked for an event (counts for `Arm::Solicited`).
    pub solicited: bool,
}

impl Completion {
    /// A completion that carries nothing more.
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
            source: None,
            solicited: false,
        }
    }
}

/// Whom a completion channel wakes (`ibv_req_notify_cq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// Any completion.
    Next,
    /// A solicited one, or an error.
    Solicited,
}

/// What happened besides completions (IBTA 11.6.3; `ibv_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// An armed completion queue has something.
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
}

/// Most bytes of a message (IBTA 9.7.8: 2^31).
pub const MESSAGE_MAX: u32 = 1 << 31;

/// Rate of a send queue (`ibv_qp_rate_limit_attr`). The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RateLimit {
    /// In kbit/s, with everything that a packet takes on the wire; 0: not limited.
    pub rate: u32,
    /// Bytes that may be sent at once after a pause; 0: the device chooses.
    pub max_burst: u32,
    /// Bytes of a usual packet: a hint, which changes nothing here.
    pub typical_packet: u16,
}

/// Attributes of a QP that `modify` sets and `query` tells (`ibv_qp_attr`).
// Wide: the attributes of the verb that modifies a QP (IBTA 11.2.5.2), as `ibv_qp_attr` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpAttributes {
    /// State to go to, or that it is in.
    pub state: QpState,
    /// State that the caller believes it to be in.
    pub current_state: QpState,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Queue key (UD).
    pub qkey: u32,
    /// First PSN it expects.
    pub rq_psn: Psn,
    /// First PSN it sends.
    pub sq_psn: Psn,
    /// The peer.
    pub destination_qp: QpNumber,
    /// What the peer may do.
    pub access: Access,
    /// The way to the peer.
    pub address: Option<AddressVector>,
    /// Index in the P_Key table.
    pub pkey_index: u16,
    /// Tell when the send queue has drained.
    pub drained_event: bool,
    /// READs and atomics it may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics it holds resources for as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR timer it asks for (0..=31).
    pub min_rnr_timer: u8,
    /// Physical port, from 1.
    pub port: u8,
    /// ACK timeout: 4.096 µs · 2^n; 0 waits for ever (0..=31).
    pub timeout: u8,
    /// Retries before giving up (0..=7).
    pub retry_count: u8,
    /// RNR retries before giving up; 7: never (0..=7).
    pub rnr_retry: u8,
    /// UDP source port, when it is chosen (`vnic_wire` checks nothing); otherwise from the QP numbers.
    pub udp_source_port: Option<u16>,
}

impl Default for QpAttributes {
    /// As a new QP has them.
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
    /// Which attributes are meant (`ibv_qp_attr_mask`).
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
        /// `current_state`: another one is refused.
        const CURRENT_STATE = 1 << 18;
    }
}

/// What a QP is created with (`ibv_qp_init_attr_ex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain. An XRC target has none: `None`.
    pub pd: Option<PdHandle>,
    /// Where sends complete. An XRC target sends nothing: `None`.
    pub send_cq: Option<CqHandle>,
    /// Where receives complete. `None` for both ends of XRC: there the SRQ says it.
    pub recv_cq: Option<CqHandle>,
    /// Shared receive queue instead of an own one.
    pub srq: Option<SrqHandle>,
    /// XRC target: its domain.
    pub xrcd: Option<XrcdHandle>,
    /// Send work requests that may be outstanding.
    pub max_send_wr: u32,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: u32,
    /// Elements of a send.
    pub max_send_sge: u32,
    /// Elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of an inline send.
    pub max_inline: u32,
    /// All sends complete visibly.
    pub signal_all: bool,
}

/// Why a verb was refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum VerbsError {
    /// No such object, or it was destroyed.
    #[error("no such {0}")]
    NoSuch(Object),
    /// The device has as many as it can.
    #[error("the limit of {limit} {object}s is reached")]
    LimitReached {
        /// Of what.
        object: Object,
        /// How many there may be.
        limit: u32,
    },
    /// Others still use it.
    #[error("the {object} is used by {users} other objects")]
    InUse {
        /// What.
        object: Object,
        /// By how many.
        users: u32,
    },
    /// A value out of its range.
    #[error("{what} is {value}; it must be between {min} and {max}")]
    OutOfRange {
        /// Name of the argument.
        what: &'static str,
        /// What was given.
        value: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// Objects of different protection domains.
    #[error("the {0} belongs to another protection domain")]
    OtherDomain(Object),
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// Not in this state.
    #[error("not possible in state {0:?}")]
    State(QpState),
    /// No such transition for the type of QP.
    #[error("no way from {from:?} to {to:?}")]
    Transition {
        /// State it is in.
        from: QpState,
        /// State that was asked for.
        to: QpState,
    },
    /// Attributes that the transition needs, or does not allow.
    #[error("missing attributes {missing:?}, unexpected attributes {unexpected:?}")]
    Attributes {
        /// Needed and not given.
        missing: AttributeMask,
        /// Given and not allowed.
        unexpected: AttributeMask,
    },
    /// An argument that contradicts another or the type of QP.
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
