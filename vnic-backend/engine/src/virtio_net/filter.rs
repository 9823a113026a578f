//! Which frames a guest wants: receive modes, addresses and VLANs (virtio 1.3 sections 5.1.6.5.1 to 5.1.6.5.3).

use alloc::boxed::Box;
use alloc::vec::Vec;

use vnic_wire::MacAddr;

/// Most addresses of a kind that are kept; a guest that wants more gets all frames of the kind.
pub const ADDRESSES_MAX: usize = 64;

/// A receive mode, by its command (virtio 1.3 section 5.1.6.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All frames.
    Promiscuous = 0,
    /// All multicast frames.
    AllMulticast = 1,
    /// All unicast frames.
    AllUnicast = 2,
    /// No multicast frame.
    NoMulticast = 3,
    /// No unicast frame.
    NoUnicast = 4,
    /// No broadcast frame.
    NoBroadcast = 5,
}

impl Mode {
    /// The mode of a command.
    pub fn of(command: u8) -> Option<Mode> {
        use Mode::*;
        let all = [
            Promiscuous,
            AllMulticast,
            AllUnicast,
            NoMulticast,
            NoUnicast,
            NoBroadcast,
        ];
        all.get(usize::from(command)).copied()
    }
}

/// Receive filter of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Modes that are on, a bit each.
    modes: u8,
    /// The guest's own address.
    pub mac: MacAddr,
    unicast: Vec<MacAddr>,
    multicast: Vec<MacAddr>,
    /// VLANs that the guest wants, a bit each; `None`: all.
    vlans: Option<Box<[u64; 64]>>,
}

impl Filter {
    /// The filter after a reset: everything passes, until the driver says what it wants. `by_vlan`: the driver tells its VLANs.
    pub fn new(mac: MacAddr, by_vlan: bool) -> Filter {
        Filter {
            modes: 1 << Mode::Promiscuous as u8,
            mac,
            unicast: Vec::new(),
            multicast: Vec::new(),
            vlans: by_vlan.then(|| Box::new([0; 64])),
        }
    }

    /// Whether a mode is on.
    #[inline]
    pub fn is(&self, mode: Mode) -> bool {
        self.modes & 1 << mode as u8 != 0
    }

    /// The names of the modes that are on, for people.
    pub fn modes(&self) -> impl Iterator<Item = &'static str> {
        let names = [
            "promiscuous",
            "all_multicast",
            "all_unicast",
            "no_multicast",
            "no_unicast",
            "no_broadcast",
        ];
        let on = self.modes;
        names
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| on & 1 << bit != 0)
            .map(|(_, name)| name)
    }

    /// Sets a mode.
    pub fn set(&mut self, mode: Mode, on: bool) {
        self.modes = self.modes & !(1 << mode as u8) | u8::from(on) << mode as u8;
    }

    /// Sets the tables of addresses. (More than [`ADDRESSES_MAX`] are kept as one more than that.)
    pub fn set_addresses(
        &mut self,
        unicast: impl Iterator<Item = MacAddr>,
        multicast: impl Iterator<Item = MacAddr>,
    ) {
        self.unicast = unicast.take(ADDRESSES_MAX + 1).collect();
        self.multicast = multicast.take(ADDRESSES_MAX + 1).collect();
    }

    /// Adds or removes a VLAN. False: there is no such VLAN, or the driver has not said that it tells VLANs.
    pub fn set_vlan(&mut self, id: u16, wanted: bool) -> bool {
        let Some(word) = self.vlans.as_mut().and_then(|v| v.get_mut(usize::from(id / 64))) else {
            return false;
        };
        let bit = 1 << (id % 64);
        *word = if wanted { *word | bit } else { *word & !bit };
        true
    }

    /// VLANs that the guest wants; `None`: all.
    pub fn vlans(&self) -> Option<impl Iterator<Item = u16>> {
        let words = self.vlans.as_deref()?;
        Some((0..4096).filter(|id| words[usize::from(id / 64)] & 1 << (id % 64) != 0))
    }

    /// The tables of unicast and of multicast addresses; `None`: they are too many, and all frames of the kind pass.
    pub fn addresses(&self) -> [Option<&[MacAddr]>; 2] {
        [&self.unicast, &self.multicast].map(|table| (table.len() <= ADDRESSES_MAX).then_some(&table[..]))
    }

    /// Whether everything passes.
    pub fn passes_all(&self) -> bool {
        self.is(Mode::Promiscuous)
    }

    /// Whether the guest wants a frame with this head.
    #[inline]
    pub fn wants(&self, head: &[u8]) -> bool {
        if self.is(Mode::Promiscuous) {
            return true;
        }
        let Some((to, _)) = head.split_first_chunk::<6>() else {
            return false;
        };
        if let (Some(vlans), Some([0x81, 0x00, high, low])) = (&self.vlans, head.get(12..16)) {
            let id = u16::from_be_bytes([high & 0x0f, *low]);
            // A tag with VLAN 0 has a priority only.
            if id != 0 && vlans[usize::from(id / 64)] & 1 << (id % 64) == 0 {
                return false;
            }
        }
        let to = MacAddr(*to);
        if to.0 == [0xff; 6] {
            !self.is(Mode::NoBroadcast)
        } else if to.0[0] & 1 == 1 {
            !self.is(Mode::NoMulticast)
                && (self.is(Mode::AllMulticast)
                    || self.multicast.len() > ADDRESSES_MAX
                    || self.multicast.contains(&to))
        } else {
            !self.is(Mode::NoUnicast)
                && (to == self.mac
                    || self.is(Mode::AllUnicast)
                    || self.unicast.len() > ADDRESSES_MAX
                    || self.unicast.contains(&to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const GROUP: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    const ALL: MacAddr = MacAddr([0xff; 6]);

    fn wants(filter: &Filter, to: MacAddr) -> bool {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&to.0);
        filter.wants(&frame)
    }

    fn seen(filter: &Filter) -> [bool; 4] {
        [OWN, OTHER, GROUP, ALL].map(|to| wants(filter, to))
    }

    /// Each mode, alone and with that which says the contrary.
    #[test]
    fn table_of_modes() {
        use Mode::*;
        let mut filter = Filter::new(OWN, false);
        assert_eq!(seen(&filter), [true; 4], "after a reset");
        filter.set(Promiscuous, false);
        assert_eq!(seen(&filter), [true, false, false, true], "nothing set");
        let rows = [
            (&[AllMulticast][..], [true, false, true, true]),
            (&[AllUnicast], [true, true, false, true]),
            (&[NoBroadcast], [true, false, false, false]),
            (&[NoUnicast], [false, false, false, true]),
            (&[AllMulticast, NoMulticast], [true, false, false, true]),
            (&[AllUnicast, NoUnicast], [false, false, false, true]),
            (&[Promiscuous, NoUnicast, NoBroadcast], [true; 4]),
        ];
        for (modes, expected) in rows {
            let mut filter = filter.clone();
            for mode in modes {
                filter.set(*mode, true);
            }
            assert_eq!(seen(&filter), expected, "{modes:?}");
        }
    }

    #[test]
    fn addresses_pass() {
        let mut filter = Filter::new(OWN, false);
        filter.set(Mode::Promiscuous, false);
        filter.set_addresses([OTHER].into_iter(), [GROUP].into_iter());
        assert_eq!(seen(&filter), [true; 4]);
        assert!(!wants(&filter, MacAddr([2, 0, 0, 0, 0, 3])));
        // More than are kept: all of the kind pass.
        let many = (0..=ADDRESSES_MAX as u8).map(|i| MacAddr([2, 1, 0, 0, 0, i]));
        filter.set_addresses(many, [].into_iter());
        assert_eq!(seen(&filter), [true, true, false, true]);
        assert_eq!(filter.addresses(), [None, Some(&[][..])]);
    }

    #[test]
    fn vlans_pass() {
        let tagged = |id: u16| {
            let mut frame = [0; 60];
            frame[..6].copy_from_slice(&OWN.0);
            frame[12..14].copy_from_slice(&[0x81, 0x00]);
            frame[14..16].copy_from_slice(&(0x6000 | id).to_be_bytes());
            frame
        };
        let mut filter = Filter::new(OWN, true);
        assert!(filter.wants(&tagged(5)), "promiscuous");
        filter.set(Mode::Promiscuous, false);
        assert!(!filter.wants(&tagged(5)) && filter.wants(&tagged(0)) && wants(&filter, OWN));
        assert!(filter.set_vlan(5, true) && filter.set_vlan(4095, true) && !filter.set_vlan(4096, true));
        assert!(filter.wants(&tagged(5)) && !filter.wants(&tagged(6)));
        assert!(filter.vlans().is_some_and(|v| v.eq([5, 4095])));
        assert!(filter.set_vlan(5, false) && !filter.wants(&tagged(5)));
        let mut none = Filter::new(OWN, false);
        assert!(
            !none.set_vlan(5, true),
            "the driver has not said that it tells VLANs"
        );
    }
}
