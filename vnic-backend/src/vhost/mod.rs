//! vhost-user devices: what a VMM talks to.

mod early;
mod eth;
mod rdma;
mod server;

pub use server::{Endpoint, spawn};
