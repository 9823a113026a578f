//! Flows: their lanes, and what is counted of them.

use std::collections::VecDeque;

use vnic_wire::psn::Psn;
use vnic_wire::roce::Path;
use vnic_wire::sack;

use super::host::End;
use super::outcome::FlowOutcome;
use super::routes::Routes;
use super::scenario::{Flow, Scenario};

/// One direction of a flow: requests, or what comes back.
#[derive(Debug)]
pub struct Lane {
    /// By way of a queue pair: UDP source port, and the first link after the sender's, in the list of all routes.
    pub ways: Vec<(u16, u32)>,
    /// Switches on each.
    pub switches: u8,
    /// What all packets have below the BTH, as the receiver sees it without a mark; of ordinary packets and of CNPs.
    pub paths: [Option<Box<Path>>; 2],
}

/// What is known of a flow under way.
#[derive(Debug, Default)]
pub struct Progress {
    /// Sender and receiver, while it is connected.
    pub ends: Option<(End, End)>,
    /// Work requests that are not complete.
    pub open: u32,
    /// Bytes that are not posted yet; none: without end.
    pub rest: Option<u64>,
    /// Something was posted.
    pub posted: bool,
    /// Key of the receiver's memory.
    pub key: u32,
    /// It is over, or stopped.
    pub over: bool,
    /// PSN that the receiver expects.
    expected: Psn,
    /// Payload of the packets that came, by the low bits of their PSN, where packets may land before others.
    came: Vec<u16>,
    /// One beyond the highest PSN that was sent.
    highest: Psn,
    /// PSNs that asked for an acknowledge, and when they were sent, in ps; nothing that was sent twice.
    asked: VecDeque<(Psn, u64)>,
    /// Bytes since the last sample.
    pub sampled: u64,
    /// What comes of it.
    pub outcome: FlowOutcome,
}

impl Progress {
    /// Nothing was posted yet.
    pub fn new(flow: &Flow) -> Progress {
        Progress {
            rest: flow.bytes,
            outcome: FlowOutcome {
                start: flow.start,
                ..FlowOutcome::default()
            },
            ..Progress::default()
        }
    }

    /// A request leaves.
    #[inline]
    pub fn leaves(&mut self, psn: Psn, asks: bool, now: u64) {
        if psn.before(self.highest) {
            self.outcome.retransmitted += 1;
            self.asked.clear();
            return;
        }
        self.highest = psn.next();
        if asks {
            self.asked.push_back((psn, now));
        }
    }

    /// A request is at its receiver.
    #[inline]
    pub fn arrives(&mut self, psn: Psn, payload: u16, measured: bool) {
        if psn != self.expected {
            return;
        }
        self.expected = psn.next();
        let payload = u64::from(payload);
        self.outcome.delivered += payload;
        self.sampled += payload;
        if measured {
            self.outcome.measured += payload;
        }
    }

    /// A request is at a receiver where packets land before others, which expects `expected` now.
    pub fn lands(&mut self, psn: Psn, payload: u16, expected: Psn, measured: bool) {
        const SPAN: usize = 2 * sack::SPAN as usize;
        let at = |psn: Psn| psn.value() as usize % SPAN;
        self.came.resize(SPAN, 0);
        // (What came before was as long.)
        self.came[at(psn)] = payload;
        while self.expected.before(expected) {
            let payload = self.came[at(self.expected)];
            self.arrives(self.expected, payload, measured);
        }
    }

    /// An acknowledge is at the sender.
    #[inline]
    pub fn acknowledged(&mut self, psn: Psn, now: u64, measured: bool) {
        while let Some((asked, since)) = self.asked.front().copied() {
            if psn.before(asked) {
                break;
            }
            self.asked.pop_front();
            if asked == psn && measured {
                let rtt = (now - since) / 1000;
                self.outcome.rtt_count += 1;
                self.outcome.rtt_sum += rtt;
                self.outcome.rtt_max = self.outcome.rtt_max.max(rtt);
            }
        }
    }
}

/// Bytes of a frame with FCS: RoCEv2 over IPv4.
pub fn frame_bytes(transport_headers: u64, payload: u64) -> u64 {
    14 + 20 + 8 + transport_headers + payload.next_multiple_of(4) + 4 + 4
}

/// Time that a flow takes alone, in ns: packets one behind the other at the speed of each link in turn, and the way back of
/// the acknowledge of the last one.
pub fn ideal(scenario: &Scenario, routes: &Routes, way: &[u32], back: &[u32], bytes: u64) -> u64 {
    let mtu = u64::from(scenario.mtu);
    let packets = bytes.div_ceil(mtu).max(1);
    let size = |n: u64| {
        let payload = if n + 1 == packets { bytes - n * mtu } else { mtu };
        frame_bytes(if n == 0 { 12 + 16 } else { 12 }, payload) + 20
    };
    let time = |way: u32, bytes: u64| (bytes * 8_000_000_000_000).div_ceil(routes.ways[way as usize].rate);
    // When each link has sent the packet before.
    let mut free = vec![0u64; way.len()];
    let mut pass = |wire: u64, skipped: u64| {
        let mut at = 0;
        for (i, link) in way.iter().enumerate() {
            at = at.max(free[i] + skipped) + time(*link, wire);
            free[i] = at;
            at += routes.ways[*link as usize].delay * 1000;
        }
        at
    };
    // Those in the middle are all alike: once the slowest link is the only one that counts, each takes as long as there.
    const LOOKED_AT: u64 = 64;
    let mut there = 0;
    let mut skipped = 0;
    let mut n = 0;
    while n < packets {
        there = pass(size(n), skipped);
        skipped = 0;
        n += 1;
        if n == LOOKED_AT && packets > LOOKED_AT + 1 {
            let slowest = way.iter().map(|link| time(*link, size(1))).max().unwrap_or(0);
            skipped = (packets - 1 - n) * slowest;
            n = packets - 1;
        }
    }
    let acknowledge = frame_bytes(12 + 4, 0) + 20;
    for link in back {
        there += time(*link, acknowledge) + routes.ways[*link as usize].delay * 1000;
    }
    let host = &scenario.host;
    let last = size(packets - 1) - 20;
    let worked = ((last + frame_bytes(12 + 4, 0)) * 8_000_000_000)
        .checked_div(host.receive_rate)
        .unwrap_or(0);
    there / 1000 + 3 * host.delay + worked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_order_counts_once() {
        let mut p = Progress::default();
        for (psn, payload) in [(0, 10), (2, 10), (1, 20), (1, 20), (2, 30)] {
            p.arrives(Psn::new(psn), payload, psn > 0);
        }
        assert_eq!((p.outcome.delivered, p.outcome.measured), (60, 50));
    }

    #[test]
    fn what_lands_before_others_counts_when_they_are_there() {
        let mut p = Progress::default();
        for (psn, payload, expected) in [(0, 10, 1), (2, 30, 1), (4, 50, 1), (1, 20, 3)] {
            p.lands(Psn::new(psn), payload, Psn::new(expected), true);
        }
        assert_eq!(p.outcome.delivered, 60);
        p.lands(Psn::new(3), 40, Psn::new(5), true);
        assert_eq!((p.outcome.delivered, p.outcome.measured), (150, 150));
    }

    #[test]
    fn round_trips_of_what_was_sent_once() {
        let mut p = Progress::default();
        for n in 0..4 {
            p.leaves(Psn::new(n), n % 2 == 1, u64::from(n) * 1_000_000);
        }
        p.acknowledged(Psn::new(0), 5_000_000, true);
        p.acknowledged(Psn::new(1), 6_000_000, true);
        assert_eq!((p.outcome.rtt_count, p.outcome.rtt_sum), (1, 5_000));
        // What was sent again says nothing.
        p.leaves(Psn::new(2), true, 7_000_000);
        p.acknowledged(Psn::new(3), 9_000_000, true);
        assert_eq!((p.outcome.rtt_count, p.outcome.retransmitted), (1, 1));
    }
}
