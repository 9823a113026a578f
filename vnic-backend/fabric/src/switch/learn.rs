//! Learning, ageing and the exchange of learned addresses between the copies of the switch
//! (IEEE 802.1Q clauses 8.7 and 8.8.3).

use core::time::Duration;
use vnic_wire::MacAddr;

use super::fdb::{BUCKETS, Entry, Key, Kind, Slot};
use super::port::LastSource;
use super::updates::FdbUpdate;
use super::{Loop, PortId, Switch};
use crate::Instant;

/// The coarse clock of entries: units of 2^24 ns, about 17 ms.
const STAMP_SHIFT: u32 = 24;

/// Buckets looked at in one step of the sweep, and steps of a whole pass.
const STEP: usize = 16;
const STEPS: usize = BUCKETS / STEP;

/// The coarse time of `now`.
#[inline]
pub(crate) const fn stamp(now: Instant) -> u32 {
    (now.0 >> STAMP_SHIFT) as u32
}

/// Seconds in coarse units.
pub(crate) const fn stamps(seconds: u64) -> u32 {
    ((seconds * 1_000_000_000) >> STAMP_SHIFT) as u32
}

/// Coarse time from `seen` to `now`; zero when `seen` is later. Right if they are less than a year apart.
pub(crate) const fn elapsed(now: u32, seen: u32) -> u32 {
    let d = now.wrapping_sub(seen);
    if d > i32::MAX as u32 { 0 } else { d }
}

/// The real time that a difference of stamps stands for.
pub(crate) const fn age(now: Instant, seen: u32) -> Duration {
    Duration::from_nanos((elapsed(stamp(now), seen) as u64) << STAMP_SHIFT)
}

/// Ageing time in coarse units, and the position of the sweep.
pub(crate) struct Ageing {
    limit: u32,
    /// Nanoseconds between two steps: a whole pass takes a quarter of the ageing time, a second at most.
    interval: u64,
    due: u64,
    next: usize,
}

impl Ageing {
    pub(crate) fn new(ageing: Duration) -> Ageing {
        let nanos = u64::try_from(ageing.as_nanos()).unwrap_or(u64::MAX);
        let units = nanos.div_ceil(1 << STAMP_SHIFT);
        Ageing {
            limit: u32::try_from(units).unwrap_or(u32::MAX).min(i32::MAX as u32 / 4),
            interval: ((nanos / 4).min(1_000_000_000) / STEPS as u64).max(1),
            due: 0,
            next: 0,
        }
    }

    fn expired(&self, now: u32, entry: &Entry) -> bool {
        let limit = match entry.kind {
            Kind::Static => return false,
            Kind::Local => self.limit,
            // The owner repeats itself every quarter of the ageing time and says when it forgets: this is only
            // for the case that its updates were lost.
            Kind::Remote => self.limit + self.limit / 2 + 1,
        };
        elapsed(now, entry.seen) > limit
    }

    /// Whether to tell the other copies again that the address is in use.
    fn repeat(&self, now: u32, entry: &Entry) -> bool {
        elapsed(now, entry.announced) > self.limit / 4
    }
}

impl Switch {
    /// Notes that `key` sends from `port`.
    pub(super) fn learn(&mut self, key: Key, port: PortId) {
        let now = self.now;
        let mut announce = true;
        let mut learned = true;
        match self.fdb.find(key) {
            Some(slot) => {
                let entry = *self.fdb.entry(slot);
                if entry.kind == Kind::Static {
                    learned = false;
                    if entry.port != port {
                        self.moves.moved(key, entry.port, port, now);
                    }
                } else if entry.port == port {
                    // A remote entry for a port of ours: two cores learned it at once, and ours is right now.
                    announce = entry.kind == Kind::Remote || self.ageing.repeat(now, &entry);
                    let e = self.fdb.entry_mut(slot);
                    e.seen = now;
                    e.kind = Kind::Local;
                    if announce {
                        e.announced = now;
                    }
                } else if self.has_share(port) {
                    self.reassign(slot, port, Kind::Local);
                    self.learned += 1;
                } else {
                    self.refused += 1;
                    learned = false;
                }
            }
            None if self.has_share(port) && self.enter(key, port, Kind::Local) => self.learned += 1,
            None => {
                self.refused += 1;
                learned = false;
            }
        }
        if learned && announce {
            self.updates.push(FdbUpdate::Learn {
                vlan: key.vlan(),
                mac: MacAddr::from_u64(key.mac()),
                port,
            });
        }
        let generation = self.generation;
        if let Some(p) = self.port_mut(port) {
            p.source = LastSource {
                key,
                stamp: now,
                while_generation: (!learned).then_some(generation),
            };
        }
    }

    fn has_share(&self, port: PortId) -> bool {
        self.port(port)
            .is_some_and(|p| p.learned < self.config.learn_limit_per_port)
    }

    /// Enters a learned address. False: there is no room.
    fn enter(&mut self, key: Key, port: PortId, kind: Kind) -> bool {
        let entry = Entry {
            seen: self.now,
            announced: self.now,
            port,
            kind,
        };
        let done = self.fdb.insert(key, entry);
        if done {
            self.count(port, 1);
            self.changed();
        }
        done
    }

    /// Moves a learned address to another port.
    fn reassign(&mut self, slot: Slot, port: PortId, kind: Kind) {
        let now = self.now;
        let key = self.fdb.key(slot);
        let entry = self.fdb.entry_mut(slot);
        let old = entry.port;
        *entry = Entry {
            seen: now,
            announced: now,
            port,
            kind,
        };
        if old != port {
            self.moves.moved(key, old, port, now);
            self.disown(key, old);
            self.count(port, 1);
        }
        self.changed();
    }

    /// Removes a learned address.
    fn drop_learned(&mut self, slot: Slot) {
        let key = self.fdb.key(slot);
        let port = self.fdb.entry(slot).port;
        self.fdb.remove(slot);
        self.disown(key, port);
        self.changed();
    }

    fn disown(&mut self, key: Key, port: PortId) {
        if let Some(p) = self.port_mut(port) {
            p.learned = p.learned.saturating_sub(1);
            if p.source.key == key {
                p.source = LastSource::NONE;
            }
        }
    }

    fn count(&mut self, port: PortId, n: usize) {
        if let Some(p) = self.port_mut(port) {
            p.learned += n;
        }
    }

    /// Enters a port's own addresses. An address that another port has already claimed stays there.
    pub(super) fn enter_static(&mut self, port: PortId) {
        let Some(Some(p)) = self.ports.get(usize::from(port.0)) else {
            return;
        };
        let keys: alloc::vec::Vec<Key> = p.own_keys().collect();
        for key in keys {
            let entry = Entry {
                seen: self.now,
                announced: self.now,
                port,
                kind: Kind::Static,
            };
            match self.fdb.find(key) {
                Some(slot) if self.fdb.entry(slot).kind == Kind::Static => continue,
                Some(slot) => self.drop_learned(slot),
                None => {}
            }
            if !self.fdb.insert(key, entry) {
                if let Some(slot) = self.fdb.victim(key) {
                    self.drop_learned(slot);
                }
                if !self.fdb.insert(key, entry) {
                    self.refused += 1;
                }
            }
        }
        self.changed();
    }

    /// Removes every entry of `port` that `which` selects. `tell`: the other copies hear of the local ones.
    pub(super) fn remove_entries(&mut self, port: PortId, which: fn(Kind) -> bool, tell: bool) {
        for bucket in 0..BUCKETS {
            for slot in self.fdb.bucket(bucket) {
                let entry = *self.fdb.entry(slot);
                if entry.port != port || !which(entry.kind) {
                    continue;
                }
                if entry.kind == Kind::Static {
                    self.fdb.remove(slot);
                    self.changed();
                } else {
                    self.forget(slot, tell && entry.kind == Kind::Local);
                }
            }
        }
    }

    fn forget(&mut self, slot: Slot, tell: bool) {
        let key = self.fdb.key(slot);
        self.drop_learned(slot);
        if tell {
            self.updates.push(FdbUpdate::Forget {
                vlan: key.vlan(),
                mac: MacAddr::from_u64(key.mac()),
            });
        }
    }

    /// Forgets addresses that were not seen for the ageing time. Call it often, for example once a poll round:
    /// most calls return at once, the others look at a few entries; a call after a long pause looks at the whole
    /// table once. No address is forgotten early, and none later than the ageing time and a quarter (provided
    /// that this is called). Returns a suspected loop if a report about one is due.
    #[inline]
    pub fn tick(&mut self, now: Instant) -> Option<Loop> {
        if now.0 < self.ageing.due {
            return None;
        }
        self.sweep(now)
    }

    #[cold]
    #[inline(never)]
    fn sweep(&mut self, now: Instant) -> Option<Loop> {
        self.now = stamp(now);
        let late = (now.0 - self.ageing.due) / self.ageing.interval;
        let steps = usize::try_from(late).map_or(STEPS, |l| l.saturating_add(1).min(STEPS));
        self.ageing.due = now.0.saturating_add(self.ageing.interval);
        for _ in 0..steps * STEP {
            let bucket = self.ageing.next;
            self.ageing.next = (bucket + 1) % BUCKETS;
            for slot in self.fdb.bucket(bucket) {
                let entry = self.fdb.entry(slot);
                if self.ageing.expired(self.now, entry) {
                    let tell = entry.kind == Kind::Local;
                    self.forget(slot, tell);
                }
            }
        }
        self.moves.report(self.now)
    }

    /// Whether [`Switch::poll_update`] has an update.
    #[inline]
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// The next update for the other copies of the switch.
    #[inline]
    pub fn poll_update(&mut self) -> Option<FdbUpdate> {
        self.updates.pop()
    }

    /// Applies an update of the copy that owns the address's port. It never overrides an own address of a port;
    /// `Forget` never removes what this copy has learned itself.
    pub fn apply_update(&mut self, update: FdbUpdate) {
        match update {
            FdbUpdate::Learn { vlan, mac, port } => {
                if vlan == 0 || mac.is_multicast() || self.port(port).is_none() {
                    return;
                }
                let key = Key::new(vlan, mac.to_u64());
                match self.fdb.find(key) {
                    Some(slot) => {
                        let now = self.now;
                        let entry = self.fdb.entry_mut(slot);
                        match entry.kind {
                            Kind::Static => {}
                            Kind::Remote if entry.port == port => entry.seen = now,
                            _ => self.reassign(slot, port, Kind::Remote),
                        }
                    }
                    None => {
                        if !self.enter(key, port, Kind::Remote) {
                            self.refused += 1;
                        }
                    }
                }
            }
            FdbUpdate::Forget { vlan, mac } => {
                if let Some(slot) = self.fdb.find(Key::new(vlan, mac.to_u64()))
                    && self.fdb.entry(slot).kind == Kind::Remote
                {
                    self.forget(slot, false);
                }
            }
        }
    }

    /// Forgets the addresses that were learned on `port`, here and (through updates) in the other copies. Own
    /// addresses stay. For an uplink that went down, so that its stations can be found elsewhere.
    pub fn flush_port(&mut self, port: PortId) {
        self.remove_entries(port, |k| k != Kind::Static, true);
    }
}
