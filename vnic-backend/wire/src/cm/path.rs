//! Path between two ports, as a REQ describes its primary and its alternate one (IBTA vol 1 section 12.6.5).

use super::{Bytes, put, run};
use crate::gid::Gid;
use crate::{be16, be32};

/// A path. RoCE leaves the LIDs alone; all zeros is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Path {
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
    /// Packet rate (section 12.7.11), 6 bits.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Whether both ports are in one subnet.
    pub subnet_local: bool,
    /// ACK timeout of the sender's queue pair: 4.096 µs · 2^n, 5 bits.
    pub ack_timeout: u8,
}

impl Path {
    /// Bytes of a path.
    pub(super) const LEN: usize = 44;

    pub(super) fn read(b: &Bytes, at: usize) -> Path {
        Path {
            local_lid: be16(b, at),
            remote_lid: be16(b, at + 2),
            local_gid: Gid(run(b, at + 4)),
            remote_gid: Gid(run(b, at + 20)),
            flow_label: be32(b, at + 36) >> 12,
            rate: b[at + 39] & 0x3f,
            traffic_class: b[at + 40],
            hop_limit: b[at + 41],
            service_level: b[at + 42] >> 4,
            subnet_local: b[at + 42] & 8 != 0,
            ack_timeout: b[at + 43] >> 3,
        }
    }

    pub(super) fn write(&self, b: &mut Bytes, at: usize) {
        put(b, at, &self.local_lid.to_be_bytes());
        put(b, at + 2, &self.remote_lid.to_be_bytes());
        put(b, at + 4, &self.local_gid.0);
        put(b, at + 20, &self.remote_gid.0);
        let label = self.flow_label << 12 | u32::from(self.rate & 0x3f);
        put(b, at + 36, &label.to_be_bytes());
        let level = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        put(
            b,
            at + 40,
            &[self.traffic_class, self.hop_limit, level, self.ack_timeout << 3],
        );
    }
}
