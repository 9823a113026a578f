//! What tests of simulations share.

use std::format;
use std::string::String;

/// Runs a simulation for so many seeds, or for the one that a variable of the environment names; the first that fails says how
/// to run it again.
pub(super) fn for_seeds(variable: &str, usual: u64, test: &str, run: impl Fn(u64) -> Result<(), String>) {
    #[expect(clippy::disallowed_methods, reason = "the seed of a test")]
    let one = std::env::var(variable).ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..usual, |seed: u64| seed..seed + 1) {
        if let Err(what) = run(seed) {
            let again = format!("{variable}={seed} cargo test -p vnic-fabric --lib {test}");
            panic!("seed {seed}: {what}\nagain: {again}");
        }
    }
}
