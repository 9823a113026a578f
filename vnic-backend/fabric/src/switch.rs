//! The embedded switch: MAC learning with ageing, VLANs, flooding, anti-spoofing.

use alloc::vec::Vec;
use core::time::Duration;
use vnic_wire::MacAddr;

use crate::{DropReason, Instant, TagEdit, VlanMode};

/// A port of the switch: an adapter or an uplink. Small and dense: an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// Settings of the whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchConfig {
    /// A learned address that was not seen for this long is forgotten (IEEE 802.1Q clause 8.8.3: 300 s).
    pub ageing: Duration,
    /// Learned addresses one port may hold, so that one hostile guest cannot push out the others.
    pub learn_limit_per_port: usize,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig {
            ageing: Duration::from_secs(300),
            learn_limit_per_port: 1024,
        }
    }
}

/// Settings of one port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortConfig {
    /// VLAN membership.
    pub vlan: VlanMode,
    /// Own addresses: never aged, never moved by learning, known in the native/access VLAN.
    pub macs: Vec<MacAddr>,
    /// Accept only own addresses as source.
    pub anti_spoofing: bool,
    /// Learn source addresses of frames that come from this port.
    pub learning: bool,
}

/// Where a frame goes, and what becomes of its tag there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Egress {
    /// The port that gets the frame.
    pub port: PortId,
    /// What to do with the outer tag.
    pub tag: TagEdit,
}

/// The switch's decision for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// One receiver.
    Unicast(Egress),
    /// Every other port of the frame's VLAN that is up: iterate [`Switch::flood_targets`].
    Flood {
        /// The frame's VLAN.
        vlan: u16,
        /// The frame came with an 802.1Q tag that names a VLAN (not a mere priority tag), and this is its TCI;
        /// needed to decide the tag on the way out.
        tci: Option<u16>,
    },
    /// Nobody.
    Drop(DropReason),
}
