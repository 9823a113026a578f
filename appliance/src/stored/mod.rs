//! Settings as messages of `vnic.v1`: what clients write is what is stored. So gRPC and the store share the way between messages and
//! types, and one who reads the store needs no second description.

pub mod adapters;
pub mod congestion;
pub mod qos;
pub mod teams;
pub mod values;
