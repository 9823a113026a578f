//! Faults of verbs: what an operator's rule does to completions, commands and posts of an adapter's RDMA function.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

pub use vnic_device::command::Opcode as VerbsCommand;
pub use vnic_device::queue::{CompletionKind, Operation};
pub use vnic_device::status::CommandStatus;
pub use vnic_device::verbs::{CompletionStatus, Post, PostErrno};

use super::fault::ALWAYS;

/// Largest number of rules for completions and commands of a NIC.
pub const VERBS_FAULTS_MAX: usize = 64;
/// Longest name of a program that the kernel keeps (`TASK_COMM_LEN`, without the zero).
pub const PROGRAM_MAX: usize = 15;
/// Longest time before the beginning of a rule, and of a rule.
pub const RULE_TIME_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Commands that have a size: that of the region.
pub const SIZED_COMMANDS: [VerbsCommand; 2] = [VerbsCommand::RegisterMr, VerbsCommand::ReregisterMr];

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
    /// The completion queue overruns: the completion is lost, the driver hears of it (`CqError`), and queue pairs that complete there go
    /// to ERR.
    Overrun,
    /// The completion comes, and the driver hears that its queue pair's shared receive queue reached its limit. Only completions of
    /// receives that a shared queue gave match.
    SrqLimit,
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
    /// Commands that match are slow, are refused and have no effect, or both.
    Command {
        /// The commands; not empty.
        commands: Vec<VerbsCommand>,
        /// The answer; not [`CommandStatus::Ok`]. `None`: they are carried out.
        status: Option<CommandStatus>,
        /// They wait so long before they are looked at, and the process's later ones behind them. `None`: not at all.
        delay: Option<Duration>,
    },
    /// Messages that need a receive find none, though receives are there: RC answers with RNR NAK, UC and UD lose them.
    NotReady {
        /// The queue pair; `None`: any.
        qp: Option<u32>,
    },
    /// Posts fail at once, and the work request is not there. Only drivers that ask before they post have such
    /// (`proto/device/SPEC.md`, section 8.5).
    Post {
        /// What is posted.
        post: Post,
        /// The queue pair; `None`: any. Not of shared receives.
        qp: Option<u32>,
        /// Operations of sends; empty: all.
        operations: Vec<Operation>,
        /// The error of the call.
        errno: PostErrno,
    },
}

impl VerbsFaultAction {
    /// Name of what happens.
    pub fn name(&self) -> &'static str {
        use CompletionFault as F;
        match self {
            VerbsFaultAction::Completion { fault, .. } => match fault {
                F::Lie(_) => "lie",
                F::Fail(_) => "fail",
                F::Lose => "lose",
                F::Double => "double",
                F::Late(_) => "late",
                F::Hang => "hang",
                F::Swap(_) => "swap",
                F::Length(_) => "length",
                F::Immediate(_) => "immediate",
                F::Overrun => "overrun",
                F::SrqLimit => "srq_limit",
            },
            VerbsFaultAction::Command { .. } => "command",
            VerbsFaultAction::NotReady { .. } => "not_ready",
            VerbsFaultAction::Post { .. } => "post",
        }
    }
}

/// A process at a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessMatch {
    /// Its number.
    Pid(i32),
    /// The name that its program had when it came (`/proc/PID/comm`). The VMM of a guest has none.
    Program(String),
}

impl FromStr for ProcessMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessMatch, String> {
        if let Ok(pid) = text.parse() {
            return match pid {
                1.. => Ok(ProcessMatch::Pid(pid)),
                _ => Err(format!("{pid} is no number of a process")),
            };
        }
        match text.len() {
            1..=PROGRAM_MAX => Ok(ProcessMatch::Program(text.to_owned())),
            _ => Err(format!(
                "{text:?} is no name of a program: 1 to {PROGRAM_MAX} bytes, as /proc/PID/comm has it"
            )),
        }
    }
}

impl fmt::Display for ProcessMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessMatch::Pid(pid) => write!(f, "{pid}"),
            ProcessMatch::Program(name) => f.write_str(name),
        }
    }
}

/// Specification of a rule for completions, commands or posts of an adapter's RDMA function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsFaultSpec {
    /// Name, unique among such rules.
    pub name: String,
    /// The adapter.
    pub adapter: String,
    /// The process; `None`: all of the adapter.
    pub process: Option<ProcessMatch>,
    /// Bytes, at least: of what a completion tells of (receives, READs and atomics tell it), of a region, or
    /// of the elements of what is posted.
    pub min_bytes: Option<u64>,
    /// Bytes, at most.
    pub max_bytes: Option<u64>,
    /// It begins this time after it was added.
    pub after: Duration,
    /// It ends this time after its beginning; `None`: never.
    pub lasts: Option<Duration>,
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
            process: None,
            min_bytes: None,
            max_bytes: None,
            after: Duration::ZERO,
            lasts: None,
            action,
            skip: 0,
            probability: ALWAYS,
            count: None,
            seed: None,
        }
    }

    /// Whether the rule asks for sizes.
    pub fn is_sized(&self) -> bool {
        self.min_bytes.is_some() || self.max_bytes.is_some()
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
