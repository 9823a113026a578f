//! Address handles (IBTA 10.2.2).

use alloc::collections::BTreeMap;

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::roce::Path;

use super::types::{AddressVector, PdHandle};

/// An address vector, with the headers that follow from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressHandle {
    pub pd: PdHandle,
    /// The address vector that it was created with.
    pub address: AddressVector,
    /// The headers; the UDP source port is the sending QP's.
    pub path: Path,
    /// Priority of packets to the address.
    pub priority: u8,
}

/// The other end of a path (Ethernet address, VLAN, network address), and the own network address.
type End = (MacAddr, u16, Gid, Gid);

/// The ends that address handles lead to, and how many lead there.
#[derive(Debug, Default)]
pub(super) struct Destinations(BTreeMap<End, u32>);

impl Destinations {
    /// An address handle was made.
    pub fn add(&mut self, path: &Path) {
        *self.0.entry(end(path)).or_default() += 1;
    }

    /// An address handle is gone.
    pub fn remove(&mut self, path: &Path) {
        if let Some(count) = self.0.get_mut(&end(path)) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&end(path));
            }
        }
    }

    /// Whether an address handle leads to where packets with this path come from.
    pub fn have(&self, theirs: &Path) -> bool {
        let (theirs, vid, network) = (theirs.eth.source, theirs.vid(), &theirs.network);
        self.0
            .contains_key(&(theirs, vid, network.source(), network.destination()))
    }
}

fn end(path: &Path) -> End {
    let network = &path.network;
    (
        path.eth.destination,
        path.vid(),
        network.destination(),
        network.source(),
    )
}
