//! Each parameter of each algorithm changes what flows do: the same events, another value, other limits.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::prelude::v1::*;

use core::time::Duration;

use vnic_wire::int::{Hop, Telemetry};
use vnic_wire::time::Instant;

use super::super::{Ack, Loss, Needs, Notification, Start};
use super::{Named, Parameter};

/// xorshift: enough to make events of.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A flow's life of quiet and busy times, in short.
fn life(named: &Named) -> (Needs, u64) {
    let control = named.build();
    let mut hash = 0u64;
    let line_rate = 25_000_000_000;
    for life in 0..3u64 {
        let mut rng = Rng(life * 2 + 1);
        let start = Start {
            line_rate,
            mtu: 1024,
            wire: 1108,
            rate: (life % 3 == 2).then_some(3_000_000_000),
        };
        let mut now = 1000;
        let mut flow = control.start(Instant(now), &start);
        let (mut sent, mut acked, mut port) = (0, 0, 0);
        for round in 0..1200u64 {
            // Times without congestion, with some, with much; and silence now and then.
            let level = (round / 150) % 4;
            let passed = 300 + rng.below(4_000) * (1 + level);
            now += match rng.below(300) {
                0 => 3_000_000,
                // (The slowest clocks are those of flows at their least rate.)
                1 => 40_000_000,
                _ => passed,
            };
            flow.advance(Instant(now), rng.below(30) == 0);
            let more = 1024 * rng.below(9);
            sent += more;
            (0..more / 1024).for_each(|_| flow.on_sent(Instant(now), 1024));
            port += passed * 3 * (level + 1) / 4;
            let mut telemetry = Telemetry::EMPTY;
            for switch in 1..3 {
                telemetry.push(
                    switch,
                    Hop::new(
                        now,
                        port / u64::from(switch),
                        rng.below(90_000) * level,
                        line_rate,
                    ),
                );
            }
            telemetry.endpoint = (rng.below(60_000) * level) as u32;
            // (Some congestion eases off slowly.)
            let rtt = match level {
                1 => 70_000 - round % 150 * 50,
                _ => 4_000 + rng.below(100_000) * level * level + 40_000 * level,
            };
            let bytes = (sent - acked).saturating_sub(rng.below(20) * 1024);
            acked += bytes;
            if bytes > 0 {
                flow.on_ack(
                    Instant(now),
                    &Ack {
                        rtt: Some(Duration::from_nanos(rtt)),
                        acked,
                        sent,
                        bytes: bytes as u32,
                        hops: 3,
                        marked: level > 1,
                        telemetry: Some(&telemetry),
                    },
                );
            }
            // (One life is quieter: its rates stay high.)
            if level > 0 && rng.below(if life == 1 { 400 } else { 12 }) < level {
                flow.on_notification(
                    Instant(now),
                    &Notification {
                        period: (level > 1).then(|| Duration::from_micros(60 * level)),
                    },
                );
            }
            match rng.below(150) {
                0 => flow.on_loss(Instant(now), Loss::OutOfSequence),
                1 => (0..5).for_each(|i| flow.on_loss(Instant(now + i), Loss::Timeout)),
                2 => flow.on_loss(Instant(now), Loss::NotReady),
                _ => {}
            }
            now += 10;
            flow.advance(Instant(now), false);
            let limits = flow.limits();
            for word in [now, limits.rate, limits.window, flow.is_released().into()] {
                hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            }
        }
    }
    (control.needs(), hash)
}

#[test]
fn every_parameter_changes_what_flows_do() {
    for name in Named::names() {
        let named = Named::by_name(&name).unwrap();
        let before = life(&named);
        assert_eq!(before, life(&named), "{name}: the same twice");
        // Some parameters act only while another one is not as this preset has it.
        let others = ["on", "off", "notification", "1024", "20k", "9us"]
            .iter()
            .flat_map(|value| {
                let all = named.parameters().into_iter();
                all.filter_map(|p| {
                    let mut other = named.clone();
                    other.set(&p.name, value).is_ok().then_some(other)
                })
            });
        let bases: Vec<Named> = core::iter::once(named.clone()).chain(others).collect();
        for parameter in named.parameters() {
            let effect = bases.iter().any(|base| acts(base, &parameter));
            assert!(effect, "{name}: {} changes nothing", parameter.name);
        }
    }
}

/// Another value of the parameter makes another life.
fn acts(base: &Named, parameter: &Parameter) -> bool {
    let before = life(base);
    let words = parameter.accepted.strip_prefix("one of ");
    let numbers = "on, off, 0, 0.01, 0.1, 0.4, 0.9, 1, 2, 3, 20, 100, 900, 1000, 20k, 1M, 30M, 1G, 24G, 1us, 9us, 40us, 500us, 20ms";
    words.unwrap_or(numbers).split(", ").any(|value| {
        let mut changed = base.clone();
        changed.set(&parameter.name, value).is_ok() && changed != *base && life(&changed) != before
    })
}
