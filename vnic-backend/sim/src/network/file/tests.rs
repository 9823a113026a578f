//! Files: what is in them, what is wrong with them, what a command line changes.

use std::path::Path;

use super::*;
use crate::network::scenario::Pfc;

const SMALL: &str = "\
duration = \"1ms\"
[topology]
kind = \"star\"
hosts = 3
[[flows]]
kind = \"incast\"
to = \"h2\"
";

fn file(text: &str) -> Result<Loaded> {
    parse(text, Path::new("x.toml"), &Changes::default())
}

fn wrong(text: &str) -> String {
    format!("{:#}", file(text).expect_err("it is wrong"))
}

#[test]
fn all_that_we_bring_can_be_read() {
    for (name, _) in BUILT_IN {
        let loaded = load(name, &Changes::default()).unwrap_or_else(|e| panic!("{e:#}"));
        let scenario = &loaded.scenario;
        assert!(!scenario.flows.is_empty(), "{name}");
        let hosts = scenario.topology.hosts;
        assert!(scenario.flows.iter().all(|f| f.from < hosts && f.to < hosts));
    }
}

#[test]
fn every_file_beside_the_code_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|f| f.expect("it can be read").path())
        .filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned()))
        .collect();
    files.sort();
    let mut names = BUILT_IN.map(|(n, _)| n.to_owned());
    names.sort();
    assert_eq!(files, names);
}

#[test]
fn a_small_file_has_defaults() {
    let scenario = file(SMALL).expect("it is right").scenario;
    assert_eq!(scenario.name, "x");
    assert_eq!(
        (scenario.duration, scenario.mtu, scenario.seed),
        (1_000_000, 1024, 1)
    );
    let flows: Vec<_> = scenario.flows.iter().map(|f| (f.from, f.to, f.bytes)).collect();
    assert_eq!(flows, [(0, 2, None), (1, 2, None)]);
    assert_eq!(scenario.topology.rate_of(0), 40_000_000_000);
}

#[test]
fn every_key_does_something() {
    let text = "\
name = \"all\"
seed = 7
duration = \"2ms\"
mtu = 4096
[topology]
kind = \"leaf-spine\"
leaves = 2
spines = 3
hosts_per_tor = 4
rate = \"25Gb/s\"
fabric_rate = \"100Gb/s\"
delay = \"2us\"
[switch]
preset = \"hpcc\"
buffer = \"1MB\"
xon_offset = \"5KB\"
telemetry = false
pfc = { static = \"24KB\" }
red = { kmin = \"1KB\", kmax = \"2KB\", pmax = 0.5, at = \"enqueue\", scale = \"10Gb/s\" }
[host]
delay = \"3us\"
receive_rate = \"20Gb/s\"
receive_queue = 9
control_first = false
loss = 0.25
timeout = 9
zero_touch = { adp_retrans = true, adp_retrans_floor = \"7us\", tx_window = 99, slow_restart = true, selective_repeat = true, multipath_ways = 4 }
[control]
algorithm = \"timely\"
parameters = { beta = 0.5 }
notification = { scope = \"port\", spacing = \"4us\", trailing = false, priority = 5, told = \"1us\" }
[[flows]]
kind = \"one\"
from = 1
to = \"h5\"
flows = 2
bytes = \"64KB\"
start = \"10us\"
every = \"1us\"
stop = \"1ms\"
priority = 4
group = 9
[record]
from = \"1ms\"
interval = \"10us\"
queues = [\"leaf1 > h5\", \"leaf0>spine2\"]
flows = [1]
";
    let loaded = file(text).expect("it is right");
    expect_test::expect_file!["scenario.txt"].assert_debug_eq(&loaded.scenario);
}

#[test]
fn what_is_wrong_has_a_line_and_a_key() {
    let cases = [
        (SMALL.replace("hosts = 3", "hosts = \"x\""), "x.toml:4: hosts: "),
        (
            SMALL.replace("hosts = 3", "host = 3"),
            "x.toml:4: host: unknown field `host`",
        ),
        (SMALL.replace("hosts = 3", ""), "x.toml:2: topology.hosts: "),
        (
            SMALL.replace("star", "ring"),
            "x.toml:3: topology.kind: \"ring\" is none of star",
        ),
        (
            SMALL.replace("\"1ms\"", "\"1 apple\""),
            "x.toml:1: duration: \"1 apple\" is not a time",
        ),
        (
            SMALL.replace("\"h2\"", "\"h9\""),
            "x.toml:7: flows.to: \"h9\" is not a host: there are h0 to h2",
        ),
        (
            SMALL.replace("\"h2\"", "7"),
            "x.toml:7: flows.to: 7 is not a host",
        ),
        (
            SMALL.replace("incast", "flood"),
            "x.toml:6: flows.kind: \"flood\" is none of one",
        ),
        (
            SMALL.replace("incast", "poisson"),
            "x.toml:5: flows.load: it is needed",
        ),
        (
            format!("{SMALL}load = 7\n").replace("incast", "poisson"),
            "x.toml:8: flows.load: more than 0",
        ),
        (
            format!("{SMALL}[control]\nalgorithm = \"fast\"\n"),
            "x.toml:9: control.algorithm: no congestion control \"fast\"",
        ),
        (
            format!("{SMALL}[control]\nalgorithm = \"timely\"\nparameters = {{ gamma = 1 }}\n"),
            "x.toml:10: control.parameters.gamma: timely has no parameter \"gamma\"",
        ),
        (
            format!("{SMALL}[switch]\npreset = \"best\"\n"),
            "x.toml:9: switch.preset: \"best\" is none of paper",
        ),
        (
            format!("{SMALL}[switch]\nred = {{ pmax = 2.0 }}\n"),
            "x.toml:9: switch.red.pmax: a probability",
        ),
        (
            format!("{SMALL}[host]\nloss = 1.5\n"),
            "x.toml:9: host.loss: 0 to 1",
        ),
        (
            format!("{SMALL}[host]\ntimeout = 32\n"),
            "x.toml:9: host.timeout: 0 to 31",
        ),
        (
            format!("{SMALL}[host]\nzero_touch = {{ tx_window = 0 }}\n"),
            "x.toml:9: host.zero_touch.tx_window: 1 to 4194304",
        ),
        (
            format!("{SMALL}[host]\nzero_touch = {{ multipath_ways = 17 }}\n"),
            "x.toml:9: host.zero_touch.multipath_ways: 1 to 16",
        ),
        (
            format!("{SMALL}[record]\nqueues = [\"h0 > h1\"]\n"),
            "x.toml:9: record.queues: a queue is",
        ),
        (
            format!("{SMALL}[record]\nflows = [5]\n"),
            "x.toml:9: record.flows: \"all\", or a list of numbers below 2",
        ),
        (
            SMALL.replace("to = \"h2\"", "to = \"h2\"\nfrom = [\"h2\"]"),
            "x.toml:5: flows.from: h2 cannot send to itself",
        ),
        (
            SMALL.replace("kind = \"star\"", "kind = star"),
            "x.toml:3: kind: ",
        ),
        (
            "duration = \"1ms\"\n[topology]\nkind = \"star\"\nhosts = 3\n".to_owned(),
            "x.toml:1: flows: a scenario has at least one flow",
        ),
    ];
    for (text, expected) in cases {
        let message = wrong(&text);
        assert!(message.starts_with(expected), "{message}\nis not\n{expected}");
    }
}

fn changed(text: &str, changes: &Changes) -> Result<Loaded> {
    parse(text, Path::new("x.toml"), changes)
}

#[test]
fn a_command_line_changes_a_file() {
    let changes = Changes {
        algorithm: Some("timely".to_owned()),
        flows: Some(5),
        seed: Some(9),
        set: vec![
            ("beta".to_owned(), "0.25".to_owned()),
            ("duration".to_owned(), "5ms".to_owned()),
            ("switch.pfc".to_owned(), "{ off = true }".to_owned()),
            ("topology.rate".to_owned(), "10Gb/s".to_owned()),
        ],
    };
    let loaded = changed(SMALL, &changes).expect("it is right");
    let scenario = &loaded.scenario;
    assert_eq!(
        (scenario.seed, scenario.duration, scenario.flows.len()),
        (9, 5_000_000, 5)
    );
    assert_eq!(scenario.switch.pfc, Pfc::Off);
    assert_eq!(scenario.topology.rate_of(0), 10_000_000_000);
    assert_eq!(scenario.control.algorithm.name(), "timely");
    assert!(
        loaded
            .algorithm
            .get("beta")
            .is_some_and(|v| v.starts_with("0.25"))
    );
}

#[test]
fn wrong_changes_are_refused() {
    let set = |key: &str, value: &str| Changes {
        set: vec![(key.to_owned(), value.to_owned())],
        ..Changes::default()
    };
    for (changes, expected) in [
        (set("switch.buffers", "1"), "unknown field `buffers`"),
        (set("topology.kind.x", "1"), "kind is not a table"),
        (set("duration", "soon"), "\"soon\" is not a time"),
        (
            Changes {
                algorithm: Some("fast".to_owned()),
                ..Changes::default()
            },
            "no congestion control \"fast\"",
        ),
    ] {
        let message = format!("{:#}", changed(SMALL, &changes).expect_err("it is wrong"));
        assert!(message.contains(expected), "{message}");
    }
    let flows = Changes {
        flows: Some(3),
        ..Changes::default()
    };
    let error = changed(&SMALL.replace("incast", "permutation"), &flows).expect_err("no incast");
    assert!(error.to_string().contains("no incast"), "{error}");
}

#[test]
fn flows_come_from_a_file_beside_it() {
    let folder = std::env::temp_dir().join(format!("vnic-sim-file-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("f.csv"), "from,to,start_ns,bytes\n0,1,5,100\n").expect("a file");
    let text = SMALL
        .replace("incast", "file")
        .replace("to = \"h2\"", "path = \"f.csv\"");
    let loaded = parse(&text, &folder.join("s.toml"), &Changes::default());
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let flows = loaded.expect("it is right").scenario.flows;
    assert_eq!((flows.len(), flows[0].bytes), (1, Some(100)));
    let missing = wrong(&text);
    assert!(
        missing.starts_with("x.toml:7: flows.path: cannot read f.csv"),
        "{missing}"
    );
}

/// The example of the engine, as a path from this crate.
const AIMD: &str = concat!(
    "program:",
    env!("CARGO_MANIFEST_DIR"),
    "/../engine/examples/aimd.wat"
);

/// Eight flows to one host for 2 ms, under an algorithm; parameters of it.
fn incast(algorithm: &str, set: &[(&str, &str)]) -> (Loaded, crate::network::Outcome) {
    let changes = Changes {
        algorithm: Some(algorithm.to_owned()),
        set: set
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ..Changes::default()
    };
    let text = SMALL
        .replace("1ms", "2ms")
        .replace("hosts = 3", "hosts = 9")
        .replace("h2", "h8");
    let loaded = parse(&text, Path::new("x.toml"), &changes).unwrap_or_else(|e| panic!("{e:#}"));
    let outcome = crate::network::run(&loaded.scenario, &mut |_| {}).expect("it runs");
    (loaded, outcome)
}

#[test]
fn a_program_runs_like_the_algorithms_that_are_built_in() {
    let (loaded, outcome) = incast(AIMD, &[("target_ns", "20us"), ("step_bps", "40M")]);
    assert_eq!(loaded.algorithm.get("step_bps").as_deref(), Some("40M"));
    assert!(loaded.scenario.control.point.is_some(), "it hears notifications");
    let again = incast(AIMD, &[("target_ns", "20us"), ("step_bps", "40M")]).1;
    assert_eq!(outcome.hash, again.hash, "a seed is a run");
    let other = incast(AIMD, &[("target_ns", "40us"), ("step_bps", "40M")]).1;
    assert_ne!(outcome.hash, other.hash, "its parameters act");
    assert_eq!(loaded.scenario.control.algorithm.faults().count, 0);
    // It hears of marks before TIMELY hears of its round trip, and uses the link nearly as well in these first milliseconds.
    let longest =
        |outcome: &crate::network::Outcome| outcome.queues.iter().map(|q| q.max).max().unwrap_or_default();
    let sum = |outcome: &crate::network::Outcome| outcome.flows.iter().map(|f| f.delivered).sum::<u64>();
    let timely = incast("timely", &[]).1;
    assert!(longest(&outcome) < longest(&timely), "{}", longest(&outcome));
    assert!(sum(&outcome) * 10 > sum(&timely) * 8, "{}", sum(&outcome));
}

#[test]
fn a_program_that_cannot_be_loaded_is_said_with_its_place() {
    let said = |path: &str| {
        let changes = Changes {
            algorithm: Some(format!("program:{path}")),
            ..Changes::default()
        };
        format!(
            "{:#}",
            parse(SMALL, Path::new("x.toml"), &changes).expect_err("it is wrong")
        )
    };
    assert!(said("/nowhere/a.wasm").contains("/nowhere/a.wasm: No such file"));
    let folder = std::env::temp_dir().join(format!("vnic-sim-program-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text, problem) in [
        ("empty.wat", "(module)", "there is no memory"),
        ("text.wat", "(module (func (i64.add)))\n(", "text.wat:2:"),
        (
            "other.wasm",
            "\0asm\x02\0\0\0",
            "not a WebAssembly module of version 1",
        ),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        let said = said(path.to_str().expect("UTF-8"));
        assert!(said.contains(problem), "{said}");
    }
    std::fs::remove_dir_all(&folder).expect("it is removed");
}
