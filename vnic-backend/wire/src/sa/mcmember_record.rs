//! MCMemberRecord (IBTA vol 1 section 15.2.5.17): a member of a multicast group, and the group.

use super::{Bound, put, run};
use crate::gid::Gid;
use crate::{Error, be16, be32};

/// A member of a multicast group, and the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct McMemberRecord {
    /// GID of the group.
    pub mgid: Gid,
    /// GID of the member's port.
    pub port_gid: Gid,
    /// Queue key of the group.
    pub qkey: u32,
    /// LID of the group. RoCE has none.
    pub mlid: u16,
    /// Code of the group's MTU.
    pub mtu: Bound,
    /// Traffic class.
    pub traffic_class: u8,
    /// P_Key of the group's partition.
    pub pkey: u16,
    /// Code of the group's rate.
    pub rate: Bound,
    /// Packet lifetime: 4.096 µs · 2^n.
    pub packet_life: Bound,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Scope of the group, 4 bits.
    pub scope: u8,
    /// How the port is a member, 4 bits.
    pub join_state: u8,
    /// Whether another port has joined for this one.
    pub proxy_join: bool,
}

impl McMemberRecord {
    /// Bytes of a record.
    pub const LEN: usize = 52;
    /// Component MGID.
    pub const MGID: u64 = 1;
    /// Component PortGID.
    pub const PORT_GID: u64 = 1 << 1;
    /// Component Q_Key.
    pub const QKEY: u64 = 1 << 2;
    /// Component MLID.
    pub const MLID: u64 = 1 << 3;
    /// Component MTUSelector.
    pub const MTU_SELECTOR: u64 = 1 << 4;
    /// Component MTU.
    pub const MTU: u64 = 1 << 5;
    /// Component TClass.
    pub const TRAFFIC_CLASS: u64 = 1 << 6;
    /// Component P_Key.
    pub const PKEY: u64 = 1 << 7;
    /// Component RateSelector.
    pub const RATE_SELECTOR: u64 = 1 << 8;
    /// Component Rate.
    pub const RATE: u64 = 1 << 9;
    /// Component PacketLifeTimeSelector.
    pub const PACKET_LIFE_SELECTOR: u64 = 1 << 10;
    /// Component PacketLifeTime.
    pub const PACKET_LIFE: u64 = 1 << 11;
    /// Component SL.
    pub const SL: u64 = 1 << 12;
    /// Component FlowLabel.
    pub const FLOW_LABEL: u64 = 1 << 13;
    /// Component HopLimit.
    pub const HOP_LIMIT: u64 = 1 << 14;
    /// Component Scope.
    pub const SCOPE: u64 = 1 << 15;
    /// Component JoinState.
    pub const JOIN_STATE: u64 = 1 << 16;
    /// Component ProxyJoin.
    pub const PROXY_JOIN: u64 = 1 << 17;
    /// Join state: a member, which receives and may send.
    pub const FULL_MEMBER: u8 = 1;
    /// Join state: receives, and does not keep the group alive.
    pub const NON_MEMBER: u8 = 2;
    /// Join state: sends only, and does not keep the group alive.
    pub const SEND_ONLY: u8 = 4;

    /// Reads a record from the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`]: fewer bytes than a record has.
    pub fn parse(bytes: &[u8]) -> Result<McMemberRecord, Error> {
        let b: &[u8; McMemberRecord::LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let hops = be32(b, 44);
        Ok(McMemberRecord {
            mgid: Gid(run(b, 0)),
            port_gid: Gid(run(b, 16)),
            qkey: be32(b, 32),
            mlid: be16(b, 36),
            mtu: Bound::read(b[38]),
            traffic_class: b[39],
            pkey: be16(b, 40),
            rate: Bound::read(b[42]),
            packet_life: Bound::read(b[43]),
            sl: b[44] >> 4,
            flow_label: hops >> 8 & 0xf_ffff,
            hop_limit: b[47],
            scope: b[48] >> 4,
            join_state: b[48] & 0xf,
            proxy_join: b[49] >> 7 == 1,
        })
    }

    /// The record's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> [u8; McMemberRecord::LEN] {
        let mut b = [0; McMemberRecord::LEN];
        put(&mut b, 0, &self.mgid.0);
        put(&mut b, 16, &self.port_gid.0);
        put(&mut b, 32, &self.qkey.to_be_bytes());
        put(&mut b, 36, &self.mlid.to_be_bytes());
        put(&mut b, 38, &[self.mtu.byte(), self.traffic_class]);
        put(&mut b, 40, &self.pkey.to_be_bytes());
        put(&mut b, 42, &[self.rate.byte(), self.packet_life.byte()]);
        let label = (self.flow_label & 0xf_ffff) << 8;
        let hops = u32::from(self.sl & 0xf) << 28 | label | u32::from(self.hop_limit);
        put(&mut b, 44, &hops.to_be_bytes());
        let proxy = u8::from(self.proxy_join) << 7;
        put(&mut b, 48, &[self.scope << 4 | self.join_state & 0xf, proxy]);
        b
    }
}
