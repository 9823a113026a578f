//! vhost-user devices: what a VMM talks to.

#[macro_use]
mod refuse;

mod early;
mod eth;
mod rdma;
mod server;

pub use server::{Endpoint, spawn};
