//! `vnicctl qp show`: all of one queue pair at one time.

use std::time::Duration;

use vnic_control::v1;
use vnic_control::v1::queue_pair_repeats::Cause;

use super::super::counter::histogram::quantile;
use super::super::screen::plot::{self, Ink};
use super::super::text::{self, Facts};
use super::words::{address, errors, kind, owner, state};
use crate::check::qos::rate_text;
use crate::names;

/// Cells of the longest bar of a histogram on a page.
const BAR: usize = 40;

/// All of a queue pair, one fact a line, and the histogram of its round trips.
pub fn facts(pair: &v1::QueuePair) -> String {
    let (device, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
    let mut facts = Facts::default();
    text::facts! { facts;
        "adapter": device,
        "queue pair": format!("{} ({:#x})", pair.number, pair.number),
        "type": kind(pair),
        "state": state(pair),
        "owner": pair.owner.as_ref().map_or("nobody".to_owned(), owner),
    }
    if let Some(peer) = &pair.peer {
        text::facts! { facts;
            "peer": format!("{}, queue pair {}, at {}", address(peer), peer.queue_pair, peer.mac),
            "from GID": format!("index {}", peer.gid_index),
        }
    }
    if let Some(path) = &pair.path {
        add_path(&mut facts, path);
    }
    for (what, ways) in [("way", &pair.ways), ("way of responses", &pair.response_ways)] {
        for way in ways {
            let rests = if way.resting { ", rests" } else { "" };
            let under_way = way.packets_under_way;
            let port = way.udp_source_port;
            facts.add(what, format!("port {port}, {under_way} packets under way{rests}"));
        }
    }
    if let Some(pkey) = pair.pkey {
        let member = if pkey & 0x8000 == 0 { "limited" } else { "full" };
        text::facts! { facts; "P_Key": format!("{pkey:#06x}, {member} member"), }
    }
    text::facts! { facts; "path MTU": format!("{} bytes", pair.path_mtu), "priority": pair.priority, }
    if let Some(s) = &pair.sends {
        let again = match s.next_psn == s.end_psn {
            true => String::new(),
            false => format!(", up to {} for another time", s.end_psn),
        };
        let waits = if s.waits_for_receiver {
            "; the peer has no receive: it waits"
        } else {
            ""
        };
        let forever = if s.rnr_retries == 7 { " (for ever)" } else { "" };
        text::facts! { facts;
            "sends": format!("{} of {} posted", s.posted, s.limit),
            "send PSN": format!("{}{again}", s.next_psn),
            "oldest PSN not acknowledged": s.oldest_psn,
            "not acknowledged": format!("{} of {} packets", s.in_flight, s.window),
            "retries left": format!("{} of {}", s.retries_left, s.retries),
            "RNR retries left": format!("{} of {}{forever}{waits}", s.rnr_retries_left, s.rnr_retries),
            "credits": s.credits.map_or_else(String::new, |n| n.to_string()),
        }
        if let Some(timers) = &s.timers {
            add_timers(&mut facts, timers);
        }
    }
    let set = |bps: u64| if bps == 0 { String::new() } else { rate_text(bps) };
    text::facts! { facts;
        "receives": format!("{} of {} posted", pair.receives_posted, pair.receives_limit),
        "receive PSN": pair.expected_psn,
        "driver's limit": set(pair.driver_rate_bps),
        "operator's limit": set(pair.rate_bps),
    }
    if let Some(flow) = &pair.flow {
        let rate = flow.rate_bps.map_or("no rate".to_owned(), rate_text);
        let window = flow.window_bytes;
        let window = window.map_or("no window".to_owned(), |w| format!("window {}", text::bytes(w)));
        let notifications = flow.notifications;
        text::facts! { facts; "congestion control": format!("{rate}, {window}, {notifications} notifications"), }
    }
    for (name, number) in [
        ("protection domain", pair.pd),
        ("send CQ", pair.send_cq),
        ("receive CQ", pair.receive_cq),
        ("shared receive queue", pair.srq),
        ("XRC domain", pair.xrcd),
    ] {
        facts.add(name, number.map_or_else(String::new, |n| n.to_string()));
    }
    for (name, count) in errors(pair) {
        facts.add(name, count.to_string());
    }
    let mut histogram = Vec::new();
    if let Some(seen) = &pair.observation {
        add_observation(&mut facts, seen);
        let trips = seen.round_trips.clone().unwrap_or_default();
        histogram = bars(Ink::Ascii, &trips, BAR);
    }
    let mut text = facts.finish();
    for line in histogram {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Adds the way of its packets.
fn add_path(facts: &mut Facts, path: &v1::QueuePairPath) {
    let version = text::word(path.version().as_str_name(), "VERSION_");
    let label = match path.flow_label {
        0 => String::new(),
        label => format!(", flow label {label:#x}"),
    };
    text::facts! { facts;
        "path": format!("{version}, {} to {}", path.source_gid, path.destination_gid),
        "Ethernet addresses": format!("{} to {}", path.source_mac, path.destination_mac),
        "UDP source port": path.udp_source_port.map_or_else(String::new, |port| port.to_string()),
        "VLAN": path.vlan.map_or_else(String::new, |vlan| vlan.to_string()),
        "DSCP": format!("{}, hop limit {}{label}", path.dscp, path.hop_limit),
    }
}

/// A span of a message; of none `none`.
fn time_or(span: Option<prost_types::Duration>, none: &str) -> String {
    let span = span.and_then(|span| Duration::try_from(span).ok());
    span.map_or_else(|| none.to_owned(), |span| text::nanos(nanos(span)))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The ACK timer in words.
pub fn ack_timer(timers: &v1::QueuePairTimers) -> String {
    let left = match timers.ack_left {
        None => String::new(),
        left => format!(", {} left", time_or(left, "")),
    };
    let timeout = time_or(timers.ack_timeout, "");
    match timers.ack_timer {
        None => "none".to_owned(),
        timer => format!("{} of {timeout}{left}", time_or(timer, "")),
    }
}

/// Adds its clocks.
fn add_timers(facts: &mut Facts, timers: &v1::QueuePairTimers) {
    text::facts! { facts;
        "ACK timer": ack_timer(timers),
        "waits for receiver": time_or(timers.rnr_left, ""),
        "round trip of ACK timer": time_or(timers.smoothed, ""),
    }
}

/// Why packets were sent again, in words.
pub fn causes(seen: &v1::QueuePairObservation) -> String {
    let some = seen.repeats.iter().filter(|r| r.times > 0 || r.packets > 0);
    let words = some.map(|repeats| {
        let cause = match repeats.cause() {
            Cause::Unspecified => "",
            Cause::SequenceNak => "NAKs",
            Cause::ImpliedNak => "implied NAKs",
            Cause::Timeout => "timeouts",
            Cause::EarlyTimeout => "early timeouts",
            Cause::ReceiverNotReady => "RNR NAKs",
        };
        format!(
            "{} after {} {cause}",
            text::count(repeats.packets),
            text::count(repeats.times)
        )
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Round trips in words.
pub fn trips_text(trips: &v1::QueuePairRoundTrips) -> String {
    let count = trips.counts.iter().sum::<u64>();
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), text::nanos);
    let part = |part| time(quantile(&trips.bounds_ns, &trips.counts, part));
    match count {
        0 => "none was measured".to_owned(),
        _ => format!(
            "{} measured: least {}, median {}, 99 % {}, smoothed {}, newest {}",
            text::count(count),
            time(trips.least_ns),
            part(0.5),
            part(0.99),
            time(trips.smoothed_ns),
            time(trips.newest_ns)
        ),
    }
}

/// Adds what was counted of it.
fn add_observation(facts: &mut Facts, seen: &v1::QueuePairObservation) {
    let span = seen
        .span
        .and_then(|span| Duration::try_from(span).ok())
        .unwrap_or_default();
    if span.is_zero() {
        facts.add(
            "observed",
            "from now on: show it again within 10 s, or --watch it",
        );
        return;
    }
    let packets = |of: Option<v1::QueuePairPackets>| {
        let of = of.unwrap_or_default();
        format!("{} ({})", text::count(of.packets), text::bytes(of.bytes))
    };
    let again = match causes(seen) {
        none if none.is_empty() => text::count(seen.sent_again),
        causes => format!("{}: {causes}", text::count(seen.sent_again)),
    };
    text::facts! { facts;
        "observed for": text::nanos(nanos(span)),
        "requests sent": packets(seen.requests_sent),
        "responses sent": packets(seen.responses_sent),
        "requests received": packets(seen.requests_received),
        "responses received": packets(seen.responses_received),
        "packets sent again": again,
        "marked packets received": text::count(seen.marked),
        "BECNs received": text::count(seen.echoed),
        "CNPs": format!("{} sent, {} received", text::count(seen.cnps_sent), text::count(seen.cnps_received)),
        "round trips": trips_text(&seen.round_trips.clone().unwrap_or_default()),
    }
}

/// Lines of a histogram, from the first bucket that is not empty to the last one. The longest bar has `width` cells.
pub fn bars(ink: Ink, trips: &v1::QueuePairRoundTrips, width: usize) -> Vec<String> {
    let all: u64 = trips.counts.iter().sum();
    let most = trips.counts.iter().copied().max().unwrap_or(0);
    let some = |n: &u64| *n > 0;
    let (Some(first), Some(last)) = (
        trips.counts.iter().position(some),
        trips.counts.iter().rposition(some),
    ) else {
        return Vec::new();
    };
    let label = |i: usize| {
        let bound = |i: usize| trips.bounds_ns.get(i).copied().map(text::nanos);
        match (i.checked_sub(1).and_then(bound), bound(i)) {
            (Some(from), Some(to)) => format!("{from} to {to}"),
            (None, Some(to)) => format!("up to {to}"),
            (Some(from), None) => format!("over {from}"),
            (None, None) => String::new(),
        }
    };
    let line = |i: usize| {
        let n = trips.counts.get(i).copied().unwrap_or(0);
        let bar = plot::bar(ink, n, most, width);
        let percent = text::percent(n, all - n);
        let text = format!(
            "{:>18}  {bar:<width$}  {:>6} {percent:>3} %",
            label(i),
            text::count(n)
        );
        text
    };
    (first..=last).map(line).collect()
}
