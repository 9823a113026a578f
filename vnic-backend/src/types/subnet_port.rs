//! Paths between adapters, as a subnet administrator answers for them.

/// Policies of quality of service by path, and answers to queries for paths.
pub mod subnet {
    pub use vnic_fabric::subnet::*;
}

use vnic_wire::pkey::PkeyTable;

/// The port of an adapter's RDMA function in the subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetPort {
    /// Name of the adapter, which is the NodeDescription; the port's number is 1.
    pub adapter: String,
    /// Port GUID: EUI-64 of the adapter's address.
    pub guid: u64,
    /// Code of its MTU.
    pub mtu: u8,
    /// Code of its rate.
    pub rate: u8,
    /// P_Keys of its table.
    pub pkeys: PkeyTable,
}

impl SubnetPort {
    /// It as an end of a path.
    pub fn end(&self) -> subnet::Port<'_> {
        subnet::Port {
            guid: self.guid,
            node: &self.adapter,
            number: 1,
            mtu: self.mtu,
            rate: self.rate,
            pkeys: self.pkeys.as_slice(),
        }
    }
}
