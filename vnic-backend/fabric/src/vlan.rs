//! VLAN membership of a switch port (IEEE 802.1Q clause 6.9 and 8.8).

use alloc::collections::BTreeSet;

/// The VLAN of untagged frames if nothing else is configured (IEEE 802.1Q table 9-2).
pub const DEFAULT_VLAN: u16 = 1;

/// Largest VLAN identifier in use: 4095 is reserved (IEEE 802.1Q table 9-2).
pub(crate) const VLAN_MAX: u16 = 4094;

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

impl VlanMode {
    /// The VLAN of frames that come with a tag of VLAN `tag`, or without one (`None`, or 0), for callers without a frame.
    /// `None`: the port takes no such frames.
    pub fn classify(&self, tag: Option<u16>) -> Option<u16> {
        let vlan = match (self, tag.unwrap_or(0)) {
            (VlanMode::Trunk { native, .. } | VlanMode::Access(native), 0) => *native,
            (VlanMode::Access(_), _) => return None,
            (VlanMode::Trunk { native, allowed }, vlan) => {
                let has = |allowed: &BTreeSet<u16>| allowed.contains(&vlan);
                if vlan != *native && !allowed.as_ref().is_none_or(has) {
                    return None;
                }
                vlan
            }
        };
        (1..=VLAN_MAX).contains(&vlan).then_some(vlan)
    }
}

/// What becomes of priority tags (VID 0) of frames from a port, at ports that take tags and where their VLAN leaves
/// untagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PriorityTags {
    /// Frames leave as they came. Those to which rules assign a priority get a priority tag with it.
    #[default]
    Keep,
    /// Frames without a tag get a priority tag, with the port's default priority.
    Add,
    /// Priority tags are removed, and none is added.
    Strip,
}

/// How a port marks the frames that come from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marking {
    /// Priority of frames without a tag, at its place in a TCI.
    pub pcp: u16,
    /// What becomes of priority tags.
    pub priority_tags: PriorityTags,
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
    /// Write this TCI into the outer tag: a priority-tagged frame (VID 0) leaves with its VLAN named.
    Replace(u16),
}

/// Bits of a TCI that name the VLAN (IEEE 802.1Q clause 9.6).
pub const VID_MASK: u16 = 0x0fff;

/// The tag edit for a frame of `vlan` that arrived with the outer tag `tci` (`None`: untagged; VID 0: priority-tagged)
/// from a port that marks it so, and leaves on a port with these settings (IEEE 802.1Q clauses 6.9.3 and 8.6.1, table
/// 9-2).
#[inline]
pub(crate) const fn tag_edit(
    vlan: u16,
    tci: Option<u16>,
    from: Marking,
    untagged: u16,
    access: bool,
) -> TagEdit {
    match tci {
        None if vlan == untagged => match from.priority_tags {
            PriorityTags::Add if !access => TagEdit::Push(from.pcp),
            _ => TagEdit::Keep,
        },
        None => TagEdit::Push(from.pcp | vlan),
        Some(t) if t & VID_MASK != 0 => {
            if vlan == untagged {
                TagEdit::Pop
            } else {
                TagEdit::Keep
            }
        }
        Some(_) if vlan == untagged && (access || matches!(from.priority_tags, PriorityTags::Strip)) => {
            TagEdit::Pop
        }
        Some(_) if vlan == untagged => TagEdit::Keep,
        Some(t) => TagEdit::Replace((t & !VID_MASK) | vlan),
    }
}
