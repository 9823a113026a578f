//! Metrics of the control interface. Labels are methods of the daemon's own descriptors, or `other`, and codes of gRPC.

use tonic::Code;

use super::naming::seconds;
use super::page::Page;
use crate::access::{BOUNDS, Reading, code_name};

/// Codes that a method that was called always has, so that the first failure is an increase.
const ALWAYS: [Code; 4] = [Code::Ok, Code::Unknown, Code::Internal, Code::Unavailable];

/// Metrics of the methods that were called.
pub fn render(page: &mut Page, readings: &[Reading]) {
    page.counter(
        "vnic_grpc_requests_total",
        "Requests to the control interface that ended, calls and streams, by method and code of gRPC; CANCELLED: the client went first.",
    );
    for r in readings {
        for (code, n) in r.codes.iter().enumerate() {
            if *n > 0 || ALWAYS.iter().any(|always| *always as usize == code) {
                page.value(&[("method", &r.method), ("code", &code_name(code))], n);
            }
        }
    }
    page.histogram(
        "vnic_grpc_request_seconds",
        "Time from a call to its response; streams have none, nor have calls that were refused for their role or a limit.",
    );
    for r in readings {
        let Some(durations) = &r.seconds else { continue };
        let bounds = BOUNDS.iter().map(|us| seconds(*us, 1_000_000));
        let sum = seconds(durations.nanos, 1_000_000_000);
        page.buckets(&[("method", &r.method)], bounds, &durations.buckets, sum);
    }
    page.gauge(
        "vnic_grpc_streams",
        "Streams of the control interface that are open.",
    );
    for r in readings {
        if let Some(open) = r.open {
            page.value(&[("method", &r.method)], open);
        }
    }
}
