//! MAC control: PAUSE (IEEE 802.3 annex 31B) and priority-based flow control (IEEE 802.1Q clause 36, IEEE 802.3 annex 31D).

use crate::{Error, EtherType, MacAddr, be16};

/// Where both are sent: no bridge forwards it.
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// Bytes of a frame without its FCS.
pub const FRAME_LEN: usize = 60;
/// Bit times of one quantum.
pub const QUANTUM_BITS: u64 = 512;

/// What a frame says. Times are in quanta of 512 bit times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Opcode 0x0001: everything waits so long; 0: it may go on.
    Global(u16),
    /// Opcode 0x0101: by priority.
    Priorities {
        /// Priorities that are told something, a bit each.
        enabled: u8,
        /// How long each waits; 0: it may go on.
        quanta: [u16; 8],
    },
}

impl Frame {
    /// Reads a whole Ethernet frame.
    pub fn parse(bytes: &[u8]) -> Result<Frame, Error> {
        let b: &[u8; 34] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if EtherType(be16(b, 12)) != EtherType::MAC_CONTROL {
            return Err(Error::Kind);
        }
        match be16(b, 14) {
            0x0001 => Ok(Frame::Global(be16(b, 16))),
            0x0101 => Ok(Frame::Priorities {
                enabled: b[17],
                quanta: core::array::from_fn(|i| be16(b, 18 + 2 * i)),
            }),
            _ => Err(Error::Kind),
        }
    }

    /// The frame's bytes, from this address.
    pub fn emit(&self, source: MacAddr) -> [u8; FRAME_LEN] {
        let mut b = [0; FRAME_LEN];
        b[..6].copy_from_slice(&DESTINATION.0);
        b[6..12].copy_from_slice(&source.0);
        b[12..14].copy_from_slice(&EtherType::MAC_CONTROL.0.to_be_bytes());
        match self {
            Frame::Global(quanta) => {
                b[14..16].copy_from_slice(&0x0001u16.to_be_bytes());
                b[16..18].copy_from_slice(&quanta.to_be_bytes());
            }
            Frame::Priorities { enabled, quanta } => {
                b[14..16].copy_from_slice(&0x0101u16.to_be_bytes());
                b[17] = *enabled;
                for (i, q) in quanta.iter().enumerate() {
                    b[18 + 2 * i..20 + 2 * i].copy_from_slice(&q.to_be_bytes());
                }
            }
        }
        b
    }
}
