//! Maps of PSNs that move.

use vnic_wire::psn::Psn;

/// A bit for each of the `64 W` PSNs from one on that moves: a power of two.
#[derive(Debug)]
pub(in super::super) struct Bits<const W: usize>([u64; W]);

impl<const W: usize> Bits<W> {
    pub const NONE: Bits<W> = Bits([0; W]);

    /// PSNs that it can hold.
    pub const SPAN: u32 = W as u32 * 64;

    fn place(psn: Psn) -> (usize, u32) {
        let at = psn.value() % Self::SPAN;
        (at as usize / 64, at % 64)
    }

    pub fn has(&self, psn: Psn) -> bool {
        let (word, bit) = Self::place(psn);
        self.0[word] >> bit & 1 == 1
    }

    pub fn set(&mut self, psn: Psn) {
        let (word, bit) = Self::place(psn);
        self.0[word] |= 1 << bit;
    }

    pub fn clear(&mut self, psn: Psn) {
        let (word, bit) = Self::place(psn);
        self.0[word] &= !(1 << bit);
    }

    /// Whether it was there; it is not, then.
    pub fn take(&mut self, psn: Psn) -> bool {
        let had = self.has(psn);
        self.clear(psn);
        had
    }

    /// Is none there in the word of this one?
    pub fn is_clear_around(&self, psn: Psn) -> bool {
        self.0[Self::place(psn).0] == 0
    }

    /// Those of the 64 PSNs from one on: bit i is that of `psn` + i.
    pub fn word(&self, psn: Psn) -> u64 {
        let (word, bit) = Self::place(psn);
        let low = self.0[word] >> bit;
        match bit {
            0 => low,
            _ => low | self.0[(word + 1) % W] << (64 - bit),
        }
    }

    /// Makes those of the 64 PSNs from one on that `mask` has what `bits` says.
    pub fn put(&mut self, psn: Psn, bits: u64, mask: u64) {
        let (word, bit) = Self::place(psn);
        let bits = bits & mask;
        self.0[word] = self.0[word] & !(mask << bit) | bits << bit;
        if bit > 0 {
            let next = &mut self.0[(word + 1) % W];
            *next = *next & !(mask >> (64 - bit)) | bits >> (64 - bit);
        }
    }

    /// The first that is there, from one PSN to before another.
    pub fn first(&self, from: Psn, to: Psn) -> Option<Psn> {
        pieces(from, to).find_map(|(at, mask)| psns(at, self.word(at) & mask).next())
    }

    /// Clears what is from one PSN to before another.
    pub fn clear_between(&mut self, from: Psn, to: Psn) {
        for (at, mask) in pieces(from, to).take(W) {
            self.put(at, 0, mask);
        }
    }
}

/// The PSNs from one to before another, 64 at a time: the first of them, and a bit for each.
pub(in super::super) fn pieces(from: Psn, to: Psn) -> impl Iterator<Item = (Psn, u64)> {
    let count = to.distance(from).max(0) as u32;
    let pieces = (0..count).step_by(64);
    pieces.map(move |i| (from.add(i), u64::MAX >> 64u32.saturating_sub(count - i)))
}

/// The PSNs of a piece that begins with `from`, by their bits.
pub(in super::super) fn psns(from: Psn, mut bits: u64) -> impl Iterator<Item = Psn> {
    core::iter::from_fn(move || {
        let psn = (bits != 0).then(|| from.add(bits.trailing_zeros()));
        bits &= bits.wrapping_sub(1);
        psn
    })
}

/// The earlier of two PSNs.
pub(in super::super) fn earlier(one: Psn, other: Psn) -> Psn {
    match other.before(one) {
        true => other,
        false => one,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use vnic_wire::sack::SPAN;

    use super::*;

    pub fn random(seed: u64) -> impl FnMut(u32) -> u32 {
        let mut state = seed;
        move |n| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % u64::from(n)) as u32
        }
    }

    #[test]
    fn words_of_a_map_are_its_bits() {
        let mut below = random(0x9e37_79b9_7f4a_7c15);
        // Over the end of the PSNs.
        let base = Psn::new(0xff_ff00);
        let mut bits = Bits::<16>::NONE;
        let mut model = [false; SPAN as usize];
        for _ in 0..2000 {
            let (from, len) = (below(SPAN - 64), below(65));
            let (says, mask) = (
                u64::from(below(u32::MAX)) << below(33),
                u64::MAX.checked_shr(64 - len).unwrap_or(0),
            );
            bits.put(base.add(from), says, mask);
            for i in 0..len {
                model[(from + i) as usize] = says >> i & 1 == 1;
            }
            let (from, to) = (below(SPAN), below(SPAN));
            let there = (from..to).filter(|i| model[*i as usize]).map(|i| base.add(i));
            let found = pieces(base.add(from), base.add(to));
            let found = found.flat_map(|(at, mask)| psns(at, bits.word(at) & mask));
            assert!(found.eq(there.clone()), "{from} to {to}");
            assert_eq!(bits.first(base.add(from), base.add(to)), there.clone().next());
            assert!(
                there
                    .clone()
                    .all(|psn| bits.has(psn) && !bits.is_clear_around(psn))
            );
            if below(4) == 0 {
                bits.clear_between(base.add(from), base.add(to));
                (from..to).for_each(|i| model[i as usize] = false);
            }
        }
    }
}
