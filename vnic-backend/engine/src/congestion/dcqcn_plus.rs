//! DCQCN+ (Gao et al., ICNP 2018), reconstructed: three of its formulas are lost in the text that we have.

/// Its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct DcqcnPlus {}
