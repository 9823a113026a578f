//! Congestion control by `vnicctl cc` and `vnicctl mlx5cmd -QosConfig -Dcqcn`; zero touch RoCE by `-ZtRoce` and register
//! ROCE_ACCL.

use crate::common::lab::Lab;
use serde_json::json;

/// The attributes as the Windows tool shows them, of an adapter that nobody has configured.
const TOOL: &str = include_str!("../data/dcqcn_get.txt");

/// The number that `cc` shows of a parameter.
async fn value(lab: &Lab, name: &str) -> String {
    lab.said(&["cc", "get", "vf0", name]).await.trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_of_cc() {
    let lab = Lab::start(2).await;
    let shown = lab.said(&["cc", "show", "vf0"]).await;
    for line in [
        "Algorithm: dcqcn\n",
        "Preset: winof2-doc\n",
        "Line rate: 100 Gbps\n",
        "Reaction point, priorities: none\n",
        "Notification point, priorities: none\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(
        lab.said(&["cc", "list"]).await,
        "\
NAME  ALGORITHM  PRESET      RP    NP    SET  LINE RATE
vf0   dcqcn      winof2-doc  none  none    0   100 Gbps
vf1   dcqcn      winof2-doc  none  none    0   100 Gbps
"
    );

    // Names of WinOF-2, of sysfs and of debugfs.
    for (name, number) in [
        ("DcqcnRpgAiRate", "40"),
        ("rpg_hai_rate", "200"),
        ("rp_time_reset", "55"),
    ] {
        lab.said(&["cc", "set", "vf0", &format!("{name}={number}")]).await;
        assert!(value(&lab, name).await.ends_with(&format!("={number}")));
    }
    assert_eq!(value(&lab, "rp_hai_rate").await, "DcqcnRpgHaiRate=200");
    lab.said(&[
        "cc",
        "set",
        "vf0",
        "np_cnp_scope=ip-pair",
        "np_min_time_between_cnps=0x32",
    ])
    .await;
    assert_eq!(value(&lab, "np_cnp_scope").await, "np_cnp_scope=1");
    assert_eq!(
        value(&lab, "min_time_between_cnps").await,
        "np_min_time_between_cnps=50"
    );
    let shown = lab.said(&["cc", "show", "vf0"]).await;
    assert!(shown.contains("np_cnp_scope"), "{shown}");
    let row = shown.lines().find(|l| l.starts_with("DcqcnRpgAiRate"));
    let row: Vec<&str> = row.expect("a row").split_whitespace().collect();
    assert_eq!(row[1..5], ["40", "Mbit/s", "set", "1"]);
    let defaults = lab.said(&["cc", "defaults", "vf0"]).await;
    let row = defaults.lines().find(|l| l.starts_with("DcqcnRpgAiRate"));
    let row: Vec<&str> = row.expect("a row").split_whitespace().collect();
    assert_eq!(row[1..], ["10", "40", "Mbit/s"]);
    // What one adapter has, another takes.
    lab.said(&["cc", "set", "vf0", "swift.base=30us", "timely.step=40M"])
        .await;
    let shown = lab.said(&["cc", "show", "vf0"]).await;
    assert!(
        !shown.contains("swift."),
        "parameters of another algorithm: {shown}"
    );
    let all = lab.said(&["cc", "get", "vf0"]).await;
    assert!(all.contains("\nswift.base=30000\n"), "{all}");
    let words: Vec<&str> = ["cc", "set", "vf1"].into_iter().chain(all.lines()).collect();
    lab.said(&words).await;
    assert_eq!(lab.said(&["cc", "get", "vf1"]).await, all);
    lab.said(&["cc", "set", "vf0", "DcqcnRpgAiRate="]).await;
    assert_eq!(value(&lab, "rp_ai_rate").await, "DcqcnRpgAiRate=10");

    for (arguments, rp, np) in [
        (&["enable", "vf0", "3"] as &[&str], "3", "3"),
        (&["enable", "vf0", "5", "6", "--rp"], "3,5,6", "3"),
        (&["disable", "vf0", "3", "--np"], "3,5,6", "none"),
        (&["enable", "vf0"], "all", "all"),
        (&["disable", "vf0", "0"], "1,2,3,4,5,6,7", "1,2,3,4,5,6,7"),
        (&["disable", "vf0"], "none", "none"),
    ] {
        let shown = lab.said(&[&["cc"], arguments].concat()).await;
        let ends = format!("Reaction point, priorities: {rp}\n");
        assert!(shown.contains(&ends), "{arguments:?}: {shown}");
        let ends = format!("Notification point, priorities: {np}\n");
        assert!(shown.contains(&ends), "{arguments:?}: {shown}");
    }

    lab.said(&[
        "cc",
        "set",
        "vf0",
        "--preset",
        "mlx-fw",
        "--algorithm",
        "swift",
        "rp_gd=10",
    ])
    .await;
    let shown = lab.said(&["cc", "show", "vf0"]).await;
    let row = shown.lines().find(|l| l.starts_with("swift.base "));
    let row: Vec<&str> = row.expect("a row").split_whitespace().collect();
    assert_eq!(row[1..4], ["30000", "30us", "set"]);
    assert!(!shown.contains("timely."), "{shown}");
    let now = lab.json(&["cc", "show", "vf0"]).await;
    assert_eq!(
        (&now["preset"], &now["algorithm"]),
        (&json!("mlx-fw"), &json!("swift"))
    );
    assert_eq!(
        value(&lab, "DcqcnAlphaToRateShift").await,
        "DcqcnAlphaToRateShift=10"
    );
    lab.said(&["cc", "restore", "vf0"]).await;
    assert_eq!(
        lab.json(&["cc", "show", "vf0"]).await["preset"],
        json!("winof2-doc")
    );

    let presets = lab.said(&["cc", "presets"]).await;
    for word in ["ALGORITHM", "dcqcn+", "of queues with a rate", "MLX-FW"] {
        assert!(presets.contains(word), "{presets}");
    }
    assert_eq!(lab.said(&["cc", "flows"]).await, "no queue pair is limited\n");
    assert_eq!(
        lab.said(&["cc", "flows", "vf0"]).await,
        "no queue pair is limited\n"
    );

    // An event says what, and who.
    let events = lab.json(&["event", "list", "--kind", "settings_changed"]).await;
    let told = events["events"].as_array().expect("events");
    let of = |text: &str| {
        told.iter().any(|e| {
            e["parameters"]["store"] == "congestion"
                && e["message"].as_str().is_some_and(|m| m.contains(text))
        })
    };
    assert!(of("DcqcnRpgAiRate 40") && of("preset mlx-fw"), "{told:?}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cc_refuses() {
    let lab = Lab::start(1).await;
    for (code, arguments, problem) in [
        (2, &["set", "vf0"] as &[&str], "required"),
        (2, &["set", "vf0", "rp_gd"], "NAME=VALUE"),
        (2, &["enable", "vf0", "8"], "0..=7"),
        (2, &["enable", "vf0", "--rp", "--np"], "cannot be used with"),
        (1, &["set", "vf0", "rp_gd=12"], "0 to 11"),
        (1, &["set", "vf0", "rp_gdd=1"], "did you mean rp_gd?"),
        (1, &["set", "vf0", "swift.base=2h"], "parameters[swift.base]"),
        (1, &["set", "vf0", "swift.base=2h"], "1ns to 1s"),
        (1, &["set", "vf0", "--preset", "fast"], "known are winof2-doc"),
        (1, &["set", "vf0", "--algorithm", "bbr"], "known are dcqcn"),
        (
            1,
            &["set", "vf0", "rp_ai_rate=100001"],
            "100000 Mbit/s, is stored instead",
        ),
        (1, &["get", "vf0", "rp_nothing"], "no parameter"),
        (1, &["show", "vf9"], "vf9"),
        (1, &["flows", "vf9"], "vf9"),
    ] {
        let refused = lab.refused(code, &[&["cc"], arguments].concat()).await;
        assert!(refused.contains(problem), "{arguments:?}: {refused}");
    }
    assert_eq!(value(&lab, "rp_ai_rate").await, "DcqcnRpgAiRate=100000");
    for verb in [
        "show", "get", "set", "enable", "disable", "defaults", "restore", "presets", "flows",
    ] {
        let help = lab.said(&["cc", verb, "--help"]).await;
        assert!(help.contains("Example"), "{verb}: {help}");
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_of_mlx5cmd() {
    let lab = Lab::start(1).await;
    let dcqcn = async |arguments: &[&str]| {
        let words = [&["mlx5cmd", "-QosConfig", "-Dcqcn", "-Name", "vf0"], arguments];
        lab.said(&words.concat()).await
    };
    const DONE: &str = "The command was executed successfully\n";
    assert_eq!(dcqcn(&["-Get"]).await, TOOL);
    assert_eq!(dcqcn(&["-Enable"]).await, DONE);
    let on = TOOL.lines().map(|line| match line.split_once(": ") {
        Some((name, "0")) if name.contains("EnablePrio") => format!("{name}: 1\n"),
        _ => format!("{line}\n"),
    });
    assert_eq!(dcqcn(&["-Get"]).await, on.collect::<String>());
    dcqcn(&["-Disable"]).await;
    dcqcn(&["-Enable", "3"]).await;
    let said = dcqcn(&["-Get"]).await;
    assert!(
        said.contains("DcqcnRPEnablePrio3: 1\n") && said.contains("DcqcnNPEnablePrio3: 1\n"),
        "{said}"
    );
    assert_eq!(said.matches("1\n").count(), TOOL.matches("1\n").count() + 2);

    // As in the document.
    dcqcn(&["-Set", "-DcqcnClampTgtRate", "1", "-DcqcnCnpDscp", "3"]).await;
    let said = dcqcn(&["-Get"]).await;
    assert!(
        said.contains("DcqcnClampTgtRate: 1\n") && said.contains("DcqcnCnpDscp: 3\n"),
        "{said}"
    );
    let defaults = dcqcn(&["-Defaults"]).await;
    assert_eq!(defaults, TOOL);
    assert_eq!(
        lab.said(&["mlx5cmd", "-Dcqcn", "-Name", "vf0", "-Restore"]).await,
        DONE
    );
    assert_eq!(dcqcn(&["-Get"]).await, TOOL);
    let words = ["mlx5cmd", "-QosConfig", "-Dcqcn", "-Name", "vf0", "-Set"];
    let refused = lab
        .refused(1, &[&words[..], &["-DcqcnRpgHaiRate", "200000"]].concat())
        .await;
    assert!(refused.contains("is above the line rate"), "{refused}");
    assert!(dcqcn(&["-Get"]).await.contains("DcqcnRpgHaiRate: 100000\n"));
    lab.refused(2, &words).await;
    // The priorities are parameters as well.
    let enable = [
        "-DcqcnEnablePrio3",
        "1",
        "-dcqcnenableprio0",
        "0",
        "-DcqcnCnpDscp",
        "9",
    ];
    lab.said(&[&words[..], &enable].concat()).await;
    let said = dcqcn(&["-Get"]).await;
    for line in [
        "DcqcnRPEnablePrio3: 1\n",
        "DcqcnRPEnablePrio0: 0\n",
        "DcqcnCnpDscp: 9\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    let refused = lab
        .refused(1, &[&words[..], &["-DcqcnEnablePrio3", "2"]].concat())
        .await;
    assert!(refused.contains("0 and 1 are allowed"), "{refused}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selective_repeat_by_nv_parameter_and_by_adapter() {
    let mut lab = Lab::start(2).await;
    async fn now(lab: &Lab, adapter: &str) -> String {
        let name = "selective_repeat_forced_en";
        let said = lab.said(&["cc", "get", adapter, name]).await;
        said.trim_end().trim_start_matches(name).to_owned()
    }
    assert_eq!(now(&lab, "vf0").await, "=0");
    lab.said(&["nvconfig", "set", "-y", "RDMA_SELECTIVE_REPEAT_EN=1"])
        .await;
    // A change of a key configures the adapter, and is no reset.
    lab.said(&["mlx5cmd", "-ZtRoce", "-Name", "vf0", "-Set", "-SlowStart", "0"])
        .await;
    assert_eq!(now(&lab, "vf0").await, "=0");
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert_eq!(now(&lab, "vf0").await, "=1");
    assert_eq!(now(&lab, "vf1").await, "=1");
    // What the operator says of an adapter counts more.
    lab.said(&["cc", "set", "vf1", "selective_repeat_forced_en=0"])
        .await;
    assert_eq!(now(&lab, "vf1").await, "=0");
    // The start of the daemon is a reset, too.
    lab = lab.restart(2).await;
    assert_eq!(now(&lab, "vf0").await, "=1");
    assert_eq!(now(&lab, "vf1").await, "=0");
    lab.said(&["cc", "set", "vf1", "selective_repeat_forced_en="])
        .await;
    assert_eq!(now(&lab, "vf1").await, "=1");
    lab.said(&["nvconfig", "reset", "-y"]).await;
    assert_eq!(now(&lab, "vf0").await, "=1");
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert_eq!(now(&lab, "vf0").await, "=0");
    // For one adapter, at once, by the register.
    let register = ["qos", "mlxreg", "vf0", "--reg_name", "ROCE_ACCL"];
    lab.said(&[&register[..], &["--set", "selective_repeat_forced_en=1", "-y"]].concat())
        .await;
    assert_eq!(now(&lab, "vf0").await, "=1");
    assert_eq!(now(&lab, "vf1").await, "=0");
    lab.end().await;
}

/// mlxconfig's parameters of congestion control: they act from the device's reset on, where nobody has said otherwise of an adapter.
#[tokio::test(flavor = "multi_thread")]
async fn nv_parameters_of_congestion_control() {
    let mut lab = Lab::start(2).await;
    async fn value(lab: &Lab, adapter: &str, name: &str) -> u32 {
        let said = lab.said(&["cc", "get", adapter, name]).await;
        let value = said.trim_end().split_once('=').expect(name).1;
        value.parse().expect(name)
    }
    // Everything that sets a parameter, with its parameter's name and value.
    const ALL: [(&str, &str, u32); 20] = [
        ("CNP_802P_PRIO=5", "DcqcnCnp802pPrio", 5),
        ("CNP_DSCP=40", "DcqcnCnpDscp", 40),
        ("CNP_RES_PRIO_MODE=0", "DcqcnCnpPrioMode", 0),
        ("DCE_TCP_G=1019", "DcqcnDceTcpG", 5),
        ("DCE_TCP_RTT=2", "DcqcnDceTcpRtt", 2),
        ("INITIAL_ALPHA_VALUE=1000", "DcqcnInitialAlphaValue", 1000),
        ("MIN_TIME_BETWEEN_CNPS=33", "np_min_time_between_cnps", 33),
        ("RATE_REDUCE_MONITOR_PERIOD=9", "DcqcnRateReduceMonitorPeriod", 9),
        ("RATE_TO_SET_ON_FIRST_CNP=77", "DcqcnRateToSetOnFirstCnp", 77),
        ("RDMA_SELECTIVE_REPEAT_EN=1", "selective_repeat_forced_en", 1),
        ("ROCE_CC_CNP_MODERATION=1", "np_cnp_scope", 3),
        ("RPG_AI_RATE=11", "DcqcnRpgAiRate", 11),
        ("RPG_BYTE_RESET=6400", "DcqcnRpgByteReset", 100),
        ("RPG_GD=9", "DcqcnAlphaToRateShift", 9),
        ("RPG_HAI_RATE=4000000000", "DcqcnRpgHaiRate", 100_000),
        ("RPG_MAX_RATE=50000", "rp_max_rate", 50_000),
        ("RPG_MIN_DEC_FAC=60", "DcqcnRpgMinDecFac", 60),
        ("RPG_MIN_RATE=3", "DcqcnRpgMinRate", 3),
        ("RPG_THRESHOLD=7", "DcqcnRpgThreshold", 7),
        ("RPG_TIME_RESET=250", "DcqcnRpgTimeReset", 250),
    ];
    let words: Vec<&str> = ALL.iter().map(|(assignment, ..)| *assignment).collect();
    let set = [
        &[
            "nvconfig",
            "set",
            "-y",
            "CNP_DSCP_MODE=1",
            "ROCE_CC_PRIO_MASK=0x18",
        ],
        &words[..],
    ]
    .concat();
    lab.said(&set).await;
    lab.said(&["cc", "set", "vf1", "DcqcnRpgAiRate=8", "rp_max_rate=9"])
        .await;
    // (It is off already.)
    lab.said(&["cc", "disable", "vf1", "4"]).await;
    assert_eq!(value(&lab, "vf0", "DcqcnRpgTimeReset").await, 100);
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    for restarted in [false, true] {
        if restarted {
            // The start of the daemon is a reset, too.
            lab = lab.restart(2).await;
        }
        for (_, name, wanted) in ALL {
            assert_eq!(value(&lab, "vf0", name).await, wanted, "{name}");
        }
        // What is said of an adapter counts more.
        assert_eq!(value(&lab, "vf1", "DcqcnRpgAiRate").await, 8);
        assert_eq!(value(&lab, "vf1", "rp_max_rate").await, 9);
        assert_eq!(value(&lab, "vf1", "DcqcnRpgThreshold").await, 7);
        for (adapter, four) in [("vf0", "1"), ("vf1", "0")] {
            let said = lab
                .said(&["mlx5cmd", "-QosConfig", "-Dcqcn", "-Name", adapter, "-Get"])
                .await;
            for line in [
                "DcqcnRPEnablePrio3: 1\n".to_owned(),
                format!("DcqcnRPEnablePrio4: {four}\n"),
                "DcqcnRPEnablePrio5: 0\n".to_owned(),
            ] {
                assert!(said.contains(&line), "{adapter} {line}{said}");
            }
        }
    }
    // A key that NV configuration decides does not wait for anything.
    let said = lab.json(&["registry", "get", "vf0", "DcqcnEnablePrio3"]).await;
    assert_eq!(
        (&said["effective"], &said["pending"]),
        (&json!("1"), &serde_json::Value::Null)
    );
    lab.said(&["nvconfig", "reset", "-y"]).await;
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    assert_eq!(value(&lab, "vf0", "DcqcnRpgTimeReset").await, 100);
    assert_eq!(value(&lab, "vf0", "selective_repeat_forced_en").await, 0);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_touch_roce_by_all_its_words() {
    let mut lab = Lab::start(2).await;
    const DONE: &str = "The command was executed successfully\n";
    async fn tool(lab: &Lab, arguments: &[&str]) -> String {
        lab.said(&[&["mlx5cmd", "-ZtRoce", "-Name", "vf0"], arguments].concat())
            .await
    }
    let text = |title: &str, on: [bool; 3]| {
        let word = |on: bool| if on { "Enabled" } else { "Disabled" };
        let [adaptive, window, slow] = on.map(word);
        format!(
            "{title} for Adapter 'vf0':\nAdpRetrans {adaptive}\nTxWindow {window}\nSlowStart {slow}\n{DONE}"
        )
    };
    let now = |on| text("Current configuration", on);
    assert_eq!(tool(&lab, &["-Get"]).await, now([true; 3]));
    assert_eq!(tool(&lab, &["-Caps"]).await, text("FW capabilities", [true; 3]));
    // As in the document: each on its own, and no other adapter's.
    let set = ["-Set", "-AdpRetrans", "0", "-TxWindow", "1", "-SlowStart", "1"];
    assert_eq!(tool(&lab, &set).await, DONE);
    assert_eq!(tool(&lab, &["-Get"]).await, now([false, true, true]));
    tool(&lab, &["-Set", "-SlowStart", "0"]).await;
    assert_eq!(tool(&lab, &["-Get"]).await, now([false, true, false]));
    assert_eq!(
        tool(&lab, &["-Defaults"]).await,
        text("Default configuration", [true; 3])
    );
    let other = lab.said(&["mlx5cmd", "-ZtRoce", "-Name", "vf1", "-Get"]).await;
    assert!(!other.contains("Disabled"), "{other}");
    // Keys of the registry, parameters of `cc` with the register's names, and attributes.
    let entry = lab.json(&["registry", "get", "vf0", "AdpRetrans"]).await;
    assert_eq!(entry["effective"], "0", "{entry}");
    assert_eq!(value(&lab, "roce_slow_restart_en").await, "SlowStart=0");
    let attributes = ["roce_tx_window_size=64", "roce_adp_retrans_floor=100"];
    lab.said(&[&["cc", "set", "vf0"], &attributes[..]].concat()).await;
    for (wrong, problem) in [
        ("roce_tx_window_size=0", "1 to 4194304"),
        ("roce_adp_retrans_floor=3", "4 to 1000000"),
        ("AdpRetrans=2", "0 and 1"),
    ] {
        let refused = lab.refused(1, &["cc", "set", "vf0", wrong]).await;
        assert!(refused.contains(problem), "{wrong}: {refused}");
    }
    // The register, field by field.
    let register = ["qos", "mlxreg", "vf0", "--reg_name", "ROCE_ACCL"];
    let fields = "roce_slow_restart_idle_en=1,roce_adp_retrans_en=1,roce_adp_retrans_field_select=0";
    let said = lab
        .said(&[&register[..], &["--set", fields, "-y"]].concat())
        .await;
    let ruler = "=".repeat(56);
    assert_eq!(
        said,
        format!(
            "Sending access register...\n\
             Field Name                                 | Data\n{ruler}\n\
             roce_adp_retrans_field_select              | 0x00000001\n\
             roce_tx_window_field_select                | 0x00000001\n\
             roce_slow_restart_field_select             | 0x00000001\n\
             roce_slow_restart_idle_field_select        | 0x00000001\n\
             selective_repeat_forced_en_field_select    | 0x00000001\n\
             roce_adp_retrans_en                        | 0x00000000\n\
             roce_tx_window_en                          | 0x00000001\n\
             roce_slow_restart_en                       | 0x00000000\n\
             roce_slow_restart_idle_en                  | 0x00000001\n\
             selective_repeat_forced_en                 | 0x00000000\n{ruler}\n"
        )
    );
    let refused = lab
        .refused(2, &[&register[..], &["--set", "adp_retx_profile_id=1"]].concat())
        .await;
    assert!(refused.contains("is no field"), "{refused}");
    // All of it stays over the daemon's end; congestion control is restored without it.
    lab = lab.restart(2).await;
    lab.said(&["cc", "restore", "vf0"]).await;
    assert_eq!(tool(&lab, &["-Get"]).await, now([false, true, false]));
    assert_eq!(value(&lab, "roce_tx_window_size").await, "roce_tx_window_size=64");
    assert_eq!(
        value(&lab, "roce_slow_restart_idle_en").await,
        "roce_slow_restart_idle_en=1"
    );
    assert_eq!(lab.said(&[&register[..], &["--get"]].concat()).await, said);
    assert_eq!(tool(&lab, &["-Disable"]).await, DONE);
    assert_eq!(tool(&lab, &["-Get"]).await, now([false; 3]));
    assert_eq!(tool(&lab, &["-Enable"]).await, DONE);
    assert_eq!(tool(&lab, &["-Get"]).await, now([true; 3]));
    tool(&lab, &["-Set", "-TxWindow", "0"]).await;
    assert_eq!(tool(&lab, &["-Restore"]).await, DONE);
    assert_eq!(tool(&lab, &["-Get"]).await, now([true; 3]));
    let entry = lab.json(&["registry", "get", "vf0", "TxWindow"]).await;
    assert!(
        entry.get("stored").is_none_or(serde_json::Value::is_null),
        "{entry}"
    );
    lab.end().await;
}
