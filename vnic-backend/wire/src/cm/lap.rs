//! LAP: load alternate path (IBTA vol 1 section 12.8.1).

use super::{Bytes, Private, be24, put, put24, run};
use crate::gid::Gid;
use crate::{be16, be32};

/// Load alternate path. RoCE has none: an APR refuses it.
// Wide: the standard's message has that many fields, and no two have another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lap {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// The receiver's number of the connection.
    pub remote_id: u32,
    /// The receiver's queue pair, 24 bits.
    pub remote_qp: u32,
    /// How long the receiver may take to answer: 4.096 µs · 2^n, 5 bits.
    pub remote_response_timeout: u8,
    /// LID of the sender's port.
    pub local_lid: u16,
    /// LID of the receiver's port.
    pub remote_lid: u16,
    /// GID of the sender's port.
    pub local_gid: Gid,
    /// GID of the receiver's port.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Packet rate, 6 bits.
    pub rate: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Whether both ports are in one subnet.
    pub subnet_local: bool,
    /// ACK timeout of the sender's queue pair, 5 bits.
    pub ack_timeout: u8,
    /// Private data.
    pub private: Private<168>,
}

impl Lap {
    pub(super) fn read(b: &Bytes) -> Lap {
        Lap {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            remote_qp: be24(b, 12),
            remote_response_timeout: b[15] >> 3,
            local_lid: be16(b, 20),
            remote_lid: be16(b, 22),
            local_gid: Gid(run(b, 24)),
            remote_gid: Gid(run(b, 40)),
            flow_label: be32(b, 56) >> 12,
            traffic_class: b[59],
            hop_limit: b[60],
            rate: b[61] & 0x3f,
            service_level: b[62] >> 4,
            subnet_local: b[62] & 8 != 0,
            ack_timeout: b[63] >> 3,
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        put24(&mut b, 12, self.remote_qp);
        b[15] = self.remote_response_timeout << 3;
        put(&mut b, 20, &self.local_lid.to_be_bytes());
        put(&mut b, 22, &self.remote_lid.to_be_bytes());
        put(&mut b, 24, &self.local_gid.0);
        put(&mut b, 40, &self.remote_gid.0);
        let label = self.flow_label << 12 | u32::from(self.traffic_class);
        put(&mut b, 56, &label.to_be_bytes());
        let level = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        put(
            &mut b,
            60,
            &[self.hop_limit, self.rate & 0x3f, level, self.ack_timeout << 3],
        );
        self.private.write(&mut b);
        b
    }
}
