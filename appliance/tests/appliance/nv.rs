//! What NV parameters do, from the device's next reset on.

use crate::common::lab::Lab;

/// Sets NV parameters, and resets the device.
async fn reset_with(lab: &Lab, assignments: &[&str]) {
    lab.said(&[&["nvconfig", "set", "-y"][..], assignments].concat())
        .await;
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_and_priorities_with_flow_control_have_limits() {
    let lab = Lab::start(1).await;
    let acts = |lab: &Lab, name: &str| {
        let acting = lab.daemon.control().nic.qos(name).expect("it is there").acting;
        (acting.classes.of_priority, acting.pause.pfc)
    };
    let given = ["--prio-tc", "0,1,2,3,4,5,6,7", "--pfc", "0,0,1,1,1,0,0,0"];
    lab.said(&[&["qos", "set", "vf0"][..], &given].concat()).await;
    lab.said(&["nvconfig", "set", "-y", "NUM_OF_TC=4", "NUM_OF_PFC=2"])
        .await;
    let all = ([0, 1, 2, 3, 4, 5, 6, 7], 0b1_1100);
    assert_eq!(acts(&lab, "vf0"), all, "they wait for the reset");
    lab.said(&["nvconfig", "device-reset", "-y"]).await;
    let within = ([0, 1, 2, 3, 3, 3, 3, 3], 0b1100);
    assert_eq!(acts(&lab, "vf0"), within);
    // What is stored stays, and says that not all of it acts.
    let shown = lab.json(&["qos", "show", "vf0"]).await;
    let warned = shown["warnings"].to_string();
    for word in ["NUM_OF_TC allows traffic class 0 to 3", "NUM_OF_PFC allows 2"] {
        assert!(warned.contains(word), "{warned}");
    }
    assert_eq!(shown["priority_to_tc"][7], 7, "{shown}");
    lab.said(&["qos", "set", "vf0", "--rate", "10G"]).await;
    // What is new is refused.
    let refused: [(&[&str], &str); 3] = [
        (
            &["--prio-tc", "0,1,2,3,3,3,3,4"],
            "priority_to_tc: priority 7: class 4 is out of range: 0 to 3 (NV parameter NUM_OF_TC)",
        ),
        (
            &[
                "--tsa",
                "ets,vendor,vendor,vendor,ets,vendor,vendor,vendor",
                "--tcbw",
                "50,0,0,0,50,0,0,0",
            ],
            "tc_algorithm: traffic class 4 is out of range: 0 to 3 (NV parameter NUM_OF_TC)",
        ),
        (
            &["--pfc", "1,1,1,0,0,0,0,0"],
            "pfc: 3 priorities are out of range: 0 to 2 at a time (NV parameter NUM_OF_PFC)",
        ),
    ];
    for (flags, why) in refused {
        let said = lab
            .refused(1, &[&["qos", "set", "vf0"][..], flags].concat())
            .await;
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(acts(&lab, "vf0"), within);
    // An adapter that comes later has the limits, too; so has what is stored when the daemon starts.
    lab.said(&["adapter", "add", "vf9"]).await;
    assert_eq!(acts(&lab, "vf9").0, [1, 0, 2, 3, 3, 3, 3, 3]);
    let lab = lab.restart(1).await;
    assert_eq!(acts(&lab, "vf0"), within);
    lab.said(&[
        "qos",
        "set",
        "vf0",
        "--pfc",
        "0,0,0,1,0,0,0,0",
        "--prio-tc",
        "0,0,0,3,0,0,0,0",
    ])
    .await;
    assert_eq!(acts(&lab, "vf0"), ([0, 0, 0, 3, 0, 0, 0, 0], 0b1000));
    lab.said(&["qos", "reset", "vf0"]).await;
    reset_with(&lab, &["NUM_OF_TC=0", "NUM_OF_PFC=0"]).await;
    assert_eq!(acts(&lab, "vf0"), ([1, 0, 2, 3, 4, 5, 6, 7], 0));
    let said = lab
        .refused(1, &["qos", "set", "vf0", "--pfc", "0,0,0,1,0,0,0,0"])
        .await;
    assert!(said.contains("0 to 0 at a time"), "{said}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adaptive_routing_takes_several_ways() {
    let lab = Lab::start(2).await;
    let ways = async |lab: &Lab, name: &str| {
        let shown = lab.said(&["cc", "show", name]).await;
        let line = shown.lines().find(|line| line.starts_with("roce_multipath_ways"));
        let words = line.expect("a line").split_whitespace();
        words.take(4).collect::<Vec<_>>().join(" ")
    };
    lab.said(&["cc", "set", "vf1", "roce_multipath_ways=4"]).await;
    reset_with(&lab, &["ROCE_ADAPTIVE_ROUTING_EN=1"]).await;
    assert_eq!(ways(&lab, "vf0").await, "roce_multipath_ways 16 ways set");
    assert_eq!(ways(&lab, "vf1").await, "roce_multipath_ways 4 ways set");
    reset_with(&lab, &["ROCE_ADAPTIVE_ROUTING_EN=0"]).await;
    assert_eq!(ways(&lab, "vf0").await, "roce_multipath_ways 1 ways 1");
    lab.end().await;
}
