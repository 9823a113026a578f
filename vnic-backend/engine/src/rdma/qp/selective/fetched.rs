//! Which responses of READs have come before others, and what was asked for again.

use alloc::collections::VecDeque;

use vnic_wire::psn::Psn;
use vnic_wire::sack::{self, SPAN};
use vnic_wire::time::Instant;

use super::bits::{Bits, earlier, pieces};

/// Words of the map of responses that came before others.
pub(in super::super) const FETCHED: usize = 64;

/// A part of a READ that was asked for again.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Asked {
    pub(in super::super) from: Psn,
    /// One beyond its last PSN.
    pub(in super::super) to: Psn,
    /// When it was; none: it is to be.
    pub(in super::super) at: Option<Instant>,
    /// When it was for the first time, if nothing of it has come.
    pub(in super::super) first: Option<Instant>,
    /// Times that nothing of it came in time.
    pub(in super::super) tries: u8,
}

/// Responses of which some are missing.
#[derive(Debug)]
pub(in super::super) struct Fetched {
    /// What has landed, from the oldest that is missing on.
    pub(in super::super) came: Bits<FETCHED>,
    /// One beyond the highest response that came, or is known to be due.
    pub(in super::super) end: Psn,
    pub(in super::super) asked: VecDeque<Asked>,
    /// The peer has carried out everything before this.
    pub(in super::super) acked: Psn,
    /// The oldest that was missing when it was last looked for what is late, and when to look again if it is still.
    pub(in super::super) looked: (Psn, Instant),
}

impl Fetched {
    /// PSNs of its map.
    pub const SPAN: u32 = Bits::<FETCHED>::SPAN;

    /// What has landed from `oldest` on.
    pub fn since(&self, oldest: Psn) -> [u64; sack::WORDS] {
        let mut map = [0; sack::WORDS];
        let known = earlier(self.end, oldest.add(SPAN));
        for (word, (at, mask)) in map.iter_mut().zip(pieces(oldest, known)) {
            *word = self.came.word(at) & mask;
        }
        map
    }

    pub(in super::super) fn due(&self) -> Option<usize> {
        self.asked.iter().position(|part| part.at.is_none())
    }
}
