//! A congestion control of one's own: `cargo run -p vnic-engine --example own_algorithm`.
//!
//! It is additive increase, multiplicative decrease on the round trip: a window grows by a packet in a round trip, and is halved
//! when a round trip is longer than it should be. Two of its flows share a link here, in a loop of a few lines; a device takes it by
//! `Congestion { control: Arc::new(Aimd { .. }), .. }`, and the simulator by `Control { algorithm: Arc::new(Aimd { .. }), .. }`.

#![allow(clippy::disallowed_macros, reason = "an example is a program: it prints")]

use std::time::Duration;

use vnic_engine::congestion::{Ack, Algorithm, CongestionControl, Limits, Loss, Needs, Start, UNLIMITED};
use vnic_wire::time::Instant;

/// The algorithm: what is the same for all flows.
#[derive(Debug, Clone)]
struct Aimd {
    /// A longer round trip is congestion.
    target: Duration,
}

impl CongestionControl for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn needs(&self) -> Needs {
        Needs {
            // It limits from the first packet on, and wants each packet acknowledged.
            from_start: true,
            ack_every: 1,
            ..Needs::default()
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        Box::new(Flow {
            target: self.target,
            mtu: flow.mtu.into(),
            window: flow.mtu.into(),
            halved: now,
        })
    }
}

/// The state of one flow.
#[derive(Debug)]
struct Flow {
    target: Duration,
    mtu: u64,
    /// Bytes that may be under way.
    window: u64,
    /// When it was halved last: once in a round trip is enough.
    halved: Instant,
}

impl Flow {
    fn halve(&mut self, now: Instant) {
        self.window = (self.window / 2).max(self.mtu);
        self.halved = now;
    }
}

impl Algorithm for Flow {
    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        let Some(rtt) = ack.rtt else {
            return;
        };
        if rtt <= self.target {
            self.window += self.mtu * u64::from(ack.bytes) / self.window;
        } else if now.since(self.halved) >= rtt {
            self.halve(now);
        }
    }

    fn on_loss(&mut self, now: Instant, _: Loss) {
        self.halve(now);
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: UNLIMITED,
            window: self.window,
        }
    }
}

fn main() {
    let aimd = Aimd {
        target: Duration::from_micros(20),
    };
    let shares = share_a_link(&aimd, [1, 30]);
    println!(
        "delivered in 20 ms, in Mbyte: {:.1} and {:.1}",
        shares[0], shares[1]
    );
    let (less, more) = (shares[0].min(shares[1]), shares[0].max(shares[1]));
    // 10 Gbit/s for 20 ms are 25 Mbyte.
    assert!(less + more > 22.0, "the link is used");
    assert!(less * 1.25 > more, "shares come near each other");
}

/// Two flows at a link of 10 Gbit/s with a queue before it and 10 us of way; one of them begins alone. Mbyte that each delivers in the
/// last 20 of 60 ms.
fn share_a_link(control: &dyn CongestionControl, start_ms: [u64; 2]) -> [f64; 2] {
    const PACKET: u64 = 1024;
    const SERIALIZATION: u64 = 819;
    const WAY: u64 = 10_000;
    let start = Start {
        line_rate: 10_000_000_000,
        mtu: PACKET as u32,
        wire: PACKET as u32,
        rate: None,
    };
    let mut flows = start_ms.map(|_| control.start(Instant(0), &start));
    let (mut sent, mut acked, mut measured) = ([0; 2], [0; 2], [0; 2]);
    // When the link is free; and acknowledges under way: when, whose, and when its packet was sent.
    let mut free = 0;
    let mut acks = std::collections::VecDeque::<(u64, usize, u64)>::new();
    for now in (0..60_000_000).step_by(100) {
        while let Some(&(at, of, sent_at)) = acks.front()
            && at <= now
        {
            acks.pop_front();
            acked[of] += PACKET;
            measured[of] += if now > 40_000_000 { PACKET } else { 0 };
            let ack = Ack {
                rtt: Some(Duration::from_nanos(at - sent_at)),
                acked: acked[of],
                sent: sent[of],
                bytes: PACKET as u32,
                hops: 1,
                marked: false,
                telemetry: None,
            };
            flows[of].on_ack(Instant(now), &ack);
        }
        for (of, flow) in flows.iter_mut().enumerate() {
            flow.advance(Instant(now), false);
            let begun = now >= start_ms[of] * 1_000_000;
            if begun && sent[of] - acked[of] + PACKET <= flow.limits().window {
                sent[of] += PACKET;
                flow.on_sent(Instant(now), PACKET as u32);
                free = now.max(free) + SERIALIZATION;
                acks.push_back((free + WAY, of, now));
            }
        }
    }
    measured.map(|bytes| bytes as f64 / 1e6)
}

#[test]
fn it_runs() {
    main();
}
