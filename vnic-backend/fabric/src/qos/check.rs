//! Limits of a port's configuration, which file, command line, gRPC and the NIC share. The NIC adds the rules that need to know
//! more than the port (a schedule queue has limits for all supported classes or for none); limits that are numbers of a
//! mechanism stand beside it ([`lifetime`], [`red`]). The fields have the names that the control plane gives them.

use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;

use super::{
    Buffer, BufferParts, Classes, Classification, Guard, LANES, Match, PRIORITIES, PortQos, QosError,
    ScheduleQueue, Tsa, lifetime, red,
};

/// Rates in bit/s, besides 0. At the lowest one a full-size frame takes 12 s.
pub const RATE_RANGE: RangeInclusive<u64> = 1_000..=1_000_000_000_000;
/// Bytes of frames that wait at a port.
pub(super) const BUFFER_RANGE: RangeInclusive<u32> = 64 << 10..=256 << 20;
/// Most bytes of headroom.
const HEADROOM_MAX: u32 = 64 << 20;
/// Least bytes at which a source is told to wait: a full-size frame.
const XOFF_MIN: u32 = 2048;
/// Most policies of a port.
const POLICIES_MAX: usize = 64;
/// Most bytes of a policy's name.
const POLICY_NAME_MAX: usize = 64;

pub(super) type Checked = Result<(), QosError>;

pub(super) fn refuse(field: &'static str, problem: String) -> Checked {
    Err(QosError { field, problem })
}

/// Checks that a rate is 0 or within the limits. `of` says whose rate it is.
fn rate(field: &'static str, of: &str, value: u64) -> Checked {
    if value == 0 || RATE_RANGE.contains(&value) {
        return Ok(());
    }
    let (lo, hi) = (RATE_RANGE.start(), RATE_RANGE.end());
    refuse(
        field,
        format!("{of}{value} is out of range: 0 (no limit), or {lo} to {hi} bit/s"),
    )
}

/// Checks that a number is at most `max`.
pub(super) fn up_to(field: &'static str, of: &str, value: u8, max: u8) -> Checked {
    if value <= max {
        return Ok(());
    }
    refuse(field, format!("{of}{value} is out of range: 0 to {max}"))
}

pub(super) fn check(qos: &PortQos) -> Checked {
    rate("rate_bps", "", qos.rate)?;
    qos.tpid.check()?;
    classes(&qos.classes)?;
    buffer(&qos.buffer)?;
    classification(&qos.classification)?;
    guard(qos.guard)?;
    lifetime::check(qos.lifetimes)?;
    red::check(&qos.ecn)?;
    match &qos.queue {
        Some(q) => queue(q, qos.rate),
        None => Ok(()),
    }
}

fn classes(c: &Classes) -> Checked {
    const SHARES: &str = "tc_bandwidth_percent";
    // Virtual lanes have their turns by tables only.
    let last = match c.arbitration {
        Some(_) => LANES as u8 - 1,
        None => PRIORITIES as u8 - 1,
    };
    for (priority, class) in c.of_priority.into_iter().enumerate() {
        up_to("priority_to_tc", &format!("priority {priority}: "), class, last)?;
    }
    for (level, class) in (8..).zip(c.of_upper.into_iter().flatten()) {
        up_to("upper_sl_to_tc", &format!("service level {level}: "), class, last)?;
    }
    for (tc, (tsa, share)) in c.tsa.iter().zip(c.share).enumerate() {
        if share > 0 && *tsa != Tsa::Ets {
            let problem = format!(
                "traffic class {tc} has {share} %, and its algorithm is not ETS: 0 is allowed, or make it ETS"
            );
            return refuse(SHARES, problem);
        }
    }
    let sum: u32 = c.share.into_iter().map(u32::from).sum();
    if c.tsa.contains(&Tsa::Ets) && !(1..=100).contains(&sum) {
        let problem = format!(
            "the shares of all ETS classes add up to {sum} %: 100 is allowed, or less (they count as weights)"
        );
        return refuse(SHARES, problem);
    }
    for (tc, limit) in c.limit.into_iter().enumerate() {
        rate("tc_rate_limit_bps", &format!("traffic class {tc}: "), limit)?;
    }
    match &c.arbitration {
        Some(tables) => tables.check(&c.of_level()),
        None => Ok(()),
    }
}

fn buffer(b: &Buffer) -> Checked {
    let Buffer {
        size,
        xoff,
        xon,
        headroom,
        beta,
        parts,
        ..
    } = *b;
    let (lo, hi) = (BUFFER_RANGE.start(), BUFFER_RANGE.end());
    let (field, problem) = if !BUFFER_RANGE.contains(&size) {
        (
            "buffer_size",
            format!("{size} is out of range: {lo} to {hi} bytes"),
        )
    } else if !(XOFF_MIN..=size).contains(&xoff) {
        let problem = format!("{xoff} is out of range: {XOFF_MIN} to {size} (buffer_size) bytes");
        ("buffer_xoff", problem)
    } else if xon >= xoff {
        let problem = format!("{xon} is not below buffer_xoff, which is {xoff}");
        ("buffer_xon", problem)
    } else if headroom > HEADROOM_MAX {
        let problem = format!("{headroom} is out of range: 0 to {HEADROOM_MAX} bytes");
        ("buffer_headroom", problem)
    } else if !Buffer::BETA_RANGE.contains(&beta) {
        let (lo, hi) = (Buffer::BETA_RANGE.start(), Buffer::BETA_RANGE.end());
        let problem = format!("{beta} is out of range: {lo} to {hi} per cent");
        ("buffer_beta_percent", problem)
    } else {
        return parts.map_or(Ok(()), |parts| buffer_parts(&parts, size));
    };
    refuse(field, problem)
}

fn buffer_parts(parts: &BufferParts, size: u32) -> Checked {
    const FIELD: &str = "receive_buffers";
    for (priority, buffer) in parts.of_priority.into_iter().enumerate() {
        up_to(FIELD, &format!("priority {priority}: buffer "), buffer, 7)?;
        let bytes = parts.size.get(usize::from(buffer)).copied().unwrap_or(0);
        if bytes < XOFF_MIN {
            let problem =
                format!("priority {priority}: buffer {buffer} has {bytes} bytes: {XOFF_MIN} are needed");
            return refuse(FIELD, problem);
        }
    }
    let sum: u64 = parts.size.into_iter().map(u64::from).sum();
    if sum > u64::from(size) {
        return refuse(
            FIELD,
            format!("{sum} bytes in all: buffer_size, which is {size}, at most"),
        );
    }
    Ok(())
}

fn classification(c: &Classification) -> Checked {
    up_to("default_priority", "", c.priorities.default_priority, 7)?;
    for (i, priority) in c.tags.priority.into_iter().enumerate() {
        let of = format!("PCP {}, DEI {}: ", i >> 1, i & 1);
        up_to("tag_to_priority", &of, priority, 7)?;
    }
    for (priority, pcp) in c.tags.pcp.into_iter().enumerate() {
        up_to("priority_to_pcp", &format!("priority {priority}: "), pcp, 7)?;
    }
    for (socket, priority) in c.tags.by_socket.into_iter().flatten().enumerate() {
        let of = format!("socket priority {socket}: ");
        up_to("skprio_to_priority", &of, priority, 7)?;
    }
    for (dscp, priority) in c.dscp_to_priority.into_iter().enumerate() {
        up_to("dscp_to_priority", &format!("DSCP {dscp}: "), priority, 7)?;
    }
    const FIELD: &str = "policies";
    let policies = &c.policies;
    if policies.len() > POLICIES_MAX {
        let n = policies.len();
        return refuse(
            FIELD,
            format!("{n} policies; an adapter has at most {POLICIES_MAX}"),
        );
    }
    for (i, policy) in policies.iter().enumerate() {
        let name = policy.name.as_str();
        if name.is_empty() || name.len() > POLICY_NAME_MAX || name.chars().any(char::is_control) {
            let problem =
                format!("{name:?} is no name of a policy: 1 to {POLICY_NAME_MAX} bytes of text are allowed");
            return refuse(FIELD, problem);
        }
        let wrong = |problem: &str| refuse(FIELD, format!("{name:?}: {problem}"));
        let before = policies.get(..i).unwrap_or_default();
        if before.iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
            return wrong("the name is taken by another policy");
        }
        if policy.matches == Match::Default && before.iter().any(|other| other.matches == Match::Default) {
            return wrong("there is a default policy already: one is allowed");
        }
        if let Match::DestinationPorts {
            protocol,
            first,
            last,
        } = policy.matches
        {
            if ![0, 6, 17].contains(&protocol) {
                return wrong(&format!(
                    "protocol {protocol}: 6 (TCP), 17 (UDP) and 0 (both) are allowed"
                ));
            }
            if first > last {
                return wrong(&format!("ports {first} to {last}: the first is above the last"));
            }
        }
        if (policy.priority, policy.dscp) == (None, None) {
            return wrong("it does nothing: a priority, a DSCP, or both are needed");
        }
        up_to(
            FIELD,
            &format!("{name:?}: priority "),
            policy.priority.unwrap_or(0),
            7,
        )?;
        up_to(FIELD, &format!("{name:?}: DSCP "), policy.dscp.unwrap_or(0), 63)?;
    }
    Ok(())
}

fn guard(g: Guard) -> Checked {
    let (least, most) = (*Guard::WATERMARK.start(), *Guard::WATERMARK.end());
    let (critical, minor) = (g.critical_ms, g.minor_ms);
    if critical != 0 && !(least..=most).contains(&critical) {
        let problem = format!("{critical} is out of range: 0 (never), or {least} to {most} ms");
        return refuse("storm_critical_ms", problem);
    }
    let most = if critical == 0 { most } else { critical };
    if minor != 0 && !(least..=most).contains(&minor) {
        let problem = format!(
            "{minor} is out of range: 0 (never), or {least} to {most} ms: the critical watermark at most"
        );
        return refuse("storm_minor_ms", problem);
    }
    Ok(())
}

fn queue(q: &ScheduleQueue, link: u64) -> Checked {
    const QUEUE: &str = "schedule_queue";
    for (tc, (limit, guarantee)) in q.limit.into_iter().zip(q.guarantee).enumerate() {
        rate(QUEUE, &format!("maximum of traffic class {tc}: "), limit)?;
        rate(QUEUE, &format!("minimum of traffic class {tc}: "), guarantee)?;
        if limit != 0 && guarantee > limit {
            let problem = format!(
                "traffic class {tc}: the minimum, {guarantee} bit/s, is above the maximum, {limit} bit/s"
            );
            return refuse(QUEUE, problem);
        }
    }
    let sum: u64 = q.guarantee.into_iter().fold(0, u64::saturating_add);
    if link != 0 && sum > link {
        let problem = format!("the minima add up to {sum} bit/s, more than rate_bps, which is {link}");
        return refuse(QUEUE, problem);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::qos::{Capable, Curve, Policy, Red, Tpid};

    fn policy(name: &str, matches: Match, priority: Option<u8>, dscp: Option<u8>) -> Policy {
        Policy {
            name: name.into(),
            matches,
            priority,
            dscp,
        }
    }

    #[test]
    fn every_refusal_names_field_and_range() {
        type Change = fn(&mut PortQos);
        let wrong: [(&str, Change); 41] = [
            (
                "rate_bps: 999 is out of range: 0 (no limit), or 1000 to 1000000000000 bit/s",
                |q| q.rate = 999,
            ),
            ("rate_bps: 1000000000001 is out", |q| q.rate = 1_000_000_000_001),
            ("default_priority: 8 is out of range: 0 to 7", |q| {
                q.classification.priorities.default_priority = 8
            }),
            ("dscp_to_priority: DSCP 26: 9 is out of range: 0 to 7", |q| {
                q.classification.dscp_to_priority[26] = 9
            }),
            ("priority_to_tc: priority 3: 8 is out of range: 0 to 7", |q| {
                q.classes.of_priority[3] = 8
            }),
            (
                "tc_bandwidth_percent: traffic class 2 has 50 %, and its algorithm is not ETS: 0",
                |q| q.classes.share[2] = 50,
            ),
            (
                "tc_bandwidth_percent: the shares of all ETS classes add up to 110 %: 100 is allowed",
                |q| {
                    q.classes.tsa = [Tsa::Ets; 8];
                    q.classes.share = [50, 50, 10, 0, 0, 0, 0, 0];
                },
            ),
            (
                "tc_bandwidth_percent: the shares of all ETS classes add up to 101 %",
                |q| {
                    q.classes.tsa[2] = Tsa::Ets;
                    q.classes.share[2] = 101;
                },
            ),
            (
                "tc_bandwidth_percent: the shares of all ETS classes add up to 0 %",
                |q| q.classes.tsa[0] = Tsa::Ets,
            ),
            (
                "tc_rate_limit_bps: traffic class 7: 5 is out of range: 0 (no limit), or 1000 to",
                |q| q.classes.limit[7] = 5,
            ),
            ("buffer_size: 1 is out of range: 65536 to 268435456 bytes", |q| {
                q.buffer.size = 1
            }),
            ("buffer_size: 4294967295 is out", |q| q.buffer.size = u32::MAX),
            (
                "buffer_xoff: 1 is out of range: 2048 to 4194304 (buffer_size) bytes",
                |q| q.buffer.xoff = 1,
            ),
            (
                "buffer_xoff: 262144 is out of range: 2048 to 65536 (buffer_size)",
                |q| q.buffer.size = 65_536,
            ),
            (
                "buffer_xon: 262144 is not below buffer_xoff, which is 262144",
                |q| q.buffer.xon = q.buffer.xoff,
            ),
            (
                "buffer_headroom: 4294967295 is out of range: 0 to 67108864 bytes",
                |q| q.buffer.headroom = u32::MAX,
            ),
            (
                "storm_minor_ms: 79 is out of range: 0 (never), or 80 to 8000 ms",
                |q| q.guard.minor_ms = 79,
            ),
            (
                "storm_minor_ms: 8001 is out of range: 0 (never), or 80 to 8000 ms",
                |q| {
                    q.guard = Guard {
                        minor_ms: 8001,
                        critical_ms: 0,
                    };
                },
            ),
            (
                "storm_critical_ms: 8001 is out of range: 0 (never), or 80 to 8000 ms",
                |q| q.guard.critical_ms = 8001,
            ),
            ("storm_critical_ms: 79 is out of range", |q| {
                q.guard.critical_ms = 79
            }),
            (
                "storm_minor_ms: 6800 is out of range: 0 (never), or 80 to 100 ms: the critical watermark at most",
                |q| q.guard.critical_ms = 100,
            ),
            ("hol_lifetime: 21 is out of range: 0 to 20", |q| {
                q.lifetimes.limit = 21
            }),
            ("hol_stall_count: 8 is out of range: 0 to 7", |q| {
                q.lifetimes.stall_count = 8
            }),
            (
                "ecn: traffic class 5 has min_bytes 200001; allowed: at most max_bytes (200000)",
                |q| (q.ecn[5].green.kmin, q.ecn[5].green.kmax) = (200_001, 200_000),
            ),
            ("ecn: traffic class 1 has max_bytes 4294967295", |q| {
                q.ecn[1].green.kmax = u32::MAX
            }),
            (
                "ecn: traffic class 0 has max_probability_ppm 1000001; allowed: at most 1000000",
                |q| q.ecn[0].green.pmax = 1_000_001,
            ),
            (
                "ecn: traffic class 3 has red.max_bytes 101; allowed: at most 100 per cent",
                |q| {
                    q.ecn[3] = Red {
                        percent: true,
                        green: Curve {
                            kmin: 0,
                            kmax: 100,
                            pmax: 0,
                        },
                        red: Some(Curve {
                            kmin: 0,
                            kmax: 101,
                            pmax: 0,
                        }),
                        ..Red::default()
                    };
                },
            ),
            (
                "ecn: traffic class 0 has average_weight 16; allowed: at most 15",
                |q| q.ecn[0].average = 16,
            ),
            ("tag_to_priority: PCP 3, DEI 1: 8 is out of range: 0 to 7", |q| {
                q.classification.tags.priority[7] = 8
            }),
            ("priority_to_pcp: priority 2: 8 is out of range: 0 to 7", |q| {
                q.classification.tags.pcp[2] = 8
            }),
            ("tpid: 0x0800 is no TPID: 0x0600 to 0xffff are allowed", |q| {
                q.tpid = Tpid(0x0800)
            }),
            ("buffer_beta_percent: 0 is out of range: 1 to 6400", |q| {
                q.buffer.beta = 0
            }),
            (
                "receive_buffers: priority 7: buffer 1 has 0 bytes: 2048 are needed",
                |q| {
                    q.buffer.parts = Some(BufferParts {
                        size: [1 << 20, 0, 0, 0, 0, 0, 0, 0],
                        of_priority: [0, 0, 0, 0, 0, 0, 0, 1],
                    });
                },
            ),
            (
                "receive_buffers: 8388608 bytes in all: buffer_size, which is 4194304, at most",
                |q| {
                    q.buffer.parts = Some(BufferParts {
                        size: [1 << 20; 8],
                        of_priority: [0; 8],
                    });
                },
            ),
            ("ecn: traffic class 2 drops packets that can be", |q| {
                q.ecn[2].capable = Capable::Drop
            }),
            (
                "schedule_queue: maximum of traffic class 0: 1 is out of range",
                |q| {
                    q.queue = Some(ScheduleQueue {
                        limit: [1; 8],
                        guarantee: [0; 8],
                    });
                },
            ),
            (
                "schedule_queue: minimum of traffic class 0: 1 is out of range",
                |q| {
                    q.queue = Some(ScheduleQueue {
                        limit: [0; 8],
                        guarantee: [1; 8],
                    });
                },
            ),
            (
                "schedule_queue: traffic class 0: the minimum, 2000000 bit/s, is above the maximum, 1000000 bit/s",
                |q| {
                    q.queue = Some(ScheduleQueue {
                        limit: [1_000_000; 8],
                        guarantee: [2_000_000; 8],
                    });
                },
            ),
            (
                "schedule_queue: the minima add up to 1600000000 bit/s, more than rate_bps, which is 1000000000",
                |q| {
                    q.rate = 1_000_000_000;
                    q.queue = Some(ScheduleQueue {
                        limit: [0; 8],
                        guarantee: [200_000_000; 8],
                    });
                },
            ),
            ("policies: 65 policies; an adapter has at most 64", |q| {
                q.classification.policies = (0..65)
                    .map(|i| policy(&i.to_string(), Match::Tcp, Some(1), None))
                    .collect();
            }),
            (
                "policies: \"p\": it does nothing: a priority, a DSCP, or both are needed",
                |q| q.classification.policies = vec![policy("p", Match::Tcp, None, None)],
            ),
        ];
        for (text, change) in wrong {
            let mut q = PortQos::default();
            assert_eq!(q.check(), Ok(()));
            change(&mut q);
            let error = q.check().expect_err(text).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn what_the_documents_show_is_right() {
        let mut q = PortQos::default();
        q.classes.tsa = [Tsa::Ets; 8];
        for shares in [[0, 0, 50, 50, 0, 0, 0, 0], [0, 0, 0, 16, 0, 80, 0, 0]] {
            q.classes.share = shares;
            assert_eq!(q.check(), Ok(()), "{shares:?}");
        }
        for (minor_ms, critical_ms) in [
            (0, 0),
            (80, 80),
            (80, 8000),
            (0, 100),
            (0, 8000),
            (6800, 0),
            (8000, 0),
            (6800, 8000),
        ] {
            q.guard = Guard {
                minor_ms,
                critical_ms,
            };
            assert_eq!(q.check(), Ok(()));
        }
    }

    #[test]
    fn policies_are_checked() {
        let ports = |protocol, first, last| Match::DestinationPorts {
            protocol,
            first,
            last,
        };
        let good = vec![
            policy("DEFAULT", Match::Default, Some(3), None),
            policy("TCP1", ports(6, 31_000, 31_999), Some(0), Some(16)),
        ];
        let mut q = PortQos::default();
        q.classification.policies = good.clone();
        assert_eq!(q.check(), Ok(()));
        let long: Box<str> = "x".repeat(65).into();
        for (bad, text) in [
            (
                policy("", Match::Tcp, Some(1), None),
                "\"\" is no name of a policy: 1 to 64 bytes",
            ),
            (policy(&long, Match::Tcp, Some(1), None), "is no name of a policy"),
            (
                policy("a\tb", Match::Tcp, Some(1), None),
                "is no name of a policy",
            ),
            (
                policy("TCP1", Match::Tcp, Some(1), None),
                "\"TCP1\": the name is taken",
            ),
            (
                policy("tcp1", Match::Tcp, Some(1), None),
                "\"tcp1\": the name is taken",
            ),
            (
                policy("x", Match::Tcp, Some(8), None),
                "\"x\": priority 8 is out of range: 0 to 7",
            ),
            (
                policy("x", Match::Tcp, None, Some(64)),
                "\"x\": DSCP 64 is out of range: 0 to 63",
            ),
            (policy("x", Match::Tcp, None, None), "does nothing"),
            (
                policy("x", ports(6, 2, 1), Some(1), None),
                "ports 2 to 1: the first is above the last",
            ),
            (policy("x", ports(7, 1, 2), Some(1), None), "protocol 7: 6 (TCP)"),
            (
                policy("x", Match::Default, Some(1), None),
                "a default policy already",
            ),
        ] {
            q.classification.policies = good.iter().cloned().chain([bad]).collect::<Vec<_>>();
            let error = q.check().expect_err(text).to_string();
            assert!(error.starts_with("policies: ") && error.contains(text), "{error}");
        }
    }

    /// By hand: 10 Gbit/s, 100 m, 1500 bytes: 3 x 1542 + 84 + 60 x 64 + 1250 = 9800 bytes.
    #[test]
    fn headroom_of_known_links() {
        for (rate, metres, mtu, kib) in [
            (1_000_000_000, 10, 1500, 9),
            (10_000_000_000, 100, 1500, 10),
            (10_000_000_000, 100, 9216, 33),
            (40_000_000_000, 7, 1500, 13),
            (100_000_000_000, 100, 9216, 65),
            (0, 100, 9216, 65),
        ] {
            assert_eq!(
                Buffer::headroom_for(rate, metres, mtu),
                kib << 10,
                "{rate} {metres} {mtu}"
            );
        }
    }
}
