//! Conversion of frames to datagrams, and back.
//!
//! A datagram begins with a version and flags. Without a flag a whole frame follows. A frame that is longer than a
//! datagram may be is cut into pieces of the same length (the last one may be shorter), as few as possible:
//!
//! ```text
//!   0        1        2                 6           8       9       10
//!   version  flags    number of frame   its length  piece   pieces  bytes of the piece …
//! ```
//!
//! All numbers are big-endian. A datagram of a peer is checked in full before it is copied.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Version of the format.
const VERSION: u8 = 1;
/// Flag of a piece of a frame.
const PIECE: u8 = 1;
/// Length of version and flags.
pub const WHOLE_HEADER: usize = 2;
/// Length of the header of a piece.
pub const PIECE_HEADER: usize = 10;
/// Least length of a frame: addresses and EtherType.
const FRAME_MIN: usize = 14;
/// Greatest length of a frame: the greatest MTU, addresses, EtherType, two VLAN tags.
pub const FRAME_MAX: usize = 9216 + 14 + 8;
/// Greatest number of pieces. The smallest datagram of QUIC (1200 bytes on the wire, RFC 9000, section 14) needs fewer.
const PIECES_MAX: usize = 16;
/// Greatest number of incomplete frames of a peer.
const OPEN_MAX: usize = 64;
/// Time after which an incomplete frame is discarded: RTTs and queues are shorter.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pieces of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// One datagram with the whole frame.
    Whole,
    /// Number of pieces, and bytes of each.
    Pieces(usize, usize),
}

/// Pieces of a frame of `len` bytes in datagrams of `max` bytes; `None`: the frame cannot be sent.
pub fn cut(len: usize, max: usize) -> Option<Cut> {
    if !(FRAME_MIN..=FRAME_MAX).contains(&len) {
        return None;
    }
    if len + WHOLE_HEADER <= max {
        return Some(Cut::Whole);
    }
    let room = max.checked_sub(PIECE_HEADER).filter(|room| *room > 0)?;
    let pieces = len.div_ceil(room);
    (pieces <= PIECES_MAX).then(|| Cut::Pieces(pieces, len.div_ceil(pieces)))
}

/// Header of a whole frame.
pub const fn whole_header() -> [u8; WHOLE_HEADER] {
    [VERSION, 0]
}

/// Header of a piece.
pub fn piece_header(number: u32, len: usize, piece: usize, pieces: usize) -> [u8; PIECE_HEADER] {
    let [a, b, c, d] = number.to_be_bytes();
    let [e, f] = (len as u16).to_be_bytes();
    [VERSION, PIECE, a, b, c, d, e, f, piece as u8, pieces as u8]
}

/// Contents of a datagram.
#[derive(Debug, PartialEq, Eq)]
enum Parsed<'a> {
    Whole(&'a [u8]),
    Piece {
        number: u32,
        len: usize,
        piece: usize,
        pieces: usize,
        bytes: &'a [u8],
    },
}

/// Parses a datagram; `None`: it is malformed.
fn parse(datagram: &[u8]) -> Option<Parsed<'_>> {
    match *datagram {
        [VERSION, 0, ref frame @ ..] => (FRAME_MIN..=FRAME_MAX)
            .contains(&frame.len())
            .then_some(Parsed::Whole(frame)),
        [VERSION, PIECE, a, b, c, d, e, f, piece, pieces, ref bytes @ ..] => {
            let (piece, pieces) = (usize::from(piece), usize::from(pieces));
            let len = usize::from(u16::from_be_bytes([e, f]));
            if !(FRAME_MIN..=FRAME_MAX).contains(&len) || !(2..=PIECES_MAX).contains(&pieces) {
                return None;
            }
            let size = len.div_ceil(pieces);
            let from = piece * size;
            if piece >= pieces || from >= len || bytes.len() != size.min(len - from) {
                return None;
            }
            Some(Parsed::Piece {
                number: u32::from_be_bytes([a, b, c, d]),
                len,
                piece,
                pieces,
                bytes,
            })
        }
        _ => None,
    }
}

/// A frame with missing pieces.
struct Open {
    number: u32,
    pieces: usize,
    missing: u16,
    since: Instant,
    bytes: Vec<u8>,
}

/// Reassembly of the frames of a peer. It holds at most `OPEN_MAX` frames.
#[derive(Default)]
pub struct Assembly {
    /// Incomplete frames, oldest first.
    open: VecDeque<Open>,
    pool: Vec<Vec<u8>>,
    /// Frame that was returned last.
    done: Vec<u8>,
    /// Number of frames that were discarded.
    pub incomplete: u64,
    /// Number of malformed datagrams.
    pub malformed: u64,
}

impl Assembly {
    /// Takes a datagram; returns the frame that it completes.
    pub fn take<'a>(&'a mut self, datagram: &'a [u8], now: Instant) -> Option<&'a [u8]> {
        match parse(datagram) {
            Some(Parsed::Whole(frame)) => Some(frame),
            Some(Parsed::Piece {
                number,
                len,
                piece,
                pieces,
                bytes,
            }) => {
                let i = self.find(number, len, pieces, now);
                let open = self.open.get_mut(i)?;
                let bit = 1u16 << piece;
                if open.missing & bit == 0 {
                    return None;
                }
                let from = piece * len.div_ceil(pieces);
                open.bytes
                    .get_mut(from..from + bytes.len())?
                    .copy_from_slice(bytes);
                open.missing &= !bit;
                if open.missing != 0 {
                    return None;
                }
                let whole = self.open.remove(i)?;
                self.pool.push(std::mem::replace(&mut self.done, whole.bytes));
                Some(&self.done)
            }
            None => {
                self.malformed += 1;
                None
            }
        }
    }

    /// Index of a frame among the incomplete ones.
    fn find(&mut self, number: u32, len: usize, pieces: usize, now: Instant) -> usize {
        // The newest frame is the likeliest.
        let same = |o: &Open| o.number == number && o.bytes.len() == len && o.pieces == pieces;
        if let Some(i) = self.open.iter().rposition(same) {
            return i;
        }
        let late = |o: &Open| now.saturating_duration_since(o.since) > PATIENCE;
        while self.open.len() >= OPEN_MAX || self.open.front().is_some_and(late) {
            if let Some(lost) = self.open.pop_front() {
                self.incomplete += 1;
                self.pool.push(lost.bytes);
            }
        }
        let mut bytes = self.pool.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(len, 0);
        self.open.push_back(Open {
            number,
            pieces,
            missing: u16::MAX >> (PIECES_MAX - pieces),
            since: now,
            bytes,
        });
        self.open.len() - 1
    }

    /// Bytes of all buffers.
    #[cfg(test)]
    fn held(&self) -> usize {
        let open = self.open.iter().map(|o| o.bytes.capacity());
        let pool = self.pool.iter().map(Vec::capacity);
        open.chain(pool).sum::<usize>() + self.done.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datagrams(frame: &[u8], number: u32, max: usize) -> Vec<Vec<u8>> {
        match cut(frame.len(), max).expect("it can be cut") {
            Cut::Whole => vec![[&whole_header(), frame].concat()],
            Cut::Pieces(n, size) => frame
                .chunks(size)
                .enumerate()
                .map(|(i, bytes)| [&piece_header(number, frame.len(), i, n)[..], bytes].concat())
                .collect(),
        }
    }

    #[test]
    fn frames_are_cut_into_as_few_pieces_as_possible() {
        assert_eq!(cut(1514, 1516), Some(Cut::Whole));
        assert_eq!(cut(1514, 1515), Some(Cut::Pieces(2, 757)));
        assert_eq!(cut(9014, 1162), Some(Cut::Pieces(8, 1127)));
        assert_eq!(cut(FRAME_MAX, 1150), Some(Cut::Pieces(9, 1027)));
        for (len, max) in [
            (13, 1500),
            (FRAME_MAX + 1, 60_000),
            (1514, 10),
            (1514, 0),
            (9000, 100),
        ] {
            assert_eq!(cut(len, max), None, "{len} {max}");
        }
    }

    #[test]
    fn frames_of_which_a_piece_is_lost_are_given_up() {
        let (mut assembly, now) = (Assembly::default(), Instant::now());
        let frame = vec![7; 3000];
        for number in 0..1000 {
            for datagram in &datagrams(&frame, number, 1200)[1..] {
                assert_eq!(assembly.take(datagram, now), None);
            }
        }
        assert_eq!(assembly.incomplete, 1000 - OPEN_MAX as u64);
        assert!(
            assembly.held() <= (OPEN_MAX + 2) * FRAME_MAX,
            "{}",
            assembly.held()
        );
        // The remaining frames are discarded when their time is over; a frame is completed in between.
        let later = now + PATIENCE * 2;
        let pieces = datagrams(&frame, 5000, 1200);
        assert_eq!(assembly.take(&pieces[0], later), None);
        assert_eq!(assembly.incomplete, 1000);
        assert_eq!(assembly.take(&pieces[2], later), None);
        assert_eq!(assembly.take(&pieces[0], later), None);
        assert_eq!(assembly.take(&pieces[1], later), Some(&frame[..]));
        assert_eq!(assembly.malformed, 0);
    }

    #[test]
    fn what_is_none_of_ours_is_counted() {
        let mut assembly = Assembly::default();
        let frame = [0; 60];
        let good = [&whole_header()[..], &frame].concat();
        let mut other_version = good.clone();
        other_version[0] = 2;
        let mut other_flags = good.clone();
        other_flags[1] = 0x80;
        let one_of_one = [&piece_header(1, 60, 0, 1)[..], &frame].concat();
        let beyond = [&piece_header(1, 60, 2, 2)[..], &frame[..30]].concat();
        let too_short = [&piece_header(1, 60, 0, 2)[..], &frame[..29]].concat();
        let all = [
            &[][..],
            &[1],
            &good[..10],
            &other_version,
            &other_flags,
            &one_of_one,
            &beyond,
            &too_short,
        ];
        for bad in all {
            assert_eq!(assembly.take(bad, Instant::now()), None);
        }
        assert_eq!((assembly.malformed, assembly.held()), (all.len() as u64, 0));
    }

    proptest! {
        #[test]
        fn frames_come_back_whatever_the_order(
            frames in prop::collection::vec((14usize..=FRAME_MAX, any::<u8>()), 1..40),
            max in 1150usize..2000,
            seed in any::<u64>(),
        ) {
            let frames: Vec<Vec<u8>> = frames
                .iter()
                .map(|(len, salt)| (0..*len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(*salt)).collect())
                .collect();
            let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
            for (i, frame) in frames.iter().enumerate() {
                all.extend(datagrams(frame, i as u32, max).into_iter().map(|d| (i, d)));
            }
            // Fisher and Yates, with a generator of Knuth's.
            let mut state = seed | 1;
            for i in (1..all.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                all.swap(i, (state >> 33) as usize % (i + 1));
            }
            let (mut assembly, now) = (Assembly::default(), Instant::now());
            let mut back = vec![0; frames.len()];
            for (i, datagram) in &all {
                if let Some(frame) = assembly.take(datagram, now) {
                    prop_assert_eq!(frame, &frames[*i][..]);
                    back[*i] += 1;
                }
            }
            prop_assert_eq!(back, vec![1; frames.len()]);
            prop_assert_eq!((assembly.incomplete, assembly.malformed), (0, 0));
        }

        #[test]
        fn random_bytes_are_taken_within_bounds(
            datagrams in prop::collection::vec(
                (any::<bool>(), 0u8..4, any::<[u8; 8]>(), prop::collection::vec(any::<u8>(), 0..1300)),
                0..200,
            ),
        ) {
            let (mut assembly, now) = (Assembly::default(), Instant::now());
            for (ours, flags, header, bytes) in datagrams {
                let datagram = if ours {
                    // A datagram that passes the first checks.
                    let [a, b, c, d, e, f, g, h] = header;
                    let mut all = vec![VERSION, flags & 1, 0, 0, 0, a % 4, b % 40, c, d % 18, e % 18];
                    all.extend([f, g, h]);
                    all.extend(bytes);
                    all
                } else {
                    [&header[..], &bytes].concat()
                };
                if let Some(frame) = assembly.take(&datagram, now) {
                    prop_assert!((FRAME_MIN..=FRAME_MAX).contains(&frame.len()));
                }
                prop_assert!(assembly.open.len() <= OPEN_MAX);
            }
        }
    }
}
