//! RDMA functions by gRPC and by `vnicctl`: sockets, GID tables, objects.

use std::path::Path;

use crate::common::lab::{Lab, fields};
use tonic::Code;
use tonic::transport::Channel;
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::rdma_service_client::RdmaServiceClient;

fn adapters(lab: &Lab) -> AdapterServiceClient<Channel> {
    AdapterServiceClient::new(lab.channel.clone())
}

fn rdma(lab: &Lab) -> RdmaServiceClient<Channel> {
    RdmaServiceClient::new(lab.channel.clone())
}

fn create(id: &str, rdma_enabled: Option<bool>, eth: &str, rdma: &str) -> v1::CreateAdapterRequest {
    v1::CreateAdapterRequest {
        adapter_id: id.to_owned(),
        adapter: Some(v1::Adapter {
            rdma_enabled,
            eth_socket: eth.to_owned(),
            rdma_socket: rdma.to_owned(),
            ..v1::Adapter::default()
        }),
    }
}

fn set(index: Option<u32>, gid: &str, vlan: u32) -> v1::SetGidRequest {
    v1::SetGidRequest {
        parent: "adapters/vf0".to_owned(),
        index,
        gid: Some(v1::Gid {
            gid: gid.to_owned(),
            vlan,
            ..v1::Gid::default()
        }),
    }
}

/// What `adapter show` says of this.
fn fact<'a>(shown: &'a str, name: &str) -> &'a str {
    let value = shown.lines().find_map(|l| l.strip_prefix(name));
    value.unwrap_or_default().trim()
}

async fn gids(lab: &Lab, parent: &str) -> Vec<v1::Gid> {
    let request = v1::ListGidsRequest {
        parent: parent.to_owned(),
        ..v1::ListGidsRequest::default()
    };
    let list = rdma(lab).list_gids(request).await;
    list.expect("a list").into_inner().gids
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_has_a_second_socket_unless_it_is_told_otherwise() {
    let lab = Lab::start(1).await;
    let mut service = adapters(&lab);
    let get = |name: &str| v1::GetAdapterRequest {
        name: name.to_owned(),
    };
    let vf0 = service
        .get_adapter(get("adapters/vf0"))
        .await
        .expect("vf0")
        .into_inner();
    assert_eq!(vf0.rdma_enabled, Some(true));
    assert_eq!(Path::new(&vf0.rdma_socket), lab.dir.path().join("vf0-rdma.sock"));
    assert!(Path::new(&vf0.rdma_socket).exists());
    let function = vf0.rdma.expect("a function");
    assert_eq!(function.socket, vf0.rdma_socket);
    assert_eq!(function.state(), v1::rdma_function::State::Detached);
    assert_eq!(function.memory_bytes, 0);

    let plain = create("plain", Some(false), "", "");
    let plain = service.create_adapter(plain).await.expect("plain").into_inner();
    assert_eq!(
        (plain.rdma_enabled, plain.rdma_socket.as_str()),
        (Some(false), "")
    );
    assert_eq!(plain.rdma, None);
    assert!(!lab.dir.path().join("plain-rdma.sock").exists());

    let elsewhere = lab.dir.path().join("elsewhere");
    let path = elsewhere.display().to_string();
    let blue = service.create_adapter(create("blue", None, "", &path)).await;
    assert_eq!(blue.expect("blue").into_inner().rdma_socket, path);
    assert!(elsewhere.exists());

    let x = lab.dir.path().join("x").display().to_string();
    for (what, request, wrong) in [
        ("relative", create("red", None, "", "x"), "adapter.rdma_socket"),
        ("taken", create("red", None, "", &path), "adapter.rdma_socket"),
        (
            "taken by the Ethernet function",
            create("red", None, &path, ""),
            "adapter.eth_socket",
        ),
        ("both", create("red", None, &x, &x), "adapter.rdma_socket"),
        (
            "of none",
            create("red", Some(false), "", &x),
            "adapter.rdma_socket",
        ),
    ] {
        let status = service.create_adapter(request).await.expect_err(what);
        assert_eq!(
            (status.code(), fields(&status)),
            (Code::InvalidArgument, vec![wrong.to_owned()]),
            "{what}"
        );
    }
    lab.said(&["adapter", "add", "green", "--no-rdma"]).await;
    let shown = lab.said(&["adapter", "show", "green"]).await;
    assert_eq!(fact(&shown, "rdma function"), "none");
    let usage = ["adapter", "add", "red", "--no-rdma", "--rdma-socket", "/x"];
    lab.refused(2, &usage).await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gids_are_listed_set_and_cleared() {
    use v1::gid::{Source, Version};
    let lab = Lab::start(2).await;
    let all = gids(&lab, "").await;
    let names: Vec<&str> = all.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "adapters/vf0/gids/0",
            "adapters/vf0/gids/1",
            "adapters/vf1/gids/0",
            "adapters/vf1/gids/1"
        ]
    );
    for (gid, version) in all.iter().zip([Version::RoceV1, Version::RoceV2].repeat(2)) {
        assert_eq!((gid.version(), gid.source(), gid.vlan), (version, Source::Mac, 0));
        assert!(gid.gid.starts_with("fe80:0000:0000:0000:"), "{}", gid.gid);
        assert_eq!(gid.ipv4, "");
    }

    let mut service = rdma(&lab);
    let made = service
        .set_gid(set(Some(9), "10.0.0.5", 7))
        .await
        .expect("set")
        .into_inner();
    assert_eq!(made.name, "adapters/vf0/gids/9");
    assert_eq!(made.gid, "0000:0000:0000:0000:0000:ffff:0a00:0005");
    assert_eq!((made.ipv4.as_str(), made.vlan, made.index), ("10.0.0.5", 7, 9));
    assert_eq!(
        (made.version(), made.source()),
        (Version::RoceV2, Source::Operator)
    );
    assert_eq!(made.mac, all[0].mac);
    let vf0 = gids(&lab, "adapters/vf0").await;
    assert_eq!(vf0.last(), Some(&made));
    assert_eq!(vf0.len(), 3);
    // The first free one; those of the others stay.
    let next = service
        .set_gid(set(None, "2001:db8::5", 0))
        .await
        .expect("set")
        .into_inner();
    assert_eq!(next.index, 2);

    for (what, request, code, wrong) in [
        (
            "the same elsewhere",
            set(Some(3), "10.0.0.5", 7),
            Code::InvalidArgument,
            "gid.gid",
        ),
        (
            "beyond any table",
            set(Some(70_000), "10.0.0.6", 0),
            Code::InvalidArgument,
            "index",
        ),
        (
            "beyond this table",
            set(Some(4095), "10.0.0.6", 0),
            Code::InvalidArgument,
            "index",
        ),
        (
            "no address",
            set(Some(3), "nonsense", 0),
            Code::InvalidArgument,
            "gid.gid",
        ),
        ("nothing", set(Some(3), "", 0), Code::InvalidArgument, "gid.gid"),
        (
            "a group",
            set(Some(3), "ff02::1", 0),
            Code::InvalidArgument,
            "gid.gid",
        ),
        (
            "no VLAN",
            set(Some(3), "10.0.0.6", 4095),
            Code::InvalidArgument,
            "gid.vlan",
        ),
    ] {
        let status = service.set_gid(request).await.expect_err(what);
        assert_eq!(
            (status.code(), fields(&status)),
            (code, vec![wrong.to_owned()]),
            "{what}"
        );
    }
    let everything = v1::SetGidRequest {
        parent: "vf0".to_owned(),
        index: Some(4096),
        gid: Some(v1::Gid {
            version: 9,
            vlan: 5000,
            ..v1::Gid::default()
        }),
    };
    let status = service.set_gid(everything).await.expect_err("all wrong");
    assert_eq!(
        fields(&status),
        ["parent", "index", "gid.gid", "gid.version", "gid.vlan"]
    );

    let mut delete = async |name: &str| {
        let name = name.to_owned();
        service.delete_gid(v1::DeleteGidRequest { name }).await
    };
    delete("adapters/vf0/gids/9").await.expect("cleared");
    for (name, code) in [
        ("adapters/vf0/gids/9", Code::NotFound),
        ("adapters/vf0/gids/0", Code::InvalidArgument),
        ("adapters/vf0/gids/5000", Code::InvalidArgument),
        ("adapters/vf0/gids/99999999999999999999", Code::InvalidArgument),
        ("adapters/vf0/gids/x", Code::InvalidArgument),
        ("adapters/nobody/gids/0", Code::NotFound),
    ] {
        let status = delete(name).await.expect_err(name);
        assert_eq!(status.code(), code, "{name}: {}", status.message());
    }
    assert_eq!(gids(&lab, "adapters/vf0").await.len(), 3);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_without_the_function_says_so() {
    let lab = Lab::start(0).await;
    let created = adapters(&lab)
        .create_adapter(create("vf0", Some(false), "", ""))
        .await;
    created.expect("created");
    assert_eq!(gids(&lab, "").await, []);
    assert_eq!(gids(&lab, "adapters/vf0").await, []);
    let mut service = rdma(&lab);
    let status = service
        .set_gid(set(None, "10.0.0.5", 0))
        .await
        .expect_err("no function");
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("RDMA function"), "{}", status.message());
    for parent in ["vf0", "ports/p0", "adapters/"] {
        let request = v1::ListRdmaResourcesRequest {
            parent: parent.to_owned(),
            ..v1::ListRdmaResourcesRequest::default()
        };
        let status = service.list_rdma_resources(request).await.expect_err(parent);
        assert_eq!(
            (status.code(), fields(&status)),
            (Code::InvalidArgument, vec!["parent".to_owned()])
        );
    }
    let request = v1::ListGidsRequest {
        parent: "adapters/nobody".to_owned(),
        ..v1::ListGidsRequest::default()
    };
    let status = service.list_gids(request).await.expect_err("nobody");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(lab.said(&["resource", "list"]).await, "no RDMA functions\n");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_listed_by_adapter_or_of_all() {
    let lab = Lab::start(1).await;
    let created = adapters(&lab)
        .create_adapter(create("plain", Some(false), "", ""))
        .await;
    created.expect("created");
    let mut service = rdma(&lab);
    let list = |parent: &str| v1::ListRdmaConnectionsRequest {
        parent: parent.to_owned(),
        ..v1::ListRdmaConnectionsRequest::default()
    };
    for parent in ["", "adapters/vf0"] {
        let answer = service
            .list_rdma_connections(list(parent))
            .await
            .expect(parent)
            .into_inner();
        assert_eq!(
            answer,
            v1::ListRdmaConnectionsResponse::default(),
            "nobody has a connection"
        );
    }
    let foreign = v1::ListRdmaConnectionsRequest {
        page_token: "ListQueuePairs:vf0/1".to_owned(),
        ..list("")
    };
    let negative = v1::ListRdmaConnectionsRequest {
        page_size: -1,
        ..list("")
    };
    for (request, code, wrong) in [
        (list("vf0"), Code::InvalidArgument, Some("parent")),
        (foreign, Code::InvalidArgument, Some("page_token")),
        (negative, Code::InvalidArgument, Some("page_size")),
        (list("adapters/nobody"), Code::NotFound, None),
        (list("adapters/plain"), Code::NotFound, None),
    ] {
        let what = format!("{request:?}");
        let status = service.list_rdma_connections(request).await.expect_err(&what);
        let fields = fields(&status);
        assert_eq!(
            (status.code(), fields.first().map(String::as_str)),
            (code, wrong),
            "{what}"
        );
    }
    assert_eq!(
        lab.said(&["rdma", "connection", "list"]).await,
        "no connections\n"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_counted_by_type() {
    let lab = Lab::start(2).await;
    let mut service = rdma(&lab);
    let mut all = Vec::new();
    let mut token = String::new();
    loop {
        let request = v1::ListRdmaResourcesRequest {
            page_size: 5,
            page_token: token,
            ..v1::ListRdmaResourcesRequest::default()
        };
        let page = service
            .list_rdma_resources(request)
            .await
            .expect("a page")
            .into_inner();
        assert!(page.resources.len() <= 5);
        all.extend(page.resources);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    let of = |adapter: &str| -> Vec<(String, u32)> {
        let own = all.iter().filter(|r| r.adapter == adapter);
        own.map(|r| (r.r#type.clone(), r.used)).collect()
    };
    let vf0 = of("adapters/vf0");
    assert_eq!(vf0, of("adapters/vf1"));
    let types: Vec<&str> = vf0.iter().map(|(t, _)| t.as_str()).collect();
    for t in ["pd", "cq", "qp", "mr", "mw", "srq", "ah", "gid"] {
        assert!(types.contains(&t), "{t} in {types:?}");
    }
    // Nobody has made anything yet.
    assert!(
        vf0.iter()
            .all(|(t, used)| *used == if t == "gid" { 2 } else { 0 }),
        "{vf0:?}"
    );
    assert!(all.iter().all(|r| r.limit > 0));
    let text = lab.said(&["resource", "list", "vf0"]).await;
    assert!(text.starts_with("DEV  TYPE"), "{text}");
    assert_eq!(text.lines().count(), 1 + vf0.len());
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_pairs_that_there_are_not_are_named() {
    let lab = Lab::start(1).await;
    let created = adapters(&lab)
        .create_adapter(create("plain", Some(false), "", ""))
        .await;
    created.expect("created");
    let mut service = rdma(&lab);
    let list = |parent: &str| v1::ListQueuePairsRequest {
        parent: parent.to_owned(),
        ..v1::ListQueuePairsRequest::default()
    };
    let watch = |parent: &str, ms: i32| v1::WatchQueuePairsRequest {
        parent: parent.to_owned(),
        interval: (ms > 0).then(|| prost_types::Duration {
            seconds: 0,
            nanos: ms * 1_000_000,
        }),
    };
    for parent in ["", "adapters/vf0"] {
        let answer = service
            .list_queue_pairs(list(parent))
            .await
            .expect(parent)
            .into_inner();
        assert_eq!(
            (answer.queue_pairs, answer.next_page_token.as_str()),
            (vec![], "")
        );
    }
    let (invalid, missing) = (Code::InvalidArgument, Code::NotFound);
    let foreign = v1::ListQueuePairsRequest {
        page_token: "ListGids:vf0 00001".to_owned(),
        ..list("")
    };
    let no_state = v1::ListQueuePairsRequest {
        states: vec![4, 99],
        ..list("")
    };
    let negative = v1::ListQueuePairsRequest {
        page_size: -1,
        ..list("")
    };
    for (request, code, wrong) in [
        (list("vf0"), invalid, Some("parent")),
        (list("ports/p0"), invalid, Some("parent")),
        (foreign, invalid, Some("page_token")),
        (no_state, invalid, Some("states[1]")),
        (negative, invalid, Some("page_size")),
        (list("adapters/nobody"), missing, None),
        (list("adapters/plain"), missing, None),
    ] {
        let what = format!("{request:?}");
        let status = service.list_queue_pairs(request).await.expect_err(&what);
        let fields = fields(&status);
        assert_eq!(
            (status.code(), fields.first().map(String::as_str)),
            (code, wrong),
            "{what}"
        );
    }
    for (name, code, part) in [
        (
            "adapters/vf0/queuePairs/17",
            missing,
            "no queue pair is named 0x11",
        ),
        (
            "adapters/vf0/queuePairs/99999999",
            missing,
            "no queue pair is named 0x5f5e0ff",
        ),
        ("adapters/vf0/queuePairs/99999999999", invalid, "{number}"),
        ("adapters/vf0/queuePairs/0x11", invalid, "{number}"),
        ("adapters/vf0", invalid, "{number}"),
        ("adapters/nobody/queuePairs/17", missing, "nobody"),
        ("adapters/plain/queuePairs/17", missing, "RDMA function"),
    ] {
        let get = v1::GetQueuePairRequest {
            name: name.to_owned(),
            observe: None,
        };
        let watch = v1::WatchQueuePairRequest {
            name: name.to_owned(),
            interval: None,
        };
        let refusals = [
            service.get_queue_pair(get).await.expect_err(name),
            service.watch_queue_pair(watch).await.expect_err(name),
        ];
        for status in refusals {
            assert_eq!(status.code(), code, "{name}: {}", status.message());
            assert!(status.message().contains(part), "{name}: {}", status.message());
        }
    }
    // A span has bounds, which its error names.
    let name = "adapters/vf0/queuePairs/17".to_owned();
    for (seconds, nanos) in [(0, 999_999_999), (61, 0), (-1, 0)] {
        let observe = Some(prost_types::Duration { seconds, nanos });
        let request = v1::GetQueuePairRequest {
            name: name.clone(),
            observe,
        };
        let status = service.get_queue_pair(request).await.expect_err("a refusal");
        assert_eq!(
            (status.code(), fields(&status)),
            (invalid, vec!["observe".to_owned()])
        );
        assert!(status.message().contains("1s to 60s"), "{}", status.message());
    }
    for (seconds, nanos) in [(0, 99_999_999), (61, 0), (-1, 0)] {
        let interval = Some(prost_types::Duration { seconds, nanos });
        let request = v1::WatchQueuePairRequest {
            name: name.clone(),
            interval,
        };
        let status = service.watch_queue_pair(request).await.expect_err("a refusal");
        assert_eq!(
            (status.code(), fields(&status)),
            (invalid, vec!["interval".to_owned()])
        );
        assert!(status.message().contains("100ms to 60s"), "{}", status.message());
    }
    for (request, code) in [
        (watch("vf0", 0), invalid),
        (watch("", 99), invalid),
        (watch("adapters/nobody", 0), missing),
    ] {
        let what = format!("{request:?}");
        let status = service.watch_queue_pairs(request).await.expect_err(&what);
        assert_eq!(status.code(), code, "{what}");
    }
    // The stream of an adapter ends with it.
    let mut stream = service
        .watch_queue_pairs(watch("adapters/vf0", 100))
        .await
        .expect("a stream")
        .into_inner();
    let first = stream.message().await.expect("a message").expect("the mark");
    assert_eq!(first.change(), v1::watch_queue_pairs_response::Change::Synced);
    lab.said(&["adapter", "remove", "vf0"]).await;
    let end = stream.message().await.expect_err("the adapter is gone");
    assert_eq!(end.code(), missing);

    assert_eq!(
        lab.said(&["qp", "list", "--state", "rts"]).await,
        "no queue pairs\n"
    );
    let said = lab.refused(1, &["qp", "show", "plain", "0x11"]).await;
    assert!(said.contains("plain"), "{said}");
    let said = lab.refused(1, &["qp", "show", "plain", "17", "--watch"]).await;
    assert!(said.contains("plain"), "{said}");
    let said = lab
        .refused(2, &["qp", "show", "plain", "17", "--watch", "99ms"])
        .await;
    assert!(said.contains("100 ms to 1 min"), "{said}");
    let said = lab
        .refused(2, &["qp", "show", "plain", "17", "--iterations", "3"])
        .await;
    assert!(said.contains("--watch"), "{said}");
    let said = lab.refused(2, &["qp", "list", "--state", "ready"]).await;
    assert!(said.contains("rts"), "{said}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_has_it_all() {
    let lab = Lab::start(1).await;
    let text = lab.said(&["gid", "list"]).await;
    assert!(text.starts_with("DEV  PORT  INDEX  GID "), "{text}");
    assert!(text.ends_with("n_gids_found=2\n"), "{text}");
    let set = [
        "gid",
        "set",
        "vf0",
        "--index",
        "7",
        "--gid",
        "10.0.0.5",
        "--version",
        "v1",
        "--vlan",
        "12",
    ];
    let text = lab.said(&set).await;
    let line = text.lines().nth(1).expect("a row");
    let words: Vec<&str> = line.split_whitespace().collect();
    let gid = "0000:0000:0000:0000:0000:ffff:0a00:0005";
    assert_eq!(
        words,
        ["vf0", "1", "7", gid, "10.0.0.5", "v1", "vf0.12", "operator"]
    );
    let shown = lab.said(&["adapter", "show", "vf0"]).await;
    assert!(
        fact(&shown, "rdma function").starts_with("detached since "),
        "{shown}"
    );
    assert!(fact(&shown, "rdma socket").ends_with("/vf0-rdma.sock"), "{shown}");
    let rows: Vec<&str> = shown.lines().filter(|l| l.starts_with("vf0 ")).collect();
    assert!(rows.len() == 3 && rows[2] == line, "{shown}");
    let json = lab.json(&["gid", "list", "vf0"]).await;
    assert_eq!(json["gids"][2]["source"], "SOURCE_OPERATOR");
    assert_eq!(json["gids"][2]["version"], "VERSION_ROCE_V1");
    let json = lab.json(&["adapter", "show", "vf0"]).await;
    assert_eq!(json["rdma"]["state"], "STATE_DETACHED");

    let said = lab.refused(1, &["gid", "clear", "vf0", "0"]).await;
    assert!(said.contains("always there"), "{said}");
    assert_eq!(lab.said(&["gid", "clear", "vf0", "7"]).await, "");
    let said = lab.refused(1, &["gid", "clear", "vf0", "7"]).await;
    assert!(said.contains("index 7"), "{said}");
    for (arguments, part) in [
        (&["gid", "set", "vf0", "--gid", "nonsense"][..], "2001:db8::1"),
        (&["gid", "set", "vf0", "--gid", "::5", "--vlan", "0"], "1 to 4094"),
        (
            &["gid", "set", "vf0", "--gid", "::5", "--index", "5000"],
            "0 to 4095",
        ),
        (
            &["gid", "set", "vf0", "--gid", "::5", "--version", "v3"],
            "v1, v2",
        ),
        (&["gid", "set", "vf0"], "--gid"),
        (&["gid", "clear", "vf0"], "INDEX"),
    ] {
        let said = lab.refused(2, arguments).await;
        assert!(said.contains(part), "{part} in {said}");
    }
    // What has happened is told.
    let events = lab.said(&["event", "list", "--kind", "gid_changed"]).await;
    for part in [
        "GID ::ffff:10.0.0.5 at index 7 added",
        "GID ::ffff:10.0.0.5 at index 7 gone",
    ] {
        assert!(events.contains(part), "{part} in\n{events}");
    }
    lab.end().await;
}
