//! Errors as clients see them: a status code, `google.rpc.ErrorInfo` with a stable reason, and for wrong
//! fields `google.rpc.BadRequest` (AIP-193).

use std::collections::HashMap;

use tokio::task::JoinError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};
use vnic_backend::NicError;

use crate::access;
use crate::check::Checked;

/// The domain of our error reasons.
const DOMAIN: &str = "vnic";

/// A status with a stable reason for programs and a text for people.
pub fn status<'a>(
    code: Code,
    reason: &str,
    message: impl Into<String>,
    metadata: impl IntoIterator<Item = (&'a str, String)>,
) -> Status {
    let metadata: HashMap<String, String> = metadata.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    Status::with_error_details(
        code,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, metadata),
    )
}

/// Collects everything that is wrong with a request.
#[derive(Debug, Default)]
pub struct Violations(Vec<FieldViolation>);

impl Violations {
    /// Notes that a field is wrong.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(FieldViolation::new(field, problem));
    }

    /// The value, or `None` and a note.
    pub fn check<T>(&mut self, field: impl Into<String>, checked: Checked<T>) -> Option<T> {
        checked.map_err(|problem| self.add(field, problem)).ok()
    }

    /// The value when nothing was wrong.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => {
                let mut problems: Vec<String> = self
                    .0
                    .iter()
                    .map(|v| format!("{}: {}", v.field, v.description))
                    .collect();
                problems.dedup();
                let mut details = ErrorDetails::with_bad_request(self.0);
                details.set_error_info("INVALID_FIELD", DOMAIN, HashMap::new());
                Err(Status::with_error_details(
                    Code::InvalidArgument,
                    problems.join("; "),
                    details,
                ))
            }
        }
    }
}

/// One wrong field.
pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Status {
    let mut violations = Violations::default();
    violations.add(field, problem);
    match violations.finish(None::<()>) {
        Err(status) => status,
        Ok(()) => unreachable!("a violation was added"),
    }
}

/// What the NIC refused. `field` gives the path in the request of a field of the specification.
pub fn from_nic(error: NicError, field: impl Fn(&str) -> String) -> Status {
    let text = error.to_string();
    match error {
        NicError::Invalid { field: name, problem } => invalid(field(name), problem),
        NicError::Exists { kind, name } => status(
            Code::AlreadyExists,
            "NAME_TAKEN",
            text,
            [("kind", kind.to_owned()), ("name", name)],
        ),
        NicError::NotFound { kind, name } => status(
            Code::NotFound,
            "NOT_FOUND",
            text,
            [("kind", kind.to_owned()), ("name", name)],
        ),
        NicError::Limit(_) => status(Code::ResourceExhausted, "LIMIT_REACHED", text, []),
        NicError::Os { source, .. } => status(
            Code::FailedPrecondition,
            "REFUSED_BY_SYSTEM",
            text,
            source.raw_os_error().map(|errno| ("errno", errno.to_string())),
        ),
        NicError::ShuttingDown => shutting_down(),
    }
}

/// The daemon ends.
pub fn shutting_down() -> Status {
    status(
        Code::Unavailable,
        "SHUTTING_DOWN",
        "the daemon is shutting down",
        [],
    )
}

/// Runs a call that may block where that holds nobody up. The request has its place as long as that takes, even if the
/// client has gone.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    let place = access::place();
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| bug(&error))
}

/// A panic of ours.
pub fn bug(error: &JoinError) -> Status {
    tracing::error!("a request failed by a bug: {error}");
    status(
        Code::Internal,
        "BUG",
        "a bug of the daemon; its log has the details",
        [],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_field_is_named() {
        let mut v = Violations::default();
        v.add("adapter.mtu", "too small");
        v.add("adapter_id", "empty");
        let status = v.finish(Some(())).expect_err("violations");
        assert_eq!(status.code(), Code::InvalidArgument);
        let request = status.get_details_bad_request().expect("details");
        let fields: Vec<_> = request
            .field_violations
            .iter()
            .map(|f| f.field.as_str())
            .collect();
        assert_eq!(fields, ["adapter.mtu", "adapter_id"]);
        assert!(status.get_details_error_info().is_some());
    }

    #[test]
    fn errors_of_the_nic_keep_their_cause_and_get_a_code() {
        let os = NicError::Os {
            what: "cannot open /dev/net/tun: CAP_NET_ADMIN is missing".to_owned(),
            source: std::io::Error::from_raw_os_error(1),
        };
        let status = from_nic(os, str::to_owned);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("CAP_NET_ADMIN"));
        let info = status.get_details_error_info().expect("info");
        assert_eq!(info.metadata.get("errno").map(String::as_str), Some("1"));
        let invalid = NicError::Invalid {
            field: "mtu",
            problem: "wrong".to_owned(),
        };
        let status = from_nic(invalid, |f| format!("adapter.{f}"));
        assert_eq!(status.message(), "adapter.mtu: wrong");
    }
}
