//! Traces of the control interface: a span for each request, and in it one for all that a data core did of it, for a collector of
//! OpenTelemetry. Off unless a collector is configured.
//!
//! Spans go through a bounded queue to a task that sends them. A full queue and a collector that does not answer lose spans, which are
//! counted; no request waits.

mod collector;
mod export;
mod otlp;
mod parent;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, mpsc};
use tonic::codegen::http::HeaderMap;
use vnic_backend::CoreWork;

pub use collector::Collector;
use otlp::{Kind, Span};
use parent::Parent;

/// Spans that wait for the collector.
const QUEUE: usize = 4096;
/// Spans of data cores in one request; a list of many adapters asks a core about each.
const CORE_SPANS: u32 = 64;

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Tracer {
    queue: mpsc::Sender<Item>,
    /// Asks the task that sends for its end.
    end: Notify,
    exported: AtomicU64,
    lost: AtomicU64,
}

/// Numbers of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Spans that the collector has taken.
    pub exported: u64,
    /// Spans that were lost: the queue was full, or the collector did not take them.
    pub lost: u64,
}

impl Tracer {
    /// Starts a task that sends to a collector. Must be called in a tokio runtime.
    pub fn start(collector: Collector) -> (Arc<Tracer>, tokio::task::JoinHandle<()>) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let tracer = Arc::new(Tracer {
            queue,
            end: Notify::new(),
            exported: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let task = tokio::spawn(export::run(tracer.clone(), collector, waiting));
        (tracer, task)
    }

    /// Numbers of spans so far.
    pub fn sent(&self) -> Sent {
        Sent {
            exported: self.exported.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Ends the task once it has sent what waits.
    pub fn end(&self) {
        self.end.notify_one();
    }

    /// Begins the span of a request for a method's path by a client. `None`: the client does not want a trace.
    pub fn request(
        self: &Arc<Self>,
        method: &'static str,
        headers: &HeaderMap,
        who: &str,
    ) -> Option<Request> {
        let parent = Parent::read(headers);
        if parent.as_ref().is_some_and(|p| !p.sampled) {
            return None;
        }
        let trace = parent.as_ref().map_or_else(random, |p| p.trace);
        Some(Request {
            scope: Arc::new(Scope {
                tracer: self.clone(),
                trace,
                id: random(),
                system: SystemTime::now(),
                begun: Instant::now(),
                works: AtomicU32::new(0),
            }),
            parent,
            method,
            who: who.to_owned(),
        })
    }

    fn queue(&self, item: Item) {
        if self.queue.try_send(item).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What becomes a span. A data core only notes its work: the task that sends makes the span of it.
#[derive(Debug)]
enum Item {
    Request(Span),
    Work(Arc<Scope>, CoreWork),
}

impl From<Item> for Span {
    fn from(item: Item) -> Span {
        match item {
            Item::Request(span) => span,
            Item::Work(scope, work) => scope.of_work(work),
        }
    }
}

/// Bytes that nobody can foresee, and that are not all zero.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    for part in bytes.chunks_mut(8) {
        let number = RandomState::new().build_hasher().finish().max(1);
        part.copy_from_slice(&number.to_le_bytes()[..part.len()]);
    }
    bytes
}

/// Trace of a request in progress, in which work on data cores has its spans.
#[derive(Debug)]
pub struct Scope {
    tracer: Arc<Tracer>,
    trace: [u8; 16],
    /// The request's span.
    id: [u8; 8],
    system: SystemTime,
    begun: Instant,
    /// Works of data cores so far.
    works: AtomicU32,
}

tokio::task_local! {
    /// Trace of the request that a task serves, if it has one.
    pub static SCOPE: Option<Arc<Scope>>;
}

/// Does work for the request that a task serves: what it gives data cores has spans in the request's trace.
pub fn within<R>(scope: Option<Arc<Scope>>, work: impl FnOnce() -> R) -> R {
    match scope {
        None => work(),
        Some(scope) => vnic_backend::observed(Arc::new(move |done| scope.worked(done)), work),
    }
}

/// Trace of the request that this task serves, if it has one.
pub fn current() -> Option<Arc<Scope>> {
    SCOPE.try_with(Clone::clone).ok().flatten()
}

impl Scope {
    /// An instant in nanoseconds since 1970.
    fn nanos(&self, at: Instant) -> u64 {
        let since = self.system.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = since.saturating_add(at.saturating_duration_since(self.begun));
        u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
    }

    fn span(&self, name: String, kind: Kind, start: Instant, end: Instant) -> Span {
        Span {
            trace_id: self.trace.to_vec(),
            name,
            kind: kind.into(),
            start_time_unix_nano: self.nanos(start),
            end_time_unix_nano: self.nanos(end),
            ..Span::default()
        }
    }

    /// Notes what a data core did. Called on the core.
    fn worked(self: &Arc<Self>, work: CoreWork) {
        if self.works.fetch_add(1, Ordering::Relaxed) < CORE_SPANS {
            self.tracer.queue(Item::Work(self.clone(), work));
        }
    }

    /// Span of what a data core did.
    fn of_work(&self, work: CoreWork) -> Span {
        let what = if work.question { "answered" } else { "applied" };
        let name = format!("core {} {what}", work.cpu);
        let waited = work.begun.saturating_duration_since(work.given);
        Span {
            span_id: random::<8>().to_vec(),
            parent_span_id: self.id.to_vec(),
            attributes: vec![
                otlp::number("vnic.core", u64::try_from(work.cpu).unwrap_or(u64::MAX)),
                otlp::number("vnic.core.waited_ns", nanos(waited)),
            ],
            ..self.span(name, Kind::Internal, work.given, work.done)
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Span of a request in progress.
#[derive(Debug)]
pub struct Request {
    scope: Arc<Scope>,
    parent: Option<Parent>,
    method: &'static str,
    who: String,
}

impl Request {
    /// Trace of the request.
    pub fn scope(&self) -> Arc<Scope> {
        self.scope.clone()
    }

    /// Ends the span with a code of gRPC, its number and name.
    pub fn end(self, code: usize, code_name: &str) {
        let scope = &self.scope;
        let (service, method) = self.method.rsplit_once('/').unwrap_or(("", self.method));
        let works = scope.works.load(Ordering::Relaxed);
        let (parent, state) = match self.parent {
            Some(parent) => (parent.span.to_vec(), parent.state),
            None => (Vec::new(), String::new()),
        };
        let span = Span {
            span_id: scope.id.to_vec(),
            parent_span_id: parent,
            trace_state: state,
            attributes: vec![
                otlp::text("rpc.system", "grpc"),
                otlp::text("rpc.service", service),
                otlp::text("rpc.method", method),
                otlp::number("rpc.grpc.status_code", u64::try_from(code).unwrap_or(u64::MAX)),
                otlp::text("vnic.peer", self.who),
                otlp::number("vnic.core.works", works.into()),
            ],
            status: otlp::status(code, code_name),
            ..scope.span(self.method.to_owned(), Kind::Server, scope.begun, Instant::now())
        };
        scope.tracer.queue(Item::Request(span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_spans_and_counts_them() {
        let (queue, mut waiting) = mpsc::channel(2);
        let tracer = Arc::new(Tracer {
            queue,
            end: Notify::new(),
            exported: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let headers = HeaderMap::new();
        let begin = || {
            tracer
                .request("a.Service/Method", &headers, "uid 7")
                .expect("a span")
        };
        for _ in 0..5 {
            begin().end(0, "OK");
        }
        assert_eq!(tracer.sent(), Sent { exported: 0, lost: 3 });
        let mut next = || Span::from(waiting.try_recv().expect("a span"));
        let (first, second) = (next(), next());
        assert_ne!(
            (&first.trace_id, &first.span_id),
            (&second.trace_id, &second.span_id)
        );
        assert!(first.parent_span_id.is_empty() && first.end_time_unix_nano >= first.start_time_unix_nano);

        // Works of data cores are no more than so many in a request.
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let tracer = Arc::new(Tracer {
            queue,
            end: Notify::new(),
            exported: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let request = tracer
            .request("a.Service/Method", &headers, "uid 7")
            .expect("a span");
        let now = Instant::now();
        for _ in 0..1000 {
            request.scope().worked(CoreWork {
                cpu: 3,
                given: now,
                begun: now + Duration::from_micros(5),
                done: now + Duration::from_micros(7),
                question: false,
            });
        }
        request.end(13, "INTERNAL");
        let mut spans = Vec::new();
        while let Ok(item) = waiting.try_recv() {
            spans.push(Span::from(item));
        }
        assert_eq!(spans.len(), CORE_SPANS as usize + 1);
        let last = spans.pop().expect("the request");
        assert!(last.status.is_some());
        for span in &spans {
            assert_eq!(span.parent_span_id, last.span_id);
            assert_eq!(span.trace_id, last.trace_id);
            assert_eq!(span.name, "core 3 applied");
            assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 7000);
        }
    }
}
