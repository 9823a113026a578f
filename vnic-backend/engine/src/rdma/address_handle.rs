//! Address handles (IBTA 10.2.2).

use vnic_wire::roce::Path;

use super::types::{AddressVector, PdHandle};

/// An address vector, with the headers that it gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressHandle {
    pub pd: PdHandle,
    /// What it was created with.
    pub address: AddressVector,
    /// The headers; the UDP source port is the sending QP's.
    pub path: Path,
    /// Priority of packets to it.
    pub priority: u8,
}
