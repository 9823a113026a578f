//! Thresholds of ECN and flow control: D6.

use fastrand::Rng;
use vnic_fabric::qos::red::MarkAt;

use super::*;
use crate::network::scenario::{Flow, SwitchSettings};

/// A switch: bytes of its buffer, ports, bytes that still come by a port and priority after it was told to stop.
const BUFFER: f64 = 12e6;
const PORTS: f64 = 32.0;
const FLIGHT: f64 = 22.4e3;
const BETA: f64 = 8.0;

/// What is left of the buffer for all priorities.
const FREE: f64 = BUFFER - 8.0 * PORTS * FLIGHT;

/// A fixed PFC threshold that never drops.
fn static_pfc() -> f64 {
    FREE / (8.0 * PORTS)
}

/// The ECN threshold that a fixed PFC threshold leaves.
fn static_ecn() -> f64 {
    static_pfc() / PORTS
}

/// The one that a dynamic threshold leaves.
fn dynamic_ecn() -> f64 {
    BETA * FREE / (8.0 * PORTS * (BETA + 1.0))
}

/// How many random traffic matrices are run.
const MATRICES: u64 = 6;

/// Anybody to anybody, with any priority, 32 hosts at 40 Gbit/s. Marks are made where the queue crosses the threshold.
fn matrix(seed: u64, switch: SwitchSettings, name: &str) -> Scenario {
    let hosts = PORTS as usize;
    let topology = Topology::star(hosts, 40 * GBIT, US);
    let mut rng = Rng::with_seed(seed);
    // From a few senders to all of them, so that some are incasts to few and others spread.
    let to = 1 << rng.u32(0..5);
    let flows = (0..rng.usize(32..200)).map(|_| {
        let from = rng.usize(to..hosts);
        Flow {
            priority: rng.u8(0..7),
            ..Flow::new(from, rng.usize(..to), rng.u64(..200 * US), None)
        }
    });
    Scenario {
        duration: 400 * US,
        seed,
        flows: flows.collect(),
        control: paper(40),
        switch,
        ..Scenario::new(format!("D6, {name}, matrix {seed}"), topology)
    }
}

/// Was nobody told to stop before a packet was marked?
fn marked_first(outcome: &Outcome) -> bool {
    let (mark, pause) = (outcome.totals.first_mark, outcome.totals.first_pause);
    pause.is_none_or(|pause| mark.is_some_and(|mark| mark <= pause))
}

pub(super) const D6: Trial = Trial {
    id: "D6",
    scenarios: || {
        let step = |bytes: f64| {
            let mut switch = SwitchSettings::step(bytes as u32);
            switch.red.at = MarkAt::Enqueue;
            switch
        };
        // The simulated switch reserves what its own cables need; that of the paper reserves more.
        let dynamic = SwitchSettings {
            buffer: FREE as u64,
            ..step(dynamic_ecn() - 1100.0)
        };
        (0..MATRICES)
            .map(|seed| matrix(seed, dynamic.clone(), "dynamic"))
            .collect()
    },
    judge: |_, outcomes| {
        let exact = |what: &str, published: &str, expected: f64, value: f64| {
            check(
                what,
                published,
                format!("{} +- 0.1 KB", kb(expected)),
                format!("{:.3} KB", value / 1e3),
                (value - expected).abs() <= 100.0,
            )
        };
        let first = outcomes.iter().filter(|o| marked_first(o)).count();
        let paused = outcomes.iter().filter(|o| o.totals.pauses > 0).count();
        vec![
            exact("static t_PFC", "<= 24.47 KB", 24.475e3, static_pfc()),
            exact("static t_ECN", "< 0.85 KB", 0.765e3, static_ecn()),
            exact("dynamic t_ECN, beta 8", "< 21.75 KB", 21.756e3, dynamic_ecn()),
            check(
                format!(
                    "a mark before any PAUSE, t_ECN just below 21.75 KB, beta 8, {MATRICES} traffic matrices"
                ),
                "always",
                format!("{MATRICES} of {MATRICES}"),
                format!("{first} ({paused} of them with PAUSE later)"),
                first == outcomes.len(),
            ),
        ]
    },
};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vnic_engine::congestion::UNLIMITED;
    use vnic_engine::congestion::none::None;

    use super::*;
    use crate::suite::delay::windowed::Windowed;

    #[test]
    fn thresholds_are_those_of_the_paper() {
        assert!((static_pfc() / 1e3 - 24.475).abs() < 0.001);
        assert!((static_ecn() / 1e3 - 0.765).abs() < 0.001);
        assert!((dynamic_ecn() / 1e3 - 21.756).abs() < 0.001);
    }

    /// Whoever sends what to whom, at whatever thresholds below the bound: a mark comes first.
    #[test]
    fn nobody_is_stopped_before_a_first_mark() {
        for seed in 0..12 {
            let part = 0.2 + 0.75 * Rng::with_seed(seed).f64();
            let mut switch = SwitchSettings::step((dynamic_ecn() * part) as u32);
            switch.red.at = MarkAt::Enqueue;
            switch.buffer = FREE as u64;
            let mut scenario = matrix(seed, switch, "property");
            scenario.duration = 60 * US;
            scenario.flows.iter_mut().for_each(|f| f.start /= 10);
            // Flows that nobody slows down, but whose packets say that they can be marked.
            scenario.control = Control::notified(Windowed {
                inner: Arc::new(None),
                window: UNLIMITED,
            });
            let outcome = crate::network::run(&scenario, &mut |_| ()).expect("it runs");
            assert!(marked_first(&outcome), "seed {seed}");
        }
    }
}
