//! Queue pairs of two devices on a perfect or scripted wire: one case for each promise of the standard.

mod harness;
mod local;
mod reliable;
mod sharing;
mod unreliable;
