//! Scenarios as people and programs meet them: the file, gRPC and the command line.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tonic::Code;
use vnic_appliance::config::scenario_from_text;
use vnic_appliance::scenarios::{Act, Scenario};
use vnic_control::v1;

use crate::common::lab::{Lab, text};

fn read(content: &str, set: &[(&str, &str)]) -> Result<Scenario, String> {
    let set: BTreeMap<String, String> = set
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    scenario_from_text(Path::new("x.toml"), content, &set).map_err(|wrong| wrong.to_string())
}

#[test]
fn steps_repeat_last_and_are_late() {
    let scenario = read(
        r#"
        name = "flap"
        length = "3 s"
        [adapters]
        nic = "vf0"
        [[step]]
        at = "1s"
        action = "port_down"
        adapter = ["nic", "other"]
        every = "500ms"
        duty = 0.2
        times = 2
        event_delay = "-10ms"
        [[step]]
        at = "0ms"
        action = "fault"
        [step.fault]
        name = "slow"
        to = "nic"
        action = "delay"
        delay = "1ms"
        "#,
        &[("nic", "vf7")],
    )
    .expect("a scenario");
    assert_eq!(scenario.length, Duration::from_secs(3));
    let moments = scenario.moments.iter();
    let told: Vec<String> = moments
        .map(|m| format!("{} {}", m.at.as_millis(), m.act))
        .collect();
    let port = |ms, said: &str| {
        ["vf7", "other"].map(|adapter| format!("{ms} {adapter}: the port says that it is {said}"))
    };
    let cut = |ms, said: &str| ["vf7", "other"].map(|adapter| format!("{ms} {adapter}: {said}"));
    let mut expected = vec!["0 fault slow is made: delay".to_owned()];
    for begin in [1000, 1500] {
        expected.extend(port(begin - 10, "down"));
        expected.extend(cut(begin, "no frame passes"));
        expected.extend(port(begin + 90, "up"));
        expected.extend(cut(begin + 100, "frames pass again"));
    }
    assert_eq!(told, expected);
}

#[test]
fn steps_have_rules_for_verbs_and_wait_for_them() {
    let scenario = read(
        r#"
        name = "all"
        length = "9s"
        seed = 4
        [adapters]
        nic = "vf0"
        [[step]]
        at = "1s"
        action = "verbs_fault"
        for = "2s"
        [step.verbs_fault]
        name = "kth"
        adapter = "nic"
        kind = "write"
        skip = 99
        hang = true
        [[step]]
        after = "kth"
        at = "10ms"
        action = "rate"
        adapter = "nic"
        rate = 100
        for = "5ms"
        [[step]]
        after = "kth"
        at = "1ms"
        action = "pause_storm"
        adapter = "nic"
        priorities = [3, 5]
        [[step]]
        at = "4s"
        action = "event"
        adapter = "nic"
        event = "gid_change"
        index = 7
        [[step]]
        at = "4s"
        action = "device_removed"
        adapter = "nic"
        for = "1s"
        to = 2
        "#,
        &[("nic", "vf7")],
    )
    .expect("a scenario");
    let told = scenario.moments.iter().map(|m| {
        let after = m.after.as_deref().unwrap_or("begin");
        format!("{after} {} {}", m.at.as_millis(), m.act)
    });
    let expected = [
        "kth 1 vf7: pauses priorities 3, 5 of all others",
        "kth 10 vf7: the rate is 100 Mbit/s",
        "kth 15 vf7: the rate is what it was",
        "begin 1000 verbs fault kth is made: hang",
        "begin 3000 verbs fault kth is removed",
        "begin 4000 vf7: is told GidChange 7",
        "begin 4000 vf7: the device is gone",
        "begin 5000 vf7: the device is back as number 2",
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let Some(Act::AddVerbsFault(rule)) = scenario
        .moments
        .iter()
        .map(|m| &m.act)
        .find(|act| matches!(act, Act::AddVerbsFault(_)))
    else {
        panic!("no rule");
    };
    assert_eq!(
        (rule.adapter.as_str(), rule.skip, rule.seed),
        ("vf7", 99, Some(5))
    );
}

#[test]
fn what_is_wrong_in_the_file_has_its_place() {
    let wrong = read(
        r#"name = "A b"
[[step]]
at = "soon"
action = "port_down"
adapter = "vf0"
[[step]]
at = "1s"
action = "explode"
[[step]]
at = "1s"
action = "mtu"
adapter = "vf0"
mtu = 1500
[[step]]
at = "1s"
action = "kill"
adapter = "vf0"
for = "1s"
index = 3
[[step]]
at = "1s"
action = "port_down"
adapter = "vf0"
every = "1s"
for = "2s"
times = 2
[[step]]
at = "1ms"
action = "port_down"
adapter = "vf0"
event_delay = "-2ms"
[[step]]
at = "1s"
action = "fault"
[step.fault]
name = "x"
action = "drop"
delay = "1ms"
[[step]]
after = "y"
at = "1s"
action = "port_down"
adapter = "vf0"
[[step]]
at = "1s"
action = "fault_removed"
rule = "z"
[[step]]
at = "1s"
action = "fault"
[step.fault]
name = "good"
action = "drop"
[[step]]
after = "good"
at = "1s"
action = "kill"
adapter = "vf0"
[[step]]
at = "1s"
action = "pause_storm"
adapter = "vf0"
priorities = [8]
[[step]]
at = "1s"
action = "event"
adapter = "vf0"
event = "sm_change"
[[step]]
at = "1s"
action = "verbs_fault"
adapter = "vf0"
[step.verbs_fault]
name = "good"
adapter = "vf0"
hang = true
lie = "success"
[[step]]
at = "1s"
action = "device_removed"
adapter = "vf0"
to = 2
[[step]]
at = "1s"
action = "device_removed"
adapter = "vf0"
for = "1s"
to = 256
"#,
        &[("nic", "vf0")],
    )
    .expect_err("wrong");
    for expected in [
        "x.toml:1:8: name: \"A b\" is not a name",
        "x.toml:3:6: step[0].at: \"soon\" is not a span of time",
        "x.toml:8:10: step[1].action: \"explode\" is no action: \"port_down\"",
        "x.toml:13:7: step[2].mtu: 1500 is none of 256",
        "x.toml:18:7: step[3].for: what this action does is not put back",
        "x.toml:19:9: step[3].index: not allowed with action = \"kill\"",
        "x.toml:24:9: step[4].every: must be longer than each lasts",
        "x.toml:31:15: step[5].event_delay: the event would come before the scenario begins",
        "step[6].fault.delay: allowed with action = \"delay\" only",
        "x.toml:40:9: step[7].after: no step before makes a rule \"y\"",
        "x.toml:47:8: step[8].rule: no step before makes a rule \"z\"",
        "x.toml:63:14: step[11].priorities: priorities are 0 to 7",
        "x.toml:68:9: step[12].event: \"sm_change\" is no event: \"lid_change\"",
        "step[13].adapter: a rule says itself which adapters it is about",
        "step[13].verbs_fault.name: the name good is taken by line",
        "step[14].to: needs the key for: when the device is back",
        "step[15].to: 0 to 255, as in vnic2",
        "length: required: a step waits for a rule",
        "the scenario has no part \"nic\"",
    ] {
        assert!(wrong.contains(expected), "{expected:?} is not in\n{wrong}");
    }
    assert!(read("name = \"x\"\n", &[]).is_err_and(|e| e.contains("nothing happens")));
}

/// A scenario with a rule for a time.
fn rule(name: &str, length: &str) -> String {
    format!(
        "name = \"{name}\"\n[adapters]\nnic = \"vf0\"\n[[step]]\nat = \"1ms\"\naction = \"fault\"\nfor = {length:?}\n\
         [step.fault]\nname = \"slow\"\nto = \"nic\"\naction = \"drop\"\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_is_played_told_of_and_put_back() {
    let lab = Lab::start(2).await;
    let file = lab.dir.path().join("short.toml");
    std::fs::write(&file, rule("short", "2ms")).expect("a file");
    let file = file.display().to_string();
    let log = "        1 ms fault slow is made: drop\n        3 ms fault slow is removed\nend\n";
    for _ in 0..3 {
        let said = lab
            .said(&["fault", "play", &file, "--set", "nic=vf1", "--watch"])
            .await;
        assert_eq!(said, log);
        assert!(lab.list().await.is_empty());
    }
    let events = lab.said(&["event", "list"]).await;
    for word in [
        "scenario short begins",
        "fault slow is made",
        "scenario short is over",
    ] {
        assert!(events.contains(word), "{word:?} is not in\n{events}");
    }

    // One that is stopped in the middle.
    let mut service = lab.faults();
    let request = |content: String| v1::PlayScenarioRequest {
        content,
        adapters: [("nic".to_owned(), "adapters/vf1".to_owned())].into(),
    };
    let begun = service.play_scenario(request(rule("long", "1h"))).await;
    let begun = begun.expect("it begins").into_inner();
    assert_eq!(
        (begun.name.as_str(), begun.state()),
        ("scenarios/long", v1::scenario::State::Playing)
    );
    let busy = service.play_scenario(request(rule("more", "1h"))).await;
    assert_eq!(busy.expect_err("one at a time").code(), Code::ResourceExhausted);
    while lab.list().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        lab.list().await[0].r#match.as_ref().map(|m| m.to.as_str()),
        Some("adapters/vf1")
    );
    lab.said(&["fault", "stop", "long"]).await;
    let get = || v1::GetScenarioRequest {
        name: "scenarios/long".to_owned(),
    };
    let mut now = begun;
    while now.state() == v1::scenario::State::Playing {
        tokio::time::sleep(Duration::from_millis(5)).await;
        now = service.get_scenario(get()).await.expect("there").into_inner();
    }
    assert_eq!(now.state(), v1::scenario::State::Stopped);
    assert_eq!(
        now.log,
        [
            "        1 ms fault slow is made: drop",
            "    put back fault slow is removed",
            "end"
        ]
    );
    assert!(lab.list().await.is_empty());
    let listed = lab.said(&["fault", "scenarios"]).await;
    assert!(
        listed.contains("long") && listed.contains("stopped") && listed.contains("ended"),
        "{listed}"
    );

    // One that fails, and files that are wrong.
    let bad = rule("bad", "1h").replace("vf0", "nobody");
    let path = lab.dir.path().join("bad.toml").display().to_string();
    std::fs::write(&path, bad).expect("a file");
    let failed = lab.ctl(&["fault", "play", &path, "--watch"]).await;
    assert!(!failed.status.success() && text(&failed.stderr).contains("no adapter or port is named nobody"));
    let refused = service
        .play_scenario(request("name = 7".to_owned()))
        .await
        .expect_err("wrong");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("scenario:1:8: name:"), "{refused}");
    lab.end().await;
}
