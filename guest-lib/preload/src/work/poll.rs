//! Completions: `ibv_poll_cq`, and the conversion of fields to those of the header.

#![expect(unsafe_code, reason = "writes completions where programs in C want them")]

use std::ffi::{c_int, c_uint};

use vnic_verbs::cq::completion_flags;
use vnic_verbs::{CompletionStatus, Error, WorkCompletion};

use crate::abi::*;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::Cq;

/// The function that identifies our contexts.
// SAFETY: named, and called by nobody here.
pub const POLL_CQ: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int = poll_cq;

/// Whether a context is ours. Callers must ask before they do anything else with it.
///
/// # Safety
/// The pointer is NULL, or that of a context, of ours or of the real library.
pub unsafe fn is_ours(context: *const ibv_context) -> bool {
    // SAFETY: by the caller's promise.
    !context.is_null()
        && unsafe { (*context).ops.poll_cq }.is_some_and(|poll| std::ptr::fn_addr_eq(poll, POLL_CQ))
}

operation! {
    /// `ibv_poll_cq`. When the device is gone, requests that are left end in IBV_WC_WR_FLUSH_ERR, and then there are
    /// none, as on a card. -1 and ENODEV in a forked child of the process that opened it.
    fn poll_cq(cq: *mut ibv_cq, entries: c_int, into: *mut ibv_wc) -> c_int, as signed {
        let max = usize::try_from(entries).map_err(|_| Errno::INVALID)?;
        let mut slot = into;
        let object: &Cq = the(cq.cast());
        let count = found(object, object.inner.poll_each(max, |completion| {
            slot.write(wc(&completion));
            slot = slot.add(1);
        }))?;
        object.cursor.patience.found(count);
        Ok(count as c_int)
    }
}

/// Completions that a poll has found: none of a device that is gone, whose requests have all ended.
#[inline]
pub fn found(queue: &Cq, result: Result<usize, Error>) -> Result<usize, Errno> {
    match result {
        Err(e) if e.is_gone() && !queue.inner.is_parents() => Ok(0),
        result => Ok(result?),
    }
}

// Flags of the device with the same bits in the header.
const FLAGS: u8 = completion_flags::GRH
    | completion_flags::IMM
    | completion_flags::CHECKSUM_OK
    | completion_flags::INVALIDATED;
const _: () = {
    assert!(completion_flags::GRH as c_uint == IBV_WC_GRH);
    assert!(completion_flags::IMM as c_uint == IBV_WC_WITH_IMM);
    assert!(completion_flags::CHECKSUM_OK as c_uint == IBV_WC_IP_CSUM_OK);
    assert!(completion_flags::INVALIDATED as c_uint == IBV_WC_WITH_INV);
};

/// A completion as a program sees it.
#[inline]
pub fn wc(completion: &WorkCompletion) -> ibv_wc {
    if !completion.is_success() {
        return failed(completion);
    }
    ibv_wc {
        wr_id: completion.id(),
        status: IBV_WC_SUCCESS,
        opcode: c_uint::from(completion.kind_number()),
        vendor_err: 0,
        byte_len: completion.byte_len(),
        datum: datum(completion),
        qp_num: completion.qp(),
        src_qp: completion.source_qp(),
        wc_flags: c_uint::from(completion.flags() & FLAGS),
        pkey_index: completion.pkey_index(),
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    }
}

/// A failed completion: only fields that mean something; the rest is zero.
#[cold]
fn failed(completion: &WorkCompletion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.id(),
        status: status(completion),
        opcode: opcode(completion),
        vendor_err: completion.vendor_error(),
        qp_num: completion.qp(),
        ..zeros()
    }
}

/// Operation of a completion; for a failed one, send or receive.
#[inline]
pub fn opcode(completion: &WorkCompletion) -> c_uint {
    let kind = c_uint::from(completion.kind_number());
    if completion.is_success() {
        kind
    } else {
        kind & IBV_WC_RECV
    }
}

/// Bit of [`service_level`]: the datagram came without a VLAN tag, over UDP.
const OVER_UDP: u8 = 1 << 3;

/// The service level that the `sl` of a program's address stands for: of one that it has from a completion without a VLAN tag, none.
/// (So 9 and 10 are no service levels of addresses there.)
pub const fn level_of(sl: u8) -> u8 {
    const V4: u8 = OVER_UDP | 2;
    const V6: u8 = OVER_UDP | 1;
    match sl {
        V4 | V6 => 0,
        level => level,
    }
}

/// `sl` of a datagram: the priority of its VLAN tag; without a tag what libmlx5 gives for RoCE v2, [`OVER_UDP`] and the network header,
/// 1 for IPv6 and 2 for IPv4. UCX tells by it which address is in the first 40 bytes.
#[inline]
pub fn service_level(completion: &WorkCompletion) -> u8 {
    match completion.network_header() {
        0 => completion.service_level(),
        _ if completion.vlan().is_some() => completion.service_level(),
        header => OVER_UDP | header,
    }
}

/// Immediate data (big endian) or the invalidated key (not).
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

/// Status of a completion. The device's numbers are those of the header, except for one.
#[inline]
pub fn status(completion: &WorkCompletion) -> c_uint {
    match completion.status() {
        CompletionStatus::RemoteAborted => IBV_WC_REM_ABORT_ERR,
        status => c_uint::from(status.number()),
    }
}

#[cfg(test)]
mod tests {
    use vnic_device::queue::{CompletionEntry, CompletionKind};

    use super::*;

    fn success(kind: u8) -> CompletionEntry {
        CompletionEntry {
            wr_id: 0x1122_3344_5566_7788,
            qp: 0x102,
            byte_len: 77,
            imm: 0x0a0b_0c0d,
            source_qp: 0x103,
            service_level: 5,
            vlan: 9,
            consumed: 99,
            kind,
            phase: 0x80,
            ..CompletionEntry::default()
        }
    }

    #[test]
    fn kinds_have_the_numbers_of_the_header() {
        for (kind, opcode) in [
            (CompletionKind::Send, IBV_WC_SEND),
            (CompletionKind::Write, IBV_WC_RDMA_WRITE),
            (CompletionKind::Read, IBV_WC_RDMA_READ),
            (CompletionKind::CompareSwap, IBV_WC_COMP_SWAP),
            (CompletionKind::FetchAdd, IBV_WC_FETCH_ADD),
            (CompletionKind::BindMw, IBV_WC_BIND_MW),
            (CompletionKind::LocalInvalidate, IBV_WC_LOCAL_INV),
            (CompletionKind::Recv, IBV_WC_RECV),
            (CompletionKind::RecvWriteImm, IBV_WC_RECV_RDMA_WITH_IMM),
        ] {
            let seen = wc(&success(kind.number()).into());
            assert_eq!((seen.opcode, seen.status), (opcode, IBV_WC_SUCCESS), "{kind:?}");
            assert_eq!((seen.wr_id, seen.qp_num), (0x1122_3344_5566_7788, 0x102));
            assert_eq!((seen.byte_len, seen.src_qp, seen.sl), (77, 0x103, 5));
        }
    }

    #[test]
    fn service_levels_of_untagged_datagrams_tell_the_network_header() {
        for (network, flags, level) in [
            (0, 0, 5),
            (1, 0, 9),
            (2, 0, 10),
            (1, completion_flags::VLAN, 5),
            (2, completion_flags::VLAN, 5),
        ] {
            let entry = CompletionEntry {
                network,
                flags,
                ..success(CompletionKind::Recv.number())
            };
            assert_eq!(wc(&entry.into()).sl, level, "{network} {flags}");
        }
    }

    #[test]
    fn statuses_have_the_numbers_of_the_header() {
        use CompletionStatus as S;
        for (status, number) in [
            (S::LocalLengthError, IBV_WC_LOC_LEN_ERR),
            (S::LocalQpOperationError, IBV_WC_LOC_QP_OP_ERR),
            (S::LocalProtectionError, IBV_WC_LOC_PROT_ERR),
            (S::FlushError, IBV_WC_WR_FLUSH_ERR),
            (S::MwBindError, IBV_WC_MW_BIND_ERR),
            (S::BadResponseError, IBV_WC_BAD_RESP_ERR),
            (S::LocalAccessError, IBV_WC_LOC_ACCESS_ERR),
            (S::RemoteInvalidRequestError, IBV_WC_REM_INV_REQ_ERR),
            (S::RemoteAccessError, IBV_WC_REM_ACCESS_ERR),
            (S::RemoteOperationError, IBV_WC_REM_OP_ERR),
            (S::RetryExceeded, IBV_WC_RETRY_EXC_ERR),
            (S::RnrRetryExceeded, IBV_WC_RNR_RETRY_EXC_ERR),
            (S::RemoteAborted, IBV_WC_REM_ABORT_ERR),
        ] {
            // What a failed completion says besides is not to be looked at, so it is not passed on.
            for (kind, opcode) in [(0x7f, IBV_WC_SEND), (0xff, IBV_WC_RECV)] {
                let failed = CompletionEntry {
                    status: status.number(),
                    vendor_error: 3,
                    flags: completion_flags::ALL,
                    ..success(kind)
                };
                let seen = wc(&failed.into());
                assert_eq!((seen.status, seen.opcode), (number, opcode), "{status:?}");
                assert_eq!((seen.wr_id, seen.qp_num), (0x1122_3344_5566_7788, 0x102));
                assert_eq!((seen.vendor_err, seen.byte_len, seen.wc_flags), (3, 0, 0));
            }
        }
        assert_eq!(
            S::ALL.len(),
            14,
            "a status that there is only here, with success, has no row above"
        );
    }

    #[test]
    fn immediate_data_are_big_endian_and_keys_are_not() {
        for (flags, expected, bytes) in [
            (0, 0, 0x0a0b_0c0d_u32.to_ne_bytes()),
            (completion_flags::GRH, IBV_WC_GRH, 0x0a0b_0c0d_u32.to_ne_bytes()),
            (completion_flags::IMM, IBV_WC_WITH_IMM, [0x0a, 0x0b, 0x0c, 0x0d]),
            (
                completion_flags::INVALIDATED,
                IBV_WC_WITH_INV,
                0x0a0b_0c0d_u32.to_ne_bytes(),
            ),
            (
                completion_flags::GRH | completion_flags::IMM | completion_flags::VLAN,
                IBV_WC_GRH | IBV_WC_WITH_IMM,
                [0x0a, 0x0b, 0x0c, 0x0d],
            ),
        ] {
            let entry = CompletionEntry {
                flags,
                ..success(CompletionKind::Recv.number())
            };
            let seen = wc(&entry.into());
            assert_eq!(seen.wc_flags, expected, "{flags:#x}");
            // SAFETY: both are numbers of 32 bits.
            let datum = unsafe { seen.datum.imm_data };
            assert_eq!(datum.to_ne_bytes(), bytes, "{flags:#x}");
        }
    }
}
