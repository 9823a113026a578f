//! Bytes of messages.
//!
//! Message *i* of a sender has the pattern of the seed *base + i*; the peer gets the base as `seed=` in the endpoint line
//! ([`crate::exchange`]). Queue pair *q* of several counts from *base + q · 2^32*. The pattern of a seed is the output of
//! splitmix64 (Steele, Lea, Flood, OOPSLA 2014), least significant byte first, so that any program can make and check it.

/// Seeds between the messages of one queue pair and those of the next.
pub const QP_STRIDE: u64 = 1 << 32;

/// The 8 bytes of a seed's pattern at a place, in units of 8 bytes.
#[inline]
fn word(seed: u64, place: u64) -> u64 {
    let step = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(place.wrapping_add(1));
    let mut z = seed.wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills bytes with the pattern of a seed. `skip`: bytes of the pattern that come before, a multiple of 8.
pub fn fill(seed: u64, skip: usize, bytes: &mut [u8]) {
    let first = skip as u64 / 8;
    for (place, chunk) in (0u64..).zip(bytes.chunks_mut(8)) {
        let word = word(seed, first + place).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The first byte that is not of the seed's pattern. `skip`: bytes of the pattern that come before, a multiple of 8.
pub fn first_difference(seed: u64, skip: usize, bytes: &[u8]) -> Option<usize> {
    let first = skip as u64 / 8;
    for (place, chunk) in (0u64..).zip(bytes.chunks(8)) {
        let want = word(seed, first + place).to_le_bytes();
        if want[..chunk.len()] != *chunk {
            let at = want.iter().zip(chunk).position(|(a, b)| a != b);
            return Some(place as usize * 8 + at.unwrap_or(0));
        }
    }
    None
}

/// Content of memory into which messages were written one over the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All bytes are of the last message.
    Last,
    /// Pieces are of earlier messages, or were never written: messages were lost.
    Older,
    /// The byte at this offset is of none of the messages.
    Foreign(usize),
}

/// Looks at memory into which unreliable messages were written, one over the other: pieces of `piece` bytes (a packet) may be
/// missing, but none may be of another origin. `seeds`: seeds of the messages, the last one first. The memory was zero at
/// first.
pub fn search(bytes: &[u8], piece: usize, seeds: impl Iterator<Item = u64> + Clone) -> Found {
    let mut found = Found::Last;
    for (n, part) in bytes.chunks(piece).enumerate() {
        let at = n * piece;
        let age = seeds
            .clone()
            .position(|seed| first_difference(seed, at, part).is_none());
        match age {
            Some(0) => {}
            Some(_) => found = Found::Older,
            None if part.iter().all(|b| *b == 0) => found = Found::Older,
            None => {
                let last = seeds.clone().next().unwrap_or(0);
                return Found::Foreign(at + first_difference(last, at, part).unwrap_or(0));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fill(seed, 0, &mut bytes);
        bytes
    }

    /// The first outputs of splitmix64 that begins with 0 and with 1234567, as published with the generator's reference code.
    #[test]
    fn it_is_splitmix64() {
        assert_eq!(pattern(0, 8), 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        let words: Vec<u64> = pattern(1_234_567, 24)
            .chunks(8)
            .map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")))
            .collect();
        assert_eq!(
            words,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn differences_are_found() {
        let mut bytes = pattern(7, 29);
        assert_eq!(first_difference(7, 0, &bytes), None);
        assert_eq!(first_difference(7, 16, &bytes[16..]), None);
        bytes[27] ^= 1;
        assert_eq!(first_difference(7, 0, &bytes), Some(27));
        assert_eq!(first_difference(8, 0, &[]), None);
    }

    #[test]
    fn lost_pieces_are_no_foreign_bytes() {
        let seeds = [9, 8, 7].into_iter();
        assert_eq!(search(&pattern(9, 40), 16, seeds.clone()), Found::Last);
        let mut bytes = pattern(9, 40);
        bytes[16..32].copy_from_slice(&pattern(7, 40)[16..32]);
        assert_eq!(search(&bytes, 16, seeds.clone()), Found::Older);
        bytes[32..].fill(0);
        assert_eq!(search(&bytes, 16, seeds.clone()), Found::Older);
        bytes[33] = 1;
        assert!(matches!(search(&bytes, 16, seeds), Found::Foreign(32 | 33)));
    }
}
