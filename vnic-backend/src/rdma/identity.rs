//! Identity of an RDMA function.

use std::sync::Arc;

use vnic_fabric::VlanMode;
use vnic_wire::MacAddr;
use vnic_wire::prefix::Prefix;

use super::registry::{Claimant, GidRegistry};

/// Identity of an RDMA function.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The function as a claimant of GIDs.
    pub claimant: Claimant,
    /// Registry of all functions' GIDs.
    pub registry: Arc<GidRegistry>,
    /// VLANs of the adapter.
    pub vlans: VlanMode,
    /// Addresses that the guest may claim; empty: any.
    pub allowed: Arc<[Prefix]>,
    /// MTU of the adapter: bytes behind the Ethernet header.
    pub mtu: u16,
    /// Whether there may be flows.
    pub flows: bool,
    /// The last handle that was given.
    handles: u32,
}

impl Identity {
    /// Makes the identity of an adapter's function: its address, its VLANs.
    pub fn new(mac: MacAddr, vlans: VlanMode, registry: Arc<GidRegistry>) -> Identity {
        Identity {
            claimant: Claimant {
                mac,
                doubted: Arc::default(),
            },
            registry,
            vlans,
            allowed: Arc::default(),
            mtu: 1500,
            flows: true,
            handles: 0,
        }
    }

    /// Lets the guest claim only these addresses; empty: any.
    pub fn allowing(self, allowed: &[Prefix]) -> Identity {
        Identity {
            allowed: allowed.into(),
            ..self
        }
    }

    /// Lets frames have as many bytes behind the Ethernet header.
    pub fn with_mtu(self, mtu: u16) -> Identity {
        Identity { mtu, ..self }
    }

    /// Lets there be flows, or not.
    pub fn with_flows(self, flows: bool) -> Identity {
        Identity { flows, ..self }
    }

    /// The identity of a process that shares the function, and claims nothing of its own.
    pub fn seat(&self) -> Identity {
        Identity {
            claimant: Claimant {
                mac: self.claimant.mac,
                doubted: Arc::default(),
            },
            ..self.clone()
        }
    }

    /// A number of 24 bits that was not given for long. It is never the largest one: `ffffffff` names no object.
    pub fn next_handle(&mut self) -> u32 {
        self.handles = (self.handles + 1) % 0xff_ffff;
        self.handles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_do_not_come_back_soon_and_never_name_nothing() {
        let mut identity = Identity::new(MacAddr([2, 0, 0, 0, 0, 1]), VlanMode::default(), Arc::default());
        let first = identity.next_handle();
        assert!((0..10_000).all(|_| identity.next_handle() != first));
        identity.handles = 0xff_fffd;
        assert_eq!([identity.next_handle(), identity.next_handle()], [0xff_fffe, 0]);
    }
}
