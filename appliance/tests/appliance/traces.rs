//! Traces of requests: what a collector gets, and that one that does not answer disturbs nobody.

use std::time::{Duration, Instant};

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use vnic_control::v1;
use vnic_control::v1::fault_service_client::FaultServiceClient;

use crate::common::lab::Lab;
use crate::common::process;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// What is read of `ExportTraceServiceRequest`, by the numbers of opentelemetry-proto.
#[derive(Clone, PartialEq, prost::Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(string, tag = "1")]
    text: String,
    #[prost(int64, tag = "3")]
    number: i64,
}

fn of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a AnyValue> {
    attributes.iter().find(|a| a.key == key)?.value.as_ref()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A collector: the address of one that takes all spans, and what it has taken.
async fn collector() -> (String, mpsc::UnboundedReceiver<ResourceSpans>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (sender, taken) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let body = request(&mut stream).await;
            for all in Export::decode(&*body)
                .expect("an ExportTraceServiceRequest")
                .resource_spans
            {
                let _ = sender.send(all);
            }
            let answer =
                "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.expect("answered");
        }
    });
    (format!("http://{address}"), taken)
}

/// Reads a request of HTTP; returns its body.
async fn request(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(at) = head {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
            assert!(head.contains("content-type: application/x-protobuf"), "{head}");
            let (_, rest) = head.split_once("content-length: ").expect("a length");
            let length: usize = rest.lines().next().expect("a line").parse().expect("a number");
            if bytes.len() == at + 4 + length {
                return bytes.split_off(at + 4);
            }
        }
        assert!(stream.read_buf(&mut bytes).await.expect("a request") > 0);
    }
}

/// Spans until `enough` of them are there. (The limit only keeps a test from hanging.)
async fn spans(
    taken: &mut mpsc::UnboundedReceiver<ResourceSpans>,
    enough: impl Fn(&[Span]) -> bool,
) -> Vec<Span> {
    let mut all = Vec::new();
    let wait = async {
        while !enough(&all) {
            let more = taken.recv().await.expect("the collector");
            let resource = more.resource.expect("a resource").attributes;
            assert_eq!(of(&resource, "service.name").expect("a name").text, "vnicd");
            all.extend(more.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .expect("the spans");
    all
}

fn fault(name: &str) -> v1::CreateFaultRequest {
    v1::CreateFaultRequest {
        fault_id: name.to_owned(),
        fault: Some(v1::Fault {
            count: Some(1),
            action: Some(v1::fault::Action::Drop(v1::DropFault {})),
            ..v1::Fault::default()
        }),
    }
}

/// A request in a client's trace.
fn traced<T>(message: T, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{PARENT}-{flags}").parse().expect("a value");
    request.metadata_mut().insert("traceparent", parent);
    request
        .metadata_mut()
        .insert("tracestate", "shop=42".parse().expect("a value"));
    request
}

async fn channel(socket: &std::path::Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).expect("an address");
    endpoint.connect().await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_a_clients_trace_has_a_span_and_so_has_what_cores_do_of_it() {
    let (url, mut taken) = collector().await;
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!("[tracing]\notlp = \"{url}\"\n[[adapter]]\nname = \"vf0\"\n");
    // A process of its own: the sandbox acts there.
    let daemon = process::start(dir.path(), &config);
    let mut faults = FaultServiceClient::new(channel(&dir.path().join("control.sock")).await);
    let unseen = v1::ListFaultsRequest::default();
    faults.list_faults(traced(unseen, "00")).await.expect("a list");
    faults
        .create_fault(traced(fault("first"), "01"))
        .await
        .expect("a fault");
    let twice = faults.create_fault(traced(fault("first"), "01")).await;
    let twice = twice.expect_err("there is one").code();
    faults
        .delete_fault(v1::DeleteFaultRequest {
            name: "faults/first".to_owned(),
        })
        .await
        .expect("gone");

    let method = |span: &&Span| span.kind == 2;
    let all = spans(&mut taken, |all| all.iter().filter(method).count() >= 3).await;
    // (What the client does not record has no span.)
    assert!(all.iter().all(|s| !s.name.ends_with("ListFaults")), "{all:#?}");
    let of_method = |name: &str| -> Vec<&Span> {
        let name = format!("vnic.v1.FaultService/{name}");
        all.iter().filter(|s| s.name == name).collect()
    };
    let [good, bad] = of_method("CreateFault")[..] else {
        panic!("{all:#?}");
    };
    for span in [good, bad] {
        assert_eq!(
            (hex(&span.trace_id), hex(&span.parent_span_id)),
            (TRACE.into(), PARENT.into())
        );
        assert_eq!(span.trace_state, "shop=42");
        let text = |key: &str| of(&span.attributes, key).expect("an attribute").text.clone();
        assert_eq!(
            (text("rpc.system"), text("rpc.service")),
            ("grpc".into(), "vnic.v1.FaultService".into())
        );
        assert_eq!(text("rpc.method"), "CreateFault");
        assert!(text("vnic.peer").contains(&rustix::process::getuid().as_raw().to_string()));
    }
    let code = |span: &Span| {
        of(&span.attributes, "rpc.grpc.status_code")
            .expect("a code")
            .number
    };
    assert_eq!((code(good), code(bad)), (0, twice as i64));
    // Cores have the rule before the client has its answer.
    let children: Vec<&Span> = all.iter().filter(|s| s.parent_span_id == good.span_id).collect();
    assert!(!children.is_empty(), "{all:#?}");
    for child in &children {
        assert_eq!((hex(&child.trace_id), child.kind), (TRACE.into(), 1));
        let cpu = of(&child.attributes, "vnic.core").expect("a core").number;
        assert!(child.name.starts_with(&format!("core {cpu} ")), "{child:?}");
        assert!(good.start <= child.start && child.start <= child.end);
    }
    assert!(
        children.iter().any(|s| s.name.ends_with(" applied")),
        "{children:#?}"
    );
    // A request without a trace begins one.
    let [own] = of_method("DeleteFault")[..] else {
        panic!("{all:#?}");
    };
    assert!(own.parent_span_id.is_empty() && own.trace_id.len() == 16 && hex(&own.trace_id) != TRACE);
    drop(daemon);
}

/// Value of a metric in a page.
fn value(page: &str, metric: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(metric));
    line.map_or(0, |rest| rest.trim().parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_fails_costs_spans_and_nothing_else() {
    // One that hangs up, and one that never answers.
    let hangs_up = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = |l: &TcpListener| format!("http://{}", l.local_addr().expect("an address"));
    let urls = [url(&hangs_up), url(&silent)];
    tokio::spawn(async move { while hangs_up.accept().await.is_ok() {} });
    for (i, url) in urls.iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        let lab = Lab::with(dir, |dir| {
            let mut settings = crate::common::settings(dir, 1);
            settings.control.traces = Some(vnic_appliance::traces::Collector::parse(url).expect("a URL"));
            settings
        })
        .await;
        for _ in 0..20 {
            assert!(lab.list().await.is_empty());
        }
        let refused = lab.faults().get_fault(v1::GetFaultRequest::default()).await;
        assert_eq!(refused.expect_err("no name").code(), Code::InvalidArgument);
        let page = lab
            .daemon
            .control()
            .endpoints
            .metrics_url
            .clone()
            .expect("metrics");
        if i == 0 {
            let deadline = Instant::now() + Duration::from_secs(60);
            let lost = || {
                value(
                    &crate::common::get(&page),
                    "vnic_trace_spans_total{outcome=\"lost\"}",
                )
            };
            while tokio::task::block_in_place(lost) == 0 {
                assert!(Instant::now() < deadline, "no span is lost");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let text = tokio::task::block_in_place(|| crate::common::get(&page));
        assert_eq!(value(&text, "vnic_trace_spans_total{outcome=\"exported\"}"), 0);
        // It ends though spans wait.
        lab.end().await;
    }
}
