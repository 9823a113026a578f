//! Commands about connections (`SPEC.md`, section 5.7).

use vnic_device::status::CommandStatus as S;

use crate::rdma::function::Function;
use crate::rdma::request::{Outcome, Request, fail};

impl Function {
    pub(super) fn connection(&mut self, r: Request<'_>) -> Outcome {
        fail(S::NotSupported, format!("{:?}: not implemented", r.opcode))
    }
}
