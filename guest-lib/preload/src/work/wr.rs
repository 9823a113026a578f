//! Sends that are built call by call: `ibv_wr_start` … `ibv_wr_complete`.

#![expect(unsafe_code, reason = "follows pointers of programs in C to what they send")]

use std::ffi::{c_int, c_uint, c_void};

use vnic_verbs::wr::send_flags;
use vnic_verbs::{Data, Operation, SendWr, Sge};

use super::INLINE_MAX;
use super::batch::{Batch, Place, Requests};
use super::post::{self, PLAIN_FLAGS};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{maybe, the};
use crate::objects::{Ah, Qp};
use crate::work::segments::Headers;

/// The requests of a queue pair.
///
/// # Safety
/// The queue pair is ours, and the caller has its latch.
#[inline]
unsafe fn requests<'a>(qp: *mut ibv_qp_ex) -> &'a mut Requests {
    // SAFETY: by the caller's promise.
    unsafe { the::<Qp>(qp).batch.value() }
}

/// Begins a request with the id and the flags that the program has set.
///
/// # Safety
/// As [`requests`].
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, wr: SendWr<'static>, place: Place, operands: Option<(u64, u64)>) {
    // SAFETY: by the caller's promise.
    let (requests, id, flags) = unsafe { (requests(qp), (*qp).wr_id, (*qp).wr_flags) };
    // A call of its own makes data inline, and the checksum flag means something for raw packets only.
    if flags & !(PLAIN_FLAGS | IBV_SEND_INLINE | IBV_SEND_IP_CSUM) != 0 {
        requests.fail(Errno::INVALID);
    }
    // SAFETY: by the caller's promise; nobody changes the type.
    let fills = flags & IBV_SEND_IP_CSUM != 0 && unsafe { (*qp).qp_base.qp_type } == IBV_QPT_RAW_PACKET;
    let checksum = if fills { send_flags::CHECKSUM } else { 0 };
    let wr = wr.id(id).flags((flags & PLAIN_FLAGS) as u8 | checksum);
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

/// Posts all requests, or none.
fn post_all(qp: &Qp, requests: &Requests) -> Result<(), Errno> {
    let mut sending = post::sending(qp)?;
    let place = qp.headers.as_ref().map(Headers::place);
    let posted = requests.each(|wr, segments| match segments {
        None => Ok(sending.post(wr)?),
        Some((headers, list)) => post::post_headed(qp, headers, list, |all| {
            sending.post(&wr.with_data(Data::from(all)))
        }),
    });
    let rung = posted.and_then(|()| Ok(sending.ring()?));
    if let (Some(headers), Some(place), true) = (&qp.headers, place, rung.is_err()) {
        headers.take_back(place);
    }
    rung
}

/// Bytes that the program wants inline; of more than any request may have, one more than that.
///
/// # Safety
/// The bytes are there, and nobody changes them meanwhile.
unsafe fn bytes<'a>(addr: *mut c_void, length: usize) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    unsafe { post::bytes(addr.expose_provenance() as u64, length.min(INLINE_MAX + 1)) }
}

/// Gives the latch back, however the call ends.
struct Ending<'a>(&'a Batch);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Functions that begin a request.
macro_rules! beginnings {
    ($($(#[$doc:meta])* fn $name:ident($qp:ident $(, $arg:ident: $type:ty)*) => $begins:expr;)*) => {
        operation! {$(
            $(#[$doc])* fn $name($qp: *mut ibv_qp_ex $(, $arg: $type)*), as plain { $begins; Ok(()) }
        )*}
    };
}

beginnings! {
    /// `ibv_wr_send`.
    fn wr_send(qp) => begin_data(qp, Operation::Send, 0, NOWHERE);
    /// `ibv_wr_send_imm`.
    fn wr_send_imm(qp, imm: u32) => begin_data(qp, Operation::SendImm, u32::from_be(imm), NOWHERE);
    /// `ibv_wr_send_inv`.
    fn wr_send_inv(qp, rkey: u32) => begin_data(qp, Operation::SendInvalidate, rkey, NOWHERE);
    /// `ibv_wr_rdma_write`.
    fn wr_rdma_write(qp, rkey: u32, addr: u64) => begin_data(qp, Operation::Write, 0, (addr, rkey));
    /// `ibv_wr_rdma_write_imm`.
    fn wr_rdma_write_imm(qp, rkey: u32, addr: u64, imm: u32)
        => begin_data(qp, Operation::WriteImm, u32::from_be(imm), (addr, rkey));
    /// `ibv_wr_rdma_read`.
    fn wr_rdma_read(qp, rkey: u32, addr: u64) => begin_data(qp, Operation::Read, 0, (addr, rkey));
    /// `ibv_wr_atomic_cmp_swp`.
    fn wr_atomic_cmp_swp(qp, rkey: u32, addr: u64, compare: u64, swap: u64)
        => begin_atomic(qp, Operation::CompareSwap, (compare, swap), (addr, rkey));
    /// `ibv_wr_atomic_fetch_add`.
    fn wr_atomic_fetch_add(qp, rkey: u32, addr: u64, add: u64)
        => begin_atomic(qp, Operation::FetchAdd, (add, 0), (addr, rkey));
    /// `ibv_wr_send_tso`. The headers are copied now, and the payload follows by elements.
    fn wr_send_tso(qp, headers: *mut c_void, length: u16, size: u16) => begin_segments(qp, headers, length, size);
    /// `ibv_wr_local_inv`.
    fn wr_local_inv(qp, key: u32) => begin(qp, SendWr::local_invalidate(key), Place::Whole, None);
}

/// Begins a frame that the device cuts into segments of `size` bytes.
///
/// # Safety
/// As [`requests`], and the headers are there.
unsafe fn begin_segments(qp: *mut ibv_qp_ex, headers: *mut c_void, length: u16, size: u16) {
    let wr = SendWr::of(Operation::Send, Data::NONE);
    // SAFETY: by the caller's promise.
    unsafe {
        begin(qp, wr, Place::None, None);
        let requests = requests(qp);
        if length == 0 || size == 0 {
            return requests.fail(Errno::INVALID);
        }
        requests.set(|request| {
            request.wr = request.wr.segments(size);
            Some(())
        });
        requests.set_headers(bytes(headers, length.into()));
    }
}

operation! {
    /// `ibv_wr_start`.
    fn wr_start(qp: *mut ibv_qp_ex), as plain {
        the::<Qp>(qp).batch.take();
        requests(qp).clear();
        Ok(())
    }

    /// `ibv_wr_complete`: posts all, or none. Errors are those of [`post::post_send`].
    fn wr_complete(qp: *mut ibv_qp_ex) -> c_int, as code {
        let object: &Qp = the(qp);
        let _ending = Ending(&object.batch);
        let requests = requests(qp);
        let result = post_all(object, requests);
        requests.clear();
        result
    }

    /// `ibv_wr_abort`.
    fn wr_abort(qp: *mut ibv_qp_ex), as plain {
        requests(qp).clear();
        the::<Qp>(qp).batch.give_back();
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

    /// `mlx5dv_wr_set_dc_addr`.
    fn wr_set_dc_addr(qp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, target: u32, access_key: u64), as plain {
        requests(Qp::with_mlx5(qp)).set(|request| {
            request.wr = request.wr.to_target(&maybe::<Ah>(ah)?.inner, target, access_key);
            Some(())
        });
        Ok(())
    }

    /// `mlx5dv_wr_set_dc_addr_stream`. Streams keep errors apart; there are none, and a number of one changes nothing (perftest calls
    /// this for all initiators).
    fn wr_set_dc_addr_stream(qp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, target: u32, access_key: u64, _stream: u16), as plain {
        wr_set_dc_addr(qp, ah, target, access_key);
        Ok(())
    }

    /// `ibv_wr_set_inline_data`.
    fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize), as plain {
        requests(qp).set_inline(std::iter::once(bytes(addr, length)));
        Ok(())
    }

    /// `ibv_wr_set_inline_data_list`.
    fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf), as plain {
        let pieces: &[ibv_data_buf] = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
        requests(qp).set_inline(pieces.iter().map(|p| bytes(p.addr, p.length)));
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
        IBV_QPT_RC | IBV_QPT_XRC_SEND | IBV_QPT_DRIVER => SENDS | WRITES | KEYS | ANSWERED,
        IBV_QPT_UC => SENDS | WRITES | KEYS,
        IBV_QPT_UD => SENDS,
        IBV_QPT_RAW_PACKET => IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
        _ => 0,
    })
}

/// Gives a queue pair of this type (`IBV_QPT_*`) the functions for these operations (`IBV_QP_EX_WITH_*`). EOPNOTSUPP:
/// the type does not have all of them.
pub fn equip(qp: &mut ibv_qp_ex, kind: c_uint, wanted: u64) -> Result<(), Errno> {
    if wanted & !operations(kind) != 0 {
        return Err(Errno::UNSUPPORTED
            .because("a type of queue pair has not all of these operations (send_ops_flags)"));
    }
    give! {
        qp;
        wr_start wr_complete wr_abort wr_set_inline_data wr_set_inline_data_list wr_set_sge wr_set_sge_list
    }
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
        IBV_QP_EX_WITH_TSO: wr_send_tso;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_there() {
        let rc = operations(IBV_QPT_RC);
        assert_eq!(rc.count_ones(), 10);
        for (kind, count) in [
            (IBV_QPT_XRC_SEND, 10),
            (IBV_QPT_DRIVER, 10),
            (IBV_QPT_UC, 6),
            (IBV_QPT_UD, 2),
            (IBV_QPT_RAW_PACKET, 2),
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
