//! Failure of a command.

use vnic_device::status::CommandStatus as S;
use vnic_engine::rdma::VerbsError;

/// Reason why a command was not executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The driver gets the reason.
    Refused {
        /// Status for the driver.
        status: S,
        /// Text for people.
        text: String,
    },
    /// The command does not fit into the turn: the next turn goes on with it.
    Unfinished,
}

/// Result of a command.
pub type Outcome = Result<(), Failure>;

/// A failure that the driver gets.
pub fn refused(status: S, text: impl Into<String>) -> Failure {
    Failure::Refused {
        status,
        text: text.into(),
    }
}

/// Fails with a failure that the driver gets.
pub fn fail<T>(status: S, text: impl Into<String>) -> Result<T, Failure> {
    Err(refused(status, text))
}

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Failure {
        use VerbsError as E;
        let status = match error {
            E::NoSuch(_) => S::NoSuchObject,
            E::LimitReached { .. } => S::LimitReached,
            E::InUse { .. } => S::InUse,
            E::OutOfRange { .. } => S::OutOfRange,
            E::State(_) | E::Transition { .. } => S::WrongState,
            E::OtherDomain(_) | E::QueueFull | E::Attributes { .. } | E::Invalid(_) => S::Invalid,
        };
        refused(status, error.to_string())
    }
}
