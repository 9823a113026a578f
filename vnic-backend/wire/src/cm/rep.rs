//! REP: reply to a request for communication (IBTA vol 1 section 12.6.8).

use super::{Bytes, Ece, Private, be24, put, put24};
use crate::psn::Psn;
use crate::{be32, be64};

/// Reply to a request for communication.
// Wide: the standard's message has that many fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rep {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// The receiver's number of the connection.
    pub remote_id: u32,
    /// Enhanced connection establishment. Its options are the datagram's modifier, which a message alone does not have.
    pub ece: Ece,
    /// Queue key of the sender's queue pair.
    pub qkey: u32,
    /// The sender's queue pair, 24 bits.
    pub qp: u32,
    /// The sender's end-to-end context, 24 bits.
    pub eec: u32,
    /// PSN that the receiver's queue pair shall send first (IBTA volume 1, 12.7.31).
    pub psn: Psn,
    /// READs and atomics that the sender takes at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// How long the sender takes to acknowledge: 4.096 µs · 2^n, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path was accepted (0), and why not, 2 bits.
    pub failover: u8,
    /// Whether the sender's receive queue grants credits.
    pub flow_control: bool,
    /// RNR retries of the queue pair, 3 bits.
    pub rnr_retry_count: u8,
    /// Whether the sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's channel adapter.
    pub ca_guid: u64,
    /// Private data.
    pub private: Private<196>,
}

impl Rep {
    pub(super) fn read(b: &Bytes) -> Rep {
        Rep {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            // Between the fields, the highest byte first.
            ece: Ece {
                vendor: u32::from_be_bytes([0, b[15], b[19], b[23]]),
                options: 0,
            },
            qkey: be32(b, 8),
            qp: be24(b, 12),
            eec: be24(b, 16),
            psn: Psn::new(be24(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            ca_guid: be64(b, 28),
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        put(&mut b, 8, &self.qkey.to_be_bytes());
        put24(&mut b, 12, self.qp);
        put24(&mut b, 16, self.eec);
        put24(&mut b, 20, self.psn.value());
        let [_, high, middle, low] = self.ece.vendor.to_be_bytes();
        (b[15], b[19], b[23]) = (high, middle, low);
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        b[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(&mut b, 28, &self.ca_guid.to_be_bytes());
        self.private.write(&mut b);
        b
    }
}
