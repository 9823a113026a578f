//! Data center bridging exchange by `vnicctl`, the configuration file, the registry and NV parameters.

use std::path::Path;

use serde_json::json;
use vnic_appliance::config::{Environment, Overrides, Settings};

use crate::common::lab::Lab;
use crate::common::wires::Wires;

/// Register PFCC tells what acts, what the operator wants and what the peer says.
#[tokio::test(flavor = "multi_thread")]
async fn the_register_of_flow_control_has_three_kinds() {
    let Some(wires) = Wires::new("the_register_of_flow_control_has_three_kinds", 1) else {
        return;
    };
    let lab = Lab::start(1).await;
    let (one, other) = wires.ends(0);
    for (port, end, willing, pfc) in [
        ("p0", one, "pfc", "0,0,0,1,0,0,0,0"),
        ("p1", other, "none", "0,0,0,0,0,1,0,0"),
    ] {
        let add = [
            "port",
            "add",
            port,
            "--packet",
            end,
            "--lldp",
            "rx-and-tx",
            "--speed",
            "10G",
        ];
        let dcbx = ["--dcbx", "ieee", "--dcbx-willing", willing];
        lab.said(&[&add[..], &dcbx].concat()).await;
        lab.said(&["qos", "set", port, "--pfc", pfc]).await;
    }
    let register = ["qos", "mlxreg", "p0", "--reg_name", "PFCC"];
    let field = async |name: &str, kind: &str| {
        let indexes = format!("local_port=1,pnat=0,dcbx_operation_type={kind}");
        let said = lab
            .said(&[&register[..], &["--get", "--indexes", &indexes]].concat())
            .await;
        let row = said.lines().find(|line| line.starts_with(name)).expect("a row");
        row.split_once("| ").expect("a value").1.to_owned()
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while field("pfctx", "0").await != "0x00000020" {
        assert!(
            std::time::Instant::now() < end,
            "{}",
            lab.said(&["dcbx", "show"]).await
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(field("pfctx", "1").await, "0x00000008");
    assert_eq!(field("pfcrx", "2").await, "0x00000020");
    assert_eq!(field("cap_remote_admin", "0").await, "0x00000001");
    let write = ["--set", "pfctx=1,pfcrx=1", "--indexes", "dcbx_operation_type=2"];
    let refused = lab.refused(2, &[&register[..], &write].concat()).await;
    assert!(refused.contains("can only be read"), "{refused}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_gives_a_port_is_shown_and_stored() {
    let Some(wires) = Wires::new("what_an_operator_gives_a_port_is_shown_and_stored", 1) else {
        return;
    };
    let lab = Lab::start(1).await;
    let (end, _) = wires.ends(0);
    lab.said(&[
        "port", "add", "p0", "--packet", end, "--dcbx", "ieee", "--speed", "10G",
    ])
    .await;
    let text = lab.said(&["dcbx", "show", "p0"]).await;
    assert_eq!(
        text,
        "p0: DCBX ieee, and does not act: that needs lldp rx-and-tx, and quality of service\n"
    );
    let set = [
        "port",
        "set",
        "p0",
        "--lldp",
        "rx-and-tx",
        "--dcbx-willing",
        "ets,pfc",
    ];
    let rows = [
        "--dcbx-application",
        "udp:4791=3",
        "--dcbx-application",
        "dscp:26=3",
    ];
    lab.said(&[&set[..], &rows[..]].concat()).await;
    lab.said(&["qos", "set", "p0", "--pfc", "0,0,0,1,0,0,0,0"]).await;
    let shown = lab.json(&["dcbx", "show", "p0"]).await;
    let wanted = json!({
        "mode": "DCBX_MODE_IEEE",
        "ets_willing": true,
        "pfc_willing": true,
        "applications_willing": false,
        "applications": [
            { "selector": 3, "protocol": 4791, "priority": 3 },
            { "selector": 5, "protocol": 26, "priority": 3 },
        ],
    });
    assert_eq!(shown["dcbx"], wanted);
    let state = &shown["dcbx_state"];
    for side in ["administrative", "operational"] {
        assert_eq!(state[side]["pfc_priorities"], json!([3]), "{state}");
        assert_eq!(state[side]["applications"], wanted["applications"], "{state}");
    }
    assert_eq!(
        (&state["peers"], &state["pfc_from_peer"]),
        (&json!(0), &json!(false))
    );
    let text = lab.said(&["dcbx", "show"]).await;
    assert!(text.starts_with("p0: DCBX ieee, no peer; messages: "), "{text}");
    let row = text.lines().find(|line| line.starts_with("pfc")).expect("a row");
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!(words, ["pfc", "yes", "priorities", "3", "priorities", "3", "own"]);

    // What is wrong is refused, with what is allowed.
    for (option, value, allowed) in [
        ("--dcbx", "cisco", "off, ieee, cee, auto"),
        ("--dcbx-willing", "pgs", "ets, pfc, applications"),
        ("--dcbx-application", "udp:4791=9", "0 to 7"),
    ] {
        let text = lab.refused(2, &["port", "set", "p0", option, value]).await;
        assert!(text.contains(allowed), "{text}");
    }
    let twice = ["--dcbx-application", "udp:1=1", "--dcbx-application", "udp:1=2"];
    let text = lab
        .refused(1, &[&["port", "set", "p0"][..], &twice[..]].concat())
        .await;
    assert!(text.contains("the protocol has a row already"), "{text}");

    // It speaks, and counts.
    let counted = lab.json(&["counter", "show", "p0"]).await.to_string();
    for name in [
        "rx_dcbx_frames",
        "rx_dcbx_errors",
        "tx_dcbx_frames",
        "dcbx_changes",
    ] {
        assert!(counted.contains(name), "{counted}");
    }
    lab.said(&["port", "set", "p0", "--dcbx", "auto"]).await;
    let text = lab.said(&["dcbx", "show", "p0"]).await;
    assert!(
        text.starts_with("p0: DCBX ieee (auto), no peer; messages: "),
        "{text}"
    );
    lab.said(&["port", "set", "p0", "--dcbx", "cee"]).await;
    let text = lab.said(&["dcbx", "show", "p0"]).await;
    assert!(text.starts_with("p0: DCBX cee, no peer; messages: "), "{text}");
    let lab = lab.restart(1).await;
    let again = lab.json(&["dcbx", "show", "p0"]).await;
    let wanted = json!({
        "mode": "DCBX_MODE_CEE",
        "ets_willing": wanted["ets_willing"],
        "pfc_willing": wanted["pfc_willing"],
        "applications_willing": wanted["applications_willing"],
        "applications": wanted["applications"],
    });
    assert_eq!(again["dcbx"], wanted);
    assert_eq!(again["dcbx_state"]["operational"]["pfc_priorities"], json!([3]));
    lab.said(&["port", "set", "p0", "--dcbx", "off", "--dcbx-application", "none"])
        .await;
    let text = lab.said(&["dcbx", "show", "p0"]).await;
    assert_eq!(text, "p0: DCBX off\n");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nv_parameters_and_the_drivers_key_give_a_port_dcbx() {
    let Some(wires) = Wires::new("nv_parameters_and_the_drivers_key_give_a_port_dcbx", 1) else {
        return;
    };
    let lab = Lab::start(1).await;
    let (end, _) = wires.ends(0);
    lab.said(&["port", "add", "p0", "--packet", end]).await;
    let modes = [
        "LLDP_NB_RX_MODE_P1=ALL",
        "LLDP_NB_TX_MODE_P1=2",
        "LLDP_NB_DCBX_P1=1",
        "DCBX_WILLING_P1=0",
    ];
    lab.said(&[&["nvconfig", "set", "-y"][..], &modes[..]].concat())
        .await;
    let shown = async |lab: &Lab| {
        let port = lab.json(&["dcbx", "show", "p0"]).await;
        let lldp = port
            .get("lldp_counters")
            .is_some_and(|counters| !counters.is_null());
        let dcbx = port.get("dcbx_state").filter(|state| !state.is_null()).cloned();
        (lldp, dcbx)
    };
    assert_eq!(shown(&lab).await, (false, None), "they wait for the reset");
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert_eq!(shown(&lab).await, (true, None), "DCBX waits for the driver");
    lab.said(&["registry", "set", "vf0", "DcbxMode", "2"]).await;
    assert_eq!(
        shown(&lab).await,
        (true, None),
        "the key waits for the adapter's restart"
    );
    lab.said(&["adapter", "restart", "vf0"]).await;
    let (_, dcbx) = shown(&lab).await;
    let dcbx = dcbx.expect("DCBX");
    assert_eq!(dcbx["operational"]["pfc_willing"], json!(false), "{dcbx}");
    assert_eq!(dcbx["version"], json!("DCBX_MODE_IEEE"), "it begins with that");
    // Both the port and the adapter say who rules quality of service.
    for name in ["p0", "vf0"] {
        let text = lab.said(&["qos", "show", name]).await;
        assert!(text.starts_with("DCBX mode: Firmware controlled\n"), "{text}");
        assert!(text.contains("\nDCBX: ieee\n"), "{text}");
    }
    // One version of the two, and none.
    for (ieee, cee, version) in [
        (0, 1, Some("DCBX_MODE_CEE")),
        (1, 0, Some("DCBX_MODE_IEEE")),
        (0, 0, None),
    ] {
        let (ieee, cee) = (format!("DCBX_IEEE_P1={ieee}"), format!("DCBX_CEE_P1={cee}"));
        lab.said(&["nvconfig", "set", "-y", &ieee, &cee]).await;
        lab.said(&["nvconfig", "device-reset", "-y"]).await;
        let (_, dcbx) = shown(&lab).await;
        assert_eq!(
            dcbx.map(|dcbx| dcbx["version"].clone()),
            version.map(|v| json!(v))
        );
    }
    let text = lab.said(&["qos", "show", "p0"]).await;
    assert!(text.starts_with("DCBX mode: OS controlled\n"), "{text}");
    lab.said(&["nvconfig", "set", "-y", "DCBX_IEEE_P1=1", "DCBX_CEE_P1=1"])
        .await;
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    // The start of the daemon is a reset, too; and what the operator gives the port goes before it.
    let lab = lab.restart(1).await;
    let (lldp, dcbx) = shown(&lab).await;
    assert!(lldp && dcbx.is_some(), "{dcbx:?}");
    lab.said(&["port", "set", "p0", "--lldp", "tx-only"]).await;
    assert_eq!(shown(&lab).await, (true, None));
    lab.said(&["port", "set", "p0", "--lldp", "disabled"]).await;
    lab.said(&["registry", "remove", "vf0", "DcbxMode"]).await;
    lab.said(&["adapter", "restart", "vf0"]).await;
    assert_eq!(shown(&lab).await, (true, None));
    lab.said(&["nvconfig", "reset", "-y"]).await;
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert_eq!(shown(&lab).await, (false, None));
    lab.end().await;
}

#[test]
fn wrong_keys_are_reported_with_their_place() {
    let environment = Environment {
        runtime_directory: None,
        state_directory: None,
        xdg_runtime_dir: Some("/run/user/1000".into()),
        root: false,
        cpus: (0..8).collect(),
        machine_id: "test".to_owned(),
    };
    let text = "[[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"e0\"\ndcbx = \"cin\"\n\
                dcbx_willing = [\"pfc\", \"all\"]\ndcbx_applications = [\"udp:4791=3\", \"roce=3\", \"udp:4791=4\"]\n";
    let parsed = Settings::from_text(Path::new("x.toml"), text, &Overrides::default(), &environment);
    let found = parsed.expect_err("the file is wrong").to_string();
    for (line, key) in [
        (5, "dcbx: \"cin\"; allowed are off, ieee, cee, auto"),
        (6, "dcbx_willing[1]: \"all\"; allowed are ets, pfc, applications"),
        (7, "dcbx_applications[1]: \"roce=3\" is no row"),
        (
            7,
            "dcbx_applications[2]: the protocol has a row already, udp:4791=3",
        ),
    ] {
        let is = |l: &str| l.starts_with(&format!("x.toml:{line}:")) && l.contains(key);
        assert!(found.lines().any(is), "{line}: {key}: {found}");
    }
}
