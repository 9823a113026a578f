//! The GID table of an adapter follows its guest's addresses.
//!
//! A NIC with a driver is told which addresses its interfaces have. This one listens to what the guest sends (ARP,
//! neighbour discovery, router solicitations) and to what DHCP servers answer it, and asks the guest when it has heard
//! nothing of an address for a while, because it cannot see an address being removed.
//!
//! ```text
//!  index 0, 1   link-local GID of the Ethernet address, RoCEv1 and RoCEv2: always there
//!  from 2 on    two entries for each address: RoCEv1 at the lowest free index, then RoCEv2
//!  anywhere     what the operator or the driver has put there: it stays, others give way
//! ```
//!
//! An entry keeps its index while its address lives. Only the guest's word counts: an address that a DHCP server has
//! given or that the guest is still probing (RFC 4862 section 5.4) is asked for first. Addresses of other interfaces
//! (frames with another Ethernet source, nested VLAN tags) are none of this adapter's.
//!
//! A guest that claims addresses without end gets [`ADDRESSES_MAX`]; further ones are refused, so that those that are
//! used stay. Room comes back when claimed addresses do not answer.

mod addresses;
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
use hear::Heard;
use table::Table;

/// Addresses that are learned at most, if the table has room for two entries of each.
pub const ADDRESSES_MAX: usize = 128;
/// After so long without a sign of life an address is asked for.
pub const QUIET: Duration = Duration::from_secs(30);
/// So long an answer is waited for.
pub const ANSWER: Duration = Duration::from_secs(1);
/// After so many questions without an answer an address is gone.
pub const QUESTIONS: u8 = 3;
/// So long after it was announced an address is asked for that the guest must test first: a little more than one
/// retransmission time of duplicate address detection (RFC 4861 section 10).
pub const TESTING: Duration = Duration::from_millis(1500);
/// Ordinary frames are looked at for known sources only so often.
const LOOK: Duration = Duration::from_millis(1);

/// Where an entry of a GID table comes from.
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

    /// The name for people and scripts.
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

    /// Learned from traffic: such entries age.
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
        /// What was asked for.
        index: u16,
        /// Entries of the table.
        len: u16,
    },
    /// Not an address that an interface can have.
    #[error("not a unicast address: unspecified, loopback and multicast addresses belong to no interface")]
    NotUnicast,
    /// No VLAN has this number.
    #[error("{0}; allowed are 1 to 4094")]
    Vlan(u16),
    /// The Ethernet address of an entry is not the adapter's.
    #[error("{0} is not the adapter's Ethernet address; allowed are the adapter's and zeros, which mean it")]
    Mac(MacAddr),
    /// The same GID, kind and VLAN is at another index.
    #[error("the GID is at index {0} already")]
    Exists(u16),
    /// Nothing is at the index.
    #[error("no GID is at index {0}")]
    Empty(u16),
    /// Whoever asks may not change what is at the index.
    #[error("the entry at index {index} comes from {}; {cure}", holder.name())]
    Held {
        /// The index.
        index: u16,
        /// Who put it there.
        holder: GidSource,
        /// What to do instead.
        cure: &'static str,
    },
    /// None of the adapter's `allowed_addresses`.
    #[error("{0} is none of the adapter's allowed_addresses")]
    NotAllowed(Gid),
    /// The adapter's `roce_mode` has no such entries.
    #[error("the adapter's roce_mode has no GIDs of this kind")]
    Kind,
    /// No index is free.
    #[error("no entry is free: all {0} are in use")]
    Full(u16),
    /// To clear an entry one must name it.
    #[error("an index is needed to clear an entry")]
    NoIndex,
}

/// Keeps the GID table of an adapter true to its guest's addresses. Sans-I/O: told of frames and time, it gives frames
/// for the guest ([`GidLearner::poll`]) and changes for the device ([`GidLearner::changes`]).
#[derive(Debug)]
pub struct GidLearner {
    mac: MacAddr,
    nic: MacAddr,
    table: Table,
    addresses: Addresses,
    /// Ordinary frames are not looked at before.
    next_look: Instant,
    /// What the guest may claim; empty: anything.
    allowed: Vec<Prefix>,
}

impl GidLearner {
    /// For an adapter with this Ethernet address and a device with a table of this length. The adapter's own entries
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

    /// The guest may claim these addresses only, and the one made of its Ethernet address; none given: any. For a learner that
    /// has not learned yet. The operator may set others.
    pub fn restrict(&mut self, allowed: &[Prefix]) {
        self.allowed = allowed.to_vec();
    }

    fn may_claim(&self, gid: Gid) -> bool {
        let listed = self.allowed.is_empty() || self.allowed.iter().any(|p| p.contains(gid));
        listed || gid == Gid::from_mac(self.mac)
    }

    /// The Ethernet address with which questions are asked: locally administered, and not the adapter's.
    pub fn nic_mac(&self) -> MacAddr {
        self.nic
    }

    /// The guest sends a frame; `head` is its beginning. 46 bytes are enough for ARP, 82 for neighbour discovery. True
    /// when the frame answers a question of ours: it is for nobody else and need not be forwarded.
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

    /// The guest is sent a frame; `head` is its beginning. 86 bytes are enough to see an address given by DHCP; with
    /// more than 282 also an offer is told from an acknowledgement.
    #[inline]
    pub fn received(&mut self, now: Instant, head: &[u8]) {
        if hear::maybe_dhcp(head)
            && let Some((gid, vlan)) = hear::given(head, self.mac)
            && self.may_claim(gid)
        {
            self.addresses.given(gid, vlan, now + ANSWER);
        }
    }

    /// The guest's driver, or the guest, is gone: what was learned is forgotten. What the operator and the driver have
    /// set stays; see [`GidLearner::driver_down`].
    pub fn guest_down(&mut self, _now: Instant) {
        self.next_look = Instant(0);
        if self.addresses.clear() {
            self.place();
        }
    }

    /// The driver of the RDMA function is gone: what it has set is cleared.
    pub fn driver_down(&mut self) {
        if self.table.forget_driver() {
            self.place();
        }
    }

    /// Entries of these kinds only from now on. What the operator and the driver have set of others is hidden as long.
    pub fn allow(&mut self, kinds: &[GidKind]) {
        if self.table.allow(kinds) {
            self.place();
        }
    }

    /// The device was made anew, with an empty table: [`GidLearner::changes`] begins from nothing.
    pub fn retell(&mut self) {
        self.table.retell();
    }

    /// Asks for addresses that have been quiet, and forgets those that do not answer. `emit` takes frames for the
    /// guest.
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

    /// Somebody else says that it has an address of the guest: [`GidLearner::poll`] asks the guest at once. Whoever has
    /// moved an address need not wait until it has been quiet for long.
    pub fn doubt(&mut self, now: Instant) {
        self.addresses.doubt(now);
    }

    /// When [`GidLearner::poll`] has something to do.
    pub fn next_time(&self) -> Option<Instant> {
        self.addresses.next_time()
    }

    /// Is there something in [`GidLearner::changes`]?
    #[inline]
    pub fn changed(&self) -> bool {
        self.table.changed()
    }

    /// What has changed since the last call, in an order in which no GID is in the table twice: an index that changes
    /// hands is cleared first.
    pub fn changes(&mut self) -> impl Iterator<Item = (u16, Option<GidEntry>)> + use<> {
        self.table.changes().into_iter()
    }

    /// Fills an entry, or clears one, and answers its index. `by` is [`GidSource::Driver`] or [`GidSource::Operator`]
    /// (any other means the operator). A driver cannot change what the operator has set; nobody can clear the
    /// adapter's own entries, but both can cover them.
    ///
    /// A new entry without an index gets the one where its GID was learned, or the lowest free one. A learned entry
    /// gives way: to the same GID at another index by vanishing, to another GID at its index by moving. Clearing a
    /// learned entry forgets its address, with both its entries, until the guest shows again that it has it. To clear
    /// what is empty is an error for the operator, and nothing for a driver (SPEC section 5.4).
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
                    // Always there.
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

/// Does this frame of a guest only answer a question of its NIC's? For callers that cannot wait for
/// [`GidLearner::sent`] to say so. It is for nobody else: a switch would flood it.
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

/// An address that an interface can have: neither unspecified, loopback, multicast, broadcast nor reserved (RFC 6890).
fn usable(gid: Gid) -> bool {
    const LOOPBACK: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    match gid.to_ipv4() {
        Some([a, ..]) => a != 0 && a != 127 && a < 224,
        None => gid != Gid::UNSPECIFIED && gid != LOOPBACK && !gid.is_multicast(),
    }
}

/// The two entries of an address.
const KINDS: [GidKind; 2] = [GidKind::RoceV1, GidKind::RoceV2];
