//! Text of quality of service in the output format of mlnx_qos.

use std::fmt::Write as _;
use std::time::Duration;

use vnic_control::v1;
use vnic_control::v1::qos::{Algorithm, Trust};
use vnic_control::v1::qos_policy::Kind;

use super::super::text;
use crate::check::qos::message::{self, word};
use crate::check::qos::{LANE_MAX, rate_text};
use crate::names;

/// Fields from this number on have no place in that format and follow by name, where they are not as nobody has set them.
const BY_NAME: u32 = 32;

fn trust(qos: &v1::Qos) -> String {
    word(qos.trust().as_str_name(), "TRUST_")
}

fn tsa(algorithm: Algorithm) -> String {
    word(algorithm.as_str_name(), "ALGORITHM_")
}

fn of(name: &str) -> &str {
    names::last(name.trim_end_matches("/qos"))
}

/// Table of all adapters and ports.
pub fn table(all: &[v1::Qos]) -> String {
    text::table! { qos in all, "no adapters and no ports";
        let state = qos.state.clone().unwrap_or_default();
        "NAME": of(&qos.name),
        "TRUST": trust(qos),
        ">RATE": rate_text(qos.rate_bps),
        "PFC": set(&qos.pfc, "none"),
        "TSA": qos.tc_algorithm().map(tsa).collect::<Vec<_>>().join(","),
        ">QUEUED": text::bytes(state.queued_bytes.iter().sum()),
        "STATE": condition(&state),
    }
}

/// Numbers of the set flags.
fn set(flags: &[bool], none: &str) -> String {
    let set: Vec<String> = (0..8)
        .zip(flags)
        .filter(|(_, f)| **f)
        .map(|(i, _): (usize, _)| i.to_string())
        .collect();
    if set.is_empty() {
        return none.to_owned();
    }
    set.join(",")
}

fn condition(state: &v1::QosState) -> String {
    let mut said = Vec::new();
    if state.storm_prevention {
        said.push("storm prevention".to_owned());
    }
    for (what, flags) in [
        ("pausing", &state.pausing),
        ("paused", &state.paused),
        ("stalled", &state.stalled),
    ] {
        if flags.contains(&true) {
            said.push(format!("{what} {}", set(flags, "")));
        }
    }
    if said.is_empty() {
        return "flowing".to_owned();
    }
    said.join(", ")
}

/// Line of a table with a column for each of 0 to 7.
fn row<T: ToString>(name: &str, values: &[T]) -> String {
    let mut line = format!("\t{name:<12}");
    for value in values {
        let _ = write!(line, "{:<4}", value.to_string());
    }
    line.trim_end().to_owned() + "\n"
}

fn flags(values: &[bool]) -> Vec<u8> {
    values.iter().map(|b| u8::from(*b)).collect()
}

/// Text of one adapter or port.
pub fn text(qos: &v1::Qos) -> String {
    let now = qos.state.clone().unwrap_or_default();
    let mode = match &now.dcbx[..] {
        "" => "OS controlled",
        _ => "Firmware controlled",
    };
    let mut out = format!("DCBX mode: {mode}\n");
    let _ = writeln!(out, "Priority trust state: {}", trust(qos));
    if matches!(qos.trust(), Trust::Dscp | Trust::Both) {
        out.push_str("dscp2prio mapping:\n");
        for priority in 0..8 {
            let mut dscps: Vec<String> = (0..)
                .zip(&qos.dscp_to_priority)
                .filter(|(_, p)| **p == priority)
                .map(|(dscp, _): (u32, _)| format!("{dscp:02},"))
                .collect();
            dscps.reverse();
            for (i, some) in dscps.chunks(8).enumerate() {
                let dscps = some.concat();
                let _ = match i {
                    0 => writeln!(out, "\tprio:{priority} dscp:{dscps}"),
                    _ => writeln!(out, "\t            {dscps}"),
                };
            }
        }
    }
    let _ = writeln!(out, "default priority: {}", qos.default_priority);
    let _ = writeln!(
        out,
        "Receive buffer size (bytes): {}, xoff {}, xon {}, headroom {}",
        qos.buffer_size, qos.buffer_xoff, qos.buffer_xon, qos.buffer_headroom
    );
    let _ = writeln!(out, "Cable len: {}", qos.cable_length_m);
    out.push_str("PFC configuration:\n");
    out.push_str(&row("priority", &[0, 1, 2, 3, 4, 5, 6, 7]));
    out.push_str(&row("enabled", &flags(&qos.pfc)));
    // Each lossless priority has its own headroom.
    out.push_str(&row("buffer", &flags(&qos.pfc)));
    classes(qos, &mut out);
    guards(qos, &mut out);
    guest(qos, &mut out);
    let plain = v1::Qos {
        buffer_beta_percent: 100,
        tpid: 0x8100,
        ..v1::Qos::default()
    };
    for field in message::fields().iter().filter(|f| f.number() >= BY_NAME) {
        let text = message::text(field.name(), qos);
        if text != message::text(field.name(), &plain) {
            let _ = writeln!(out, "{text}");
        }
    }
    state(&now, &mut out);
    for warning in &qos.warnings {
        let _ = writeln!(out, "Note: {warning}");
    }
    out
}

fn classes(qos: &v1::Qos, out: &mut String) {
    let algorithms: Vec<Algorithm> = qos.tc_algorithm().collect();
    for (tc, algorithm) in (0u32..8).zip(algorithms) {
        let at = tc as usize;
        let limit = qos.tc_rate_limit_bps.get(at).copied().unwrap_or(0);
        let _ = write!(
            out,
            "tc: {tc} ratelimit: {}, tsa: {}",
            rate_text(limit),
            tsa(algorithm)
        );
        if algorithm == Algorithm::Ets {
            let share = qos.tc_bandwidth_percent.get(at).copied().unwrap_or(0);
            let _ = write!(out, ", bw: {share}%");
        }
        out.push('\n');
        if let Some(profile) = qos.ecn.get(at).filter(|p| p.ecn || p.wred) {
            let _ = writeln!(out, "\t ecn:  {}", profile_words(profile));
        }
        levels(qos, tc, out);
    }
    for lane in 8..=LANE_MAX {
        if qos
            .priority_to_tc
            .iter()
            .chain(&qos.upper_sl_to_tc)
            .any(|of| *of == lane)
        {
            let _ = writeln!(out, "lane: {lane}");
            levels(qos, lane, out);
        }
    }
    let _ = writeln!(out, "Link rate: {}", rate_text(qos.rate_bps));
}

/// Priorities and service levels of a traffic class or virtual lane.
fn levels(qos: &v1::Qos, lane: u32, out: &mut String) {
    let priorities = (0..).zip(&qos.priority_to_tc).map(|of| ("priority", of));
    let upper = (8..).zip(&qos.upper_sl_to_tc).map(|of| ("service level", of));
    for (what, (level, _)) in priorities.chain(upper).filter(|(_, (_, of))| **of == lane) {
        let _ = writeln!(out, "\t {what}:  {level}");
    }
}

/// Action of an ECN profile in words.
fn profile_words(profile: &v1::EcnProfile) -> String {
    let what = match (profile.ecn, profile.wred) {
        (true, false) => "marks",
        (true, true) => "marks, or drops (WRED)",
        _ => "drops (WRED)",
    };
    let unit = if profile.thresholds_in_percent {
        "%"
    } else {
        " bytes"
    };
    let curve = |min: u32, max: u32, ppm: u32| {
        let part = format!(".{:04}", ppm % 10_000);
        let part = part.trim_end_matches('0').trim_end_matches('.');
        format!("from {min} to {max}{unit} up to {}{part}%", ppm / 10_000)
    };
    let mut out = format!(
        "{what} {}",
        curve(profile.min_bytes, profile.max_bytes, profile.max_probability_ppm)
    );
    for (color, of) in [("yellow", &profile.yellow), ("red", &profile.red)] {
        if let Some(of) = of {
            let curve = curve(of.min_bytes, of.max_bytes, of.max_probability_ppm);
            let _ = write!(out, "; {color} {curve}");
        }
    }
    let at = if profile.at_enqueue { "enqueue" } else { "dequeue" };
    let _ = write!(out, ", beyond it all, at {at}");
    if profile.average_weight != 0 {
        let _ = write!(
            out,
            ", by the average (1/{})",
            1u32 << profile.average_weight.min(31)
        );
    }
    out
}

fn guards(qos: &v1::Qos, out: &mut String) {
    let pause = match (qos.pause_tx, qos.pause_rx) {
        (false, false) => "off",
        (true, false) => "sent",
        (false, true) => "obeyed",
        (true, true) => "sent and obeyed",
    };
    let idle = match (qos.pause_tx || qos.pause_rx) && qos.pfc.contains(&true) {
        true => " (without effect: priority flow control is on)",
        false => "",
    };
    let _ = writeln!(out, "Global pause: {pause}{idle}");
    let ms = |ms: u32| match ms {
        0 => "never".to_owned(),
        ms => format!("{ms} ms"),
    };
    let _ = writeln!(
        out,
        "Storm prevention: critical {}, minor {}",
        ms(qos.storm_critical_ms),
        ms(qos.storm_minor_ms)
    );
    let lifetime = match qos.hol_lifetime {
        20.. => "for ever".to_owned(),
        log => format!("{:.2?}", Duration::from_nanos(4096 << log)),
    };
    let _ = writeln!(
        out,
        "Head-of-queue lifetime: {lifetime}, stall count {}, traffic classes: {}",
        qos.hol_stall_count,
        set(&qos.hol_lifetime_classes, "none")
    );
}

/// Settings of a guest.
fn guest(qos: &v1::Qos, out: &mut String) {
    if !qos.name.starts_with(names::ADAPTERS) {
        return;
    }
    let class = match qos.forced_traffic_class {
        None => "of each queue pair".to_owned(),
        Some(class) => format!("{class} (DSCP {})", class >> 2),
    };
    let _ = writeln!(out, "RDMA traffic class: {class}");
    let queues = match qos.send_queue_per_priority {
        true => "one for each priority",
        false => "one",
    };
    let _ = writeln!(out, "Send queues: {queues}");
    if qos.untagged_to_lossless {
        out.push_str("Untagged packets: lossless\n");
    }
    if qos.congestion_monitoring {
        let _ = writeln!(
            out,
            "Congestion hint: {}, {}",
            word(qos.congestion_action().as_str_name(), "CONGESTION_ACTION_"),
            word(qos.congestion_mode().as_str_name(), "CONGESTION_MODE_")
        );
    }
    match &qos.schedule_queue {
        None => out.push_str("Schedule queue: none\n"),
        Some(queue) => {
            out.push_str("Schedule queue:\n");
            for (tc, (max, min)) in queue.max_bps.iter().zip(&queue.min_bps).enumerate() {
                let min = match min {
                    0 => "none".to_owned(),
                    min => rate_text(*min),
                };
                let _ = writeln!(out, "\ttc: {tc} max: {}, min: {min}", rate_text(*max));
            }
        }
    }
    if !qos.policies.is_empty() {
        out.push_str("Policies:\n");
        for line in policies(&qos.policies).lines() {
            let _ = writeln!(out, "\t{line}");
        }
    }
}

/// State of queues.
fn state(state: &v1::QosState, out: &mut String) {
    if !state.dcbx.is_empty() {
        let peers = match &state.dcbx_from_peer[..] {
            [] => String::new(),
            peers => format!(", whose peer's act in place of these: {}", peers.join(", ")),
        };
        let _ = writeln!(out, "DCBX: {}{peers}", state.dcbx);
    }
    if let Some(priority) = state.rdma_priority {
        let _ = writeln!(out, "RDMA priority by DCBX: {priority}");
    }
    let _ = writeln!(out, "State: {}", condition(state));
    let frames = state.queued_frames;
    let bytes: u64 = state.queued_bytes.iter().sum();
    let _ = writeln!(out, "\tqueued: {frames} frames, {bytes} bytes");
    for (what, by, bytes) in [
        ("queued", "tc", &state.queued_bytes),
        ("send queue", "priority", &state.send_queue_bytes),
    ] {
        for (i, bytes) in bytes.iter().enumerate().filter(|(_, b)| **b > 0) {
            let _ = writeln!(out, "\t{what}, {by} {i}: {bytes} bytes");
        }
    }
}

/// Rates of queue pairs.
pub fn rates(all: &[v1::QueuePairRate]) -> String {
    text::table! { rate in all, "no queue pair has a rate";
        ">QPN": rate.queue_pair,
        ">LIMIT": rate_text(rate.rate_bps),
        ">OF ITS DRIVER": rate_text(rate.driver_rate_bps),
    }
}

/// Table of policies.
pub fn policies(all: &[v1::QosPolicy]) -> String {
    let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    text::table! { policy in all, "no policies";
        "NAME": policy.name,
        "MATCH": matches(policy),
        ">PRIORITY": number(policy.priority),
        ">DSCP": number(policy.dscp),
    }
}

fn matches(policy: &v1::QosPolicy) -> String {
    let word = match policy.kind() {
        Kind::Unspecified => "",
        Kind::Default => "default",
        Kind::Tcp => "TCP",
        Kind::Udp => "UDP",
        Kind::Smb => "SMB",
        Kind::NetDirect => {
            return match policy.net_direct_port {
                None => "RDMA".to_owned(),
                Some(port) => format!("RDMA for {port}"),
            };
        }
        Kind::DestinationPorts => {
            let ports = policy.destination_ports.unwrap_or_default();
            let protocol = match ports.protocol {
                6 => "TCP",
                17 => "UDP",
                _ => "TCP and UDP",
            };
            return match ports.first == ports.last {
                true => format!("{protocol} to {}", ports.first),
                false => format!("{protocol} to {}-{}", ports.first, ports.last),
            };
        }
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_under_load_in_the_shape_of_mlnx_qos() {
        let (vendor, strict, ets) = (Algorithm::Vendor, Algorithm::Strict, Algorithm::Ets);
        let algorithms = [ets, ets, strict, vendor, vendor, vendor, vendor, vendor];
        let mut dscp_to_priority: Vec<u32> = (0..64).map(|d| d / 8).collect();
        dscp_to_priority[30] = 5;
        let three: Vec<bool> = (0..8).map(|p| p == 3).collect();
        let qos = v1::Qos {
            name: "ports/p0/qos".to_owned(),
            rate_bps: 10_000_000_000,
            trust: Trust::Dscp.into(),
            default_priority: 0,
            dscp_to_priority,
            priority_to_tc: vec![0, 0, 2, 3, 4, 5, 6, 7],
            tc_algorithm: algorithms.map(i32::from).to_vec(),
            tc_bandwidth_percent: vec![16, 80, 0, 0, 0, 0, 0, 0],
            tc_rate_limit_bps: vec![1_500_000_000, 0, 0, 0, 0, 0, 0, 0],
            pfc: three.clone(),
            pause_tx: true,
            buffer_size: 4_194_304,
            buffer_xoff: 262_144,
            buffer_xon: 196_608,
            buffer_headroom: 262_144,
            cable_length_m: 7,
            buffer_beta_percent: 100,
            tpid: 0x8100,
            hol_lifetime: 20,
            state: Some(v1::QosState {
                queued_bytes: vec![0, 3000, 0, 0, 0, 0, 0, 0],
                queued_frames: 2,
                pausing: three,
                storm_prevention: true,
                ..v1::QosState::default()
            }),
            warnings: vec!["tc_bandwidth_percent: the shares add up to 96 %".to_owned()],
            ..v1::Qos::default()
        };
        let expected = "\
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
	prio:0 dscp:07,06,05,04,03,02,01,00,
	prio:1 dscp:15,14,13,12,11,10,09,08,
	prio:2 dscp:23,22,21,20,19,18,17,16,
	prio:3 dscp:31,29,28,27,26,25,24,
	prio:4 dscp:39,38,37,36,35,34,33,32,
	prio:5 dscp:47,46,45,44,43,42,41,40,
	            30,
	prio:6 dscp:55,54,53,52,51,50,49,48,
	prio:7 dscp:63,62,61,60,59,58,57,56,
default priority: 0
Receive buffer size (bytes): 4194304, xoff 262144, xon 196608, headroom 262144
Cable len: 7
PFC configuration:
	priority    0   1   2   3   4   5   6   7
	enabled     0   0   0   1   0   0   0   0
	buffer      0   0   0   1   0   0   0   0
tc: 0 ratelimit: 1.5 Gbps, tsa: ets, bw: 16%
	 priority:  0
	 priority:  1
tc: 1 ratelimit: unlimited, tsa: ets, bw: 80%
tc: 2 ratelimit: unlimited, tsa: strict
	 priority:  2
tc: 3 ratelimit: unlimited, tsa: vendor
	 priority:  3
tc: 4 ratelimit: unlimited, tsa: vendor
	 priority:  4
tc: 5 ratelimit: unlimited, tsa: vendor
	 priority:  5
tc: 6 ratelimit: unlimited, tsa: vendor
	 priority:  6
tc: 7 ratelimit: unlimited, tsa: vendor
	 priority:  7
Link rate: 10 Gbps
Global pause: sent (without effect: priority flow control is on)
Storm prevention: critical never, minor never
Head-of-queue lifetime: for ever, stall count 0, traffic classes: none
State: storm prevention, pausing 3
	queued: 2 frames, 3000 bytes
	queued, tc 1: 3000 bytes
Note: tc_bandwidth_percent: the shares add up to 96 %
";
        assert_eq!(text(&qos), expected);
        let expected = "\
NAME  TRUST     RATE  PFC  TSA                                                  QUEUED  STATE
p0    dscp   10 Gbps  3    ets,ets,strict,vendor,vendor,vendor,vendor,vendor  2.93 KiB  storm prevention, pausing 3
";
        assert_eq!(table(std::slice::from_ref(&qos)), expected);
        // DCBX acts, and then its peer's flow control and classes do.
        let with = |peers: &[&str]| {
            let mut qos = qos.clone();
            if let Some(state) = &mut qos.state {
                state.dcbx = "cee".to_owned();
                state.dcbx_from_peer = peers.iter().map(|name| (*name).to_owned()).collect();
            }
            let text = text(&qos);
            let lines = text.lines().filter(|line| line.starts_with("DCBX"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(with(&[]), ["DCBX mode: Firmware controlled", "DCBX: cee"]);
        assert_eq!(
            with(&["ets", "pfc"])[1],
            "DCBX: cee, whose peer's act in place of these: ets, pfc"
        );
    }
}
