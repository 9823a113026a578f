//! VLAN membership of a switch port (IEEE 802.1Q clause 6.9 and 8.8).

use alloc::collections::BTreeSet;

/// The VLAN that untagged frames belong to where nothing else is configured (IEEE 802.1Q table 9-2).
pub const DEFAULT_VLAN: u16 = 1;

/// How a port takes part in VLANs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VlanMode {
    /// Untagged (and priority-tagged) frames belong to `native`; tagged frames to their own VLAN. Frames
    /// leave untagged in `native`, tagged otherwise.
    Trunk {
        /// VLAN of untagged frames, 1..=4094.
        native: u16,
        /// Allowed VLANs besides `native`; `None` allows all.
        allowed: Option<BTreeSet<u16>>,
    },
    /// Untagged frames only (priority tags are accepted), all in this VLAN, 1..=4094.
    Access(u16),
}

impl Default for VlanMode {
    fn default() -> Self {
        VlanMode::Trunk {
            native: DEFAULT_VLAN,
            allowed: None,
        }
    }
}

/// What must happen to a frame's outer 802.1Q tag on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagEdit {
    /// Leave the frame as it is.
    Keep,
    /// Insert a tag with this TCI after the source address.
    Push(u16),
    /// Remove the outer tag.
    Pop,
}
