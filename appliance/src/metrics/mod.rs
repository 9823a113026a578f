//! Prometheus: `/metrics`, and beside it `/livez` and `/readyz`.

pub mod naming;
mod render;
mod server;

pub use render::{Snapshot, render};
pub use server::serve;
