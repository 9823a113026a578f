//! A bond: 1 to 32 ports that act as one.
//!
//! A flow's hash names a *bucket*, the bucket's state the member. There are equally many buckets for each member, so that with
//! all members up a flow is on member *hash modulo members*, as with Linux. When a member comes or goes:
//!
//! | event | what happens |
//! |---|---|
//! | a member goes down | its buckets, and only they, move at once, spread over the members that live |
//! | a member comes back | it gets nothing for `failback_delay`; then its buckets, and only they, are to move back |
//! | a bucket is to move back | it moves when none of its frames is under way; if it never pauses, its frames are held |
//!
//! A frame is *under way* from when it is given to a port until `quiet` after it has left the port ([`Bond::departed`]).
//! `quiet` must exceed the difference in delay between the ways of two members; then frames on the new way cannot overtake (S.
//! Sinha, S. Kandula, D. Katabi, "Harnessing TCP's burstiness with flowlet switching", HotNets 2004). A bucket with many busy
//! flows may never pause: when it should have moved for `patience`, its frames are held until it may. That is at most what
//! waits in the port, and `quiet`. When a member dies, order is not kept: frames that it was given may still arrive.
//!
//! Active-backup is the same with one bucket: all frames move together, so that no address appears on two ports in turn.
//!
//! A member that comes up for the first time needs no delay: nobody saw it fail. If no member has been up for long enough,
//! those that live count.
//!
//! The place of a bucket follows from its number and from which members are up, not from what happened before.

mod affinity;
mod config;
mod slot;

use alloc::vec::Vec;
use core::time::Duration;

pub use affinity::{AFFINITIES_MAX, Affinity};
pub use config::{BondSettings, Mode};
pub use slot::SlotId;

use super::flows::{Flows, Seen};
use super::hash::{Modulo, Policy};
use super::{Flow, LagError, Member, refuse};
use crate::Instant;
use affinity::Affinities;
use slot::Slot;

/// Most buckets of all members together.
const BUCKETS_MAX: usize = 256;
/// Most slots of a bond: see [`SlotId::index`].
pub const SLOTS_MAX: usize = BUCKETS_MAX + AFFINITIES_MAX;
/// Later than anything.
const NEVER: Instant = Instant(u64::MAX);

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// To a member. When the frame has left the port, or was dropped there, [`Bond::departed`] is called with the slot.
    Send {
        /// The member.
        member: Member,
        /// The slot.
        slot: SlotId,
    },
    /// The frame's flow is about to move. The caller keeps it behind others of this slot, and asks again ([`Bond::retry`]) at
    /// this time or later; or drops it ([`Bond::give_up`]).
    Wait {
        /// When the frame may go, at the earliest.
        until: Instant,
        /// The slot.
        slot: SlotId,
    },
    /// Nowhere: no member is up.
    Nowhere,
}

/// State of a member.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    pub(super) link: bool,
    pub(super) collecting: bool,
    pub(super) distributing: bool,
    /// Whether the member was up before.
    seen: bool,
    /// When the member counts again after it came back.
    ready_at: Option<Instant>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// A bond of 1 to 32 ports.
#[derive(Debug, Clone)]
pub struct Bond {
    pub(super) settings: BondSettings,
    policy: Policy,
    pub(super) members: Vec<State>,
    /// Members that may send, a bit each.
    pub(super) alive: u32,
    /// Members that have been able to send for long enough, a bit each.
    pub(super) ready: u32,
    /// When the next member counts as ready.
    next_ready: Instant,
    buckets: Modulo,
    /// Slots of buckets, then of affinities.
    pub(super) slots: Vec<Slot>,
    pub(super) affinities: Affinities,
    /// In active-backup: whether the primary is preferred.
    to_primary: bool,
    moves: u64,
    flows: Flows,
}

impl Bond {
    /// A bond of `members` members, all of them down.
    pub fn new(members: usize, settings: BondSettings) -> Result<Bond, LagError> {
        settings.check(members)?;
        let (policy, buckets) = match settings.mode {
            Mode::Aggregate { policy, .. } => (policy, members * (BUCKETS_MAX / members)),
            Mode::ActiveBackup { .. } => (Policy::Layer2, 1),
        };
        Ok(Bond {
            settings,
            policy,
            members: alloc::vec![State::default(); members],
            alive: 0,
            ready: 0,
            next_ready: NEVER,
            buckets: Modulo::new(buckets as u32),
            slots: alloc::vec![Slot::default(); buckets],
            affinities: Affinities::default(),
            to_primary: true,
            moves: 0,
            flows: Flows::new(settings.flows),
        })
    }

    /// Settings of the bond.
    pub fn settings(&self) -> &BondSettings {
        &self.settings
    }

    /// Sets whether a member's link is up.
    pub fn set_link(&mut self, now: Instant, member: Member, up: bool) {
        if let Some(m) = self.members.get_mut(usize::from(member.0)) {
            m.link = up;
            self.update(now, member);
        }
    }

    /// Sets what link aggregation control says of a member (802.1AX-2014 clause 6.4.15); it counts if the mode asks for it.
    pub fn set_lacp(&mut self, now: Instant, member: Member, collecting: bool, distributing: bool) {
        if let Some(m) = self.members.get_mut(usize::from(member.0)) {
            (m.collecting, m.distributing) = (collecting, distributing);
            self.update(now, member);
        }
    }

    /// Whether frames from this member are taken. (LACP's own always are.) An aggregate takes frames from all members that are
    /// up, active-backup from the active one: frames of the others are copies, or meant for somebody else.
    #[inline]
    pub fn receives(&self, member: Member) -> bool {
        let Some(m) = self.members.get(usize::from(member.0)).filter(|m| m.link) else {
            return false;
        };
        match self.settings.mode {
            Mode::Aggregate { lacp, .. } => m.collecting || !lacp,
            Mode::ActiveBackup { .. } => self.active() == Some(member),
        }
    }

    /// The active member of active-backup.
    #[inline]
    pub fn active(&self) -> Option<Member> {
        match self.settings.mode {
            Mode::Aggregate { .. } => None,
            Mode::ActiveBackup { .. } => self.slots.first()?.member(),
        }
    }

    /// How often a slot moved to another member. When it changes in active-backup, neighbours must hear that addresses are
    /// behind another port.
    #[inline]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Recomputes whether a member may carry frames.
    fn update(&mut self, now: Instant, member: Member) {
        let lacp = matches!(self.settings.mode, Mode::Aggregate { lacp: true, .. });
        let bit = 1u32 << member.0;
        let m = &mut self.members[usize::from(member.0)];
        let usable = m.link && (m.distributing || !lacp);
        if usable == (self.alive & bit != 0) {
            return;
        }
        if usable {
            self.alive |= bit;
            if m.seen && !self.settings.failback_delay.is_zero() {
                m.ready_at = Some(now + self.settings.failback_delay);
            } else {
                self.ready |= bit;
            }
            m.seen = true;
        } else {
            self.alive &= !bit;
            self.ready &= !bit;
            m.ready_at = None;
            if let Mode::ActiveBackup { primary, failback } = self.settings.mode
                && primary == Some(member)
            {
                self.to_primary = failback;
            }
        }
        self.settle(now);
    }

    /// Makes members ready whose time has come.
    #[cold]
    fn promote(&mut self, now: Instant) {
        for (i, m) in self.members.iter_mut().enumerate() {
            if m.ready_at.is_some_and(|at| at <= now) {
                m.ready_at = None;
                self.ready |= 1 << i;
            }
        }
        self.settle(now);
    }

    /// Members came or went: every slot finds its member.
    fn settle(&mut self, now: Instant) {
        if self.ready == 0 && self.alive != 0 {
            self.ready = self.alive;
            for m in &mut self.members {
                m.ready_at = None;
            }
        }
        let waiting = self.members.iter().filter_map(|m| m.ready_at);
        self.next_ready = waiting.min().unwrap_or(NEVER);
        let force_at = match self.settings.patience {
            Some(patience) => now + patience,
            None => NEVER,
        };
        for i in 0..self.slots.len() {
            let to = self.place(i);
            let slot = &mut self.slots[i];
            let dead = slot.member().is_none_or(|m| self.alive & 1 << m.0 == 0);
            self.moves += u64::from(slot.aim(to, dead, force_at));
            slot.move_if_clear(now);
            self.moves += u64::from(core::mem::take(&mut slot.moved));
        }
    }

    /// The member that a slot belongs to, of those that are up.
    fn place(&self, slot: usize) -> Option<Member> {
        let buckets = self.buckets.divisor() as usize;
        if let Mode::ActiveBackup { primary, .. } = self.settings.mode {
            return self.backup(primary);
        }
        let members = self.members.len();
        match slot.checked_sub(buckets) {
            None => spread(
                members,
                slot % members,
                slot / members,
                buckets / members,
                self.ready,
            ),
            Some(i) => {
                let home = usize::from(self.affinities.member(i)?.0);
                spread(members, home, i, AFFINITIES_MAX, self.ready)
            }
        }
    }

    /// The active member: the primary, if it is preferred; otherwise the one that is active; otherwise the first.
    fn backup(&self, primary: Option<Member>) -> Option<Member> {
        let up = |mask: u32| move |m: &Member| mask & 1 << m.0 != 0;
        let preferred = primary.filter(|_| self.to_primary).filter(up(self.ready));
        let stays = self.slots.first().and_then(Slot::member).filter(up(self.alive));
        let first = || (self.ready != 0).then(|| Member(self.ready.trailing_zeros() as u8));
        preferred.or(stays).or_else(first)
    }

    /// Decides where a frame goes, and counts it there.
    #[inline]
    pub fn transmit(&mut self, now: Instant, flow: &Flow, bytes: u32) -> Choice {
        if now >= self.next_ready {
            self.promote(now);
        }
        let slot = self.slot_of(now, flow);
        let choice = self.choose(now, slot);
        self.count(now, flow, bytes, choice);
        choice
    }

    /// Asks again for a frame that waits. Callers ask for frames of one slot in the order in which they came.
    pub fn retry(&mut self, now: Instant, slot: SlotId, flow: &Flow, bytes: u32) -> Choice {
        if now >= self.next_ready {
            self.promote(now);
        }
        let i = slot.0 as usize;
        let Some(s) = self.slots.get_mut(i) else {
            return Choice::Nowhere;
        };
        let held = core::mem::take(&mut s.held);
        let leaves = s.leaves() && s.is_clear(now);
        let mut choice = if leaves {
            let bucket = self.bucket(flow);
            self.choose(now, bucket)
        } else {
            self.choose(now, i)
        };
        let waits = match &mut choice {
            // The frame waits for its new bucket, but still in this slot.
            Choice::Wait { slot: in_slot, .. } => {
                self.slots[in_slot.0 as usize].held -= 1;
                *in_slot = slot;
                true
            }
            _ => false,
        };
        self.slots[i].held = held.saturating_sub(u32::from(!waits));
        self.forget(now, i);
        self.count(now, flow, bytes, choice);
        choice
    }

    /// A frame that waits was dropped.
    pub fn give_up(&mut self, now: Instant, slot: SlotId) {
        if let Some(s) = self.slots.get_mut(slot.0 as usize) {
            s.held = s.held.saturating_sub(1);
            self.forget(now, slot.0 as usize);
        }
    }

    /// A frame has left the port that it was given to, or was dropped there.
    #[inline]
    pub fn departed(&mut self, now: Instant, slot: SlotId) {
        if let Some(s) = self.slots.get_mut(slot.0 as usize) {
            s.departed(now + self.settings.quiet);
        }
    }

    /// All frames of a slot that were given to ports have left them, or were dropped there; for callers that count frames
    /// themselves.
    #[inline]
    pub fn all_departed(&mut self, now: Instant, slot: SlotId) {
        if let Some(s) = self.slots.get_mut(slot.0 as usize) {
            s.waiting = 0;
            s.departed(now + self.settings.quiet);
        }
    }

    #[inline]
    fn bucket(&self, flow: &Flow) -> usize {
        self.buckets.of(self.policy.hash(flow)) as usize
    }

    #[inline]
    fn slot_of(&mut self, now: Instant, flow: &Flow) -> usize {
        if !self.affinities.is_empty()
            && let Some(i) = self.affinities.find(flow)
            && !self.forget(now, i)
        {
            return i;
        }
        self.bucket(flow)
    }

    #[inline]
    fn choose(&mut self, now: Instant, i: usize) -> Choice {
        let Some(slot) = self.slots.get_mut(i) else {
            return Choice::Nowhere;
        };
        let id = SlotId(i as u32);
        if slot.is_settled()
            && slot.held == 0
            && let Some(member) = slot.member()
        {
            slot.waiting += 1;
            return Choice::Send { member, slot: id };
        }
        self.choose_moving(now, i)
    }

    #[cold]
    fn choose_moving(&mut self, now: Instant, i: usize) -> Choice {
        let quiet = self.settings.quiet;
        let slot = &mut self.slots[i];
        let id = SlotId(i as u32);
        if slot.is_aimless() {
            return Choice::Nowhere;
        }
        // The frame is behind others that wait, or its slot moves by an operator's word, or has not paused for too long.
        if slot.held > 0 || slot.leaves() || !slot.move_if_clear(now) && slot.must_wait(now) {
            slot.held += 1;
            let until = slot.clear_at(now, quiet);
            return Choice::Wait { until, slot: id };
        }
        self.moves += u64::from(core::mem::take(&mut slot.moved));
        match slot.member() {
            Some(member) => {
                slot.waiting += 1;
                Choice::Send { member, slot: id }
            }
            None => Choice::Nowhere,
        }
    }

    #[inline]
    fn count(&mut self, now: Instant, flow: &Flow, bytes: u32, choice: Choice) {
        if let Choice::Send { member, .. } = choice
            && let Some(m) = self.members.get_mut(usize::from(member.0))
        {
            m.packets += 1;
            m.bytes += u64::from(bytes);
            self.flows.note(now, flow, member, bytes);
        }
    }

    /// Removes an affinity that is to go, if none of its frames is under way.
    fn forget(&mut self, now: Instant, i: usize) -> bool {
        let slot = &self.slots[i];
        if !slot.leaves() || slot.held > 0 || !slot.is_clear(now) {
            return false;
        }
        self.affinities.remove(i);
        self.slots[i] = Slot::default();
        true
    }

    /// Does what is due without a frame, at [`Bond::next_time`].
    pub fn tick(&mut self, now: Instant) {
        if now >= self.next_ready {
            self.promote(now);
        }
        for i in 0..self.slots.len() {
            if !self.slots[i].is_settled() && !self.forget(now, i) {
                self.slots[i].move_if_clear(now);
                self.moves += u64::from(core::mem::take(&mut self.slots[i].moved));
            }
        }
    }

    /// When there is something to do without a frame, at the earliest.
    pub fn next_time(&self) -> Option<Instant> {
        let moving = self.slots.iter().filter(|s| !s.is_settled());
        let moving = moving.filter_map(Slot::wakes);
        let ready = Some(self.next_ready).filter(|at| *at != NEVER);
        moving.chain(ready).min()
    }

    /// Whether a slot is to move, or a member is to count soon. Otherwise nothing is due until an event comes.
    pub fn is_moving(&self) -> bool {
        self.next_ready != NEVER || self.slots.iter().any(|s| !s.is_settled())
    }

    /// Sends frames that match by a member, as long as it is up. They wait for `quiet` first, so that none overtakes one that
    /// went another way before (except one that waits in a port for longer).
    pub fn set_affinity(&mut self, now: Instant, what: Affinity, member: Member) -> Result<(), LagError> {
        if matches!(self.settings.mode, Mode::ActiveBackup { .. }) {
            let problem = "only an aggregate has it; in active-backup all frames go by the active member";
            return refuse("affinity", problem);
        }
        if usize::from(member.0) >= self.members.len() {
            let (is, most) = (member.0, self.members.len() - 1);
            return refuse("member", alloc::format!("{is}; allowed: 0 to {most}"));
        }
        let buckets = self.buckets.divisor() as usize;
        let (i, is_new) = self.affinities.set(buckets, what, member)?;
        if is_new {
            let slot = Slot::fresh(now + self.settings.quiet);
            match self.slots.get_mut(i) {
                Some(s) => *s = slot,
                None => self.slots.push(slot),
            }
        }
        let to = self.place(i);
        let slot = &mut self.slots[i];
        slot.set_leaves(false);
        slot.aim(to, false, now);
        Ok(())
    }

    /// Removes an affinity: its frames go by their hash again, as soon as none is under way. False: there was no such
    /// affinity.
    pub fn remove_affinity(&mut self, now: Instant, what: Affinity) -> bool {
        let Some(i) = self.affinities.slot(what) else {
            return false;
        };
        let there = self.slots[i].set_leaves(true);
        self.forget(now, i);
        there
    }

    /// The member that frames of a flow take now; nothing is counted, nothing moves.
    pub fn member_of(&self, flow: &Flow) -> Option<Member> {
        let slot = self.affinities.find(flow).unwrap_or_else(|| self.bucket(flow));
        let slot = self.slots.get(slot)?;
        slot.member().or(slot.wanted())
    }

    /// Flows that were seen lately.
    pub(super) fn seen(&self, now: Instant) -> impl Iterator<Item = &Seen> {
        self.flows.seen(now)
    }

    pub(super) fn unseen(&self) -> u64 {
        self.flows.unseen()
    }

    /// Buckets, without affinities.
    pub(super) fn buckets(&self) -> &[Slot] {
        &self.slots[..self.buckets.divisor() as usize]
    }

    /// Time that a member still has to be up until it counts.
    pub(super) fn ready_in(&self, now: Instant, member: Member) -> Option<Duration> {
        let at = self.members.get(usize::from(member.0))?.ready_at?;
        Some(at.since(now))
    }
}

/// The member for slot number `nth` of the `slots` that are at home at member `home`: the home, or the first member of a list
/// of the others that is up. The list begins with each of the others for equally many slots of a home, and goes on by chance,
/// so that slots of a dead member are spread over all. It does not depend on which members are up, so that no slot moves
/// without need.
fn spread(members: usize, home: usize, nth: usize, slots: usize, up: u32) -> Option<Member> {
    let is_up = |m: usize| up & 1 << m != 0;
    if is_up(home) {
        return Some(Member(home as u8));
    }
    let others = members - 1;
    let first = if slots < others {
        nth * others / slots
    } else {
        nth.checked_rem(others)?
    };
    // Multiplications and shifts of MurmurHash3's finalizer (A. Appleby).
    let mut chance = (home as u32) << 16 ^ nth as u32;
    for multiplier in [0x85eb_ca6b, 0xc2b2_ae35] {
        chance = (chance ^ chance >> 15).wrapping_mul(multiplier);
    }
    let (mut tried, mut digits) = (1u32 << home, first as u64 + others as u64 * u64::from(chance));
    for left in (1..members as u64).rev() {
        let skip = digits % left;
        digits /= left;
        let others = (1..members).map(|i| (home + i) % members);
        let next = others.filter(|m| tried & 1 << m == 0).nth(skip as usize)?;
        if is_up(next) {
            return Some(Member(next as u8));
        }
        tried |= 1 << next;
    }
    None
}

#[cfg(test)]
mod tests;
