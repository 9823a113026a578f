//! The control interface of the NIC daemon: gRPC package `vnic.v1`.
//!
//! The `.proto` files under `proto/vnic/v1` are the normative text: units, errors and status codes are in
//! their comments.

/// Messages, clients and servers of package `vnic.v1`, generated from the `.proto` files.
pub mod v1 {
    #![allow(missing_docs, unused_qualifications)]
    #![allow(clippy::all, clippy::unwrap_used, clippy::cast_lossless)]
    tonic::include_proto!("vnic.v1");
}

/// All `.proto` files as an encoded `google.protobuf.FileDescriptorSet`: for server reflection, and for tools
/// that turn any message into JSON.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vnic_v1.bin"));
