//! vhost-user devices: what a VMM talks to.

mod admit;
mod budget;
mod connection;
mod early;
mod eth;
mod rdma;
mod server;

pub use server::{Endpoint, spawn};
