//! Counts of requests by method and code, durations of calls, and open streams. What is counted has a fixed place for each method of the
//! table and one for all other paths, so that a client makes neither memory nor label values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use super::methods::METHODS;
use crate::traces::{Request, Scope, Tracer};

/// Number of codes of gRPC: 0 to 16.
pub const CODES: usize = 17;
/// Upper bounds of the buckets of durations, in microseconds.
pub const BOUNDS: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000,
];
/// Name of all paths that are no method.
const OTHER: &str = "other";

/// Counts of all requests.
#[derive(Debug)]
pub struct Meter {
    /// One for each row of [`METHODS`], and one for other paths.
    tallies: Box<[Tally]>,
    /// Makes spans of requests, if there is a collector.
    tracer: Option<Arc<Tracer>>,
}

/// Counts of a method.
#[derive(Debug, Default)]
struct Tally {
    codes: [AtomicU64; CODES],
    /// Calls by duration; the last bucket has no bound.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// Sum of the durations in nanoseconds.
    nanos: AtomicU64,
    /// Open streams.
    open: AtomicU64,
}

/// Counts of a method at a time.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Path of the method without its first slash, or `other`.
    pub method: &'static str,
    /// Requests that ended, by code.
    pub codes: [u64; CODES],
    /// Durations of calls; `None` for a stream, and for other paths.
    pub seconds: Option<Durations>,
    /// Open streams; `None` for a call.
    pub open: Option<u64>,
}

/// Durations of calls.
#[derive(Debug, Clone, Default)]
pub struct Durations {
    /// Number of calls in each bucket of [`BOUNDS`], and of those beyond.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// Sum in nanoseconds.
    pub nanos: u64,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            tallies: (0..=METHODS.len()).map(|_| Tally::default()).collect(),
            tracer: None,
        }
    }
}

/// Name of a code, as in gRPC's documents.
pub fn code_name(code: usize) -> &'static str {
    const NAMES: [&str; CODES] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(code).copied().unwrap_or(NAMES[Code::Unknown as usize])
}

impl Meter {
    /// Makes a meter that also makes spans of requests, if there is a tracer.
    pub fn tracing(tracer: Option<Arc<Tracer>>) -> Meter {
        Meter {
            tracer,
            ..Meter::default()
        }
    }

    /// What makes spans of requests, if there is a collector.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_deref()
    }

    fn span(&self, method: Option<usize>, headers: &HeaderMap, who: &str) -> Option<Request> {
        let path = method.map_or(OTHER, |i| METHODS[i].path.trim_start_matches('/'));
        self.tracer.as_ref()?.request(path, headers, who)
    }

    /// Counts of the methods that were called.
    pub fn read(&self) -> Vec<Reading> {
        let value = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let readings = self.tallies.iter().enumerate().map(|(i, tally)| {
            let row = METHODS.get(i);
            let durations = || Durations {
                buckets: tally.buckets.each_ref().map(value),
                nanos: value(&tally.nanos),
            };
            Reading {
                method: row.map_or(OTHER, |row| row.path.trim_start_matches('/')),
                codes: tally.codes.each_ref().map(value),
                seconds: row.filter(|row| !row.stream).map(|_| durations()),
                open: row.filter(|row| row.stream).map(|_| value(&tally.open)),
            }
        });
        readings
            .filter(|r| r.codes.iter().any(|n| *n > 0) || r.open.is_some_and(|n| n > 0))
            .collect()
    }

    /// Counts a request that the gate refused. It has no duration: refusals, which take no time, would hide calls that do.
    pub fn refused(&self, method: Option<usize>, code: Code, headers: &HeaderMap, who: &str) {
        if let Some(span) = self.span(method, headers, who) {
            span.end(code as usize, code_name(code as usize));
        }
        add(&self.tally(method).codes[code as usize], 1);
    }

    fn tally(&self, method: Option<usize>) -> &Tally {
        &self.tallies[method.unwrap_or(METHODS.len())]
    }
}

fn add(to: &AtomicU64, n: u64) {
    to.fetch_add(n, Ordering::Relaxed);
}

/// A request in progress; it is counted when this is dropped.
#[derive(Debug)]
pub struct Metered {
    meter: Arc<Meter>,
    /// Place in [`METHODS`].
    method: Option<usize>,
    begun: Instant,
    /// Duration until the response.
    took: Option<Duration>,
    /// Code of the end; `None`: the client went first.
    code: Option<Code>,
    /// Span of the request, if it has one.
    span: Option<Request>,
}

impl Metered {
    /// Begins a request of a client that was admitted.
    pub fn begin(meter: Arc<Meter>, method: Option<usize>, headers: &HeaderMap, who: &str) -> Metered {
        let span = meter.span(method, headers, who);
        let metered = Metered {
            meter,
            method,
            begun: Instant::now(),
            took: None,
            code: None,
            span,
        };
        if metered.is_stream() {
            add(&metered.tally().open, 1);
        }
        metered
    }

    /// Trace of the request, if it has one.
    pub fn trace(&self) -> Option<Arc<Scope>> {
        self.span.as_ref().map(Request::scope)
    }

    /// Notes the response, which may be an error. How long the client reads is no part of the duration.
    pub fn answered(&mut self, headers: &HeaderMap) {
        self.took = Some(self.begun.elapsed());
        self.ended(headers);
    }

    /// Notes the code in trailers, or in headers of a response without a body.
    pub fn ended(&mut self, trailers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(trailers) {
            self.code = Some(status.code());
        }
    }

    /// Notes the code of a body that broke.
    pub fn failed(&mut self, code: Code) {
        self.code = Some(code);
    }

    fn tally(&self) -> &Tally {
        self.meter.tally(self.method)
    }

    fn is_stream(&self) -> bool {
        self.method.is_some_and(|i| METHODS[i].stream)
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let code = self.code.unwrap_or(Code::Cancelled) as usize;
        if let Some(span) = self.span.take() {
            span.end(code, code_name(code));
        }
        let tally = self.tally();
        add(&tally.codes[code], 1);
        if self.is_stream() {
            tally.open.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let took = self.took.unwrap_or_else(|| self.begun.elapsed());
        let bucket = BOUNDS.partition_point(|bound| Duration::from_micros(*bound) < took);
        add(&tally.buckets[bucket], 1);
        add(&tally.nanos, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        assert_eq!(code_name(Code::InvalidArgument as usize), "INVALID_ARGUMENT");
        // tonic's names are the same words without the underscores.
        for code in 0..CODES {
            let known = format!("{:?}", Code::from_i32(i32::try_from(code).expect("small")));
            assert_eq!(code_name(code).replace('_', ""), known.to_uppercase());
        }
    }
}
