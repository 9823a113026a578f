//! Calls whose answers are in a bundle, made by the descriptors of the package: one code for all methods.

use bytes::{Buf as _, BufMut as _};
use prost::Message as _;
use prost_reflect::{DynamicMessage, MethodDescriptor, Value};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

use super::super::Failure;
use super::super::rehearsal::Channel;
use crate::json;

/// Greatest response in bytes.
const RESPONSE_MAX: usize = 16 << 20;
/// Elements that a page is asked to have; the daemon gives fewer where its most is less.
const PAGE: i32 = 10_000;
/// Most bytes of all pages of a list.
const LIST_MAX: usize = 64 << 20;

/// A call without parameters and its file.
pub struct Call {
    /// Name of the file without `.json`.
    pub file: &'static str,
    /// Service and method.
    pub method: &'static str,
    /// What the file has.
    pub what: &'static str,
    /// Most pages of the list.
    pages: usize,
    /// The last pages are taken, and not the first.
    last: bool,
}

const fn call(file: &'static str, method: &'static str, what: &'static str) -> Call {
    Call {
        file,
        method,
        what,
        pages: usize::MAX,
        last: false,
    }
}

/// All calls, besides [`COUNTERS`].
pub static CALLS: &[Call] = &[
    call(
        "server-info",
        "ServerService/GetServerInfo",
        "the daemon: version, build, data cores, directories, addresses",
    ),
    call("log-level", "ServerService/GetLogLevel", "what the daemon logs"),
    call(
        "adapters",
        "AdapterService/ListAdapters",
        "adapters with their state",
    ),
    call(
        "ports",
        "PortService/ListPorts",
        "uplink ports, and of meshes the peers",
    ),
    call("teams", "TeamService/ListTeams", "teams with their members"),
    call(
        "qos",
        "QosService/ListQos",
        "quality of service of adapters and ports",
    ),
    call(
        "congestion",
        "CongestionService/ListCongestion",
        "congestion control of adapters",
    ),
    Call {
        pages: 1,
        ..call(
            "flows",
            "CongestionService/ListFlows",
            "flows that congestion control limits, the first 10000",
        )
    },
    call(
        "registry",
        "RegistryService/ListEntries",
        "settings: stored, pending, effective",
    ),
    call(
        "nvconfig",
        "NvConfigService/ListNvParameters",
        "NV parameters: current, next, default",
    ),
    call("gids", "RdmaService/ListGids", "GID tables of adapters"),
    call(
        "rdma-resources",
        "RdmaService/ListRdmaResources",
        "RDMA functions: how many objects of each type there are, and can be",
    ),
    Call {
        pages: 1,
        ..call(
            "queue-pairs",
            "RdmaService/ListQueuePairs",
            "queue pairs, the first 10000",
        )
    },
    Call {
        pages: 1,
        ..call(
            "rdma-connections",
            "RdmaService/ListRdmaConnections",
            "connections of RDMA functions, the first 10000",
        )
    },
    call(
        "switch",
        "SwitchService/GetSwitch",
        "settings and sizes of the switch",
    ),
    call(
        "fdb",
        "SwitchService/ListFdbEntries",
        "address table of the switch",
    ),
    call("faults", "FaultService/ListFaults", "fault rules"),
    call(
        "verbs-faults",
        "FaultService/ListVerbsFaults",
        "fault rules for completions and commands",
    ),
    call("scenarios", "FaultService/ListScenarios", "scenarios of failures"),
    Call {
        pages: 1,
        ..call(
            "outcomes",
            "FaultService/ListOutcomes",
            "what became of the requests of the last recording, the first 10000",
        )
    },
    call(
        "access-lists",
        "AccessListService/ListAccessLists",
        "access lists of adapters",
    ),
    call("mirrors", "MirrorService/ListMirrors", "mirror sessions"),
    call("clock", "ClockService/GetClock", "the NIC's clock"),
    call(
        "subnet",
        "SubnetService/GetSubnetPolicy",
        "the policy of quality of service by path",
    ),
    call(
        "subnet-groups",
        "SubnetService/ListSubnetGroups",
        "multicast groups of the subnet",
    ),
    call(
        "histograms",
        "CounterService/ListHistograms",
        "times and depths of the data path",
    ),
    call(
        "captures",
        "CaptureService/ListCaptures",
        "captures to files, without their frames",
    ),
    Call {
        pages: 10,
        last: true,
        ..call(
            "events",
            "EventService/ListEvents",
            "the last events of the log, 10000 at most",
        )
    },
];

/// Counters, which a bundle has twice.
pub static COUNTERS: [Call; 2] = [
    call(
        "counters-1",
        "CounterService/ListCounters",
        "counters, the first sample",
    ),
    call(
        "counters-2",
        "CounterService/ListCounters",
        "counters, the second sample",
    ),
];

/// Makes a call; returns the answer as JSON, and whether there is more of it.
pub async fn ask(channel: &Channel, call: &Call) -> Result<(serde_json::Value, bool), Failure> {
    pages(call, async |request| unary(channel, call.method, request).await).await
}

/// Asks for the pages of an answer: `ask` gets an encoded request.
async fn pages(
    call: &Call,
    mut ask: impl AsyncFnMut(Vec<u8>) -> Result<Vec<u8>, Failure>,
) -> Result<(serde_json::Value, bool), Failure> {
    let method = method(call.method).map_err(Failure::Failed)?;
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(format!("{}: {e}", call.method));
    let mut request = DynamicMessage::new(method.input());
    // (A method without pages has no such field.)
    let _ = request.try_set_field_by_name("page_size", Value::I32(PAGE));
    let (mut pages, mut more) = (Vec::new(), false);
    loop {
        let page = ask(request.encode_to_vec()).await?;
        let message = DynamicMessage::decode(method.output(), page.as_slice()).map_err(|e| failed(&e))?;
        pages.push(page);
        if call.last && pages.len() > call.pages {
            pages.remove(0);
            more = true;
        }
        let token = message.get_field_by_name("next_page_token");
        let token = token.as_deref().and_then(Value::as_str).unwrap_or_default();
        if token.is_empty() {
            break;
        }
        let enough = !call.last && pages.len() >= call.pages;
        if enough || pages.iter().map(Vec::len).sum::<usize>() > LIST_MAX {
            more = true;
            break;
        }
        let _ = request.try_set_field_by_name("page_token", Value::String(token.to_owned()));
    }
    // Encoded messages one behind the other are one message, with the elements of all.
    let all = pages.concat();
    let mut message = DynamicMessage::decode(method.output(), all.as_slice()).map_err(|e| failed(&e))?;
    message.clear_field_by_name("next_page_token");
    let value = json::of_dynamic(&message).map_err(|e| failed(&e))?;
    Ok((value, more))
}

/// Descriptor of `SERVICE/METHOD`.
fn method(name: &str) -> Result<MethodDescriptor, String> {
    let (service, method) = name.split_once('/').unwrap_or_default();
    let service = json::pool()?.get_service_by_name(&format!("vnic.v1.{service}"));
    let found = service.and_then(|s| s.methods().find(|m| m.name() == method));
    found.ok_or_else(|| format!("there is no method {name}"))
}

async fn unary(channel: &Channel, method: &str, request: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let mut service = Grpc::new(channel.clone()).max_decoding_message_size(RESPONSE_MAX);
    let ready = service.ready().await;
    ready.map_err(|e| Failure::Failed(format!("the connection to vnicd broke: {e}")))?;
    let path = PathAndQuery::try_from(format!("/vnic.v1.{method}"));
    let path = path.map_err(|e| Failure::Failed(e.to_string()))?;
    let answer = service.unary(Request::new(request), path, Encoded).await?;
    Ok(answer.into_inner())
}

/// Codec of messages that are encoded already.
struct Encoded;

impl Codec for Encoded {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Encoded;
    type Decoder = Encoded;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Encoded {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; from.remaining()];
        from.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_control::v1;

    /// Methods that read and are not called: most are in a list, are the same for all daemons of a version, or take a parameter.
    const NOT_CALLED: [&str; 19] = [
        "AccessListService/GetAccessList",
        "AdapterService/GetAdapter",
        "CongestionService/GetCongestion",
        "CongestionService/ListCongestionPresets",
        "CounterService/ListCounterSets",
        "EventService/ListEventKinds",
        "FaultService/GetFault",
        "FaultService/GetScenario",
        "MirrorService/GetMirror",
        "OidService/ListOids",
        "PortService/GetPort",
        "QosService/GetQos",
        "QosService/ListQueuePairRates",
        "RdmaService/GetQueuePair",
        "RegistryService/GetEntry",
        "RegistryService/ListKeys",
        "SubnetService/GetSubnetGroup",
        "TeamService/GetTeam",
        "TeamService/GetTeamView",
    ];

    #[test]
    fn all_that_can_be_read_is_in_a_bundle_or_left_out_on_purpose() {
        let called = || CALLS.iter().chain(&COUNTERS).map(|c| c.method);
        let mut methods = 0;
        for service in json::pool().expect("descriptors").services() {
            for method in service.methods() {
                let name = format!("{}/{}", service.name(), method.name());
                let reads = ["Get", "List"].iter().any(|verb| method.name().starts_with(verb));
                if reads && !method.is_server_streaming() {
                    methods += 1;
                    let here = called().any(|m| m == name);
                    assert!(here != NOT_CALLED.contains(&name.as_str()), "{name}");
                }
            }
        }
        assert!(methods > 30, "{methods}");
        for name in called() {
            method(name).expect(name);
        }
    }

    /// Asks a list of so many pages, with an element each; returns what was asked, the elements, and whether there is more.
    async fn asked(file: &str, last_page: u32) -> (Vec<String>, Vec<String>, bool) {
        let call = CALLS.iter().find(|c| c.file == file).expect(file);
        let mut tokens = Vec::new();
        let answer = pages(call, async |request| {
            let request = v1::ListEventsRequest::decode(request.as_slice()).expect("a request");
            assert_eq!(request.page_size, PAGE);
            let page: u32 = request.page_token.parse().unwrap_or(1);
            tokens.push(request.page_token);
            let next = page + 1;
            let next_page_token = if page < last_page {
                next.to_string()
            } else {
                String::new()
            };
            let event = v1::Event {
                message: page.to_string(),
                ..v1::Event::default()
            };
            let answer = v1::ListEventsResponse {
                events: vec![event],
                next_page_token,
            };
            Ok(answer.encode_to_vec())
        });
        let (value, more) = answer.await.expect("an answer");
        assert_eq!(value["next_page_token"], "");
        let events = value["events"].as_array().expect("events").iter();
        let messages = events.map(|e| e["message"].as_str().expect("a message").to_owned());
        (tokens, messages.collect(), more)
    }

    #[tokio::test]
    async fn pages_are_one_list_and_of_a_long_log_the_last_are_taken() {
        let numbers =
            |range: std::ops::RangeInclusive<u32>| -> Vec<String> { range.map(|n| n.to_string()).collect() };
        let (tokens, events, more) = asked("events", 3).await;
        assert_eq!(tokens, ["", "2", "3"]);
        assert_eq!((events, more), (numbers(1..=3), false));
        let (tokens, events, more) = asked("events", 12).await;
        assert_eq!(tokens.len(), 12);
        assert_eq!((events, more), (numbers(3..=12), true));
    }

    #[tokio::test]
    async fn a_bounded_list_is_not_asked_further_and_what_has_no_pages_is_asked_once() {
        let call = CALLS.iter().find(|c| c.file == "queue-pairs").expect("a call");
        let mut asked = 0;
        let answer = pages(call, async |_| {
            asked += 1;
            let answer = v1::ListQueuePairsResponse {
                queue_pairs: vec![v1::QueuePair::default()],
                next_page_token: "next".to_owned(),
            };
            Ok(answer.encode_to_vec())
        });
        let (value, more) = answer.await.expect("an answer");
        assert_eq!(
            (value["queue_pairs"].as_array().map(Vec::len), more, asked),
            (Some(1), true, 1)
        );
        let info = CALLS.iter().find(|c| c.file == "server-info").expect("a call");
        let answer = pages(info, async |request| {
            assert!(request.is_empty());
            Ok(v1::ServerInfo::default().encode_to_vec())
        });
        assert!(!answer.await.expect("an answer").1);
    }
}
