//! REQ: request for communication (IBTA vol 1 section 12.6.5).

use super::{Bytes, Ece, Path, Private, ServiceId, be24, put, put24};
use crate::psn::Psn;
use crate::{be16, be32, be64, named};

named! {
    /// Transport service type (section 12.7.6), 2 bits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Service {
        /// Reliable connection.
        #[default]
        Rc = 0 => "RC",
        /// Unreliable connection.
        Uc = 1 => "UC",
        /// Reliable datagram.
        Rd = 2 => "RD",
        /// What the extended transport type says: 1 is XRC.
        Extended = 3 => "extended",
    }
}

/// Request for communication.
// Wide: the standard's message has that many fields, and no two have another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Req {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// Enhanced connection establishment. Its options are the datagram's modifier, which a message alone does not have.
    pub ece: Ece,
    /// What is asked for.
    pub service_id: ServiceId,
    /// The sender's channel adapter.
    pub ca_guid: u64,
    /// Queue key of the sender's queue pair.
    pub qkey: u32,
    /// The sender's queue pair, 24 bits.
    pub qp: u32,
    /// READs and atomics that the sender takes at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// The sender's end-to-end context, 24 bits.
    pub eec: u32,
    /// The receiver's end-to-end context, 24 bits.
    pub remote_eec: u32,
    /// How long the receiver may take to answer: 4.096 µs · 2^n, 5 bits.
    pub remote_response_timeout: u8,
    /// Service of the queue pair.
    pub service: Service,
    /// Whether the sender's receive queue grants credits.
    pub flow_control: bool,
    /// PSN that the receiver's queue pair shall send first (IBTA volume 1, 12.7.31).
    pub psn: Psn,
    /// How long the sender may take to answer: 4.096 µs · 2^n, 5 bits.
    pub local_response_timeout: u8,
    /// Retries of the queue pair, 3 bits.
    pub retry_count: u8,
    /// P_Key.
    pub pkey: u16,
    /// Path MTU, coded as in the verbs (1: 256 bytes to 5: 4096), 4 bits.
    pub mtu: u8,
    /// Whether a reliable datagram channel exists.
    pub rdc_exists: bool,
    /// RNR retries of the queue pair, 3 bits.
    pub rnr_retry_count: u8,
    /// How often a message of the connection may be sent, 4 bits.
    pub max_retries: u8,
    /// Whether the sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// Which service [`Service::Extended`] is, 3 bits.
    pub extended: u8,
    /// Primary path.
    pub primary: Path,
    /// Alternate path; all zeros: none.
    pub alternate: Path,
    /// Private data.
    pub private: Private<92>,
}

impl Req {
    pub(super) fn read(b: &Bytes) -> Req {
        Req {
            local_id: be32(b, 0),
            ece: Ece {
                vendor: be24(b, 5),
                options: 0,
            },
            service_id: ServiceId(be64(b, 8)),
            ca_guid: be64(b, 16),
            qkey: be32(b, 28),
            qp: be24(b, 32),
            responder_resources: b[35],
            eec: be24(b, 36),
            initiator_depth: b[39],
            remote_eec: be24(b, 40),
            remote_response_timeout: b[43] >> 3,
            service: Service::ALL[usize::from(b[43] >> 1 & 3)],
            flow_control: b[43] & 1 != 0,
            psn: Psn::new(be24(b, 44)),
            local_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: be16(b, 48),
            mtu: b[50] >> 4,
            rdc_exists: b[50] & 8 != 0,
            rnr_retry_count: b[50] & 7,
            max_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            extended: b[51] & 7,
            primary: Path::read(b, 52),
            alternate: Path::read(b, 52 + Path::LEN),
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put24(&mut b, 5, self.ece.vendor);
        put(&mut b, 8, &self.service_id.0.to_be_bytes());
        put(&mut b, 16, &self.ca_guid.to_be_bytes());
        put(&mut b, 28, &self.qkey.to_be_bytes());
        put24(&mut b, 32, self.qp);
        b[35] = self.responder_resources;
        put24(&mut b, 36, self.eec);
        b[39] = self.initiator_depth;
        put24(&mut b, 40, self.remote_eec);
        b[43] = self.remote_response_timeout << 3 | (self.service as u8) << 1 | u8::from(self.flow_control);
        put24(&mut b, 44, self.psn.value());
        b[47] = self.local_response_timeout << 3 | self.retry_count & 7;
        put(&mut b, 48, &self.pkey.to_be_bytes());
        b[50] = self.mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry_count & 7;
        b[51] = self.max_retries << 4 | u8::from(self.srq) << 3 | self.extended & 7;
        self.primary.write(&mut b, 52);
        self.alternate.write(&mut b, 52 + Path::LEN);
        self.private.write(&mut b);
        b
    }
}
