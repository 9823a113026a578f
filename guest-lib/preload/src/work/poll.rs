//! Completions: `ibv_poll_cq`, and those that are read field by field (`ibv_start_poll` … `ibv_end_poll`).

use std::ffi::c_int;

use crate::abi::{ibv_cq, ibv_wc};

/// Where a completion queue is in that.
#[derive(Debug, Default)]
pub struct Cursor {}

/// How contexts of ours are known.
pub const POLL_CQ: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int = poll_cq;

operation! {
    /// `ibv_poll_cq`.
    fn poll_cq(_cq: *mut ibv_cq, _entries: c_int, _into: *mut ibv_wc) -> c_int, as signed {
        Err(crate::errno::Errno::UNSUPPORTED)
    }
}
