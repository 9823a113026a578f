//! Recordings of work requests, and what became of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use vnic_device::queue::Operation as WorkOperation;
pub use vnic_engine::rdma::Status as WorkStatus;

use super::Caller;

/// Requests of a process that a recording keeps if nobody says how many.
pub const RECORDED_DEFAULT: u32 = 65_536;
/// Most requests of a process that a recording may keep.
pub const RECORDED_MAX: u32 = 1 << 20;

/// A recording of work requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingStatus {
    /// Adapters that are recorded.
    pub adapters: Vec<String>,
    /// Requests of each process that are kept.
    pub limit: u32,
    /// When it began.
    pub began: SystemTime,
    /// Whether it still runs.
    pub runs: bool,
    /// Requests and receives that it has noted.
    pub requests: u64,
    /// Those of them that are missing: the oldest, which made room.
    pub dropped: u64,
    /// Messages at responders that are missing, for the same reason: their requests look as if they had not come.
    pub lost: u64,
}

/// A recording that has ended, with all that it noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The recording.
    pub status: RecordingStatus,
    /// What became of each request: by adapter, process, queue pair and time.
    pub fates: Arc<Vec<Fate>>,
    /// Number of requests by verdict.
    pub summary: BTreeMap<String, u64>,
}

/// What became of a work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Adapter.
    pub adapter: String,
    /// The how manieth process of the adapter in the recording, from 1 on.
    pub process: u32,
    /// That process.
    pub owner: Option<Caller>,
    /// The how manieth queue pair of the process in the recording, from 1 on.
    pub pair: u32,
    /// Number of the queue pair.
    pub qp: u32,
    /// Id of the request.
    pub wr_id: u64,
    /// Operation; `None`: it is a receive.
    pub operation: Option<WorkOperation>,
    /// Bytes of the message, or those asked for; of a receive, those that it got.
    pub bytes: u64,
    /// Whether the program asked for a completion in any case.
    pub signaled: bool,
    /// When it was posted, from the beginning of the recording on. Receives: nothing.
    pub posted: Option<Duration>,
    /// First and last PSN, if it was sent.
    pub psns: Option<(u32, u32)>,
    /// What the program was told, and when.
    pub told: Option<(WorkStatus, Duration)>,
    /// How it ended for the engine.
    pub really: Option<WorkStatus>,
    /// Whether its queue pair was reset or destroyed before it had a completion.
    pub gone: bool,
    /// What happened at the responder.
    pub there: There,
}

/// What happened to a request at its responder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum There {
    /// It has none: a receive, or work of the own adapter.
    None,
    /// No packet of it was sent.
    Unsent,
    /// The responder is not an adapter of this daemon, or a group.
    Elsewhere,
    /// The responder's adapter was not recorded.
    NotRecorded {
        /// The adapter.
        adapter: String,
    },
    /// It was looked for.
    Seen(Seen),
}

/// A request as its responder saw it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The adapter.
    pub adapter: String,
    /// Number of its queue pair.
    pub qp: u32,
    /// How often it was carried out whole.
    pub times: u32,
    /// Bytes that were written, read or changed.
    pub bytes: u64,
    /// When it was carried out first, or how far it came last.
    pub at: Option<Duration>,
    /// The receive that it took.
    pub receive: Option<TakenReceive>,
}

/// A receive that a request took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenReceive {
    /// Id of the receive.
    pub wr_id: u64,
    /// What the program at the responder was told of it.
    pub told: Option<WorkStatus>,
}

/// Kind of a request in words of the verdict.
fn did(operation: WorkOperation) -> (&'static str, &'static str) {
    match operation {
        WorkOperation::Read => ("its data was", "read"),
        WorkOperation::CompareSwap | WorkOperation::FetchAdd => ("it was", "executed"),
        _ => ("its data was", "written"),
    }
}

impl Fate {
    /// Verdict in plain words.
    pub fn verdict(&self) -> String {
        let Some(operation) = self.operation else {
            return match (self.told, self.really) {
                (Some((WorkStatus::Success, _)), _) => "receive completed",
                (Some((WorkStatus::FlushError, _)), _) => "receive flushed",
                (Some(_), _) => "receive reported as failed",
                (None, _) if self.gone => "receive taken; its queue pair is gone",
                (None, _) => "receive taken; hung",
            }
            .to_owned();
        };
        let success = matches!(self.told, Some((WorkStatus::Success, _)));
        let unseen = !matches!(&self.there, There::Seen(seen) if seen.times == 0);
        let told = match (self.told, self.really) {
            (Some(_), _) if success && unseen => "completed",
            (Some(_), _) if success => "reported as complete",
            (Some(_), _) => "reported as failed",
            (None, Some(_)) if self.signaled => "hung",
            _ if self.gone => "no completion, its queue pair is gone",
            _ if !self.signaled => "no completion wanted",
            _ => "no completion",
        };
        let (what, done) = did(operation);
        let there = match &self.there {
            There::None => return told.to_owned(),
            There::Unsent => "it was not sent".to_owned(),
            There::Elsewhere => "its responder is not here".to_owned(),
            There::NotRecorded { .. } => "its responder is not recorded".to_owned(),
            There::Seen(seen) => match (seen.times, seen.bytes) {
                (0, 0) if success => format!("{what} NOT {done}"),
                (0, 0) => format!("{what} not {done}"),
                (0, _) => format!("{what} partly {done}"),
                // (An answer to a READ that is lost is asked for again.)
                (times, _) if times == 1 || operation == WorkOperation::Read => format!("{what} {done}"),
                (2, _) => format!("{what} {done} twice"),
                _ => format!("{what} {done} several times"),
            },
        };
        format!("{told}; {there}")
    }

    /// Whether the program was told something else than what happened, or nothing of what did.
    pub fn is_lie(&self) -> bool {
        let told = self.told.map(|(status, _)| status);
        let failed = told.is_some_and(|status| status != WorkStatus::Success);
        let otherwise = match self.told {
            Some(_) => told != self.really,
            None => self.signaled && self.really.is_some() && !self.gone,
        };
        let there = match &self.there {
            There::Seen(seen) => {
                let read = self.operation == Some(WorkOperation::Read);
                let done = seen.times > 0 || seen.bytes > 0;
                failed && done
                    || told == Some(WorkStatus::Success) && seen.times == 0
                    || seen.times > 1 && !read
            }
            _ => false,
        };
        otherwise || there
    }

    /// Whether the program was told that it failed.
    pub fn failed(&self) -> bool {
        self.told.is_some_and(|(status, _)| status != WorkStatus::Success)
    }
}
