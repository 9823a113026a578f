//! Hosts, switches and links under virtual time: the live engine in the hosts, `vnic-fabric` in the switches.
//!
//! ```text
//!  Scenario ─▶ World: Host(s) ── link ── Switch(es) ── link ── Host(s) ─▶ Outcome
//!    (TOML, or code)   engine::Device     fabric::qos                       flows, series, totals, hash
//! ```
//!
//! One run is one thread and a seed is a whole run. Many runs go on many threads.

mod events;
pub mod file;
mod flows;
mod host;
pub mod measures;
mod net;
pub mod outcome;
pub mod output;
mod packets;
mod routes;
pub mod scenario;
mod stats;
pub mod topology;
pub mod traffic;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use outcome::{FlowOutcome, Outcome, Series, Totals};
pub use scenario::Scenario;

#[cfg(test)]
pub(crate) use made::made_up;

/// Runs a scenario to its end. `progress` is told the part that is done, 0..=1, now and then.
pub fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> anyhow::Result<Outcome> {
    let mut world = world::World::new(scenario)?;
    world.run(progress)?;
    Ok(world.finish())
}

/// Runs scenarios on so many threads; outcomes are in the order of the scenarios. `progress` is told which one, and the part
/// of it that is done. What comes of them does not depend on the number of threads.
pub fn run_all(
    scenarios: &[Scenario],
    jobs: usize,
    progress: &(dyn Fn(usize, f64) + Sync),
) -> Vec<anyhow::Result<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<anyhow::Result<Outcome>>>> =
        scenarios.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = scenarios.get(number) else {
                break;
            };
            let outcome = run(scenario, &mut |part| progress(number, part));
            if let Ok(mut place) = outcomes[number].lock() {
                *place = Some(outcome);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, scenarios.len().max(1)) {
            scope.spawn(work);
        }
    });
    let missing = || Err(anyhow::anyhow!("the run did not end"));
    outcomes
        .into_iter()
        .map(|place| place.into_inner().ok().flatten().unwrap_or_else(missing))
        .collect()
}

#[cfg(test)]
mod made;
#[cfg(test)]
mod tests;
