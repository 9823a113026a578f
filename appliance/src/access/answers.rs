//! Responses to requests: errors with a stable reason (AIP-193), and calls that may block.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use vnic_backend::rehearsal::rehearsed;

use super::places::Place;
use crate::traces;

/// Domain of error reasons.
pub const DOMAIN: &str = "vnic";

tokio::task_local! {
    /// The call that a task serves.
    pub static CALL: Call;
}

/// A call that is in progress.
#[derive(Clone)]
pub struct Call {
    /// Its place.
    pub _place: Arc<Place>,
    /// Whether it is only a rehearsal.
    pub rehearses: bool,
}

/// Status with a stable reason for programs and a message for people.
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

/// Runs work on a thread for blocking calls. The work keeps the call's place until it is done, even if the client has
/// cancelled the call: so a client cannot begin more work by cancelling.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    let call = CALL.try_with(Call::clone).ok();
    let trace = traces::current();
    let done = Arc::new(Mutex::new(None));
    let result = done.clone();
    let work = move || {
        let rehearses = call.as_ref().is_some_and(|call| call.rehearses);
        let value = traces::within(trace, || rehearsed(rehearses, work));
        drop(call);
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    };
    run(Box::new(work)).await.map_err(|error| bug(&error))?;
    let value = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    value.ok_or_else(|| bug(&"work without a result".to_owned()))
}

/// Starts work on a thread for blocking calls. All work is of one type: each type of a task is some KB of tokio's code.
fn run(work: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
    tokio::task::spawn_blocking(work)
}

/// Error of a panic in the daemon.
pub fn bug(error: &dyn Display) -> Status {
    tracing::error!("a request failed by a bug: {error}");
    status(
        Code::Internal,
        "BUG",
        "a bug of the daemon; its log has the details",
        [],
    )
}
