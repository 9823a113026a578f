//! Doorbell rings: how a driver says that it has posted.
//!
//! Each thread of the guest that posts owns a ring of 8-byte entries in guest memory. It writes an entry for each batch;
//! the device polls the few rings and never the many queues. An entry is new when its phase bit is that of the ring's
//! current lap: laps alternate, beginning with 1 in memory that was zero.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a doorbell is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A send queue; the number is a QP's.
    Send = 0,
    /// A receive queue; the number is a QP's.
    Receive = 1,
    /// A shared receive queue; the number is an SRQ's.
    SharedReceive = 2,
    /// Any next completion shall raise an event; the number is a CQ's, the index its consumer index.
    ArmNext = 3,
    /// The next solicited completion shall.
    ArmSolicited = 4,
}

impl Kind {
    const fn from_bits(bits: u64) -> Option<Kind> {
        match bits {
            0 => Some(Kind::Send),
            1 => Some(Kind::Receive),
            2 => Some(Kind::SharedReceive),
            3 => Some(Kind::ArmNext),
            4 => Some(Kind::ArmSolicited),
            _ => None,
        }
    }
}

/// An entry of a doorbell ring: bit 63 phase, bits 60..=62 kind, bits 32..=55 number, bits 0..=31 index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Doorbell {
    /// What it is about.
    pub kind: Kind,
    /// Which queue, 24 bits.
    pub number: u32,
    /// Producer index behind what was posted, counting blocks (send) or entries; it wraps at 2^32.
    pub index: u32,
}

const PHASE: u64 = 1 << 63;

impl Doorbell {
    /// The entry's value in a lap whose phase bit is `phase`.
    pub const fn to_bits(self, phase: bool) -> u64 {
        let phase = if phase { PHASE } else { 0 };
        phase | (self.kind as u64) << 60 | (self.number as u64 & 0xff_ffff) << 32 | self.index as u64
    }

    /// The phase bit of an entry.
    pub const fn phase(bits: u64) -> bool {
        bits & PHASE != 0
    }

    /// Reads an entry; the phase is the caller's business. `None`: of no known kind.
    pub const fn from_bits(bits: u64) -> Option<Doorbell> {
        match Kind::from_bits(bits >> 60 & 7) {
            Some(kind) => Some(Doorbell {
                kind,
                number: (bits >> 32) as u32 & 0xff_ffff,
                index: bits as u32,
            }),
            None => None,
        }
    }
}

/// What stands in front of the entries of a doorbell ring: 128 bytes, one line for each side.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingHead {
    /// Written by the device: entries that it has taken; wraps at 2^32. The driver reads it when the ring may be full.
    pub taken: u32,
    /// Written by the device: 1 while it polls and needs no wake-up, else 0. After writing entries, the driver makes a full
    /// fence, reads it, and kicks the ring's wake-up queue when it is 0.
    pub no_kick: u32,
    /// Zero.
    pub reserved_device: [u8; 56],
    /// Zero; the driver's own line.
    pub reserved_driver: [u8; 64],
}

const _: () = assert!(size_of::<RingHead>() == 128);

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 8;
/// Fewest entries of a ring, and most. Powers of two only.
pub const ENTRIES: core::ops::RangeInclusive<u32> = 16..=4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_hold_all() {
        let bell = Doorbell {
            kind: Kind::ArmSolicited,
            number: 0xab_cdef,
            index: 0xffff_fffe,
        };
        for phase in [false, true] {
            let bits = bell.to_bits(phase);
            assert_eq!((Doorbell::from_bits(bits), Doorbell::phase(bits)), (Some(bell), phase));
        }
        assert_eq!(Doorbell::from_bits(7 << 60), None);
    }
}
