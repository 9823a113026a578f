//! What the bytes of a device's memory should be, and who may touch them.

use vnic_engine::rdma::Span;

use crate::memory::SimMemory;

/// May the engine read or write there?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Copy out.
    Read,
    /// Copy in.
    Write,
}

/// Leave to touch bytes of a device's memory, for as long as a work request is outstanding.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Whose memory.
    pub dev: usize,
    /// For what.
    pub right: Right,
    /// Which bytes.
    pub spans: Vec<Span>,
}

/// The oracle's picture of one memory.
#[derive(Debug)]
pub struct Bytes {
    /// What it holds when all that was posted has been carried out.
    expected: Vec<u8>,
    /// Bytes of which that is not known: targets of what failed, cells of atomics.
    unknown: Vec<bool>,
    /// How many grants there are for each byte.
    readable: Vec<u16>,
    writable: Vec<u16>,
}

/// A range of a vector.
fn of<T>(v: &[T], s: Span) -> &[T] {
    &v[s.at as usize..][..s.len as usize]
}

fn of_mut<T>(v: &mut [T], s: Span) -> &mut [T] {
    &mut v[s.at as usize..][..s.len as usize]
}

impl Bytes {
    /// So many zeros that nobody may touch.
    pub fn new(len: usize) -> Bytes {
        Bytes {
            expected: vec![0; len],
            unknown: vec![false; len],
            readable: vec![0; len],
            writable: vec![0; len],
        }
    }

    fn counts(&mut self, right: Right) -> &mut [u16] {
        match right {
            Right::Read => &mut self.readable,
            Right::Write => &mut self.writable,
        }
    }

    /// Gives leave.
    pub fn grant(&mut self, right: Right, spans: &[Span]) {
        for s in spans {
            for n in of_mut(self.counts(right), *s) {
                *n = n.saturating_add(1);
            }
        }
    }

    /// Takes it back.
    pub fn revoke(&mut self, right: Right, spans: &[Span]) {
        for s in spans {
            for n in of_mut(self.counts(right), *s) {
                *n = n.saturating_sub(1);
            }
        }
    }

    /// The first byte of a range that may not be touched so.
    pub fn forbidden(&self, right: Right, at: u64, len: u64) -> Option<u64> {
        let counts = match right {
            Right::Read => &self.readable,
            Right::Write => &self.writable,
        };
        let range = counts.get(at as usize..(at + len) as usize);
        let Some(range) = range else { return Some(at) };
        range.iter().position(|n| *n == 0).map(|i| at + i as u64)
    }

    /// Are these bytes the target of one grant only?
    pub fn alone(&self, spans: &[Span]) -> bool {
        spans
            .iter()
            .all(|s| of(&self.writable, *s).iter().all(|n| *n == 1))
    }

    /// The bytes there, once all has been carried out; none if some are not known.
    pub fn gather(&self, spans: &[Span]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(spans.iter().map(|s| s.len as usize).sum());
        for s in spans {
            if of(&self.unknown, *s).contains(&true) {
                return None;
            }
            out.extend_from_slice(of(&self.expected, *s));
        }
        Some(out)
    }

    /// These bytes will be there; none: nobody knows.
    pub fn scatter(&mut self, spans: &[Span], from: Option<&[u8]>) {
        let mut from = from;
        for s in spans {
            match &mut from {
                Some(bytes) => {
                    let n = bytes.len().min(s.len as usize);
                    let (now, later) = bytes.split_at(n);
                    let s = Span { len: n as u64, ..*s };
                    of_mut(&mut self.expected, s).copy_from_slice(now);
                    of_mut(&mut self.unknown, s).fill(false);
                    *bytes = later;
                }
                None => of_mut(&mut self.unknown, *s).fill(true),
            }
        }
    }

    /// The first byte that is not what it should be.
    pub fn differs(&self, memory: &SimMemory) -> Option<(u64, u8, u8)> {
        let real = memory.peek();
        let known = self.expected.iter().zip(&self.unknown).zip(real.iter());
        known
            .enumerate()
            .find(|(_, ((e, u), r))| !**u && e != r)
            .map(|(i, ((e, _), r))| (i as u64, *e, *r))
    }

    /// Bytes whose value is known.
    pub fn known(&self) -> usize {
        self.unknown.iter().filter(|u| !**u).count()
    }
}

/// The bytes that are there.
pub fn read(memory: &SimMemory, spans: &[Span]) -> Vec<u8> {
    let real = memory.peek();
    spans.iter().flat_map(|s| of(&real, *s).iter().copied()).collect()
}

/// The first place where two byte strings differ.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<usize> {
    if expected.len() != found.len() {
        return Some(expected.len().min(found.len()));
    }
    expected.iter().zip(found).position(|(a, b)| a != b)
}
