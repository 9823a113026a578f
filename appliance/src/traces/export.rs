//! The task that sends spans to the collector, by OTLP/HTTP with Protocol Buffers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Bytes;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::collector::Collector;
use super::otlp::{
    self, ExportRequest, ExportResponse, InstrumentationScope, Resource, ResourceSpans, ScopeSpans, Span,
};
use super::{Item, Sent, Tracer};
use crate::http::{self, Url};

/// Most spans of a request to the collector.
const BATCH: usize = 512;
/// Time that a span waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// Time limit of a request to the collector.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends spans until the tracer ends.
pub async fn run(tracer: Arc<Tracer>, collector: Collector, mut waiting: mpsc::Receiver<Item>) {
    let mut failing = false;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            n = waiting.recv_many(&mut batch, BATCH) => {
                if n == 0 {
                    return;
                }
            }
            () = tracer.end.notified() => {
                waiting.close();
                continue;
            }
        }
        let more = async {
            while let room @ 1.. = BATCH.saturating_sub(batch.len())
                && waiting.recv_many(&mut batch, room).await > 0
            {}
        };
        let ended = tokio::select! {
            _ = timeout(DELAY, more) => false,
            () = tracer.end.notified() => true,
        };
        if ended {
            waiting.close();
        }
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let batch = batch.into_iter().map(Span::from).collect();
        let sent = timeout(LIMIT, send(&collector, batch)).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
        let rejected = match &sent {
            Ok(rejected) => (*rejected).min(spans),
            Err(_) => spans,
        };
        tracer.exported.fetch_add(spans - rejected, Ordering::Relaxed);
        tracer.lost.fetch_add(rejected, Ordering::Relaxed);
        match sent {
            Err(error) if !failing => {
                failing = true;
                let Url { host, port, .. } = &collector.0;
                tracing::warn!("the collector of traces at {host}:{port} takes nothing: {error}");
            }
            Ok(_) if failing => {
                failing = false;
                let Sent { lost, .. } = tracer.sent();
                tracing::info!("the collector takes traces again; {lost} spans are lost so far");
            }
            _ => {}
        }
    }
}

/// Sends spans; returns how many the collector has refused.
async fn send(collector: &Collector, spans: Vec<Span>) -> Result<u64, String> {
    let body = Bytes::from(message(spans).encode_to_vec());
    let answer = http::post(&collector.0, "application/x-protobuf", body).await?;
    let answer = ExportResponse::decode(answer).map_err(|e| e.to_string())?;
    let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
    Ok(u64::try_from(rejected).unwrap_or(0))
}

fn message(spans: Vec<Span>) -> ExportRequest {
    let host = rustix::system::uname();
    let attributes = vec![
        otlp::text("service.name", "vnicd"),
        otlp::text("service.version", crate::VERSION),
        otlp::text("host.name", host.nodename().to_string_lossy()),
        otlp::number("process.pid", std::process::id().into()),
    ];
    ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "vnicd".to_owned(),
                    version: crate::VERSION.to_owned(),
                }),
                spans,
            }],
        }],
    }
}
