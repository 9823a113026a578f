//! Doorbell rings: how a driver tells the device that it has posted.
//!
//! Each thread of the guest that posts owns a ring of 8-byte entries in guest memory. It writes an entry for each batch;
//! the device polls the few rings and never the many queues. An entry is new when its phase bit is that of the ring's
//! current lap ([`ring::phase`](crate::ring::phase)).

numbers! {
    /// What a doorbell is about.
    enum Kind: u8 {
        /// A send queue; the number is a QP's.
        Send = 0,
        /// A receive queue; the number is a QP's.
        Receive = 1,
        /// A shared receive queue; the number is an SRQ's.
        SharedReceive = 2,
        /// Asks for an event at the next completion; the number is a CQ's, the index its consumer index.
        ArmNext = 3,
        /// Asks for an event at the next solicited or failed completion; number and index as for `ArmNext`.
        ArmSolicited = 4,
    }
}

/// An entry of a doorbell ring: bit 63 phase, bits 60..=62 kind, bits 56..=59 zero, bits 32..=55 number, bits 0..=31
/// index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Doorbell {
    /// What the doorbell is about.
    pub kind: Kind,
    /// Number of the queue, 24 bits.
    pub number: u32,
    /// Producer index behind what was posted, counting blocks (send) or entries; or a CQ's consumer index. Modulo 2^32.
    pub index: u32,
}

const PHASE: u64 = 1 << 63;
const KIND_SHIFT: u32 = 60;
const RESERVED: u64 = 0xf << 56;
const NUMBER_SHIFT: u32 = 32;
/// Largest number of a QP, SRQ or CQ.
pub const NUMBER_MAX: u32 = 0xff_ffff;

impl Doorbell {
    /// The entry's value in a lap whose phase bit is `phase`.
    #[inline]
    pub const fn to_bits(self, phase: bool) -> u64 {
        (phase as u64) << 63
            | (self.kind as u64) << KIND_SHIFT
            | ((self.number & NUMBER_MAX) as u64) << NUMBER_SHIFT
            | self.index as u64
    }

    /// The phase bit of an entry.
    #[inline]
    pub const fn phase(bits: u64) -> bool {
        bits & PHASE != 0
    }

    /// Reads an entry, but not its phase. `None`: the kind is unknown, or reserved bits are set.
    #[inline]
    pub const fn from_bits(bits: u64) -> Option<Doorbell> {
        if bits & RESERVED != 0 {
            return None;
        }
        match Kind::from_number((bits >> KIND_SHIFT) as u8 & 7) {
            Some(kind) => Some(Doorbell {
                kind,
                number: (bits >> NUMBER_SHIFT) as u32 & NUMBER_MAX,
                index: bits as u32,
            }),
            None => None,
        }
    }
}

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 8;
/// Fewest and most entries of a ring. The number is a power of two.
pub const ENTRIES: core::ops::RangeInclusive<u32> = 16..=4096;

layouts! {
    /// The tail behind the entries of a doorbell ring: two cache lines, both written by the device. They are apart
    /// because the driver reads the first at every post and the device often writes the second.
    struct DoorbellTail: 128 {
        /// 1 while the device polls and needs no wake-up, else 0. After writing entries the driver makes a full fence,
        /// reads this word, and kicks the ring's wake-up queue if it is 0.
        0 no_kick: u32,
        /// Zero.
        4 reserved_no_kick: [u32; 15],
        /// Entries that the device has taken, modulo 2^32. The driver reads it when the ring may be full.
        64 taken: u32,
        /// Zero.
        68 reserved_taken: [u32; 15],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_hold_all() {
        for kind in Kind::ALL {
            let bell = Doorbell {
                kind,
                number: 0xab_cdef,
                index: 0xffff_fffe,
            };
            for phase in [false, true] {
                let bits = bell.to_bits(phase);
                assert_eq!(
                    (Doorbell::from_bits(bits), Doorbell::phase(bits)),
                    (Some(bell), phase)
                );
            }
        }
    }

    #[test]
    fn what_is_reserved_is_refused() {
        for bits in [5 << 60, 7 << 60, 1 << 56, 1 << 59] {
            assert_eq!(Doorbell::from_bits(bits), None, "{bits:#x}");
        }
    }
}
