//! The web server of the metrics: four paths, no state.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::node::render as render_node;
use super::render::{Snapshot, render};
use crate::daemon::Context;

/// Connections at a time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// A client that takes longer to say what it wants is dropped.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Data cores that do not answer within this time are stuck.
const LIVE_WITHIN: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves for ever.
pub async fn serve(listener: TcpListener, context: Arc<Context>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, for example: that passes.
                tracing::warn!("metrics: cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let context = context.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(context.clone(), request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!("metrics: a connection broke: {error}");
            }
            drop(slot);
        });
    }
}

async fn answer(
    context: Arc<Context>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    Ok(match request.uri().path() {
        "/metrics" => metrics(context, |snapshot, spent| render(snapshot, spent)).await,
        "/metrics/node" => metrics(context, |snapshot, _| render_node(snapshot)).await,
        "/livez" => {
            let work = move || context.nic.responsive(LIVE_WITHIN);
            match tokio::task::spawn_blocking(work).await {
                Ok(true) => text(StatusCode::OK, "ok\n"),
                _ => text(StatusCode::SERVICE_UNAVAILABLE, "a data core does not answer\n"),
            }
        }
        "/readyz" if context.ready() => text(StatusCode::OK, "ok\n"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not all sockets listen\n"),
        "/" => text(
            StatusCode::OK,
            "vnicd\n/metrics       for Prometheus\n/metrics/node  for Prometheus, by node_exporter's names\n/livez         do all data cores turn?\n/readyz        do all sockets listen?\n",
        ),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /metrics, /metrics/node, /livez and /readyz\n",
        ),
    })
}

async fn metrics(
    context: Arc<Context>,
    render: impl FnOnce(&Snapshot, &dyn Fn() -> Duration) -> String + Send + 'static,
) -> Response<Full<Bytes>> {
    let work = move || {
        let start = Instant::now();
        render(&Snapshot::take(&context), &|| start.elapsed())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(page) => respond(StatusCode::OK, PROMETHEUS, page),
        Err(error) => {
            tracing::error!("metrics: a scrape failed by a bug: {error}");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "a bug; the log has the details\n",
            )
        }
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    respond(status, TEXT, body)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
