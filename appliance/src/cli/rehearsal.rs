//! `--validate-only`: a connection whose changes are only checked. The first one that is in order ends the command.

use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::{BodyExt as _, Full};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::transport::{self, Error};
use tower::Service;

/// Metadata of a request that is only checked.
const VALIDATE_ONLY: &str = "vnic-validate-only";
/// Metadata of the answer to a request that was only checked, and is in order.
const VALIDATED: &str = "vnic-validated";
/// Feature of a daemon that knows such requests. Others would carry them out.
pub const FEATURE: &str = "validate-only";
/// A message without fields, with its frame.
const EMPTY: [u8; 5] = [0; 5];

/// Connection to a daemon.
#[derive(Debug, Clone)]
pub struct Channel {
    pub inner: transport::Channel,
    /// Whether changes are only checked.
    pub validates: bool,
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if self.validates {
            let on = HeaderValue::from_static("true");
            request.headers_mut().insert(VALIDATE_ONLY, on);
        }
        let path = request.uri().path().to_owned();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            match answer.headers().contains_key(VALIDATED) {
                true => Ok(validated(&path, answer).await),
                false => Ok(answer),
            }
        })
    }
}

/// The answer to a request that is in order: a status that [`in_order`] knows, unless the daemon has more to say.
async fn validated(path: &str, answer: Response<Body>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let body = match body.collect().await {
        Ok(body) => body,
        Err(failed) => return failed.into_http(),
    };
    let trailers = body.trailers().cloned().unwrap_or_default();
    let message = body.to_bytes();
    if message[..] != EMPTY {
        let body = Full::new(message).with_trailers(ready(Some(Ok(trailers))));
        return Response::from_parts(head, Body::new(body));
    }
    let method = path.rsplit_once('/').map_or(path, |(_, method)| method);
    let mut answer = Status::cancelled(method).into_http();
    let yes = HeaderValue::from_static("true");
    answer.headers_mut().insert(VALIDATED, yes);
    answer
}

/// The method whose request is in order and was not carried out, if that is what a status says.
pub fn in_order(status: &Status) -> Option<String> {
    let validated = status.metadata().contains_key(VALIDATED);
    validated.then(|| status.message().to_owned())
}
