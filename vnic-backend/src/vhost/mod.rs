//! vhost-user devices, to which VMMs connect.

mod admit;
mod budget;
mod connection;
mod early;
mod endpoint;
mod eth;
mod rdma;
mod refused;
mod server;

pub use endpoint::Endpoint;
pub use server::spawn;
