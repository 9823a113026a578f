//! Why a command was not carried out.

use vnic_device::status::CommandStatus as S;
use vnic_engine::rdma::VerbsError;

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The driver hears why.
    Refused {
        /// The reason for its program.
        status: S,
        /// The reason for people.
        text: String,
    },
    /// The command is more than a turn has room for: the next turn goes on with it.
    Unfinished,
}

/// How a command ends.
pub type Outcome = Result<(), Failure>;

/// Makes the failure that the driver hears of.
pub fn refused(status: S, text: impl Into<String>) -> Failure {
    Failure::Refused {
        status,
        text: text.into(),
    }
}

/// Fails with what [`refused`] makes.
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
