//! MultiPathRecord (IBTA vol 1 section 15.2.5.20): what is asked of paths between several ports. The answers are PathRecords.

use super::{Bound, DATA_LEN, PathRecord, put, run};
use crate::gid::Gid;
use crate::{Error, be16, be32};

/// Bytes in front of the GIDs.
const GIDS_AT: usize = 24;
/// Most GIDs that fit into a datagram.
const GIDS_MAX: usize = (DATA_LEN - GIDS_AT) / 16;

/// What is asked of paths between several ports.
// Wide: the fields of the standard's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MultiPathRecord {
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
    /// Most paths that are wanted of each pair, 7 bits.
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
    /// Service-ID.
    pub service_id: u64,
    /// Whether paths are wanted that fail apart from each other, 2 bits.
    pub independence: u8,
    /// Numbers of GIDs of sources and of destinations, which stand in this order.
    pub counts: [u8; 2],
    /// The GIDs; those behind the last one are zeros.
    pub gids: [Gid; GIDS_MAX],
}

impl MultiPathRecord {
    /// Bytes of a record: all data of a datagram.
    pub const LEN: usize = DATA_LEN;
    /// Component RawTraffic.
    pub const RAW_TRAFFIC: u64 = 1;
    /// Component FlowLabel.
    pub const FLOW_LABEL: u64 = 1 << 2;
    /// Component HopLimit.
    pub const HOP_LIMIT: u64 = 1 << 3;
    /// Component TClass.
    pub const TRAFFIC_CLASS: u64 = 1 << 4;
    /// Component Reversible.
    pub const REVERSIBLE: u64 = 1 << 5;
    /// Component NumbPath.
    pub const PATHS: u64 = 1 << 6;
    /// Component P_Key.
    pub const PKEY: u64 = 1 << 7;
    /// Component QoS Class.
    pub const QOS_CLASS: u64 = 1 << 8;
    /// Component SL.
    pub const SL: u64 = 1 << 9;
    /// Component MtuSelector.
    pub const MTU_SELECTOR: u64 = 1 << 10;
    /// Component Mtu.
    pub const MTU: u64 = 1 << 11;
    /// Component RateSelector.
    pub const RATE_SELECTOR: u64 = 1 << 12;
    /// Component Rate.
    pub const RATE: u64 = 1 << 13;
    /// Component PacketLifeTimeSelector.
    pub const PACKET_LIFE_SELECTOR: u64 = 1 << 14;
    /// Component PacketLifeTime.
    pub const PACKET_LIFE: u64 = 1 << 15;
    /// Components of the Service-ID: its upper 8 bits, and the 56 below them.
    pub const SERVICE_ID: u64 = 1 << 16 | 1 << 21;
    /// Component IndependenceSelector.
    pub const INDEPENDENCE: u64 = 1 << 17;
    /// Component SGIDCount.
    pub const SOURCES: u64 = 1 << 19;
    /// Component DGIDCount.
    pub const DESTINATIONS: u64 = 1 << 20;
    /// Components of the GIDs.
    pub const GIDS: u64 = ((1 << GIDS_MAX) - 1) << 22;

    /// GIDs of the sources and of the destinations. `None`: there is no room for so many.
    pub fn ends(&self) -> Option<[&[Gid]; 2]> {
        let [sources, destinations] = self.counts.map(usize::from);
        let gids = self.gids.get(..sources + destinations)?;
        let (sources, destinations) = gids.split_at_checked(sources)?;
        Some([sources, destinations])
    }

    /// What is asked of each path, as a PathRecord without its ends, and the components that a mask of this attribute names of it.
    pub fn each(&self, mask: u64) -> (PathRecord, u64) {
        let record = PathRecord {
            raw_traffic: self.raw_traffic,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            reversible: self.reversible,
            paths: self.paths,
            pkey: self.pkey,
            qos_class: self.qos_class,
            sl: self.sl,
            mtu: self.mtu,
            rate: self.rate,
            packet_life: self.packet_life,
            service_id: self.service_id,
            ..PathRecord::default()
        };
        // From RawTraffic to PacketLifeTime both have the same components in the same order.
        let (upper, lower) = (mask >> 16 & 1, mask >> 21 & 1);
        (record, (mask & 0xffff) << 6 | lower << 1 | upper)
    }

    /// Reads a record from the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`]: fewer bytes than a record has.
    pub fn parse(bytes: &[u8]) -> Result<MultiPathRecord, Error> {
        let b: &[u8; MultiPathRecord::LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let hops = be32(b, 0);
        let mut service = [0; 8];
        service[0] = b[13];
        put(&mut service, 1, &run::<_, 7>(b, 17));
        let mut gids = [Gid::UNSPECIFIED; GIDS_MAX];
        for (i, gid) in gids.iter_mut().enumerate() {
            *gid = Gid(run(b, GIDS_AT + 16 * i));
        }
        Ok(MultiPathRecord {
            raw_traffic: hops >> 31 == 1,
            flow_label: hops >> 8 & 0xf_ffff,
            hop_limit: b[3],
            traffic_class: b[4],
            reversible: b[5] >> 7 == 1,
            paths: b[5] & 0x7f,
            pkey: be16(b, 6),
            qos_class: be16(b, 8) >> 4,
            sl: b[9] & 0xf,
            mtu: Bound::read(b[10]),
            rate: Bound::read(b[11]),
            packet_life: Bound::read(b[12]),
            service_id: u64::from_be_bytes(service),
            independence: b[14] >> 6,
            counts: [b[15], b[16]],
            gids,
        })
    }

    /// The record's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> [u8; MultiPathRecord::LEN] {
        let mut b = [0; MultiPathRecord::LEN];
        let label = (self.flow_label & 0xf_ffff) << 8;
        let hops = u32::from(self.raw_traffic) << 31 | label | u32::from(self.hop_limit);
        put(&mut b, 0, &hops.to_be_bytes());
        let paths = u8::from(self.reversible) << 7 | self.paths & 0x7f;
        put(&mut b, 4, &[self.traffic_class, paths]);
        put(&mut b, 6, &self.pkey.to_be_bytes());
        let class = self.qos_class << 4 | u16::from(self.sl & 0xf);
        put(&mut b, 8, &class.to_be_bytes());
        put(
            &mut b,
            10,
            &[self.mtu, self.rate, self.packet_life].map(Bound::byte),
        );
        let [upper, lower @ ..] = self.service_id.to_be_bytes();
        let [sources, destinations] = self.counts;
        put(
            &mut b,
            13,
            &[upper, self.independence << 6, sources, destinations],
        );
        put(&mut b, 17, &lower);
        for (i, gid) in self.gids.iter().enumerate() {
            put(&mut b, GIDS_AT + 16 * i, &gid.0);
        }
        b
    }
}
