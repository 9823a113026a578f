//! HTTP server of the metrics: four paths, no state.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::node::render as render_node;
use super::render::{Snapshot, render};
use crate::access::Meter;
use crate::control::Control;
use crate::paced::Paced;

/// Greatest number of connections. Beyond it, a new connection closes the oldest, so that idle connections do not lock others out.
const CONNECTIONS_MAX: usize = 64;
/// Time limit of a connection, which is for one request.
const CONNECTION_MAX: Duration = Duration::from_secs(30);

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Pages of the server.
struct Pages {
    control: Arc<Control>,
    meter: Arc<Meter>,
    metrics: Paced<Arc<Rendered>>,
    node: Paced<Arc<Rendered>>,
}

/// A page, and the same compressed once somebody has asked for that.
struct Rendered {
    plain: Bytes,
    gzip: OnceLock<Bytes>,
}

impl Rendered {
    fn gzip(&self) -> Bytes {
        let compress = || {
            // A page has the same words in each line: the fastest level already leaves less than a tenth.
            let mut to = GzEncoder::new(Vec::new(), Compression::fast());
            // Writing into memory does not fail.
            let written = to.write_all(&self.plain).and_then(|()| to.finish());
            written.unwrap_or_default().into()
        };
        self.gzip.get_or_init(compress).clone()
    }
}

/// Serves for ever.
pub async fn serve(listener: TcpListener, control: Arc<Control>, meter: Arc<Meter>) {
    let pages = Arc::new(Pages {
        control,
        meter,
        metrics: Paced::default(),
        node: Paced::default(),
    });
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // An error such as a lack of file descriptors may pass.
                tracing::warn!("metrics: cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let pages = pages.clone();
        let task = tokio::spawn(async move {
            let service = service_fn(|request| answer(pages.clone(), request));
            let connection = http1::Builder::new()
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            match tokio::time::timeout(CONNECTION_MAX, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("metrics: a connection broke: {error}"),
                Err(_) => tracing::debug!("metrics: a client was too slow"),
            }
        });
        connections.push_back(task.abort_handle());
    }
}

async fn answer(pages: Arc<Pages>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let gzip = takes_gzip(request.headers().get_all(ACCEPT_ENCODING));
    Ok(match request.uri().path() {
        "/metrics" => {
            page(&pages, &pages.metrics, gzip, |snapshot, spent| {
                render(snapshot, spent)
            })
            .await
        }
        "/metrics/node" => page(&pages, &pages.node, gzip, |snapshot, _| render_node(snapshot)).await,
        "/livez" => match pages.control.pulse.beats().await {
            Ok(()) => text(StatusCode::OK, "ok\n"),
            Err(why) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
        },
        "/readyz" if pages.control.life.ready() => text(StatusCode::OK, "ok\n"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not all sockets listen\n"),
        "/" => text(
            StatusCode::OK,
            "vnicd\n/metrics       for Prometheus\n/metrics/node  for Prometheus, by node_exporter's names\n/livez         do all data cores turn, and all threads go on?\n/readyz        do all sockets listen?\n",
        ),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /metrics, /metrics/node, /livez and /readyz\n",
        ),
    })
}

async fn page(
    pages: &Pages,
    page: &Paced<Arc<Rendered>>,
    gzip: bool,
    render: impl FnOnce(&Snapshot, &dyn Fn() -> Duration) -> String + Send + 'static,
) -> Response<Full<Bytes>> {
    let (control, meter) = (pages.control.clone(), pages.meter.clone());
    let work = move || {
        let start = Instant::now();
        let plain = render(&Snapshot::take(&control, &meter), &|| start.elapsed()).into();
        Arc::new(Rendered {
            plain,
            gzip: OnceLock::new(),
        })
    };
    let body = match page.get(work).await {
        Ok(page) if gzip => tokio::task::spawn_blocking(move || page.gzip()).await,
        Ok(page) => Ok(page.plain.clone()),
        Err(error) => Err(error),
    };
    match body {
        Ok(body) => {
            let mut response = respond(StatusCode::OK, PROMETHEUS, body);
            let headers = response.headers_mut();
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            if gzip {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            response
        }
        Err(error) => {
            tracing::error!("metrics: a scrape failed by a bug: {error}");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "a bug; the log has the details\n",
            )
        }
    }
}

/// Whether a client takes gzip, as Prometheus does (RFC 9110 section 12.5.3).
fn takes_gzip<'a>(accept: impl IntoIterator<Item = &'a HeaderValue>) -> bool {
    let values = accept.into_iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts
            .filter_map(|p| p.strip_prefix("q="))
            .any(|q| q.parse() == Ok(0.0));
        named && !refused
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_who_takes_it() {
        let takes = |values: &[&'static str]| {
            let values: Vec<_> = values.iter().map(|v| HeaderValue::from_static(v)).collect();
            takes_gzip(&values)
        };
        assert!(takes(&["gzip"]) && takes(&["identity", "br;q=1, GZIP; q=0.5"]));
        assert!(!takes(&[]) && !takes(&["identity, br"]) && !takes(&["gzip;q=0"]));
    }
}
