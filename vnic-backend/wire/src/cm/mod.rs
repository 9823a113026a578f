//! Messages of communication management (IBTA vol 1 chapter 12), one file each. A message is the 232 bytes behind the
//! header of a [management datagram](crate::mad) of the class; its private data stands at its end.
//!
//! Reserved bits are sent as 0 and ignored. [`ip`] is what RDMA CM puts in front of the private data of a REQ and a SIDR_REQ
//! (annex A11), [`ServiceId`] what it makes of a port.

mod apr;
mod drep;
mod dreq;
pub mod ip;
mod lap;
mod mra;
mod path;
mod private;
mod reason;
mod rej;
mod rep;
mod req;
mod rtu;
mod service_id;
mod sidr_rep;
mod sidr_req;

pub use apr::{ApStatus, Apr};
pub use drep::Drep;
pub use dreq::Dreq;
pub use lap::Lap;
pub use mra::Mra;
pub use path::Path;
pub use private::Private;
pub use reason::Reason;
pub use rej::Rej;
pub use rep::Rep;
pub use req::{Req, Service};
pub use rtu::Rtu;
pub use service_id::{PortSpace, ServiceId};
pub use sidr_rep::{SidrRep, SidrStatus};
pub use sidr_req::SidrReq;

use crate::mad::{self, Header};
use crate::{Error, named};

/// Bytes of a message.
pub const LEN: usize = mad::LEN - mad::HEADER_LEN;
/// Management class of communication management (section 13.4.4).
pub const CLASS: u8 = 0x07;
/// Version of the class (section 12.6).
pub const CLASS_VERSION: u8 = 2;
/// The only method of its messages: Send (section 12.6.1).
pub const METHOD_SEND: u8 = 0x03;
/// Bytes of what a REJ, an APR and a SIDR_REP say besides their reason.
pub const INFO_LEN: usize = 72;

/// Enhanced connection establishment (IBTA vol 1 release 1.4), of a REQ and a REP: a vendor and what is its own, in the places that
/// Linux has for them (`include/rdma/ibta_vol1_c12.h`, `drivers/infiniband/core/cm.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ece {
    /// Vendor, 24 bits; 0: none.
    pub vendor: u32,
    /// Options: the attribute modifier of the datagram.
    pub options: u32,
}

/// A message's bytes.
type Bytes = [u8; LEN];

named! {
    /// Which message (section 12.6.3, table "CM attributes"). Names are those of Linux' counters.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Attribute {
        /// Request for communication.
        Req = 0x10 => "req",
        /// Message receipt acknowledgment: an answer takes longer.
        Mra = 0x11 => "mra",
        /// Reject.
        Rej = 0x12 => "rej",
        /// Reply to a request.
        Rep = 0x13 => "rep",
        /// Ready to use.
        Rtu = 0x14 => "rtu",
        /// Disconnection request.
        Dreq = 0x15 => "dreq",
        /// Disconnection reply.
        Drep = 0x16 => "drep",
        /// Service ID resolution request.
        SidrReq = 0x17 => "sidr_req",
        /// Service ID resolution response.
        SidrRep = 0x18 => "sidr_rep",
        /// Load alternate path.
        Lap = 0x19 => "lap",
        /// Alternate path response.
        Apr = 0x1a => "apr",
    }
}

impl Attribute {
    /// Place among [`Attribute::ALL`].
    pub const fn index(self) -> usize {
        self as usize - Attribute::Req as usize
    }
}

named! {
    /// Which message an MRA or a REJ is about (tables "MRA message contents" and "REJ message contents"), 2 bits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum About {
        /// A REQ.
        #[default]
        Req = 0 => "REQ",
        /// A REP.
        Rep = 1 => "REP",
        /// A LAP of an MRA; of a REJ: no message in particular.
        Other = 2 => "other",
        /// A value that the standard does not use.
        Reserved = 3 => "reserved",
    }
}

impl About {
    /// What the top two bits of a byte say.
    fn from_top(byte: u8) -> About {
        About::ALL[usize::from(byte >> 6)]
    }
}

macro_rules! messages {
    ($($name:ident,)*) => {
        /// A message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the types are the documentation")]
        pub enum Message { $($name($name),)* }

        impl Message {
            /// Which it is.
            pub fn attribute(&self) -> Attribute {
                match self { $(Message::$name(_) => Attribute::$name,)* }
            }

            fn parse(attribute: u16, b: &Bytes) -> Result<Message, Error> {
                $(if attribute == Attribute::$name as u16 {
                    return Ok(Message::$name($name::read(b)));
                })*
                Err(Error::Kind)
            }

            fn emit(&self) -> Bytes {
                match self { $(Message::$name(message) => message.emit(),)* }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Message {
                Message::$name(message)
            }
        }

        impl $name {
            /// Reads the message from the front of `bytes`, which are what follows the header of a datagram.
            pub fn parse(bytes: &[u8]) -> Result<$name, Error> {
                Ok($name::read(bytes.first_chunk().ok_or(Error::Truncated)?))
            }
        })*
    };
}

messages! { Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr, }

/// A datagram of communication management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mad {
    /// Transaction: that of a message is also that of its answers.
    pub transaction: u64,
    /// Its message.
    pub message: Message,
}

impl Mad {
    /// Reads a datagram from the front of `bytes`. The status is ignored, and the modifier of all but a REQ and a REP.
    pub fn parse(bytes: &[u8]) -> Result<Mad, Error> {
        let b: &[u8; mad::LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let header = Header::parse(b)?;
        let kind = (
            header.base_version,
            header.class,
            header.class_version,
            header.method,
        );
        if kind != (1, CLASS, CLASS_VERSION, METHOD_SEND) {
            return Err(Error::Kind);
        }
        let (_, data) = b.split_last_chunk().ok_or(Error::Truncated)?;
        let mut message = Message::parse(header.attribute, data)?;
        if let Message::Req(Req { ece, .. }) | Message::Rep(Rep { ece, .. }) = &mut message {
            ece.options = header.modifier;
        }
        Ok(Mad {
            transaction: header.transaction,
            message,
        })
    }

    /// The datagram's bytes.
    pub fn emit(&self) -> [u8; mad::LEN] {
        let header = Header {
            base_version: 1,
            class: CLASS,
            class_version: CLASS_VERSION,
            method: METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction: self.transaction,
            attribute: self.message.attribute() as u16,
            modifier: match &self.message {
                Message::Req(Req { ece, .. }) | Message::Rep(Rep { ece, .. }) => ece.options,
                _ => 0,
            },
        };
        let mut b = [0; mad::LEN];
        b[..mad::HEADER_LEN].copy_from_slice(&header.emit());
        b[mad::HEADER_LEN..].copy_from_slice(&self.message.emit());
        b
    }
}

/// Big-endian 24 bits at `at`.
fn be24(b: &Bytes, at: usize) -> u32 {
    u32::from_be_bytes([0, b[at], b[at + 1], b[at + 2]])
}

/// Puts bytes at `at`.
fn put(b: &mut Bytes, at: usize, bytes: &[u8]) {
    b[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Puts the low 24 bits of a number at `at`, and leaves the byte behind them.
fn put24(b: &mut Bytes, at: usize, n: u32) {
    put(b, at, &n.to_be_bytes()[1..]);
}

/// A run of bytes at `at`.
fn run<const N: usize>(b: &Bytes, at: usize) -> [u8; N] {
    core::array::from_fn(|i| b[at + i])
}
