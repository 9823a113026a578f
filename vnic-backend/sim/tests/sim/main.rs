//! The simulator itself: what it replays, and what its judge sees.

mod connections;
mod judge;
mod pause;
mod replay;
