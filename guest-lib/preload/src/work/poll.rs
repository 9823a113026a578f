//! Completions: `ibv_poll_cq`, and those that are read field by field (`ibv_start_poll` … `ibv_end_poll`).

use std::ffi::{c_int, c_uint};

use vnic_verbs::cq::completion_flags;
use vnic_verbs::{CompletionStatus, WorkCompletion};

use crate::abi::*;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::Cq;

/// Where a completion queue is in that.
#[derive(Debug, Default)]
pub struct Cursor {}

/// Gives a completion queue the functions that `wc_flags` (`IBV_WC_EX_*`) asks for.
pub fn equip(_cq: &mut ibv_cq_ex, _wc_flags: u64) {}

/// How contexts of ours are known.
pub const POLL_CQ: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int = poll_cq;

operation! {
    /// `ibv_poll_cq`. -1 and ENODEV when the device is gone and there is nothing left to take: whoever waits for a
    /// completion then would wait for ever.
    fn poll_cq(cq: *mut ibv_cq, entries: c_int, into: *mut ibv_wc) -> c_int, as signed {
        let max = usize::try_from(entries).map_err(|_| Errno::INVALID)?;
        let mut slot = into;
        let count = the::<Cq>(cq.cast()).inner.poll_each(max, |completion| {
            slot.write(wc(&completion));
            slot = slot.add(1);
        })?;
        Ok(count as c_int)
    }
}

// Bits of the device's that are those of the header.
const FLAGS: u8 = completion_flags::GRH | completion_flags::IMM | completion_flags::INVALIDATED;
const _: () = {
    assert!(completion_flags::GRH as c_uint == IBV_WC_GRH);
    assert!(completion_flags::IMM as c_uint == IBV_WC_WITH_IMM);
    assert!(completion_flags::INVALIDATED as c_uint == IBV_WC_WITH_INV);
};

/// A completion as a program sees it. Of one that failed only what means something; the rest is zero.
#[inline]
pub fn wc(completion: &WorkCompletion) -> ibv_wc {
    let mut wc = ibv_wc {
        wr_id: completion.id(),
        status: IBV_WC_SUCCESS,
        opcode: opcode(completion),
        vendor_err: 0,
        byte_len: 0,
        datum: ibv_wc_datum { imm_data: 0 },
        qp_num: completion.qp(),
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    };
    if completion.is_success() {
        wc.byte_len = completion.byte_len();
        wc.datum = datum(completion);
        wc.src_qp = completion.source_qp();
        wc.wc_flags = flags(completion);
        wc.pkey_index = completion.pkey_index();
        wc.sl = completion.service_level();
    } else {
        wc.status = status(completion);
        wc.vendor_err = completion.vendor_error();
    }
    wc
}

/// What was done; of one that failed, send or receive.
#[inline]
pub fn opcode(completion: &WorkCompletion) -> c_uint {
    let kind = c_uint::from(completion.kind_number());
    if completion.is_success() {
        kind
    } else {
        kind & IBV_WC_RECV
    }
}

/// Immediate data are big endian, keys are not.
#[inline]
pub fn datum(completion: &WorkCompletion) -> ibv_wc_datum {
    let number = completion.imm_or_key();
    if completion.flags() & completion_flags::IMM != 0 {
        ibv_wc_datum {
            imm_data: number.to_be(),
        }
    } else {
        ibv_wc_datum {
            invalidated_rkey: number,
        }
    }
}

#[inline]
pub fn flags(completion: &WorkCompletion) -> c_uint {
    if completion.is_success() {
        c_uint::from(completion.flags() & FLAGS)
    } else {
        0
    }
}

/// The device's numbers are those of the header, except for one.
#[inline]
pub fn status(completion: &WorkCompletion) -> c_uint {
    match completion.status() {
        CompletionStatus::RemoteAborted => IBV_WC_REM_ABORT_ERR,
        status => c_uint::from(status.number()),
    }
}
