//! Sends that are built call by call (`ibv_wr_start` … `ibv_wr_complete`).

/// Where a queue pair is in that.
#[derive(Debug, Default)]
pub struct Batch {}
