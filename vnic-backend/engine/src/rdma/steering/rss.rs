//! Hash queue pairs: a flow's frames spread over several raw packet queue pairs (`ibv_create_rwq_ind_table(3)`; proto/device, section
//! 8.7), by the hash that the Ethernet function has for its queues.

use alloc::vec::Vec;

use vnic_device::command::flow::CreateHashQp;
use vnic_device::verbs::hash_types;

use super::super::types::QpNumber;
use super::FlowError;
use crate::virtio_net::steering::{KEY_MAX, Toeplitz, Tunnels, hash_type, tunnel_type};

/// Most hash queue pairs of an adapter.
pub const HASH_QPS_MAX: usize = 64;
/// Most entries of the table of one.
pub const ENTRIES_MAX: usize = 128;

const _: () = {
    assert!(hash_types::ALL == hash_type::ALL | hash_types::INNER);
    assert!(size_of::<CreateHashQp>() == 8 + KEY_MAX + 4 * ENTRIES_MAX);
};

/// Which queue pair has which frame.
#[derive(Debug)]
pub(super) struct Spread {
    hash: Toeplitz,
    /// Whether the packets in tunnels decide.
    inner: bool,
    /// By the low bits of the hash.
    table: Vec<QpNumber>,
}

impl Spread {
    /// A table as a driver has sent it. `None`: there are no such hash types.
    pub fn new(wanted: &CreateHashQp) -> Result<Option<Spread>, FlowError> {
        if wanted.hash_types & !hash_types::ALL != 0 {
            return Ok(None);
        }
        let entries = wanted.entries as usize;
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return Err(FlowError::Entries(wanted.entries));
        }
        if !entries.is_power_of_two() {
            return Err(FlowError::Invalid("entries is no power of two"));
        }
        let (table, behind) = wanted.table.split_at(entries);
        if behind.iter().any(|number| *number != 0) {
            return Err(FlowError::Invalid(
                "there are numbers behind the last entry of the table",
            ));
        }
        Ok(Some(Spread {
            hash: Toeplitz::new(wanted.hash_types & hash_type::ALL, &wanted.key),
            inner: wanted.hash_types & hash_types::INNER != 0,
            table: table.iter().map(|number| QpNumber(*number)).collect(),
        }))
    }

    /// Whether frames may go to a queue pair.
    pub fn leads_to(&self, qp: QpNumber) -> bool {
        self.table.contains(&qp)
    }

    /// Who has a frame that begins with these bytes. The hash of a frame that has none is 0.
    pub fn queue_pair(&self, head: &[u8], vxlan_port: u16) -> Option<QpNumber> {
        let types = if self.inner { tunnel_type::ALL } else { 0 };
        let flow = Tunnels { types, vxlan_port }.flow(head);
        let hash = self.hash.hash(flow.as_ref()).value as usize;
        // (A power of two.)
        self.table.get(hash & (self.table.len() - 1)).copied()
    }
}
