//! Work requests that whoever posts them could not read or express, and a QP that it has to end (proto/device,
//! section 8.4).

use super::super::shared::Shared;
use super::super::types::{Completion, CompletionOp, SendWr, Status, VerbsError};
use super::Qp;
use super::requester::Stage;
use super::state::Trigger;

impl Qp {
    /// Posts a send that fails with `status` when its turn comes.
    pub fn post_failed_send(
        &mut self,
        shared: &mut Shared,
        id: u64,
        tag: u32,
        status: Status,
    ) -> Result<(), VerbsError> {
        if !self.permissions().post_send {
            return Err(VerbsError::State(self.state()));
        }
        if status == Status::Success {
            return Err(VerbsError::Invalid("a request that fails needs an error"));
        }
        shared.sends.spare().wr = SendWr {
            id,
            tag,
            ..SendWr::default()
        };
        self.queue_send(shared, Stage::Doomed(status))
    }

    /// The next request of the send queue is broken, and so is the QP. Nothing where none could be posted.
    pub fn fault_send(&mut self, shared: &mut Shared, id: u64, tag: u32) {
        let (true, Some(cq)) = (self.permissions().post_send, self.init.send_cq) else {
            return;
        };
        self.shut(shared);
        let status = Status::LocalQpOperationError;
        shared.counters.requester_error(status);
        let completion = Completion::new(id, tag, self.number, CompletionOp::Send, status);
        shared.complete(cq, completion);
    }

    /// The next request of its own receive queue is broken, and so is the QP. Nothing where none could be posted.
    pub fn fault_receive(&mut self, shared: &mut Shared, id: u64, tag: u32) {
        let own = self.permissions().post_recv && self.init.srq.is_none();
        let (true, Some(cq)) = (own, self.init.recv_cq) else {
            return;
        };
        self.shut(shared);
        let status = Status::LocalQpOperationError;
        shared.counters.responder_error(status);
        let completion = Completion::new(id, tag, self.number, CompletionOp::Recv, status);
        shared.complete(cq, completion);
    }

    /// Goes to the error state, from any but RESET; nobody is told.
    pub fn shut(&mut self, shared: &mut Shared) {
        self.fail(shared, Trigger::Fatal);
    }
}
