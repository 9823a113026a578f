//! The simulator itself: what it replays, and what its judge sees.

mod connections;
mod dynamic;
mod judge;
mod pause;
mod replay;
