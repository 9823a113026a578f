//! Messages of what belongs to one queue pair: the way of its packets, its clocks, what was counted of it.

use std::time::Duration;

use vnic_backend::counters::TimeHistogram;
use vnic_backend::{Cause, Passed, PathStatus, QpObservation, TimerStatus, WayStatus};
use vnic_control::v1;

use super::super::convert::gid_text;
use crate::same::same;
use crate::stored::values::duration;

same! { fn cause(Cause) -> v1::queue_pair_repeats::Cause { SequenceNak, ImpliedNak, Timeout, EarlyTimeout, ReceiverNotReady } }

/// Message of a path.
pub fn path(path: &PathStatus) -> v1::QueuePairPath {
    let version = match path.v1 {
        true => v1::gid::Version::RoceV1,
        false => v1::gid::Version::RoceV2,
    };
    v1::QueuePairPath {
        version: version.into(),
        source_gid: gid_text(path.source.0).0,
        destination_gid: gid_text(path.destination.0).0,
        source_mac: path.source_mac.to_string(),
        destination_mac: path.destination_mac.to_string(),
        vlan: path.vlan.map(u32::from),
        dscp: path.dscp.into(),
        hop_limit: path.hop_limit.into(),
        flow_label: path.flow_label,
        udp_source_port: path.source_port.map(u32::from),
    }
}

/// Messages of several ways.
pub fn ways(ways: &[Option<WayStatus>]) -> Vec<v1::QueuePairWay> {
    let message = |way: &WayStatus| v1::QueuePairWay {
        udp_source_port: way.source_port.into(),
        packets_under_way: way.under_way,
        resting: way.rests,
    };
    ways.iter().flatten().map(message).collect()
}

/// Message of clocks.
pub fn timers(timers: &TimerStatus) -> v1::QueuePairTimers {
    v1::QueuePairTimers {
        ack_timeout: timers.timeout.map(duration),
        ack_timer: timers.ack_timer.map(duration),
        ack_left: timers.ack_left.map(duration),
        rnr_left: timers.rnr_left.map(duration),
        smoothed: timers.smoothed.map(duration),
    }
}

/// Message of what was counted.
pub fn observation(seen: &QpObservation) -> v1::QueuePairObservation {
    let packets = |passed: Passed| {
        Some(v1::QueuePairPackets {
            packets: passed.packets,
            bytes: passed.bytes,
        })
    };
    let repeats = Cause::ALL
        .iter()
        .zip(&seen.repeats)
        .map(|(of, repeats)| v1::QueuePairRepeats {
            cause: cause(*of).into(),
            times: repeats.times,
            packets: repeats.packets,
        });
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let trips = &seen.trips;
    v1::QueuePairObservation {
        span: Some(duration(seen.span)),
        requests_sent: packets(seen.requests_sent),
        responses_sent: packets(seen.responses_sent),
        requests_received: packets(seen.requests_received),
        responses_received: packets(seen.responses_received),
        repeats: repeats.collect(),
        sent_again: seen.sent_again,
        marked: seen.marked,
        echoed: seen.echoed,
        cnps_sent: seen.cnps_sent,
        cnps_received: seen.cnps_received,
        round_trips: Some(v1::QueuePairRoundTrips {
            bounds_ns: TimeHistogram::bounds().collect(),
            counts: trips.values.buckets.clone(),
            sum_ns: trips.values.sum,
            least_ns: trips.least.map(ns),
            newest_ns: trips.newest.map(ns),
            smoothed_ns: trips.smoothed.map(ns),
        }),
    }
}
