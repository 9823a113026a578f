//! The Internet checksum (RFC 1071): ones-complement sum of 16-bit words in network order.
//!
//! Sums are `u32` with room for carries: up to 65,536 results of [`sum`] can be added with `+` before
//! [`fold`].

/// The sum over `data`, as if it began at an even offset; an odd last byte counts as the upper half of a
/// word. At most 0xffff.
#[inline]
pub fn sum(data: &[u8]) -> u32 {
    // Sums of 32-bit words in 64-bit lanes: no carry is lost below 2^32 words. Byte order does not matter
    // to a ones-complement sum (RFC 1071 section 2 B), so words are taken as they lie in memory.
    const LANES: usize = 8;
    let mut lanes = [0u64; LANES];
    let (blocks, rest) = data.as_chunks::<{ LANES * 4 }>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (lane, w) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*w));
        }
    }
    let mut total = lanes.iter().fold(0u64, |a, l| a + (l & 0xffff_ffff) + (l >> 32));
    let (words, tail) = rest.as_chunks::<4>();
    for w in words {
        total += u64::from(u32::from_ne_bytes(*w));
    }
    let mut last = [0u8; 4];
    for (l, t) in last.iter_mut().zip(tail) {
        *l = *t;
    }
    total += u64::from(u32::from_ne_bytes(last));
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff_ffff) + (total >> 32);
    u32::from(u16::from_be(fold(fold32(total as u32))))
}

#[inline]
const fn fold32(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

/// The sum in 16 bits, carries added. The checksum is its complement.
#[inline]
pub const fn fold(sum: u32) -> u16 {
    fold32(fold32(sum)) as u16
}

/// Adds to `total` the sum of a piece that begins `offset` bytes behind the start of the whole. At an odd offset the bytes
/// of the piece change places (RFC 1071 section 2 B).
#[inline]
pub const fn combine(total: u32, piece: u32, offset: usize) -> u32 {
    let piece = fold(piece);
    let piece = if offset % 2 == 1 {
        piece.swap_bytes()
    } else {
        piece
    };
    fold(total) as u32 + piece as u32
}

/// Sum of the pseudo header of TCP and UDP over IPv4 (RFC 9293 section 3.1, RFC 768); `len` is the length of header and
/// payload.
#[inline]
pub fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, len: u32) -> u32 {
    sum(&source) + sum(&destination) + u32::from(protocol) + (len >> 16) + (len & 0xffff)
}

/// Sum of the pseudo header over IPv6 (RFC 8200 section 8.1); `len` is the length of header and payload.
#[inline]
pub fn pseudo_v6(source: &[u8; 16], destination: &[u8; 16], protocol: u8, len: u32) -> u32 {
    sum(source) + sum(destination) + u32::from(protocol) + (len >> 16) + (len & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071 word by word.
    fn naive(data: &[u8]) -> u16 {
        let mut s = 0u64;
        for w in data.chunks(2) {
            s += u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0));
        }
        while s > 0xffff {
            s = (s & 0xffff) + (s >> 16);
        }
        s as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&data)), 0xddf2);
    }

    #[test]
    fn extremes() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0; 4096]), 0);
        let ones = [0xff; 70_001];
        assert_eq!(fold(sum(&ones)), naive(&ones));
        assert_eq!(fold(0xffff_ffff), 0xffff);
        assert_eq!(fold(0x0001_ffff), 1);
    }

    proptest! {
        #[test]
        fn equals_the_naive_sum(data in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(sum(&data), u32::from(naive(&data)));
        }

        #[test]
        fn pieces_add_up(data in prop::collection::vec(any::<u8>(), 1..300), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let mut at: Vec<usize> = cuts.iter().map(|c| c.index(data.len())).collect();
            at.extend([0, data.len()]);
            at.sort_unstable();
            let total = at.windows(2).fold(0, |t, w| combine(t, sum(&data[w[0]..w[1]]), w[0]));
            prop_assert_eq!(fold(total), naive(&data));
        }
    }
}
