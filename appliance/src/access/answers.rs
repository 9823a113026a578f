//! Answers to requests: a refusal with a stable reason (AIP-193), and work in the place of its call.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::places::Place;

/// The domain of our error reasons.
pub const DOMAIN: &str = "vnic";

tokio::task_local! {
    /// The place of the call that a task answers.
    pub static CALL: Arc<Place>;
}

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

/// Runs a call that may block where that holds nobody up. The request has its place as long as that takes, even if the
/// client has gone: who gives up a call has no place for another one before its work is done.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    let place = CALL.try_with(Arc::clone).ok();
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
