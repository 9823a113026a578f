//! `:authority` of requests over the Unix socket (RFC 9113 section 8.3.1).
//!
//! Clients on gRPC's C core (Python, C++, Ruby, PHP) send the path of the socket there, percent-encoded, and Java's send it as
//! it is. h2 resets such a request, because neither is a host and a port. On a Unix socket the field means nothing: here
//! each gets a value that h2 accepts, before h2 reads it.
//!
//! A field block (RFC 7541) is walked, not decoded: lengths alone tell where a field ends. The new value has one byte, so it
//! is never longer than the one it replaces. That keeps the dynamic tables of both ends together: the table of h2 has
//! all entries of the client's, in the same order, and perhaps older ones, which the client does not name.

use std::ops::Range;

use bytes::BytesMut;

/// Length of the client's connection preface (RFC 9113 section 3.4).
pub const PREFACE: usize = 24;
/// Length of a frame's header (RFC 9113 section 4.1).
const HEADER: usize = 9;
/// Greatest payload that h2 accepts: the initial SETTINGS_MAX_FRAME_SIZE.
const PAYLOAD_MAX: usize = 16_384;
/// Frame type HEADERS, and its flags (RFC 9113 section 6.2).
const HEADERS: u8 = 1;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// Length of the fields that [`PRIORITY`] adds.
const PRIORITY_FIELDS: usize = 5;
/// Index of `:authority` in the static table (RFC 7541 appendix A).
const AUTHORITY: usize = 1;
/// New value as a string literal: its length, without Huffman coding, and a host of one character.
const VALUE: [u8; 2] = [1, b'-'];

/// Bytes of one client on their way to h2.
#[derive(Debug)]
pub struct Authority {
    /// Number of bytes that pass as they are: the rest of the preface, or of a payload.
    through: usize,
    /// Part of a frame's header; of a HEADERS frame also its payload, until it is complete.
    frame: Vec<u8>,
}

impl Authority {
    /// Begins before the preface.
    pub fn new() -> Authority {
        Authority {
            through: PREFACE,
            frame: Vec::new(),
        }
    }

    /// Takes bytes of the client and appends to `out` those that h2 shall read. At most one HEADERS frame is held back.
    pub fn pass(&mut self, mut bytes: &[u8], out: &mut BytesMut) {
        while !bytes.is_empty() {
            if self.through > 0 {
                let (now, rest) = bytes.split_at(self.through.min(bytes.len()));
                out.extend_from_slice(now);
                (self.through, bytes) = (self.through - now.len(), rest);
                continue;
            }
            let wanted = self.frame.first_chunk().map_or(HEADER, |h| HEADER + length(h));
            let (now, rest) = bytes.split_at((wanted - self.frame.len()).min(bytes.len()));
            self.frame.extend_from_slice(now);
            bytes = rest;
            let Some(header) = self.frame.first_chunk() else {
                return;
            };
            let length = length(header);
            if header[3] != HEADERS || length > PAYLOAD_MAX {
                out.extend_from_slice(&self.frame);
                self.through = length;
                self.frame.clear();
            } else if self.frame.len() == HEADER + length {
                // The vector is given up: an idle connection shall not hold it.
                rewrite(&std::mem::take(&mut self.frame), out);
            }
        }
    }
}

/// Length of a frame's payload.
fn length(header: &[u8; HEADER]) -> usize {
    let [a, b, c, ..] = *header;
    usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)
}

/// Appends a HEADERS frame with the new value; a frame without `:authority`, or a malformed one, as it is.
fn rewrite(frame: &[u8], out: &mut BytesMut) {
    let changed = block(frame).and_then(|block| {
        let value = authority(&frame[block.clone()])?;
        let value = block.start + value.start..block.start + value.end;
        let length = frame.len() - HEADER - value.len() + VALUE.len();
        Some((value, u32::try_from(length).ok()?.to_be_bytes()))
    });
    let Some((value, [_, length @ ..])) = changed else {
        out.extend_from_slice(frame);
        return;
    };
    out.extend_from_slice(&length);
    out.extend_from_slice(&frame[length.len()..value.start]);
    out.extend_from_slice(&VALUE);
    out.extend_from_slice(&frame[value.end..]);
}

/// Place of the field block in a HEADERS frame.
fn block(frame: &[u8]) -> Option<Range<usize>> {
    let flags = *frame.get(4)?;
    let (mut start, mut end) = (HEADER, frame.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*frame.get(start)?))?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += PRIORITY_FIELDS;
    }
    (start <= end).then_some(start..end)
}

/// Place of the string literal with the value of `:authority` in a field block: its length and its characters.
fn authority(block: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        // Representations: RFC 7541 section 6. Each begins with an integer; those with a value have 6 or 4 bits of it.
        let bits = match *block.get(at)? {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let index = integer(block, &mut at, bits)?;
        if bits % 2 == 1 {
            // An indexed field, or a new size of the dynamic table.
            continue;
        }
        let is_authority = match index {
            // The C core writes the name out.
            0 => &block[string(block, &mut at)?] == b":authority",
            index => index == AUTHORITY,
        };
        let start = at;
        let value = string(block, &mut at)?;
        if is_authority && !value.is_empty() {
            return Some(start..at);
        }
    }
}

/// Reads an integer (RFC 7541 section 5.1) whose first byte has it in its `bits` lowest bits.
fn integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let mut next = || {
        let byte = *block.get(*at)?;
        *at += 1;
        Some(usize::from(byte))
    };
    let most = (1 << bits) - 1;
    let mut value = next()? & most;
    if value < most {
        return Some(value);
    }
    // Four bytes more are enough for any length in a frame.
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a string literal (RFC 7541 section 5.2); returns the place of its characters, which may be Huffman-coded.
fn string(block: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let length = integer(block, at, 7)?;
    let place = *at..at.checked_add(length)?;
    *at = place.end;
    (place.end <= block.len()).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &[u8] = b"%2Frun%2Fvnic%2Fcontrol.sock";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn literal(text: &[u8]) -> Vec<u8> {
        [&[u8::try_from(text.len()).expect("a length")], text].concat()
    }

    /// What h2 reads, if the client's bytes come in pieces of this size.
    fn passed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut filter, mut out) = (Authority::new(), BytesMut::new());
        bytes.chunks(piece).for_each(|piece| filter.pass(piece, &mut out));
        assert!(filter.frame.is_empty());
        out.to_vec()
    }

    /// Field blocks as clients send them; the second is what h2 shall read.
    fn blocks() -> Vec<(Vec<u8>, Vec<u8>)> {
        let before = [0x83, 0x86, 0x3f, 0xe1, 0x1f, 0x44];
        let after = [
            0x10, 2, b't', b'e', 8, b't', b'r', b'a', b'i', b'l', b'e', b'r', b's',
        ];
        let with =
            |name: &[u8], value: &[u8]| [&before, literal(b"/a").as_slice(), name, value, &after].concat();
        let written_out = [&[0x40], literal(b":authority").as_slice()].concat();
        let mut huffman = literal(&[0xf1, 0xe3, 0xc2]);
        huffman[0] |= 0x80;
        vec![
            (with(&[0x41], &literal(PATH)), with(&[0x41], &VALUE)),
            (with(&[0x01], &literal(b"/run/x.sock")), with(&[0x01], &VALUE)),
            (with(&[0x11], &huffman), with(&[0x11], &VALUE)),
            (with(&written_out, &literal(b"a")), with(&written_out, &VALUE)),
            // No such field, and an empty one.
            (with(&[0x42], &literal(PATH)), with(&[0x42], &literal(PATH))),
            (with(&[0x41], &[0]), with(&[0x41], &[0])),
        ]
    }

    #[test]
    fn the_value_is_replaced_and_nothing_else_however_the_bytes_come() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(preface.len(), PREFACE);
        let mut sent = preface.to_vec();
        let mut read = preface.to_vec();
        for (was, is) in blocks() {
            let around = |block: &[u8]| [&[3, 1, 2, 3, 4, 5], block, &[0; 3]].concat();
            for (kind, flags, was, is) in [
                (1, 0x4, was.clone(), is.clone()),
                (1, 0x4 | PADDED | PRIORITY, around(&was), around(&is)),
                // Of another type.
                (0, 0, was.clone(), was.clone()),
                (9, 0x4, was.clone(), was.clone()),
                (4, 0, Vec::new(), Vec::new()),
            ] {
                sent.extend(frame(kind, flags, &was));
                read.extend(frame(kind, flags, &is));
            }
        }
        for piece in [1, 2, 7, 64, sent.len()] {
            assert_eq!(passed(&sent, piece), read, "pieces of {piece}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_pass_in_any_pieces_and_never_grow(
            frames in proptest::collection::vec((0_u8..3, 0_u8.., proptest::collection::vec(0_u8.., 0..40)), 0..6),
            piece in 1_usize..50,
        ) {
            let mut sent = vec![b'x'; PREFACE];
            frames.iter().for_each(|(kind, flags, payload)| sent.extend(frame(*kind, *flags, payload)));
            let whole = passed(&sent, sent.len());
            proptest::prop_assert!(whole.len() <= sent.len());
            proptest::prop_assert_eq!(whole, passed(&sent, piece));
        }
    }

    #[test]
    fn malformed_and_large_frames_pass_as_they_are() {
        let mut sent = vec![b'x'; PREFACE];
        for payload in [
            &[][..],
            &[0x41],
            &[0x41, 0x7f],
            &[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x41, 5, b'a'],
            &[0x40, 0x7f, 0x80],
            &[0xff; 40],
            &[200, 1],
        ] {
            for flags in [0, PADDED, PRIORITY, PADDED | PRIORITY] {
                sent.extend(frame(1, flags, payload));
            }
        }
        sent.extend(frame(
            1,
            0,
            &[vec![0x41, 1, b'a'], vec![0x82; PAYLOAD_MAX]].concat(),
        ));
        sent.extend(frame(1, 0, &[0x82]));
        for piece in [1, 9, sent.len()] {
            assert_eq!(passed(&sent, piece), sent);
        }
    }
}
