//! The GID table of an adapter follows its guest's addresses.
//!
//! The driver of a NIC learns from its kernel which addresses its interfaces have. This table listens to what the guest sends
//! (ARP, neighbour discovery, router solicitations) and to what DHCP servers answer the guest, and asks the guest when it has
//! heard nothing of an address for a while, because it cannot see an address being removed.
//!
//! ```text
//!  index 0, 1   link-local GID of the Ethernet address, RoCEv1 and RoCEv2: always there
//!  from 2 on    two entries for each address: RoCEv1 at the lowest free index, then RoCEv2
//!  anywhere     what the operator or the driver has put there: it stays, others give way
//! ```
//!
//! An entry keeps its index while its address lives. Only the guest's word counts: the table first asks for an address that a
//! DHCP server has given or that the guest is still probing (RFC 4862 section 5.4). Addresses of other interfaces (frames with
//! another Ethernet source, nested VLAN tags) are none of this adapter's.
//!
//! A guest that claims addresses without end gets [`ADDRESSES_MAX`]; further ones are refused, so that those in use stay. Room
//! comes back when claimed addresses do not answer.

mod addresses;
mod answer;
mod ask;
mod hear;
mod table;

use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::prefix::Prefix;
use vnic_wire::time::Instant;

use crate::rdma::{GidEntry, GidKind};
use addresses::{Address, Addresses};
pub use answer::{answer, may_ask};
use hear::Heard;
use table::Table;

/// Most addresses that are learned, if the table has room for two entries of each.
pub const ADDRESSES_MAX: usize = 128;
/// Time without a sign of life after which the guest is asked for an address.
pub const QUIET: Duration = Duration::from_secs(30);
/// Time that the guest has for an answer.
pub const ANSWER: Duration = Duration::from_secs(1);
/// Questions without an answer after which an address is gone.
pub const QUESTIONS: u8 = 3;
/// Time after its announcement at which the guest is asked for an address that it must test first: a little more than one
/// retransmission time of duplicate address detection (RFC 4861 section 10).
pub const TESTING: Duration = Duration::from_millis(1500);
/// Time between two looks at sources of ordinary frames.
const LOOK: Duration = Duration::from_millis(1);

/// Origin of an entry of a GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GidSource {
    /// The adapter's Ethernet address.
    Mac,
    /// ARP of the guest.
    Arp,
    /// Neighbour discovery of the guest.
    Nd,
    /// A DHCP server's answer to the guest.
    Dhcp,
    /// The operator.
    Operator,
    /// The driver of the RDMA function (SPEC section 5.3, SET_GID).
    Driver,
}

impl GidSource {
    /// Every source.
    pub const ALL: [GidSource; 6] = [
        GidSource::Mac,
        GidSource::Arp,
        GidSource::Nd,
        GidSource::Dhcp,
        GidSource::Operator,
        GidSource::Driver,
    ];

    /// Name for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            GidSource::Mac => "mac",
            GidSource::Arp => "arp",
            GidSource::Nd => "nd",
            GidSource::Dhcp => "dhcp",
            GidSource::Operator => "operator",
            GidSource::Driver => "driver",
        }
    }

    /// Whether the entry was learned from traffic: such entries age.
    pub const fn is_learned(self) -> bool {
        matches!(self, GidSource::Arp | GidSource::Nd | GidSource::Dhcp)
    }
}

/// Why an entry cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GidError {
    /// There is no such index.
    #[error("{index}; the table has {len} entries, allowed are 0 to {}", len.saturating_sub(1))]
    Index {
        /// The index that was asked for.
        index: u16,
        /// Entries of the table.
        len: u16,
    },
    /// The GID is not an address that an interface can have.
    #[error("not a unicast address: unspecified, loopback and multicast addresses belong to no interface")]
    NotUnicast,
    /// The number is none of a VLAN.
    #[error("{0}; allowed are 1 to 4094")]
    Vlan(u16),
    /// The Ethernet address of an entry is not the adapter's.
    #[error("{0} is not the adapter's Ethernet address; allowed are the adapter's and zeros, which mean it")]
    Mac(MacAddr),
    /// The same GID, kind and VLAN is at another index.
    #[error("the GID is at index {0} already")]
    Exists(u16),
    /// The index is empty.
    #[error("no GID is at index {0}")]
    Empty(u16),
    /// The caller may not change the entry at the index.
    #[error("the entry at index {index} comes from {}; {cure}", holder.name())]
    Held {
        /// The index.
        index: u16,
        /// Origin of the entry there.
        holder: GidSource,
        /// What to do instead.
        cure: &'static str,
    },
    /// The GID is none of the adapter's `allowed_addresses`.
    #[error("{0} is none of the adapter's allowed_addresses")]
    NotAllowed(Gid),
    /// The adapter's `roce_mode` has no entries of this kind.
    #[error("the adapter's roce_mode has no GIDs of this kind")]
    Kind,
    /// No index is free.
    #[error("no entry is free: all {0} are in use")]
    Full(u16),
    /// Clearing an entry needs an index.
    #[error("an index is needed to clear an entry")]
    NoIndex,
}

/// Keeps the GID table of an adapter true to its guest's addresses. Sans-I/O: frames and time go in, frames for the guest
/// ([`GidLearner::poll`]) and changes for the device ([`GidLearner::changes`]) come out.
#[derive(Debug, Clone)]
pub struct GidLearner {
    mac: MacAddr,
    nic: MacAddr,
    table: Table,
    addresses: Addresses,
    /// Time of the next look at ordinary frames.
    next_look: Instant,
    /// Addresses that the guest may claim; empty: any.
    allowed: Vec<Prefix>,
}

impl GidLearner {
    /// A learner for an adapter with this Ethernet address and a device with a table of this length. The adapter's own entries
    /// are the first [`GidLearner::changes`].
    pub fn new(mac: MacAddr, table_len: u16) -> GidLearner {
        let room = usize::from(table_len).saturating_sub(2) / 2;
        let mut learner = GidLearner {
            mac,
            nic: ask::nic_mac(mac),
            table: Table::new(mac, table_len),
            addresses: Addresses::new(room.min(ADDRESSES_MAX)),
            next_look: Instant(0),
            allowed: Vec::new(),
        };
        learner.table.place(&mut []);
        learner
    }

    /// Lets the guest claim only these addresses, and the one made of its Ethernet address; without any, all. Call it before
    /// the learner has learned anything. The operator may set others.
    pub fn restrict(&mut self, allowed: &[Prefix]) {
        self.allowed = allowed.to_vec();
    }

    fn may_claim(&self, gid: Gid) -> bool {
        let listed = self.allowed.is_empty() || self.allowed.iter().any(|p| p.contains(gid));
        listed || gid == Gid::from_mac(self.mac)
    }

    /// Ethernet address of questions: locally administered, and not the adapter's.
    pub fn nic_mac(&self) -> MacAddr {
        self.nic
    }

    /// The guest sends a frame, which begins with `head`. 46 bytes are enough for ARP, 82 for neighbour discovery. True when
    /// the frame answers a question of ours: it is for nobody else and need not be forwarded.
    #[inline]
    pub fn sent(&mut self, now: Instant, head: &[u8]) -> bool {
        // An ordinary frame: a look at its type and at the time.
        if !hear::telling(head) {
            if now < self.next_look {
                return false;
            }
            self.next_look = now + LOOK;
        }
        self.listen(now, head)
    }

    /// The guest is sent a frame, which begins with `head`. 86 bytes are enough to see an address given by DHCP; more than 282
    /// also tell an offer from an acknowledgement.
    #[inline]
    pub fn received(&mut self, now: Instant, head: &[u8]) {
        if hear::maybe_dhcp(head)
            && let Some((gid, vlan)) = hear::given(head, self.mac)
            && self.may_claim(gid)
        {
            self.addresses.given(gid, vlan, now + ANSWER);
        }
    }

    /// The guest's driver, or the guest, is gone: learned entries are forgotten. Entries of the operator and the driver stay;
    /// see [`GidLearner::driver_down`].
    pub fn guest_down(&mut self, _now: Instant) {
        self.next_look = Instant(0);
        if self.addresses.clear() {
            self.place();
        }
    }

    /// The driver of the RDMA function is gone: its entries are cleared.
    pub fn driver_down(&mut self) {
        if self.table.forget_driver() {
            self.place();
        }
    }

    /// Allows entries of these kinds only. Entries of the operator and the driver of other kinds are hidden as long.
    pub fn allow(&mut self, kinds: &[GidKind]) {
        if self.table.allow(kinds) {
            self.place();
        }
    }

    /// The device was made anew, with an empty table: [`GidLearner::changes`] begins from nothing.
    pub fn retell(&mut self) {
        self.table.retell();
    }

    /// Asks for addresses that have been quiet, and forgets those that do not answer. `emit` takes frames for the guest.
    #[inline]
    pub fn poll(&mut self, now: Instant, emit: &mut dyn FnMut(&[u8])) {
        if self.addresses.next_time().is_some_and(|t| t <= now) {
            let (mac, nic) = (self.mac, self.nic);
            let mut ask = |a: &Address| ask::frame(nic, mac, a.gid, a.vlan, emit);
            if self.addresses.poll(now, &mut ask) {
                self.place();
            }
        }
    }

    /// Another station says that it has an address of the guest: [`GidLearner::poll`] asks the guest at once. So an address
    /// that has moved is not kept until it has been quiet for long.
    pub fn doubt(&mut self, now: Instant) {
        self.addresses.doubt(now);
    }

    /// When [`GidLearner::poll`] has something to do.
    pub fn next_time(&self) -> Option<Instant> {
        self.addresses.next_time()
    }

    /// Whether there is something in [`GidLearner::changes`].
    #[inline]
    pub fn changed(&self) -> bool {
        self.table.changed()
    }

    /// Changes since the last call, in an order in which no GID is in the table twice: an index that changes hands is cleared
    /// first.
    pub fn changes(&mut self) -> impl Iterator<Item = (u16, Option<GidEntry>)> + use<> {
        self.table.changes().into_iter()
    }

    /// Fills an entry, or clears one, and returns its index. `by` is [`GidSource::Driver`] or [`GidSource::Operator`] (any
    /// other means the operator). A driver cannot change an entry of the operator; nobody can clear the adapter's own entries,
    /// but both can cover them.
    ///
    /// A new entry without an index gets the one where its GID was learned, or the lowest free one. A learned entry gives way:
    /// to the same GID at another index by vanishing, to another GID at its index by moving. Clearing a learned entry forgets
    /// its address, with both its entries, until the guest shows again that it has it. Clearing an empty index is an error for
    /// the operator, and nothing for a driver (SPEC section 5.4).
    pub fn set(
        &mut self,
        index: Option<u16>,
        entry: Option<GidEntry>,
        by: GidSource,
    ) -> Result<u16, GidError> {
        let by = match by {
            GidSource::Driver => GidSource::Driver,
            _ => GidSource::Operator,
        };
        let at = match entry {
            Some(entry) if by == GidSource::Driver && !self.may_claim(entry.gid) => {
                return Err(GidError::NotAllowed(entry.gid));
            }
            Some(entry) => self.table.fill(index, entry, by)?,
            None => {
                let at = index.ok_or(GidError::NoIndex)?;
                if let Some(key) = self.table.clear(at, by)? {
                    self.addresses.forget(key);
                }
                at
            }
        };
        self.place();
        Ok(at)
    }

    /// Filled entries by index.
    pub fn entries(&self) -> impl Iterator<Item = (u16, GidEntry, GidSource)> {
        self.table.entries()
    }

    /// Addresses that were refused because there was no room.
    pub fn refused(&self) -> u64 {
        self.addresses.refused()
    }

    fn place(&mut self) {
        self.table.place(self.addresses.known());
    }

    /// Not inlined: ordinary frames do not come here.
    #[inline(never)]
    fn listen(&mut self, now: Instant, head: &[u8]) -> bool {
        let Some(frame) = hear::outer(head).filter(|f| f.source == self.mac) else {
            return false;
        };
        let vlan = frame.vlan;
        let mut new = false;
        match hear::hear(&frame, self.mac) {
            Heard::Has(source, gids) => {
                for gid in gids.into_iter().flatten().filter(|g| usable(*g)) {
                    // There always is one.
                    let own = vlan.is_none() && gid == Gid::from_mac(self.mac);
                    if !own && self.may_claim(gid) {
                        new |= self.addresses.has(now, gid, vlan, source);
                    }
                }
            }
            Heard::Tests(gid) if usable(gid) && self.may_claim(gid) => {
                self.addresses.tests(gid, vlan, now + TESTING)
            }
            Heard::Uses(gid) => new = self.addresses.uses(now, gid, vlan),
            _ => {}
        }
        if new {
            self.place();
        }
        frame.destination == self.nic && frame.asked_for
    }
}

/// Whether a guest's frame only answers a question of its NIC, for callers that cannot wait for [`GidLearner::sent`]. Such a
/// frame is for nobody else: a switch would flood it.
#[inline]
pub fn is_answer(head: &[u8]) -> bool {
    let (Some(destination), Some(source)) = (mac_at(head, 0), mac_at(head, 6)) else {
        return false;
    };
    destination == ask::nic_mac(source) && hear::telling(head)
}

#[inline]
fn mac_at(head: &[u8], at: usize) -> Option<MacAddr> {
    Some(MacAddr(*head.get(at..)?.first_chunk()?))
}

/// Whether an interface can have the address: it is neither unspecified, loopback, multicast, broadcast nor reserved (RFC
/// 6890).
fn usable(gid: Gid) -> bool {
    const LOOPBACK: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    match gid.to_ipv4() {
        Some([a, ..]) => a != 0 && a != 127 && a < 224,
        None => gid != Gid::UNSPECIFIED && gid != LOOPBACK && !gid.is_multicast(),
    }
}

/// Kinds of the two entries of an address.
const KINDS: [GidKind; 2] = [GidKind::RoceV1, GidKind::RoceV2];
