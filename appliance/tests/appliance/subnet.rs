//! `vnicctl subnet` and `SubnetService`: policies of quality of service by path, and what they answer.

use std::path::PathBuf;

use serde_json::json;

use crate::common::lab::Lab;

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
