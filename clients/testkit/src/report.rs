//! What became of work requests.

use std::collections::BTreeMap;
use std::fmt;

use crate::v1;

/// What a recording noted: what programs were told of each request, and what really happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Requests, by adapter, process and queue pair.
    pub outcomes: Vec<v1::Outcome>,
    /// Number of requests by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Whether all is there: a recording forgets the oldest requests beyond its limit.
    pub complete: bool,
}

impl Report {
    pub(crate) fn new(
        outcomes: Vec<v1::Outcome>,
        verdicts: Vec<v1::VerdictCount>,
        recording: &v1::Recording,
    ) -> Report {
        Report {
            outcomes,
            verdicts: verdicts.into_iter().map(|v| (v.verdict, v.requests)).collect(),
            complete: recording.dropped == 0 && recording.lost == 0,
        }
    }

    /// Requests whose program was told something else than what happened, or not told what did.
    pub fn lies(&self) -> Vec<&v1::Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.lie).collect()
    }

    /// Requests whose program was told that they failed.
    pub fn failed(&self) -> Vec<&v1::Outcome> {
        let failed = |outcome: &&v1::Outcome| !matches!(&*outcome.told_status, "" | "Success");
        self.outcomes.iter().filter(failed).collect()
    }

    /// Number of requests with this verdict.
    pub fn verdict(&self, verdict: &str) -> u64 {
        self.verdicts.get(verdict).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    /// Requests that did not end as they should, a line each, and the sums.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = |o: &v1::Outcome| !matches!(&*o.told_status, "" | "Success");
        for o in self.outcomes.iter().filter(|o| o.lie || failed(o)) {
            let adapter = o.adapter.rsplit('/').next().unwrap_or_default();
            writeln!(
                f,
                "{adapter} queue pair #{} {} {}: {}",
                o.queue_pair_index, o.operation, o.wr_id, o.verdict
            )?;
        }
        for (verdict, requests) in &self.verdicts {
            writeln!(f, "{requests:>8}  {verdict}")?;
        }
        match self.complete {
            true => Ok(()),
            false => writeln!(f, "not all requests are here"),
        }
    }
}
