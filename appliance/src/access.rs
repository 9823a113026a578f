//! Who may do what.

use tonic::Request;
use tonic::transport::server::UdsConnectInfo;

/// Who sent a request, for the event log: such as `uid 1000`.
pub fn who<T>(request: &Request<T>) -> String {
    let peer = request
        .extensions()
        .get::<UdsConnectInfo>()
        .and_then(|info| info.peer_cred);
    peer.map_or_else(
        || "an unknown client".to_owned(),
        |cred| format!("uid {}", cred.uid()),
    )
}
