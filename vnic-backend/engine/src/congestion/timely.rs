//! TIMELY (Mittal et al., SIGCOMM 2015).

/// Its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Timely {}
