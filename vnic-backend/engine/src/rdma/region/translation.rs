//! Memory of a region: as a caller gives it, and as the region keeps it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::limits::in_range;
use super::super::on_demand::Pages;
use super::super::types::{Span, VerbsError};

/// Memory of a region that is to be made: spans, one behind the other. They are given one by one, so that a caller with many of
/// them can take its time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Translation {
    /// Beginning of each piece, in the region's bytes and in memory.
    pub(super) extents: Vec<(u64, u64)>,
    pub(super) len: u64,
    /// End of the last piece in memory.
    end: Option<u64>,
    /// Whether it is longer than any memory.
    pub(super) endless: bool,
}

impl Translation {
    /// A translation of no bytes, with room for `pieces` pieces.
    pub fn with_capacity(pieces: usize) -> Translation {
        Translation {
            extents: Vec::with_capacity(pieces),
            ..Translation::default()
        }
    }

    /// Adds the next span. Neighbours are joined, empty spans forgotten.
    #[inline]
    pub fn push(&mut self, span: Span) {
        if span.len == 0 {
            return;
        }
        let end = span.at.checked_add(span.len);
        let (Some(end), Some(len)) = (end, self.len.checked_add(span.len)) else {
            self.endless = true;
            return;
        };
        if self.end != Some(span.at) {
            self.extents.push((self.len, span.at));
        }
        self.end = Some(end);
        self.len = len;
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// The spans, one behind the other.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        let ends = self.extents.iter().skip(1).map(|(start, _)| *start);
        let pieces = self.extents.iter().zip(ends.chain([self.len]));
        pieces.map(|((start, at), end)| Span {
            at: *at,
            len: end - start,
        })
    }

    /// Bytes and extents.
    pub(super) fn finish(self, max_size: u64) -> Result<(u64, Extents), VerbsError> {
        if self.endless {
            return Err(VerbsError::Invalid("memory of a region beyond 2^64"));
        }
        in_range("bytes of a region", self.len, 0, max_size)?;
        let extents = match self.extents[..] {
            [(_, at)] => Extents::One(at),
            _ => Extents::Many(self.extents.into_boxed_slice()),
        };
        Ok((self.len, extents))
    }
}

impl From<Vec<Span>> for Translation {
    fn from(spans: Vec<Span>) -> Translation {
        let mut made = Translation::default();
        spans.into_iter().for_each(|span| made.push(span));
        made
    }
}

/// A region's memory.
#[derive(Debug, PartialEq, Eq)]
pub enum Extents {
    /// One piece.
    One(u64),
    /// Several pieces, or none: the beginning of each, in the region's bytes and in memory. The first begins at byte 0. One piece at
    /// [`NULL_MEMORY`](crate::rdma::NULL_MEMORY) is no memory: all bytes are there, reads give zeros, and writes are forgotten.
    Many(Box<[(u64, u64)]>),
    /// Those that the driver has given so far.
    OnDemand(Box<Pages>),
}

impl Extents {
    /// Entries that it takes of the translation table.
    pub fn count(&self) -> u32 {
        match self {
            Extents::One(_) => 1,
            Extents::Many(extents) => extents.len() as u32,
            Extents::OnDemand(pages) => pages.count(),
        }
    }
}
