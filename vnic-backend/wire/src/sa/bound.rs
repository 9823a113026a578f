//! A value of a question with how it is meant: MTU, rate, packet lifetime (IBTA vol 1 section 15.2.5.16, table "PathRecord").

use crate::named;

named! {
    /// How a value is meant, 2 bits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Selector {
        /// Larger than the value.
        #[default]
        Greater = 0 => "greater than",
        /// Smaller than the value.
        Less = 1 => "less than",
        /// The value; of an answer, always.
        Exactly = 2 => "exactly",
        /// The best that there is: the largest MTU and rate, the smallest lifetime.
        Best = 3 => "best",
    }
}

/// A value, 6 bits, and how it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bound {
    /// How it is meant.
    pub selector: Selector,
    /// Code of the MTU or the rate, or log2 of a lifetime in units of 4.096 µs.
    pub value: u8,
}

impl Bound {
    /// This value.
    pub const fn exactly(value: u8) -> Bound {
        Bound {
            selector: Selector::Exactly,
            value,
        }
    }

    pub(super) fn read(byte: u8) -> Bound {
        Bound {
            selector: Selector::ALL[usize::from(byte >> 6)],
            value: byte & 0x3f,
        }
    }

    /// The byte; excess bits of the value are cut off.
    pub(super) const fn byte(self) -> u8 {
        (self.selector as u8) << 6 | self.value & 0x3f
    }
}
