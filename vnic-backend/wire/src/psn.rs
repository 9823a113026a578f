//! Packet sequence number: 24 bits that wrap (IBTA vol 1 section 9.2, field PSN of the BTH; its use: section 9.7).

/// Mask of the 24 bits.
const MASK: u32 = 0xff_ffff;

/// A packet sequence number. It has no total order: compare with [`Psn::before`] or [`Psn::distance`], which
/// look at the half of the circle that is nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The number in the low 24 bits of `value`; the rest is ignored.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number after this one.
    #[inline]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// The number `n` packets later.
    #[inline]
    pub const fn add(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n) & MASK)
    }

    /// The number `n` packets earlier.
    #[inline]
    pub const fn sub(self, n: u32) -> Psn {
        Psn(self.0.wrapping_sub(n) & MASK)
    }

    /// Packets from `from` to `self` the shorter way round, -2^23..2^23: negative when `self` is the earlier one.
    #[inline]
    pub const fn distance(self, from: Psn) -> i32 {
        // The difference in the upper 24 bits: the arithmetic shift back extends its sign.
        (self.0.wrapping_sub(from.0) << 8) as i32 >> 8
    }

    /// True when `self` is earlier than `other`; numbers half a circle apart are earlier than each other.
    #[inline]
    pub const fn before(self, other: Psn) -> bool {
        self.distance(other) < 0
    }
}
