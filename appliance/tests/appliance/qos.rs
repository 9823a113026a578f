//! Quality of service over gRPC: what is set is read back, also after the daemon started again; what
//! is refused is named and changes nothing.

use std::process::Command;

use crate::common::lab::{Lab, fields};
use crate::common::process;
use prost_types::FieldMask;
use rustix::process::Signal;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use vnic_control::v1;
use vnic_control::v1::qos_service_client::QosServiceClient;
use vnic_control::v1::registry_service_client::RegistryServiceClient;

const VF0: &str = "adapters/vf0/qos";

fn service(lab: &Lab) -> QosServiceClient<Channel> {
    QosServiceClient::new(lab.channel.clone())
}

async fn get(lab: &Lab, name: &str) -> v1::Qos {
    let request = v1::GetQosRequest {
        name: name.to_owned(),
    };
    service(lab).get_qos(request).await.expect(name).into_inner()
}

async fn update(lab: &Lab, qos: v1::Qos, paths: &[&str]) -> Result<v1::Qos, Status> {
    let request = v1::UpdateQosRequest {
        qos: Some(qos),
        update_mask: Some(FieldMask {
            paths: paths.iter().map(|p| (*p).to_owned()).collect(),
        }),
    };
    Ok(service(lab).update_qos(request).await?.into_inner())
}

async fn entry(lab: &Lab, key: &str) -> v1::RegistryEntry {
    let request = v1::GetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: key.to_owned(),
    };
    let entry = RegistryServiceClient::new(lab.channel.clone())
        .get_entry(request)
        .await;
    entry.expect(key).into_inner()
}

async fn set_key(lab: &Lab, key: &str, value: &str) {
    let request = v1::SetEntryRequest {
        scope: "adapters/vf0".to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        if_match: None,
    };
    let mut registry = RegistryServiceClient::new(lab.channel.clone());
    registry.set_entry(request).await.expect(key);
}

fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.map(|i| i.reason).unwrap_or_default()
}

/// Without what only is now.
fn configured(qos: v1::Qos) -> v1::Qos {
    v1::Qos {
        state: None,
        warnings: Vec::new(),
        ..qos
    }
}

/// Every field other than while nothing is configured.
fn everything() -> v1::Qos {
    use v1::qos::{Algorithm, CongestionAction, CongestionMode, Trust};
    use v1::qos_policy::{DestinationPorts, Kind};
    let algorithms = [
        Algorithm::Ets,
        Algorithm::Ets,
        Algorithm::Strict,
        Algorithm::Vendor,
        Algorithm::Vendor,
        Algorithm::Vendor,
        Algorithm::Vendor,
        Algorithm::Strict,
    ];
    let mut dscp_to_priority: Vec<u32> = (0..64).map(|d| d / 8).collect();
    dscp_to_priority[30] = 5;
    v1::Qos {
        name: VF0.to_owned(),
        rate_bps: 10_000_000_000,
        trust: Trust::Dscp.into(),
        default_priority: 2,
        dscp_to_priority,
        untagged_to_lossless: true,
        priority_to_tc: vec![0, 1, 2, 3, 4, 5, 6, 7],
        tc_algorithm: algorithms.map(i32::from).to_vec(),
        tc_bandwidth_percent: vec![60, 40, 0, 0, 0, 0, 0, 0],
        tc_rate_limit_bps: vec![5_000_000_000, 0, 0, 0, 0, 0, 0, 1_000_000],
        pfc: (0..8).map(|p| p == 3).collect(),
        pause_tx: false,
        pause_rx: false,
        buffer_size: 1 << 20,
        buffer_xoff: 100_000,
        buffer_xon: 50_000,
        buffer_headroom: 70_000,
        cable_length_m: 100,
        storm_critical_ms: 500,
        storm_minor_ms: 100,
        hol_lifetime: 10,
        hol_stall_count: 3,
        hol_lifetime_classes: (0..8).map(|tc| tc == 1).collect(),
        forced_traffic_class: Some(106),
        send_queue_per_priority: true,
        congestion_monitoring: true,
        congestion_action: CongestionAction::Drop.into(),
        congestion_mode: CongestionMode::Aggressive.into(),
        ecn: (0..8)
            .map(|tc| v1::EcnProfile {
                ecn: tc == 3,
                wred: tc == 0,
                min_bytes: if tc == 3 { 5000 } else { 0 },
                max_bytes: if tc == 3 { 200_000 } else { 0 },
                max_probability_ppm: if tc == 3 { 10_000 } else { 0 },
                at_enqueue: tc == 3,
                yellow: (tc == 3).then_some(v1::EcnCurve {
                    min_bytes: 1000,
                    max_bytes: 2000,
                    max_probability_ppm: 30_000,
                }),
                red: (tc == 3).then_some(v1::EcnCurve::default()),
                thresholds_in_percent: tc == 0,
                average_weight: tc,
            })
            .collect(),
        schedule_queue: Some(v1::ScheduleQueue {
            max_bps: vec![5_000_000_000; 8],
            min_bps: vec![100_000_000; 8],
        }),
        tag_to_priority: (0..16).map(|i| (15 - i) / 2).collect(),
        tag_to_color: (0..16).map(|i| 1 + i % 3).collect(),
        dscp_to_color: (0..64).map(|i| 1 + i % 3).collect(),
        priority_to_pcp: vec![7, 6, 5, 4, 3, 2, 1, 0],
        skprio_to_priority: (0..16).map(|i| i % 8).collect(),
        buffer_beta_percent: 800,
        receive_buffers: Some(v1::ReceiveBuffers {
            sizes: vec![1 << 19, 0, 0, 1 << 19, 0, 0, 0, 0],
            priority_to_buffer: vec![0, 0, 0, 3, 0, 0, 0, 0],
        }),
        disabled: true,
        vl_arbitration: Some(v1::VlArbitration {
            high: vec![v1::VlWeight { lane: 7, weight: 255 }],
            low: (0..8)
                .map(|lane| v1::VlWeight {
                    lane,
                    weight: 8 - lane,
                })
                .collect(),
            high_limit: 9,
        }),
        // (Only ports have another.)
        tpid: 0x8100,
        policies: vec![
            v1::QosPolicy {
                name: "SMB".to_owned(),
                kind: Kind::Smb.into(),
                priority: Some(3),
                ..v1::QosPolicy::default()
            },
            v1::QosPolicy {
                name: "web".to_owned(),
                kind: Kind::DestinationPorts.into(),
                destination_ports: Some(DestinationPorts {
                    protocol: 6,
                    first: 80,
                    last: 443,
                }),
                dscp: Some(16),
                ..v1::QosPolicy::default()
            },
        ],
        ..v1::Qos::default()
    }
}

/// Fields that can be written, in the order of their numbers.
fn all() -> Vec<String> {
    let pool = prost_reflect::DescriptorPool::decode(vnic_control::FILE_DESCRIPTOR_SET).expect("descriptors");
    let message = pool.get_message_by_name("vnic.v1.Qos").expect("the message");
    let writable = message
        .fields()
        .filter(|f| f.number() >= 2 && !(40..43).contains(&f.number()));
    writable.map(|f| f.name().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_set_stored_and_reset() {
    let mut lab = Lab::start(1).await;
    let plain = configured(get(&lab, VF0).await);
    let wanted = everything();
    let all = all();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let done = configured(update(&lab, wanted.clone(), &all).await.expect("set"));
    let with_etag = v1::Qos {
        etag: done.etag.clone(),
        ..wanted
    };
    assert_eq!(done, with_etag);
    assert_ne!(done.etag, plain.etag);
    assert_eq!(configured(get(&lab, VF0).await), done);

    // Keys of fields are in the registry, and act.
    for (key, value) in [
        ("RxTrustedState", "2"),
        ("DefaultUntaggedPriority", "2"),
        ("DscpBasedEtsEnabled", "1"),
        ("DscpToPriorityMappingTable_30", "5"),
        ("DscpToPriorityMappingTable_3", "0"),
        ("RxUntaggedMapToLossless", "1"),
        ("*FlowControl", "0"),
        ("DeviceRxStallTimeout", "500"),
        ("DeviceRxStallWatermark", "100"),
        ("TCHeadOfQueueLifeTimeLimit", "10"),
        ("TCStallCount", "3"),
        ("TCHeadOfQueueLifeTimeLimitEnable", "2"),
        ("SendQueuePerPrio", "1"),
        ("CongestionMonitoringEnable", "1"),
        ("CongestionAction", "1"),
        ("CongestionMode", "0"),
    ] {
        let entry = entry(&lab, key).await;
        assert_eq!(
            (entry.stored.as_deref(), entry.effective.as_deref(), entry.pending),
            (Some(value), Some(value), None),
            "{key}"
        );
    }
    // What is as documented is not stored.
    assert_eq!(entry(&lab, "DscpToPriorityMappingTable_31").await.stored, None);

    lab = lab.restart(1).await;
    assert_eq!(configured(get(&lab, VF0).await), done);

    let reset = v1::ResetQosRequest { name: VF0.to_owned() };
    let reset = service(&lab).reset_qos(reset).await.expect("reset").into_inner();
    assert_eq!(configured(reset), plain);
    for key in [
        "RxTrustedState",
        "DscpToPriorityMappingTable_30",
        "SendQueuePerPrio",
    ] {
        assert_eq!(entry(&lab, key).await.stored, None, "{key}");
    }
    lab = lab.restart(1).await;
    assert_eq!(configured(get(&lab, VF0).await), plain);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_field_at_a_time() {
    let lab = Lab::start(1).await;
    let mut wanted = everything();
    for field in all() {
        // What depends on others comes behind them.
        if ["tc_bandwidth_percent", "buffer_headroom"].contains(&field.as_str()) {
            continue;
        }
        let paths: &[&str] = match field.as_str() {
            "tc_algorithm" => &["tc_algorithm", "tc_bandwidth_percent"],
            "buffer_xoff" => &["buffer_xoff", "buffer_xon"],
            "cable_length_m" => &["cable_length_m", "buffer_headroom"],
            other => &[other],
        };
        update(&lab, wanted.clone(), paths)
            .await
            .unwrap_or_else(|e| panic!("{field}: {e}"));
    }
    let now = get(&lab, VF0).await;
    wanted.etag.clone_from(&now.etag);
    assert_eq!(configured(now), wanted);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_restart_goes_on_waiting() {
    let lab = Lab::start(1).await;
    set_key(&lab, "TCStallCount", "2").await;
    set_key(&lab, "RxTrustedState", "0").await;
    assert_eq!(get(&lab, VF0).await.hol_stall_count, 7);
    let asked = v1::Qos {
        name: VF0.to_owned(),
        trust: v1::qos::Trust::Both.into(),
        ..v1::Qos::default()
    };
    let done = update(&lab, asked, &["trust"]).await.expect("set");
    assert_eq!((done.trust(), done.hol_stall_count), (v1::qos::Trust::Both, 7));
    let waiting = entry(&lab, "TCStallCount").await;
    assert_eq!(
        (waiting.effective.as_deref(), waiting.pending.as_deref()),
        (Some("7"), Some("2"))
    );
    let trust = entry(&lab, "RxTrustedState").await;
    assert_eq!((trust.effective.as_deref(), trust.pending), (Some("3"), None));
    lab.said(&["adapter", "restart", "vf0"]).await;
    let now = get(&lab, VF0).await;
    assert_eq!((now.trust(), now.hol_stall_count), (v1::qos::Trust::Both, 2));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_named_and_changes_nothing() {
    let lab = Lab::start(1).await;
    let before = get(&lab, VF0).await;
    type Change = fn(&mut v1::Qos);
    let policy = |kind: v1::qos_policy::Kind| v1::QosPolicy {
        name: "p".to_owned(),
        kind: kind.into(),
        priority: Some(1),
        ..v1::QosPolicy::default()
    };
    let nd = v1::QosPolicy {
        net_direct_port: Some(445),
        ..policy(v1::qos_policy::Kind::Tcp)
    };
    let cases: &[(&str, Change, &str)] = &[
        ("rate_bps", |q| q.rate_bps = 5, "1000 to 1000000000000"),
        ("trust", |q| q.trust = 9, "TRUST_DSCP"),
        ("default_priority", |q| q.default_priority = 8, "0 to 7"),
        (
            "dscp_to_priority",
            |q| q.dscp_to_priority.truncate(8),
            "64 are needed",
        ),
        ("priority_to_tc", |q| q.priority_to_tc[1] = 8, "0 to 7"),
        (
            "tc_bandwidth_percent",
            |q| q.tc_bandwidth_percent[1] = 100,
            "not ETS",
        ),
        ("tc_rate_limit_bps", |q| q.tc_rate_limit_bps[1] = 1, "1000 to"),
        ("pfc", |q| q.pfc.truncate(1), "8 are needed"),
        ("buffer_size", |q| q.buffer_size = 1, "65536 to 268435456"),
        ("buffer_xoff", |q| q.buffer_xoff = 1, "2048 to"),
        ("buffer_xon", |q| q.buffer_xon = u32::MAX, "below buffer_xoff"),
        (
            "buffer_headroom",
            |q| q.buffer_headroom = u32::MAX,
            "0 to 67108864",
        ),
        ("cable_length_m", |q| q.cable_length_m = 256, "0 to 255"),
        ("storm_critical_ms", |q| q.storm_critical_ms = 79, "80 to 8000"),
        ("storm_minor_ms", |q| q.storm_minor_ms = 8001, "80 to 8000"),
        ("hol_lifetime", |q| q.hol_lifetime = 21, "0 to 20"),
        ("hol_stall_count", |q| q.hol_stall_count = 8, "0 to 7"),
        (
            "forced_traffic_class",
            |q| q.forced_traffic_class = Some(256),
            "0 to 255",
        ),
        (
            "congestion_action",
            |q| q.congestion_action = v1::qos::CongestionAction::Off.into(),
            "CongestionMonitoringEnable",
        ),
        (
            "schedule_queue",
            |q| {
                q.schedule_queue = Some(v1::ScheduleQueue {
                    max_bps: vec![1_000_000, 0, 0, 0, 0, 0, 0, 0],
                    min_bps: vec![0; 8],
                });
            },
            "must have one, or none",
        ),
    ];
    for (field, change, text) in cases {
        let mut asked = before.clone();
        change(&mut asked);
        // What is right is not done either.
        asked.untagged_to_lossless = true;
        let status = update(&lab, asked, &["untagged_to_lossless", field])
            .await
            .expect_err(field);
        assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status}");
        assert_eq!(fields(&status), [format!("qos.{field}")], "{status}");
        assert!(status.message().contains(text), "{field}: {}", status.message());
        assert_eq!(get(&lab, VF0).await, before, "{field}");
    }
    for (refused, text) in [
        (nd, "KIND_NET_DIRECT"),
        (
            policy(v1::qos_policy::Kind::DestinationPorts),
            "destination_ports",
        ),
    ] {
        let asked = v1::Qos {
            policies: vec![refused],
            ..before.clone()
        };
        let status = update(&lab, asked, &["policies"]).await.expect_err(text);
        assert_eq!(fields(&status), ["qos.policies"]);
        assert!(status.message().contains(text), "{}", status.message());
    }
    // Masks, names, etags.
    let status = update(&lab, before.clone(), &["trus"])
        .await
        .expect_err("no field");
    assert_eq!(fields(&status), ["update_mask"]);
    assert!(
        status.message().contains("did you mean \"trust\"?"),
        "{}",
        status.message()
    );
    for path in ["state", "etag", "name"] {
        let status = update(&lab, before.clone(), &[path]).await.expect_err(path);
        assert_eq!(fields(&status), ["update_mask"]);
    }
    let status = update(&lab, before.clone(), &[]).await.expect_err("nothing");
    assert_eq!(fields(&status), ["update_mask"]);
    for (name, code) in [
        ("vf0", Code::InvalidArgument),
        ("adapters/vf0", Code::InvalidArgument),
        ("adapters/none/qos", Code::NotFound),
        ("ports/vf0/qos", Code::NotFound),
    ] {
        let asked = v1::Qos {
            name: name.to_owned(),
            etag: String::new(),
            ..before.clone()
        };
        let status = update(&lab, asked, &["trust"]).await.expect_err(name);
        assert_eq!(status.code(), code, "{name}: {status}");
    }
    let asked = v1::Qos {
        etag: "0123".to_owned(),
        ..before.clone()
    };
    let status = update(&lab, asked, &["trust"]).await.expect_err("another etag");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Aborted, "ETAG_MISMATCH")
    );
    assert_eq!(get(&lab, VF0).await, before);

    // Hardware QoS is off: the cure is named.
    set_key(&lab, "*QoSOffload", "0").await;
    lab.said(&["adapter", "restart", "vf0"]).await;
    let refused = lab.refused(1, &["qos", "limit", "vf0", "--max", "5G"]).await;
    assert!(refused.contains("set *QoSOffload to 1"), "{refused}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_take_their_quality_of_service_with_them() {
    let mut lab = Lab::start(1).await;
    lab.said(&["adapter", "add", "blue", "--no-rdma"]).await;
    lab.said(&["qos", "set", "blue", "--rate", "1G", "--trust", "dscp"])
        .await;
    let name = "adapters/blue/qos";
    lab = lab.restart(1).await;
    let now = get(&lab, name).await;
    assert_eq!((now.rate_bps, now.trust()), (1_000_000_000, v1::qos::Trust::Dscp));
    lab.said(&["adapter", "remove", "blue"]).await;
    lab.said(&["adapter", "add", "blue", "--no-rdma"]).await;
    let now = get(&lab, name).await;
    assert_eq!((now.rate_bps, now.trust()), (0, v1::qos::Trust::Pcp));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_have_their_own() {
    let ifname = format!("vnq{}", std::process::id());
    let ip = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output();
        output.is_ok_and(|o| o.status.success())
    };
    if !ip(&["tuntap", "add", "dev", &ifname, "mode", "tap"]) {
        eprintln!("SKIP ports_have_their_own: no right to make a TAP device");
        return;
    }
    assert!(ip(&["tuntap", "del", "dev", &ifname, "mode", "tap"]));
    let mut lab = Lab::start(1).await;
    let add = ["port", "add", "p0", "--tap", &ifname];
    lab.said(&add).await;
    let said = lab
        .said(&[
            "qos",
            "set",
            "p0",
            "--rate",
            "10G",
            "--trust",
            "both",
            "-f",
            "0,0,0,1,0,0,0,0",
        ])
        .await;
    assert!(
        said.contains("Priority trust state: both") && said.contains("Link rate: 10 Gbps"),
        "{said}"
    );
    let done = configured(get(&lab, "ports/p0/qos").await);
    // A port has no guest, and no registry.
    for (arguments, field) in [
        (&["--traffic-class", "106"], "forced_traffic_class"),
        (&["--send-queue-per-prio", "on"], "send_queue_per_priority"),
    ] {
        let refused = lab
            .refused(1, &[&["qos", "set", "p0"], &arguments[..]].concat())
            .await;
        assert!(
            refused.contains(field) && refused.contains("only adapters"),
            "{refused}"
        );
    }
    let refused = lab
        .refused(1, &["qos", "set", "p0", "--storm-critical", "8001"])
        .await;
    assert!(refused.contains("qos.storm_critical_ms"), "{refused}");
    assert_eq!(configured(get(&lab, "ports/p0/qos").await), done);
    // The port comes back, with what was configured for it.
    lab = lab.restart(1).await;
    assert_eq!(configured(get(&lab, "ports/p0/qos").await), done);
    let list = lab.json(&["qos", "list"]).await;
    assert_eq!(list["qos"][1]["name"], "ports/p0/qos");

    // More is promised than the port has.
    lab.said(&["qos", "limit", "vf0", "--min", "2G"]).await;
    let warnings = get(&lab, "ports/p0/qos").await.warnings;
    assert!(
        warnings.iter().any(|w| w.contains("16000000000 bit/s")),
        "{warnings:?}"
    );

    lab.said(&["port", "remove", "p0"]).await;
    lab.said(&add).await;
    assert_eq!(get(&lab, "ports/p0/qos").await.rate_bps, 0);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_lost_its_classes_stays_and_does_not_act() {
    let lab = Lab::start(1).await;
    lab.said(&["qos", "limit", "vf0", "--max", "5G"]).await;
    set_key(&lab, "*QosOffloadSupportedTCs", "3").await;
    set_key(&lab, "*QoSOffload", "0").await;
    let lab = lab.restart(1).await;
    let now = get(&lab, VF0).await;
    assert_eq!(
        now.schedule_queue.map(|q| q.max_bps),
        Some(vec![5_000_000_000; 8])
    );
    assert!(
        now.warnings.iter().any(|w| w.contains("*QoSOffload is 0")),
        "{:?}",
        now.warnings
    );
    // Something else can be changed all the same.
    lab.said(&["qos", "set", "vf0", "--rate", "1G"]).await;
    lab.end().await;
}

#[test]
fn viewers_see_and_change_nothing() {
    use std::os::unix::fs::MetadataExt as _;
    let uid = std::fs::metadata("/proc/self").expect("this process").uid();
    let dir = tempfile::tempdir().expect("a directory");
    let adapter = "[[adapter]]\nname = \"vf0\"\nrdma = false\n";
    let daemon = process::start(dir.path(), &format!("access.users.{uid} = \"viewer\"\n{adapter}"));
    daemon.said(&["qos", "show", "vf0"]);
    daemon.said(&["qos", "list"]);
    for (arguments, method) in [
        (&["qos", "set", "vf0", "--rate", "1G"] as &[&str], "UpdateQos"),
        (&["qos", "limit", "vf0", "--max", "1G"], "UpdateQos"),
        (&["qos", "reset", "vf0"], "ResetQos"),
        (&["qos", "pacing", "vf0", "1", "1G"], "SetQueuePairRate"),
    ] {
        let refused = daemon.refused(arguments);
        assert!(
            refused.contains("PERMISSION_DENIED") && refused.contains(method) && refused.contains("operator"),
            "{refused}"
        );
    }
    daemon.end(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_comes_in_pages_and_a_token_is_of_its_list() {
    let lab = Lab::start(3).await;
    let (mut names, mut page_token) = (Vec::new(), String::new());
    let mut service = QosServiceClient::new(lab.channel.clone());
    loop {
        let request = v1::ListQosRequest {
            page_size: 2,
            page_token,
        };
        let page = service.list_qos(request).await.expect("a page").into_inner();
        assert!(page.qos.len() <= 2);
        names.extend(page.qos.into_iter().map(|q| q.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
        let request = v1::ListQueuePairRatesRequest {
            adapter: "adapters/vf0".to_owned(),
            page_size: 0,
            page_token: page_token.clone(),
        };
        let refused = service
            .list_queue_pair_rates(request)
            .await
            .expect_err("of another list");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    assert_eq!(
        names,
        ["vf0", "vf1", "vf2"].map(|name| format!("adapters/{name}/qos"))
    );
    lab.end().await;
}
