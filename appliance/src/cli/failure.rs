//! Errors of commands.

use super::rehearsal::in_order;

/// Error of a command.
#[derive(Debug)]
pub enum Failure {
    /// The daemon refuses.
    Refused(Box<tonic::Status>),
    /// The daemon cannot be reached, or a file cannot be written.
    Failed(String),
    /// The command line is wrong in a way that clap does not see.
    Usage(String),
    /// A request of this method is in order, and was only checked.
    InOrder(String),
    /// There are differences, which were printed.
    Differs,
    /// The reader of standard output has closed it.
    OutputClosed,
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Failure {
        use std::error::Error as _;
        // A status of the daemon has no source; one that tonic made for a broken connection has.
        if status.source().is_some() {
            return Failure::Failed(format!("the connection to vnicd broke: {}", status.message()));
        }
        match in_order(&status) {
            Some(method) => Failure::InOrder(method),
            None => Failure::Refused(Box::new(status)),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::OutputClosed
        } else {
            Failure::Failed(error.to_string())
        }
    }
}
