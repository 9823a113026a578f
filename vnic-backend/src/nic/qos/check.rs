//! Is what an operator configures possible? Every refusal names the field, as the control interface calls it, and what is
//! allowed.

use std::ops::RangeInclusive;

use vnic_engine::settings::QosKeys;

use crate::types::*;

/// Bytes of frames that wait at a port.
pub const BUFFER_RANGE: RangeInclusive<u32> = 65_536..=268_435_456;
/// The least XOFF threshold, in bytes: a frame.
pub const XOFF_MIN: u32 = 2_048;
/// The most headroom, in bytes.
pub const HEADROOM_MAX: u32 = 64 << 20;
/// Policies of an adapter.
pub const POLICIES_MAX: usize = 64;
/// Bytes of a policy's name.
pub const POLICY_NAME_MAX: usize = 64;

/// Adapter or uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Adapter,
    Port,
}

fn invalid<T>(field: &'static str, problem: String) -> Result<T, NicError> {
    Err(NicError::Invalid { field, problem })
}

/// All of it, but for what depends on what was configured before ([`new_queue`]).
pub fn spec(spec: &QosSpec, side: Side) -> Result<(), NicError> {
    rate("rate_bps", "", spec.rate)?;
    classes(&spec.classes)?;
    buffer(&spec.buffer)?;
    if side == Side::Port {
        only_adapters("policies", spec.policies.is_empty())?;
        only_adapters("forced_traffic_class", spec.forced_traffic_class.is_none())?;
        only_adapters("schedule_queue", spec.queue.is_none())?;
        port_keys(&spec.keys)?;
        only_adapters("send_queue_per_priority", !spec.keys.send_queue_per_priority)?;
        only_adapters("congestion_monitoring", !spec.keys.hint)?;
    }
    policies(&spec.policies)?;
    match &spec.queue {
        Some(q) => schedule_queue(q, spec.rate),
        None => Ok(()),
    }
}

fn only_adapters(field: &'static str, absent: bool) -> Result<(), NicError> {
    if absent {
        return Ok(());
    }
    let problem = "only adapters have it: it is about what a guest sends or receives".to_owned();
    invalid(field, problem)
}

fn rate(field: &'static str, of: &str, rate: u64) -> Result<(), NicError> {
    if rate == 0 || QOS_RATE_RANGE.contains(&rate) {
        return Ok(());
    }
    let (lo, hi) = (QOS_RATE_RANGE.start(), QOS_RATE_RANGE.end());
    let problem = format!("{of}{rate} is out of range: 0 (no limit), or {lo} to {hi} bit/s");
    invalid(field, problem)
}

fn up_to(field: &'static str, of: &str, value: u32, max: u32) -> Result<(), NicError> {
    if value <= max {
        return Ok(());
    }
    invalid(field, format!("{of}{value} is out of range: 0 to {max}"))
}

fn classes(classes: &Classes) -> Result<(), NicError> {
    for (priority, class) in classes.of_priority.iter().enumerate() {
        up_to(
            "priority_to_tc",
            &format!("priority {priority}: "),
            (*class).into(),
            7,
        )?;
    }
    let mut sum = 0;
    for (tc, (tsa, share)) in classes.tsa.iter().zip(&classes.share).enumerate() {
        if *share > 0 && *tsa != Tsa::Ets {
            return invalid(
                "tc_bandwidth_percent",
                format!(
                    "traffic class {tc} has {share} %, and its algorithm is not ETS: 0 is allowed, or make it ETS"
                ),
            );
        }
        sum += u32::from(*share);
    }
    let ets = classes.tsa.contains(&Tsa::Ets);
    if ets && (sum == 0 || sum > 100) {
        let problem = format!(
            "the shares of all ETS classes add up to {sum} %: 100 is allowed, or less (they count as weights)"
        );
        return invalid("tc_bandwidth_percent", problem);
    }
    for (tc, limit) in classes.limit.iter().enumerate() {
        rate("tc_rate_limit_bps", &format!("traffic class {tc}: "), *limit)?;
    }
    Ok(())
}

fn buffer(buffer: &Buffer) -> Result<(), NicError> {
    if !BUFFER_RANGE.contains(&buffer.size) {
        let (lo, hi) = (BUFFER_RANGE.start(), BUFFER_RANGE.end());
        let problem = format!("{} is out of range: {lo} to {hi} bytes", buffer.size);
        return invalid("buffer_size", problem);
    }
    if !(XOFF_MIN..=buffer.size).contains(&buffer.xoff) {
        let (xoff, size) = (buffer.xoff, buffer.size);
        let problem = format!("{xoff} is out of range: {XOFF_MIN} to {size} (buffer_size) bytes");
        return invalid("buffer_xoff", problem);
    }
    if buffer.xon >= buffer.xoff {
        let (xon, xoff) = (buffer.xon, buffer.xoff);
        let problem = format!("{xon} is not below buffer_xoff, which is {xoff}");
        return invalid("buffer_xon", problem);
    }
    if buffer.headroom > HEADROOM_MAX {
        let problem = format!("{} is out of range: 0 to {HEADROOM_MAX} bytes", buffer.headroom);
        return invalid("buffer_headroom", problem);
    }
    Ok(())
}

/// What an adapter's registry checks for adapters.
fn port_keys(keys: &QosKeys) -> Result<(), NicError> {
    up_to("default_priority", "", keys.default_priority.into(), 7)?;
    for (dscp, priority) in keys.dscp_to_priority.iter().enumerate() {
        up_to(
            "dscp_to_priority",
            &format!("DSCP {dscp}: "),
            (*priority).into(),
            7,
        )?;
    }
    watermarks(keys)?;
    up_to("hol_lifetime", "", keys.lifetime.into(), 20)?;
    up_to("hol_stall_count", "", keys.stall_count.into(), 7)
}

/// The watermarks of storm prevention, as an operator gives them: what the registry would count as something else is
/// refused.
pub fn watermarks(keys: &QosKeys) -> Result<(), NicError> {
    let (minor, critical) = (keys.stall_minor_ms, keys.stall_critical_ms);
    if critical != 0 && !(80..=8000).contains(&critical) {
        let problem = format!("{critical} is out of range: 0 (never), or 80 to 8000 ms");
        return invalid("storm_critical_ms", problem);
    }
    let max = if critical == 0 { 8000 } else { critical };
    if minor != 0 && !(80..=max).contains(&minor) {
        let problem =
            format!("{minor} is out of range: 0 (never), or 80 to {max} ms: the critical watermark at most");
        return invalid("storm_minor_ms", problem);
    }
    Ok(())
}

fn policies(policies: &[Policy]) -> Result<(), NicError> {
    const FIELD: &str = "policies";
    if policies.len() > POLICIES_MAX {
        let n = policies.len();
        return invalid(
            FIELD,
            format!("{n} policies; an adapter has at most {POLICIES_MAX}"),
        );
    }
    for (i, policy) in policies.iter().enumerate() {
        let name = policy.name.as_str();
        if name.is_empty() || name.len() > POLICY_NAME_MAX || name.chars().any(char::is_control) {
            let problem =
                format!("{name:?} is no name of a policy: 1 to {POLICY_NAME_MAX} bytes of text are allowed");
            return invalid(FIELD, problem);
        }
        let wrong = |problem: String| invalid(FIELD, format!("{name:?}: {problem}"));
        let before = policies.get(..i).unwrap_or_default();
        if before.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
            return wrong("the name is taken by another policy".to_owned());
        }
        if policy.matches == Match::Default && before.iter().any(|other| other.matches == Match::Default) {
            return wrong("there is a default policy already: one is allowed".to_owned());
        }
        if let Match::DestinationPorts {
            protocol,
            first,
            last,
        } = policy.matches
        {
            if ![0, 6, 17].contains(&protocol) {
                return wrong(format!(
                    "protocol {protocol}: 6 (TCP), 17 (UDP) and 0 (both) are allowed"
                ));
            }
            if first > last {
                return wrong(format!("ports {first} to {last}: the first is above the last"));
            }
        }
        match (policy.priority, policy.dscp) {
            (None, None) => {
                return wrong("it does nothing: a priority, a DSCP, or both are needed".to_owned());
            }
            (Some(p), _) if p > 7 => return wrong(format!("priority {p} is out of range: 0 to 7")),
            (_, Some(d)) if d > 63 => return wrong(format!("DSCP {d} is out of range: 0 to 63")),
            _ => {}
        }
    }
    Ok(())
}

const QUEUE: &str = "schedule_queue";

fn schedule_queue(queue: &ScheduleQueue, link: u64) -> Result<(), NicError> {
    for (tc, (limit, guarantee)) in queue.limit.iter().zip(&queue.guarantee).enumerate() {
        rate(QUEUE, &format!("maximum of traffic class {tc}: "), *limit)?;
        rate(QUEUE, &format!("minimum of traffic class {tc}: "), *guarantee)?;
        if *limit != 0 && guarantee > limit {
            let problem = format!(
                "traffic class {tc}: the minimum, {guarantee} bit/s, is above the maximum, {limit} bit/s"
            );
            return invalid(QUEUE, problem);
        }
    }
    let sum: u64 = queue.guarantee.iter().fold(0, |sum, g| sum.saturating_add(*g));
    if link != 0 && sum > link {
        let problem = format!("the minima add up to {sum} bit/s, more than rate_bps, which is {link}");
        return invalid(QUEUE, problem);
    }
    Ok(())
}

/// A schedule queue that is to act from now on: hardware QoS is on, and all classes that it supports have a limit or none
/// (WinOF-2 Ethernet Network, Hardware QoS Offload). One that is there already stays when the keys change: it acts for
/// the classes that are supported.
pub fn new_queue(queue: &ScheduleQueue, keys: &QosKeys) -> Result<(), NicError> {
    if !keys.offload {
        let problem =
            "hardware QoS is off for this adapter: set *QoSOffload to 1 and restart the adapter first";
        return invalid(QUEUE, problem.to_owned());
    }
    let supported = keys.offload_classes;
    let (inside, outside): (Vec<usize>, Vec<usize>) =
        (0..queue.limit.len()).partition(|tc| supported & (1 << tc) != 0);
    let has = |rates: &[u64], tc: &usize| rates.get(*tc).is_some_and(|rate| *rate != 0);
    if let Some(tc) = outside
        .iter()
        .find(|tc| has(&queue.limit, tc) || has(&queue.guarantee, tc))
    {
        let problem = format!(
            "traffic class {tc} is not one of *QosOffloadSupportedTCs ({supported:#04x}): 0 is allowed, or set its bit there"
        );
        return invalid(QUEUE, problem);
    }
    let (with, without): (Vec<usize>, Vec<usize>) = inside.into_iter().partition(|tc| has(&queue.limit, tc));
    if !with.is_empty() && !without.is_empty() {
        let problem = format!(
            "traffic classes {with:?} have a maximum and {without:?} have none: all that *QosOffloadSupportedTCs names \
             ({supported:#04x}) must have one, or none"
        );
        return invalid(QUEUE, problem);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut QosSpec), side: Side) -> (&'static str, String) {
        let mut wrong = QosSpec::default();
        change(&mut wrong);
        let queue = |()| {
            wrong
                .queue
                .as_ref()
                .map_or(Ok(()), |q| new_queue(q, &QosKeys::default()))
        };
        match spec(&wrong, side).and_then(queue) {
            Err(NicError::Invalid { field, problem }) => (field, problem),
            other => panic!("{other:?}"),
        }
    }

    fn policy(name: &str, matches: Match) -> Policy {
        Policy {
            name: name.to_owned(),
            matches,
            priority: Some(3),
            dscp: None,
        }
    }

    #[test]
    fn the_default_is_fine_everywhere() {
        for side in [Side::Adapter, Side::Port] {
            assert!(spec(&QosSpec::default(), side).is_ok());
        }
        assert!(watermarks(&QosKeys::default()).is_ok());
    }

    #[test]
    fn every_refusal_names_field_and_range() {
        let adapter = Side::Adapter;
        let ports = |protocol, first, last| Match::DestinationPorts {
            protocol,
            first,
            last,
        };
        let one = |p: Policy| move |s: &mut QosSpec| s.policies.push(p);
        type Change = Box<dyn FnOnce(&mut QosSpec)>;
        let cases: Vec<(Change, &str, &str)> = vec![
            (Box::new(|s| s.rate = 999), "rate_bps", "1000 to"),
            (
                Box::new(|s| s.classes.of_priority[3] = 8),
                "priority_to_tc",
                "priority 3: 8 is out of range: 0 to 7",
            ),
            (
                Box::new(|s| s.classes.share[2] = 5),
                "tc_bandwidth_percent",
                "traffic class 2",
            ),
            (
                Box::new(|s| {
                    s.classes.tsa = [Tsa::Ets; 8];
                    s.classes.share = [13; 8];
                }),
                "tc_bandwidth_percent",
                "104 %",
            ),
            (
                Box::new(|s| s.classes.tsa[0] = Tsa::Ets),
                "tc_bandwidth_percent",
                "0 %",
            ),
            (
                Box::new(|s| s.classes.limit[7] = 1),
                "tc_rate_limit_bps",
                "traffic class 7",
            ),
            (Box::new(|s| s.buffer.size = 1), "buffer_size", "65536 to"),
            (
                Box::new(|s| s.buffer.xoff = s.buffer.size + 1),
                "buffer_xoff",
                "2048 to",
            ),
            (
                Box::new(|s| s.buffer.xon = s.buffer.xoff),
                "buffer_xon",
                "not below",
            ),
            (
                Box::new(|s| s.buffer.headroom = u32::MAX),
                "buffer_headroom",
                "0 to",
            ),
            (Box::new(one(policy("", Match::Tcp))), "policies", "no name"),
            (Box::new(one(policy("p", ports(1, 1, 2)))), "policies", "6 (TCP)"),
            (
                Box::new(one(policy("p", ports(6, 3, 2)))),
                "policies",
                "above the last",
            ),
            (
                Box::new(one(Policy {
                    priority: None,
                    ..policy("p", Match::Udp)
                })),
                "policies",
                "does nothing",
            ),
            (
                Box::new(one(Policy {
                    priority: Some(8),
                    ..policy("p", Match::Udp)
                })),
                "policies",
                "0 to 7",
            ),
            (
                Box::new(one(Policy {
                    dscp: Some(64),
                    ..policy("p", Match::Udp)
                })),
                "policies",
                "0 to 63",
            ),
            (
                Box::new(|s| s.policies = vec![policy("a", Match::Tcp), policy("A", Match::Udp)]),
                "policies",
                "taken",
            ),
            (
                Box::new(|s| s.policies = vec![policy("a", Match::Default), policy("b", Match::Default)]),
                "policies",
                "default policy",
            ),
            (
                Box::new(|s| s.policies = (0..65).map(|i| policy(&i.to_string(), Match::Tcp)).collect()),
                "policies",
                "at most 64",
            ),
            (
                Box::new(|s| {
                    s.queue = Some(ScheduleQueue {
                        limit: [5_000_000, 0, 0, 0, 0, 0, 0, 0],
                        ..ScheduleQueue::default()
                    });
                }),
                "schedule_queue",
                "or none",
            ),
            (
                Box::new(|s| {
                    s.queue = Some(ScheduleQueue {
                        limit: [5_000_000; 8],
                        guarantee: [6_000_000; 8],
                    });
                }),
                "schedule_queue",
                "above the maximum",
            ),
            (
                Box::new(|s| {
                    s.rate = 1_000_000_000;
                    s.queue = Some(ScheduleQueue {
                        limit: [0; 8],
                        guarantee: [200_000_000; 8],
                    });
                }),
                "schedule_queue",
                "more than rate_bps",
            ),
        ];
        for (change, field, text) in cases {
            let (got, problem) = refused(change, adapter);
            assert_eq!(got, field, "{problem}");
            assert!(problem.contains(text), "{field}: {problem} does not say {text:?}");
        }
    }

    #[test]
    fn ports_have_no_guest() {
        let queue = |s: &mut QosSpec| s.queue = Some(ScheduleQueue::default());
        assert_eq!(refused(queue, Side::Port).0, "schedule_queue");
        let policies = |s: &mut QosSpec| s.policies.push(policy("a", Match::Tcp));
        assert_eq!(refused(policies, Side::Port).0, "policies");
        let forced = |s: &mut QosSpec| s.forced_traffic_class = Some(106);
        assert_eq!(refused(forced, Side::Port).0, "forced_traffic_class");
        let queues = |s: &mut QosSpec| s.keys.send_queue_per_priority = true;
        assert_eq!(refused(queues, Side::Port).0, "send_queue_per_priority");
        let priority = |s: &mut QosSpec| s.keys.default_priority = 8;
        assert_eq!(refused(priority, Side::Port).0, "default_priority");
    }

    #[test]
    fn classes_that_are_not_supported_have_no_limits() {
        let mut queue = ScheduleQueue {
            limit: [1_000_000, 1_000_000, 0, 0, 0, 0, 0, 0],
            ..ScheduleQueue::default()
        };
        let mut keys = QosKeys {
            offload_classes: 3,
            ..QosKeys::default()
        };
        assert!(new_queue(&queue, &keys).is_ok());
        queue.limit[2] = 1_000_000;
        let refused = new_queue(&queue, &keys).expect_err("refused").to_string();
        assert!(refused.contains("*QosOffloadSupportedTCs (0x03)"), "{refused}");
        keys.offload = false;
        let refused = new_queue(&queue, &keys).expect_err("refused").to_string();
        assert!(refused.contains("set *QoSOffload to 1"), "{refused}");
    }

    #[test]
    fn watermarks_are_in_order() {
        let of = |critical, minor| {
            let keys = QosKeys {
                stall_critical_ms: critical,
                stall_minor_ms: minor,
                ..QosKeys::default()
            };
            watermarks(&keys).is_ok()
        };
        assert!(of(0, 8000) && of(80, 80) && of(8000, 0));
        assert!(!of(79, 0) && !of(8001, 0) && !of(100, 101) && !of(0, 8001) && !of(8000, 79));
    }
}
