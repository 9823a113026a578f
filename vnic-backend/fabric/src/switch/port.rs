//! A port's settings in the form that the fast path wants.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fdb::Key;
use super::{PortConfig, PortId, Verdict};
use crate::vlan::{Marking, VID_MASK, VLAN_MAX, tag_edit};
use crate::wake::Wakes;
use crate::{DropReason, TagEdit, VlanMode};

/// The first 16 bytes of a frame as two words, reduced to what the decision depends on: addresses, the tag if there is one,
/// and whether it is MAC control, behind a tag, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowId(u64, u64);

impl FlowId {
    #[inline]
    pub(crate) const fn of(h: &[u8; 18]) -> FlowId {
        const TAG: u16 = u16::from_le_bytes([0x81, 0x00]);
        const MAC_CONTROL: u16 = u16::from_le_bytes([0x88, 0x08]);
        let a = u64::from_le_bytes([h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]]);
        let b = u64::from_le_bytes([h[8], h[9], h[10], h[11], h[12], h[13], h[14], h[15]]);
        match (b >> 32) as u16 {
            // The EtherType behind the tag takes the tag's place here: no other frame looks like that.
            TAG if u16::from_le_bytes([h[16], h[17]]) == MAC_CONTROL => {
                FlowId(a, b & !(0xffff << 32) | (MAC_CONTROL as u64) << 32)
            }
            TAG => FlowId(a, b),
            MAC_CONTROL => FlowId(a, b & 0xffff_ffff | (MAC_CONTROL as u64) << 32),
            _ => FlowId(a, b & 0xffff_ffff),
        }
    }
}

/// The last decision for this port. It holds for the same flow as long as nothing in the switch has changed and the coarse
/// clock has not moved (then the source must be refreshed).
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastFlow {
    pub(crate) id: FlowId,
    pub(crate) generation: u64,
    pub(crate) stamp: u32,
    pub(crate) verdict: Verdict,
}

/// The last source that sent from this port, and when learning looked at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastSource {
    pub(crate) key: Key,
    pub(crate) stamp: u32,
    /// `None`: the source was learned, and this holds until the entry goes or moves. `Some`: it was not learned (refused,
    /// or another port's own address), which holds until anything changes.
    pub(crate) while_generation: Option<u64>,
}

impl LastSource {
    pub(crate) const NONE: LastSource = LastSource {
        key: Key::NONE,
        stamp: 0,
        while_generation: None,
    };

    #[inline]
    pub(crate) fn holds(&self, key: Key, stamp: u32, generation: u64) -> bool {
        self.key == key && self.stamp == stamp && self.while_generation.is_none_or(|g| g == generation)
    }
}

/// What a port is for the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A port like others.
    Member,
    /// The switch neither takes frames from the port nor gives it any: it gets copies.
    Destination,
    /// Each frame from the port goes to this other one as it is, and none other does; `None`: it is not there.
    Bridged(Option<PortId>),
}

#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) flow: LastFlow,
    pub(crate) source: LastSource,
    /// Learned entries of the table that name this port.
    pub(crate) learned: usize,
    /// Whether the switch gives the port frames: it has a link, and is a member.
    pub(crate) up: bool,
    /// Whether the port has a link.
    pub(crate) link: bool,
    pub(crate) role: Role,
    pub(crate) learning: bool,
    anti_spoofing: bool,
    pub(crate) access: bool,
    pub(crate) wakes: Wakes,
    /// VLAN of untagged frames; 0: the setting makes no sense, and there is none.
    untagged: u16,
    /// How frames from this port are marked.
    pub(crate) marking: Marking,
    /// Own addresses, as numbers.
    macs: Vec<u64>,
    /// Allowed VLANs, a bit each; `None`: all.
    allowed: Option<Box<[u64; 64]>>,
    mode: VlanMode,
}

impl Port {
    pub(crate) fn new(config: PortConfig) -> Port {
        let (untagged, access, allowed) = match &config.vlan {
            VlanMode::Access(v) => (*v, true, Some(Box::new([0; 64]))),
            VlanMode::Trunk { native, allowed } => {
                let bits = allowed.as_ref().map(|set| {
                    let mut bits = Box::new([0u64; 64]);
                    for v in set.iter().filter(|v| (1..=VLAN_MAX).contains(*v)) {
                        bits[usize::from(v / 64)] |= 1 << (v % 64);
                    }
                    bits
                });
                (*native, false, bits)
            }
        };
        let untagged = if (1..=VLAN_MAX).contains(&untagged) {
            untagged
        } else {
            0
        };
        Port {
            flow: LastFlow {
                id: FlowId(0, 0),
                // Generations count from 1: this one never holds.
                generation: 0,
                stamp: 0,
                verdict: Verdict::Drop(DropReason::NoDestination),
            },
            source: LastSource::NONE,
            learned: 0,
            up: false,
            link: false,
            role: Role::Member,
            learning: config.learning,
            anti_spoofing: config.anti_spoofing,
            access,
            wakes: config.wakes,
            untagged,
            marking: Marking {
                pcp: u16::from(config.default_priority & 7) << 13,
                priority_tags: config.priority_tags,
            },
            macs: config
                .macs
                .iter()
                .filter(|m| !m.is_multicast())
                .map(|m| m.to_u64())
                .collect(),
            allowed,
            mode: config.vlan,
        }
    }

    /// Whether a frame of `vlan` may leave by this port.
    #[inline]
    pub(crate) fn member(&self, vlan: u16) -> bool {
        (1..=VLAN_MAX).contains(&vlan)
            && (vlan == self.untagged
                || self
                    .allowed
                    .as_ref()
                    .is_none_or(|bits| bits[usize::from(vlan / 64) % 64] >> (vlan % 64) & 1 != 0))
    }

    /// The VLAN of a frame that arrives with this outer tag; `None`: not allowed here.
    #[inline]
    pub(crate) fn classify(&self, tci: Option<u16>) -> Option<u16> {
        let vlan = tci.map_or(0, |t| t & VID_MASK);
        if vlan == 0 {
            (self.untagged != 0).then_some(self.untagged)
        } else if !self.access && self.member(vlan) {
            Some(vlan)
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn has(&self, address: u64) -> bool {
        self.macs.contains(&address)
    }

    #[inline]
    pub(crate) fn may_send_as(&self, source: u64) -> bool {
        !self.anti_spoofing || self.has(source)
    }

    #[inline]
    pub(crate) fn tag_edit(&self, vlan: u16, tci: Option<u16>, from: Marking) -> TagEdit {
        tag_edit(vlan, tci, from, self.untagged, self.access)
    }

    /// The keys of the port's own addresses.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = Key> {
        self.macs
            .iter()
            .filter(|_| self.untagged != 0)
            .map(|m| Key::new(self.untagged, *m))
    }

    pub(crate) fn same_vlans(&self, config: &PortConfig) -> bool {
        self.mode == config.vlan
    }
}
