//! `vnicctl subnet` and `SubnetService`: policies of quality of service by path, and what they answer.

use std::path::PathBuf;

use serde_json::json;

use crate::common::lab::Lab;
use crate::congestion_guide::{blocks, run};

const POLICY: &str = "\
qos-levels
  qos-level
    name: default
    sl: 1
  end-qos-level
  qos-level
    name: Storage
    sl: 12
    mtu-limit: 2
    rate-limit: 2
    packet-life: 5
  end-qos-level
end-qos-levels
port-groups
  port-group
    name: Targets
    port-name: vf1/P1
  end-port-group
end-port-groups
qos-match-rules
  qos-match-rule
    use: to the disks
    destination: Targets
    service-id: 0x1060cbc
    qos-level-name: Storage
  end-qos-match-rule
end-qos-match-rules
qos-ulps
  any, pkey 0x77: 9
  sdp: 4
end-qos-ulps
";

fn write(lab: &Lab, text: &str) -> String {
    let file: PathBuf = lab.dir.path().join("policy.conf");
    std::fs::write(&file, text).expect("a file");
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_checked_loaded_stored_and_answers() {
    let lab = Lab::start(2).await;
    let none = lab.said(&["subnet", "policy", "show"]).await;
    assert!(
        none.contains("no policy") && none.contains("vf0/P1") && none.contains("0xffff (full)"),
        "{none}"
    );
    let path = lab
        .json(&["subnet", "path", "--from", "vf0", "--to", "vf1"])
        .await;
    let (first, mtu) = (&path["paths"][0], json!(1024));
    assert_eq!(
        (&first["service_level"], &first["mtu_bytes"], &first["pkey"]),
        (&json!(0), &mtu, &json!(0xffff))
    );

    let file = write(&lab, POLICY);
    let notes = lab.said(&["subnet", "policy", "check", &file]).await;
    assert!(
        notes.contains("no port here is a member of these partitions") && notes.contains("29"),
        "{notes}"
    );
    let still = lab.said(&["subnet", "policy", "show"]).await;
    assert!(still.contains("no policy"), "a check changes nothing: {still}");
    lab.said(&["subnet", "policy", "load", &file]).await;

    let events = lab.said(&["event", "list", "--kind", "settings_changed"]).await;
    assert!(events.contains("subnet policy: 4 levels, 3 rules"), "{events}");

    // One that is wrong changes nothing.
    let wrong = write(&lab, &POLICY.replace("sl: 12", "sl: 16"));
    for verb in ["check", "load"] {
        let told = lab.refused(1, &["subnet", "policy", verb, &wrong]).await;
        assert!(
            told.contains("line 8, column 9: sl 16 is out of range: 0 to 15"),
            "{told}"
        );
    }
    // Nor does an etag of another one.
    let mut service = vnic_control::v1::subnet_service_client::SubnetServiceClient::new(lab.channel.clone());
    let late = vnic_control::v1::SetSubnetPolicyRequest {
        policy: Some(vnic_control::v1::SubnetPolicy {
            etag: "0".to_owned(),
            ..Default::default()
        }),
    };
    let late = service.set_subnet_policy(late).await.expect_err("another policy");
    assert_eq!(late.code(), tonic::Code::Aborted, "{late}");
    drop(service);

    let lab = lab.restart(2).await;
    let ask = async |words: &[&str]| lab.said(&[&["subnet", "path"], words].concat()).await;
    let disks = ask(&["--from", "vf0", "--to", "vf0,vf1", "--service-id", "0x1060cbc"]).await;
    let lines: Vec<Vec<&str>> = disks
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1][..6],
        ["vf0", "vf0", "1", "1024", "100000", "0"],
        "{disks}"
    );
    assert_eq!(lines[2][..6], ["vf0", "vf1", "12", "512", "2500", "5"], "{disks}");
    assert!(disks.contains("level Storage, line 21: to the disks"), "{disks}");
    let sdp = ask(&["--from", "vf0", "--to", "vf1", "--service-id", "65536"]).await;
    assert!(sdp.contains("level SL 4, line 30: sdp"), "{sdp}");
    let other = ask(&["--from", "vf1", "--to", "vf0", "--sl", "3"]).await;
    assert!(
        other.contains("has service level 1, and the query wants another one"),
        "{other}"
    );
    let foreign = ask(&["--from", "vf1", "--to", "vf0", "--pkey", "0x77"]).await;
    assert!(
        foreign.contains("P_Key 0x0077: not both ports are members"),
        "{foreign}"
    );
    for (words, part) in [
        (&["--to", "vf9", "--from", "vf0"][..], "NOT_FOUND"),
        (
            &["--to", "vf0", "--from", "vf0", "--qos-class", "4096"],
            "qos_class: 4096 is out of range: 0 to 4095",
        ),
        (
            &["--to", "vf0", "--from", "vf0", "--pkey", "0"],
            "pkey: 0 is out of range: 1 to 65535",
        ),
        (
            &["--to", "vf0", "--from", "vf0", "--sl", "16"],
            "service_level: 16 is out of range: 0 to 15",
        ),
    ] {
        let told = lab.refused(1, &[&["subnet", "path"], words].concat()).await;
        assert!(told.contains(part), "{part}: {told}");
    }
    lab.said(&["subnet", "policy", "remove"]).await;
    let lab = lab.restart(2).await;
    let none = lab.said(&["subnet", "policy", "show"]).await;
    assert!(none.contains("no policy"), "{none}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_made_listed_stored_and_removed() {
    let lab = Lab::start(2).await;
    let group = async |lab: &Lab, words: &[&str]| lab.said(&[&["subnet", "group"], words].concat()).await;
    assert!(group(&lab, &["list"]).await.contains("no multicast groups"));
    let made = lab
        .json(&["subnet", "group", "create", "all", "--partition", "0xffff"])
        .await;
    assert_eq!(made["name"], json!("subnetGroups/all"));
    assert_eq!(
        (
            &made["mgid"],
            &made["qkey"],
            &made["mtu_bytes"],
            &made["rate_mbps"],
            &made["packet_lifetime"]
        ),
        (
            &json!("ff12:401b:ffff::ffff:ffff"),
            &json!(0xb1b),
            &json!(1024),
            &json!(10_000),
            &json!(18)
        )
    );
    group(
        &lab,
        &[
            "create",
            "blue",
            "--partition",
            "0x8001",
            "--mgid",
            "ff15::1:2",
            "--qkey",
            "0x77",
            "--mtu",
            "4096",
            "--rate",
            "2.5G",
            "--lifetime",
            "9",
            "--sl",
            "3",
        ],
    )
    .await;
    let events = lab.said(&["event", "list", "--kind", "settings_changed"]).await;
    assert!(events.contains("subnet groups: blue is made"), "{events}");
    for (words, part) in [
        (&["create", "all", "--partition", "0x8002"][..], "ALREADY_EXISTS"),
        (
            &["create", "two", "--partition", "0xffff"],
            "subnet_group.mgid: the group \"all\" has the GID",
        ),
        (
            &["create", "two", "--partition", "1", "--mgid", "fe80::1"],
            "subnet_group.mgid: fe80::1 is no multicast address",
        ),
        (
            &["create", "two", "--partition", "1", "--mtu", "1500"],
            "subnet_group.mtu_bytes: 1500: 256, 512, 1024, 2048, 4096 are allowed",
        ),
        (
            &["create", "two", "--partition", "1", "--rate", "9G"],
            "subnet_group.rate_mbps: 9000: 2500, 5000, 10000, 14000",
        ),
        (
            &["create", "two", "--partition", "1", "--lifetime", "64"],
            "subnet_group.packet_lifetime: 64 is out of range: 0 to 63",
        ),
        (
            &["create", "two", "--partition", "1", "--sl", "16"],
            "subnet_group.service_level: 16 is out of range: 0 to 15",
        ),
        (
            &["create", "two", "--partition", "1", "--qkey", "0x80000000"],
            "subnet_group.qkey: Q_Key 0x80000000 is out of range",
        ),
        (&["show", "two"], "NOT_FOUND"),
        (&["remove", "two"], "NOT_FOUND"),
    ] {
        let told = lab.refused(1, &[&["subnet", "group"], words].concat()).await;
        assert!(told.contains(part), "{part}: {told}");
    }

    let lab = lab.restart(2).await;
    let table = group(&lab, &["list"]).await;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1],
        [
            "all",
            "ff12:401b:ffff::ffff:ffff",
            "0xffff",
            "0",
            "1024",
            "10000",
            "0"
        ],
        "{table}"
    );
    assert_eq!(
        lines[2],
        ["blue", "ff15::1:2", "0x8001", "3", "4096", "2500", "0"],
        "{table}"
    );
    let shown = group(&lab, &["show", "blue"]).await;
    assert!(
        shown.contains("0x8001 (full)") && shown.contains("2^9 x 4.096 us"),
        "{shown}"
    );
    group(&lab, &["remove", "all", "blue"]).await;
    let lab = lab.restart(2).await;
    assert!(group(&lab, &["list"]).await.contains("no multicast groups"));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_the_configuration_file_answers_from_the_start_on() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("policy.conf"), POLICY).expect("a file");
    let with_file = |dir: &std::path::Path| {
        let mut settings = crate::common::settings(dir, 1);
        settings.policy_file = Some(dir.join("policy.conf"));
        settings
    };
    let lab = Lab::with(dir, with_file).await;
    let shown = lab.json(&["subnet", "policy", "show"]).await;
    assert_eq!(
        (&shown["configured"], &shown["text"]),
        (&json!(true), &json!(POLICY))
    );
    let other = write(&lab, "qos-ulps\ndefault: 3\nend-qos-ulps\n");
    lab.said(&["subnet", "policy", "load", &other]).await;
    let path = lab
        .json(&["subnet", "path", "--from", "vf0", "--to", "vf0"])
        .await;
    assert_eq!(path["paths"][0]["service_level"], json!(3));
    let Lab { daemon, channel, dir } = lab;
    drop(channel);
    daemon.shutdown().await;

    std::fs::write(dir.path().join("policy.conf"), "qos-ulps\n").expect("a file");
    let refused = vnic_appliance::daemon::Daemon::start(with_file(dir.path())).await;
    let told = refused.err().expect("the file is wrong").to_string();
    assert!(
        told.starts_with("subnet.policy_file: ")
            && told.ends_with("line 1, column 1: `qos-ulps` has no `end-qos-ulps`"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_set_listed_stored_and_decide_about_paths() {
    let lab = Lab::start(2).await;
    lab.said(&["adapter", "add", "blue", "--pkeys", "0x8001,2"]).await;
    let listed = lab.said(&["subnet", "partition", "list"]).await;
    let lines: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1],
        ["blue", "0x8001", "(full),", "0x0002", "(limited)"],
        "{listed}"
    );
    assert_eq!(lines[2], ["vf0", "0xffff", "(full)"], "{listed}");

    let set = lab
        .said(&["subnet", "partition", "set", "vf0", "0x0001", "0xffff"])
        .await;
    assert_eq!(set.trim_end(), "vf0: 0x0001 (limited), 0xffff (full)");
    lab.said(&["subnet", "partition", "set", "blue", "0x8001"]).await;
    let shown = lab.json(&["adapter", "show", "blue"]).await;
    assert_eq!(
        (&shown["pkeys"], &shown["pending"]),
        (&json!([0x8001]), &json!([]))
    );
    let facts = lab.said(&["adapter", "show", "vf0"]).await;
    assert!(facts.contains("0x0001 (limited), 0xffff (full)"), "{facts}");

    // A path has the P_Key of its source, and none between limited members.
    let path = async |from: &str, to: &str| {
        let found = lab.json(&["subnet", "path", "--from", from, "--to", to]).await;
        (
            found["paths"][0]["pkey"].clone(),
            found["paths"][0]["refusal"].clone(),
        )
    };
    assert_eq!(path("vf0", "blue").await, (json!(1), json!("")));
    assert_eq!(path("blue", "vf0").await, (json!(0x8001), json!("")));
    assert_eq!(path("vf0", "vf1").await, (json!(0xffff), json!("")));
    assert_eq!(path("blue", "vf1").await.1, json!("the ports share no P_Key"));

    for (pkeys, told) in [
        (&["0x8000"][..], "adapter.pkeys: P_Key 0x8000 is of no partition"),
        (
            &["1", "0x8001", "1"],
            "adapter.pkeys: P_Key 0x0001 is there twice",
        ),
    ] {
        let refused = lab
            .refused(1, &[&["subnet", "partition", "set", "vf0"], pkeys].concat())
            .await;
        assert!(refused.contains(told), "{refused}");
    }
    let many: Vec<String> = (1..=17).map(|n: u32| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = lab
        .refused(1, &[&["subnet", "partition", "set", "vf0"], &many[..]].concat())
        .await;
    assert!(
        refused.contains("adapter.pkeys: 17 P_Keys; 1 to 16 are allowed"),
        "{refused}"
    );
    lab.refused(2, &["subnet", "partition", "set", "vf0", "0x10000"])
        .await;
    lab.refused(1, &["subnet", "partition", "set", "vf9", "0xffff"])
        .await;

    // An adapter that was made at run time keeps them; one of the configuration has the configured ones again.
    let lab = lab.restart(2).await;
    let kept = lab.json(&["adapter", "show", "blue"]).await;
    assert_eq!(kept["pkeys"], json!([0x8001]));
    let again = lab.json(&["adapter", "show", "vf0"]).await;
    assert_eq!(again["pkeys"], json!([0xffff]));
    lab.said(&["adapter", "set", "blue", "--default", "pkeys"]).await;
    let default = lab.json(&["adapter", "show", "blue"]).await;
    assert_eq!(default["pkeys"], json!([0xffff]));
    lab.end().await;
}

/// The commands of the page about partitions and groups print what it shows.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_groups_of_the_page_are_as_it_says() {
    for section in ["Partitions", "Multicast groups"] {
        page_is_true(section).await;
    }
}

async fn page_is_true(name: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/infiniband.md");
    let page = std::fs::read_to_string(path).expect("docs/infiniband.md");
    let from = page.find(&format!("\n## {name}\n")).expect("a section");
    let section = page[from + 1..].split("\n## ").next().expect("its text");
    let lab = Lab::start(3).await;
    let all = blocks(section);
    let [commands, shown] = &all[..] else {
        panic!("{} blocks", all.len());
    };
    assert_eq!((commands.kind, shown.kind), ("sh", "text"));
    let said = run(&lab, commands.text).await;
    assert_eq!(said, shown.text);
    lab.end().await;
}
