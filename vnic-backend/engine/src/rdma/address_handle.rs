//! Address handles (IBTA 10.2.2).

use alloc::collections::{BTreeMap, VecDeque};

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::roce::Path;

use super::handle::Table;
use super::types::{AddressVector, PdHandle, VerbsError};

/// Destroyed handles that datagrams find still.
const LATE: usize = 256;

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

/// The address handles of a device, and those that were destroyed lately: a program may destroy a handle behind the datagrams that it
/// has posted, as with cards whose work requests hold the address itself.
#[derive(Debug)]
pub(super) struct AddressHandles {
    pub table: Table<AddressHandle>,
    late: BTreeMap<u32, AddressHandle>,
    /// Their numbers, the oldest first.
    order: VecDeque<u32>,
    destinations: Destinations,
}

impl AddressHandles {
    /// No handles, with room for as many as the table has.
    pub fn new(table: Table<AddressHandle>) -> AddressHandles {
        AddressHandles {
            table,
            late: BTreeMap::new(),
            order: VecDeque::new(),
            destinations: Destinations::default(),
        }
    }

    /// Adds a handle, and returns its number.
    pub fn insert(&mut self, handle: AddressHandle) -> Result<u32, VerbsError> {
        let path = handle.path;
        let number = self.table.insert(handle)?;
        self.destinations.add(&path);
        Ok(number)
    }

    /// Destroys a handle. Datagrams that name it go out until [`LATE`] others were destroyed, or the GID table has changed.
    pub fn destroy(&mut self, number: u32) -> Option<AddressHandle> {
        let handle = self.table.remove(number)?;
        self.destinations.remove(&handle.path);
        if self.order.len() == LATE
            && let Some(oldest) = self.order.pop_front()
        {
            self.late.remove(&oldest);
        }
        self.order.push_back(number);
        self.late.insert(number, handle);
        Some(handle)
    }

    /// Datagrams find no destroyed handle any more.
    pub fn forget_late(&mut self) {
        self.late.clear();
        self.order.clear();
    }

    /// The handle that a datagram names.
    #[inline]
    pub fn of_datagram(&self, number: u32) -> Option<&AddressHandle> {
        self.table.get(number).or_else(|| self.destroyed(number))
    }

    #[cold]
    fn destroyed(&self, number: u32) -> Option<&AddressHandle> {
        self.late.get(&number)
    }

    /// All handles that datagrams find.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut AddressHandle> {
        let live = self.table.iter_mut().map(|(_, handle)| handle);
        live.chain(self.late.values_mut())
    }

    /// Whether a handle leads to where packets with this path come from.
    pub fn lead_to(&self, theirs: &Path) -> bool {
        self.destinations.have(theirs)
    }
}

/// The other end of a path (Ethernet address, VLAN, network address), and the own network address.
type End = (MacAddr, u16, Gid, Gid);

/// The ends that address handles lead to, and how many lead there.
#[derive(Debug, Default)]
struct Destinations(BTreeMap<End, u32>);

impl Destinations {
    /// An address handle was made.
    fn add(&mut self, path: &Path) {
        *self.0.entry(end(path)).or_default() += 1;
    }

    /// An address handle is gone.
    fn remove(&mut self, path: &Path) {
        if let Some(count) = self.0.get_mut(&end(path)) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&end(path));
            }
        }
    }

    /// Whether an address handle leads to where packets with this path come from.
    fn have(&self, theirs: &Path) -> bool {
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
