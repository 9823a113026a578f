//! Errors of the gRPC interface: a status code, `google.rpc.ErrorInfo` with a stable reason, and for wrong fields
//! `google.rpc.BadRequest` (AIP-193).

use std::collections::HashMap;
use std::io;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};
use vnic_backend::NicError;
use vnic_backend::settings::{Value, key};

use crate::access::{DOMAIN, in_order, status};
use crate::capture::CaptureError;
use crate::check::Violations;
use crate::control::Refused;
use crate::names;
use crate::nv::NvWhy;
use crate::registry::{Refusal, Why};
use crate::store::StoreError;

impl From<Violations> for Status {
    fn from(wrong: Violations) -> Status {
        let all = wrong.all().iter();
        let fields: Vec<_> = all.map(|v| FieldViolation::new(&v.field, &v.problem)).collect();
        let mut details = ErrorDetails::with_bad_request(fields);
        details.set_error_info("INVALID_FIELD", DOMAIN, HashMap::new());
        Status::with_error_details(Code::InvalidArgument, wrong.to_string(), details)
    }
}

/// Error of one wrong field.
pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Status {
    Violations::one(field, problem).into()
}

/// ID in a resource name of a request.
pub fn id(collection: &str, field: &str, name: &str) -> Result<String, Status> {
    let one = collection.trim_end_matches('s');
    let id = names::id(collection, name).map(str::to_owned);
    id.ok_or_else(|| invalid(field, form(name, &format!("{collection}/{{{one}}}"))))
}

/// Problem of a resource name that does not have the form that it must have.
pub fn form(name: &str, form: &str) -> String {
    format!("{name:?} is not of the form {form}")
}

/// Form of the resource name of an adapter or a port.
pub const OWNER: &str = "adapters/{adapter} or ports/{port}";
/// Form of the resource name of what has counters.
pub const COUNTED: &str = "adapters/{adapter}, ports/{port} or cores/{core}";

/// ID in a resource name of a request that may be empty, for all.
pub fn id_or_all(collection: &str, field: &str, name: &str) -> Result<Option<String>, Status> {
    let one = (!name.is_empty()).then(|| id(collection, field, name));
    one.transpose()
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        let text = refused.to_string();
        let named = |kind: &str, name: String| [("kind", kind.to_owned()), ("name", name)];
        match refused {
            Refused::Fields(wrong) => wrong.into(),
            Refused::Nic(error) => from_nic(error, text),
            Refused::Store(error) => from_store(&error),
            Refused::Registry(ref refusals) => match Refused::of_one_kind(refusals) {
                Some(one) => from_registry(one),
                None => refused.wrong_fields().unwrap_or_default().into(),
            },
            Refused::Nv(_, NvWhy::Unknown { .. }) => status(Code::NotFound, "UNKNOWN_PARAMETER", text, []),
            Refused::Nv(_, NvWhy::NotBuilt { waits_for, .. }) => {
                let more = [("waits_for", waits_for.to_owned())];
                status(Code::Unimplemented, "PARAMETER_NOT_BUILT", text, more)
            }
            Refused::Nv(field, NvWhy::NotAllowed { .. }) => invalid(field, text),
            Refused::NotFound { kind, name } => not_found(text, named(kind, name)),
            Refused::NoAffinity(_) => not_found(text, [("kind", "affinity".to_owned())]),
            Refused::Exists { kind, name } => {
                status(Code::AlreadyExists, "NAME_TAKEN", text, named(kind, name))
            }
            Refused::Limit(_) => limit(text),
            Refused::Changed(etag) => status(Code::Aborted, "ETAG_MISMATCH", text, [("etag", etag)]),
            Refused::InTeam { port, team, .. } => {
                let facts = [("port", port), ("team", team)];
                status(Code::FailedPrecondition, "IN_TEAM", text, facts)
            }
            Refused::NotProgrammable(..) => status(Code::FailedPrecondition, "NOT_PROGRAMMABLE", text, []),
            Refused::AboveLineRate { keys, stored, .. } => {
                let facts = [("key", keys.join(", ")), ("stored", stored.to_string())];
                status(Code::OutOfRange, "ABOVE_LINE_RATE", text, facts)
            }
            Refused::File(_) => {
                let mut details = ErrorDetails::with_bad_request(vec![FieldViolation::new("text", &text)]);
                details.set_error_info("INVALID_FILE", DOMAIN, HashMap::new());
                Status::with_error_details(Code::InvalidArgument, text, details)
            }
            Refused::NoFile => status(Code::FailedPrecondition, "NO_FILE", text, []),
            Refused::Capture(error) => match error {
                CaptureError::Nic(error) => from_nic(error, text),
                CaptureError::Exists { id, .. } => {
                    status(Code::AlreadyExists, "NAME_TAKEN", text, [("name", id)])
                }
                CaptureError::TooMany => limit(text),
                CaptureError::File { source, .. } => by_system(text, &source),
                CaptureError::NotFound(id) => not_found(text, [("name", id)]),
            },
        }
    }
}

/// Status of an error of the NIC.
fn from_nic(error: NicError, text: String) -> Status {
    match error {
        NicError::Invalid { field, problem } => invalid(field, problem),
        NicError::Exists { kind, name } => {
            let facts = [("kind", kind.to_owned()), ("name", name)];
            status(Code::AlreadyExists, "NAME_TAKEN", text, facts)
        }
        NicError::NotFound { kind, name } => not_found(text, [("kind", kind.to_owned()), ("name", name)]),
        NicError::Limit(_) => limit(text),
        NicError::Os { source, .. } => by_system(text, &source),
        NicError::ShuttingDown => shutting_down(),
        NicError::Rehearsed => in_order(),
    }
}

/// Status of a refusal of the registry that has a code of its own.
fn from_registry(refusal: &Refusal) -> Status {
    let whole = |code, reason, more: Option<(&'static str, String)>| {
        let facts = [("scope", refusal.scope.to_string()), ("key", refusal.key.clone())];
        status(code, reason, refusal.to_string(), facts.into_iter().chain(more))
    };
    match &refusal.why {
        Why::UnknownKey { .. } => whole(Code::NotFound, "UNKNOWN_KEY", None),
        Why::NoAdapter(_) => whole(Code::NotFound, "NOT_FOUND", None),
        Why::NotBuilt(what) => {
            let more = ("waits_for", (*what).to_owned());
            whole(Code::Unimplemented, "KEY_NOT_BUILT", Some(more))
        }
        Why::Etag { current } => {
            let more = ("etag", current.to_string());
            whole(Code::Aborted, "ETAG_MISMATCH", Some(more))
        }
        Why::AboveLineRate { stored, .. } => {
            let text = |v: &Value| key(&refusal.key).map_or_else(String::new, |def| def.format(v));
            let more = stored.as_ref().map(|v| ("stored", text(v)));
            whole(Code::OutOfRange, "ABOVE_LINE_RATE", more)
        }
        Why::WrongScope(_) | Why::NotAllowed(_) | Why::Conflict(_) | Why::Nic(_) => {
            invalid(refusal.key.clone(), refusal.to_string())
        }
    }
}

fn from_store(error: &StoreError) -> Status {
    status(Code::Unavailable, "STORE_FAILED", error.to_string(), [])
}

/// Error of a resource that does not exist.
pub fn not_found<'a>(text: impl Into<String>, facts: impl IntoIterator<Item = (&'a str, String)>) -> Status {
    status(Code::NotFound, "NOT_FOUND", text, facts)
}

fn limit(text: String) -> Status {
    status(Code::ResourceExhausted, "LIMIT_REACHED", text, [])
}

fn by_system(text: String, source: &io::Error) -> Status {
    let errno = source.raw_os_error().map(|errno| ("errno", errno.to_string()));
    status(Code::FailedPrecondition, "REFUSED_BY_SYSTEM", text, errno)
}

/// Error of a daemon that is ending.
pub fn shutting_down() -> Status {
    status(
        Code::Unavailable,
        "SHUTTING_DOWN",
        "the daemon is shutting down",
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
        let status = Status::from(v.finish(Some(())).expect_err("violations"));
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
            source: io::Error::from_raw_os_error(1),
        };
        let status = Status::from(Refused::nic(str::to_owned)(os));
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("CAP_NET_ADMIN"));
        let info = status.get_details_error_info().expect("info");
        assert_eq!(info.metadata.get("errno").map(String::as_str), Some("1"));
        let invalid = NicError::Invalid {
            field: "mtu",
            problem: "wrong".to_owned(),
        };
        let status = Status::from(Refused::nic(|f| format!("adapter.{f}"))(invalid));
        assert_eq!(status.message(), "adapter.mtu: wrong");
    }
}
