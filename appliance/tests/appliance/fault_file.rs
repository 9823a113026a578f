//! Fault rules in files: what is accepted, and that everything which is wrong is reported with its place.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::lab::text;
use vnic_appliance::config::{Environment, Overrides, Settings, faults_from_text};
use vnic_backend::fault::{Action, PsnRange};

const VNICD: &str = env!("CARGO_BIN_EXE_vnicd");

fn parse(text: &str) -> Result<Settings, String> {
    let environment = Environment {
        xdg_runtime_dir: Some("/run/user/1000".into()),
        root: false,
        ..Environment::current()
    };
    Settings::from_text(Path::new("x.toml"), text, &Overrides::default(), &environment)
        .map_err(|e| e.to_string())
}

#[test]
fn the_file_says_all_that_rules_can_be() {
    let settings = parse(
        r#"
        [[adapter]]
        name = "a"
        [[port]]
        name = "p"
        type = "tap"
        ifname = "t"
        [[fault]]
        name = "one"
        from = "a"
        to = "p"
        destination_qp = 17
        opcodes = ["RC_SEND_ONLY", 6]
        psn = "16777214-3"
        probability = 0.25
        skip = 2
        count = 3
        seed = 4
        action = "delay"
        delay = "1.2ms"
        jitter = "300us"
        [[fault]]
        name = "two"
        roce = true
        ethertype = 0x8915
        psn = 7
        probability = "1%"
        action = "reorder"
        [[fault]]
        name = "three"
        action = "corrupt"
        bits = 8
        offset = 60
        [[fault]]
        name = "four"
        action = "duplicate"
        copies = 16
        [[fault]]
        name = "five"
        action = "mark_ce"
        "#,
    )
    .expect("valid");
    let [one, two, three, four, five] = &settings.faults[..] else {
        panic!("{:?}", settings.faults);
    };
    assert_eq!((one.from.as_deref(), one.to.as_deref()), (Some("a"), Some("p")));
    assert_eq!(one.destination_qp, Some(17));
    assert_eq!(
        one.opcodes.map(|o| o.iter().collect::<Vec<_>>()),
        Some(vec![4, 6])
    );
    let wrapped = PsnRange {
        first: 16_777_214,
        last: 3,
    };
    assert_eq!(one.psn, Some(wrapped));
    assert_eq!(
        (one.probability, one.skip, one.count, one.seed),
        (250_000, 2, Some(3), Some(4))
    );
    let us = Duration::from_micros;
    assert_eq!(
        one.action,
        Action::Delay {
            by: us(1200),
            jitter: us(300)
        }
    );
    assert_eq!(
        (two.roce, two.ethertype, two.probability),
        (true, Some(0x8915), 10_000)
    );
    assert_eq!(
        two.action,
        Action::Reorder {
            by: 1,
            at_most: us(10_000)
        }
    );
    assert_eq!(
        three.action,
        Action::Corrupt {
            bits: 8,
            offset: Some(60)
        }
    );
    assert_eq!(four.action, Action::Duplicate { copies: 16 });
    assert_eq!((five.action, five.probability), (Action::MarkCe, 1_000_000));
}

#[test]
fn everything_that_is_wrong_in_the_file_has_its_place() {
    let found = parse(
        r#"[[adapter]]
name = "a"
[[fault]]
name = "F"
from = "b"
destination_qp = 16777216
opcodes = [4, "SEND", 256, 1.5]
psn = "1-x"
ethertype = 65536
probability = 1.5
skip = -1
action = "explode"
[[fault]]
name = "f"
action = "delay"
jitter = "70s"
copies = 2
[[fault]]
name = "f"
action = "corrupt"
bits = 9
offset = 3
delay = "5"
[[fault]]
action = "reorder"
frames = 0
at_most = "61s"
speed = 3
"#,
    )
    .expect_err("wrong");
    let expected = [
        "x.toml:4:8: fault[0].name: \"F\" is not a name: 1 to 15 of a-z, 0-9, '-' and '_', beginning with a letter or digit",
        "x.toml:5:8: fault[0].from: no adapter or port of this file is named b",
        "x.toml:6:18: fault[0].destination_qp: 16777216 is out of range: 0 to 16777215",
        "x.toml:7:15: fault[0].opcodes[1]: \"SEND\" is not a BTH opcode: a name such as RC_SEND_ONLY or RC_ACKNOWLEDGE, or 0 to 255",
        "x.toml:7:23: fault[0].opcodes[2]: 256 is out of range: 0 to 255",
        "x.toml:7:28: fault[0].opcodes[3]: \"1.5\" is not a BTH opcode: a name such as RC_SEND_ONLY or RC_ACKNOWLEDGE, or 0 to 255",
        "x.toml:8:7: fault[0].psn: \"1-x\" are no PSNs such as 7 or 10-20: \"x\" is not a number",
        "x.toml:9:13: fault[0].ethertype: 65536 is out of range: 0 to 65535",
        "x.toml:10:15: fault[0].probability: 1.5 is not a probability: 0 to 1 in steps of a millionth, such as 0.01 for one frame in a hundred",
        "x.toml:11:8: fault[0].skip: -1 is negative",
        "x.toml:12:10: fault[0].action: \"explode\" is no action: \"drop\", \"delay\", \"reorder\", \"duplicate\", \"corrupt\", \"mark_ce\"",
        "x.toml:13:1: fault[1].delay: this key is required",
        "x.toml:16:10: fault[1].jitter: with the delay, 70s is out of range: more than 0, at most 60s",
        "x.toml:17:10: fault[1].copies: allowed with action = \"duplicate\" only",
        "x.toml:19:8: fault[2].name: the name f is taken by line 14; names are unique among fault rules",
        "x.toml:21:8: fault[2].bits: 9 is out of range: 1 to 8",
        "x.toml:23:9: fault[2].delay: allowed with action = \"delay\" only",
        "x.toml:24:1: fault[3].name: this key is required",
        "x.toml:26:10: fault[3].frames: 0 is out of range: 1 to 65536",
        "x.toml:27:11: fault[3].at_most: 61s is out of range: more than 0, at most 60s",
        "x.toml:28:1: fault[3].speed: unknown key; did you mean \"seed\"?",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);

    let many: String = (0..65)
        .map(|i| format!("[[fault]]\nname = \"f{i}\"\naction = \"drop\"\n"))
        .collect();
    let found = parse(&many).expect_err("too many");
    assert_eq!(
        found,
        "x.toml:193:1: fault[64]: at most 64 fault rules are allowed"
    );
    let alone = |text| faults_from_text(Path::new("y.toml"), text).map_err(|e| e.to_string());
    assert!(alone("").is_err_and(|e| e.contains("[[fault]]")));
    assert!(alone("[nic]\n").is_err_and(|e| e.starts_with("y.toml:")));
    assert!(alone("x = [").is_err());
    let lone = alone("[[fault]]\nname = \"f\"\nfrom = \"somebody\"\naction = \"drop\"\n");
    assert_eq!(lone.expect("valid").len(), 1);
}

#[test]
fn check_config_covers_faults() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let output = Command::new(VNICD).arg("--check-config").arg(&file).output();
        let output = output.expect("vnicd");
        (output.status.code(), text_of(&output))
    };
    fn text_of(output: &Output) -> String {
        text(&output.stdout) + &text(&output.stderr)
    }
    let head = format!("[nic]\nsocket_dir = {:?}\n", dir.path());
    let (code, said) = check(&format!("{head}[[fault]]\nname = \"f\"\naction = \"drop\"\n"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("0 ports, 1 fault"), "{said}");
    let (code, said) = check(&format!("{head}[[fault]]\nname = \"f\"\naction = \"dorp\"\n"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(":5:10: fault[0].action: \"dorp\""), "{said}");
}
