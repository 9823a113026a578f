//! The addresses that the guest is known, or thought, to have, and when to ask for them.

use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

use super::{ANSWER, GidSource, QUESTIONS, QUIET};

/// An address of the guest.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub gid: Gid,
    pub vlan: Option<u16>,
    pub source: GidSource,
    /// Whether the guest has said that it has the address. Others have no entries yet.
    pub sure: bool,
    /// Indices of the address's two entries, if it has them.
    pub at: [Option<u16>; 2],
    /// Questions without an answer.
    asked: u8,
    /// When the next question is due.
    due: Instant,
}

/// Key of an address.
pub(super) type Key = (Gid, Option<u16>);

/// All addresses of a guest.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    all: Vec<Address>,
    room: usize,
    refused: u64,
    /// A time that is not later than the first `due`.
    next: Option<Instant>,
}

impl Addresses {
    /// No addresses, with room for `room`.
    pub fn new(room: usize) -> Addresses {
        Addresses {
            all: Vec::new(),
            room,
            refused: 0,
            next: None,
        }
    }

    /// The guest says that it has this address. True: that is news.
    pub fn has(&mut self, now: Instant, gid: Gid, vlan: Option<u16>, source: GidSource) -> bool {
        let due = now + QUIET;
        if let Some(a) = self.find(gid, vlan) {
            (a.asked, a.due) = (0, due);
            let news = !a.sure;
            a.sure = true;
            self.soon(due);
            if news {
                self.doubt_others(now, gid, vlan);
            }
            return news;
        }
        if !self.add(gid, vlan, source, true, due) {
            return false;
        }
        self.doubt_others(now, gid, vlan);
        true
    }

    /// A frame of the guest comes from this address. True: that is news, which it is if the address was not sure.
    pub fn uses(&mut self, now: Instant, gid: Gid, vlan: Option<u16>) -> bool {
        match self.find(gid, vlan).map(|a| a.source) {
            Some(source) => self.has(now, gid, vlan, source),
            None => false,
        }
    }

    /// The guest tests whether it may have this address, and is asked for it at `due`.
    pub fn tests(&mut self, gid: Gid, vlan: Option<u16>, due: Instant) {
        match self.find(gid, vlan) {
            // The guest tests it again: it will take longer.
            Some(a) if !a.sure => (a.asked, a.due) = (0, due),
            // The address was taken away and given again meanwhile.
            Some(_) => {}
            None => {
                self.add(gid, vlan, GidSource::Nd, false, due);
            }
        }
    }

    /// A DHCP server has given the guest this address, which the guest is asked for at `due`. There is one such
    /// address at a time, so that no forger of DHCP answers can fill the guest's table.
    pub fn given(&mut self, gid: Gid, vlan: Option<u16>, due: Instant) {
        if self.find(gid, vlan).is_some() {
            return;
        }
        self.all.retain(|a| a.sure || a.source != GidSource::Dhcp);
        self.add(gid, vlan, GidSource::Dhcp, false, due);
    }

    /// Forgets all addresses. True: that changes the table.
    pub fn clear(&mut self) -> bool {
        let had = self.all.iter().any(|a| a.sure);
        self.all.clear();
        self.next = None;
        had
    }

    /// Forgets an address.
    pub fn forget(&mut self, (gid, vlan): Key) {
        self.all.retain(|a| a.gid != gid || a.vlan != vlan);
    }

    /// When [`Addresses::poll`] has something to do.
    #[inline]
    pub fn next_time(&self) -> Option<Instant> {
        self.next
    }

    /// Asks for addresses that are due, and forgets those that have been asked for often enough. True: that changes
    /// the table.
    pub fn poll(&mut self, now: Instant, ask: &mut dyn FnMut(&Address)) -> bool {
        let mut changed = false;
        self.all.retain_mut(|a| {
            if a.due > now {
                return true;
            }
            if a.asked >= QUESTIONS {
                changed |= a.sure;
                return false;
            }
            a.asked += 1;
            a.due = now + ANSWER;
            ask(a);
            true
        });
        self.next = self.all.iter().map(|a| a.due).min();
        changed
    }

    /// Addresses that have entries.
    pub fn known(&mut self) -> &mut [Address] {
        // Sorted: sure addresses come first, each kind in the order in which it was heard of.
        self.all.sort_by_key(|a| !a.sure);
        let sure = self.all.partition_point(|a| a.sure);
        &mut self.all[..sure]
    }

    /// Addresses that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn find(&mut self, gid: Gid, vlan: Option<u16>) -> Option<&mut Address> {
        self.all.iter_mut().find(|a| a.gid == gid && a.vlan == vlan)
    }

    fn add(&mut self, gid: Gid, vlan: Option<u16>, source: GidSource, sure: bool, due: Instant) -> bool {
        if self.all.len() >= self.room {
            self.refused += 1;
            return false;
        }
        self.all.push(Address {
            gid,
            vlan,
            source,
            sure,
            at: [None; 2],
            asked: 0,
            due,
        });
        self.soon(due);
        true
    }

    /// Asks for the other addresses of an interface that has a new one, which may replace them (when the guest has
    /// had time to finish).
    fn doubt_others(&mut self, now: Instant, gid: Gid, vlan: Option<u16>) {
        let due = now + Duration::from_secs(1);
        let family = |g: Gid| (g.to_ipv4().is_some(), g.0[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        let like = family(gid);
        for a in &mut self.all {
            if a.gid != gid && a.vlan == vlan && family(a.gid) == like && a.sure {
                a.due = a.due.min(due);
            }
        }
        self.soon(due);
    }

    /// Another station says that it has one of them: asks at once for all that are not being asked for.
    pub fn doubt(&mut self, now: Instant) {
        for a in self.all.iter_mut().filter(|a| a.asked == 0) {
            a.due = a.due.min(now);
        }
        self.soon(now);
    }

    fn soon(&mut self, due: Instant) {
        self.next = Some(self.next.map_or(due, |n| n.min(due)));
    }
}
