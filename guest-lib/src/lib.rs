//! Verbs on vnic's RDMA function, for programs in a virtual machine or in a process of the host, without any driver in
//! a kernel.

pub mod error;
pub mod pages;
pub mod transport;

pub use error::Error;
