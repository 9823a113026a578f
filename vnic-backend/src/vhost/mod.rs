//! vhost-user devices, to which VMMs connect.

mod admit;
mod budget;
mod connection;
mod conversation;
mod early;
mod endpoint;
mod eth;
mod rdma;
mod refused;
mod seat_threads;
mod server;
mod voices;

pub use endpoint::Endpoint;
pub use server::spawn;
pub use voices::Voices;
