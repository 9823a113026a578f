//! MAC control: PAUSE (IEEE 802.3 annex 31B) and priority-based flow control (IEEE 802.1Q clause 36, IEEE 802.3 annex 31D).

use crate::{Error, EtherType, MacAddr, be16};

/// Destination of both: an address that no bridge forwards.
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// Bytes of a frame without its FCS.
pub const FRAME_LEN: usize = 60;
/// Bit times of one quantum.
pub const QUANTUM_BITS: u64 = 512;

/// Content of a frame. Times are in quanta of 512 bit times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Opcode 0x0001: all priorities wait so long; 0: they may go on.
    Global(u16),
    /// Opcode 0x0101: priorities wait each for itself.
    Priorities {
        /// Priorities whose time counts, a bit each.
        enabled: u8,
        /// How long each priority waits; 0: it may go on.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    /// The fields up to the first quanta, as IEEE 802.3 figures 31A-1, 31B and 31D draw them.
    #[test]
    fn known_bytes() {
        let global = Frame::Global(0xffff).emit(SOURCE);
        let begin = [1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08];
        assert_eq!(global[..14], begin);
        assert_eq!(global[14..20], [0, 1, 0xff, 0xff, 0, 0]);
        assert!(global[18..].iter().all(|b| *b == 0));
        let frame = Frame::Priorities {
            enabled: 0b0001_1000,
            quanta: [0, 0, 0, 0xffff, 0x1234, 0, 0, 0],
        };
        let bytes = frame.emit(SOURCE);
        assert_eq!(bytes[..14], begin);
        assert_eq!(bytes[14..24], [1, 1, 0, 0x18, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..34], [0xff, 0xff, 0x12, 0x34, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[34..].iter().all(|b| *b == 0));
    }

    #[test]
    fn what_is_emitted_is_read() {
        for frame in [
            Frame::Global(0),
            Frame::Global(77),
            Frame::Priorities {
                enabled: 0xff,
                quanta: [1, 2, 3, 4, 5, 6, 7, 0xffff],
            },
        ] {
            let bytes = frame.emit(SOURCE);
            assert_eq!(Frame::parse(&bytes), Ok(frame));
            for len in 0..34 {
                assert_eq!(Frame::parse(&bytes[..len]), Err(Error::Truncated));
            }
        }
    }

    #[test]
    fn other_frames_are_not_read() {
        let mut bytes = Frame::Global(1).emit(SOURCE);
        bytes[15] = 2;
        assert_eq!(Frame::parse(&bytes), Err(Error::Kind));
        let mut bytes = Frame::Global(1).emit(SOURCE);
        bytes[13] = 0;
        assert_eq!(Frame::parse(&bytes), Err(Error::Kind));
    }
}
