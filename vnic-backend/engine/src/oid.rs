//! Object identifiers (OIDs): queries and sets of an NDIS miniport, with a code and a buffer. [`OIDS`] declares them;
//! gRPC, the command line and tests read this table. Numbers in buffers are little-endian, and structures have the padding
//! of the C language.
//!
//! ```text
//!  code, room ──▶ query(facts) ──▶ Answer { status, data, needed }
//!  code, data ──▶ set ──▶ what to do, or Failure { status, needed }
//! ```

mod answer;
mod describe;
mod dropless;
mod status;

pub use answer::{Answer, Facts, Link, Statistics, query};
pub use describe::describe;
pub use dropless::{SET_DISABLE, SET_ENABLE, SIGNATURE};
pub use status::Status;

/// Change by an OID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Enables dropless mode, with the documented 5 ms, or disables it.
    Dropless(bool),
}

/// Error of a set, which changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Status code.
    pub status: Status,
    /// Least length of the buffer; 0 if the length is not the error.
    pub needed: usize,
}

/// The layout of an OID's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `ULONG` with words for some values.
    Number(&'static [(u32, &'static str)]),
    /// A counter: 8 bytes where there is room for them, else the low 4.
    Counter,
    /// `ULONG`s that are codes of OIDs.
    Codes,
    /// An Ethernet address.
    Address,
    /// Ethernet addresses.
    Addresses,
    /// Text that ends with a zero byte.
    Text,
    /// `NDIS_LINK_SPEED`.
    LinkSpeed,
    /// `NDIS_LINK_STATE`.
    LinkState,
    /// `NDIS_STATISTICS_INFO`.
    Statistics,
    /// `DROPLESS_MODE`.
    Dropless,
}

/// Row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct OidDef {
    /// Code of the OID.
    pub code: u32,
    /// Name in the documents.
    pub name: &'static str,
    /// Whether the OID can be set. All can be queried.
    pub settable: bool,
    /// Unit of a number; may be empty.
    pub unit: &'static str,
    /// Meaning in one line.
    pub help: &'static str,
    /// Document that has the OID.
    pub source: &'static str,
    pub(crate) form: Form,
}

/// OID of dropless mode, which has no name in the documents.
pub const DROPLESS_MODE: u32 = 0xFFA0_C932;

const NDIS: &str = "Windows Driver Kit, ntddndis.h: general OIDs";
const ETHERNET: &str = "Windows Driver Kit, ntddndis.h: 802.3 OIDs";
const MEDIA: &[(u32, &str)] = &[(0, "802.3")];
const TAKEN: &[(u32, &str)] = &[(0x2d, "directed, all multicast, broadcast, promiscuous")];
const CONNECTED: &[(u32, &str)] = &[(0, "connected"), (1, "disconnected")];

const fn row(code: u32, name: &'static str, form: Form, unit: &'static str, help: &'static str) -> OidDef {
    OidDef {
        code,
        name,
        settable: false,
        unit,
        help,
        source: if code >> 24 == 1 { ETHERNET } else { NDIS },
        form,
    }
}

const DROPLESS: OidDef = OidDef {
    code: DROPLESS_MODE,
    name: "DROPLESS_MODE",
    settable: true,
    unit: "",
    help: "Dropless mode. Set: signature 0x0C1EA2, then 1 (on, with 5 ms) or 2 (off). \
           Query: signature, then 1 (on) or 0 (off).",
    source: "WinOF-2 Ethernet Network, Dropless Mode",
    form: Form::Dropless,
};

/// Codes of OIDs, and the rows of all but the last, which is not of NDIS: its form, the unit of a number, and its meaning.
macro_rules! oids {
    ($($code:ident = $number:literal $name:literal: $form:expr, $(in $unit:literal,)? $help:literal;)+) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $code: u32 = $number;
        )+

        /// All OIDs that are answered, by code.
        pub static OIDS: &[OidDef] = &[
            $(row($code, $name, $form, concat!($($unit)?), $help),)+
            DROPLESS,
        ];
    };
}

oids! {
    SUPPORTED_LIST = 0x0001_0101 "OID_GEN_SUPPORTED_LIST": Form::Codes, "The OIDs that are answered.";
    HARDWARE_STATUS = 0x0001_0102 "OID_GEN_HARDWARE_STATUS": Form::Number(&[(0, "ready"), (4, "not ready")]),
        "Ready unless a bug took the adapter down.";
    MEDIA_SUPPORTED = 0x0001_0103 "OID_GEN_MEDIA_SUPPORTED": Form::Number(MEDIA),
        "Media types that the adapter can have.";
    MEDIA_IN_USE = 0x0001_0104 "OID_GEN_MEDIA_IN_USE": Form::Number(MEDIA), "Media types that it has.";
    MAXIMUM_FRAME_SIZE = 0x0001_0106 "OID_GEN_MAXIMUM_FRAME_SIZE": Form::Number(&[]), in "bytes",
        "MTU: the longest payload of a frame.";
    LINK_SPEED = 0x0001_0107 "OID_GEN_LINK_SPEED": Form::Number(&[]), in "100 bit/s",
        "Speed of the link, as its RDMA port shows it, too. Nothing holds frames to it.";
    VENDOR_DESCRIPTION = 0x0001_010D "OID_GEN_VENDOR_DESCRIPTION": Form::Text, "What the adapter is.";
    CURRENT_PACKET_FILTER = 0x0001_010E "OID_GEN_CURRENT_PACKET_FILTER": Form::Number(TAKEN), in "bits",
        "Frames that the adapter takes: all that the switch sends to its port. Its guest has no means to ask for less.";
    MAXIMUM_TOTAL_SIZE = 0x0001_0111 "OID_GEN_MAXIMUM_TOTAL_SIZE": Form::Number(&[]), in "bytes",
        "The longest frame with its Ethernet header, without tag and FCS.";
    MEDIA_CONNECT_STATUS = 0x0001_0114 "OID_GEN_MEDIA_CONNECT_STATUS": Form::Number(CONNECTED),
        "Connected while a driver runs in the guest.";
    VENDOR_DRIVER_VERSION = 0x0001_0116 "OID_GEN_VENDOR_DRIVER_VERSION": Form::Number(&[]),
        "Version of the daemon: the major number in the high half.";
    MAX_LINK_SPEED = 0x0001_0206 "OID_GEN_MAX_LINK_SPEED": Form::LinkSpeed, in "bit/s",
        "Speed that the link can have, to and from the adapter.";
    LINK_STATE = 0x0001_0207 "OID_GEN_LINK_STATE": Form::LinkState,
        "The link: connected or not, full duplex, its speed, no pause frames.";
    XMIT_OK = 0x0002_0101 "OID_GEN_XMIT_OK": Form::Counter, in "frames",
        "Frames that the guest and its RDMA function sent.";
    RCV_OK = 0x0002_0102 "OID_GEN_RCV_OK": Form::Counter, in "frames",
        "Frames delivered to the guest and to its RDMA function.";
    XMIT_ERROR = 0x0002_0103 "OID_GEN_XMIT_ERROR": Form::Counter, in "frames",
        "Frames from the guest that were dropped because something is wrong with them.";
    RCV_ERROR = 0x0002_0104 "OID_GEN_RCV_ERROR": Form::Counter, in "frames",
        "Frames for the guest that were dropped because something is wrong with them.";
    RCV_NO_BUFFER = 0x0002_0105 "OID_GEN_RCV_NO_BUFFER": Form::Counter, in "frames",
        "Frames for the guest that found no receive buffer and were dropped.";
    STATISTICS = 0x0002_0106 "OID_GEN_STATISTICS": Form::Statistics,
        "Statistics of the adapter with its RDMA function; the flags say which of them are counted.";
    PERMANENT_ADDRESS = 0x0101_0101 "OID_802_3_PERMANENT_ADDRESS": Form::Address,
        "The address that the adapter was made with.";
    CURRENT_ADDRESS = 0x0101_0102 "OID_802_3_CURRENT_ADDRESS": Form::Address,
        "The address that is given to the guest: the same, as the guest cannot change it.";
    MULTICAST_LIST = 0x0101_0103 "OID_802_3_MULTICAST_LIST": Form::Addresses,
        "Group addresses that the guest asked for: none, as it has no means to ask and gets all of them.";
    MAXIMUM_LIST_SIZE = 0x0101_0104 "OID_802_3_MAXIMUM_LIST_SIZE": Form::Number(&[]), in "addresses",
        "Group addresses that a guest can ask for.";
}

/// Row of an OID.
pub fn oid(code: u32) -> Option<&'static OidDef> {
    OIDS.iter().find(|def| def.code == code)
}

/// Change that a set of an OID asks for.
///
/// # Errors
///
/// [`Failure`] with [`Status::INVALID_OID`] (no such OID), [`Status::NOT_SUPPORTED`] (the OID cannot be set),
/// [`Status::INVALID_LENGTH`] or [`Status::INVALID_DATA`].
pub fn set(code: u32, data: &[u8]) -> Result<Act, Failure> {
    let status = match oid(code) {
        Some(def) if def.settable => return dropless::set(data),
        Some(_) => Status::NOT_SUPPORTED,
        None => Status::INVALID_OID,
    };
    Err(Failure { status, needed: 0 })
}
