//! Responses to requests: errors with a stable reason (AIP-193), and calls that may block.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::places::Place;
use crate::traces;

/// Domain of error reasons.
pub const DOMAIN: &str = "vnic";

tokio::task_local! {
    /// Place of the call that a task serves.
    pub static CALL: Arc<Place>;
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
    let place = CALL.try_with(Arc::clone).ok();
    let trace = traces::current();
    let work = move || {
        let _place = place;
        traces::within(trace, work)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| bug(&error))
}

/// Error of a panic in the daemon.
pub fn bug(error: &dyn Error) -> Status {
    tracing::error!("a request failed by a bug: {error}");
    status(
        Code::Internal,
        "BUG",
        "a bug of the daemon; its log has the details",
        [],
    )
}
