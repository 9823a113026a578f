//! What people see of a queue pair, as `rdma res show qp` and `rdma stat qp show` ask for it.

use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Network, Path};

use super::congestion::FlowStatus;
use super::types::{QpAttributes, QpInit, QpNumber, RateLimit};
use crate::congestion::zero_touch::WAYS_MAX;

/// Queue pairs with errors that a device names, those with the most.
pub const WORST: usize = 10;

/// Errors of one queue pair, by the names of the mlx5 driver's `hw_counters`. The device's [`Counters`](super::Counters) count the
/// same for all queue pairs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct QpErrors {
    /// Requests received after a gap in the sequence.
    pub out_of_sequence: u32,
    /// Requests received again.
    pub duplicate_request: u32,
    /// Messages that came while no receive was posted.
    pub out_of_buffer: u32,
    /// NAKs received for a gap: packets were sent again.
    pub packet_seq_err: u32,
    /// Gaps seen in responses: packets were sent again.
    pub implied_nak_seq_err: u32,
    /// Acknowledges that did not come in time: packets were sent again.
    pub local_ack_timeout_err: u32,
    /// RNR NAKs received: packets were sent again after a wait.
    pub rnr_nak_retry_err: u32,
}

impl QpErrors {
    /// Names and values of all errors.
    pub fn rows(&self) -> [(&'static str, u32); 7] {
        [
            ("out_of_sequence", self.out_of_sequence),
            ("duplicate_request", self.duplicate_request),
            ("out_of_buffer", self.out_of_buffer),
            ("packet_seq_err", self.packet_seq_err),
            ("implied_nak_seq_err", self.implied_nak_seq_err),
            ("local_ack_timeout_err", self.local_ack_timeout_err),
            ("rnr_nak_retry_err", self.rnr_nak_retry_err),
        ]
    }

    /// All errors together.
    pub fn sum(&self) -> u64 {
        self.rows().iter().map(|(_, value)| u64::from(*value)).sum()
    }
}

/// The send queue of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendStatus {
    /// Work requests that have not completed.
    pub posted: u32,
    /// Oldest PSN that is not acknowledged.
    pub oldest: Psn,
    /// One beyond the highest PSN that was sent; what is between the next PSN and this one is sent again.
    pub end: Psn,
    /// Packets that acknowledges are due for.
    pub in_flight: u32,
    /// Most packets that may be unacknowledged now.
    pub window: u32,
    /// Retries before the queue pair gives up.
    pub retries_left: u8,
    /// RNR retries before the queue pair gives up.
    pub rnr_retries_left: u8,
    /// Whether the peer said that it was not ready, and the queue pair waits.
    pub waits_for_receiver: bool,
    /// Requests that take a receive of the peer's and may be begun, if the peer says how many it has (IBTA 9.7.7.2).
    pub credits: Option<u32>,
    /// Its clocks.
    pub timers: TimerStatus,
}

/// Clocks that a queue pair waits by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimerStatus {
    /// The ACK timeout that its program has set; none: it waits for ever.
    pub timeout: Option<Duration>,
    /// Time of its ACK timer, which may be shorter; none: there is none.
    pub ack_timer: Option<Duration>,
    /// What is left of that; none: nothing is unacknowledged.
    pub ack_left: Option<Duration>,
    /// How long it still waits because its peer had no receive, or for a page.
    pub rnr_left: Option<Duration>,
    /// Round trips by which its ACK timer goes, smoothed; none: none was measured.
    pub smoothed: Option<Duration>,
}

/// The way of a connected queue pair's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStatus {
    /// RoCE version 1, 2 otherwise.
    pub v1: bool,
    /// GID that packets come from.
    pub source: Gid,
    /// GID that they go to.
    pub destination: Gid,
    /// Ethernet address that they come from.
    pub source_mac: MacAddr,
    /// Ethernet address that they go to.
    pub destination_mac: MacAddr,
    /// VLAN of their tag; 0: it has a priority only. None: they have no tag.
    pub vlan: Option<u16>,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Flow label of IPv6; of IPv4 0.
    pub flow_label: u32,
    /// UDP source port; none: RoCE version 1.
    pub source_port: Option<u16>,
}

impl From<&Path> for PathStatus {
    fn from(path: &Path) -> PathStatus {
        let network = &path.network;
        let v1 = matches!(network, Network::V1 { .. });
        PathStatus {
            v1,
            source: network.source(),
            destination: network.destination(),
            source_mac: path.eth.source,
            destination_mac: path.eth.destination,
            vlan: path.vlan.map(|tag| tag.tci.vid()),
            dscp: network.traffic_class() >> 2,
            hop_limit: network.hop_limit(),
            flow_label: network.flow_label(),
            source_port: (!v1).then_some(path.source_port),
        }
    }
}

/// A queue pair at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpStatus {
    /// Its number.
    pub number: QpNumber,
    /// What it was made with.
    pub init: QpInit,
    /// Its attributes, with the PSN that it expects and the PSN that it sends next.
    pub attributes: QpAttributes,
    /// Its send queue.
    pub sends: SendStatus,
    /// Receive work requests of its own queue, or taken from a shared one, that have not completed.
    pub receives: u32,
    /// P_Key of its packets, with the bit of full members; `None`: raw packets have none.
    pub pkey: Option<u16>,
    /// Priority of its packets; of datagrams: of the next one.
    pub priority: u8,
    /// Rate that its user has set.
    pub rate: RateLimit,
    /// Highest rate that the operator allows, in kbit/s; 0: any.
    pub ceiling: u32,
    /// Its flow, if congestion control limits it now.
    pub flow: Option<FlowStatus>,
    /// Its errors.
    pub errors: QpErrors,
    /// The way of its packets, if it is connected.
    pub path: Option<PathStatus>,
    /// The ways that its requests take, if they are several (multipath).
    pub ways: [Option<WayStatus>; WAYS_MAX as usize],
    /// The ways that its responses to READs take, if they are several.
    pub response_ways: [Option<WayStatus>; WAYS_MAX as usize],
}

/// One of several ways of a queue pair's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WayStatus {
    /// UDP source port.
    pub source_port: u16,
    /// Packets that took it and that the peer said nothing of.
    pub under_way: u32,
    /// Whether it is left out for a time, because nothing came by it.
    pub rests: bool,
}

/// Some of a device's queue pairs, in the order of their places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QpPage {
    /// The queue pairs.
    pub rows: Vec<QpStatus>,
    /// Place behind which there may be more; `None`: this was the last page.
    pub next: Option<u32>,
}

/// The queue pairs with the most errors: few, so that nobody has to look through all of them.
#[derive(Debug, Default)]
pub(super) struct Worst(Vec<(QpNumber, QpErrors)>);

impl Worst {
    /// A queue pair has one error more.
    #[cold]
    pub fn note(&mut self, qp: QpNumber, errors: QpErrors) {
        if let Some(known) = self.0.iter_mut().find(|(number, _)| *number == qp) {
            known.1 = errors;
        } else if self.0.len() < WORST {
            self.0.push((qp, errors));
        } else if let Some(least) = self.0.iter_mut().min_by_key(|(_, known)| known.sum())
            && least.1.sum() < errors.sum()
        {
            *least = (qp, errors);
        }
    }

    /// A queue pair is gone.
    pub fn forget(&mut self, qp: QpNumber) {
        self.0.retain(|(number, _)| *number != qp);
    }

    /// The queue pairs with the most errors first.
    pub fn list(&self) -> Vec<(QpNumber, QpErrors)> {
        let mut list = self.0.clone();
        list.sort_by_key(|(number, errors)| (core::cmp::Reverse(errors.sum()), *number));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(packet_seq_err: u32) -> QpErrors {
        QpErrors {
            packet_seq_err,
            ..QpErrors::default()
        }
    }

    #[test]
    fn the_worst_are_few_and_in_order() {
        let mut worst = Worst::default();
        for n in 1..=2 * WORST as u32 {
            (1..=n).for_each(|errors| worst.note(QpNumber(n), late(errors)));
        }
        let numbers = |worst: &Worst| worst.list().iter().map(|(qp, _)| qp.0).collect::<Vec<_>>();
        assert_eq!(numbers(&worst), (11..=20).rev().collect::<Vec<_>>());
        worst.forget(QpNumber(20));
        assert_eq!(numbers(&worst), (11..=19).rev().collect::<Vec<_>>());
        // There is room again, also for one with few.
        worst.note(QpNumber(1), late(2));
        assert_eq!(worst.list().last(), Some(&(QpNumber(1), late(2))));
    }
}
