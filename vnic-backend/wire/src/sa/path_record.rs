//! PathRecord (IBTA vol 1 section 15.2.5.16).

use super::{Bound, put, run};
use crate::gid::Gid;
use crate::{Error, be16, be32, be64};

/// A path between two ports, or what is asked of one.
// Wide: the fields of the standard's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PathRecord {
    /// Service-ID.
    pub service_id: u64,
    /// GID of the destination.
    pub dgid: Gid,
    /// GID of the source.
    pub sgid: Gid,
    /// LID of the destination. RoCE has none.
    pub dlid: u16,
    /// LID of the source. RoCE has none.
    pub slid: u16,
    /// Whether raw packets are meant.
    pub raw_traffic: bool,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Whether the way back is the same.
    pub reversible: bool,
    /// Most paths that are wanted, 7 bits; of an answer 0.
    pub paths: u8,
    /// P_Key.
    pub pkey: u16,
    /// QoS class, 12 bits.
    pub qos_class: u16,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Code of the MTU.
    pub mtu: Bound,
    /// Code of the rate.
    pub rate: Bound,
    /// Packet lifetime: 4.096 µs · 2^n.
    pub packet_life: Bound,
    /// Rank among the paths of a table; 0 is the best.
    pub preference: u8,
}

impl PathRecord {
    /// Bytes of a record.
    pub const LEN: usize = 64;
    /// Components of the Service-ID: its upper 8 bits, and the 56 below them.
    pub const SERVICE_ID: u64 = 3;
    /// Component DGID.
    pub const DGID: u64 = 1 << 2;
    /// Component SGID.
    pub const SGID: u64 = 1 << 3;
    /// Component DLID.
    pub const DLID: u64 = 1 << 4;
    /// Component SLID.
    pub const SLID: u64 = 1 << 5;
    /// Component RawTraffic.
    pub const RAW_TRAFFIC: u64 = 1 << 6;
    /// Component FlowLabel.
    pub const FLOW_LABEL: u64 = 1 << 8;
    /// Component HopLimit.
    pub const HOP_LIMIT: u64 = 1 << 9;
    /// Component TClass.
    pub const TRAFFIC_CLASS: u64 = 1 << 10;
    /// Component Reversible.
    pub const REVERSIBLE: u64 = 1 << 11;
    /// Component NumbPath.
    pub const PATHS: u64 = 1 << 12;
    /// Component P_Key.
    pub const PKEY: u64 = 1 << 13;
    /// Component QoS Class.
    pub const QOS_CLASS: u64 = 1 << 14;
    /// Component SL.
    pub const SL: u64 = 1 << 15;
    /// Component MtuSelector.
    pub const MTU_SELECTOR: u64 = 1 << 16;
    /// Component Mtu.
    pub const MTU: u64 = 1 << 17;
    /// Component RateSelector.
    pub const RATE_SELECTOR: u64 = 1 << 18;
    /// Component Rate.
    pub const RATE: u64 = 1 << 19;
    /// Component PacketLifeTimeSelector.
    pub const PACKET_LIFE_SELECTOR: u64 = 1 << 20;
    /// Component PacketLifeTime.
    pub const PACKET_LIFE: u64 = 1 << 21;
    /// Component Preference.
    pub const PREFERENCE: u64 = 1 << 22;

    /// Reads a record from the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`]: fewer bytes than a record has.
    pub fn parse(bytes: &[u8]) -> Result<PathRecord, Error> {
        let b: &[u8; PathRecord::LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let hops = be32(b, 44);
        let class = be16(b, 52);
        Ok(PathRecord {
            service_id: be64(b, 0),
            dgid: Gid(run(b, 8)),
            sgid: Gid(run(b, 24)),
            dlid: be16(b, 40),
            slid: be16(b, 42),
            raw_traffic: hops >> 31 == 1,
            flow_label: hops >> 8 & 0xf_ffff,
            hop_limit: b[47],
            traffic_class: b[48],
            reversible: b[49] >> 7 == 1,
            paths: b[49] & 0x7f,
            pkey: be16(b, 50),
            qos_class: class >> 4,
            sl: b[53] & 0xf,
            mtu: Bound::read(b[54]),
            rate: Bound::read(b[55]),
            packet_life: Bound::read(b[56]),
            preference: b[57],
        })
    }

    /// The record's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> [u8; PathRecord::LEN] {
        let mut b = [0; PathRecord::LEN];
        put(&mut b, 0, &self.service_id.to_be_bytes());
        put(&mut b, 8, &self.dgid.0);
        put(&mut b, 24, &self.sgid.0);
        put(&mut b, 40, &self.dlid.to_be_bytes());
        put(&mut b, 42, &self.slid.to_be_bytes());
        let label = (self.flow_label & 0xf_ffff) << 8;
        let hops = u32::from(self.raw_traffic) << 31 | label | u32::from(self.hop_limit);
        put(&mut b, 44, &hops.to_be_bytes());
        let paths = u8::from(self.reversible) << 7 | self.paths & 0x7f;
        put(&mut b, 48, &[self.traffic_class, paths]);
        put(&mut b, 50, &self.pkey.to_be_bytes());
        let class = self.qos_class << 4 | u16::from(self.sl & 0xf);
        put(&mut b, 52, &class.to_be_bytes());
        let bounds = [self.mtu, self.rate, self.packet_life].map(Bound::byte);
        put(&mut b, 54, &bounds);
        b[57] = self.preference;
        b
    }
}
