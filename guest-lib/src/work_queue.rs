//! Work queues and hash queue pairs: frames of a flow, spread over several receive queues (`ibv_create_wq(3)`,
//! `ibv_create_rwq_ind_table(3)`; `SPEC.md`, section 8.7).

use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_device::command::flow::CreateHashQp;

use crate::flow::FlowRule;
use crate::pd::Plain;
use crate::{
    CompletionQueue, Error, Flow, PostError, ProtectionDomain, QpState, QueuePair, RawPacket, RecvWr,
};

pub use vnic_device::verbs::hash_types;

/// Bytes of the key of a hash.
pub const HASH_KEY_LEN: usize = 40;

/// A queue of receives for frames. It has none until a hash queue pair spreads them over it. Clones are the same queue; it is destroyed
/// with the last clone and the last hash queue pair that spreads frames over it.
#[derive(Debug, Clone)]
pub struct WorkQueue(QueuePair<RawPacket>);

/// How a hash queue pair spreads frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashRule {
    /// What is hashed: bits of [`hash_types`].
    pub types: u32,
    /// Key of the Toeplitz hash.
    pub key: [u8; HASH_KEY_LEN],
}

impl std::fmt::Debug for HashRule {
    /// The key is a secret: who knows it can choose flows that collide.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HashRule(types {:#x})", self.types)
    }
}

/// A queue pair that spreads the frames of its flows over work queues (RSS). Clones are the same; it ends with the last clone and the last
/// of its flows.
#[derive(Clone)]
pub struct HashQueuePair(Arc<Spread>);

struct Spread {
    object: Plain,
    /// (Ends after the object, for queues in a table are not destroyed.)
    _table: Vec<WorkQueue>,
}

impl std::fmt::Debug for HashQueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HashQueuePair({:#x})", self.number())
    }
}

impl WorkQueue {
    /// Makes a work queue for `max_wr` receives of `max_sge` elements, in state RESET.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain, cq: &vnic_verbs::CompletionQueue) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::flow::FlowRule;
    /// use vnic_verbs::work_queue::hash_types;
    /// use vnic_verbs::{HashQueuePair, HashRule, WorkQueue};
    ///
    /// let queues = [WorkQueue::new(pd, cq, 64, 1)?, WorkQueue::new(pd, cq, 64, 1)?];
    /// for queue in &queues {
    ///     queue.to_ready()?;
    /// }
    /// let rule = HashRule { types: hash_types::IPV4 | hash_types::TCPV4, key: [0x5a; 40] };
    /// let spread = HashQueuePair::new(pd, &rule, &queues)?;
    /// let flow = spread.create_flow(&FlowRule::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<WorkQueue, Error> {
        // Of a queue pair of frames the receiving half.
        let half = pd.qp::<RawPacket>(cq, cq).max_send_wr(0).max_send_sge(0);
        Ok(WorkQueue(half.max_recv_wr(max_wr).max_recv_sge(max_sge).build()?))
    }

    /// Number of the queue, which its completions have as that of their queue pair.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// The state that the program asked for last: RESET, RTR or ERR.
    pub fn state(&self) -> QpState {
        self.0.state()
    }

    /// Makes the queue ready: from RESET on it takes receives and frames. Refused in state ERR.
    pub fn to_ready(&self) -> Result<(), Error> {
        match self.state() {
            QpState::Rtr => Ok(()),
            _ => self.0.receive_only(),
        }
    }

    /// Empties the queue: receives that were posted are forgotten.
    pub fn to_reset(&self) -> Result<(), Error> {
        self.0.to_reset()
    }

    /// Stops the queue: receives that were posted complete as flushed.
    pub fn to_error(&self) -> Result<(), Error> {
        self.0.to_error()
    }

    /// Posts receives: all, or those before the first that is refused. Refused in state RESET.
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<usize, PostError> {
        self.0.post_recv(wrs)
    }

    /// As [`post_recv`](WorkQueue::post_recv), but takes the work requests from an iterator, which must not use the queue.
    pub fn post_recv_from<'a>(&self, wrs: impl IntoIterator<Item = RecvWr<'a>>) -> Result<usize, PostError> {
        self.0.post_recv_from(wrs)
    }
}

impl HashQueuePair {
    /// Makes a queue pair that spreads frames over `table`, by the low bits of their hash. Its length is a power of two, and at most
    /// `max_hash_entries` of [`query_device`](crate::Context::query_device); a queue may be there more than once.
    pub fn new(pd: &ProtectionDomain, rule: &HashRule, table: &[WorkQueue]) -> Result<HashQueuePair, Error> {
        let mut body = CreateHashQp {
            hash_types: rule.types,
            entries: table.len() as u32,
            key: rule.key,
            ..CreateHashQp::default()
        };
        let Some(entries) = body.table.get_mut(..table.len()) else {
            return Err(Error::Invalid(format!(
                "a table of {} entries: at most 128",
                table.len()
            )));
        };
        for (entry, queue) in entries.iter_mut().zip(table) {
            *entry = queue.number();
        }
        let domain = &*pd.0;
        let object = Plain::new(
            &domain.core,
            domain.epoch,
            Opcode::CreateHashQp,
            &body,
            Opcode::DestroyHashQp,
        )?;
        Ok(HashQueuePair(Arc::new(Spread {
            object,
            _table: table.to_vec(),
        })))
    }

    /// Number of the queue pair. No completion has it: those of its frames have the number of the work queue.
    pub fn number(&self) -> u32 {
        self.0.object.handle
    }

    /// Lets the work queues have frames that come for the adapter. The flow ends when it is dropped; the hash queue pair stays as long.
    pub fn create_flow(&self, rule: &FlowRule) -> Result<Flow, Error> {
        let Plain {
            core, epoch, handle, ..
        } = &self.0.object;
        Flow::new(core, *epoch, *handle, rule, Arc::clone(&self.0) as _)
    }
}
