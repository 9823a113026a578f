//! Quality of service by `vnicctl qos` and `vnicctl mlx5cmd`.

use crate::common::lab::{Lab, fields};
use crate::common::wires::Wires;
use serde_json::json;
use tonic::transport::Channel;
use vnic_control::v1;
use vnic_control::v1::qos::Trust;
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

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_in_the_shape_of_mlnx_qos() {
    let lab = Lab::start(1).await;
    let shown = lab.said(&["qos", "show", "vf0"]).await;
    assert_eq!(shown, include_str!("../data/qos_show.txt"));

    let set = async |arguments: &[&str]| {
        lab.said(&[&["qos", "set", "vf0"], arguments].concat()).await;
        get(&lab, VF0).await
    };
    let now = set(&[
        "--trust",
        "dscp",
        "--dscp2prio",
        "set,30,5",
        "--dscp2prio",
        "set,12,3",
    ])
    .await;
    assert_eq!((now.dscp_to_priority[30], now.dscp_to_priority[12]), (5, 3));
    let shown = lab.said(&["qos", "show", "vf0"]).await;
    assert!(
        shown.contains("\tprio:5 dscp:47,46,45,44,43,42,41,40,\n\t            30,\n"),
        "{shown}"
    );
    let now = set(&["--dscp2prio", "del,30,5"]).await;
    assert_eq!((now.dscp_to_priority[30], now.dscp_to_priority[12]), (3, 3));
    let refused = lab
        .refused(2, &["qos", "set", "vf0", "--dscp2prio", "del,30,5"])
        .await;
    assert!(refused.contains("DSCP 30 has priority 3, not 5"), "{refused}");
    let now = set(&["--dscp2prio", "flush"]).await;
    assert_eq!(now.dscp_to_priority[12], 1);

    let now = set(&[
        "-p",
        "0,1,2,3,4,5,6,7",
        "-s",
        "ets,ets,strict,vendor,vendor,vendor,vendor,vendor",
        "-t",
        "50,50,0,0,0,0,0,0",
        "-r",
        "5G,0,0,0,0,0,0,500M",
        "-f",
        "0,0,0,1,0,0,0,0",
    ])
    .await;
    assert_eq!(now.tc_rate_limit_bps[7], 500_000_000);
    assert_eq!(now.tc_bandwidth_percent[..2], [50, 50]);
    let shown = lab.said(&["qos", "show", "vf0"]).await;
    for line in [
        "tc: 0 ratelimit: 5 Gbps, tsa: ets, bw: 50%\n\t priority:  0\n",
        "tc: 2 ratelimit: unlimited, tsa: strict\n\t priority:  2\n",
        "\tenabled     0   0   0   1   0   0   0   0\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }

    let now = set(&[
        "--traffic_class",
        "106",
        "--default-priority",
        "4",
        "--cable_len",
        "100",
    ])
    .await;
    assert_eq!((now.forced_traffic_class, now.default_priority), (Some(106), 4));
    assert_eq!(now.cable_length_m, 100);
    // 100 m hold 12,500 bytes at 100 Gbit/s, 7 m 875; with what else is under way, 42 KiB and 31 KiB.
    assert_eq!(now.buffer_headroom, (256 << 10) + (11 << 10));
    let now = set(&["--traffic-class", "-1", "--pause", "rx", "--headroom", "9000"]).await;
    assert_eq!(
        (now.forced_traffic_class, now.pause_tx, now.pause_rx),
        (None, false, true)
    );
    let now = set(&["--buffer_size", "2000000", "--xoff", "200000", "--xon", "100000"]).await;
    assert_eq!(
        (
            now.buffer_size,
            now.buffer_xoff,
            now.buffer_xon,
            now.buffer_headroom
        ),
        (2_000_000, 200_000, 100_000, 9000)
    );
    let now = set(&["--storm-critical", "1000"]).await;
    assert_eq!((now.storm_critical_ms, now.storm_minor_ms), (1000, 850));
    let now = set(&[
        "--storm-minor",
        "200",
        "--hol-lifetime",
        "12",
        "--hol-classes",
        "0,1,0,0,0,0,0,0",
    ])
    .await;
    assert_eq!((now.storm_minor_ms, now.hol_lifetime), (200, 12));
    assert_eq!(lab.json(&["qos", "show", "vf0"]).await["storm_minor_ms"], 200);

    for (arguments, problem) in [
        (&["-t", "16,80,0,0,0,0,0,0"] as &[&str], "add up to 96 %"),
        (
            &["-s", "strict,ets,vendor,vendor,vendor,vendor,vendor,vendor"],
            "traffic class 0 has 50 %",
        ),
        (&["-p", "0,1"], "2 values; 8 are needed"),
        (&["-r", "5"], "8 are needed"),
        (&["--rate", "5"], "5G is 5 Gbit/s"),
        (&["--trust", "none"], "possible values"),
        (&["-f", "0,0,0,2,0,0,0,0"], "priority 3"),
        (&[], "nothing to change"),
    ] {
        let refused = lab
            .refused(2, &[&["qos", "set", "vf0"], arguments].concat())
            .await;
        assert!(refused.contains(problem), "{arguments:?}: {refused}");
    }
    let now = set(&["-t", "16,80,0,0,0,0,0,0", "--weights"]).await;
    assert_eq!(now.tc_bandwidth_percent[1], 80);
    assert!(now.warnings[0].contains("96 %"), "{:?}", now.warnings);

    // An event says what, and who.
    let events = lab.json(&["event", "list", "--kind", "settings_changed"]).await;
    let last = events["events"]
        .as_array()
        .and_then(|e| e.last())
        .expect("an event");
    assert_eq!(last["adapter"], "adapters/vf0");
    assert_eq!(last["parameters"]["store"], "qos");
    assert!(
        last["message"]
            .as_str()
            .is_some_and(|m| m.contains("tc_bandwidth_percent = 16,80,0"))
    );

    lab.said(&["qos", "reset", "vf0"]).await;
    assert_eq!(
        lab.said(&["qos", "show", "vf0"]).await,
        include_str!("../data/qos_show.txt")
    );
    lab.end().await;
}

/// The registers CWTP and CWTPM as mlxreg shows them (fields: Linux, `drivers/net/ethernet/mellanox/mlxsw/reg.h`).
#[tokio::test(flavor = "multi_thread")]
async fn the_congestion_point_by_class_and_by_its_registers() {
    const INDEXES: &str = "local_port=0,pnat=2,traffic_class=5";
    let lab = Lab::start(1).await;
    let set = async |arguments: &[&str]| {
        lab.said(&[&["qos", "set", "vf0"], arguments].concat()).await;
        get(&lab, VF0).await.ecn
    };
    let profiles = set(&[
        "--ecn",
        "3=5000:200k:1%",
        "--ecn",
        "0=64Ki:128Ki:0.25:wred:enqueue",
    ])
    .await;
    assert_eq!(
        profiles[3],
        v1::EcnProfile {
            ecn: true,
            min_bytes: 5000,
            max_bytes: 200_000,
            max_probability_ppm: 10_000,
            ..v1::EcnProfile::default()
        }
    );
    assert_eq!(
        profiles[0],
        v1::EcnProfile {
            ecn: true,
            wred: true,
            min_bytes: 65_536,
            max_bytes: 131_072,
            max_probability_ppm: 2500,
            at_enqueue: true,
            ..v1::EcnProfile::default()
        }
    );
    let shown = lab.said(&["qos", "show", "vf0"]).await;
    for line in [
        "\t ecn:  marks from 5000 to 200000 bytes up to 1%, beyond it all, at dequeue\n",
        "\t ecn:  marks, or drops (WRED) from 65536 to 131072 bytes up to 0.25%, beyond it all, at enqueue\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    // Off: thresholds stay. Early drops of a lossless priority: said to be without effect.
    let profiles = set(&[
        "--ecn",
        "0=off",
        "--ecn",
        "4=1k:2k:50:drop",
        "-f",
        "0,0,0,0,1,0,0,0",
    ])
    .await;
    assert!(!profiles[0].ecn && !profiles[0].wred && profiles[0].max_bytes == 131_072);
    assert!(!profiles[4].ecn && profiles[4].wred);
    let warnings = get(&lab, VF0).await.warnings;
    assert!(
        warnings[0].contains("drops nothing of priority 4"),
        "{warnings:?}"
    );

    let register = async |name: &str, access: &[&str]| {
        let command = ["qos", "mlxreg", "vf0", "--reg_name", name, "--indexes", INDEXES];
        lab.said(&[&command, access].concat()).await
    };
    // What cards have while nobody has written it.
    let said = register("CWTP", &["--get"]).await;
    for n in 1..=3 {
        for (field, cells) in [("min", "00000040"), ("max", "000038c0"), ("percent", "00000000")] {
            let name = format!("profile{n}_{field}");
            assert!(said.contains(&format!("{name:20}| 0x{cells}\n")), "{said}");
        }
    }
    let said = register(
        "CWTP",
        &[
            "--set",
            "mode=0,profile1_min=0x380,profile1_max=0x2740,profile1_percent=20,profile2_min=0x380,profile2_max=0x2740,\
             profile2_percent=20,profile3_min=0x380,profile3_max=0x2740,profile3_percent=20",
            "-y",
        ],
    )
    .await;
    let expected = "\
Sending access register...
Field Name          | Data
=================================
pnat                | 0x00000002
local_port          | 0x00000000
traffic_class       | 0x00000005
mode                | 0x00000000
profile1_min        | 0x00000380
profile1_max        | 0x00002740
profile1_percent    | 0x00000014
profile2_min        | 0x00000380
profile2_max        | 0x00002740
profile2_percent    | 0x00000014
profile3_min        | 0x00000380
profile3_max        | 0x00002740
profile3_percent    | 0x00000014
=================================
";
    assert_eq!(said, expected);
    register("CWTPM", &["--set", "ee=1,ew=0"]).await;
    let expected = "\
Sending access register...
Field Name       | Data
==============================
pnat             | 0x00000002
local_port       | 0x00000000
traffic_class    | 0x00000005
ee               | 0x00000001
ew               | 0x00000000
==============================
";
    assert_eq!(register("CWTPM", &["--get"]).await, expected);
    let wanted = v1::EcnProfile {
        ecn: true,
        // Cells of 128 bytes.
        min_bytes: 0x380 * 128,
        max_bytes: 0x2740 * 128,
        max_probability_ppm: 200_000,
        ..v1::EcnProfile::default()
    };
    assert_eq!(get(&lab, VF0).await.ecn[5], wanted);

    for (arguments, code, problem) in [
        (
            &["set", "vf0", "--ecn", "3=5000:200k"] as &[&str],
            2,
            "TC=MIN:MAX:PERCENT",
        ),
        (&["set", "vf0", "--ecn", "8=off"], 2, "traffic class"),
        (&["set", "vf0", "--ecn", "3=1:2:101"], 2, "0 to 100 per cent"),
        (
            &["set", "vf0", "--ecn", "3=2k:1k:1"],
            1,
            "min_bytes 2000; allowed: at most max_bytes (1000)",
        ),
        (
            &[
                "mlxreg",
                "vf0",
                "--reg_name",
                "CWTP",
                "--indexes",
                "traffic_class=8",
                "--get",
            ],
            2,
            "0 to 7",
        ),
        (
            &[
                "mlxreg",
                "vf0",
                "--reg_name",
                "CWTP",
                "--indexes",
                INDEXES,
                "--set",
                "mode=1",
            ],
            2,
            "give profile1_min to profile3_max",
        ),
        (
            &[
                "mlxreg",
                "vf0",
                "--reg_name",
                "CWTP",
                "--indexes",
                INDEXES,
                "--set",
                "profile4_percent=9",
            ],
            2,
            "no field that can be written",
        ),
        (
            &[
                "mlxreg",
                "vf0",
                "--reg_name",
                "CWTPM",
                "--indexes",
                INDEXES,
                "--set",
                "ee=2",
            ],
            2,
            "0 to 1",
        ),
    ] {
        let refused = lab.refused(code, &[&["qos"], arguments].concat()).await;
        assert!(refused.contains(problem), "{arguments:?}: {refused}");
    }

    // Three profiles, in per cent; maps by tag and DSCP; buffers; and what sets all of it aside.
    let all = "mode=1,profile1_min=10,profile1_max=60,profile2_min=5,profile2_max=30,profile3_min=0,profile3_max=20";
    register("CWTP", &["--set", all]).await;
    let profiles = set(&[
        "--tag2prio",
        "5=1",
        "--tag2prio",
        "5.1=0",
        "--tag2color",
        "7.0=red",
        "--dscp2color",
        "28=yellow",
        "--prio2pcp",
        "0,1,2,3,4,5,7,6",
        "--beta",
        "800",
        "--buffer-sizes",
        "2048Ki,0,0,2048Ki,0,0,0,0",
        "--prio2buffer",
        "0,0,0,3,0,0,0,0",
        "--vlarb-high",
        "3:100",
        "--vlarb-low",
        "0:64,1:64,2:64,3:32,4:1,5:1,6:1,7:1",
        "--vl-high-limit",
        "4",
    ])
    .await;
    assert!(profiles[5].thresholds_in_percent);
    assert_eq!(
        profiles[5].yellow.map(|c| (c.min_bytes, c.max_bytes)),
        Some((5, 30))
    );
    let fours = "4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4";
    set(&["-u", fours]).await;
    assert_eq!(get(&lab, VF0).await.skprio_to_priority, [4; 16]);
    let refused = lab.refused(2, &["qos", "set", "vf0", "--skprio-up", "4,4"]).await;
    assert!(refused.contains("16 are needed"), "{refused}");
    let shown = lab.said(&["qos", "disable", "vf0"]).await;
    assert!(
        shown.contains(&format!("skprio_to_priority = {fours}\n")),
        "{shown}"
    );
    set(&["--skprio-up", "flush"]).await;
    assert!(get(&lab, VF0).await.skprio_to_priority.is_empty());
    for line in [
        "\t ecn:  marks from 10 to 60% up to 20%; yellow from 5 to 30% up to 20%; red from 0 to 20% up to 20%, beyond it all, at dequeue\n",
        "tag_to_priority = 0,0,1,1,2,2,3,3,4,4,1,0,6,6,7,7\n",
        "tag_to_color = green,yellow,green,yellow,green,yellow,green,yellow,green,yellow,green,yellow,green,yellow,red,yellow\n",
        "priority_to_pcp = 0,1,2,3,4,5,7,6\n",
        "buffer_beta_percent = 800\n",
        "receive_buffers = sizes 2097152,0,0,2097152,0,0,0,0, of priorities 0,0,0,3,0,0,0,0\n",
        "vl_arbitration = high 3:100; low 0:64,1:64,2:64,3:32,4:1,5:1,6:1,7:1; high limit 4\n",
        "disabled = true\n",
        "Note: disabled: ",
    ] {
        assert!(shown.contains(line), "{line}{shown}");
    }
    for (arguments, problem) in [
        (["--tpid", "0x9100"], "tpid: only ports have it"),
        (
            ["--vlarb-low", "0:1,1:1"],
            "vl_arbitration: virtual lane 2, which service level 2 has, has no weight in either table",
        ),
        (
            ["--vlarb-high", "8:1"],
            "vl_arbitration: only ports have virtual lanes 8 to 14",
        ),
        (
            ["--buffer-sizes", "1,0,0,0,0,0,0,0"],
            "receive_buffers: priority 0: buffer 0 has 1 bytes: 2048 are needed",
        ),
    ] {
        let refused = lab
            .refused(1, &[&["qos", "set", "vf0"] as &[&str], &arguments].concat())
            .await;
        assert!(refused.contains(problem), "{refused}");
    }

    // It is stored.
    let before = get(&lab, VF0).await;
    let lab = lab.restart(1).await;
    assert_eq!(get(&lab, VF0).await, before);
    assert!(before.disabled && !lab.said(&["qos", "enable", "vf0"]).await.contains("disabled"));
    lab.said(&["qos", "reset", "vf0"]).await;
    assert_eq!(
        lab.said(&["qos", "show", "vf0"]).await,
        include_str!("../data/qos_show.txt")
    );
    lab.end().await;
}

/// Registers of flow control, priorities and traffic classes; the commands on PFCC are those of a document, slip of the pen included.
#[tokio::test(flavor = "multi_thread")]
async fn registers_by_field() {
    let lab = Lab::start(1).await;
    let register = async |name: &str, access: &[&str]| {
        lab.said(&[&["qos", "mlxreg", "vf0", "--reg_name", name], access].concat())
            .await
    };
    let indexes = "pnat=0x0,local_port=0x1,ddbx_operation_type=0x0";
    let said = register(
        "PFCC",
        &[
            "--indexes",
            indexes,
            "--set",
            "critical_stall_mask=0x1,prio_mask_tx=0xff,prio_mask_rx=0xff,device_stall_critical_watermark=0x64",
        ],
    )
    .await;
    assert!(
        said.contains("device_stall_critical_watermark    | 0x00000064\n"),
        "{said}"
    );
    register("pfcc", &["--set", "pfctx=8,pfcrx=8,cable_length=0x54"]).await;
    register("QPTS", &["--indexes", "local_port=1", "--set", "trust_state=2"]).await;
    register("QPDPM", &["--set", "dscp[30]=0x8005"]).await;
    register(
        "QTCT",
        &["--indexes", "local_port=1,switch_prio=5", "--set", "tclass=3"],
    )
    .await;
    register(
        "QETCR",
        &[
            "--set",
            "tc_configuration[2].group=1,tc_configuration[0].group=0,tc_configuration[1].group=0,\
             tc_configuration[0].bw_allocation=30,tc_configuration[1].bw_allocation=70,\
             tc_configuration[7].max_bw_units=4,tc_configuration[7].max_bw_value=5",
        ],
    )
    .await;
    let now = get(&lab, VF0).await;
    assert_eq!(
        (now.storm_critical_ms, now.storm_minor_ms, now.cable_length_m),
        (100, 85, 20)
    );
    assert_eq!(now.pfc.iter().position(|on| *on), Some(3));
    assert_eq!((now.trust(), now.dscp_to_priority[30]), (Trust::Dscp, 5));
    assert_eq!((now.priority_to_tc[5], now.tc_bandwidth_percent[1]), (3, 70));
    assert_eq!(now.tc_rate_limit_bps[7], 5_000_000_000);
    use v1::qos::Algorithm::{Ets, Strict, Vendor};
    let algorithms: Vec<_> = now.tc_algorithm().collect();
    assert_eq!(
        algorithms,
        [Ets, Ets, Strict, Vendor, Vendor, Vendor, Vendor, Vendor]
    );
    // The words of sysfs.
    for (word, ms) in [("auto", 100), ("default", 8000)] {
        lab.said(&["qos", "set", "vf0", "--pfc_stall_prevention", word])
            .await;
        assert_eq!(get(&lab, VF0).await.storm_critical_ms, ms);
    }
    // Names of fields, without a register's value.
    let said = lab.said(&["qos", "mlxreg", "vf0", "--show_reg", "QTCT"]).await;
    assert!(
        said.contains("tclass               | 0x00000004 |      0 |    4 | RW"),
        "{said}"
    );
    let refused = lab.refused(
        1,
        &[
            "qos",
            "mlxreg",
            "vf0",
            "--reg_name",
            "PFCC",
            "--set",
            "device_stall_critical_watermark=9000",
        ],
    );
    let refused = refused.await;
    assert!(
        refused.contains("storm_critical_ms") || refused.contains("8000"),
        "{refused}"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_policies() {
    let mut lab = Lab::start(1).await;
    lab.said(&[
        "qos",
        "limit",
        "vf0",
        "--max",
        "5G",
        "--min",
        "100M",
        "--tc",
        "3=2G:500M",
    ])
    .await;
    let queue = get(&lab, VF0).await.schedule_queue.expect("a queue");
    assert_eq!(
        (queue.max_bps[0], queue.max_bps[3]),
        (5_000_000_000, 2_000_000_000)
    );
    assert_eq!((queue.min_bps[0], queue.min_bps[3]), (100_000_000, 500_000_000));
    let refused = lab.refused(1, &["qos", "limit", "vf0", "--tc", "3=0"]).await;
    assert!(
        refused.contains("qos.schedule_queue") && refused.contains("or none"),
        "{refused}"
    );
    let refused = lab.refused(1, &["qos", "limit", "vf0", "--tc", "3=1G:2G"]).await;
    assert!(refused.contains("above the maximum"), "{refused}");
    lab.refused(2, &["qos", "limit", "vf0"]).await;
    lab.refused(2, &["qos", "limit", "vf0", "--none", "--max", "1G"])
        .await;

    lab.said(&["qos", "policy", "add", "vf0", "SMB", "--smb", "--priority", "3"])
        .await;
    lab.said(&[
        "qos",
        "policy",
        "add",
        "vf0",
        "web",
        "--ports",
        "80-443",
        "--protocol",
        "tcp",
        "--dscp",
        "16",
    ])
    .await;
    lab.said(&[
        "qos",
        "policy",
        "add",
        "vf0",
        "DEFAULT",
        "--default",
        "--priority",
        "1",
        "--dscp",
        "9",
    ])
    .await;
    let listed = "\
NAME     MATCH          PRIORITY  DSCP
SMB      SMB                   3     -
web      TCP to 80-443         -    16
DEFAULT  default               1     9
";
    assert_eq!(lab.said(&["qos", "policy", "list", "vf0"]).await, listed);
    for (arguments, code, problem) in [
        (
            &["add", "vf0", "smb", "--tcp", "--priority", "1"] as &[&str],
            1,
            "taken",
        ),
        (
            &[
                "add",
                "vf0",
                "nd",
                "--net-direct-port",
                "65536",
                "--priority",
                "3",
            ],
            2,
            "65536",
        ),
        (&["add", "vf0", "x", "--tcp"], 2, "--priority"),
        (
            &["add", "vf0", "x", "--tcp", "--dscp", "64"],
            2,
            "64 is not in 0..64",
        ),
        (
            &["add", "vf0", "x", "--ports", "9-8", "--dscp", "1"],
            1,
            "above the last",
        ),
        (&["remove", "vf0", "nothing"], 1, "no policy"),
    ] {
        let refused = lab.refused(code, &[&["qos", "policy"], arguments].concat()).await;
        assert!(refused.contains(problem), "{arguments:?}: {refused}");
    }
    lab = lab.restart(1).await;
    assert_eq!(lab.said(&["qos", "policy", "list", "vf0"]).await, listed);
    assert_eq!(get(&lab, VF0).await.schedule_queue, Some(queue));
    lab.said(&["qos", "policy", "remove", "vf0", "smb", "web"]).await;
    assert_eq!(get(&lab, VF0).await.policies.len(), 1);
    lab.said(&["qos", "policy", "remove", "vf0", "--all"]).await;
    lab.said(&["qos", "limit", "vf0", "--none"]).await;
    let now = get(&lab, VF0).await;
    assert_eq!((now.schedule_queue, now.policies.len()), (None, 0));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_of_mlx5cmd() {
    let lab = Lab::start(1).await;
    let config = [
        "mlx5cmd",
        "-QosConfig",
        "-DefaultUntaggedPriority",
        "-Name",
        "vf0",
    ];
    let said = lab.said(&[&config[..], &["-Get"]].concat()).await;
    assert!(said.contains("Default untagged priority: 0"), "{said}");
    lab.said(&[&config[..], &["-Set", "5"]].concat()).await;
    assert_eq!(get(&lab, VF0).await.default_priority, 5);
    // As documented: what is not allowed is the default.
    let said = lab.said(&[&config[..], &["-Set", "8"]].concat()).await;
    assert!(said.contains("the default, 0, is stored instead"), "{said}");
    assert_eq!(get(&lab, VF0).await.default_priority, 0);
    let features = lab.said(&["mlx5cmd", "-Features", "-Name", "vf0"]).await;
    assert!(features.contains("QoS offload: Enabled"), "{features}");
    set_key(&lab, "*QoSOffload", "0").await;
    lab.said(&["adapter", "restart", "vf0"]).await;
    let features = lab.said(&["mlx5cmd", "-features", "-name", "vf0"]).await;
    assert!(
        features.contains("QoS offload: Disabled (*QoSOffload is 0)"),
        "{features}"
    );
    // Without a name: all adapters.
    let features = lab.said(&["mlx5cmd", "-Features"]).await;
    assert!(
        features.contains("Features of adapter 'vf0':\n") && features.contains("Enhanced connection"),
        "{features}"
    );
    let said = lab.json(&[&config[..], &["-Get"]].concat()).await;
    assert_eq!(said["default_priority"], json!(0));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_pairs_have_rates() {
    let lab = Lab::start(1).await;
    assert_eq!(
        lab.said(&["qos", "pacing", "vf0"]).await,
        "no queue pair has a rate\n"
    );
    let refused = lab.refused(1, &["qos", "pacing", "vf0", "17", "2G"]).await;
    assert!(
        refused.contains("NOT_FOUND") && refused.contains("queue pair"),
        "{refused}"
    );
    let refused = lab.refused(1, &["qos", "pacing", "vf9", "17", "2G"]).await;
    assert!(
        refused.contains("NOT_FOUND") && refused.contains("vf9"),
        "{refused}"
    );
    let refused = lab.refused(1, &["qos", "pacing", "vf0", "17", "1001"]).await;
    assert!(
        refused.contains("rate_bps") && refused.contains("steps of 1000"),
        "{refused}"
    );
    lab.refused(2, &["qos", "pacing", "vf0", "16777216", "2G"]).await;
    lab.refused(2, &["qos", "pacing", "vf0", "17"]).await;
    for (adapter, queue_pair, rate_bps, field) in [
        ("vf0", 1, 0, "adapter"),
        ("adapters/vf0", 1 << 24, 0, "queue_pair"),
        ("adapters/vf0", 1, 1_000_000_001_000, "rate_bps"),
    ] {
        let request = v1::SetQueuePairRateRequest {
            adapter: adapter.to_owned(),
            queue_pair,
            rate_bps,
        };
        let status = service(&lab).set_queue_pair_rate(request).await.expect_err(field);
        assert_eq!(fields(&status), [field]);
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_nothing_is_no_adapter_and_no_port() {
    let lab = Lab::start(1).await;
    for arguments in [
        &["qos", "show", "p9"][..],
        &["qos", "set", "p9", "--rate", "1G"],
        &["qos", "reset", "p9"],
    ] {
        let said = lab.refused(1, arguments).await;
        assert!(said.contains("there is no adapter and no port p9"), "{said}");
    }
    lab.end().await;
}

/// A port has traffic classes by the adapter or port that a frame came by: given, shown, stored, and taken away.
#[tokio::test(flavor = "multi_thread")]
async fn classes_by_the_port_that_a_frame_came_by() {
    let Some(wires) = Wires::new("classes_by_the_port_that_a_frame_came_by", 1) else {
        return;
    };
    let lab = Lab::start(1).await;
    let (end, _) = wires.ends(0);
    lab.said(&["port", "add", "p0", "--packet", end]).await;
    // One of them comes later.
    let tables = [
        "--prio-tc-from",
        "vf0=7,7,7,7,7,7,7,7",
        "--prio-tc-from",
        "late=0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,6",
        "--upper-sl-tc",
        "0,0,0,0,1,1,1,1",
    ];
    lab.said(&[&["qos", "set", "p0"][..], &tables].concat()).await;
    let line = "priority_to_tc_by_port = late 0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,6; vf0 7,7,7,7,7,7,7,7\n";
    let shown = lab.said(&["qos", "show", "p0"]).await;
    assert!(shown.contains(line), "{shown}");
    let acting = |lab: &Lab| {
        let acting = lab.daemon.control().nic.qos("p0").expect("p0").acting;
        let tables = acting.classes.by_source.iter();
        tables.map(|(_, table)| *table).collect::<Vec<_>>()
    };
    let both = [[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 6], [7; 16]];
    let upper = |lab: &Lab| {
        lab.daemon
            .control()
            .nic
            .qos("p0")
            .expect("p0")
            .acting
            .classes
            .of_upper
    };
    assert_eq!(acting(&lab), both[1..]);
    lab.said(&["adapter", "add", "late"]).await;
    assert_eq!(acting(&lab), both);
    let lab = lab.restart(1).await;
    assert_eq!(
        (acting(&lab), upper(&lab)),
        (both.to_vec(), Some([0, 0, 0, 0, 1, 1, 1, 1]))
    );
    let shown = lab.said(&["qos", "show", "p0"]).await;
    assert!(
        shown.contains(line) && shown.contains("\t service level:  15\n"),
        "{shown}"
    );
    lab.said(&["qos", "set", "p0", "--upper-sl-tc", "none"]).await;
    assert_eq!(upper(&lab), None);
    // All fifteen lanes, and as many as NUM_OF_VL says from the device's reset on.
    let lanes = [
        "--upper-sl-tc",
        "8,9,10,11,12,13,14,14",
        "--vlarb-high",
        "14:1",
        "--vlarb-low",
        "0:1,1:1,2:1,3:1,4:1,5:1,6:1,7:1,8:1,9:1,10:1,11:1,12:1,13:1",
    ];
    let without = lab.refused(1, &["qos", "set", "p0", lanes[0], lanes[1]]).await;
    assert!(
        without.contains("service level 8: 8 is out of range: 0 to 7"),
        "{without}"
    );
    let shown = lab.said(&[&["qos", "set", "p0"][..], &lanes].concat()).await;
    assert!(
        shown.contains("lane: 14\n\t service level:  14\n\t service level:  15\n"),
        "{shown}"
    );
    assert_eq!(upper(&lab), Some([8, 9, 10, 11, 12, 13, 14, 14]));
    lab.said(&["nvconfig", "set", "-y", "NUM_OF_VL=8"]).await;
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert_eq!(upper(&lab), Some([7; 8]));
    let shown = lab.said(&["qos", "show", "p0"]).await;
    assert!(shown.contains("NUM_OF_VL allows virtual lane 0 to 7"), "{shown}");
    lab.said(&[
        "qos",
        "set",
        "p0",
        "--upper-sl-tc",
        "none",
        "--vlarb-high",
        "none",
        "--vlarb-low",
        "none",
    ])
    .await;
    for (owner, table, problem) in [
        ("p0", "vf0=15,0,0,0,0,0,0,0", "0 to 14"),
        ("p0", "vf0=0,0,0,0,0,0,0,0,0", "8 are needed"),
        ("p0", "vf0", "NAME=LIST"),
        (
            "vf0",
            "late=0,0,0,0,0,0,0,0",
            "priority_to_tc_by_port: only ports have it",
        ),
    ] {
        let all = ["qos", "set", owner, "--prio-tc-from", table];
        let code = if owner == "p0" { 2 } else { 1 };
        let said = lab.refused(code, &all).await;
        assert!(said.contains(problem), "{said}");
    }
    lab.said(&["qos", "set", "p0", "--prio-tc-from", "vf0=none"])
        .await;
    assert_eq!(acting(&lab), both[..1]);
    lab.said(&["adapter", "remove", "late"]).await;
    assert!(acting(&lab).is_empty());
    lab.said(&["qos", "reset", "p0"]).await;
    let shown = lab.said(&["qos", "show", "p0"]).await;
    assert!(!shown.contains("by_port"), "{shown}");
    lab.end().await;
}
