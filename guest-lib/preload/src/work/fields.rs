//! Completions that are read field by field: `ibv_start_poll` … `ibv_end_poll`, and the functions between.

#![expect(unsafe_code, reason = "reads a completion between calls of programs in C")]

use std::ffi::{c_int, c_uint};

use super::cursor::{Cursor, State, nanos};
use super::poll;
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::Cq;

operation! {
    /// `ibv_start_poll`. ENOENT: there is no completion. EINVAL: it asks for something unknown. ENODEV: the device is
    /// that of this process' parent.
    fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int, as code {
        if attributes.as_ref().is_some_and(|a| a.comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        let Cursor { latch, patience, .. } = &the::<Cq>(cq).cursor;
        latch.take();
        let result = advance(cq);
        if result.is_err() {
            // A program does not call `ibv_end_poll` if this fails.
            latch.give_back();
        }
        patience.found(usize::from(result.is_ok()));
        result
    }

    /// `ibv_next_poll`. Errors are those of [`start_poll`]; the program must call `ibv_end_poll` all the same.
    fn next_poll(cq: *mut ibv_cq_ex) -> c_int, as code {
        advance(cq)
    }

    /// `ibv_end_poll`.
    fn end_poll(cq: *mut ibv_cq_ex), as plain {
        the::<Cq>(cq).cursor.latch.give_back();
        Ok(())
    }

    /// `ibv_wc_read_completion_wallclock_ns`.
    fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64, as plain {
        let object: &Cq = the(cq);
        let State { completion, clock } = object.cursor.latch.value();
        Ok(clock.wall(completion.time(), &object.inner))
    }
}

/// Takes the next completion.
///
/// # Safety
/// The queue is ours, and the caller has its latch.
#[inline]
unsafe fn advance(cq: *mut ibv_cq_ex) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    unsafe {
        let object: &Cq = the(cq);
        let State { completion: slot, .. } = object.cursor.latch.value();
        let count = poll::found(object, object.inner.poll_each(1, |completion| *slot = completion))?;
        if count == 0 {
            return Err(Errno::NO_ENTRY);
        }
        (*cq).wr_id = slot.id();
        (*cq).status = poll::status(slot);
    }
    Ok(())
}

/// Functions that read one field of the completion.
macro_rules! readers {
    ($($(#[$doc:meta])* fn $name:ident($completion:ident) -> $ret:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Between `ibv_start_poll` and `ibv_end_poll` of a queue of ours.
        pub unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ret {
            // SAFETY: by the caller's promise, who has the latch.
            let $completion = unsafe { &the::<Cq>(cq).cursor.latch.value().completion };
            $body
        }
    )*};
}

readers! {
    /// `ibv_wc_read_opcode`.
    fn read_opcode(completion) -> c_uint { poll::opcode(completion) }
    /// `ibv_wc_read_vendor_err`.
    fn read_vendor_err(completion) -> u32 { completion.vendor_error() }
    /// `ibv_wc_read_byte_len`.
    fn read_byte_len(completion) -> u32 { completion.byte_len() }
    /// `ibv_wc_read_imm_data`, and `ibv_wc_read_invalidated_rkey` as well.
    fn read_imm_data(completion) -> u32 {
        let datum = poll::datum(completion);
        // SAFETY: both are numbers of 32 bits.
        unsafe { datum.imm_data }
    }
    /// `ibv_wc_read_qp_num`.
    fn read_qp_num(completion) -> u32 { completion.qp() }
    /// `ibv_wc_read_src_qp`.
    fn read_src_qp(completion) -> u32 { completion.source_qp() }
    /// `ibv_wc_read_wc_flags`.
    fn read_wc_flags(completion) -> c_uint { poll::flags(completion) }
    /// `ibv_wc_read_slid`: Ethernet has none.
    fn read_slid(_completion) -> u32 { 0 }
    /// `ibv_wc_read_sl`.
    fn read_sl(completion) -> u8 { poll::service_level(completion) }
    /// `ibv_wc_read_dlid_path_bits`: Ethernet has none.
    fn read_dlid_path_bits(_completion) -> u8 { 0 }
    /// `ibv_wc_read_completion_ts`: in nanoseconds of the device's clock (`hca_core_clock` is 1 GHz).
    fn read_completion_ts(completion) -> u64 { nanos(completion.time()) }
    /// `ibv_wc_read_cvlan`.
    fn read_cvlan(completion) -> u16 { completion.vlan().unwrap_or(0) }
    /// `ibv_wc_read_flow_tag`: there are no flows.
    fn read_flow_tag(_completion) -> u32 { 0 }
}

/// Gives a completion queue the functions that read fields. A program that reads a field without asking for it reads zeros
/// or the truth: all of them cost nothing.
pub fn equip(cq: &mut ibv_cq_ex) {
    give! {
        cq;
        start_poll next_poll end_poll read_opcode read_vendor_err read_byte_len read_imm_data read_qp_num read_src_qp
        read_wc_flags read_slid read_sl read_dlid_path_bits read_completion_ts read_cvlan read_flow_tag
        read_completion_wallclock_ns
    }
}
