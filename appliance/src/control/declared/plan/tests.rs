use std::path::Path;

use super::*;
use crate::config::{Environment, Overrides, Settings};

fn read(text: &str) -> Vec<Object> {
    let overrides = Overrides {
        socket_dir: Some("/run/x".into()),
        data_cores: Some(vec![0, 1]),
        ..Overrides::default()
    };
    let environment = Environment {
        cpus: vec![0, 1],
        ..Environment::current()
    };
    let read = Settings::from_text(Path::new("x.toml"), text, &overrides, &environment);
    read.unwrap_or_else(|wrong| panic!("{wrong}")).objects()
}

fn plan_of(now: &str, wanted: &str, prune: bool) -> Plan {
    plan(&read(now), &read(wanted), Path::new("/run/x"), |_| prune)
}

/// Actions as words, such as `+ports/p0`.
fn words(plan: &Plan) -> Vec<String> {
    let word = |a: &Action| match (&a.before, &a.after) {
        (None, Some(o)) => format!("+{}", o.resource()),
        (Some(o), None) => format!("-{}", o.resource()),
        (_, Some(Object::Team(team))) => format!("~teams/{} {}", team.name, team.members.join(" ")),
        (_, after) => format!("~{}", after.as_ref().map(Object::resource).unwrap_or_default()),
    };
    plan.actions.iter().map(word).collect()
}

const BEGIN: &str = r#"
port = [
    { name = "p0", type = "packet", ifname = "eth0" },
    { name = "p1", type = "packet", ifname = "eth1" },
]
team = [{ name = "t", type = "failover", members = ["p0", "p1"], primary = "p1" }]
adapter = [{ name = "vf0", mac = "02:00:00:00:00:01" }]
fault = [{ name = "f", to = "vf0", action = "drop", seed = 7 }]
"#;

#[test]
fn what_is_there_takes_no_step() {
    assert_eq!(plan_of(BEGIN, BEGIN, true), Plan::default());
    // The NIC chose the seed.
    assert_eq!(plan_of(BEGIN, &BEGIN.replace(", seed = 7", ""), true).steps, []);
    let nothing = plan_of(BEGIN, "", false);
    assert_eq!((nothing.steps.len(), nothing.kept.len()), (0, 5));
}

#[test]
fn all_of_it_is_made_and_removed_in_an_order_that_works() {
    let made = ["+ports/p0", "+ports/p1", "+teams/t", "+adapters/vf0", "+faults/f"];
    assert_eq!(words(&plan_of("", BEGIN, false)), made);
    let removed = ["-faults/f", "-teams/t", "-ports/p0", "-ports/p1", "-adapters/vf0"];
    assert_eq!(words(&plan_of(BEGIN, "", true)), removed);
}

#[test]
fn a_port_leaves_its_team_while_it_is_made_anew() {
    let other = BEGIN.replace(r#"ifname = "eth1""#, r#"ifname = "eth1", mtu = 9000"#);
    let plan = plan_of(BEGIN, &other, false);
    let words = words(&plan);
    assert_eq!(words, ["~teams/t p0", "-ports/p1", "+ports/p1", "~teams/t p0 p1"]);
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.steps[0].what, What::Replace);
    let [mtu] = &plan.steps[0].keys[..] else {
        panic!("{plan:?}")
    };
    assert_eq!((mtu.key, &*mtu.before, &*mtu.after), ("mtu", "1500", "9000"));
    // What ports can change while they are there, they do.
    let fast = BEGIN.replace(r#"ifname = "eth1""#, r#"ifname = "eth1", speed_mbps = 100"#);
    assert_eq!(words_of(BEGIN, &fast), ["~ports/p1"]);
}

fn words_of(now: &str, wanted: &str) -> Vec<String> {
    words(&plan_of(now, wanted, false))
}

#[test]
fn a_member_moves_to_another_team() {
    let teams = r#"team = [
        { name = "T", type = "failover", members = ["p0"] },
        { name = "u", type = "aggregate", members = ["p1"], lacp = "active" },
    ]"#;
    let line = BEGIN
        .lines()
        .find(|line| line.starts_with("team"))
        .expect("a line");
    let plan = plan_of(BEGIN, &BEGIN.replace(line, teams), false);
    assert_eq!(words(&plan), ["~teams/t p0", "~teams/T p0", "+teams/u"]);
    let keys: Vec<_> = plan.steps[0].keys.iter().map(|d| d.key).collect();
    assert_eq!(keys, ["name", "members", "primary"]);
}

#[test]
fn a_team_that_stays_loses_the_port_that_goes() {
    let now = read(BEGIN);
    let goes = |object: &Object| object.resource() == "ports/p1";
    let plan = plan(&now, &[], Path::new("/run/x"), goes);
    assert_eq!(words(&plan), ["~teams/t p0", "-ports/p1"]);
    assert_eq!(plan.steps.len(), 2);
    // A step that is only there to give a port free does not do its work twice.
    assert!(
        plan.kept
            .iter()
            .any(|o| matches!(o, Object::Team(t) if t.members == ["p0"]))
    );
}

#[test]
fn what_stays_is_in_nobodys_way() {
    let wanted = read(
        r#"
        port = [{ name = "p9", type = "tap", ifname = "eth1" }]
        adapter = [{ name = "p0" }, { name = "vf9", macs = ["02:00:00:00:00:01"], socket = "/run/x/vf0-rdma.sock" }]
        "#,
    );
    let wrong = check(&wanted, &[], &read(BEGIN)).expect_err("four are taken");
    let fields: Vec<_> = wrong.all().iter().map(|v| v.field.as_str()).collect();
    assert_eq!(
        fields,
        ["ports/p9", "adapters/p0", "adapters/vf9", "adapters/vf9"]
    );
    assert!(
        wrong.to_string().contains("has the network device eth1"),
        "{wrong}"
    );
    let wrong = check(&wanted, &read(BEGIN), &[]).expect_err("a port has the name");
    assert_eq!(
        wrong.to_string(),
        "adapters/p0: ports/p0 has its name: remove that first"
    );
    assert_eq!(check(&wanted, &[], &[]), Ok(()));
}
