//! Sends that wait until the batch that they are built in is complete.
//!
//! The functions that build them report no errors, and of a batch with an error nothing is posted.

use std::ops::Range;

use vnic_verbs::{Data, SendWr, Sge};

use super::INLINE_MAX;
use super::latch::Latch;
use crate::errno::Errno;

/// A queue pair's batch. The thread that has started it owns it until it has completed or aborted.
pub type Batch = Latch<Requests>;

/// Requests that were built so far. Their vectors keep their room from one batch to the next.
#[derive(Debug, Default)]
pub struct Requests {
    all: Vec<Request>,
    elements: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first error.
    error: Option<Errno>,
}

/// A request, and the operands of an atomic.
#[derive(Debug)]
pub struct Request {
    pub wr: SendWr<'static>,
    place: Place,
    operands: Option<(u64, u64)>,
    /// Headers of a frame that is cut into segments: these bytes of [`Requests::bytes`].
    headers: Range<usize>,
}

/// Where the bytes of a request are.
#[derive(Debug)]
pub enum Place {
    /// Nowhere yet; or the request has none.
    None,
    /// These elements of [`Requests::elements`].
    Elements(Range<usize>),
    /// These bytes of [`Requests::bytes`].
    Inline(Range<usize>),
    /// The request needs no more.
    Whole,
}

impl Requests {
    /// Begins anew.
    pub fn clear(&mut self) {
        self.all.clear();
        self.elements.clear();
        self.bytes.clear();
        self.error = None;
    }

    /// Remembers an error, unless there is one.
    #[cold]
    pub fn fail(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    /// Begins a request.
    #[inline]
    pub fn begin(&mut self, wr: SendWr<'static>, place: Place, operands: Option<(u64, u64)>) {
        self.all.push(Request {
            wr,
            place,
            operands,
            headers: 0..0,
        });
    }

    /// Gives the request that was begun last headers, which are in front of its elements.
    pub fn set_headers(&mut self, headers: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(headers);
        let range = from..self.bytes.len();
        self.set(|request| {
            request.headers = range;
            Some(())
        });
    }

    /// Changes the request that was begun last.
    #[inline]
    pub fn set(&mut self, change: impl FnOnce(&mut Request) -> Option<()>) {
        if self.all.last_mut().and_then(change).is_none() {
            self.fail(Errno::INVALID);
        }
    }

    #[inline]
    fn place(&mut self, place: Place) {
        self.set(|request| {
            if matches!(request.place, Place::Whole) {
                return None;
            }
            request.place = place;
            Some(())
        });
    }

    /// Gives the request that was begun last these elements.
    #[inline]
    pub fn set_elements(&mut self, elements: &[Sge]) {
        let from = self.elements.len();
        self.elements.extend_from_slice(elements);
        self.place(Place::Elements(from..self.elements.len()));
    }

    /// Gives the request that was begun last the bytes of all pieces.
    #[inline]
    pub fn set_inline<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        let from = self.bytes.len();
        for piece in pieces {
            if piece.len() > INLINE_MAX.saturating_sub(self.bytes.len() - from) {
                return self.fail(Errno::INVALID);
            }
            self.bytes.extend_from_slice(piece);
        }
        self.place(Place::Inline(from..self.bytes.len()));
    }

    /// Shows all requests in order, with the headers and elements of those that are cut into segments, as long as `post` takes them.
    #[inline]
    pub fn each(
        &self,
        mut post: impl FnMut(&SendWr<'_>, Option<(&[u8], &[Sge])>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if let Some(errno) = self.error {
            return Err(errno);
        }
        for request in &self.all {
            // A place is always within; one that is not would be an empty one.
            let elements = match &request.place {
                Place::Elements(range) => self.elements.get(range.clone()).unwrap_or(&[]),
                _ => &[],
            };
            let data = match (&request.place, request.operands, elements) {
                (_, Some((first, second)), &[into]) => Data::atomic(into, first, second),
                (_, Some(_), _) => return Err(Errno::INVALID),
                (Place::Inline(range), ..) => Data::inline(self.bytes.get(range.clone()).unwrap_or(&[])),
                (Place::Whole, ..) => {
                    post(&request.wr, None)?;
                    continue;
                }
                _ => Data::from(elements),
            };
            let headers = self.bytes.get(request.headers.clone()).unwrap_or(&[]);
            let segments = match (headers, &request.place) {
                ([], _) => None,
                (_, Place::Inline(_)) => return Err(Errno::INVALID),
                _ => Some((headers, elements)),
            };
            post(&request.wr.with_data(data), segments)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vnic_verbs::Operation;

    use super::*;

    const SGE: Sge = Sge {
        addr: 1,
        len: 8,
        lkey: 3,
    };

    fn all(requests: &Requests) -> Result<Vec<String>, Errno> {
        let mut all = Vec::new();
        requests.each(|wr, segments| {
            assert_eq!(segments, None);
            all.push(format!("{wr:?}"));
            Ok(())
        })?;
        Ok(all)
    }

    fn text(wrs: &[SendWr<'_>]) -> Result<Vec<String>, Errno> {
        Ok(wrs.iter().map(|wr| format!("{wr:?}")).collect())
    }

    fn write() -> SendWr<'static> {
        SendWr::of(Operation::Write, Data::NONE).at(7, 8)
    }

    #[test]
    fn requests_have_their_own_bytes() {
        let mut requests = Requests::default();
        // Twice: what was there before the first end is not there any more.
        for _ in 0..2 {
            requests.begin(write(), Place::None, None);
            requests.set_elements(&[SGE, SGE]);
            requests.begin(write(), Place::None, None);
            requests.set_inline([&b"one"[..], b"", b"two"].into_iter());
            requests.begin(write(), Place::None, None);
            requests.begin(write(), Place::None, None);
            requests.set_elements(&[SGE]);
            requests.set_inline([&b"the last one counts"[..]].into_iter());
            requests.begin(
                SendWr::of(Operation::CompareSwap, Data::NONE).at(7, 8),
                Place::None,
                Some((4, 5)),
            );
            requests.set_elements(&[SGE]);
            requests.begin(SendWr::local_invalidate(9), Place::Whole, None);
            let expected = [
                SendWr::write(&[SGE, SGE], 7, 8),
                SendWr::write(Data::inline(b"onetwo"), 7, 8),
                SendWr::write(Data::NONE, 7, 8),
                SendWr::write(Data::inline(b"the last one counts"), 7, 8),
                SendWr::compare_swap(SGE, 7, 8, 4, 5),
                SendWr::local_invalidate(9),
            ];
            assert_eq!(all(&requests), text(&expected));
            requests.clear();
            assert_eq!(all(&requests), Ok(vec![]));
        }
    }

    #[test]
    fn mistakes_are_remembered() {
        type Mistake = fn(&mut Requests);
        let mistakes: [(&str, Mistake); 6] = [
            ("headers in front of inline bytes", |r| {
                r.begin(SendWr::send(Data::NONE), Place::None, None);
                r.set_headers(b"headers");
                r.set_inline([&b"payload"[..]].into_iter());
            }),
            ("elements of nothing", |r| r.set_elements(&[SGE])),
            ("elements where there are none", |r| {
                r.begin(SendWr::local_invalidate(9), Place::Whole, None);
                r.set_elements(&[SGE]);
            }),
            ("too much inline", |r| {
                r.begin(write(), Place::None, None);
                r.set_inline([&[0; 3000][..]; 2].into_iter());
            }),
            ("an atomic of bytes", |r| {
                r.begin(write(), Place::None, Some((1, 2)));
                r.set_inline([&b"12345678"[..]].into_iter());
            }),
            ("an atomic of two elements", |r| {
                r.begin(write(), Place::None, Some((1, 2)));
                r.set_elements(&[SGE, SGE]);
            }),
        ];
        for (what, mistake) in mistakes {
            let mut requests = Requests::default();
            mistake(&mut requests);
            requests.begin(write(), Place::None, None);
            assert_eq!(all(&requests), Err(Errno::INVALID), "{what}");
            requests.clear();
            assert_eq!(all(&requests), Ok(vec![]), "{what}");
        }
    }
}
