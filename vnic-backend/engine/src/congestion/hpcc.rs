//! HPCC (Li et al., SIGCOMM 2019).

/// Its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Hpcc {}
