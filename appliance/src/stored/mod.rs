//! Settings as messages of `vnic.v1`: the store keeps the messages that clients write. So gRPC and the store share the
//! conversion between messages and types, and the `.proto` files describe the store as well.

pub mod access_lists;
pub mod adapters;
pub mod congestion;
pub mod mirrors;
pub mod moves;
pub mod ports;
pub mod qos;
pub mod subnet_groups;
pub mod teams;
pub mod values;
