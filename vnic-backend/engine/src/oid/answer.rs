//! Answers to queries of OIDs.

use alloc::vec::Vec;

use vnic_wire::MacAddr;

use super::{OIDS, Status, dropless};

/// Length of an Ethernet header (IEEE 802.3 clause 3.1.1).
const HEADER_LEN: u32 = 14;
/// Header of structures: `NDIS_OBJECT_TYPE_DEFAULT` and revision 1.
const OBJECT: [u8; 2] = [0x80, 1];
/// Directed, all multicast, broadcast and promiscuous (`NDIS_PACKET_TYPE_*`).
const EVERYTHING: u32 = 0x01 | 0x08 | 0x04 | 0x20;

/// Link of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Whether a driver runs in the guest.
    pub up: bool,
    /// Speed in bit/s, in each direction.
    pub speed: u64,
}

/// Statistics of an adapter; `None`: not counted. Field names are those of `NDIS_STATISTICS_INFO`, with the meaning of RFC
/// 2863.
// Wide: the counters of an NDIS answer (NDIS_STATISTICS_INFO), field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are those of RFC 2863")]
pub struct Statistics {
    pub in_discards: Option<u64>,
    pub in_errors: Option<u64>,
    pub in_octets: Option<u64>,
    pub in_ucast_pkts: Option<u64>,
    pub in_multicast_pkts: Option<u64>,
    pub in_broadcast_pkts: Option<u64>,
    pub out_octets: Option<u64>,
    pub out_ucast_pkts: Option<u64>,
    pub out_multicast_pkts: Option<u64>,
    pub out_broadcast_pkts: Option<u64>,
    pub out_errors: Option<u64>,
    pub out_discards: Option<u64>,
    pub in_ucast_octets: Option<u64>,
    pub in_multicast_octets: Option<u64>,
    pub in_broadcast_octets: Option<u64>,
    pub out_ucast_octets: Option<u64>,
    pub out_multicast_octets: Option<u64>,
    pub out_broadcast_octets: Option<u64>,
    /// Frames that found no receive buffer; `in_discards` includes them.
    pub no_buffer: u64,
}

impl Statistics {
    /// Members of `NDIS_STATISTICS_INFO` in their order: name, flag (`NDIS_STATISTICS_FLAGS_VALID_*`) and value.
    pub(super) fn members(&self) -> [(&'static str, u32, Option<u64>); 18] {
        [
            ("ifInDiscards", 0x10, self.in_discards),
            ("ifInErrors", 0x20, self.in_errors),
            ("ifHCInOctets", 0x8, self.in_octets),
            ("ifHCInUcastPkts", 0x1, self.in_ucast_pkts),
            ("ifHCInMulticastPkts", 0x2, self.in_multicast_pkts),
            ("ifHCInBroadcastPkts", 0x4, self.in_broadcast_pkts),
            ("ifHCOutOctets", 0x200, self.out_octets),
            ("ifHCOutUcastPkts", 0x40, self.out_ucast_pkts),
            ("ifHCOutMulticastPkts", 0x80, self.out_multicast_pkts),
            ("ifHCOutBroadcastPkts", 0x100, self.out_broadcast_pkts),
            ("ifOutErrors", 0x400, self.out_errors),
            ("ifOutDiscards", 0x8000, self.out_discards),
            ("ifHCInUcastOctets", 0x1_0000, self.in_ucast_octets),
            ("ifHCInMulticastOctets", 0x2_0000, self.in_multicast_octets),
            ("ifHCInBroadcastOctets", 0x4_0000, self.in_broadcast_octets),
            ("ifHCOutUcastOctets", 0x8_0000, self.out_ucast_octets),
            ("ifHCOutMulticastOctets", 0x10_0000, self.out_multicast_octets),
            ("ifHCOutBroadcastOctets", 0x20_0000, self.out_broadcast_octets),
        ]
    }

    fn received(&self) -> u64 {
        sum([self.in_ucast_pkts, self.in_multicast_pkts, self.in_broadcast_pkts])
    }

    fn sent(&self) -> u64 {
        sum([
            self.out_ucast_pkts,
            self.out_multicast_pkts,
            self.out_broadcast_pkts,
        ])
    }
}

fn sum(parts: [Option<u64>; 3]) -> u64 {
    parts.into_iter().flatten().fold(0, u64::wrapping_add)
}

/// State and statistics of an adapter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts<'a> {
    /// MAC address.
    pub address: MacAddr,
    /// MTU.
    pub mtu: u16,
    /// Link.
    pub link: Link,
    /// Whether a bug took the adapter down.
    pub failed: bool,
    /// Vendor description.
    pub description: &'a str,
    /// Major and minor version of the daemon.
    pub version: (u16, u16),
    /// Whether dropless mode is on.
    pub dropless: bool,
    /// Statistics.
    pub statistics: Statistics,
}

/// Answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: Status,
    /// Data; empty unless `status` is a success.
    pub data: Vec<u8>,
    /// Length of the whole answer.
    pub needed: usize,
}

impl Answer {
    /// Answer with `data`, if `room` bytes are enough for it.
    pub(super) fn of(data: Vec<u8>, room: usize) -> Answer {
        let needed = data.len();
        if needed <= room {
            return Answer {
                status: Status::SUCCESS,
                data,
                needed,
            };
        }
        Answer {
            status: Status::BUFFER_TOO_SHORT,
            data: Vec::new(),
            needed,
        }
    }
}

/// Answer of an adapter with these facts to a query of an OID into a buffer of `room` bytes.
pub fn query(code: u32, facts: &Facts<'_>, room: usize) -> Answer {
    let number = |n: u32| Answer::of(n.to_le_bytes().to_vec(), room);
    let counter = |n: u64| counter(n, room);
    let statistics = &facts.statistics;
    match code {
        super::SUPPORTED_LIST => {
            Answer::of(OIDS.iter().flat_map(|def| def.code.to_le_bytes()).collect(), room)
        }
        super::HARDWARE_STATUS => number(if facts.failed { 4 } else { 0 }),
        super::MEDIA_SUPPORTED | super::MEDIA_IN_USE => number(0),
        super::MAXIMUM_FRAME_SIZE => number(facts.mtu.into()),
        super::LINK_SPEED => number(u32::try_from(facts.link.speed / 100).unwrap_or(u32::MAX)),
        super::VENDOR_DESCRIPTION => {
            let mut text = facts.description.as_bytes().to_vec();
            text.push(0);
            Answer::of(text, room)
        }
        super::CURRENT_PACKET_FILTER => number(EVERYTHING),
        super::MAXIMUM_TOTAL_SIZE => number(u32::from(facts.mtu) + HEADER_LEN),
        super::MEDIA_CONNECT_STATUS => number(u32::from(!facts.link.up)),
        super::VENDOR_DRIVER_VERSION => number(u32::from(facts.version.0) << 16 | u32::from(facts.version.1)),
        super::MAX_LINK_SPEED => {
            let speed = facts.link.speed.to_le_bytes();
            Answer::of([speed, speed].concat(), room)
        }
        super::LINK_STATE => Answer::of(link_state(&facts.link), room),
        super::XMIT_OK => counter(statistics.sent()),
        super::RCV_OK => counter(statistics.received()),
        super::XMIT_ERROR => counter(statistics.out_errors.unwrap_or(0)),
        super::RCV_ERROR => counter(statistics.in_errors.unwrap_or(0)),
        super::RCV_NO_BUFFER => counter(statistics.no_buffer),
        super::STATISTICS => Answer::of(statistics_info(statistics), room),
        super::PERMANENT_ADDRESS | super::CURRENT_ADDRESS => Answer::of(facts.address.0.to_vec(), room),
        super::MULTICAST_LIST => Answer::of(Vec::new(), room),
        super::MAXIMUM_LIST_SIZE => number(0),
        super::DROPLESS_MODE => dropless::query(facts.dropless, room),
        _ => Answer {
            status: Status::INVALID_OID,
            data: Vec::new(),
            needed: 0,
        },
    }
}

/// Answer with a counter: 8 bytes, or the low 4 if there is no room for more; `needed` is 8 in both cases, as NDIS requires.
fn counter(value: u64, room: usize) -> Answer {
    let whole = value.to_le_bytes();
    if room >= whole.len() || room < 4 {
        return Answer::of(whole.to_vec(), room);
    }
    Answer {
        status: Status::SUCCESS,
        data: whole[..4].to_vec(),
        needed: whole.len(),
    }
}

fn header(size: u16) -> Vec<u8> {
    let mut out = OBJECT.to_vec();
    out.extend(size.to_le_bytes());
    out
}

/// Data of `NDIS_LINK_STATE`: the 64-bit members are aligned, so that 4 bytes of padding are before them.
fn link_state(link: &Link) -> Vec<u8> {
    let mut out = header(40);
    // MediaConnectStateConnected or Disconnected, MediaDuplexStateFull, padding.
    for number in [if link.up { 1u32 } else { 2 }, 2, 0] {
        out.extend(number.to_le_bytes());
    }
    out.extend(link.speed.to_le_bytes());
    out.extend(link.speed.to_le_bytes());
    // NdisPauseFunctionsUnsupported; nothing was negotiated.
    out.extend([0; 8]);
    out
}

/// Data of `NDIS_STATISTICS_INFO`.
fn statistics_info(statistics: &Statistics) -> Vec<u8> {
    let members = statistics.members();
    let mut out = header(152);
    let counted = members.iter().filter(|(_, _, value)| value.is_some());
    let flags = counted.fold(0u32, |flags, (_, flag, _)| flags | flag);
    out.extend(flags.to_le_bytes());
    for (_, _, value) in members {
        out.extend(value.unwrap_or(0).to_le_bytes());
    }
    out
}
