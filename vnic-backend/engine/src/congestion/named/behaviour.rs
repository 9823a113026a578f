//! Each parameter of each algorithm changes what flows do: the same events, another value, other limits.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::prelude::v1::*;

use core::time::Duration;

use vnic_wire::int::{Hop, Telemetry};
use vnic_wire::time::Instant;

use super::super::{Ack, Loss, Notification, Start};
use super::Named;

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

/// What a flow does in a life of quiet and busy times, as text.
fn life(named: &Named) -> String {
    let control = named.build();
    let mut text = format!("{:?}\n", control.needs());
    let line_rate = 25_000_000_000;
    for life in 0..6u64 {
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
            now += if rng.below(200) == 0 { 3_000_000 } else { passed };
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
            if level > 0 && rng.below(12) < level {
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
            text += &format!("{now} {} {} {}\n", limits.rate, limits.window, flow.is_released());
        }
    }
    text
}

#[test]
fn every_parameter_changes_what_flows_do() {
    for name in Named::names() {
        let named = Named::by_name(&name).unwrap();
        let before = life(&named);
        assert_eq!(before, life(&named), "{name}: the same twice");
        for parameter in named.parameters() {
            let key = parameter.name;
            let words = parameter
                .accepted
                .strip_prefix("one of ")
                .map(|w| w.split(", ").collect());
            let values = words.unwrap_or(vec![
                "on", "off", "0", "0.01", "0.1", "0.4", "0.9", "1", "2", "3", "20", "100", "900", "1000",
                "20k", "1M", "30M", "1G", "24G", "1us", "9us", "40us", "500us", "20ms",
            ]);
            let effect = values.iter().any(|value| {
                let mut changed = named.clone();
                changed.set(key, value).is_ok() && changed != named && life(&changed) != before
            });
            assert!(effect, "{name}: {key} changes nothing");
        }
    }
}
