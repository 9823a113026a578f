//! Verbs at random: devices, objects, work and accidents, all from one seed, and the oracle over it.

mod admin;
mod arena;
mod attack;
mod capture;
mod dynamic;
mod flaws;
mod ledger;
mod link;
mod node;
mod outlets;
mod pieces;
mod plan;
mod settle;
mod setup;
mod work;
mod world;

pub use capture::Capture;
pub use plan::{Cut, Plan, Profile, Service};
pub use world::{Outcome, run};
