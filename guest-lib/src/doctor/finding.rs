//! What the doctor looks at, and what a finding says.

use std::fmt;
use std::path::PathBuf;

use crate::transport::pci::sysfs::Machine;

/// What a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// What was looked at is as it should be.
    Ok,
    /// Something will not work, or not well.
    Warning,
    /// Nothing will work.
    Problem,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What it means.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do about it, as a command where one does it.
    pub cure: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: &str, detail: impl Into<String>) -> Finding {
        Finding {
            what: what.into(),
            verdict: Verdict::Ok,
            detail: detail.into(),
            cure: None,
        }
    }

    pub(super) fn bad(
        verdict: Verdict,
        what: &str,
        detail: impl Into<String>,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            verdict,
            cure: Some(cure.into()),
            ..Finding::ok(what, detail)
        }
    }

    pub(super) fn problem(what: &str, detail: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding::bad(Verdict::Problem, what, detail, cure)
    }

    pub(super) fn warning(what: &str, detail: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding::bad(Verdict::Warning, what, detail, cure)
    }
}

/// What the doctor looks at.
pub(super) struct System {
    /// The machine's files.
    pub(super) machine: Machine,
    /// The sockets that [`crate::SOCKET_VARIABLE`] names.
    pub(super) sockets: Vec<PathBuf>,
    /// Whether the kernel says where memory is, or why not.
    pub(super) pagemap: Result<(), String>,
    /// Whether memory can be pinned, or why not.
    pub(super) pin: Result<(), String>,
    /// Whether writes to memory can be caught, or why not.
    pub(super) write_protect: Result<(), String>,
    /// Whether other threads may be stopped instead.
    pub(super) stop: bool,
}
