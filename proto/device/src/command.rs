//! Commands: one descriptor chain of the control virtqueue each.
//!
//! Device-readable: [`CommandHead`], then the command's body, then (where it says so) a list. Device-writable:
//! [`ReplyHead`], then the reply's body. A body that is shorter than here is filled up with zeros; one that is longer must
//! have zeros behind: so both sides may be of different minor versions.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What stands in front of a command: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandHead {
    /// [`Opcode`].
    pub opcode: u16,
    /// Zero.
    pub flags: u16,
    /// Bytes behind this head.
    pub len: u32,
    /// The driver's; the reply carries it back.
    pub cookie: u64,
}

const _: () = assert!(size_of::<CommandHead>() == 16);

/// What stands in front of a reply: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReplyHead {
    /// [`CommandStatus`](crate::status::CommandStatus).
    pub status: u32,
    /// Bytes behind this head.
    pub len: u32,
    /// The command's.
    pub cookie: u64,
}

const _: () = assert!(size_of::<ReplyHead>() == 16);

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Which command it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Opcode {
            $($(#[$doc])* $name = $number,)*
        }

        impl Opcode {
            /// All commands.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// The command with a number.
            pub const fn from_number(number: u16) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// Agree on a version: [`Hello`] → [`HelloReply`]. Must be the first.
    Hello = 0,
    /// What the device can: → [`DeviceReply`].
    QueryDevice = 1,
    /// State of the port: → [`PortReply`].
    QueryPort = 2,
    /// An entry of the GID table: [`Object`] (the index) → [`GidReply`].
    QueryGid = 3,
    /// Make a protection domain: → [`Object`].
    AllocPd = 16,
    /// End it: [`Object`].
    DeallocPd = 17,
    /// Register memory: [`RegisterMr`] and a list of [`Extent`]s → [`MrReply`].
    RegisterMr = 18,
    /// Change a region: [`ReregisterMr`] and a list of [`Extent`]s → [`MrReply`].
    ReregisterMr = 19,
    /// End a region: [`Object`].
    DeregisterMr = 20,
    /// Make a memory window: [`AllocMw`] → [`MwReply`].
    AllocMw = 21,
    /// End it: [`Object`].
    DeallocMw = 22,
    /// Make a completion queue: [`CreateCq`] and a list of [`Extent`]s for its ring → [`Object`].
    CreateCq = 32,
    /// Give it another ring: [`ResizeCq`] and a list of [`Extent`]s.
    ResizeCq = 33,
    /// End it: [`Object`].
    DestroyCq = 34,
    /// Make a shared receive queue: [`CreateSrq`] and a list of [`Extent`]s for its ring → [`Object`].
    CreateSrq = 35,
    /// Arm its limit: [`ModifySrq`].
    ModifySrq = 36,
    /// What it holds: [`Object`] → [`SrqReply`].
    QuerySrq = 37,
    /// End it: [`Object`].
    DestroySrq = 38,
    /// Make an address handle: [`CreateAh`] → [`Object`].
    CreateAh = 39,
    /// End it: [`Object`].
    DestroyAh = 40,
    /// Make an XRC domain: → [`Object`].
    OpenXrcd = 41,
    /// End it: [`Object`].
    CloseXrcd = 42,
    /// Make a queue pair: [`CreateQp`] and a list of [`Extent`]s, send ring first → [`Object`].
    CreateQp = 48,
    /// Change it: [`ModifyQp`].
    ModifyQp = 49,
    /// Its attributes: [`Object`] → [`QpReply`].
    QueryQp = 50,
    /// End it; what was posted is flushed before the reply: [`Object`].
    DestroyQp = 51,
    /// Attach a QP to a multicast group: [`Multicast`].
    AttachMulticast = 52,
    /// Detach it: [`Multicast`].
    DetachMulticast = 53,
    /// Make a doorbell ring: [`CreateDoorbells`] and a list of [`Extent`]s → [`Object`].
    CreateDoorbells = 64,
    /// End it: [`Object`].
    DestroyDoorbells = 65,
    /// Counters by number: → a list of `u64`s in the order of the device's table.
    QueryCounters = 66,
}

/// A handle, or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Object {
    /// The handle.
    pub handle: u32,
    /// Zero.
    pub reserved: u32,
}

/// A piece of the memory that the guest shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Extent {
    /// Guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub len: u64,
}

/// Body of [`Opcode::Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hello {
    /// Major version of the driver.
    pub abi_major: u16,
    /// Oldest minor version it can speak.
    pub minor_min: u16,
    /// Newest.
    pub minor_max: u16,
    /// Zero.
    pub reserved: u16,
}

/// Reply to [`Opcode::Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HelloReply {
    /// Minor version that both speak from now on.
    pub minor: u16,
    /// Zero.
    pub reserved: [u16; 3],
    /// Zero: capabilities to come.
    pub capabilities: u64,
}

/// Reply to [`Opcode::QueryDevice`]: the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceReply {
    /// Bytes of a region.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
    /// Elements of a work request.
    pub max_sge: u32,
    /// Inline bytes.
    pub max_inline: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Regions.
    pub max_mr: u32,
    /// Extents of all regions.
    pub max_mr_extents: u32,
    /// Windows.
    pub max_mw: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Their work requests.
    pub max_srq_wr: u32,
    /// Their elements.
    pub max_srq_sge: u32,
    /// Address handles.
    pub max_ah: u32,
    /// XRC domains.
    pub max_xrcd: u32,
    /// Multicast groups.
    pub max_mcast_groups: u32,
    /// QPs in a group.
    pub max_mcast_qp_per_group: u32,
    /// READs and atomics a QP may have outstanding, in either direction.
    pub max_rd_atomic: u32,
    /// Entries of the GID table.
    pub gid_table_len: u32,
    /// Doorbell rings.
    pub max_doorbells: u32,
}

/// Reply to [`Opcode::QueryPort`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PortReply {
    /// 1 up, 0 down.
    pub up: u32,
    /// Number of the path MTU that is active (1: 256 … 5: 4096 bytes).
    pub active_mtu: u32,
    /// Speed in Mb/s.
    pub speed: u32,
    /// Entries of the GID table.
    pub gid_table_len: u32,
    /// Address.
    pub mac: [u8; 6],
    /// Zero.
    pub reserved: [u8; 10],
}

/// Reply to [`Opcode::QueryGid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GidReply {
    /// The GID; zeros: no entry.
    pub gid: [u8; 16],
    /// 1: RoCE v1, 2: RoCE v2; 0: no entry.
    pub kind: u32,
    /// VLAN, or 0.
    pub vlan: u32,
}

/// Rights of a key: bits of `ibv_access_flags`, and our own from bit 16.
pub mod access {
    /// The own QPs may write.
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// Peers may WRITE.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// Peers may READ.
    pub const REMOTE_READ: u32 = 1 << 2;
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    /// Windows may be bound.
    pub const MW_BIND: u32 = 1 << 4;
    /// Addresses count from zero.
    pub const ZERO_BASED: u32 = 1 << 5;
    /// SEND with invalidate and LOCAL_INVALIDATE may take the key back.
    pub const INVALIDATE: u32 = 1 << 16;
    /// Every right there is.
    pub const ALL: u32 = 0x3f | INVALIDATE;
}

/// Body of [`Opcode::RegisterMr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegisterMr {
    /// Protection domain.
    pub pd: u32,
    /// [`access`].
    pub access: u32,
    /// Address of the first byte, as work requests and peers name it.
    pub iova: u64,
    /// Extents that follow.
    pub extents: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bits of [`ReregisterMr::change`], numbers of `ibv_rereg_mr_flags`.
pub mod reregister {
    /// Address and extents.
    pub const TRANSLATION: u32 = 1 << 0;
    /// Protection domain.
    pub const PD: u32 = 1 << 1;
    /// Rights.
    pub const ACCESS: u32 = 1 << 2;
    /// Every bit there is.
    pub const ALL: u32 = 7;
}

/// Body of [`Opcode::ReregisterMr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReregisterMr {
    /// The region.
    pub mr: u32,
    /// [`reregister`].
    pub change: u32,
    /// As in [`RegisterMr`].
    pub register: RegisterMr,
}

/// Reply to [`Opcode::RegisterMr`] and [`Opcode::ReregisterMr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MrReply {
    /// The region.
    pub mr: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
    /// Zero.
    pub reserved: u32,
}

/// Body of [`Opcode::AllocMw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocMw {
    /// Protection domain.
    pub pd: u32,
    /// 1 or 2.
    pub mw_type: u32,
}

/// Reply to [`Opcode::AllocMw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MwReply {
    /// The window.
    pub mw: u32,
    /// Its key.
    pub rkey: u32,
}

/// Body of [`Opcode::CreateCq`]. The ring is a `CompletionHead` and the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateCq {
    /// Entries: a power of two.
    pub entries: u32,
    /// Event queue that hears of it, from 0.
    pub event_queue: u32,
    /// Extents that follow.
    pub extents: u32,
    /// Zero.
    pub reserved: u32,
}

/// Body of [`Opcode::ResizeCq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResizeCq {
    /// The queue. Completions that the driver has not taken are moved to the new ring's front, its phase begins with 1.
    pub cq: u32,
    /// Entries of the new ring.
    pub entries: u32,
    /// Extents that follow.
    pub extents: u32,
    /// Zero.
    pub reserved: u32,
}

/// Body of [`Opcode::CreateSrq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateSrq {
    /// Protection domain.
    pub pd: u32,
    /// Entries: a power of two.
    pub entries: u32,
    /// Elements of an entry; its bytes are `queue::receive_stride` of it.
    pub elements: u32,
    /// 1: for XRC, with `xrcd` and `cq`.
    pub xrc: u32,
    /// XRC: the domain.
    pub xrcd: u32,
    /// XRC: where it completes.
    pub cq: u32,
    /// Extents that follow.
    pub extents: u32,
    /// Zero.
    pub reserved: u32,
}

/// Body of [`Opcode::ModifySrq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifySrq {
    /// The queue.
    pub srq: u32,
    /// An event is raised once when fewer are left.
    pub limit: u32,
}

/// Reply to [`Opcode::QuerySrq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqReply {
    /// Receives that wait.
    pub waiting: u32,
    /// Entries of its ring.
    pub entries: u32,
    /// The limit that is armed, or 0.
    pub limit: u32,
    /// Zero.
    pub reserved: u32,
}

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddressVector {
    /// GID of the destination.
    pub dgid: [u8; 16],
    /// Its Ethernet address; zeros: the device finds it out.
    pub dmac: [u8; 6],
    /// Own entry of the GID table.
    pub sgid_index: u16,
    /// Flow label.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub service_level: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = assert!(size_of::<AddressVector>() == 32);

/// Body of [`Opcode::CreateAh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateAh {
    /// Protection domain.
    pub pd: u32,
    /// Zero.
    pub reserved: u32,
    /// Where to.
    pub address: AddressVector,
}

/// Types of queue pairs, numbers of `ibv_qp_type`.
pub mod qp_type {
    /// Reliable connection.
    pub const RC: u32 = 2;
    /// Unreliable connection.
    pub const UC: u32 = 3;
    /// Unreliable datagram.
    pub const UD: u32 = 4;
    /// Sending end of an extended reliable connection.
    pub const XRC_INITIATOR: u32 = 9;
    /// Receiving end.
    pub const XRC_TARGET: u32 = 10;
}

/// No object, where a field of [`CreateQp`] may be empty.
pub const NONE: u32 = u32::MAX;

/// Body of [`Opcode::CreateQp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateQp {
    /// [`qp_type`].
    pub qp_type: u32,
    /// Protection domain, or [`NONE`].
    pub pd: u32,
    /// Completion queue of sends, or [`NONE`].
    pub send_cq: u32,
    /// Completion queue of receives, or [`NONE`].
    pub recv_cq: u32,
    /// Shared receive queue, or [`NONE`].
    pub srq: u32,
    /// XRC domain, or [`NONE`].
    pub xrcd: u32,
    /// Blocks of the send ring: a power of two, or 0.
    pub send_blocks: u32,
    /// Elements of a send.
    pub send_elements: u32,
    /// Inline bytes of a send.
    pub inline: u32,
    /// Entries of the receive ring: a power of two, or 0.
    pub receive_entries: u32,
    /// Elements of a receive.
    pub receive_elements: u32,
    /// 1: all sends complete visibly.
    pub signal_all: u32,
    /// Extents of the send ring that follow.
    pub send_extents: u32,
    /// Extents of the receive ring behind them.
    pub receive_extents: u32,
}

/// Attributes of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpAttributes {
    /// State, numbers of `ibv_qp_state`.
    pub state: u8,
    /// State that the driver believes it to be in.
    pub current_state: u8,
    /// Number of the path MTU (1..=5).
    pub path_mtu: u8,
    /// 1: tell when the send queue has drained.
    pub drained_event: u8,
    /// READs and atomics it may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics it holds resources for.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR timer it asks for.
    pub min_rnr_timer: u8,
    /// Port, from 1.
    pub port: u8,
    /// ACK timeout: 4.096 µs · 2^n.
    pub timeout: u8,
    /// Retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// 1: `address` is set (in replies).
    pub has_address: u8,
    /// Index in the P_Key table.
    pub pkey_index: u16,
    /// UDP source port; 0: from the QP numbers.
    pub udp_source_port: u16,
    /// What peers may do: [`access`].
    pub access: u32,
    /// Queue key.
    pub qkey: u32,
    /// PSN it expects.
    pub rq_psn: u32,
    /// PSN it sends.
    pub sq_psn: u32,
    /// The peer's QP.
    pub destination_qp: u32,
    /// Zero.
    pub reserved: u32,
    /// The way to the peer.
    pub address: AddressVector,
}

const _: () = assert!(size_of::<QpAttributes>() == 72);

/// Body of [`Opcode::ModifyQp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifyQp {
    /// The queue pair.
    pub qp: u32,
    /// Which attributes are meant: bits as in `SPEC.md`, section 6.7.
    pub mask: u32,
    /// Their values.
    pub attributes: QpAttributes,
}

/// Reply to [`Opcode::QueryQp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpReply {
    /// What it has.
    pub attributes: QpAttributes,
}

/// Body of [`Opcode::AttachMulticast`] and [`Opcode::DetachMulticast`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Multicast {
    /// The queue pair.
    pub qp: u32,
    /// Zero.
    pub reserved: u32,
    /// The group.
    pub gid: [u8; 16],
}

/// Body of [`Opcode::CreateDoorbells`]. The ring is a `RingHead` and the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateDoorbells {
    /// Entries: a power of two.
    pub entries: u32,
    /// Wake-up queue that is kicked for it, from 0.
    pub wake_queue: u32,
    /// Extents that follow.
    pub extents: u32,
    /// Zero.
    pub reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_multiples_of_eight() {
        for (name, size) in [
            ("Hello", size_of::<Hello>()),
            ("HelloReply", size_of::<HelloReply>()),
            ("DeviceReply", size_of::<DeviceReply>()),
            ("PortReply", size_of::<PortReply>()),
            ("GidReply", size_of::<GidReply>()),
            ("RegisterMr", size_of::<RegisterMr>()),
            ("ReregisterMr", size_of::<ReregisterMr>()),
            ("CreateCq", size_of::<CreateCq>()),
            ("CreateSrq", size_of::<CreateSrq>()),
            ("CreateAh", size_of::<CreateAh>()),
            ("CreateQp", size_of::<CreateQp>()),
            ("ModifyQp", size_of::<ModifyQp>()),
            ("Multicast", size_of::<Multicast>()),
        ] {
            assert_eq!(size % 8, 0, "{name} has {size} bytes");
        }
    }

    #[test]
    fn numbers_name_their_commands() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(*opcode as u16), Some(*opcode));
        }
        assert_eq!(Opcode::from_number(0xffff), None);
    }
}
