//! The control interface against a daemon in this process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_types::StatusExt as _;
use vnic_appliance::daemon::{Daemon, StartError};
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::capture_service_client::CaptureServiceClient;
use vnic_control::v1::counter_service_client::CounterServiceClient;
use vnic_control::v1::port_service_client::PortServiceClient;
use vnic_control::v1::server_service_client::ServerServiceClient;
use vnic_control::v1::switch_service_client::SwitchServiceClient;
use vnic_control::v1::watch_adapters_response::Change;

struct Lab {
    daemon: Daemon,
    channel: Channel,
    dir: tempfile::TempDir,
}

impl Lab {
    async fn start(adapters: usize) -> Lab {
        let dir = tempfile::tempdir().expect("a directory");
        let daemon = Daemon::start(crate::common::settings(dir.path(), adapters))
            .await
            .expect("the daemon starts");
        let channel = connect(&dir.path().join("control.sock")).await;
        Lab { daemon, channel, dir }
    }

    fn adapters(&self) -> AdapterServiceClient<Channel> {
        AdapterServiceClient::new(self.channel.clone())
    }

    async fn end(self) {
        drop(self.channel);
        self.daemon.shutdown().await;
    }
}

async fn connect(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix:{}", socket.display()))
        .expect("an address")
        // Only so that a request that hangs does not hang the tests.
        .timeout(Duration::from_secs(60))
        .connect()
        .await
        .expect("a connection")
}

fn create(id: &str, adapter: v1::Adapter) -> v1::CreateAdapterRequest {
    v1::CreateAdapterRequest {
        adapter_id: id.to_owned(),
        adapter: Some(adapter),
    }
}

fn fields(status: &Status) -> Vec<String> {
    let violations = status.get_details_bad_request().map(|d| d.field_violations);
    violations.into_iter().flatten().map(|v| v.field).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_come_and_go() {
    let lab = Lab::start(2).await;
    let mut service = lab.adapters();
    let all = service
        .list_adapters(v1::ListAdaptersRequest::default())
        .await
        .expect("list")
        .into_inner()
        .adapters;
    let names: Vec<&str> = all.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["adapters/vf0", "adapters/vf1"]);
    assert_ne!(all[0].macs, all[1].macs);
    assert_eq!(all[0].state(), v1::adapter::State::Detached);
    assert_eq!(all[0].lifetime(), v1::Lifetime::Configured);
    assert!(Path::new(&all[0].eth_socket).exists());

    let wish = v1::Adapter {
        macs: vec!["02:00:00:00:00:07".to_owned()],
        mtu: 9000,
        queue_pairs: 2,
        anti_spoofing: Some(false),
        allowed_addresses: vec!["10.0.0.5".to_owned(), "fd00::/64".to_owned()],
        vlan: Some(v1::Vlan {
            mode: Some(v1::vlan::Mode::Access(v1::AccessVlan { vlan: 12 })),
        }),
        ..v1::Adapter::default()
    };
    let blue = service
        .create_adapter(create("blue", wish.clone()))
        .await
        .expect("create")
        .into_inner();
    assert_eq!(
        (blue.name.as_str(), blue.mtu, blue.queue_pairs, blue.anti_spoofing),
        ("adapters/blue", 9000, 2, Some(false))
    );
    assert_eq!(blue.allowed_addresses, wish.allowed_addresses);
    assert_eq!((blue.macs.clone(), blue.vlan.clone()), (wish.macs, wish.vlan));
    assert_eq!(blue.lifetime(), v1::Lifetime::Stored);
    let socket = PathBuf::from(&blue.eth_socket);
    assert!(socket.exists());

    let name = blue.name.clone();
    let again = service
        .get_adapter(v1::GetAdapterRequest { name: name.clone() })
        .await
        .expect("get")
        .into_inner();
    assert_eq!(again.macs, blue.macs);
    service
        .delete_adapter(v1::DeleteAdapterRequest {
            name: name.clone(),
            etag: String::new(),
        })
        .await
        .expect("delete");
    assert!(!socket.exists());
    let gone = service
        .get_adapter(v1::GetAdapterRequest { name })
        .await
        .expect_err("gone");
    assert_eq!(gone.code(), Code::NotFound);
    let info = gone.get_details_error_info().expect("a reason");
    assert_eq!(
        (info.domain.as_str(), info.reason.as_str()),
        ("vnic", "NOT_FOUND")
    );
    lab.end().await;
}

#[tokio::test]
async fn allowed_addresses_outlive_the_daemon() {
    let Lab { daemon, channel, dir } = Lab::start(1).await;
    let allowed = vec!["10.0.0.5".to_owned(), "fd00::/64".to_owned()];
    let wish = v1::Adapter {
        allowed_addresses: allowed.clone(),
        ..v1::Adapter::default()
    };
    let mut service = AdapterServiceClient::new(channel.clone());
    service
        .create_adapter(create("kept", wish))
        .await
        .expect("create");
    drop((service, channel));
    daemon.shutdown().await;
    let daemon = Daemon::start(crate::common::settings(dir.path(), 1)).await;
    let daemon = daemon.expect("the daemon starts again");
    let channel = connect(&dir.path().join("control.sock")).await;
    let lab = Lab { daemon, channel, dir };
    let name = "adapters/kept".to_owned();
    let kept = lab.adapters().get_adapter(v1::GetAdapterRequest { name }).await;
    assert_eq!(kept.expect("get").into_inner().allowed_addresses, allowed);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_adapter_can_be_removed() {
    let lab = Lab::start(1).await;
    let mut service = lab.adapters();
    let name = "adapters/vf0".to_owned();
    service
        .restart_adapter(v1::RestartAdapterRequest { name: name.clone() })
        .await
        .expect("restart");
    service
        .delete_adapter(v1::DeleteAdapterRequest {
            name,
            etag: String::new(),
        })
        .await
        .expect("delete");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_field_of_a_request_is_named() {
    let lab = Lab::start(1).await;
    let mut service = lab.adapters();
    let existing = service
        .get_adapter(v1::GetAdapterRequest {
            name: "adapters/vf0".to_owned(),
        })
        .await
        .expect("vf0")
        .into_inner();
    let wrong = v1::Adapter {
        macs: vec![existing.macs[0].clone(), "nonsense".to_owned()],
        mtu: 20,
        queue_pairs: 99,
        vlan: Some(v1::Vlan {
            mode: Some(v1::vlan::Mode::Trunk(v1::TrunkVlan {
                native: 5000,
                allowed: Some(v1::VlanSet { vlans: vec![1, 0] }),
            })),
        }),
        data_core: Some(60_000),
        socket_role: 9,
        socket_owner: Some(u32::MAX),
        socket_group: Some(u32::MAX),
        socket_mode: "660x".to_owned(),
        eth_socket: "relative".to_owned(),
        allowed_addresses: vec!["fd00::/64".to_owned(), "10.0.0.0/33".to_owned()],
        ..v1::Adapter::default()
    };
    let status = service
        .create_adapter(create("Bad Name", wrong))
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        fields(&status),
        [
            "adapter_id",
            "adapter.macs[0]",
            "adapter.macs[1]",
            "adapter.mtu",
            "adapter.queue_pairs",
            "adapter.vlan.trunk.native",
            "adapter.vlan.trunk.allowed.vlans[1]",
            "adapter.allowed_addresses[1]",
            "adapter.data_core",
            "adapter.socket_role",
            "adapter.socket_owner",
            "adapter.socket_group",
            "adapter.socket_mode",
            "adapter.eth_socket",
        ]
    );
    let details = status.get_details_bad_request().expect("details");
    assert_eq!(
        details.field_violations[3].description,
        "20 is out of range: 68 to 9216 bytes"
    );

    let twice = service
        .create_adapter(create("vf0", v1::Adapter::default()))
        .await
        .expect_err("taken");
    assert_eq!(twice.code(), Code::AlreadyExists);
    for name in ["vf0", "adapters/", "ports/vf0"] {
        let name = name.to_owned();
        let status = service
            .get_adapter(v1::GetAdapterRequest { name })
            .await
            .expect_err("form");
        assert_eq!(
            (status.code(), fields(&status)),
            (Code::InvalidArgument, vec!["name".to_owned()])
        );
    }

    let mut ports = PortServiceClient::new(lab.channel.clone());
    let status = ports
        .create_port(v1::CreatePortRequest {
            port_id: "p0".to_owned(),
            port: None,
        })
        .await
        .expect_err("no uplink");
    assert_eq!(fields(&status), ["port.uplink"]);

    let mut captures = CaptureServiceClient::new(lab.channel.clone());
    let status = captures
        .create_capture(v1::CreateCaptureRequest {
            capture_id: "../x".to_owned(),
            max_bytes: 1,
            filter: Some(v1::CaptureFilter {
                owners: vec!["adapters/nobody".to_owned(), "vf0".to_owned()],
                snaplen: u32::MAX,
                max_duration: Some(prost_types::Duration {
                    seconds: -1,
                    nanos: 0,
                }),
                ..v1::CaptureFilter::default()
            }),
        })
        .await
        .expect_err("refused");
    assert_eq!(
        fields(&status),
        [
            "capture_id",
            "max_bytes",
            "filter.owners[0]",
            "filter.owners[1]",
            "filter.snaplen",
            "filter.max_duration",
        ]
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_begins_with_what_exists_and_goes_on_with_changes() {
    let lab = Lab::start(1).await;
    let mut service = lab.adapters();
    let mut stream = service
        .watch_adapters(v1::WatchAdaptersRequest::default())
        .await
        .expect("watch")
        .into_inner();
    let mut next = async || {
        let message = stream.next().await.expect("a message").expect("no error");
        let name = message.adapter.clone().map(|a| a.name).unwrap_or_default();
        (message.change(), name)
    };
    assert_eq!(next().await, (Change::Existing, "adapters/vf0".to_owned()));
    assert_eq!(next().await, (Change::Synced, String::new()));
    service
        .create_adapter(create("blue", v1::Adapter::default()))
        .await
        .expect("create");
    assert_eq!(next().await, (Change::Added, "adapters/blue".to_owned()));
    service
        .delete_adapter(v1::DeleteAdapterRequest {
            etag: String::new(),
            name: "adapters/blue".to_owned(),
        })
        .await
        .expect("delete");
    // A state on the way to its end may be told before.
    let mut change = next().await;
    while change.0 == Change::State {
        change = next().await;
    }
    assert_eq!(change, (Change::Removed, "adapters/blue".to_owned()));

    let unknown = service
        .watch_adapters(v1::WatchAdaptersRequest {
            name: "adapters/nobody".to_owned(),
        })
        .await
        .expect_err("nobody");
    assert_eq!(unknown.code(), Code::NotFound);

    lab.daemon.shutdown().await;
    let last = stream.next().await.expect("a last word").expect_err("the end");
    assert_eq!(last.code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    let lab = Lab::start(5).await;
    let mut service = lab.adapters();
    let (mut token, mut names) = (String::new(), Vec::new());
    loop {
        let page = service
            .list_adapters(v1::ListAdaptersRequest {
                page_size: 2,
                page_token: token,
            })
            .await
            .expect("a page")
            .into_inner();
        assert!(page.adapters.len() <= 2);
        names.extend(page.adapters.into_iter().map(|a| a.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    let expected: Vec<String> = (0..5).map(|k| format!("adapters/vf{k}")).collect();
    assert_eq!(names, expected);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_and_addresses_can_be_asked_for() {
    let lab = Lab::start(2).await;
    let mut service = CounterServiceClient::new(lab.channel.clone());
    let all = service
        .list_counters(v1::ListCountersRequest::default())
        .await
        .expect("counters")
        .into_inner()
        .counters;
    let one = all
        .iter()
        .find(|c| c.owner == "adapters/vf1" && c.name == "rx_frames")
        .expect("rx_frames of vf1");
    assert_eq!(one.metric, "vnic_adapter_rx_frames_total");
    assert_eq!(one.labels.get("adapter").map(String::as_str), Some("vf1"));
    assert_eq!(one.labels.get("queue").map(String::as_str), Some("0"));
    assert!(!one.help.is_empty());
    assert!(
        all.iter()
            .any(|c| c.owner == format!("cores/{}", crate::common::cpu()))
    );

    let few = service
        .list_counters(v1::ListCountersRequest {
            owner: "adapters/vf0".to_owned(),
            counter_name: "drops".to_owned(),
            ..v1::ListCountersRequest::default()
        })
        .await
        .expect("drops")
        .into_inner()
        .counters;
    assert!(
        few.iter()
            .all(|c| c.owner == "adapters/vf0" && c.labels.contains_key("reason"))
    );
    let none = service
        .list_counters(v1::ListCountersRequest {
            owner: "adapters/vf0".to_owned(),
            nonzero: true,
            ..v1::ListCountersRequest::default()
        })
        .await
        .expect("nothing yet")
        .into_inner();
    assert!(none.counters.is_empty());

    let request = v1::ListHistogramsRequest::default();
    let all = service.list_histograms(request).await.expect("histograms");
    let all = all.into_inner().histograms;
    let names: Vec<(&str, &str)> = all.iter().map(|h| (h.owner.as_str(), h.name.as_str())).collect();
    let core = format!("cores/{}", crate::common::cpu());
    for wanted in [
        ("adapters/vf0", "tx_queue_depth"),
        ("adapters/vf1", "tx_queue_depth"),
        (&*core, "round"),
        (&*core, "wake_up"),
    ] {
        assert!(names.contains(&wanted), "{wanted:?} in {names:?}");
    }
    assert!(names.is_sorted());
    assert!(all.iter().all(|h| h.counts.len() == h.bounds.len() + 1));
    let request = v1::ListHistogramsRequest {
        owner: core.clone(),
        page_size: 1,
        ..v1::ListHistogramsRequest::default()
    };
    let first = service.list_histograms(request.clone()).await.expect("a page");
    let first = first.into_inner();
    assert_eq!((first.histograms.len(), &*first.histograms[0].name), (1, "round"));
    let request = v1::ListHistogramsRequest {
        page_token: first.next_page_token,
        ..request
    };
    let second = service
        .list_histograms(request)
        .await
        .expect("a page")
        .into_inner();
    assert_eq!(second.histograms[0].name, "wake_up");
    assert_eq!(second.next_page_token, "");
    let request = v1::ListHistogramsRequest {
        owner: "vf0".to_owned(),
        ..v1::ListHistogramsRequest::default()
    };
    let refused = service.list_histograms(request).await.expect_err("no owner");
    assert_eq!(refused.code(), Code::InvalidArgument);

    let mut switch = SwitchServiceClient::new(lab.channel.clone());
    let fdb = switch
        .list_fdb_entries(v1::ListFdbEntriesRequest {
            owner: "adapters/vf1".to_owned(),
            ..v1::ListFdbEntriesRequest::default()
        })
        .await
        .expect("fdb")
        .into_inner()
        .fdb_entries;
    assert_eq!(fdb.len(), 1);
    assert!(fdb[0].r#static && fdb[0].owner == "adapters/vf1" && fdb[0].vlan == 1);
    let sizes = switch
        .get_switch(v1::GetSwitchRequest::default())
        .await
        .expect("switch")
        .into_inner();
    assert_eq!(
        (sizes.ports, sizes.static_entries, sizes.learned_entries),
        (2, 2, 0)
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_reflection_and_server_info_answer() {
    let lab = Lab::start(1).await;
    let mut health = HealthClient::new(lab.channel.clone());
    for service in [
        "",
        "vnic.v1.AdapterService",
        "vnic.v1.CaptureService",
        "vnic.v1.RdmaService",
        "vnic.v1.ServerService",
    ] {
        let answer = health
            .check(HealthCheckRequest {
                service: service.to_owned(),
            })
            .await
            .expect("health");
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service}");
    }

    let mut reflection = ServerReflectionClient::new(lab.channel.clone());
    let ask = |message_request| {
        tokio_stream::iter([ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message_request),
        }])
    };
    let mut answers = reflection
        .server_reflection_info(ask(MessageRequest::ListServices(String::new())))
        .await
        .expect("reflection")
        .into_inner();
    let answer = answers.next().await.expect("an answer").expect("no error");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("no list: {answer:?}");
    };
    let services: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    for expected in [
        "vnic.v1.AdapterService",
        "vnic.v1.PortService",
        "vnic.v1.SwitchService",
        "vnic.v1.CounterService",
        "vnic.v1.CaptureService",
        "vnic.v1.RdmaService",
        "vnic.v1.ServerService",
        "grpc.health.v1.Health",
    ] {
        assert!(
            services.iter().any(|s| s == expected),
            "{expected} in {services:?}"
        );
    }
    let mut answers = reflection
        .server_reflection_info(ask(MessageRequest::FileContainingSymbol(
            "vnic.v1.Adapter.State".to_owned(),
        )))
        .await
        .expect("reflection")
        .into_inner();
    let answer = answers.next().await.expect("an answer").expect("no error");
    assert!(
        matches!(
            answer.message_response,
            Some(MessageResponse::FileDescriptorResponse(_))
        ),
        "{answer:?}"
    );

    let info = ServerServiceClient::new(lab.channel.clone())
        .get_server_info(v1::GetServerInfoRequest {})
        .await
        .expect("info")
        .into_inner();
    assert_eq!(info.pid, std::process::id());
    assert_eq!(info.version, vnic_appliance::VERSION);
    assert_eq!(info.adapters, 1);
    assert!(info.responsive && info.metrics_url.starts_with("http://127.0.0.1:"));
    assert_eq!(info.socket_dir, lab.dir.path().display().to_string());
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn captures_to_files_start_and_stop() {
    let lab = Lab::start(1).await;
    let mut service = CaptureServiceClient::new(lab.channel.clone());
    let start = |id: &str| v1::CreateCaptureRequest {
        capture_id: id.to_owned(),
        filter: Some(v1::CaptureFilter {
            owners: vec!["adapters/vf0".to_owned()],
            ..v1::CaptureFilter::default()
        }),
        max_bytes: 0,
    };
    let running = service
        .create_capture(start("trouble"))
        .await
        .expect("start")
        .into_inner();
    assert_eq!(running.state(), v1::capture::State::Running);
    assert_eq!(
        running.path,
        lab.dir
            .path()
            .join("state/captures/trouble.pcapng")
            .display()
            .to_string()
    );
    let twice = service.create_capture(start("trouble")).await.expect_err("taken");
    assert_eq!(twice.code(), Code::AlreadyExists);
    for _ in 1..8 {
        service.create_capture(start("")).await.expect("start");
    }
    let many = service.create_capture(start("")).await.expect_err("too many");
    assert_eq!(many.code(), Code::ResourceExhausted);

    let name = running.name.clone();
    let stop = v1::StopCaptureRequest { name: name.clone() };
    let stopped = service
        .stop_capture(stop.clone())
        .await
        .expect("stop")
        .into_inner();
    assert_eq!(stopped.state(), v1::capture::State::Stopped);
    assert_eq!(
        stopped.bytes,
        std::fs::metadata(&stopped.path).expect("the file").len()
    );
    let again = service.stop_capture(stop).await.expect("stop").into_inner();
    assert_eq!(again, stopped);
    let list = service
        .list_captures(v1::ListCapturesRequest::default())
        .await
        .expect("list")
        .into_inner()
        .captures;
    assert_eq!((list.len(), list[0].name.as_str()), (8, "captures/trouble"));
    let nobody = service
        .stop_capture(v1::StopCaptureRequest {
            name: "captures/nobody".to_owned(),
        })
        .await
        .expect_err("nobody");
    assert_eq!(nobody.code(), Code::NotFound);

    // A limit ends a live capture without an error.
    let mut short = service
        .stream_capture(v1::StreamCaptureRequest {
            filter: Some(v1::CaptureFilter {
                max_duration: Some(prost_types::Duration { seconds: 0, nanos: 1 }),
                ..v1::CaptureFilter::default()
            }),
        })
        .await
        .expect("live")
        .into_inner();
    while let Some(chunk) = short.next().await {
        chunk.expect("no error");
    }

    // A live capture begins with the header and the names of what is captured.
    let mut live = service
        .stream_capture(v1::StreamCaptureRequest { filter: None })
        .await
        .expect("live")
        .into_inner();
    let first = live.next().await.expect("a chunk").expect("no error");
    assert!(first.pcapng.windows(3).any(|w| w == b"vf0"), "{first:?}");
    lab.daemon.shutdown().await;
    let last = live.next().await.expect("a last word").expect_err("the end");
    assert_eq!(last.code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_belongs_to_one_daemon_and_addresses_stay() {
    let lab = Lab::start(2).await;
    let mut settings = crate::common::settings(lab.dir.path(), 0);
    let second = Daemon::start(settings.clone()).await.err().expect("refused");
    let text = second.to_string();
    assert!(matches!(second, StartError::InUse { pid: Some(pid), .. } if pid == std::process::id()));
    assert!(text.contains("used by another vnicd (pid"), "{text}");

    // Another state directory does not help: the sockets are in use.
    let elsewhere = tempfile::tempdir().expect("a directory");
    settings.state_dir = elsewhere.path().to_owned();
    let third = Daemon::start(settings).await.err().expect("refused");
    assert!(third.to_string().contains("another process listens"), "{third}");
    assert!(!elsewhere.path().join("daemon.json").exists());

    let list = v1::ListAdaptersRequest::default;
    let macs = |answer: v1::ListAdaptersResponse| -> Vec<Vec<String>> {
        answer.adapters.into_iter().map(|a| a.macs).collect()
    };
    let before = macs(
        lab.adapters()
            .list_adapters(list())
            .await
            .expect("list")
            .into_inner(),
    );
    let socket = lab.dir.path().join("control.sock");
    let Lab { daemon, channel, dir } = lab;
    drop(channel);
    daemon.shutdown().await;
    assert!(!socket.exists() && !dir.path().join("vf0-eth.sock").exists());
    assert!(!dir.path().join("state/daemon.json").exists());

    // What a killed daemon leaves is replaced.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a stale socket"));
    let daemon = Daemon::start(crate::common::settings(dir.path(), 2))
        .await
        .expect("starts again");
    let channel = connect(&socket).await;
    let after = AdapterServiceClient::new(channel)
        .list_adapters(list())
        .await
        .expect("list")
        .into_inner();
    assert_eq!(macs(after), before);
    daemon.shutdown().await;
}

/// Encodes what it is given, and it is no message.
#[derive(Default)]
struct Nonsense;

impl tonic::codec::Codec for Nonsense {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Nonsense;
    type Decoder = Nonsense;

    fn encoder(&mut self) -> Nonsense {
        Nonsense
    }

    fn decoder(&mut self) -> Nonsense {
        Nonsense
    }
}

impl tonic::codec::Encoder for Nonsense {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(out, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Nonsense {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_no_message_is_the_clients_mistake() {
    let lab = Lab::start(1).await;
    let mut client = tonic::client::Grpc::new(lab.channel.clone());
    for path in [
        "/vnic.v1.AdapterService/GetAdapter",
        "/vnic.v1.AdapterService/WatchAdapters",
        "/vnic.v1.EventService/FollowEvents",
    ] {
        client.ready().await.expect("the daemon is there");
        let request = tonic::Request::new(vec![0x0a, 0x7f, 0xff]);
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let status = client.unary(request, path, Nonsense).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let details = status.get_details_error_info().expect("details");
        assert_eq!(details.reason, "MALFORMED_MESSAGE");
    }
    lab.end().await;
}
