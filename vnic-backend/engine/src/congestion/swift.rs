//! Swift (Kumar et al., SIGCOMM 2020).

/// Its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Swift {}
