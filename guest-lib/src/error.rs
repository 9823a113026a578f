//! What can go wrong, with its cause and its cure.

use std::net::SocketAddr;

use rustix::io::Errno;
use vnic_device::command::Opcode;
use vnic_device::status::CommandStatus;

use crate::connection::Rejection;

/// An error of this library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Something of the machine or of the settings is not as it must be. The text names the cause and the cure.
    #[error("{0}")]
    Setup(String),
    /// There is no device.
    #[error("{0}")]
    NoDevice(String),
    /// The device speaks another version of the contract.
    #[error("{0}")]
    Version(String),
    /// The device has gone: its daemon ended, or restarted the adapter, or the device was reset.
    #[error("the device is gone: {0}")]
    Gone(String),
    /// The device refused a command (`SPEC.md`, section 5.2).
    #[error("the device refused {command:?}: {status:?}{}{text}", if text.is_empty() { "" } else { ": " })]
    Command {
        /// What was asked of it.
        command: Opcode,
        /// The status of the device's answer.
        status: CommandStatus,
        /// The device's message for people; may be empty.
        text: String,
    },
    /// The device answered something that the contract does not allow: a bug in it.
    #[error("the device broke the contract: {0}")]
    Protocol(String),
    /// An argument that this library refuses by itself.
    #[error("{0}")]
    Invalid(String),
    /// The peer has rejected a connection.
    #[error("{peer} has rejected the connection: {rejection}")]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Why, and what its program says to it.
        rejection: Rejection,
    },
    /// The peer does not answer, or does not get ready.
    #[error("{0} does not answer")]
    NoAnswer(SocketAddr),
}

impl Error {
    /// Makes an error of what the operating system refuses, for `map_err`.
    pub fn os<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |source| Error::Os {
            what,
            source: source.into(),
        }
    }

    /// The device's status, if it was the device that refused.
    pub fn status(&self) -> Option<CommandStatus> {
        match self {
            Error::Command { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the device is gone. Then only opening it again helps.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone(_))
    }

    /// The error for a forked child: the device of this name belongs to the parent.
    pub(crate) fn parents(name: &str) -> Error {
        Error::Gone(format!(
            "{name}: it is the parent's of this process; open it, or another one, after fork"
        ))
    }

    /// The error number that C programs see (`SPEC.md`, section 5.2).
    pub fn errno(&self) -> i32 {
        use CommandStatus as S;
        let errno = match self {
            Error::Os { source, .. } => return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            Error::Setup(_) | Error::Invalid(_) => Errno::INVAL,
            Error::NoDevice(_) | Error::Gone(_) => Errno::NODEV,
            Error::Version(_) | Error::Protocol(_) => Errno::PROTO,
            Error::Rejected { .. } => Errno::CONNREFUSED,
            Error::NoAnswer(_) => Errno::TIMEDOUT,
            Error::Command { status, .. } => match status {
                S::NotSupported => Errno::OPNOTSUPP,
                S::Malformed | S::NotReady => Errno::PROTO,
                S::Invalid | S::OutOfRange | S::WrongState => Errno::INVAL,
                S::NoSuchObject => Errno::NOENT,
                S::InUse => Errno::BUSY,
                S::LimitReached => Errno::NOMEM,
                S::BadAddress => Errno::FAULT,
                S::NotPermitted => Errno::PERM,
                S::Unreachable => Errno::HOSTUNREACH,
                S::Ok | S::Internal => Errno::IO,
            },
        };
        errno.raw_os_error()
    }
}

/// Why a work request was refused at once: what verbs call an immediate error (`SPEC.md`, section 8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PostReason {
    /// The queue has no room: take completions first. Requests that are not signaled free their place when a
    /// later one completes.
    #[error("the queue is full")]
    Full,
    /// The queue pair is not in a state in which this may be posted.
    #[error("the queue pair is in state {0:?}")]
    State(vnic_device::verbs::QpState),
    /// This type of queue pair does not have the operation.
    #[error("this type of queue pair has no such operation")]
    Operation,
    /// More elements or more inline bytes than the queue was made for; or not 8 bytes for an atomic.
    #[error("too many elements or bytes")]
    Length,
    /// INLINE where it is not allowed, or a datagram without a destination.
    #[error("a flag that the operation does not have, or a datagram without destination")]
    Malformed,
    /// The queue pair receives from a shared queue, or not at all.
    #[error("the queue pair has no receive queue of its own")]
    NoQueue,
    /// The device is gone, or was reset.
    #[error("the device is gone")]
    Gone,
    /// A rule of the operator refuses it, with this errno (`SPEC.md`, section 8.5).
    #[error("a fault rule refuses it with errno {0}")]
    OnDemand(i32),
}

/// Why a list of work requests was posted in part only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("work request {posted} was refused: {reason}")]
pub struct PostError {
    /// Work requests before the refused one; they are posted.
    pub posted: usize,
    /// Why the next one was refused.
    pub reason: PostReason,
}

impl From<PostError> for Error {
    fn from(e: PostError) -> Error {
        match e.reason {
            PostReason::Gone => Error::Gone("a work request was posted to it".into()),
            _ => Error::Invalid(e.to_string()),
        }
    }
}
