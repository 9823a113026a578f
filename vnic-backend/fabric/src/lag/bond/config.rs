//! Settings of a bond. The fields have the names that the control plane gives them.

use alloc::format;
use core::time::Duration;

use crate::lag::flows::FLOWS_MAX;
use crate::lag::{LagError, MEMBERS_MAX, Member, Policy, refuse};

/// How members share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All members carry frames.
    Aggregate {
        /// Fields that decide which flow goes where.
        policy: Policy,
        /// Whether only members carry frames that link aggregation control allows; otherwise those whose link is
        /// up (static).
        lacp: bool,
    },
    /// One member carries frames, the others wait for it to fail.
    ActiveBackup {
        /// The member that carries frames if it can.
        primary: Option<Member>,
        /// Whether the primary takes over again when it comes back; otherwise (`NoFailBackToPrimary`) only when
        /// the other one fails.
        failback: bool,
    },
}

/// Settings of a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BondSettings {
    /// How members share the work.
    pub mode: Mode,
    /// Time that a member that comes back has to be up before it gets frames; up to an hour.
    pub failback_delay: Duration,
    /// Time after a frame has left its port for which it may still be under way; up to a second.
    pub quiet: Duration,
    /// Time for which a flow that is to move may go on without a pause before it is held; up to an hour. `None`:
    /// for ever.
    pub patience: Option<Duration>,
    /// Flows that the view shows, at most 65536; 0: none.
    pub flows: usize,
}

/// Longest delay and patience.
const DELAY_MAX: Duration = Duration::from_secs(3600);
/// Longest time that a frame may be under way.
const QUIET_MAX: Duration = Duration::from_secs(1);

impl Default for BondSettings {
    /// Static, by five-tuple. A member that comes back waits for a second, a busy flow for 100 ms.
    fn default() -> BondSettings {
        BondSettings {
            mode: Mode::Aggregate {
                policy: Policy::default(),
                lacp: false,
            },
            failback_delay: Duration::from_secs(1),
            quiet: Duration::from_millis(1),
            patience: Some(Duration::from_millis(100)),
            flows: 4096,
        }
    }
}

impl BondSettings {
    /// Checks the settings for a bond of `members` members.
    pub fn check(&self, members: usize) -> Result<(), LagError> {
        if !(1..=MEMBERS_MAX).contains(&members) {
            return refuse("members", format!("{members}; allowed: 1 to {MEMBERS_MAX}"));
        }
        if let Mode::ActiveBackup {
            primary: Some(Member(p)),
            ..
        } = self.mode
            && usize::from(p) >= members
        {
            let most = members - 1;
            return refuse("primary", format!("{p}; allowed: 0 to {most}"));
        }
        for (field, value, most) in [
            ("failback_delay", Some(self.failback_delay), DELAY_MAX),
            ("quiet", Some(self.quiet), QUIET_MAX),
            ("patience", self.patience, DELAY_MAX),
        ] {
            if let Some(value) = value.filter(|v| *v > most) {
                return refuse(field, format!("{value:?}; allowed: at most {most:?}"));
            }
        }
        if self.flows > FLOWS_MAX {
            return refuse("flows", format!("{}; allowed: at most {FLOWS_MAX}", self.flows));
        }
        Ok(())
    }
}
