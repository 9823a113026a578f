//! Sends that are built call by call (`ibv_wr_start` … `ibv_wr_complete`).

use std::ffi::c_uint;

use crate::abi::ibv_qp_ex;
use crate::errno::Errno;

/// Where a queue pair is in that.
#[derive(Debug, Default)]
pub struct Batch {}

/// Gives a queue pair of this type (`IBV_QPT_*`) the functions for these operations (`IBV_QP_EX_WITH_*`). EOPNOTSUPP:
/// it has not all of them.
pub fn equip(_qp: &mut ibv_qp_ex, _kind: c_uint, _operations: u64) -> Result<(), Errno> {
    Err(Errno::UNSUPPORTED)
}
