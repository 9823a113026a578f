//! What a configuration of a port must fulfil. Rules that need to know more than the port (a schedule queue has limits for
//! all supported classes or for none) are the NIC's. The fields have the names that the control plane gives them.

use alloc::format;
use alloc::string::String;

use super::red::MILLION;
use super::{Capable, Lifetimes, Match, NotCapable, PRIORITIES, PortQos, QosError, Tsa};

/// Least rate, in bit/s: at it a full-size frame takes 12 s.
const RATE_MIN: u64 = 1_000;
/// Most, in bit/s.
const RATE_MAX: u64 = 1_000_000_000_000;
/// Milliseconds of a watermark. Register PFCC and the PRM say 80; `rdma-notes-zh` section 9 says 100 for the Linux driver's
/// file, which stands for the same register: the wider one holds.
const WATERMARK: core::ops::RangeInclusive<u32> = 80..=8000;
/// Most bytes of a buffer.
const BUFFER_MAX: u32 = 256 << 20;
/// Most bytes of headroom.
const HEADROOM_MAX: u32 = 64 << 20;
/// Least bytes at which a source is told to wait: a full-size frame.
const XOFF_MIN: u32 = 2048;

fn err(field: &'static str, problem: String) -> QosError {
    QosError { field, problem }
}

/// A rate that is 0 or within the limits.
fn rate(field: &'static str, what: &str, value: u64) -> Result<(), QosError> {
    if value != 0 && !(RATE_MIN..=RATE_MAX).contains(&value) {
        return Err(err(
            field,
            format!("{what}{value} bit/s; allowed: 0 (none), or {RATE_MIN} to {RATE_MAX}"),
        ));
    }
    Ok(())
}

/// Every element is at most `max`.
fn at_most(field: &'static str, index: &str, values: &[u8], max: u8) -> Result<(), QosError> {
    match values.iter().enumerate().find(|(_, v)| **v > max) {
        Some((i, v)) => Err(err(field, format!("{index} {i} has {v}; allowed: 0 to {max}"))),
        None => Ok(()),
    }
}

pub(super) fn check(qos: &PortQos) -> Result<(), QosError> {
    rate("rate_bps", "", qos.rate)?;
    classification(qos)?;
    classes(qos)?;
    buffer(qos)?;
    guard(qos)?;
    lifetimes(qos.lifetimes)?;
    ecn(qos)?;
    queue(qos)
}

fn classification(qos: &PortQos) -> Result<(), QosError> {
    let c = &qos.classification;
    at_most("default_priority", "value", &[c.default_priority], 7)?;
    at_most("dscp_to_priority", "DSCP", &c.dscp_to_priority, 7)?;
    for (i, policy) in c.policies.iter().enumerate() {
        let name = &policy.name;
        if name.is_empty() {
            return Err(err("policies", format!("policy {i} has no name")));
        }
        if c.policies[..i].iter().any(|p| p.name == *name) {
            return Err(err("policies", format!("\"{name}\" is there twice")));
        }
        if let Some(p) = policy.priority.filter(|p| *p > 7) {
            return Err(err(
                "policies",
                format!("\"{name}\" has priority {p}; allowed: 0 to 7"),
            ));
        }
        if let Some(d) = policy.dscp.filter(|d| *d > 63) {
            return Err(err(
                "policies",
                format!("\"{name}\" has DSCP {d}; allowed: 0 to 63"),
            ));
        }
        if policy.priority.is_none() && policy.dscp.is_none() {
            return Err(err(
                "policies",
                format!("\"{name}\" does nothing: it needs a priority or a DSCP"),
            ));
        }
        if let Match::DestinationPorts {
            protocol,
            first,
            last,
        } = policy.matches
        {
            if first > last {
                return Err(err(
                    "policies",
                    format!("\"{name}\" has ports {first} to {last}: none"),
                ));
            }
            if ![0, 6, 17].contains(&protocol) {
                return Err(err(
                    "policies",
                    format!(
                        "\"{name}\" has ports of protocol {protocol}; allowed: 6 (TCP), 17 (UDP), 0 (both)"
                    ),
                ));
            }
        }
    }
    let defaults = c.policies.iter().filter(|p| p.matches == Match::Default);
    if defaults.count() > 1 {
        return Err(err("policies", String::from("more than one is the default")));
    }
    Ok(())
}

fn classes(qos: &PortQos) -> Result<(), QosError> {
    let c = &qos.classes;
    at_most("priority_to_tc", "priority", &c.of_priority, 7)?;
    at_most("tc_bandwidth_percent", "traffic class", &c.share, 100)?;
    for (tc, share) in c.share.into_iter().enumerate() {
        if share != 0 && c.tsa[tc] != Tsa::Ets {
            return Err(err(
                "tc_bandwidth_percent",
                format!("traffic class {tc} has {share} %, but only classes with ets have a share"),
            ));
        }
    }
    let sum: u32 = c.share.into_iter().map(u32::from).sum();
    if sum > 100 {
        return Err(err(
            "tc_bandwidth_percent",
            format!("the shares of the ets classes add up to {sum} %; allowed: at most 100"),
        ));
    }
    for (tc, limit) in c.limit.into_iter().enumerate() {
        rate("tc_rate_limit_bps", &format!("traffic class {tc} has "), limit)?;
    }
    Ok(())
}

fn buffer(qos: &PortQos) -> Result<(), QosError> {
    let b = &qos.buffer;
    if b.size > BUFFER_MAX {
        return Err(err(
            "buffer_size",
            format!("{} bytes; allowed: at most {BUFFER_MAX}", b.size),
        ));
    }
    if b.xoff < XOFF_MIN || b.xoff > b.size {
        return Err(err(
            "buffer_xoff",
            format!(
                "{} bytes; allowed: {XOFF_MIN} to the buffer's size ({})",
                b.xoff, b.size
            ),
        ));
    }
    if b.xon >= b.xoff {
        return Err(err(
            "buffer_xon",
            format!("{} bytes; allowed: less than buffer_xoff ({})", b.xon, b.xoff),
        ));
    }
    if b.headroom > HEADROOM_MAX {
        return Err(err(
            "buffer_headroom",
            format!("{} bytes; allowed: at most {HEADROOM_MAX}", b.headroom),
        ));
    }
    Ok(())
}

fn guard(qos: &PortQos) -> Result<(), QosError> {
    let g = qos.guard;
    for (field, ms) in [
        ("storm_minor_ms", g.minor_ms),
        ("storm_critical_ms", g.critical_ms),
    ] {
        if ms != 0 && !WATERMARK.contains(&ms) {
            let (least, most) = (WATERMARK.start(), WATERMARK.end());
            return Err(err(
                field,
                format!("{ms} ms; allowed: 0 (never), or {least} to {most}"),
            ));
        }
    }
    if g.critical_ms != 0 && g.minor_ms > g.critical_ms {
        return Err(err(
            "storm_minor_ms",
            format!(
                "{} ms; allowed: at most storm_critical_ms ({})",
                g.minor_ms, g.critical_ms
            ),
        ));
    }
    Ok(())
}

fn lifetimes(l: Lifetimes) -> Result<(), QosError> {
    at_most("hol_lifetime", "value", &[l.limit], 20)?;
    at_most("hol_stall_count", "value", &[l.stall_count], 7)
}

fn ecn(qos: &PortQos) -> Result<(), QosError> {
    for (tc, red) in qos.ecn.iter().enumerate() {
        if red.kmin > red.kmax {
            return Err(err(
                "ecn",
                format!(
                    "traffic class {tc} has min_bytes {}; allowed: at most max_bytes ({})",
                    red.kmin, red.kmax
                ),
            ));
        }
        if red.kmax > BUFFER_MAX {
            return Err(err(
                "ecn",
                format!(
                    "traffic class {tc} has max_bytes {}; allowed: at most {BUFFER_MAX}",
                    red.kmax
                ),
            ));
        }
        if red.pmax > MILLION {
            return Err(err(
                "ecn",
                format!(
                    "traffic class {tc} has max_probability_ppm {}; allowed: at most {MILLION}",
                    red.pmax
                ),
            ));
        }
        if red.capable == Capable::Drop && red.not_capable == NotCapable::Pass {
            return Err(err(
                "ecn",
                format!("traffic class {tc} drops packets that can be marked, but not those that cannot"),
            ));
        }
    }
    Ok(())
}

fn queue(qos: &PortQos) -> Result<(), QosError> {
    let Some(q) = &qos.queue else {
        return Ok(());
    };
    for tc in 0..PRIORITIES {
        let (limit, guarantee) = (q.limit[tc], q.guarantee[tc]);
        rate("schedule_queue", &format!("limit of traffic class {tc}: "), limit)?;
        rate(
            "schedule_queue",
            &format!("guarantee of traffic class {tc}: "),
            guarantee,
        )?;
        if limit != 0 && guarantee > limit {
            return Err(err(
                "schedule_queue",
                format!("traffic class {tc} is sure to get {guarantee} bit/s, but its limit is {limit}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::qos::{Buffer, Policy, ScheduleQueue};

    #[test]
    fn what_is_wrong_is_named() {
        type Change = fn(&mut PortQos);
        let wrong: [(&str, Change); 24] = [
            ("rate_bps: 999 bit/s", |q| q.rate = 999),
            ("default_priority: value 0 has 8", |q| {
                q.classification.default_priority = 8
            }),
            ("dscp_to_priority: DSCP 26 has 9", |q| {
                q.classification.dscp_to_priority[26] = 9
            }),
            ("priority_to_tc: priority 3 has 8", |q| {
                q.classes.of_priority[3] = 8
            }),
            ("tc_bandwidth_percent: traffic class 2 has 101", |q| {
                q.classes.share[2] = 101
            }),
            ("tc_bandwidth_percent: traffic class 2 has 50 %, but", |q| {
                q.classes.share[2] = 50
            }),
            (
                "tc_bandwidth_percent: the shares of the ets classes add up to 110 %",
                |q| {
                    q.classes.tsa = [Tsa::Ets; 8];
                    q.classes.share = [50, 50, 10, 0, 0, 0, 0, 0];
                },
            ),
            ("tc_rate_limit_bps: traffic class 7 has 5 bit/s", |q| {
                q.classes.limit[7] = 5
            }),
            ("buffer_size: ", |q| q.buffer.size = u32::MAX),
            ("buffer_xoff: 1 bytes; allowed: 2048 to", |q| q.buffer.xoff = 1),
            ("buffer_xoff: ", |q| q.buffer.size = 4096),
            (
                "buffer_xon: 262144 bytes; allowed: less than buffer_xoff (262144)",
                |q| q.buffer.xon = q.buffer.xoff,
            ),
            ("buffer_headroom: ", |q| q.buffer.headroom = u32::MAX),
            ("storm_minor_ms: 79 ms; allowed: 0 (never), or 80 to 8000", |q| {
                q.guard.minor_ms = 79
            }),
            ("storm_critical_ms: 8001 ms", |q| q.guard.critical_ms = 8001),
            (
                "storm_minor_ms: 6800 ms; allowed: at most storm_critical_ms (100)",
                |q| q.guard.critical_ms = 100,
            ),
            ("hol_lifetime: value 0 has 21; allowed: 0 to 20", |q| {
                q.lifetimes.limit = 21
            }),
            ("hol_stall_count: value 0 has 8", |q| q.lifetimes.stall_count = 8),
            (
                "ecn: traffic class 5 has min_bytes 200001; allowed: at most max_bytes (200000)",
                |q| (q.ecn[5].kmin, q.ecn[5].kmax) = (200_001, 200_000),
            ),
            ("ecn: traffic class 1 has max_bytes 4294967295", |q| {
                q.ecn[1].kmax = u32::MAX
            }),
            (
                "ecn: traffic class 0 has max_probability_ppm 1000001; allowed: at most 1000000",
                |q| q.ecn[0].pmax = 1_000_001,
            ),
            ("ecn: traffic class 2 drops packets that can be", |q| {
                q.ecn[2].capable = Capable::Drop
            }),
            ("schedule_queue: limit of traffic class 0: 1 bit/s", |q| {
                q.queue = Some(ScheduleQueue {
                    limit: [1; 8],
                    guarantee: [0; 8],
                });
            }),
            (
                "schedule_queue: traffic class 0 is sure to get 2000000 bit/s, but its limit is 1000000",
                |q| {
                    q.queue = Some(ScheduleQueue {
                        limit: [1_000_000; 8],
                        guarantee: [2_000_000; 8],
                    });
                },
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
        for shares in [[0, 0, 50, 50, 0, 0, 0, 0], [0, 0, 0, 16, 0, 80, 0, 0], [0; 8]] {
            q.classes.share = shares;
            assert_eq!(q.check(), Ok(()), "{shares:?}");
        }
        for (minor_ms, critical_ms) in [(0, 0), (80, 80), (80, 8000), (0, 100), (6800, 0), (6800, 8000)] {
            q.guard = crate::qos::Guard {
                minor_ms,
                critical_ms,
            };
            assert_eq!(q.check(), Ok(()));
        }
    }

    #[test]
    fn policies_are_checked() {
        let policy = |name: &str, matches, priority, dscp| Policy {
            name: name.into(),
            matches,
            priority,
            dscp,
        };
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
        for (bad, text) in [
            (policy("", Match::Tcp, Some(1), None), "policy 2 has no name"),
            (
                policy("TCP1", Match::Tcp, Some(1), None),
                "\"TCP1\" is there twice",
            ),
            (policy("x", Match::Tcp, Some(8), None), "priority 8"),
            (policy("x", Match::Tcp, None, Some(64)), "DSCP 64"),
            (policy("x", Match::Tcp, None, None), "does nothing"),
            (policy("x", ports(6, 2, 1), Some(1), None), "ports 2 to 1"),
            (policy("x", ports(7, 1, 2), Some(1), None), "protocol 7"),
            (
                policy("x", Match::Default, Some(1), None),
                "more than one is the default",
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
