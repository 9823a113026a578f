//! Prometheus: `/metrics`, the same numbers under node_exporter's names at `/metrics/node`, and beside them `/livez` and
//! `/readyz`.

pub mod naming;
mod native;
mod node;
mod page;
mod render;
mod server;
pub mod teams;

pub use node::render as render_node;
pub use render::{Snapshot, render};
pub use server::serve;
