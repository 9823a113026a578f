//! Errors of a tool.

use std::process::ExitCode;

use serde_json::{Value, json};
use vnic_verbs::{CompletionStatus, Error, PostError, WorkCompletion};

/// Why a tool ends early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Options that do not go together, or that the device does not allow.
    #[error("{0}")]
    Usage(String),
    /// The library or the device refused something.
    #[error("{device}: {error}")]
    Verbs {
        /// The device.
        device: String,
        /// The error.
        error: Error,
    },
    /// A work request ended badly.
    #[error("{what}, on queue pair {qp:#08x}, ended with {} (vendor error {vendor:#x})", status_name(*status))]
    Completion {
        /// The work request.
        what: String,
        /// How it ended.
        status: CompletionStatus,
        /// Its queue pair.
        qp: u32,
        /// Error code for the device's developers.
        vendor: u32,
    },
    /// The other side is not as it should be, or is not there.
    #[error("{0}")]
    Peer(String),
    /// The other side ended, and said why.
    #[error("the peer gave up: {0}")]
    GaveUp(String),
    /// Received bytes are not those that were sent.
    #[error("wrong data: {0}")]
    Data(String),
    /// The operating system refused something.
    #[error("{0}: {1}")]
    Os(String, std::io::Error),
}

/// What a step of a tool gives, or why the tool ends.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Makes a failure of what the operating system refuses, for `map_err`.
    pub fn os(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Failure {
        let what = what.into();
        move |error| Failure::Os(what, error)
    }

    /// The failure of a work request that ended badly.
    pub fn completion(completion: &WorkCompletion, what: impl Into<String>) -> Failure {
        Failure::Completion {
            what: what.into(),
            status: completion.status(),
            qp: completion.qp(),
            vendor: completion.vendor_error(),
        }
    }

    /// The failure as the last line of `--json`.
    pub fn json(&self, tool: &str) -> Value {
        let mut value = json!({ "tool": tool, "ok": false, "error": self.to_string() });
        if let Failure::Completion { status, .. } = self {
            value["status"] = status_name(*status).into();
        }
        value
    }

    /// The exit code: 2 for a wrong command line, as clap has it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// Adds the name of the device, if it was missing.
    pub fn on(self, name: &str) -> Failure {
        match self {
            Failure::Verbs { device, error } if device.is_empty() => Failure::Verbs {
                device: name.to_owned(),
                error,
            },
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Verbs {
            device: String::new(),
            error,
        }
    }
}

impl From<PostError> for Failure {
    fn from(error: PostError) -> Failure {
        Error::from(error).into()
    }
}

/// libibverbs' name of a status (`enum ibv_wc_status`).
pub fn status_name(status: CompletionStatus) -> &'static str {
    use CompletionStatus as S;
    match status {
        S::Success => "IBV_WC_SUCCESS",
        S::LocalLengthError => "IBV_WC_LOC_LEN_ERR",
        S::LocalQpOperationError => "IBV_WC_LOC_QP_OP_ERR",
        S::LocalProtectionError => "IBV_WC_LOC_PROT_ERR",
        S::FlushError => "IBV_WC_WR_FLUSH_ERR",
        S::MwBindError => "IBV_WC_MW_BIND_ERR",
        S::BadResponseError => "IBV_WC_BAD_RESP_ERR",
        S::LocalAccessError => "IBV_WC_LOC_ACCESS_ERR",
        S::RemoteInvalidRequestError => "IBV_WC_REM_INV_REQ_ERR",
        S::RemoteAccessError => "IBV_WC_REM_ACCESS_ERR",
        S::RemoteOperationError => "IBV_WC_REM_OP_ERR",
        S::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
        S::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
        S::RemoteAborted => "IBV_WC_REM_ABORT_ERR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_completion_is_named() {
        let failure = Failure::Completion {
            what: "request 7".into(),
            status: CompletionStatus::RetryExceeded,
            qp: 0x11,
            vendor: 0,
        };
        assert!(
            failure
                .to_string()
                .contains("request 7, on queue pair 0x000011, ended with IBV_WC_RETRY_EXC_ERR")
        );
        assert_eq!(failure.json("write_bw")["status"], "IBV_WC_RETRY_EXC_ERR");
        let gone = Failure::from(Error::Gone("its daemon ended".into())).on("vf0-rdma.sock");
        assert_eq!(
            gone.to_string(),
            "vf0-rdma.sock: the device is gone: its daemon ended"
        );
    }
}
