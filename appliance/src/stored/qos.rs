//! Quality of service as `vnic.v1.Qos`: conversion between the message and the types of the NIC.
//!
//! The message's descriptor has the list of fields. A field that is a registry key is converted by the key's row in the
//! table of settings; each other field has a `Row`.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_reflect::{FieldDescriptor, Kind as FieldKind, Value};
use vnic_backend::settings::{self, AdapterSettings, FlowControl, KEYS, KeyDef, QosKeys};
use vnic_backend::{
    Buffer, BufferParts, Capable, Colour, Curve, DcbxSource, DcbxVersion, DscpColours, MarkAt, Match,
    NotCapable, Policy, QosSpec, QosStatus, Red, ScheduleQueue, TagMaps, Tpid, Tsa, VlArbitration,
};
use vnic_control::v1;
use vnic_control::v1::qos::{Algorithm, Color};
use vnic_control::v1::qos_policy::{DestinationPorts, Kind};

use crate::check::Violations;
use crate::check::qos::{LANE_MAX, message as reflected};
use crate::same::same;
use crate::stored::values::bits;

pub use crate::check::qos::message::names;

fn numbers(values: &[u8]) -> Vec<u32> {
    values.iter().map(|v| u32::from(*v)).collect()
}

/// A list that is empty where it is the plain one.
fn plain<T>(is: bool, list: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if is { Vec::new() } else { list() }
}

fn colors(colours: &[Colour]) -> Vec<i32> {
    colours.iter().map(|c| color(*c).into()).collect()
}

fn arbitration(tables: &VlArbitration) -> v1::VlArbitration {
    let table = |entries: &[(u8, u8)]| {
        let entry = |(lane, weight): &(u8, u8)| v1::VlWeight {
            lane: u32::from(*lane),
            weight: u32::from(*weight),
        };
        entries.iter().map(entry).collect()
    };
    v1::VlArbitration {
        high: table(&tables.high),
        low: table(&tables.low),
        high_limit: tables.high_limit.into(),
    }
}

/// Conversion of a field that is not a registry key, or whose form differs from its key's.
struct Row {
    field: &'static str,
    say: fn(&QosSpec, &QosKeys, &mut v1::Qos),
    /// Returns `None` if the value is wrong; the problem is noted.
    take: fn(&mut Reader<'_>, &v1::Qos, &mut QosSpec, &mut QosKeys) -> Option<()>,
}

macro_rules! rows {
    (($spec:ident, $keys:ident, $read:ident, $from:ident) $($field:ident: $say:expr => $take:expr;)+) => {
        &[$(Row {
            field: stringify!($field),
            say: |$spec, $keys, to| to.$field = $say,
            take: |$read, message, $spec, $keys| {
                let $from = &message.$field;
                $take;
                Some(())
            },
        }),+]
    };
}

#[allow(unused_variables, reason = "a row does without some of them")]
const ROWS: &[Row] = rows! { (spec, keys, read, from)
    rate_bps: spec.rate => spec.rate = *from;
    dscp_to_priority: numbers(&keys.acting_dscp_map()) => keys.set_dscp_map(read.numbers(from, 7)?);
    priority_to_tc: numbers(&spec.classes.of_priority) => spec.classes.of_priority = read.numbers(from, LANE_MAX)?;
    upper_sl_to_tc: spec.classes.of_upper.map_or_else(Vec::new, |upper| numbers(&upper))
        => spec.classes.of_upper = match from[..] {
            [] => None,
            _ => Some(read.numbers(from, LANE_MAX)?),
        };
    tc_algorithm: spec.classes.tsa.map(|tsa| algorithm(tsa).into()).to_vec() => spec.classes.tsa = read.tsa(from)?;
    tc_bandwidth_percent: numbers(&spec.classes.share) => spec.classes.share = read.numbers(from, 100)?;
    tc_rate_limit_bps: spec.classes.limit.to_vec() => spec.classes.limit = read.list(from)?;
    pfc: bits(spec.pfc) => spec.pfc = read.bits(from)?;
    pause_tx: keys.flow_control.is_sent()
        => keys.flow_control = FlowControl::of(*from, keys.flow_control.is_obeyed());
    pause_rx: keys.flow_control.is_obeyed()
        => keys.flow_control = FlowControl::of(keys.flow_control.is_sent(), *from);
    buffer_size: spec.buffer.size => spec.buffer.size = *from;
    buffer_xoff: spec.buffer.xoff => spec.buffer.xoff = *from;
    buffer_xon: spec.buffer.xon => spec.buffer.xon = *from;
    buffer_headroom: spec.buffer.headroom => spec.buffer.headroom = *from;
    cable_length_m: spec.buffer.cable_len.into() => spec.buffer.cable_len = read.number("", *from, 255)?;
    storm_critical_ms: keys.guard.critical_ms => keys.guard.critical_ms = *from;
    storm_minor_ms: keys.guard.minor_ms => keys.guard.minor_ms = *from;
    forced_traffic_class: spec.forced_traffic_class.map(u32::from)
        => spec.forced_traffic_class = match from {
            None => None,
            Some(class) => Some(read.number("", *class, 255)?),
        };
    schedule_queue: spec.queue.as_ref().map(|queue| v1::ScheduleQueue {
            max_bps: queue.limit.to_vec(),
            min_bps: queue.guarantee.to_vec(),
        })
        => spec.queue = match from {
            None => None,
            Some(queue) => Some(ScheduleQueue {
                limit: read.list(&queue.max_bps)?,
                guarantee: read.list(&queue.min_bps)?,
            }),
        };
    policies: spec.policies.iter().map(policy).collect()
        => spec.policies = from.iter().map(|m| read.policy(m)).collect::<Option<_>>()?;
    ecn: spec.ecn.iter().map(profile).collect()
        => spec.ecn = match from.as_slice() {
            [] => Default::default(),
            all => {
                let all = read.list::<_, 8>(all)?;
                let mut profiles = spec.ecn;
                for (place, profile) in profiles.iter_mut().zip(&all) {
                    *place = read.red(profile)?;
                }
                profiles
            }
        };
    tag_to_priority: plain(spec.tags.priority == TagMaps::default().priority, || numbers(&spec.tags.priority))
        => spec.tags.priority = match from.as_slice() {
            [] => TagMaps::default().priority,
            all => read.numbers(all, 7)?,
        };
    tag_to_color: plain(spec.tags.colour == TagMaps::default().colour, || colors(&spec.tags.colour))
        => spec.tags.colour = match from.as_slice() {
            [] => TagMaps::default().colour,
            all => read.colors(all)?,
        };
    dscp_to_color: plain(spec.dscp_to_colour == DscpColours::default(), || colors(&spec.dscp_to_colour.0))
        => spec.dscp_to_colour = match from.as_slice() {
            [] => DscpColours::default(),
            all => DscpColours(read.colors(all)?),
        };
    priority_to_pcp: plain(spec.tags.pcp == TagMaps::default().pcp, || numbers(&spec.tags.pcp))
        => spec.tags.pcp = match from.as_slice() {
            [] => TagMaps::default().pcp,
            all => read.numbers(all, 7)?,
        };
    skprio_to_priority: spec.tags.by_socket.map_or_else(Vec::new, |map| numbers(&map))
        => spec.tags.by_socket = match from.as_slice() {
            [] => None,
            all => Some(read.numbers(all, 7)?),
        };
    buffer_beta_percent: spec.buffer.beta.into()
        => spec.buffer.beta = match *from {
            0 => Buffer::default().beta,
            beta => read.number("", beta, u32::from(*Buffer::BETA_RANGE.end()))?,
        };
    receive_buffers: spec.buffer.parts.map(|parts| v1::ReceiveBuffers {
            sizes: parts.size.to_vec(),
            priority_to_buffer: numbers(&parts.of_priority),
        })
        => spec.buffer.parts = match from {
            None => None,
            Some(parts) => Some(BufferParts {
                size: read.list(&parts.sizes)?,
                of_priority: read.numbers(&parts.priority_to_buffer, 7)?,
            }),
        };
    vl_arbitration: spec.classes.arbitration.as_ref().map(arbitration)
        => spec.classes.arbitration = match from {
            None => None,
            Some(tables) => Some(VlArbitration {
                high: read.lanes("high", &tables.high)?,
                low: read.lanes("low", &tables.low)?,
                high_limit: read.number("high_limit: ", tables.high_limit, 255)?,
            }),
        };
    priority_to_tc_by_port: spec.classes_by_port.iter().map(|(source, table)| v1::TcByPort {
            source: source.clone(),
            priority_to_tc: numbers(if table[..8] == table[8..] { &table[..8] } else { table }),
        }).collect()
        => spec.classes_by_port = read.by_port(from)?;
    disabled: spec.disabled => spec.disabled = *from;
    tpid: spec.tpid.0.into()
        => spec.tpid = match *from {
            0 => Tpid::default(),
            tpid => Tpid(read.number("", tpid, 0xffff)?),
        };
};

fn row(field: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.field == field)
}

/// Registry key of a field without a row.
fn key(field: &str) -> Option<&'static KeyDef> {
    KEYS.iter().find(|def| def.messages() == [field])
}

/// Message of the configured settings, without name and state.
pub fn message(spec: &QosSpec, keys: &QosKeys) -> v1::Qos {
    let mut settings = with(keys);
    // Acting watermarks count, not the registry's.
    settings.qos.guard = keys.acting_watermarks();
    let mut plain = v1::Qos::default();
    for row in ROWS {
        (row.say)(spec, &settings.qos, &mut plain);
    }
    let said = reflected::dynamic(&plain).and_then(|mut message| {
        for field in reflected::fields() {
            if row(field.name()).is_none() {
                let def = key(field.name())?;
                message.set_field(field, value(def, field, &def.get(&settings)?)?);
            }
        }
        message.transcode_to().ok()
    });
    said.unwrap_or(plain)
}

fn with(keys: &QosKeys) -> AdapterSettings {
    AdapterSettings {
        qos: keys.clone(),
        ..AdapterSettings::default()
    }
}

/// Converts a key's value to the field's: a switch, a number, a list of switches, or a word. The words of key and field
/// have the same order; the field's numbers begin with 1.
fn value(def: &KeyDef, field: &FieldDescriptor, value: &settings::Value) -> Option<Value> {
    let settings::Value::Dword(number) = *value else {
        return None;
    };
    Some(match (field.kind(), field.is_list(), def.kind) {
        (FieldKind::Bool, false, _) => Value::Bool(number != 0),
        (FieldKind::Bool, true, _) => {
            let bits = bits(u8::try_from(number).ok()?);
            Value::List(bits.into_iter().map(Value::Bool).collect())
        }
        (FieldKind::Uint32, false, _) => Value::U32(number),
        (FieldKind::Enum(_), false, settings::Kind::Enum(words)) => {
            let word = words.iter().position(|(of, _)| *of == number)?;
            Value::EnumNumber(i32::try_from(word).ok()? + 1)
        }
        _ => return None,
    })
}

same! { fn algorithm(Tsa) -> Algorithm { Vendor, Strict, Ets } }
same! { fn color(Colour) -> Color { Green, Yellow, Red } }

fn curve(curve: Curve) -> v1::EcnCurve {
    v1::EcnCurve {
        min_bytes: curve.kmin,
        max_bytes: curve.kmax,
        max_probability_ppm: curve.pmax,
    }
}

fn profile(red: &Red) -> v1::EcnProfile {
    v1::EcnProfile {
        ecn: red.enable && red.capable == Capable::Mark,
        wred: red.enable && red.not_capable == NotCapable::Drop,
        min_bytes: red.green.kmin,
        max_bytes: red.green.kmax,
        max_probability_ppm: red.green.pmax,
        at_enqueue: red.at == MarkAt::Enqueue,
        yellow: red.yellow.map(curve),
        red: red.red.map(curve),
        thresholds_in_percent: red.percent,
        average_weight: red.average.into(),
    }
}

fn policy(policy: &Policy) -> v1::QosPolicy {
    let (kind, destination_ports) = match policy.matches {
        Match::Default => (Kind::Default, None),
        Match::Tcp => (Kind::Tcp, None),
        Match::Udp => (Kind::Udp, None),
        Match::Smb => (Kind::Smb, None),
        Match::NetDirect | Match::NetDirectPort(_) => (Kind::NetDirect, None),
        Match::DestinationPorts {
            protocol,
            first,
            last,
        } => {
            let ports = DestinationPorts {
                protocol: protocol.into(),
                first: first.into(),
                last: last.into(),
            };
            (Kind::DestinationPorts, Some(ports))
        }
    };
    v1::QosPolicy {
        name: policy.name.clone(),
        kind: kind.into(),
        destination_ports,
        net_direct_port: match policy.matches {
            Match::NetDirectPort(port) => Some(port.into()),
            _ => None,
        },
        priority: policy.priority.map(u32::from),
        dscp: policy.dscp.map(u32::from),
    }
}

/// Encodes the configured settings for the store.
pub fn encode(spec: &QosSpec, keys: &QosKeys) -> Vec<u8> {
    message(spec, keys).encode_to_vec()
}

/// Decodes a row of the store.
pub fn decode(bytes: &[u8]) -> Result<(QosSpec, QosKeys), String> {
    let message = v1::Qos::decode(bytes).map_err(|e| e.to_string())?;
    let (mut spec, mut keys) = (QosSpec::default(), QosKeys::default());
    let mut wrong = Violations::default();
    take(names(), &message, (&mut spec, &mut keys), &mut wrong);
    wrong
        .finish(Some((spec, keys)))
        .map_err(|wrong| wrong.to_string())
}

/// Fields and their values in words.
pub fn words(fields: &[&str], spec: &QosSpec, keys: &QosKeys) -> String {
    let message = message(spec, keys);
    let words: Vec<String> = fields
        .iter()
        .map(|field| reflected::text(field, &message))
        .collect();
    words.join(", ")
}

/// Message of the state of queues, and of what data center bridging exchange does.
pub fn state(status: &QosStatus) -> v1::QosState {
    let queues = &status.queues;
    let (version, sources) = status.dcbx.unzip();
    let sources = sources.unwrap_or_default();
    let peers = [
        ("ets", sources.ets),
        ("pfc", sources.pfc),
        ("applications", sources.applications),
    ];
    let peers = peers
        .into_iter()
        .filter(|(_, source)| *source == DcbxSource::Peer);
    v1::QosState {
        queued_bytes: match queues.bytes.split_at(8) {
            (classes, lanes) if lanes.iter().all(|bytes| *bytes == 0) => classes.to_vec(),
            _ => queues.bytes.to_vec(),
        },
        queued_frames: queues.frames,
        pausing: bits(queues.pausing),
        paused: bits(queues.paused),
        storm_prevention: queues.storm,
        stalled: bits(queues.stalled),
        send_queue_bytes: queues.send_queues.to_vec(),
        dcbx: version.map_or("", DcbxVersion::name).to_owned(),
        dcbx_from_peer: peers.map(|(name, _)| name.to_owned()).collect(),
        rdma_priority: status.rdma_priority.map(u32::from),
    }
}

/// Takes values from a message, and notes wrong ones. The NIC checks values that depend on other fields.
struct Reader<'a> {
    field: &'static FieldDescriptor,
    wrong: &'a mut Violations,
}

impl Reader<'_> {
    fn add(&mut self, problem: impl Into<String>) {
        self.wrong.add(format!("qos.{}", self.field.name()), problem);
    }

    fn number<T: TryFrom<u32>>(&mut self, of: &str, value: u32, max: u32) -> Option<T> {
        let fits = T::try_from(value).ok().filter(|_| value <= max);
        if fits.is_none() {
            self.add(format!("{of}{value} is out of range: 0 to {max}"));
        }
        fits
    }

    /// Takes a list that must have `N` elements.
    fn list<T: Clone, const N: usize>(&mut self, values: &[T]) -> Option<[T; N]> {
        let all = values.to_vec().try_into().ok();
        if all.is_none() {
            let n = values.len();
            self.add(format!("{n} elements; {N} are needed, one for each"));
        }
        all
    }

    /// Entries of an arbitration table. The NIC checks their number and what they serve.
    fn lanes(&mut self, table: &str, entries: &[v1::VlWeight]) -> Option<Vec<(u8, u8)>> {
        let mut one = |(i, entry): (usize, &v1::VlWeight)| {
            let lane = self.number(&format!("{table}[{i}].lane: "), entry.lane, LANE_MAX);
            let weight = self.number(&format!("{table}[{i}].weight: "), entry.weight, 255);
            lane.zip(weight)
        };
        entries.iter().enumerate().map(&mut one).collect()
    }

    /// Classes by the port that a frame came by, each for another one.
    fn by_port(&mut self, tables: &[v1::TcByPort]) -> Option<BTreeMap<String, [u8; 16]>> {
        let mut all = BTreeMap::new();
        for (i, table) in tables.iter().enumerate() {
            let source = table.source.as_str();
            if source.is_empty() || all.contains_key(source) {
                self.add(format!("element {i}: {source:?} is no name, or is there twice"));
                return None;
            }
            let of_level = match table.priority_to_tc.len() {
                16 => self.numbers(&table.priority_to_tc, LANE_MAX)?,
                _ => {
                    let of_priority: [u8; 8] = self.numbers(&table.priority_to_tc, LANE_MAX)?;
                    std::array::from_fn(|level| of_priority[level % 8])
                }
            };
            all.insert(source.to_owned(), of_level);
        }
        Some(all)
    }

    fn numbers<const N: usize>(&mut self, values: &[u32], max: u32) -> Option<[u8; N]> {
        let all = self.list::<u32, N>(values)?;
        let mut out = [0; N];
        let mut fine = true;
        for (i, value) in all.into_iter().enumerate() {
            match self.number(&format!("element {i}: "), value, max) {
                Some(small) => out[i] = small,
                None => fine = false,
            }
        }
        fine.then_some(out)
    }

    fn bits(&mut self, values: &[bool]) -> Option<u8> {
        let all = self.list::<bool, 8>(values)?;
        Some(all.iter().rev().fold(0, |mask, bit| mask << 1 | u8::from(*bit)))
    }

    fn tsa(&mut self, values: &[i32]) -> Option<[Tsa; 8]> {
        let mut all = [Tsa::default(); 8];
        for (tc, number) in self.list::<i32, 8>(values)?.into_iter().enumerate() {
            let words = [Tsa::Vendor, Tsa::Strict, Tsa::Ets];
            let Some(tsa) = words.into_iter().find(|tsa| i32::from(algorithm(*tsa)) == number) else {
                self.none(&format!("element {tc}: "), number);
                return None;
            };
            all[tc] = tsa;
        }
        Some(all)
    }

    /// Notes that a number has no word in the field's enum.
    fn none(&mut self, of: &str, number: i32) {
        let FieldKind::Enum(words) = self.field.kind() else {
            return;
        };
        let all: Vec<String> = reflected::words(&words)
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        if let Some((last, others)) = all.split_last() {
            self.add(format!(
                "{of}{number} is none: {} and {last} are",
                others.join(", ")
            ));
        }
    }

    /// Converts a field's value to the key's: the inverse of [`value`].
    fn key(&mut self, def: &KeyDef, value: &Value) -> Option<settings::Value> {
        let number = match (value, def.kind) {
            (Value::Bool(on), _) => (*on).into(),
            (Value::List(values), _) => {
                let bits: Vec<bool> = values.iter().filter_map(Value::as_bool).collect();
                self.bits(&bits)?.into()
            }
            (Value::U32(number), settings::Kind::Dword { min, max }) => {
                if !(min..=max).contains(number) {
                    self.add(format!("{number} is out of range: {min} to {max}"));
                    return None;
                }
                *number
            }
            (Value::EnumNumber(number), settings::Kind::Enum(words)) => {
                let at = usize::try_from(*number).ok().and_then(|n| n.checked_sub(1));
                let Some((value, _)) = at.and_then(|at| words.get(at)) else {
                    self.none("", *number);
                    return None;
                };
                *value
            }
            _ => return None,
        };
        Some(settings::Value::Dword(number))
    }

    fn colors<const N: usize>(&mut self, values: &[i32]) -> Option<[Colour; N]> {
        let mut all = [Colour::default(); N];
        for (i, number) in self.list::<i32, N>(values)?.into_iter().enumerate() {
            let words = [Colour::Green, Colour::Yellow, Colour::Red];
            let Some(colour) = words.into_iter().find(|c| i32::from(color(*c)) == number) else {
                self.none(&format!("element {i}: "), number);
                return None;
            };
            all[i] = colour;
        }
        Some(all)
    }

    /// Converts an ECN profile. A disabled profile keeps its thresholds.
    fn red(&mut self, profile: &v1::EcnProfile) -> Option<Red> {
        let off = !profile.ecn && !profile.wred;
        let curve = |of: &v1::EcnCurve| Curve {
            kmin: of.min_bytes,
            kmax: of.max_bytes,
            pmax: of.max_probability_ppm,
        };
        Some(Red {
            enable: !off,
            green: Curve {
                kmin: profile.min_bytes,
                kmax: profile.max_bytes,
                pmax: profile.max_probability_ppm,
            },
            yellow: profile.yellow.as_ref().map(curve),
            red: profile.red.as_ref().map(curve),
            percent: profile.thresholds_in_percent,
            average: self.number("average_weight ", profile.average_weight, Red::AVERAGE_MAX.into())?,
            at: match profile.at_enqueue {
                true => MarkAt::Enqueue,
                false => MarkAt::Dequeue,
            },
            capable: match profile.ecn || off {
                true => Capable::Mark,
                false => Capable::Drop,
            },
            not_capable: match profile.wred {
                true => NotCapable::Drop,
                false => NotCapable::Pass,
            },
        })
    }

    fn policy(&mut self, message: &v1::QosPolicy) -> Option<Policy> {
        let of = format!("{:?}: ", message.name);
        if message.net_direct_port.is_some() && message.kind() != Kind::NetDirect {
            self.add(format!(
                "{of}net_direct_port is given with KIND_NET_DIRECT, and only then"
            ));
            return None;
        }
        let is_ports = message.kind() == Kind::DestinationPorts;
        if message.destination_ports.is_some() != is_ports {
            self.add(format!(
                "{of}destination_ports are given with KIND_DESTINATION_PORTS, and only then"
            ));
            return None;
        }
        let matches = match message.kind() {
            Kind::Unspecified => {
                self.add(format!("{of}kind is missing"));
                return None;
            }
            Kind::Default => Match::Default,
            Kind::Tcp => Match::Tcp,
            Kind::Udp => Match::Udp,
            Kind::Smb => Match::Smb,
            Kind::NetDirect => match message.net_direct_port {
                None => Match::NetDirect,
                Some(0) => {
                    self.add(format!("{of}net_direct_port 0: 1 to 65535 are ports"));
                    return None;
                }
                Some(port) => {
                    Match::NetDirectPort(self.number(&format!("{of}net_direct_port "), port, 65_535)?)
                }
            },
            Kind::DestinationPorts => {
                let ports = message.destination_ports.unwrap_or_default();
                Match::DestinationPorts {
                    protocol: self.number(&format!("{of}protocol "), ports.protocol, 255)?,
                    first: self.number(&format!("{of}port "), ports.first, 65_535)?,
                    last: self.number(&format!("{of}port "), ports.last, 65_535)?,
                }
            }
        };
        let mut small = |what: &str, value: Option<u32>, max| match value {
            None => Some(None),
            Some(value) => self.number(&format!("{of}{what} "), value, max).map(Some),
        };
        Some(Policy {
            name: message.name.clone(),
            matches,
            priority: small("priority", message.priority, 7)?,
            dscp: small("DSCP", message.dscp, 63)?,
        })
    }
}

/// Writes fields of a request into the configured settings. If a value is wrong, it is noted, and the caller makes no change.
pub fn take(
    fields: &[&str],
    from: &v1::Qos,
    (spec, keys): (&mut QosSpec, &mut QosKeys),
    wrong: &mut Violations,
) {
    let Some(values) = reflected::dynamic(from) else {
        return;
    };
    let mut settings = with(keys);
    for field in fields.iter().filter_map(|name| reflected::field(name)) {
        let read = &mut Reader { field, wrong };
        if let Some(row) = row(field.name()) {
            let _ = (row.take)(read, from, spec, &mut settings.qos);
        } else if let Some(def) = key(field.name())
            && let Some(value) = read.key(def, &values.get_field(field))
        {
            def.set(&mut settings, &value);
        }
    }
    *keys = settings.qos;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use reflected::text;

    /// Keys each of which differs from its default in every field.
    pub fn keys_unlike_the_default() -> QosKeys {
        let mut settings = AdapterSettings::default();
        for def in KEYS.iter().filter(|def| !def.messages().is_empty()) {
            let plain = def.get(&settings);
            let others = match def.kind {
                settings::Kind::Dword { min, max } => vec![min, max],
                settings::Kind::Enum(words) => words.iter().map(|(number, _)| *number).collect(),
                _ => vec![0, 1],
            };
            let mut others = others.into_iter().map(settings::Value::Dword);
            let other = others.find(|other| plain.as_ref() != Some(other));
            def.set(&mut settings, &other.expect(def.name));
        }
        let mut keys = settings.qos;
        keys.guard = settings::Guard {
            minor_ms: 100,
            critical_ms: 900,
        };
        keys.set_dscp_map([7; 64]);
        keys
    }

    fn unlike_the_default() -> (QosSpec, QosKeys) {
        let keys = keys_unlike_the_default();
        let spec = QosSpec {
            ecn: [1, 2, 3, 4, 5, 6, 7, 8].map(|n| Red {
                enable: true,
                green: Curve {
                    kmin: 5000 * n,
                    kmax: 200_000 * n,
                    pmax: 10_000 * n,
                },
                yellow: (n == 2).then_some(Curve {
                    kmin: 1,
                    kmax: 2,
                    pmax: 3,
                }),
                red: (n == 3).then_some(Curve::default()),
                percent: n == 5,
                average: n as u8,
                at: if n < 3 { MarkAt::Enqueue } else { MarkAt::Dequeue },
                capable: if n == 4 { Capable::Drop } else { Capable::Mark },
                not_capable: if n > 3 { NotCapable::Drop } else { NotCapable::Pass },
            }),
            rate: 10_000_000_000,
            classes: vnic_backend::Classes {
                of_priority: [7, 6, 5, 4, 3, 2, 1, 0],
                tsa: [
                    Tsa::Ets,
                    Tsa::Ets,
                    Tsa::Strict,
                    Tsa::Vendor,
                    Tsa::Ets,
                    Tsa::Strict,
                    Tsa::Vendor,
                    Tsa::Ets,
                ],
                share: [10, 20, 0, 0, 30, 0, 0, 40],
                of_upper: Some([0, 1, 2, 3, 3, 2, 1, 0]),
                by_source: Vec::new(),
                limit: [1, 2, 3, 4, 5, 6, 7, 8].map(|n| n * 1_000_000),
                arbitration: Some(VlArbitration {
                    high: vec![(7, 255), (0, 0), (7, 1)],
                    low: (0..8).map(|lane| (lane, 8 - lane)).collect(),
                    high_limit: 9,
                }),
            },
            classes_by_port: [
                ("p1".to_owned(), [3; 16]),
                ("vf0".to_owned(), std::array::from_fn(|level| level as u8 % 7)),
            ]
            .into(),
            pfc: 0x0a,
            buffer: Buffer {
                size: 1 << 20,
                xoff: 40_000,
                xon: 20_000,
                headroom: 30_000,
                cable_len: 100,
                beta: 800,
                parts: Some(BufferParts {
                    size: [1 << 19, 0, 0, 1 << 19, 0, 0, 0, 0],
                    of_priority: [0, 0, 0, 3, 0, 0, 0, 0],
                }),
            },
            tags: TagMaps {
                priority: [7; 16],
                colour: [Colour::Red; 16],
                pcp: [1; 8],
                by_socket: Some([4; 16]),
            },
            dscp_to_colour: DscpColours([Colour::Yellow; 64]),
            disabled: true,
            tpid: Tpid(0x9100),
            policies: vec![
                Policy {
                    name: "smb".to_owned(),
                    matches: Match::Smb,
                    priority: Some(3),
                    dscp: None,
                },
                Policy {
                    name: "web".to_owned(),
                    matches: Match::DestinationPorts {
                        protocol: 6,
                        first: 80,
                        last: 443,
                    },
                    priority: None,
                    dscp: Some(46),
                },
                Policy {
                    name: "smb direct".to_owned(),
                    matches: Match::NetDirectPort(445),
                    priority: Some(3),
                    dscp: None,
                },
            ],
            forced_traffic_class: Some(106),
            queue: Some(ScheduleQueue {
                limit: [5_000_000_000; 8],
                guarantee: [1_000_000; 8],
            }),
            keys: QosKeys::default(),
        };
        (spec, keys)
    }

    #[test]
    fn every_field_is_written_and_read_back() {
        let (spec, keys) = unlike_the_default();
        let wanted = message(&spec, &keys);
        let plain = message(&QosSpec::default(), &QosKeys::default());
        let (mut got, mut got_keys) = (QosSpec::default(), QosKeys::default());
        for field in names() {
            assert_ne!(
                text(field, &wanted),
                text(field, &plain),
                "nothing would be seen of {field}"
            );
            let before = message(&got, &got_keys);
            let mut wrong = Violations::default();
            take(&[field], &wanted, (&mut got, &mut got_keys), &mut wrong);
            wrong.finish(Some(())).expect(field);
            let after = message(&got, &got_keys);
            // The fields are changed one by one.
            let changed: Vec<_> = names()
                .iter()
                .filter(|f| text(f, &before) != text(f, &after))
                .collect();
            match *field {
                // The minor watermark follows, because it cannot be above the critical one.
                "storm_critical_ms" => assert_eq!(changed, [&"storm_critical_ms", &"storm_minor_ms"]),
                _ => assert_eq!(changed, [field]),
            }
        }
        assert_eq!((&got, &got_keys), (&spec, &keys));
        let stored = v1::Qos::decode(wanted.encode_to_vec().as_slice()).expect("a message");
        assert_eq!(stored, wanted);
    }

    #[test]
    fn every_field_has_a_row_or_is_a_key() {
        assert_eq!(names().first(), Some(&"rate_bps"));
        for field in names() {
            let rows = ROWS.iter().filter(|row| row.field == *field).count();
            assert_eq!(
                rows + usize::from(rows == 0 && key(field).is_some()),
                1,
                "{field}"
            );
        }
        for row in ROWS {
            assert!(names().contains(&row.field), "{}", row.field);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |field: &str, change: fn(&mut v1::Qos)| {
            let mut asked = message(&QosSpec::default(), &QosKeys::default());
            change(&mut asked);
            let (mut spec, mut keys) = (QosSpec::default(), QosKeys::default());
            let mut wrong = Violations::default();
            take(&[field], &asked, (&mut spec, &mut keys), &mut wrong);
            wrong.finish(Some(())).expect_err(field).to_string()
        };
        for (field, change, text) in [
            (
                "pfc",
                (|q| q.pfc = vec![true]) as fn(&mut v1::Qos),
                "qos.pfc: 1 elements; 8",
            ),
            (
                "dscp_to_priority",
                |q| q.dscp_to_priority[30] = 8,
                "element 30: 8 is out of range: 0 to 7",
            ),
            (
                "default_priority",
                |q| q.default_priority = 300,
                "300 is out of range: 0 to 7",
            ),
            ("trust", |q| q.trust = 0, "TRUST_DSCP"),
            ("tc_algorithm", |q| q.tc_algorithm[2] = 9, "element 2: 9 is none"),
            (
                "forced_traffic_class",
                |q| q.forced_traffic_class = Some(256),
                "0 to 255",
            ),
            ("hol_lifetime", |q| q.hol_lifetime = 21, "0 to 20"),
            (
                "policies",
                |q| {
                    q.policies = vec![v1::QosPolicy {
                        name: "nd".to_owned(),
                        kind: Kind::NetDirect.into(),
                        net_direct_port: Some(0),
                        priority: Some(3),
                        ..v1::QosPolicy::default()
                    }];
                },
                "1 to 65535",
            ),
            (
                "policies",
                |q| {
                    q.policies = vec![v1::QosPolicy {
                        name: "nd".to_owned(),
                        kind: Kind::Tcp.into(),
                        net_direct_port: Some(445),
                        priority: Some(3),
                        ..v1::QosPolicy::default()
                    }];
                },
                "KIND_NET_DIRECT",
            ),
            (
                "policies",
                |q| {
                    q.policies = vec![v1::QosPolicy {
                        name: "p".to_owned(),
                        kind: Kind::DestinationPorts.into(),
                        ..v1::QosPolicy::default()
                    }];
                },
                "destination_ports",
            ),
        ] {
            let problem = refused(field, change);
            assert!(problem.contains(text), "{field}: {problem}");
        }
    }
}
