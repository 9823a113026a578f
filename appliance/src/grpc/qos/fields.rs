//! Fields of `vnic.v1.Qos`: from a request to what the NIC is told, and back.

use vnic_backend::settings::{self, FlowControl, HintAction, HintMode, QosKeys};
use vnic_backend::{
    Capable, MarkAt, Match, NotCapable, Policy, QosSpec, QueueStatus, Red, ScheduleQueue, Tsa,
};
use vnic_control::v1;
use vnic_control::v1::qos::{Algorithm, CongestionAction, CongestionMode, Trust};
use vnic_control::v1::qos_policy::{DestinationPorts, Kind};

use super::super::errors::Violations;

/// Fields that can be written, in the order of their numbers.
pub const FIELDS: &[&str] = &[
    "rate_bps",
    "trust",
    "default_priority",
    "dscp_to_priority",
    "untagged_to_lossless",
    "priority_to_tc",
    "tc_algorithm",
    "tc_bandwidth_percent",
    "tc_rate_limit_bps",
    "pfc",
    "pause_tx",
    "pause_rx",
    "buffer_size",
    "buffer_xoff",
    "buffer_xon",
    "buffer_headroom",
    "cable_length_m",
    "storm_critical_ms",
    "storm_minor_ms",
    "hol_lifetime",
    "hol_stall_count",
    "hol_lifetime_classes",
    "forced_traffic_class",
    "send_queue_per_priority",
    "congestion_monitoring",
    "congestion_action",
    "congestion_mode",
    "schedule_queue",
    "policies",
    "ecn",
];

fn bits(mask: u8) -> Vec<bool> {
    (0..8).map(|i| mask & (1 << i) != 0).collect()
}

fn numbers(values: &[u8]) -> Vec<u32> {
    values.iter().map(|v| u32::from(*v)).collect()
}

/// What is configured, as a message without name and state.
pub fn message(spec: &QosSpec, keys: &QosKeys) -> v1::Qos {
    v1::Qos {
        rate_bps: spec.rate,
        trust: match keys.trust {
            settings::Trust::Port => Trust::Port,
            settings::Trust::Pcp => Trust::Pcp,
            settings::Trust::Dscp => Trust::Dscp,
            settings::Trust::Both => Trust::Both,
        }
        .into(),
        default_priority: keys.default_priority.into(),
        dscp_to_priority: numbers(&keys.acting_dscp_map()),
        untagged_to_lossless: keys.untagged_to_lossless,
        priority_to_tc: numbers(&spec.classes.of_priority),
        tc_algorithm: spec
            .classes
            .tsa
            .iter()
            .map(|tsa| algorithm(*tsa).into())
            .collect(),
        tc_bandwidth_percent: numbers(&spec.classes.share),
        tc_rate_limit_bps: spec.classes.limit.to_vec(),
        pfc: bits(spec.pfc),
        pause_tx: keys.flow_control.is_sent(),
        pause_rx: keys.flow_control.is_obeyed(),
        buffer_size: spec.buffer.size,
        buffer_xoff: spec.buffer.xoff,
        buffer_xon: spec.buffer.xon,
        buffer_headroom: spec.buffer.headroom,
        cable_length_m: spec.buffer.cable_len.into(),
        storm_critical_ms: keys.acting_watermarks().critical_ms,
        storm_minor_ms: keys.acting_watermarks().minor_ms,
        hol_lifetime: keys.lifetimes.limit.into(),
        hol_stall_count: keys.lifetimes.stall_count.into(),
        hol_lifetime_classes: bits(keys.lifetimes.enable),
        forced_traffic_class: spec.forced_traffic_class.map(u32::from),
        send_queue_per_priority: keys.send_queue_per_priority,
        congestion_monitoring: keys.hint.enable,
        congestion_action: match keys.hint.action {
            HintAction::Off => CongestionAction::Off,
            HintAction::Drop => CongestionAction::Drop,
            HintAction::Mark => CongestionAction::Mark,
        }
        .into(),
        congestion_mode: match keys.hint.mode {
            HintMode::Aggressive => CongestionMode::Aggressive,
            HintMode::Dynamic => CongestionMode::Dynamic,
        }
        .into(),
        schedule_queue: spec.queue.as_ref().map(|queue| v1::ScheduleQueue {
            max_bps: queue.limit.to_vec(),
            min_bps: queue.guarantee.to_vec(),
        }),
        policies: spec.policies.iter().map(policy).collect(),
        ecn: spec.ecn.iter().map(profile).collect(),
        ..v1::Qos::default()
    }
}

fn profile(red: &Red) -> v1::EcnProfile {
    v1::EcnProfile {
        ecn: red.enable && red.capable == Capable::Mark,
        wred: red.enable && red.not_capable == NotCapable::Drop,
        min_bytes: red.kmin,
        max_bytes: red.kmax,
        max_probability_ppm: red.pmax,
        at_enqueue: red.at == MarkAt::Enqueue,
    }
}

/// What a profile means. Thresholds of one that is off stay.
fn red(profile: &v1::EcnProfile) -> Red {
    let off = !profile.ecn && !profile.wred;
    Red {
        enable: !off,
        kmin: profile.min_bytes,
        kmax: profile.max_bytes,
        pmax: profile.max_probability_ppm,
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
    }
}

fn algorithm(tsa: Tsa) -> Algorithm {
    match tsa {
        Tsa::Vendor => Algorithm::Vendor,
        Tsa::Strict => Algorithm::Strict,
        Tsa::Ets => Algorithm::Ets,
    }
}

fn policy(policy: &Policy) -> v1::QosPolicy {
    let (kind, destination_ports) = match policy.matches {
        Match::Default => (Kind::Default, None),
        Match::Tcp => (Kind::Tcp, None),
        Match::Udp => (Kind::Udp, None),
        Match::Smb => (Kind::Smb, None),
        Match::NetDirect => (Kind::NetDirect, None),
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
        net_direct_port: None,
        priority: policy.priority.map(u32::from),
        dscp: policy.dscp.map(u32::from),
    }
}

/// What waits.
pub fn state(queues: &QueueStatus) -> v1::QosState {
    v1::QosState {
        queued_bytes: queues.bytes.to_vec(),
        queued_frames: queues.frames,
        pausing: bits(queues.pausing),
        paused: bits(queues.paused),
        storm_prevention: queues.storm,
        stalled: bits(queues.stalled),
        send_queue_bytes: queues.send_queues.to_vec(),
    }
}

/// Takes values out of a message, and notes what is wrong with them. What depends on other fields, the NIC checks.
struct Reader<'a> {
    field: &'static str,
    wrong: &'a mut Violations,
}

impl Reader<'_> {
    fn add(&mut self, problem: impl Into<String>) {
        self.wrong.add(format!("qos.{}", self.field), problem);
    }

    fn number<T: TryFrom<u32>>(&mut self, of: &str, value: u32, max: u32) -> Option<T> {
        let fits = T::try_from(value).ok().filter(|_| value <= max);
        if fits.is_none() {
            self.add(format!("{of}{value} is out of range: 0 to {max}"));
        }
        fits
    }

    /// As many elements as there must be.
    fn list<T: Clone, const N: usize>(&mut self, values: &[T]) -> Option<[T; N]> {
        let all = values.to_vec().try_into().ok();
        if all.is_none() {
            let n = values.len();
            self.add(format!("{n} elements; {N} are needed, one for each"));
        }
        all
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

    fn policies(&mut self, messages: &[v1::QosPolicy]) -> Option<Vec<Policy>> {
        messages.iter().map(|m| self.policy(m)).collect()
    }

    fn policy(&mut self, message: &v1::QosPolicy) -> Option<Policy> {
        let of = format!("{:?}: ", message.name);
        if message.net_direct_port.is_some() {
            self.add(format!(
                "{of}net_direct_port: which service an RDMA connection is for, only a connection manager in the NIC would \
                 know; without a port the policy is about all RDMA of the adapter"
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
            Kind::NetDirect => Match::NetDirect,
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

/// Writes a field of a request into what is configured. `field` is one of [`FIELDS`].
pub fn take(field: &str, from: &v1::Qos, spec: &mut QosSpec, keys: &mut QosKeys, wrong: &mut Violations) {
    let Some(field) = FIELDS.iter().find(|f| **f == field) else {
        return;
    };
    let read = &mut Reader { field, wrong };
    // What is wrong is noted: there is no change then.
    let _ = one(read, from, spec, keys);
}

fn one(read: &mut Reader<'_>, from: &v1::Qos, spec: &mut QosSpec, keys: &mut QosKeys) -> Option<()> {
    match read.field {
        "rate_bps" => spec.rate = from.rate_bps,
        "trust" => {
            keys.trust = match from.trust() {
                Trust::Unspecified => {
                    read.add(format!(
                        "{} is none: TRUST_PORT, TRUST_PCP, TRUST_DSCP and TRUST_BOTH are",
                        from.trust
                    ));
                    return None;
                }
                Trust::Port => settings::Trust::Port,
                Trust::Pcp => settings::Trust::Pcp,
                Trust::Dscp => settings::Trust::Dscp,
                Trust::Both => settings::Trust::Both,
            }
        }
        "default_priority" => keys.default_priority = read.number("", from.default_priority, 7)?,
        "dscp_to_priority" => keys.set_dscp_map(read.numbers(&from.dscp_to_priority, 7)?),
        "untagged_to_lossless" => keys.untagged_to_lossless = from.untagged_to_lossless,
        "priority_to_tc" => spec.classes.of_priority = read.numbers(&from.priority_to_tc, 7)?,
        "tc_algorithm" => {
            let all = read.list::<i32, 8>(&from.tc_algorithm)?;
            for (tc, number) in all.into_iter().enumerate() {
                spec.classes.tsa[tc] = match Algorithm::try_from(number) {
                    Ok(Algorithm::Vendor) => Tsa::Vendor,
                    Ok(Algorithm::Strict) => Tsa::Strict,
                    Ok(Algorithm::Ets) => Tsa::Ets,
                    Ok(Algorithm::Unspecified) | Err(_) => {
                        read.add(format!(
                            "element {tc}: {number} is none: ALGORITHM_VENDOR, ALGORITHM_STRICT and ALGORITHM_ETS are"
                        ));
                        return None;
                    }
                };
            }
        }
        "tc_bandwidth_percent" => spec.classes.share = read.numbers(&from.tc_bandwidth_percent, 100)?,
        "tc_rate_limit_bps" => spec.classes.limit = read.list(&from.tc_rate_limit_bps)?,
        "pfc" => spec.pfc = read.bits(&from.pfc)?,
        "pause_tx" => keys.flow_control = FlowControl::of(from.pause_tx, keys.flow_control.is_obeyed()),
        "pause_rx" => keys.flow_control = FlowControl::of(keys.flow_control.is_sent(), from.pause_rx),
        "buffer_size" => spec.buffer.size = from.buffer_size,
        "buffer_xoff" => spec.buffer.xoff = from.buffer_xoff,
        "buffer_xon" => spec.buffer.xon = from.buffer_xon,
        "buffer_headroom" => spec.buffer.headroom = from.buffer_headroom,
        "cable_length_m" => spec.buffer.cable_len = read.number("", from.cable_length_m, 255)?,
        "storm_critical_ms" => keys.guard.critical_ms = from.storm_critical_ms,
        "storm_minor_ms" => keys.guard.minor_ms = from.storm_minor_ms,
        "hol_lifetime" => keys.lifetimes.limit = read.number("", from.hol_lifetime, 20)?,
        "hol_stall_count" => keys.lifetimes.stall_count = read.number("", from.hol_stall_count, 7)?,
        "hol_lifetime_classes" => keys.lifetimes.enable = read.bits(&from.hol_lifetime_classes)?,
        "forced_traffic_class" => {
            spec.forced_traffic_class = match from.forced_traffic_class {
                None => None,
                Some(class) => Some(read.number("", class, 255)?),
            }
        }
        "send_queue_per_priority" => keys.send_queue_per_priority = from.send_queue_per_priority,
        "congestion_monitoring" => keys.hint.enable = from.congestion_monitoring,
        "congestion_action" => {
            keys.hint.action = match from.congestion_action() {
                CongestionAction::Unspecified => {
                    read.add(format!("{} is none", from.congestion_action));
                    return None;
                }
                CongestionAction::Off => HintAction::Off,
                CongestionAction::Drop => HintAction::Drop,
                CongestionAction::Mark => HintAction::Mark,
            }
        }
        "congestion_mode" => {
            keys.hint.mode = match from.congestion_mode() {
                CongestionMode::Unspecified => {
                    read.add(format!("{} is none", from.congestion_mode));
                    return None;
                }
                CongestionMode::Aggressive => HintMode::Aggressive,
                CongestionMode::Dynamic => HintMode::Dynamic,
            }
        }
        "schedule_queue" => {
            spec.queue = match &from.schedule_queue {
                None => None,
                Some(queue) => Some(ScheduleQueue {
                    limit: read.list(&queue.max_bps)?,
                    guarantee: read.list(&queue.min_bps)?,
                }),
            }
        }
        "policies" => spec.policies = read.policies(&from.policies)?,
        "ecn" => {
            spec.ecn = match from.ecn.as_slice() {
                [] => Default::default(),
                all => read.list::<_, 8>(all)?.each_ref().map(red),
            }
        }
        _ => {}
    }
    Some(())
}

/// A profile, for people: `off`, or what is done between which thresholds.
pub fn profile_text(profile: &v1::EcnProfile) -> String {
    let what = match (profile.ecn, profile.wred) {
        (false, false) => return "off".to_owned(),
        (true, false) => "mark",
        (true, true) => "mark or drop",
        (false, true) => "drop",
    };
    let v1::EcnProfile {
        min_bytes,
        max_bytes,
        max_probability_ppm: ppm,
        at_enqueue,
        ..
    } = profile;
    let at = if *at_enqueue { " at enqueue" } else { "" };
    format!("{what} {min_bytes}..{max_bytes} {ppm} ppm{at}")
}

/// A field and its value, for people.
pub fn text(field: &str, of: &v1::Qos) -> String {
    fn list<T: ToString>(values: &[T]) -> String {
        values
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }
    fn flags(values: &[bool]) -> String {
        list(&values.iter().map(|b| u8::from(*b)).collect::<Vec<_>>())
    }
    let word = |name: &str, prefix: &str| name.trim_start_matches(prefix).to_ascii_lowercase();
    let value = match field {
        "rate_bps" => of.rate_bps.to_string(),
        "trust" => word(of.trust().as_str_name(), "TRUST_"),
        "default_priority" => of.default_priority.to_string(),
        "dscp_to_priority" => list(&of.dscp_to_priority),
        "untagged_to_lossless" => of.untagged_to_lossless.to_string(),
        "priority_to_tc" => list(&of.priority_to_tc),
        "tc_algorithm" => {
            let words: Vec<String> = of
                .tc_algorithm()
                .map(|a| word(a.as_str_name(), "ALGORITHM_"))
                .collect();
            list(&words)
        }
        "tc_bandwidth_percent" => list(&of.tc_bandwidth_percent),
        "tc_rate_limit_bps" => list(&of.tc_rate_limit_bps),
        "pfc" => flags(&of.pfc),
        "pause_tx" => of.pause_tx.to_string(),
        "pause_rx" => of.pause_rx.to_string(),
        "buffer_size" => of.buffer_size.to_string(),
        "buffer_xoff" => of.buffer_xoff.to_string(),
        "buffer_xon" => of.buffer_xon.to_string(),
        "buffer_headroom" => of.buffer_headroom.to_string(),
        "cable_length_m" => of.cable_length_m.to_string(),
        "storm_critical_ms" => of.storm_critical_ms.to_string(),
        "storm_minor_ms" => of.storm_minor_ms.to_string(),
        "hol_lifetime" => of.hol_lifetime.to_string(),
        "hol_stall_count" => of.hol_stall_count.to_string(),
        "hol_lifetime_classes" => flags(&of.hol_lifetime_classes),
        "forced_traffic_class" => of
            .forced_traffic_class
            .map_or_else(|| "none".to_owned(), |c| c.to_string()),
        "send_queue_per_priority" => of.send_queue_per_priority.to_string(),
        "congestion_monitoring" => of.congestion_monitoring.to_string(),
        "congestion_action" => word(of.congestion_action().as_str_name(), "CONGESTION_ACTION_"),
        "congestion_mode" => word(of.congestion_mode().as_str_name(), "CONGESTION_MODE_"),
        "schedule_queue" => match &of.schedule_queue {
            None => "none".to_owned(),
            Some(queue) => format!("max {}, min {}", list(&queue.max_bps), list(&queue.min_bps)),
        },
        "policies" => match of.policies.as_slice() {
            [] => "none".to_owned(),
            all => list(&all.iter().map(|p| p.name.clone()).collect::<Vec<_>>()),
        },
        "ecn" => list(&of.ecn.iter().map(profile_text).collect::<Vec<_>>()),
        _ => String::new(),
    };
    format!("{field} = {value}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use vnic_backend::settings::{Guard, HintSettings, Lifetimes};

    fn unlike_the_default() -> (QosSpec, QosKeys) {
        let mut keys = QosKeys {
            flow_control: FlowControl::Off,
            default_priority: 5,
            trust: settings::Trust::Both,
            untagged_to_lossless: true,
            send_queue_per_priority: true,
            lifetimes: Lifetimes {
                limit: 3,
                stall_count: 2,
                enable: 0x81,
            },
            guard: Guard {
                minor_ms: 100,
                critical_ms: 900,
            },
            hint: HintSettings {
                enable: true,
                action: HintAction::Drop,
                mode: HintMode::Aggressive,
            },
            ..QosKeys::default()
        };
        keys.set_dscp_map([7; 64]);
        let spec = QosSpec {
            ecn: [1, 2, 3, 4, 5, 6, 7, 8].map(|n| Red {
                enable: true,
                kmin: 5000 * n,
                kmax: 200_000 * n,
                pmax: 10_000 * n,
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
                limit: [1, 2, 3, 4, 5, 6, 7, 8].map(|n| n * 1_000_000),
            },
            pfc: 0x0a,
            buffer: vnic_backend::Buffer {
                size: 1 << 20,
                xoff: 40_000,
                xon: 20_000,
                headroom: 30_000,
                cable_len: 100,
            },
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
        for field in FIELDS {
            assert_ne!(
                text(field, &wanted),
                text(field, &plain),
                "nothing would be seen of {field}"
            );
            let before = message(&got, &got_keys);
            let mut wrong = Violations::default();
            take(field, &wanted, &mut got, &mut got_keys, &mut wrong);
            wrong.finish(Some(())).expect(field);
            let after = message(&got, &got_keys);
            // One field at a time.
            let changed: Vec<_> = FIELDS
                .iter()
                .filter(|f| text(f, &before) != text(f, &after))
                .collect();
            match *field {
                // The minor watermark is not above it.
                "storm_critical_ms" => assert_eq!(changed, [&"storm_critical_ms", &"storm_minor_ms"]),
                _ => assert_eq!(changed, [field]),
            }
        }
        assert_eq!((&got, &got_keys), (&spec, &keys));
        let stored = v1::Qos::decode(wanted.encode_to_vec().as_slice()).expect("a message");
        assert_eq!(stored, wanted);
    }

    #[test]
    fn every_settable_field_of_the_message_is_one_of_ours() {
        let pool =
            prost_reflect::DescriptorPool::decode(vnic_control::FILE_DESCRIPTOR_SET).expect("descriptors");
        let message = pool.get_message_by_name("vnic.v1.Qos").expect("the message");
        let settable: Vec<String> = message
            .fields()
            .filter(|f| (2..40).contains(&f.number()))
            .map(|f| f.name().to_owned())
            .collect();
        assert_eq!(settable, FIELDS);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |field: &str, change: fn(&mut v1::Qos)| {
            let mut asked = message(&QosSpec::default(), &QosKeys::default());
            change(&mut asked);
            let (mut spec, mut keys) = (QosSpec::default(), QosKeys::default());
            let mut wrong = Violations::default();
            take(field, &asked, &mut spec, &mut keys, &mut wrong);
            wrong.finish(Some(())).expect_err(field).message().to_owned()
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
                        net_direct_port: Some(445),
                        priority: Some(3),
                        ..v1::QosPolicy::default()
                    }];
                },
                "connection manager",
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
