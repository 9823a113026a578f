//! The metrics: promtool accepts them, nothing is missing, and what was removed is gone.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::common::lab::Lab;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use vnic_appliance::access::{BOUNDS, Durations, Reading};
use vnic_appliance::metrics::teams::TeamReading;
use vnic_appliance::metrics::{Bugs, Process, Snapshot, render, render_node};
use vnic_appliance::traces::Sent;
use vnic_backend::counters::names::{self, Source};
use vnic_backend::counters::{
    self, AdapterValues, CoreValues, HISTOGRAMS, HistogramSample, HistogramValues, LinkValues, PortValues,
    Scope, Values,
};
use vnic_backend::lag::{Evenness, Member, MemberView, View};
use vnic_backend::{
    AdapterSpec, AdapterStatus, AttachState, Budget, BurstStatus, DropReason, DroplessStatus, PortDevice,
    PortId, PortKind, PortSpec, PortStatus, QpErrors, QpNumber, RdmaStatus, ResourceRow, SocketRole,
    VlanMode, WORST,
};
use vnic_backend::{BondMember, BondSpec, BondStatus, Failover};
use vnic_control::v1;

fn adapter(name: &str) -> AdapterStatus {
    let spec = AdapterSpec {
        name: name.to_owned(),
        macs: vec!["02:00:00:00:00:01".parse().expect("an address")],
        mtu: 1500,
        queue_pairs: 2,
        vlan: VlanMode::default(),
        anti_spoofing: true,
        control_queue: false,
        rdma_flows: true,
        pkeys: Default::default(),
        data_core: Some(1),
        eth_socket: "/x".into(),
        rdma_socket: None,
        socket_role: SocketRole::Listen,
        allowed_addresses: Vec::new(),
        socket_access: Default::default(),
        rdma_memory_mib: vnic_backend::RDMA_MEMORY_DEFAULT,
        wake: None,
        wake_patterns: Vec::new(),
        moving: None,
        vmm: Default::default(),
    };
    AdapterStatus {
        settings: Default::default(),
        wanted: spec.clone(),
        spec,
        port: PortId(0),
        speaks: true,
        state: AttachState::Up,
        since: SystemTime::UNIX_EPOCH,
        features: 0,
        queue_pairs_enabled: 1,
        memory_bytes: 4096,
        regions: Budget { used: 3, limit: 70 },
        descriptors: Budget { used: 8, limit: 18 },
        dropless: DroplessStatus {
            on: true,
            waiting: 7,
            ..DroplessStatus::default()
        },
        burst: BurstStatus {
            frames: 5,
            frames_max: 150,
            bytes: 10_000,
            bytes_max: 300_000,
            ..BurstStatus::default()
        },
    }
}

fn drops(value: impl Fn(DropReason) -> u64) -> Vec<(&'static str, u64)> {
    DropReason::ALL.map(|r| (r.name(), value(r))).to_vec()
}

/// Priorities 0 and 3 have counted.
fn link(value: u64) -> LinkValues {
    let mut link = LinkValues::default();
    (link.priorities[0], link.priorities[3]) = ([value; _], [value; _]);
    link.all = [value; _];
    link
}

fn values(name: &str, hairpins: u64) -> AdapterValues {
    AdapterValues {
        name: name.to_owned(),
        life: 1,
        core: 1,
        queues: vec![(0, [u64::MAX; _])],
        drops: drops(|r| if r == DropReason::Hairpin { hairpins } else { 0 }),
        link: Box::new(link(if name == "vf0" { u64::MAX } else { 0 })),
        rdma: (name == "vf0").then(|| Box::new([u64::MAX; _])),
    }
}

/// Each of the core or of vf0: a value in the first bucket, two in the fourth, one beyond all bounds.
fn histograms() -> Vec<HistogramSample> {
    let all = HISTOGRAMS.iter().map(|def| {
        let mut buckets = vec![0; if def.unit == "ns" { 25 } else { 17 }];
        (buckets[0], buckets[3]) = (1, 2);
        if let Some(last) = buckets.last_mut() {
            *last = 1;
        }
        HistogramSample {
            def,
            owner: if def.scope == Scope::Core { "1" } else { "vf0" }.to_owned(),
            values: HistogramValues {
                buckets,
                sum: 3_000_000_500,
            },
        }
    });
    all.collect()
}

#[test]
fn histograms_of_the_data_path_are_those_of_prometheus() {
    let text = page(&snapshot());
    for line in [
        "# TYPE vnic_core_round_seconds histogram",
        "vnic_core_round_seconds_bucket{core=\"1\",le=\"0.000000128\"} 1",
        "vnic_core_round_seconds_bucket{core=\"1\",le=\"0.000000512\"} 1",
        "vnic_core_round_seconds_bucket{core=\"1\",le=\"0.000001024\"} 3",
        "vnic_core_round_seconds_bucket{core=\"1\",le=\"1.073741824\"} 3",
        "vnic_core_round_seconds_bucket{core=\"1\",le=\"+Inf\"} 4",
        "vnic_core_round_seconds_sum{core=\"1\"} 3.0000005",
        "vnic_core_round_seconds_count{core=\"1\"} 4",
        "# TYPE vnic_core_wake_up_seconds histogram",
        "# TYPE vnic_rdma_message_latency_seconds histogram",
        "vnic_rdma_message_latency_seconds_count{adapter=\"vf0\"} 4",
        "# TYPE vnic_adapter_tx_queue_depth histogram",
        "vnic_adapter_tx_queue_depth_bucket{adapter=\"vf0\",le=\"1\"} 1",
        "vnic_adapter_tx_queue_depth_bucket{adapter=\"vf0\",le=\"32768\"} 3",
        "vnic_adapter_tx_queue_depth_sum{adapter=\"vf0\"} 3000000500",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

/// Of two members; one was lost.
fn team() -> TeamReading {
    let member = |port: &str, up| BondMember {
        port: port.to_owned(),
        up,
        lacp: None,
    };
    let seen = |i: u8, usable| MemberView {
        member: Member(i),
        link: usable,
        collecting: usable,
        distributing: usable,
        usable,
        ready_in: None,
        buckets: 0,
        leaving: 0,
        flows: 6 * usize::from(usable),
        qps: 4 * usize::from(usable),
        packets: u64::MAX,
        bytes: 9,
    };
    let all = Evenness {
        largest: 1.0,
        jain: 1.0,
    };
    TeamReading {
        name: "Team \"0\"".to_owned(),
        kind: "failover".to_owned(),
        bond: Some(BondStatus {
            spec: BondSpec::new("team-0", vec!["p0".to_owned(), "p1".to_owned()]),
            port: PortId(9),
            up: true,
            members: vec![member("p0", true), member("p1", false)],
            failovers: 3,
            last_failover: Some(Failover {
                port: "p1".to_owned(),
                at: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
                took: Duration::from_micros(250),
                dropped: 3,
            }),
        }),
        view: Some(View {
            members: vec![seen(0, true), seen(1, false)],
            active: Some(Member(0)),
            flows: Vec::new(),
            unseen: 0,
            affinities: Vec::new(),
            by_flows: Some(all),
            by_qps: Some(all),
            by_bytes: None,
        }),
    }
}

fn snapshot() -> Snapshot {
    let counters = Values {
        adapters: vec![values("vf0", u64::MAX), values("vf1", 0)],
        ports: vec![PortValues {
            name: "p0".to_owned(),
            life: 2,
            io: [u64::MAX; _],
            dcbx: [u64::MAX; _],
            drops: drops(|_| 3),
            link: Box::new(link(5)),
            mesh: Some(Box::new([u64::MAX; _])),
        }],
        cores: vec![CoreValues {
            cpu: 1,
            values: [u64::MAX; _],
        }],
    };
    Snapshot {
        adapters: vec![adapter("vf0"), adapter("vf1")],
        rdma: vec![(
            "vf0".to_owned(),
            RdmaStatus {
                socket: "/x".into(),
                state: AttachState::Up,
                since: SystemTime::UNIX_EPOCH,
                memory_bytes: 8192,
                daemon_memory: Budget {
                    used: 20 << 20,
                    limit: 64 << 20,
                },
                off: None,
                gids: Vec::new(),
                resources: vec![ResourceRow {
                    name: "qp",
                    used: 3,
                    limit: 131_072,
                }],
                worst: vec![(
                    QpNumber(17),
                    QpErrors {
                        local_ack_timeout_err: 4,
                        ..QpErrors::default()
                    },
                )],
                owners: Default::default(),
            },
        )],
        ports: vec![PortStatus {
            spec: PortSpec {
                data_core: Some(1),
                ..PortSpec::new(
                    "p0",
                    PortKind::Tap {
                        ifname: "tap0".to_owned(),
                        queues: 1,
                    },
                )
            },
            port: PortId(2),
            up: true,
            problem: None,
            mode: String::new(),
            lldp: None,
            device: Some(PortDevice {
                index: 7,
                mtu: 9000,
                mac: None,
                speed_mbps: Some(10_000),
                statistics: [("rx_packets", 11), ("tx_bytes", u64::MAX), ("of_the_driver", 5)]
                    .map(|(name, value)| (name.to_owned(), value))
                    .into(),
            }),
        }],
        teams: vec![
            team(),
            TeamReading {
                bond: None,
                view: None,
                name: "Empty".to_owned(),
                ..team()
            },
        ],
        counters,
        histograms: histograms(),
        fdb: Vec::new(),
        clock: (-5_000, -250),
        data_cores: 1,
        started: Some(SystemTime::UNIX_EPOCH),
        registry_revision: 12,
        store_bytes: Some(65_536),
        events: [("info", 40), ("warning", 2), ("error", 0)],
        bugs: Bugs {
            panics: 3,
            ended: ["event-log"].into(),
        },
        log_lost: 17,
        grpc: grpc(),
        spans: Some(Sent {
            exported: 11,
            lost: 2,
        }),
        process: Process {
            cpu: Duration::from_millis(1500),
            resident: Some(1 << 20),
            virtual_memory: Some(1 << 30),
            threads: Some(12),
            open_fds: Some(33),
            max_fds: None,
        },
    }
}

/// A call, a stream and a path that is no method.
fn grpc() -> Vec<Reading> {
    let mut buckets = [0; BOUNDS.len() + 1];
    (buckets[0], buckets[9], buckets[17]) = (90, 9, 1);
    let mut call = Reading {
        method: "vnic.v1.ServerService/GetServerInfo",
        seconds: Some(Durations {
            buckets,
            nanos: 40_000_000_001,
        }),
        ..Reading::default()
    };
    (call.codes[0], call.codes[13], call.codes[5]) = (95, 2, 3);
    let mut stream = Reading {
        method: "vnic.v1.PortService/WatchPorts",
        open: Some(3),
        ..Reading::default()
    };
    stream.codes[1] = 7;
    let mut other = Reading {
        method: "other",
        ..Reading::default()
    };
    other.codes[12] = u64::MAX;
    vec![call, stream, other]
}

fn page(snapshot: &Snapshot) -> String {
    render(snapshot, || Duration::from_millis(1))
}

#[test]
fn every_counter_is_there_with_its_help_and_its_exact_value() {
    let page = page(&snapshot());
    for def in counters::all() {
        let name = vnic_appliance::metrics::naming::metric(def);
        assert!(page.contains(&format!("# HELP {name} {}\n", def.help)), "{name}");
        assert!(page.contains(&format!("# TYPE {name} counter\n")), "{name}");
    }
    for line in [
        "vnic_adapter_rx_frames_total{adapter=\"vf0\",queue=\"0\"} 18446744073709551615",
        "vnic_adapter_rx_waited_seconds_total{adapter=\"vf0\",queue=\"0\"} 18446744073.709551615",
        "vnic_adapter_priority_rx_frames_total{adapter=\"vf0\",priority=\"3\"} 18446744073709551615",
        "vnic_adapter_priority_tx_pause_seconds_total{adapter=\"vf0\",priority=\"0\"} 18446744073709.551615",
        "vnic_adapter_priority_tx_frames_total{adapter=\"vf1\",priority=\"0\"} 0",
        "vnic_adapter_link_tx_pause_total{adapter=\"vf0\"} 18446744073709551615",
        "vnic_mesh_tx_lost_packets_total{port=\"p0\"} 18446744073709551615",
        "vnic_port_priority_rx_marked_total{port=\"p0\",priority=\"3\"} 5",
        "vnic_port_link_tx_pause_storm_errors_total{port=\"p0\"} 5",
        "vnic_port_link_rx_pause_seconds_total{port=\"p0\"} 0.000005",
        "vnic_adapter_up{adapter=\"vf0\"} 1",
        "vnic_adapter_info{adapter=\"vf0\",mac=\"02:00:00:00:00:01\",mtu=\"1500\",queue_pairs=\"2\",core=\"1\"} 1",
        "vnic_rdma_rx_write_requests_total{adapter=\"vf0\"} 18446744073709551615",
        "vnic_panics_total 3",
        "vnic_thread_up{thread=\"event-log\"} 0",
        "vnic_thread_up{thread=\"store\"} 1",
        "vnic_log_lines_lost_total 17",
        "vnic_adapter_dropless_mode{adapter=\"vf0\"} 1",
        "vnic_adapter_dropless_waiting_frames{adapter=\"vf0\"} 7",
        "vnic_adapter_reserve_frames{adapter=\"vf0\"} 5",
        "vnic_adapter_reserve_frames_max{adapter=\"vf0\"} 150",
        "vnic_adapter_waiting_bytes{adapter=\"vf0\"} 10000",
        "vnic_adapter_waiting_bytes_max{adapter=\"vf0\"} 300000",
        "vnic_rdma_up{adapter=\"vf0\"} 1",
        "vnic_rdma_memory_bytes{adapter=\"vf0\"} 8192",
        "vnic_rdma_daemon_memory_bytes{adapter=\"vf0\"} 20971520",
        "vnic_rdma_daemon_memory_limit_bytes{adapter=\"vf0\"} 67108864",
        "vnic_adapter_regions{adapter=\"vf0\"} 3",
        "vnic_adapter_regions_limit{adapter=\"vf0\"} 70",
        "vnic_adapter_descriptors{adapter=\"vf0\"} 8",
        "vnic_adapter_descriptors_limit{adapter=\"vf0\"} 18",
        "vnic_rdma_objects{adapter=\"vf0\",type=\"qp\"} 3",
        "vnic_rdma_objects_limit{adapter=\"vf0\",type=\"qp\"} 131072",
        "vnic_rdma_queue_pair_errors_total{adapter=\"vf0\",qp=\"17\",error=\"local_ack_timeout_err\"} 4",
        "vnic_rdma_queue_pair_errors_total{adapter=\"vf0\",qp=\"17\",error=\"out_of_sequence\"} 0",
        "vnic_registry_revision 12",
        "vnic_store_size_bytes 65536",
        "vnic_events_total{severity=\"warning\"} 2",
        "vnic_port_up{port=\"p0\"} 1",
        "vnic_port_speed_bytes_per_second{port=\"p0\"} 1250000000",
        "vnic_team_info{team=\"Team \\\"0\\\"\",type=\"failover\",bond=\"team-0\"} 1",
        "vnic_team_up{team=\"Team \\\"0\\\"\"} 1",
        "vnic_team_up{team=\"Empty\"} 0",
        "vnic_team_member_up{team=\"Team \\\"0\\\"\",port=\"p1\"} 0",
        "vnic_team_member_usable{team=\"Team \\\"0\\\"\",port=\"p0\"} 1",
        "vnic_team_member_active{team=\"Team \\\"0\\\"\",port=\"p0\"} 1",
        "vnic_team_member_tx_frames_total{team=\"Team \\\"0\\\"\",port=\"p0\"} 18446744073709551615",
        "vnic_team_member_tx_bytes_total{team=\"Team \\\"0\\\"\",port=\"p0\"} 9",
        "vnic_team_member_flows{team=\"Team \\\"0\\\"\",port=\"p0\"} 6",
        "vnic_team_member_queue_pairs{team=\"Team \\\"0\\\"\",port=\"p1\"} 0",
        "vnic_team_largest_share{team=\"Team \\\"0\\\"\",of=\"queue_pairs\"} 1",
        "vnic_team_failovers_total{team=\"Team \\\"0\\\"\"} 3",
        "vnic_team_last_failover_time_seconds{team=\"Team \\\"0\\\"\",port=\"p1\"} 1.5",
        "vnic_team_last_failover_duration_seconds{team=\"Team \\\"0\\\"\",port=\"p1\"} 0.00025",
        "vnic_fdb_entries{kind=\"static\"} 0",
        "vnic_scrape_duration_seconds 0.001",
        "process_cpu_seconds_total 1.5",
        "process_resident_memory_bytes 1048576",
        "process_virtual_memory_bytes 1073741824",
        "process_threads 12",
        "process_open_fds 33",
        "process_start_time_seconds 0",
        "vnic_grpc_requests_total{method=\"vnic.v1.ServerService/GetServerInfo\",code=\"OK\"} 95",
        "vnic_grpc_requests_total{method=\"vnic.v1.ServerService/GetServerInfo\",code=\"INTERNAL\"} 2",
        "vnic_grpc_requests_total{method=\"vnic.v1.ServerService/GetServerInfo\",code=\"UNAVAILABLE\"} 0",
        "vnic_grpc_requests_total{method=\"vnic.v1.PortService/WatchPorts\",code=\"CANCELLED\"} 7",
        "vnic_grpc_requests_total{method=\"other\",code=\"UNIMPLEMENTED\"} 18446744073709551615",
        "vnic_grpc_request_seconds_bucket{method=\"vnic.v1.ServerService/GetServerInfo\",le=\"0.0001\"} 90",
        "vnic_grpc_request_seconds_bucket{method=\"vnic.v1.ServerService/GetServerInfo\",le=\"0.1\"} 99",
        "vnic_grpc_request_seconds_bucket{method=\"vnic.v1.ServerService/GetServerInfo\",le=\"30\"} 99",
        "vnic_grpc_request_seconds_bucket{method=\"vnic.v1.ServerService/GetServerInfo\",le=\"+Inf\"} 100",
        "vnic_grpc_request_seconds_sum{method=\"vnic.v1.ServerService/GetServerInfo\"} 40.000000001",
        "vnic_grpc_request_seconds_count{method=\"vnic.v1.ServerService/GetServerInfo\"} 100",
        "vnic_grpc_streams{method=\"vnic.v1.PortService/WatchPorts\"} 3",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
    }
    // What there is not has no line.
    assert!(!page.contains("process_max_fds"));
    // Priorities that were never used have no lines.
    assert!(!page.contains("priority=\"1\"") && !page.contains("adapter=\"vf1\",priority=\"3\""));
}

#[test]
fn queue_pairs_with_errors_are_few_however_many_there_are() {
    let mut snapshot = snapshot();
    let worst = |adapter: u32| {
        let pair = |n: u32| {
            let errors = QpErrors {
                packet_seq_err: 100 * (n % 5) + adapter,
                ..QpErrors::default()
            };
            (QpNumber(n), errors)
        };
        (1..=10).map(pair).collect()
    };
    let one = snapshot.rdma[0].1.clone();
    snapshot.rdma = (0..100)
        .map(|n| {
            let worst = worst(n);
            (format!("vf{n}"), RdmaStatus { worst, ..one.clone() })
        })
        .collect();
    let page = page(&snapshot);
    let lines: Vec<&str> = page
        .lines()
        .filter(|l| l.starts_with("vnic_rdma_queue_pair_errors_total{"))
        .collect();
    assert_eq!(lines.len(), WORST * QpErrors::default().rows().len());
    let value = |line: &&str| line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let counts: Vec<u32> = lines.iter().map(value).filter(|n| *n > 0).collect();
    assert_eq!(counts, [499, 499, 498, 498, 497, 497, 496, 496, 495, 495]);
}

#[test]
fn every_drop_reason_shows_from_the_start() {
    let page = page(&snapshot());
    for reason in DropReason::ALL {
        for (owner, n) in [("vf0", DropReason::Hairpin), ("vf1", DropReason::Hairpin)] {
            let value = if owner == "vf0" && reason == n {
                u64::MAX
            } else {
                0
            };
            let line = format!(
                "vnic_adapter_drops_total{{adapter=\"{owner}\",reason=\"{}\"}} {value}",
                reason.name()
            );
            assert!(page.lines().any(|l| l == line), "{line}");
        }
    }
    let port = page
        .lines()
        .filter(|l| l.starts_with("vnic_port_drops_total{port=\"p0\""))
        .count();
    assert_eq!(port, DropReason::ALL.len());
}

#[test]
fn what_was_removed_is_gone() {
    let mut snapshot = snapshot();
    assert!(page(&snapshot).contains("vf0"));
    snapshot.adapters.remove(0);
    snapshot.rdma.clear();
    snapshot.counters.adapters.remove(0);
    snapshot.histograms.retain(|h| h.owner != "vf0");
    assert!(!page(&snapshot).contains("vf0"));
}

/// What promtool says of a page; nothing, when it is good.
fn promtool(text: &str) -> String {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    let mut stdin = promtool.stdin.take().expect("its input");
    stdin.write_all(text.as_bytes()).expect("written");
    drop(stdin);
    let output = promtool.wait_with_output().expect("its answer");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() {
        said
    } else {
        format!("{}: {said}", output.status)
    }
}

#[test]
fn promtool_accepts_the_pages() {
    if !crate::common::installed("promtool", "promtool_accepts_the_pages") {
        return;
    }
    for text in [page(&snapshot()), render_node(&snapshot())] {
        let said = promtool(&text);
        assert!(said.is_empty(), "{said}\n{text}");
    }
}

#[test]
fn the_other_page_has_the_names_of_node_exporter() {
    let page = render_node(&snapshot());
    for line in [
        "node_infiniband_info{board_id=\"vnic\",device=\"vf0\",firmware_version=\"VERSION\",hca_type=\"vnic\"} 1",
        "node_infiniband_state_id{device=\"vf0\",port=\"1\"} 4",
        "node_infiniband_physical_state_id{device=\"vf0\",port=\"1\"} 5",
        "node_infiniband_rate_bytes_per_second{device=\"vf0\",port=\"1\"} 12500000000",
        "node_network_up{device=\"tap0\"} 1",
        "node_network_mtu_bytes{device=\"tap0\"} 9000",
        "node_network_speed_bytes{device=\"tap0\"} 1250000000",
        "node_network_receive_packets_total{device=\"tap0\"} 11",
        "node_network_transmit_bytes_total{device=\"tap0\"} 18446744073709551615",
        "node_infiniband_rx_write_requests_total{device=\"vf0\",port=\"1\"} 18446744073709551615",
    ] {
        let line = line.replace("VERSION", vnic_appliance::VERSION);
        assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
    }
    // Without an RDMA function there is no device.
    assert!(!page.contains("vf1"));
    // Names that drivers choose are not shown.
    assert!(!page.contains("of_the_driver"));
    let set = names::set("node_exporter infiniband").expect("a set");
    for name in set.names {
        let has_value = page.contains(&format!("\n{}{{device=\"vf0\"", name.name));
        assert_eq!(has_value, matches!(name.source, Source::Is(_)), "{}", name.name);
    }
}

/// An adapter counts by the function that is further: one that carries RDMA alone is up.
#[test]
fn an_adapter_of_which_rdma_alone_runs_is_up() {
    let mut snapshot = snapshot();
    for adapter in &mut snapshot.adapters {
        adapter.state = AttachState::Detached;
    }
    let text = page(&snapshot);
    for line in [
        "vnic_adapters{state=\"up\"} 1",
        "vnic_adapters{state=\"detached\"} 1",
        "vnic_adapter_up{adapter=\"vf0\"} 0",
        "vnic_rdma_up{adapter=\"vf0\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    snapshot.rdma[0].1.state = AttachState::Failed;
    snapshot.adapters[0].state = AttachState::Up;
    let text = page(&snapshot);
    assert!(text.contains("\nvnic_adapters{state=\"failed\"} 1\n"), "{text}");
}

/// The rules and the board of `deploy` use only metrics that exist.
#[test]
fn rules_and_board_use_what_there_is() {
    let page = page(&snapshot());
    let exists = |name: &str| page.contains(&format!("# TYPE {name} "));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect(file);
    let rules = read("prometheus/vnic-rules.yml");
    // (What rules record has two names, `instance:vnic_…`.)
    let recorded = |name: &str| {
        let levels = ["instance", "instance_core", "instance_adapter"];
        levels
            .iter()
            .any(|level| rules.contains(&format!("record: {level}:{name}:")))
    };
    for file in ["prometheus/vnic-rules.yml", "grafana/vnic.json"] {
        let text = read(file);
        let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let names: Vec<&str> = text
            .split(word)
            .filter(|w| {
                [
                    "vnic_adapter",
                    "vnic_rdma",
                    "vnic_port_",
                    "vnic_team_",
                    "vnic_core_",
                    "vnic_mesh_",
                    "vnic_events_",
                    "vnic_trace_",
                    "process_",
                    "vnic_fdb",
                    "vnic_grpc_",
                    "vnic_s",
                    "vnic_b",
                ]
                .iter()
                .any(|prefix| w.starts_with(prefix))
            })
            .collect();
        assert!(names.len() > 8, "{file}");
        for name in names {
            let name = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|part| name.strip_suffix(part))
                .filter(|name| exists(name))
                .unwrap_or(name);
            assert!(exists(name) || recorded(name), "{file}: {name}");
        }
    }
    // Each histogram has a panel.
    let board = read("grafana/vnic.json");
    let histograms = page.lines().filter_map(|line| {
        let line = line.strip_prefix("# TYPE ")?;
        line.strip_suffix(" histogram")
    });
    let missing: Vec<&str> = histograms
        .filter(|name| !board.contains(&format!("{name}_bucket")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let rules = root.join("prometheus/vnic-rules.yml");
    if crate::common::installed("promtool", "rules_and_board_use_what_there_is") {
        for (verb, file) in [
            ("check", rules),
            ("test", root.join("prometheus/vnic-rules.test.yml")),
        ] {
            let output = Command::new("promtool")
                .args([verb, "rules"])
                .arg(&file)
                .output()
                .expect("promtool");
            assert!(
                output.status.success(),
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

/// Each alert has a section of the runbook, which its annotation names, and each section has an alert.
#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let (rules, runbook) = (read("deploy/prometheus/vnic-rules.yml"), read("docs/runbook.md"));
    let after = |text: &str, start: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(start));
        lines.map(|rest| rest.trim_matches('"').to_owned()).collect()
    };
    let alerts = after(&rules, "- alert: ");
    assert!(alerts.len() > 20);
    let links: Vec<String> = alerts
        .iter()
        .map(|alert| format!("docs/runbook.md#{}", alert.to_lowercase()))
        .collect();
    assert_eq!(after(&rules, "runbook_url: "), links);
    // promtool sees each alert fire.
    let seen = after(&read("deploy/prometheus/vnic-rules.test.yml"), "alertname: ");
    for alert in &alerts {
        assert!(seen.contains(alert), "{alert} has no test");
    }
    let mut sections = after(&runbook, "### ");
    let mut alerts = alerts;
    sections.sort();
    alerts.sort();
    assert_eq!(sections, alerts);
}

/// Where a daemon's metrics are.
fn address(lab: &Lab) -> SocketAddr {
    let url = lab.daemon.control().endpoints.metrics_url.clone();
    let url = url.expect("metrics");
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    address.parse().expect("an address")
}

async fn status(address: SocketAddr, path: &str) -> String {
    let answer = async {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let question = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(question.as_bytes()).await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer.lines().next().unwrap_or_default().to_owned()
    };
    // Only so that one that never answers does not hang the tests.
    let limit = Duration::from_secs(60);
    let answer = tokio::time::timeout(limit, answer).await;
    answer.unwrap_or_else(|_| panic!("{path}: no answer"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_compressed_for_who_takes_that() {
    let lab = Lab::start(2).await;
    let address = address(&lab);
    let get = async |more: &str| {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let question = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{more}\r\n");
        stream.write_all(question.as_bytes()).await.expect("asked");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        let at = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(answer[..at].to_vec()).expect("text");
        (head.to_lowercase(), answer.split_off(at + 4))
    };
    let (head, plain) = get("").await;
    assert!(!head.contains("content-encoding"), "{head}");
    let (head, packed) = get("Accept-Encoding: gzip\r\n").await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut text = String::new();
    let mut reader = flate2::read::GzDecoder::new(&packed[..]);
    std::io::Read::read_to_string(&mut reader, &mut text).expect("gzip");
    assert!(
        text.contains("\nvnic_build_info{")
            && plain.starts_with(text.lines().next().expect("a line").as_bytes())
    );
    assert!(
        packed.len() * 5 < plain.len(),
        "{} of {}",
        packed.len(),
        plain.len()
    );
    lab.end().await;
}

/// Requests of a real client, as the page has them.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_method_and_code_and_calls_by_duration() {
    let lab = Lab::start(1).await;
    lab.said(&["server", "info"]).await;
    lab.refused(1, &["adapter", "show", "nobody"]).await;
    let mut client = lab.events();
    let stream = client.follow_events(v1::FollowEventsRequest::default());
    let stream = stream.await.expect("a stream");
    let url = format!("http://{}/metrics", address(&lab));
    let page = async || {
        let url = url.clone();
        let get = tokio::task::spawn_blocking(move || crate::common::get(&url));
        get.await.expect("the page")
    };
    // A request is counted when its connection is through with it, which may be after its client has the response.
    let has = async |line: &str| {
        while !page().await.lines().any(|l| l == line) {
            tokio::task::yield_now().await;
        }
    };
    for line in [
        "vnic_grpc_requests_total{method=\"vnic.v1.ServerService/GetServerInfo\",code=\"OK\"} 1",
        "vnic_grpc_requests_total{method=\"vnic.v1.AdapterService/GetAdapter\",code=\"NOT_FOUND\"} 1",
        "vnic_grpc_request_seconds_count{method=\"vnic.v1.AdapterService/GetAdapter\"} 1",
        "vnic_grpc_request_seconds_bucket{method=\"vnic.v1.ServerService/GetServerInfo\",le=\"+Inf\"} 1",
        "vnic_grpc_streams{method=\"vnic.v1.EventService/FollowEvents\"} 1",
    ] {
        has(line).await;
    }
    assert!(!page().await.contains("CreateAdapter"));
    drop(stream);
    has("vnic_grpc_streams{method=\"vnic.v1.EventService/FollowEvents\"} 0").await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_keep_nobody_from_an_answer() {
    let lab = Lab::start(1).await;
    let address = address(&lab);
    let mut deaf = Vec::new();
    for _ in 0..100 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let stream = socket.connect(address).await.expect("a connection");
        // The answers do not fit between the two.
        let questions = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
        let _ = stream.try_write(questions.as_bytes());
        deaf.push(stream);
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(status(address, path).await, "HTTP/1.1 200 OK", "{path}");
    }
    drop(deaf);
    lab.end().await;
}

#[test]
fn probes_need_no_thread_that_calls_may_use_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let lab = Lab::start(1).await;
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..2 {
            let ended = ended.clone();
            tokio::task::spawn_blocking(move || ended.lock().expect("the end").recv().is_err());
        }
        for path in ["/livez", "/readyz"] {
            assert_eq!(status(address(&lab), path).await, "HTTP/1.1 200 OK", "{path}");
        }
        drop(ends);
        lab.end().await;
    });
}
