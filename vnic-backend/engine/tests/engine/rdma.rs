//! Queue pairs of two devices on a perfect or scripted wire: one case for each promise of the standard.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod administration;
mod congestion;
mod connections;
mod dynamic;
mod failing;
mod goodput;
mod harness;
mod local;
mod lost_memory;
mod multipath;
mod observation;
mod on_demand;
mod pacing;
mod partitions;
mod priorities;
mod raw;
mod reliable;
mod runs;
mod selective;
mod sharing;
mod shell;
mod source_ports;
mod status;
mod strangers;
mod turns;
mod unreliable;
mod zero_touch;
