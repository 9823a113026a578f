//! Requests that only ask whether they would be taken (AIP-163). The metadata `vnic-validate-only: true` makes a rehearsal of each
//! request to change something: it is checked and answered as always, and changes nothing.

use std::future::ready;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Response};
use tonic::{Code, Status};

use super::Role;
use super::answers::status;
use super::methods::Method;

/// Metadata of a request that is only checked.
const VALIDATE_ONLY: &str = "vnic-validate-only";
/// Metadata of the answer to a request that was only checked, and is in order.
const VALIDATED: &str = "vnic-validated";

/// Status of a request that is in order. The gate gives it the message that a client expects.
pub fn in_order() -> Status {
    Status::new(Code::Ok, "everything is in order, and nothing was changed")
}

/// Whether a request to the method of this row is a rehearsal. An error: it cannot be one.
pub fn asked(headers: &HeaderMap, row: Option<&Method>) -> Result<bool, Status> {
    let on = match headers.get(VALIDATE_ONLY).map(HeaderValue::as_bytes) {
        None | Some(b"false") => false,
        Some(b"true") => true,
        Some(_) => {
            let text = format!("{VALIDATE_ONLY}: true and false are allowed");
            return Err(status(Code::InvalidArgument, "BAD_VALIDATE_ONLY", text, []));
        }
    };
    // What only reads is done.
    let Some(row) = row.filter(|row| on && row.role > Role::Viewer) else {
        return Ok(false);
    };
    if row.stream {
        let text = format!("{}: a stream cannot be checked without its begin", row.path);
        return Err(status(Code::Unimplemented, "CANNOT_VALIDATE", text, []));
    }
    Ok(true)
}

/// The answer of a rehearsal: an empty message, unless the method has one for that.
pub fn answer(mut response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()).map(|status| status.code()) {
        None => {}
        Some(Code::Ok) => {
            let mut trailers = HeaderMap::new();
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
            let message = Full::new(Bytes::from_static(&[0; 5]));
            let body = message.with_trailers(ready(Some(Ok(trailers))));
            response = response.map(|_| Body::new(body));
            response.headers_mut().remove(Status::GRPC_STATUS);
            response.headers_mut().remove(Status::GRPC_MESSAGE);
        }
        Some(_) => return response,
    }
    let yes = HeaderValue::from_static("true");
    response.headers_mut().insert(VALIDATED, yes);
    response
}
