//! vhost-user devices: what a VMM talks to.

mod early;
mod eth;
mod server;

pub use server::{Adapter, spawn};
