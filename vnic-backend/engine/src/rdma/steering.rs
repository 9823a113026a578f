//! Flows: which of the frames that come for an adapter its raw packet queue pairs have (`ibv_create_flow(3)`; proto/device,
//! section 8.7).
//!
//! Flows with the same priority, headers and mask are a set: a frame's fields, masked, are looked up in it at once. So a frame costs
//! as many steps as there are sets, however many flows there are (tuple space search: Srinivasan, Suri, Varghese, Packet
//! Classification using Tuple Space Search, SIGCOMM 1999).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use smallvec::SmallVec;
use vnic_device::command::flow::{CreateFlow, FlowFields};
use vnic_device::verbs::{FlowKind, flow_headers as headers};
use vnic_device::zerocopy::IntoBytes;
use vnic_wire::{EtherType, udp, vxlan};

use super::types::QpNumber;

/// Most flows of an adapter.
pub const FLOWS_MAX: usize = 1024;
/// Most sets of flows: steps that a frame may cost.
pub const SETS_MAX: usize = 16;
/// Most sniffers: copies that a frame may cost.
pub const SNIFFERS_MAX: usize = 4;
/// Bytes of a frame in which all fields are: Ethernet, a tag, IPv4 with options, UDP, VXLAN.
pub const LOOKED_AT: usize = 14 + 4 + 60 + 8 + 8;
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
}

type Key = [u8; size_of::<FlowFields>()];

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

/// Where a flow is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Set {
        priority: u16,
        headers: u32,
        mask: Key,
        key: Key,
    },
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
}

fn masked(fields: &FlowFields, mask: &Key) -> Key {
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
    let (mask, has) = (&flow.mask, |bits| flow.headers & bits != 0);
    let invalid = |what| Err(FlowError::Invalid(what));
    if kind != FlowKind::Normal {
        return match flow.headers != 0 || *mask != FlowFields::default() {
            true => invalid("only a flow of kind NORMAL looks at headers"),
            false => Ok(Some(kind)),
        };
    }
    let both = |a, b| has(a) && has(b);
    if both(headers::IPV4, headers::IPV6) || both(headers::TCP, headers::UDP) {
        return invalid("no frame has two of these headers");
    }
    if has(headers::VXLAN) && !has(headers::UDP) {
        return invalid("VXLAN is behind UDP");
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
    Ok(Some(kind))
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
        let mut mask = [0; size_of::<FlowFields>()];
        mask.copy_from_slice(flow.mask.as_bytes());
        let key = masked(&flow.value, &mask);
        // (It was checked.)
        let priority = flow.priority as u16;
        let headers = flow.headers;
        let place = Place::Set {
            priority,
            headers,
            mask,
            key,
        };
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
            Some(Place::Set {
                priority,
                headers,
                mask,
                key,
            }) => {
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

    /// Who has a frame that begins with these bytes: the first [`LOOKED_AT`], or all.
    pub fn find(&self, head: &[u8]) -> Taken {
        let mut taken = Taken {
            by: None,
            copies: self.sniffers.iter().map(|flow| flow.qp).collect(),
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
        taken.by = best.map(|(_, flow)| flow).or(default).map(|flow| flow.qp);
        taken
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Fields of a frame, and the headers that it has. `None`: it is no frame.
fn parse(head: &[u8], vxlan_port: u16) -> Option<(FlowFields, u32)> {
    let mut fields = FlowFields {
        destination_mac: *head.first_chunk()?,
        source_mac: *head.get(6..)?.first_chunk()?,
        ethertype: word(head, 12)?,
        ..FlowFields::default()
    };
    let mut at = 14;
    if EtherType(fields.ethertype).is_vlan() {
        let (Some(tag), Some(inner)) = (word(head, 14), word(head, 16)) else {
            return Some((fields, 0));
        };
        (fields.tag, fields.ethertype, at) = (tag, inner, 18);
    }
    let mut has = 0;
    // What is missing of a header that is cut short is as if the header was not there.
    if let Some(behind) = parse_network(head, at, &mut fields, &mut has)
        && has & headers::UDP != 0
        && fields.destination_port == vxlan_port
        && let Some(Ok(tunnel)) = head.get(behind + udp::HEADER_LEN..).map(vxlan::Header::parse)
    {
        fields.tunnel = tunnel.vni;
        has |= headers::VXLAN;
    }
    Some((fields, has))
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
        assert_eq!(refused(&|f| f.headers = 32), Ok(None));
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
}
