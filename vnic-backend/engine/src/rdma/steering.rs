//! Flows: which of the frames that come for an adapter its raw packet queue pairs have (`ibv_create_flow(3)`; proto/device,
//! section 8.7).
//!
//! Flows with the same priority, headers and mask are a set: a frame's fields, masked, are looked up in it at once. So a frame costs
//! as many steps as there are sets, however many flows there are (tuple space search: Srinivasan, Suri, Varghese, Packet
//! Classification using Tuple Space Search, SIGCOMM 1999).

mod rss;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use smallvec::SmallVec;
use vnic_device::command::flow::{CreateFlow, CreateHashQp, FlowFields, HASH_QP};
use vnic_device::verbs::{FlowKind, flow_headers as headers};
use vnic_device::zerocopy::IntoBytes;
use vnic_wire::{EtherType, udp, vxlan};

use super::types::QpNumber;
use crate::virtio_net::steering::Tunnels;
use rss::Spread;
pub use rss::{ENTRIES_MAX, HASH_QPS_MAX};

/// Most flows of an adapter.
pub const FLOWS_MAX: usize = 1024;
/// Most sets of flows: steps that a frame may cost.
pub const SETS_MAX: usize = 16;
/// Most sniffers: copies that a frame may cost.
pub const SNIFFERS_MAX: usize = 4;
/// Bytes of a frame in which all fields are: Ethernet, a tag, IPv4 with options, UDP, VXLAN; and for hash queue pairs the headers in a
/// tunnel.
pub const LOOKED_AT: usize = {
    let fields = 14 + 4 + 60 + 8 + 8;
    assert!(fields <= Tunnels::LOOKED_AT);
    Tunnels::LOOKED_AT
};
/// Lowest priority.
const PRIORITY_MAX: u32 = u16::MAX as u32;

/// Why there is no such flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// Fields contradict each other.
    #[error("{0}")]
    Invalid(&'static str),
    /// The priority is beyond its range.
    #[error("priority is {0}; it must be between 0 and 65535")]
    Priority(u32),
    /// There is no room for another flow.
    #[error("the adapter has {FLOWS_MAX} flows, which is the limit")]
    Flows,
    /// There is no room for another set.
    #[error(
        "the adapter's flows have {SETS_MAX} different priorities, headers and masks, which is the limit"
    )]
    Sets,
    /// There is no room for another sniffer.
    #[error("the adapter has {SNIFFERS_MAX} sniffers, which is the limit")]
    Sniffers,
    /// A table has no entries, or too many.
    #[error("entries is {0}; it must be between 1 and {ENTRIES_MAX}")]
    Entries(u32),
    /// There is no room for another hash queue pair.
    #[error("the adapter has {HASH_QPS_MAX} hash queue pairs, which is the limit")]
    HashQps,
}

/// Fields of a frame, and of the one in its tunnel.
type Fields = [FlowFields; 2];
type Key = [u8; size_of::<Fields>()];

/// A flow: who has its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flow {
    /// Its number, which is also its age.
    id: u64,
    qp: QpNumber,
}

/// Flows that look at the same fields.
#[derive(Debug)]
struct Set {
    priority: u16,
    headers: u32,
    mask: Key,
    /// By the fields, masked; the oldest first.
    flows: BTreeMap<Key, Vec<Flow>>,
}

/// The set and the fields of a flow.
#[derive(Debug, Clone)]
struct InSet {
    priority: u16,
    headers: u32,
    mask: Key,
    key: Key,
}

/// Where a flow is.
#[derive(Debug, Clone)]
enum Place {
    Set(Box<InSet>),
    Default(FlowKind),
}

/// Who has a frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// The queue pair that has it, instead of the adapter's Ethernet function.
    pub by: Option<QpNumber>,
    /// Queue pairs that have a copy.
    pub copies: SmallVec<[QpNumber; SNIFFERS_MAX]>,
}

impl Taken {
    /// Whether nobody has it.
    pub fn is_nobody(&self) -> bool {
        self.by.is_none() && self.copies.is_empty()
    }
}

/// The flows of an adapter.
#[derive(Debug)]
pub struct Steering {
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    places: BTreeMap<u64, Place>,
    /// By priority.
    sets: Vec<Set>,
    all: Vec<Flow>,
    multicast: Vec<Flow>,
    sniffers: Vec<Flow>,
    last: u64,
    /// Hash queue pairs by number, which flows name as others.
    spreads: BTreeMap<u32, Spread>,
    last_spread: u32,
}

fn masked(fields: &Fields, mask: &Key) -> Key {
    let mut key = *mask;
    for (byte, value) in key.iter_mut().zip(fields.as_bytes()) {
        *byte &= value;
    }
    key
}

/// Checks that a flow looks only at what frames with its headers have.
fn check(flow: &CreateFlow) -> Result<Option<FlowKind>, FlowError> {
    let Some(kind) = FlowKind::from_number(flow.kind) else {
        return Ok(None);
    };
    if flow.priority > PRIORITY_MAX {
        return Err(FlowError::Priority(flow.priority));
    }
    let none = FlowFields::default();
    if kind != FlowKind::Normal {
        return match flow.headers != 0 || flow.mask != none || flow.inner_mask != none {
            true => Err(FlowError::Invalid("only a flow of kind NORMAL looks at headers")),
            false => Ok(Some(kind)),
        };
    }
    let inner = (flow.headers & headers::ALL) >> headers::INNER_SHIFT;
    if flow.headers & headers::VXLAN == 0 && (inner != 0 || flow.inner_mask != none) {
        return Err(FlowError::Invalid("fields inside of a tunnel without VXLAN"));
    }
    if flow.headers & (headers::VXLAN | headers::UDP) == headers::VXLAN {
        return Err(FlowError::Invalid("VXLAN is behind UDP"));
    }
    let (outer_bits, inner_bits) = (flow.headers & headers::ALL_1_6, inner);
    for (mask, bits) in [(&flow.mask, outer_bits), (&flow.inner_mask, inner_bits)] {
        check_fields(mask, bits)?;
    }
    Ok(Some(kind))
}

/// Checks that the fields of a frame are of headers that it must have.
fn check_fields(mask: &FlowFields, bits: u32) -> Result<(), FlowError> {
    let has = |wanted: u32| bits & wanted != 0;
    let invalid = |what| Err(FlowError::Invalid(what));
    let both = |a, b| has(a) && has(b);
    if both(headers::IPV4, headers::IPV6) || both(headers::TCP, headers::UDP) {
        return invalid("no frame has two of these headers");
    }
    let ip = mask.source != [0; 16]
        || mask.destination != [0; 16]
        || mask.protocol != 0
        || mask.traffic_class != 0
        || mask.hop_limit != 0;
    if ip && !has(headers::IPV4 | headers::IPV6) {
        return invalid("fields of IP without IPV4 or IPV6");
    }
    if has(headers::IPV4) && (mask.source[4..] != [0; 12] || mask.destination[4..] != [0; 12]) {
        return invalid("an address of IPv4 has four bytes");
    }
    if mask.flow_label != 0 && !has(headers::IPV6) {
        return invalid("a flow label without IPV6");
    }
    if (mask.source_port | mask.destination_port) != 0 && !has(headers::TCP | headers::UDP) {
        return invalid("ports without TCP or UDP");
    }
    if mask.tunnel != 0 && !has(headers::VXLAN) {
        return invalid("a tunnel without VXLAN");
    }
    if mask.flow_label >> 20 != 0 || mask.tunnel >> 24 != 0 {
        return invalid("a flow label has 20 bits, a tunnel 24");
    }
    Ok(())
}

impl Default for Steering {
    fn default() -> Steering {
        Steering {
            vxlan_port: vxlan::UDP_PORT,
            places: BTreeMap::new(),
            sets: Vec::new(),
            all: Vec::new(),
            multicast: Vec::new(),
            sniffers: Vec::new(),
            last: 0,
            spreads: BTreeMap::new(),
            last_spread: 0,
        }
    }
}

impl Steering {
    /// Number of flows.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a flow. Returns its number; `None`: there are no flows of its kind, or with such headers.
    pub fn insert(&mut self, flow: &CreateFlow) -> Result<Option<u64>, FlowError> {
        if flow.headers & !headers::ALL != 0 {
            return Ok(None);
        }
        let Some(kind) = check(flow)? else {
            return Ok(None);
        };
        if self.places.len() >= FLOWS_MAX {
            return Err(FlowError::Flows);
        }
        let id = self.last + 1;
        let new = Flow {
            id,
            qp: QpNumber(flow.qp),
        };
        let place = match kind {
            FlowKind::Normal => self.insert_into_set(flow, new)?,
            FlowKind::Sniffer if self.sniffers.len() >= SNIFFERS_MAX => return Err(FlowError::Sniffers),
            FlowKind::AllDefault | FlowKind::MulticastDefault | FlowKind::Sniffer => {
                self.defaults(kind).push(new);
                Place::Default(kind)
            }
        };
        self.last = id;
        self.places.insert(id, place);
        Ok(Some(id))
    }

    fn insert_into_set(&mut self, flow: &CreateFlow, new: Flow) -> Result<Place, FlowError> {
        let mut mask = [0; size_of::<Fields>()];
        mask.copy_from_slice([flow.mask, flow.inner_mask].as_bytes());
        let key = masked(&[flow.value, flow.inner_value], &mask);
        // (It was checked.)
        let priority = flow.priority as u16;
        let headers = flow.headers;
        let place = Place::Set(Box::new(InSet {
            priority,
            headers,
            mask,
            key,
        }));
        let known = self
            .sets
            .iter_mut()
            .find(|s| (s.priority, s.headers, s.mask) == (priority, headers, mask));
        if let Some(set) = known {
            set.flows.entry(key).or_default().push(new);
            return Ok(place);
        }
        if self.sets.len() >= SETS_MAX {
            return Err(FlowError::Sets);
        }
        let at = self.sets.partition_point(|s| s.priority <= priority);
        let set = Set {
            priority,
            headers,
            mask,
            flows: BTreeMap::from([(key, Vec::from([new]))]),
        };
        self.sets.insert(at, set);
        Ok(place)
    }

    fn defaults(&mut self, kind: FlowKind) -> &mut Vec<Flow> {
        match kind {
            FlowKind::Sniffer => &mut self.sniffers,
            FlowKind::MulticastDefault => &mut self.multicast,
            FlowKind::AllDefault | FlowKind::Normal => &mut self.all,
        }
    }

    /// Ends a flow. False: there is none with this number.
    pub fn remove(&mut self, id: u64) -> bool {
        match self.places.remove(&id) {
            None => return false,
            Some(Place::Default(kind)) => self.defaults(kind).retain(|flow| flow.id != id),
            Some(Place::Set(at)) => {
                let InSet {
                    priority,
                    headers,
                    mask,
                    key,
                } = *at;
                let same = |s: &Set| (s.priority, s.headers, s.mask) == (priority, headers, mask);
                if let Some(at) = self.sets.iter().position(same) {
                    let flows = &mut self.sets[at].flows;
                    if let Some(equal) = flows.get_mut(&key) {
                        equal.retain(|flow| flow.id != id);
                        if equal.is_empty() {
                            flows.remove(&key);
                        }
                    }
                    if flows.is_empty() {
                        self.sets.remove(at);
                    }
                }
            }
        }
        true
    }

    /// Makes a hash queue pair. Returns its number; `None`: there are no such hash types.
    pub fn insert_hash_qp(&mut self, wanted: &CreateHashQp) -> Result<Option<QpNumber>, FlowError> {
        let Some(spread) = Spread::new(wanted)? else {
            return Ok(None);
        };
        if self.spreads.len() >= HASH_QPS_MAX {
            return Err(FlowError::HashQps);
        }
        // (One is free: they are fewer than numbers.)
        loop {
            self.last_spread = (self.last_spread + 1) % HASH_QP;
            if !self.spreads.contains_key(&(HASH_QP | self.last_spread)) {
                break;
            }
        }
        let number = HASH_QP | self.last_spread;
        self.spreads.insert(number, spread);
        Ok(Some(QpNumber(number)))
    }

    /// Ends a hash queue pair. Frames that flows still give it are nobody's.
    pub fn remove_hash_qp(&mut self, number: QpNumber) {
        self.spreads.remove(&number.0);
    }

    /// Whether a hash queue pair has another one in its table.
    pub fn spreads_over(&self, number: QpNumber, qp: QpNumber) -> bool {
        self.spreads
            .get(&number.0)
            .is_some_and(|spread| spread.leads_to(qp))
    }

    /// The queue pair that receives a frame of a flow.
    fn receiver(&self, flow: &Flow, head: &[u8]) -> Option<QpNumber> {
        match flow.qp.0 < HASH_QP {
            true => Some(flow.qp),
            false => self.spreads.get(&flow.qp.0)?.queue_pair(head, self.vxlan_port),
        }
    }

    /// Who has a frame that begins with these bytes: the first [`LOOKED_AT`], or all.
    pub fn find(&self, head: &[u8]) -> Taken {
        let mut taken = Taken {
            by: None,
            copies: self
                .sniffers
                .iter()
                .filter_map(|flow| self.receiver(flow, head))
                .collect(),
        };
        let Some((fields, has)) = parse(head, self.vxlan_port) else {
            return taken;
        };
        let mut best: Option<(u16, Flow)> = None;
        for set in &self.sets {
            if best.is_some_and(|(priority, _)| priority < set.priority) {
                break;
            }
            if set.headers & !has != 0 {
                continue;
            }
            let oldest = set
                .flows
                .get(&masked(&fields, &set.mask))
                .and_then(|equal| equal.first());
            if let Some(oldest) = oldest
                && best.is_none_or(|(_, flow)| oldest.id < flow.id)
            {
                best = Some((set.priority, *oldest));
            }
        }
        let group = head.first().is_some_and(|byte| byte & 1 != 0);
        let default = self
            .all
            .first()
            .or(self.multicast.first().filter(|_| group))
            .copied();
        let first = best.map(|(_, flow)| flow).or(default);
        taken.by = first.and_then(|flow| self.receiver(&flow, head));
        taken
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Fields of a frame and of the one in its tunnel, and the headers that they have. `None`: it is no frame.
fn parse(head: &[u8], vxlan_port: u16) -> Option<(Fields, u32)> {
    let (mut fields, mut has, behind) = parse_frame(head)?;
    let mut inner = FlowFields::default();
    if let Some(behind) = behind
        && has & headers::UDP != 0
        && fields.destination_port == vxlan_port
        && let Some(payload) = head.get(behind + udp::HEADER_LEN..)
        && let Ok(tunnel) = vxlan::Header::parse(payload)
    {
        fields.tunnel = tunnel.vni;
        has |= headers::VXLAN;
        if let Some((inside, inside_has, _)) = payload.get(vxlan::HEADER_LEN..).and_then(parse_frame) {
            inner = inside;
            has |= inside_has << headers::INNER_SHIFT;
        }
    }
    Some(([fields, inner], has))
}

/// Fields of one frame, the headers that it has, and where that of TCP or UDP begins.
fn parse_frame(head: &[u8]) -> Option<(FlowFields, u32, Option<usize>)> {
    let mut fields = FlowFields {
        destination_mac: *head.first_chunk()?,
        source_mac: *head.get(6..)?.first_chunk()?,
        ethertype: word(head, 12)?,
        ..FlowFields::default()
    };
    let mut at = 14;
    if EtherType(fields.ethertype).is_vlan() {
        let (Some(tag), Some(inner)) = (word(head, 14), word(head, 16)) else {
            return Some((fields, 0, None));
        };
        (fields.tag, fields.ethertype, at) = (tag, inner, 18);
    }
    let mut has = 0;
    // What is missing of a header that is cut short is as if the header was not there.
    let behind = parse_network(head, at, &mut fields, &mut has);
    Some((fields, has, behind))
}

/// Reads the headers of IP and of TCP or UDP. Returns where the latter begins.
fn parse_network(head: &[u8], at: usize, fields: &mut FlowFields, has: &mut u32) -> Option<usize> {
    let behind = match EtherType(fields.ethertype) {
        EtherType::IPV4 => {
            let ip: &[u8; 20] = head.get(at..)?.first_chunk()?;
            let len = usize::from(ip[0] & 15) * 4;
            if ip[0] >> 4 != 4 || len < ip.len() {
                return None;
            }
            fields.source[..4].copy_from_slice(&ip[12..16]);
            fields.destination[..4].copy_from_slice(&ip[16..20]);
            (fields.traffic_class, fields.hop_limit, fields.protocol) = (ip[1], ip[8], ip[9]);
            *has |= headers::IPV4;
            // Only a first fragment has more headers.
            if u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff != 0 {
                return None;
            }
            at + len
        }
        EtherType::IPV6 => {
            let ip: &[u8; 40] = head.get(at..)?.first_chunk()?;
            if ip[0] >> 4 != 6 {
                return None;
            }
            let first = u32::from_be_bytes([ip[0], ip[1], ip[2], ip[3]]);
            fields.source.copy_from_slice(&ip[8..24]);
            fields.destination.copy_from_slice(&ip[24..40]);
            (fields.traffic_class, fields.flow_label) = ((first >> 20) as u8, first & 0xf_ffff);
            (fields.protocol, fields.hop_limit) = (ip[6], ip[7]);
            *has |= headers::IPV6;
            at + ip.len()
        }
        _ => return None,
    };
    let bit = match fields.protocol {
        6 => headers::TCP,
        17 => headers::UDP,
        _ => return None,
    };
    let (source, destination) = (word(head, behind)?, word(head, behind + 2)?);
    (fields.source_port, fields.destination_port) = (source, destination);
    *has |= bit;
    Some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    use vnic_device::verbs::hash_types;

    fn frame(tag: Option<u16>, protocol: u8, ports: [u16; 2], behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(tag) = tag {
            bytes.extend([0x81, 0]);
            bytes.extend(tag.to_be_bytes());
        }
        bytes.extend([8, 0]);
        bytes.extend([
            0x45, 0x20, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        bytes.extend(ports.map(u16::to_be_bytes).concat());
        bytes.extend([0; 4]);
        bytes.extend(behind);
        bytes
    }

    fn flow(qp: u32) -> CreateFlow {
        CreateFlow {
            qp,
            ..CreateFlow::default()
        }
    }

    fn to_port(qp: u32, port: u16, priority: u32) -> CreateFlow {
        let mut wanted = flow(qp);
        wanted.priority = priority;
        wanted.headers = headers::IPV4 | headers::UDP;
        (wanted.value.destination_port, wanted.mask.destination_port) = (port, u16::MAX);
        wanted
    }

    fn by(steering: &Steering, head: &[u8]) -> Option<u32> {
        steering.find(head).by.map(|qp| qp.0)
    }

    #[test]
    fn priority_decides_then_age() {
        let mut steering = Steering::default();
        let mut insert = |flow: &CreateFlow| steering.insert(flow).unwrap().unwrap();
        let late = insert(&to_port(1, 7, 5));
        let mut mac = flow(2);
        mac.priority = 5;
        (mac.value.source_mac, mac.mask.source_mac) = ([2, 0, 0, 0, 0, 2], [0xff; 6]);
        insert(&mac);
        let early = insert(&to_port(3, 7, 4));
        let equal = insert(&to_port(4, 7, 4));
        let here = frame(None, 17, [9, 7], &[]);
        assert_eq!(by(&steering, &here), Some(3));
        assert!(steering.remove(early) && !steering.remove(early));
        assert_eq!(by(&steering, &here), Some(4));
        assert!(steering.remove(equal));
        assert_eq!(by(&steering, &here), Some(1));
        assert!(steering.remove(late));
        assert_eq!(by(&steering, &here), Some(2));
        // Another port, TCP and a later fragment are not the flow's.
        assert_eq!(by(&steering, &frame(None, 17, [9, 8], &[])), Some(2));
    }

    #[test]
    fn headers_must_be_there() {
        let mut steering = Steering::default();
        steering.insert(&to_port(1, 7, 0)).unwrap().unwrap();
        assert_eq!(by(&steering, &frame(None, 17, [9, 7], &[])), Some(1));
        assert_eq!(by(&steering, &frame(Some(5), 17, [9, 7], &[])), Some(1));
        assert_eq!(by(&steering, &frame(None, 6, [9, 7], &[])), None);
        let mut later = frame(None, 17, [9, 7], &[]);
        later[21] = 1;
        assert_eq!(by(&steering, &later), None);
        let whole = frame(None, 17, [9, 7], &[]);
        for len in 0..whole.len() {
            let cut = by(&steering, &whole[..len]);
            assert_eq!(cut.is_some(), len >= 38, "{len}");
        }
    }

    #[test]
    fn tags_and_tunnels_are_fields() {
        let mut steering = Steering::default();
        let mut tagged = flow(1);
        (tagged.value.tag, tagged.mask.tag) = (5, 0xfff);
        steering.insert(&tagged).unwrap().unwrap();
        let mut tunnel = to_port(2, 4789, 1);
        tunnel.headers |= headers::VXLAN;
        (tunnel.value.tunnel, tunnel.mask.tunnel) = (0x01_0203, 0xff_ffff);
        steering.insert(&tunnel).unwrap().unwrap();
        assert_eq!(by(&steering, &frame(Some(0xe005), 17, [9, 7], &[])), Some(1));
        assert_eq!(by(&steering, &frame(Some(6), 17, [9, 7], &[])), None);
        let vxlan = |vni| frame(None, 17, [9, 4789], &[8, 0, 0, 0, 1, 2, vni, 0]);
        assert_eq!(by(&steering, &vxlan(3)), Some(2));
        assert_eq!(by(&steering, &vxlan(4)), None);
        // Where VXLAN has another port, this is plain UDP.
        steering.vxlan_port = 8472;
        assert_eq!(by(&steering, &vxlan(3)), None);
    }

    #[test]
    fn defaults_take_what_is_left_and_sniffers_see_all() {
        let mut steering = Steering::default();
        let of = |qp, kind: FlowKind| CreateFlow {
            kind: kind.number(),
            ..flow(qp)
        };
        steering.insert(&to_port(1, 7, 9)).unwrap().unwrap();
        steering
            .insert(&of(2, FlowKind::MulticastDefault))
            .unwrap()
            .unwrap();
        steering.insert(&of(3, FlowKind::Sniffer)).unwrap().unwrap();
        let (mine, other) = (frame(None, 17, [9, 7], &[]), frame(None, 6, [9, 7], &[]));
        let mut group = other.clone();
        group[0] |= 1;
        let found = steering.find(&mine);
        assert_eq!(
            (found.by, &found.copies[..]),
            (Some(QpNumber(1)), &[QpNumber(3)][..])
        );
        assert_eq!((by(&steering, &other), by(&steering, &group)), (None, Some(2)));
        let all = steering.insert(&of(4, FlowKind::AllDefault)).unwrap().unwrap();
        assert_eq!((by(&steering, &other), by(&steering, &group)), (Some(4), Some(4)));
        assert_eq!(by(&steering, &mine), Some(1));
        assert!(steering.remove(all));
        assert_eq!(by(&steering, &other), None);
        assert!(!steering.find(&other).is_nobody());
    }

    #[test]
    fn what_is_in_a_tunnel_has_fields_of_its_own() {
        let mut steering = Steering::default();
        let tunnel = headers::IPV4 | headers::UDP | headers::VXLAN;
        let mut to_inner_port = flow(1);
        to_inner_port.headers = tunnel | headers::INNER_IPV4 | headers::INNER_TCP;
        to_inner_port.inner_value.destination_port = 80;
        to_inner_port.inner_mask.destination_port = u16::MAX;
        let mut to_inner_mac = flow(2);
        to_inner_mac.headers = tunnel;
        to_inner_mac.inner_value.source_mac = [2, 0, 0, 0, 0, 2];
        to_inner_mac.inner_mask.source_mac = [0xff; 6];
        steering.insert(&to_inner_port).unwrap().unwrap();
        steering.insert(&to_inner_mac).unwrap().unwrap();
        let vxlan = |inner: &[u8]| {
            let payload = [&[8, 0, 0, 0, 0, 0, 5, 0], inner].concat();
            frame(None, 17, [7, vxlan::UDP_PORT], &payload)
        };
        let inner = frame(Some(3), 6, [9, 80], &[]);
        assert_eq!(by(&steering, &vxlan(&inner)), Some(1));
        assert_eq!(by(&steering, &vxlan(&frame(None, 6, [9, 81], &[]))), Some(2));
        assert_eq!(by(&steering, &vxlan(&frame(None, 17, [9, 80], &[]))), Some(2));
        // Without a tunnel, and with one that is cut short.
        assert_eq!(by(&steering, &inner), None);
        assert_eq!(by(&steering, &vxlan(&inner[..13])), None);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let mut steering = Steering::default();
        let mut refused = |change: &dyn Fn(&mut CreateFlow)| {
            let mut wanted = flow(1);
            change(&mut wanted);
            steering.insert(&wanted)
        };
        let invalid = |got: Result<Option<u64>, FlowError>| matches!(got, Err(FlowError::Invalid(_)));
        assert!(invalid(refused(&|f| f.headers = headers::IPV4 | headers::IPV6)));
        assert!(invalid(refused(&|f| f.headers = headers::TCP | headers::UDP)));
        assert!(invalid(refused(&|f| f.headers = headers::VXLAN)));
        assert!(invalid(refused(&|f| f.mask.source = [1; 16])));
        assert!(invalid(refused(&|f| f.mask.source_port = 1)));
        assert!(invalid(refused(&|f| f.mask.tunnel = 1)));
        assert!(invalid(refused(&|f| f.mask.flow_label = 1)));
        assert!(invalid(refused(&|f| {
            f.headers = headers::IPV4;
            f.mask.source = [1; 16];
        })));
        assert!(invalid(refused(&|f| {
            f.kind = FlowKind::Sniffer.number();
            f.mask.ethertype = 1;
        })));
        assert_eq!(refused(&|f| f.priority = 65536), Err(FlowError::Priority(65536)));
        assert_eq!(refused(&|f| f.kind = 4), Ok(None));
        assert_eq!(refused(&|f| f.headers = 512), Ok(None));
        // Inside of a tunnel, which must be there.
        let tunnel = headers::UDP | headers::VXLAN;
        assert!(invalid(refused(&|f| f.headers = headers::INNER_TCP)));
        assert!(invalid(refused(&|f| f.inner_mask.ethertype = 1)));
        assert!(invalid(refused(&|f| {
            f.headers = tunnel | headers::INNER_IPV4 | headers::INNER_IPV6;
        })));
        assert!(invalid(refused(&|f| {
            f.headers = tunnel | headers::INNER_IPV4;
            f.inner_mask.source_port = 1;
        })));
        assert!(invalid(refused(&|f| {
            f.headers = tunnel;
            f.inner_mask.tunnel = 1;
        })));
        assert!(steering.is_empty());
    }

    #[test]
    fn there_are_limits() {
        let mut steering = Steering::default();
        for priority in 0..SETS_MAX as u32 {
            steering.insert(&to_port(1, 7, priority)).unwrap().unwrap();
        }
        assert_eq!(steering.insert(&to_port(1, 7, 99)), Err(FlowError::Sets));
        let sniffer = CreateFlow {
            kind: FlowKind::Sniffer.number(),
            ..flow(1)
        };
        for _ in 0..SNIFFERS_MAX {
            steering.insert(&sniffer).unwrap().unwrap();
        }
        assert_eq!(steering.insert(&sniffer), Err(FlowError::Sniffers));
        while steering.len() < FLOWS_MAX {
            steering
                .insert(&to_port(1, steering.len() as u16, 0))
                .unwrap()
                .unwrap();
        }
        assert_eq!(steering.insert(&to_port(1, 7, 0)), Err(FlowError::Flows));
        for id in 1..=FLOWS_MAX as u64 {
            assert!(steering.remove(id));
        }
        assert!(steering.is_empty() && steering.sets.is_empty() && steering.sniffers.is_empty());
    }

    /// The hash as Microsoft describes it: for each bit of the input that is set the 32 bits of the key that begin at it.
    fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
        let window = |at: usize| (at..at + 32).fold(0, |sum, i| sum << 1 | bit(key, i));
        (0..8 * input.len())
            .filter(|at| bit(input, *at) == 1)
            .fold(0, |sum, at| sum ^ window(at))
    }

    fn spread(hash_types: u32, table: &[u32]) -> CreateHashQp {
        let mut wanted = CreateHashQp {
            hash_types,
            entries: table.len() as u32,
            key: core::array::from_fn(|i| (i * 37 + 11) as u8),
            ..CreateHashQp::default()
        };
        wanted.table[..table.len()].copy_from_slice(table);
        wanted
    }

    /// Of frames in VXLAN the inner headers decide, if the driver says so.
    #[test]
    fn a_hash_queue_pair_spreads_by_the_hash() {
        let table = [10, 11, 12, 13, 14, 15, 16, 17];
        let wanted = spread(hash_types::IPV4 | hash_types::TCPV4 | hash_types::INNER, &table);
        let mut steering = Steering::default();
        let number = steering.insert_hash_qp(&wanted).unwrap().unwrap();
        steering.insert(&flow(number.0)).unwrap().unwrap();
        let expected = |input: &[u8]| Some(table[toeplitz(&wanted.key, input) as usize % 8]);
        let mut used = BTreeMap::new();
        for n in 0..64_u16 {
            let (addresses, ports) = ([10, 0, 0, 1, 10, 0, 0, 2], [1000 + n, 80]);
            let tcp = frame(None, 6, ports, &[]);
            let input = [&addresses[..], &ports.map(u16::to_be_bytes).concat()].concat();
            let taker = by(&steering, &tcp);
            assert_eq!(taker, expected(&input), "{n}");
            *used.entry(taker).or_insert(0) += 1;
            // A type that was not chosen: addresses only.
            assert_eq!(by(&steering, &frame(None, 17, ports, &[])), expected(&addresses));
            let header = [[8, 0, 0, 0, 0, 0, 5, 0].as_slice(), &tcp].concat();
            let outer = frame(Some(7), 17, [n, vxlan::UDP_PORT], &header);
            assert!(outer.len() <= LOOKED_AT);
            assert_eq!(by(&steering, &outer), expected(&input), "the inner packet");
        }
        assert_eq!(used.len(), 8, "{used:?}");
        // What is no IP has the hash 0.
        assert_eq!(by(&steering, &[2; 60]), Some(10));
        // Sniffers of it are led on as well.
        let sniffer = CreateFlow {
            kind: FlowKind::Sniffer.number(),
            ..flow(number.0)
        };
        steering.insert(&sniffer).unwrap().unwrap();
        assert_eq!(steering.find(&[2; 60]).copies.as_slice(), [QpNumber(10)]);
        steering.remove_hash_qp(number);
        assert!(steering.find(&[2; 60]).is_nobody());
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        let mut steering = Steering::default();
        let mut made = |wanted: &CreateHashQp| steering.insert_hash_qp(wanted);
        let good = spread(hash_types::ALL, &[1; 4]);
        let with = |change: &dyn Fn(&mut CreateHashQp)| {
            let mut wanted = good;
            change(&mut wanted);
            wanted
        };
        for entries in [0, 129, u32::MAX] {
            assert_eq!(
                made(&with(&|w| w.entries = entries)),
                Err(FlowError::Entries(entries))
            );
        }
        assert!(matches!(
            made(&with(&|w| w.entries = 3)),
            Err(FlowError::Invalid(_))
        ));
        assert!(matches!(
            made(&with(&|w| w.entries = 2)),
            Err(FlowError::Invalid(_))
        ));
        assert_eq!(made(&with(&|w| w.hash_types = 128)), Ok(None));
        for _ in 0..HASH_QPS_MAX {
            assert!(made(&good).unwrap().is_some_and(|number| number.0 >> 24 == 1));
        }
        assert_eq!(made(&good), Err(FlowError::HashQps));
    }
}
