//! Prometheus metrics: `/metrics`, and `/metrics/node` with node_exporter's names; probes: `/livez` and `/readyz`.

mod grpc;
pub mod naming;
mod native;
mod node;
mod page;
mod process;
mod render;
mod server;
pub mod teams;

pub use node::render as render_node;
pub use process::Process;
pub use render::{Bugs, Snapshot, render};
pub use server::serve;
