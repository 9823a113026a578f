//! Faults of verbs: what an operator's rule does to completions and commands of an adapter's RDMA function.

use std::time::{Duration, SystemTime};

pub use vnic_device::command::Opcode as VerbsCommand;
pub use vnic_device::queue::CompletionKind;
pub use vnic_device::status::CommandStatus;
pub use vnic_device::verbs::CompletionStatus;

use super::fault::ALWAYS;

/// Largest number of rules for completions and commands of a NIC.
pub const VERBS_FAULTS_MAX: usize = 64;

/// What a rule does to a completion that it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionFault {
    /// Another status is told; the queue pair goes on. Only completions that ended well match.
    Lie(CompletionStatus),
    /// The queue pair goes to ERR, as if the request had ended with this status, and the rest is flushed. The peer may have
    /// carried out the request. Only completions that ended well match.
    Fail(CompletionStatus),
    /// The completion is lost. A later one of the queue says that its entry is free.
    Lose,
    /// The completion comes twice.
    Double,
    /// The completion comes later by this time.
    Late(Duration),
    /// The completion is held back until the rule is removed.
    Hang,
    /// The completion comes behind the next one of its completion queue; if none comes, after this time.
    Swap(Duration),
    /// Another length is told. Only completions that ended well match.
    Length(u32),
    /// Other immediate data is told. Only completions with immediate data match.
    Immediate(u32),
}

/// What a rule matches, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerbsFaultAction {
    /// About completions, counted as the device is about to write them.
    Completion {
        /// The queue pair; `None`: any.
        qp: Option<u32>,
        /// Kinds of completions; empty: all. A failed completion tells no more than whether it is of a receive, so the kind
        /// counts only for those that ended well.
        kinds: Vec<CompletionKind>,
        /// What it does.
        fault: CompletionFault,
    },
    /// Commands that match are refused with a status, and have no effect.
    Command {
        /// The commands; not empty.
        commands: Vec<VerbsCommand>,
        /// The answer; not [`CommandStatus::Ok`].
        status: CommandStatus,
    },
}

/// Specification of a rule for completions or commands of an adapter's RDMA function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsFaultSpec {
    /// Name, unique among such rules.
    pub name: String,
    /// The adapter; all its processes.
    pub adapter: String,
    /// What it matches and does.
    pub action: VerbsFaultAction,
    /// So many matches are let go first.
    pub skip: u64,
    /// Probability in millionths.
    pub probability: u32,
    /// So many are hit at most.
    pub count: Option<u64>,
    /// Seed of the rule's random numbers; `None`: a random one is made.
    pub seed: Option<u64>,
}

impl VerbsFaultSpec {
    /// A rule that hits all completions or commands that match.
    pub fn new(name: &str, adapter: &str, action: VerbsFaultAction) -> VerbsFaultSpec {
        VerbsFaultSpec {
            name: name.to_owned(),
            adapter: adapter.to_owned(),
            action,
            skip: 0,
            probability: ALWAYS,
            count: None,
            seed: None,
        }
    }
}

/// Status of a rule for completions or commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsFaultStatus {
    /// Number of the rule, never given twice.
    pub id: u32,
    /// Specification; the seed is filled in.
    pub spec: VerbsFaultSpec,
    /// Completions or commands that matched.
    pub matched: u64,
    /// Completions or commands that the rule hit.
    pub injected: u64,
    /// Time at which the rule was added.
    pub created: SystemTime,
}
