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
pub mod program;
mod routes;
pub mod scenario;
mod stats;
pub mod topology;
pub mod traffic;
mod world;

pub use outcome::{FlowOutcome, Outcome};
pub use scenario::Scenario;

#[cfg(test)]
pub(crate) use tests::made::made_up;

/// Runs a scenario to its end. `progress` is told the part that is done, 0..=1, now and then.
pub fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> anyhow::Result<Outcome> {
    let mut world = world::World::new(scenario)?;
    world.run(progress)?;
    Ok(world.finish())
}

#[cfg(test)]
mod tests;
