//! What a NAK for a sequence error says to a requester that knows selective repeat: which packets behind the missing one have
//! come. No standard has it; adapters keep theirs to themselves. It is payload behind the AETH, and only for who has set
//! [`selective`](crate::bth::Header::selective).
//!
//! A request of a READ says the same, behind its RETH, of responses that take several ways ([`scattered`](crate::bth::Header::scattered)):
//! the PSN is that of the oldest response that is missing, the map begins there, D and A are 0.
//!
//! ```text
//!  0               8                              31
//! ┌─┬─┬───────────┬────────────────────────────────┐
//! │D│A│reserved, 0│ PSN of the request that made   │  D: that request had come before
//! │ │ │           │ the responder say this         │  A: answers to requests before the missing one are still to be sent
//! ├─┴─┴───────────┴────────────────────────────────┤
//! │ words of 64 bits, most significant first: bit i │  0 to 16 words; what is behind the last one has not come
//! │ of word w: PSN of the NAK + 64 w + i has come   │
//! └─────────────────────────────────────────────────┘
//! ```

use crate::psn::Psn;
use crate::{Error, be32};

/// PSNs that one of these can speak of, the missing one included.
pub const SPAN: u32 = 1024;

/// Words of the map of these PSNs.
pub const WORDS: usize = SPAN as usize / 64;

/// Bytes in front of the map.
pub const HEADER_LEN: usize = 4;

/// Most bytes.
pub const LEN_MAX: usize = HEADER_LEN + WORDS * 8;

/// What has come behind a missing packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// PSN of the request that made the responder say this.
    pub trigger: Psn,
    /// Whether that request had come before.
    pub again: bool,
    /// Whether data that READs and atomics before the missing request ask for is still to be sent.
    pub answers: bool,
    /// A bit for each PSN from the missing one on.
    pub map: [u64; WORDS],
}

impl Header {
    /// Reads it: all of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let (first, words) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
        let (words, rest) = words.as_chunks::<8>();
        if !rest.is_empty() || words.len() > WORDS {
            return Err(Error::Length);
        }
        let mut map = [0; WORDS];
        for (to, from) in map.iter_mut().zip(words) {
            *to = u64::from_be_bytes(*from);
        }
        Ok(Header {
            trigger: Psn::new(be32(first, 0)),
            again: first[0] & 0x80 != 0,
            answers: first[0] & 0x40 != 0,
            map,
        })
    }

    /// Its bytes, and how many they are: words at the end that are 0 are left out.
    pub fn emit(&self) -> ([u8; LEN_MAX], usize) {
        let mut bytes = [0; LEN_MAX];
        let flags = u32::from(self.again) << 31 | u32::from(self.answers) << 30;
        let first = flags | self.trigger.value();
        let used = WORDS - self.map.iter().rev().take_while(|word| **word == 0).count();
        let (head, words) = bytes.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&first.to_be_bytes());
        for (to, word) in words.chunks_exact_mut(8).zip(&self.map[..used]) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        (bytes, HEADER_LEN + used * 8)
    }

    /// Whether the PSN that is `distance` behind the missing one has come.
    #[inline]
    pub fn has(&self, distance: u32) -> bool {
        let word = self.map.get(distance as usize / 64);
        word.is_some_and(|word| word >> (distance % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_long_as_it_must_be() {
        let mut sack = Header {
            trigger: Psn::new(0xab_cdef),
            again: true,
            answers: true,
            map: [0; WORDS],
        };
        let (bytes, len) = sack.emit();
        assert_eq!(&bytes[..len], [0xc0, 0xab, 0xcd, 0xef]);
        sack.answers = false;
        sack.map[1] = 0b101;
        let (bytes, len) = sack.emit();
        assert_eq!((len, bytes[19]), (20, 5));
        assert_eq!(Header::parse(&bytes[..len]), Ok(sack));
        assert!(sack.has(64) && !sack.has(65) && sack.has(66) && !sack.has(5000));
        sack.map[15] = 1 << 63;
        let (bytes, len) = sack.emit();
        assert_eq!(len, LEN_MAX);
        assert_eq!(Header::parse(&bytes[..len]), Ok(sack));
        assert!(sack.has(SPAN - 1));
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(Header::parse(&[0; 3]), Err(Error::Truncated));
        assert_eq!(Header::parse(&[0; 6]), Err(Error::Length));
        assert_eq!(Header::parse(&[0; LEN_MAX + 8]), Err(Error::Length));
    }
}
