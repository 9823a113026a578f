//! The filtering database (IEEE 802.1Q clause 8.8): the port of each address of each VLAN.
//!
//! A key is a VLAN and a MAC address packed into 64 bits. Each key has two home buckets of eight keys (one
//! cache line each). An entry is in one of them, so a lookup touches at most two lines of keys, and
//! removing leaves nothing behind. With two choices of eight, no new entry is turned away before the table
//! is 70 % full, and it fills to 95 %.

use alloc::boxed::Box;
use alloc::vec;

use super::PortId;

/// Entries of the table, static ones included.
pub const CAPACITY: usize = BUCKETS * WAYS;
pub(crate) const BUCKETS: usize = 1024;
const WAYS: usize = 8;

/// VLAN and address in one word: VLAN in the upper 16 bits. Never 0, because no frame is in VLAN 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// No key: marks a free slot.
    pub(crate) const NONE: Key = Key(0);

    #[inline]
    pub(crate) const fn new(vlan: u16, mac: u64) -> Key {
        Key((vlan as u64) << 48 | mac)
    }

    pub(crate) const fn vlan(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub(crate) const fn mac(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }
}

/// Origin of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Configured: a port's own address.
    Static,
    /// Learned by this copy of the switch.
    Local,
    /// Learned by the copy of another core, which announces it.
    Remote,
}

/// The entry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Coarse time of the last frame ([`Kind::Local`]) or announcement ([`Kind::Remote`]).
    pub(crate) seen: u32,
    /// Coarse time of the last announcement to the other copies.
    pub(crate) announced: u32,
    pub(crate) port: PortId,
    pub(crate) kind: Kind,
}

const FREE: Entry = Entry {
    seen: 0,
    announced: 0,
    port: PortId(0),
    kind: Kind::Static,
};

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Keys([Key; WAYS]);

/// Index of an occupied slot; valid until the next change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

pub(crate) struct Fdb {
    keys: Box<[Keys; BUCKETS]>,
    entries: Box<[Entry; CAPACITY]>,
    seed: u64,
}

fn boxed<T: Clone, const N: usize>(value: T) -> Box<[T; N]> {
    match vec![value; N].into_boxed_slice().try_into() {
        Ok(b) => b,
        Err(_) => unreachable!("the vector has N elements"),
    }
}

impl Fdb {
    pub(crate) fn new(seed: u64) -> Fdb {
        Fdb {
            keys: boxed(Keys([Key::NONE; WAYS])),
            entries: boxed(FREE),
            seed,
        }
    }

    /// The two home buckets; they differ.
    #[inline]
    fn homes(&self, key: Key) -> [usize; 2] {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        // Folded 64x64 multiplication: every input bit reaches the low bits, and without the seed nobody
        // can choose addresses that share buckets.
        let x = key.0 ^ self.seed;
        let m = u128::from(x) * u128::from(ODD ^ self.seed.rotate_left(32) & !1);
        let h = (m >> 64) as u64 ^ m as u64;
        let first = h as usize & (BUCKETS - 1);
        let second = first ^ ((h >> 32) as usize & (BUCKETS - 1) | 1);
        [first, second]
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Slot> {
        for bucket in self.homes(key) {
            let keys = &self.keys[bucket].0;
            for (way, k) in keys.iter().enumerate() {
                if *k == key {
                    return Some(Slot(bucket * WAYS + way));
                }
            }
        }
        None
    }

    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot.0 % CAPACITY]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot.0 % CAPACITY]
    }

    fn put(&mut self, slot: Slot, key: Key, entry: Entry) {
        self.keys[slot.0 / WAYS % BUCKETS].0[slot.0 % WAYS] = key;
        self.entries[slot.0 % CAPACITY] = entry;
    }

    /// Enters a key that is not in the table. False: both its buckets are full.
    pub(crate) fn insert(&mut self, key: Key, entry: Entry) -> bool {
        let free = |b: &usize| self.keys[*b].0.iter().filter(|k| **k == Key::NONE).count();
        let [a, b] = self.homes(key);
        let bucket = if free(&a) >= free(&b) { a } else { b };
        let Some(way) = self.keys[bucket].0.iter().position(|k| *k == Key::NONE) else {
            return false;
        };
        self.put(Slot(bucket * WAYS + way), key, entry);
        true
    }

    /// A learned entry that stands in the way of `key`: the one to sacrifice for a static entry.
    pub(crate) fn victim(&self, key: Key) -> Option<Slot> {
        self.homes(key)
            .into_iter()
            .flat_map(|b| (0..WAYS).map(move |w| Slot(b * WAYS + w)))
            .find(|s| self.entry(*s).kind != Kind::Static && self.key(*s) != Key::NONE)
    }

    pub(crate) fn key(&self, slot: Slot) -> Key {
        self.keys[slot.0 / WAYS % BUCKETS].0[slot.0 % WAYS]
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        self.put(slot, Key::NONE, FREE);
    }

    /// The occupied slots of one bucket.
    pub(crate) fn bucket(&self, bucket: usize) -> impl Iterator<Item = Slot> + use<> {
        let bucket = bucket % BUCKETS;
        let mut used = 0u8;
        for (way, k) in self.keys[bucket].0.iter().enumerate() {
            used |= u8::from(*k != Key::NONE) << way;
        }
        (0..WAYS)
            .filter(move |w| used >> w & 1 != 0)
            .map(move |w| Slot(bucket * WAYS + w))
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Entry)> {
        (0..BUCKETS)
            .flat_map(|b| self.bucket(b))
            .map(|s| (self.key(s), self.entry(s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(port: u16) -> Entry {
        Entry {
            port: PortId(port),
            kind: Kind::Local,
            ..FREE
        }
    }

    #[test]
    fn finds_what_was_inserted_and_nothing_else() {
        let mut t = Fdb::new(7);
        for i in 0..4000u64 {
            assert!(t.insert(Key::new(1, i), local(i as u16)));
        }
        for i in 0..4000u64 {
            let slot = t.find(Key::new(1, i)).expect("inserted");
            assert_eq!(t.entry(slot).port, PortId(i as u16));
            assert_eq!(t.find(Key::new(2, i)), None);
        }
        assert_eq!(t.iter().count(), 4000);
        for i in (0..4000u64).step_by(2) {
            let slot = t.find(Key::new(1, i)).expect("inserted");
            t.remove(slot);
        }
        for i in 0..4000u64 {
            assert_eq!(t.find(Key::new(1, i)).is_some(), i % 2 == 1);
        }
        assert_eq!(t.iter().count(), 2000);
    }

    /// Vendor-block addresses, counted up: the usual case.
    #[test]
    fn fills_to_seven_tenths_before_the_first_refusal() {
        for seed in [0, 1, 0xdead_beef_0bad_cafe, u64::MAX] {
            let mut t = Fdb::new(seed);
            let n = (0..CAPACITY as u64)
                .take_while(|i| t.insert(Key::new(1, 0x0200_5e00_0000 + i), local(1)))
                .count();
            assert!(n > CAPACITY * 7 / 10, "seed {seed:#x}: only {n}");
        }
    }

    #[test]
    fn a_victim_is_never_static() {
        let mut t = Fdb::new(3);
        for i in 0..3 * CAPACITY as u64 {
            let mut e = local(1);
            if i % 3 == 0 {
                e.kind = Kind::Static;
            }
            t.insert(Key::new(1, i), e);
        }
        for i in 0..100u64 {
            if let Some(s) = t.victim(Key::new(2, i)) {
                assert_eq!(t.entry(s).kind, Kind::Local);
            }
        }
    }
}
