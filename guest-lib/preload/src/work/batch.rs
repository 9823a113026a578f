//! Sends that are built call by call: `ibv_wr_start` … `ibv_wr_complete`.
//!
//! Requests wait here until the batch is complete: the functions that build them report no errors, and of a batch
//! with an error nothing is posted.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;

use vnic_verbs::{Data, Operation, SendWr, Sge};

use super::latch::Latch;
use super::post::{self, INLINE_MAX, PLAIN_FLAGS};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{maybe, the};
use crate::objects::{Ah, Qp};

/// State of a queue pair's batch. The thread that has started a batch owns it until it has completed or aborted.
#[derive(Debug, Default)]
pub struct Batch {
    latch: Latch,
    /// The requests, which only the owner of the latch touches.
    requests: UnsafeCell<Requests>,
}

// SAFETY: the requests belong to who has the latch.
unsafe impl Sync for Batch {}

/// Requests that were built so far. Their vectors keep their room from one batch to the next.
#[derive(Debug, Default)]
struct Requests {
    all: Vec<Request>,
    elements: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first error.
    error: Option<Errno>,
}

#[derive(Debug)]
struct Request {
    wr: SendWr<'static>,
    place: Place,
    operands: Option<(u64, u64)>,
}

/// Where the bytes of a request are.
#[derive(Debug)]
enum Place {
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
    fn clear(&mut self) {
        self.all.clear();
        self.elements.clear();
        self.bytes.clear();
        self.error = None;
    }

    #[cold]
    fn fail(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    #[inline]
    fn begin(&mut self, wr: SendWr<'static>, place: Place, operands: Option<(u64, u64)>) {
        self.all.push(Request { wr, place, operands });
    }

    /// Changes the request that was begun last.
    #[inline]
    fn set(&mut self, change: impl FnOnce(&mut Request) -> Option<()>) {
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

    #[inline]
    fn set_elements(&mut self, elements: &[Sge]) {
        let from = self.elements.len();
        self.elements.extend_from_slice(elements);
        self.place(Place::Elements(from..self.elements.len()));
    }

    /// # Safety
    /// There are as many bytes as given at each of the addresses.
    #[inline]
    unsafe fn set_inline(&mut self, pieces: impl Iterator<Item = (u64, usize)>) {
        let from = self.bytes.len();
        for (addr, len) in pieces {
            if len > INLINE_MAX.saturating_sub(self.bytes.len() - from) {
                return self.fail(Errno::INVALID);
            }
            // SAFETY: by the caller's promise.
            self.bytes.extend_from_slice(unsafe { post::bytes(addr, len) });
        }
        self.place(Place::Inline(from..self.bytes.len()));
    }

    /// Posts all requests, or none.
    fn post(&self, qp: &Qp) -> Result<(), Errno> {
        let mut sending = post::sending(qp)?;
        self.each(|wr| Ok(sending.post(wr)?))?;
        Ok(sending.ring()?)
    }

    /// Shows all requests in order, as long as `post` takes them.
    #[inline]
    fn each(&self, mut post: impl FnMut(&SendWr<'_>) -> Result<(), Errno>) -> Result<(), Errno> {
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
                    post(&request.wr)?;
                    continue;
                }
                _ => Data::from(elements),
            };
            post(&request.wr.with_data(data))?;
        }
        Ok(())
    }
}

/// The requests of a queue pair.
///
/// # Safety
/// The queue pair is ours, and the caller has its latch.
#[inline]
unsafe fn requests<'a>(qp: *mut ibv_qp_ex) -> &'a mut Requests {
    // SAFETY: by the caller's promise.
    unsafe { &mut *the::<Qp>(qp).batch.requests.get() }
}

/// Begins a request with the id and the flags that the program has set.
///
/// # Safety
/// As [`requests`].
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, wr: SendWr<'static>, place: Place, operands: Option<(u64, u64)>) {
    // SAFETY: by the caller's promise.
    let (requests, id, flags) = unsafe { (requests(qp), (*qp).wr_id, (*qp).wr_flags) };
    // A call of its own makes data inline, and the checksum flag means nothing here.
    if flags & !(PLAIN_FLAGS | IBV_SEND_INLINE | IBV_SEND_IP_CSUM) != 0 {
        requests.fail(Errno::INVALID);
    }
    let wr = wr.id(id).flags((flags & PLAIN_FLAGS) as u8);
    requests.begin(wr, place, operands);
}

/// As [`begin`], for requests with elements or inline bytes.
///
/// # Safety
/// As [`requests`].
#[inline]
unsafe fn begin_data(qp: *mut ibv_qp_ex, operation: Operation, number: u32, to: (u64, u32)) {
    let wr = SendWr::of(operation, Data::NONE).at(to.0, to.1).number(number);
    // SAFETY: by the caller's promise.
    unsafe { begin(qp, wr, Place::None, None) }
}

/// # Safety
/// As [`requests`].
#[inline]
unsafe fn begin_atomic(qp: *mut ibv_qp_ex, operation: Operation, operands: (u64, u64), to: (u64, u32)) {
    let wr = SendWr::of(operation, Data::NONE).at(to.0, to.1);
    // SAFETY: by the caller's promise.
    unsafe { begin(qp, wr, Place::None, Some(operands)) }
}

/// A remote address for operations without one.
const NOWHERE: (u64, u32) = (0, 0);

/// Gives the latch back, however the call ends.
struct Ending<'a>(&'a Batch);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.latch.give_back();
    }
}

operation! {
    /// `ibv_wr_start`.
    fn wr_start(qp: *mut ibv_qp_ex), as plain {
        the::<Qp>(qp).batch.latch.take();
        requests(qp).clear();
        Ok(())
    }

    /// `ibv_wr_complete`: posts all, or none. Errors are those of [`post::post_send`].
    fn wr_complete(qp: *mut ibv_qp_ex) -> c_int, as code {
        let object: &Qp = the(qp);
        let _ending = Ending(&object.batch);
        let requests = requests(qp);
        let result = requests.post(object);
        requests.clear();
        result
    }

    /// `ibv_wr_abort`.
    fn wr_abort(qp: *mut ibv_qp_ex), as plain {
        requests(qp).clear();
        the::<Qp>(qp).batch.latch.give_back();
        Ok(())
    }

    /// `ibv_wr_send`.
    fn wr_send(qp: *mut ibv_qp_ex), as plain {
        begin_data(qp, Operation::Send, 0, NOWHERE);
        Ok(())
    }

    /// `ibv_wr_send_imm`.
    fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32), as plain {
        begin_data(qp, Operation::SendImm, u32::from_be(imm), NOWHERE);
        Ok(())
    }

    /// `ibv_wr_send_inv`.
    fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32), as plain {
        begin_data(qp, Operation::SendInvalidate, rkey, NOWHERE);
        Ok(())
    }

    /// `ibv_wr_rdma_write`.
    fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64), as plain {
        begin_data(qp, Operation::Write, 0, (addr, rkey));
        Ok(())
    }

    /// `ibv_wr_rdma_write_imm`.
    fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, imm: u32), as plain {
        begin_data(qp, Operation::WriteImm, u32::from_be(imm), (addr, rkey));
        Ok(())
    }

    /// `ibv_wr_rdma_read`.
    fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64), as plain {
        begin_data(qp, Operation::Read, 0, (addr, rkey));
        Ok(())
    }

    /// `ibv_wr_atomic_cmp_swp`.
    fn wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, compare: u64, swap: u64), as plain {
        begin_atomic(qp, Operation::CompareSwap, (compare, swap), (addr, rkey));
        Ok(())
    }

    /// `ibv_wr_atomic_fetch_add`.
    fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, add: u64), as plain {
        begin_atomic(qp, Operation::FetchAdd, (add, 0), (addr, rkey));
        Ok(())
    }

    /// `ibv_wr_local_inv`.
    fn wr_local_inv(qp: *mut ibv_qp_ex, key: u32), as plain {
        begin(qp, SendWr::local_invalidate(key), Place::Whole, None);
        Ok(())
    }

    /// `ibv_wr_bind_mw`, for windows of type 2.
    fn wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info), as plain {
        match post::bound_type_2(mw, rkey, &*info) {
            Ok(wr) => begin(qp, wr, Place::Whole, None),
            Err(errno) => requests(qp).fail(errno),
        }
        Ok(())
    }

    /// `ibv_wr_set_ud_addr`.
    fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, number: u32, qkey: u32), as plain {
        requests(qp).set(|request| {
            request.wr = request.wr.to(&maybe::<Ah>(ah)?.inner, number, qkey);
            Some(())
        });
        Ok(())
    }

    /// `ibv_wr_set_xrc_srqn`.
    fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32), as plain {
        requests(qp).set(|request| {
            request.wr = request.wr.to_srq(number);
            Some(())
        });
        Ok(())
    }

    /// `ibv_wr_set_inline_data`.
    fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize), as plain {
        requests(qp).set_inline(std::iter::once((addr.expose_provenance() as u64, length)));
        Ok(())
    }

    /// `ibv_wr_set_inline_data_list`.
    fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf), as plain {
        let pieces: &[ibv_data_buf] = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
        requests(qp).set_inline(pieces.iter().map(|p| (p.addr.expose_provenance() as u64, p.length)));
        Ok(())
    }

    /// `ibv_wr_set_sge`.
    fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32), as plain {
        let one = Sge { addr, len: length, lkey };
        requests(qp).set_elements(&[one]);
        Ok(())
    }

    /// `ibv_wr_set_sge_list`.
    fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge), as plain {
        let count = c_int::try_from(count).unwrap_or(-1);
        match post::elements(list, count) {
            Ok(elements) => requests(qp).set_elements(elements),
            Err(errno) => requests(qp).fail(errno),
        }
        Ok(())
    }
}

const SENDS: c_uint = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
const WRITES: c_uint = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const KEYS: c_uint = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
const ANSWERED: c_uint = IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV;

/// Operations (`IBV_QP_EX_WITH_*`) of a type of queue pair (`IBV_QPT_*`).
pub fn operations(kind: c_uint) -> u64 {
    u64::from(match kind {
        IBV_QPT_RC | IBV_QPT_XRC_SEND => SENDS | WRITES | KEYS | ANSWERED,
        IBV_QPT_UC => SENDS | WRITES | KEYS,
        IBV_QPT_UD => SENDS,
        _ => 0,
    })
}

/// Gives a queue pair of this type (`IBV_QPT_*`) the functions for these operations (`IBV_QP_EX_WITH_*`). EOPNOTSUPP:
/// the type does not have all of them.
pub fn equip(qp: &mut ibv_qp_ex, kind: c_uint, wanted: u64) -> Result<(), Errno> {
    if wanted & !operations(kind) != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_ud_addr = (kind == IBV_QPT_UD).then_some(wr_set_ud_addr as _);
    qp.wr_set_xrc_srqn = (kind == IBV_QPT_XRC_SEND).then_some(wr_set_xrc_srqn as _);
    let wants = |operation: c_uint| wanted & u64::from(operation) != 0;
    macro_rules! builders {
        ($($operation:ident: $field:ident;)*) => {
            $(if wants($operation) {
                qp.$field = Some($field);
            })*
        };
    }
    builders! {
        IBV_QP_EX_WITH_SEND: wr_send;
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm;
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv;
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write;
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm;
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read;
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp;
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add;
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv;
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SGE: Sge = Sge {
        addr: 1,
        len: 8,
        lkey: 3,
    };

    fn all(requests: &Requests) -> Result<Vec<String>, Errno> {
        let mut all = Vec::new();
        requests.each(|wr| {
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

    fn inline(requests: &mut Requests, pieces: &[&[u8]]) {
        let pieces = pieces
            .iter()
            .map(|p| (p.as_ptr().expose_provenance() as u64, p.len()));
        // SAFETY: they are there.
        unsafe { requests.set_inline(pieces) };
    }

    #[test]
    fn requests_have_their_own_bytes() {
        let mut requests = Requests::default();
        // Twice: what was there before the first end is not there any more.
        for _ in 0..2 {
            requests.begin(write(), Place::None, None);
            requests.set_elements(&[SGE, SGE]);
            requests.begin(write(), Place::None, None);
            inline(&mut requests, &[b"one", b"", b"two"]);
            requests.begin(write(), Place::None, None);
            requests.begin(write(), Place::None, None);
            requests.set_elements(&[SGE]);
            inline(&mut requests, &[b"the last one counts"]);
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
        let mistakes: [(&str, Mistake); 5] = [
            ("elements of nothing", |r| r.set_elements(&[SGE])),
            ("elements where there are none", |r| {
                r.begin(SendWr::local_invalidate(9), Place::Whole, None);
                r.set_elements(&[SGE]);
            }),
            ("too much inline", |r| {
                r.begin(write(), Place::None, None);
                inline(r, &[&[0; 3000], &[0; 3000]]);
            }),
            ("an atomic of bytes", |r| {
                r.begin(write(), Place::None, Some((1, 2)));
                inline(r, &[b"12345678"]);
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

    #[test]
    fn only_what_was_asked_for_is_there() {
        let rc = operations(IBV_QPT_RC);
        assert_eq!(rc.count_ones(), 10);
        for (kind, count) in [
            (IBV_QPT_XRC_SEND, 10),
            (IBV_QPT_UC, 6),
            (IBV_QPT_UD, 2),
            (IBV_QPT_XRC_RECV, 0),
        ] {
            assert_eq!(operations(kind).count_ones(), count);
        }
        for (kind, wanted, answer) in [
            (IBV_QPT_UD, IBV_QP_EX_WITH_SEND, Ok(())),
            (IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_RDMA_READ, Ok(())),
            (IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_READ, Err(Errno::UNSUPPORTED)),
            (IBV_QPT_RC, IBV_QP_EX_WITH_TSO, Err(Errno::UNSUPPORTED)),
            (IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE, Err(Errno::UNSUPPORTED)),
        ] {
            // SAFETY: numbers and pointers only.
            let mut qp: ibv_qp_ex = unsafe { std::mem::zeroed() };
            assert_eq!(equip(&mut qp, kind, wanted.into()), answer);
            assert_eq!(qp.wr_start.is_some(), answer.is_ok());
            assert_eq!(
                qp.wr_send.is_some(),
                answer.is_ok() && wanted == IBV_QP_EX_WITH_SEND
            );
            assert!(qp.wr_rdma_write.is_none() && qp.wr_bind_mw.is_none());
            assert_eq!(qp.wr_set_ud_addr.is_some(), answer.is_ok() && kind == IBV_QPT_UD);
            assert_eq!(qp.wr_set_xrc_srqn.is_some(), kind == IBV_QPT_XRC_SEND);
        }
    }
}
