//! Paths of connections by an operator's policy, which a device's subnet administration tells.
//!
//! Without a policy nothing is asked but whether there is one, once a second at most. What is told is believed for a second, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use vnic_verbs::Context;
use vnic_verbs::connection::{Administration, Path, PathAnswer, PathQuery};

use crate::errno::{Errno, complain};

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// A device whose administration says nothing (that of an older daemon) is not asked again before.
const SILENT: Duration = Duration::from_secs(10);
/// How long it is waited whether there is a policy.
const PATIENCE: Duration = Duration::from_millis(500);
/// Answers that are known.
const KNOWN: usize = 256;

/// What a device's subnet administration has said.
#[derive(Default)]
pub struct Paths {
    administration: Option<Administration>,
    /// Whether there is a policy, and how long that is believed.
    policy: Option<(bool, Instant)>,
    known: HashMap<PathQuery, (PathAnswer, Instant)>,
}

impl Paths {
    /// The path that the policy has; `None`: no policy is about it. ETIMEDOUT: nobody says so in time. ENETUNREACH: the policy has none.
    pub fn find(
        &mut self,
        context: &Context,
        query: &PathQuery,
        patience: Duration,
    ) -> Result<Option<Path>, Errno> {
        let now = Instant::now();
        let asked = self.asked(context, query, patience, now).inspect_err(|_| {
            // (With the next device, or the next memory, it may be better.)
            (self.administration, self.policy) = (None, None);
        })?;
        match asked {
            None | Some(PathAnswer::Stranger) => Ok(None),
            Some(PathAnswer::Path(path)) => Ok(Some(path)),
            Some(PathAnswer::NoPath) => {
                let why = format_args!(
                    "no path to {} for service {:#x} by the subnet's policy",
                    query.dgid, query.service
                );
                complain(&why);
                Err(Errno(libc::ENETUNREACH))
            }
        }
    }

    /// What is said of a path; `None`: there is no policy.
    fn asked(
        &mut self,
        context: &Context,
        query: &PathQuery,
        patience: Duration,
        now: Instant,
    ) -> Result<Option<PathAnswer>, Errno> {
        if !self.has_policy(context, query.sgid_index, now)? {
            return Ok(None);
        }
        if let Some((answer, until)) = self.known.get(query)
            && now < *until
        {
            return Ok(Some(*answer));
        }
        let Some(administration) = &mut self.administration else {
            return Ok(None);
        };
        let answer = administration
            .path(query, patience)?
            .ok_or(Errno(libc::ETIMEDOUT))?;
        if self.known.len() >= KNOWN {
            self.known.retain(|_, (_, until)| now < *until);
        }
        if self.known.len() < KNOWN {
            self.known.insert(*query, (answer, now + BELIEVED));
        }
        Ok(Some(answer))
    }

    fn has_policy(&mut self, context: &Context, sgid_index: u16, now: Instant) -> Result<bool, Errno> {
        if let Some((there, until)) = self.policy
            && now < until
        {
            return Ok(there);
        }
        let administration = match &mut self.administration {
            Some(administration) => administration,
            none => none.insert(Administration::new(context)?),
        };
        let said = administration.has_policy(sgid_index, PATIENCE)?;
        let until = now + said.map_or(SILENT, |_| BELIEVED);
        let there = said.unwrap_or(false);
        self.policy = Some((there, until));
        Ok(there)
    }
}
