//! Quality of service by path: policy files and what they answer, beside what OpenSM answers.

use vnic_fabric::subnet::{Port, Query, mtu_code, notes, parse, rate_code, resolve};

const SHORTEST: &str = "qos-ulps\n default: 0\nend-qos-ulps\n";

/// The subnet of `tests/opensm/record`.
pub fn ports() -> [Port<'static>; 4] {
    let port = |node, guid, pkeys| Port {
        guid,
        node,
        number: 1,
        mtu: mtu_code(2048),
        rate: rate_code(10_000),
        pkeys,
    };
    [
        port("vs1", 0x10_0001, &[0xffff, 0x8123]),
        port("vs2", 0x10_0003, &[0xffff, 0x0123]),
        port("st1", 0x10_0005, &[0xffff, 0x8123]),
        port("st2", 0x10_0007, &[0xffff, 0x0123]),
    ]
}

fn number(text: &str) -> u64 {
    let digits = text.strip_prefix("0x");
    let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    number.unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Our answer to a line of a recording, in its form.
fn answer(policy: &str, line: &str) -> String {
    let policy = parse(policy).expect("OpenSM takes it");
    let ports = ports();
    let port = |name: &str| ports.iter().find(|p| p.node == name).expect("a port");
    let mut words = line.split_whitespace();
    let mut next = || words.next();
    let (from, to) = (next().map(port), next().map(port));
    let mut query = Query {
        source: from.expect("a source"),
        destination: to.expect("a destination"),
        service_id: None,
        qos_class: None,
        pkey: None,
        sl: None,
    };
    while let Some(option) = next() {
        let value = number(next().expect("a value"));
        match option {
            "--service_id" => query.service_id = Some(value),
            "--qos_class" => query.qos_class = Some(value as u16),
            "--pkey" => query.pkey = Some(value as u16),
            "--sl" => query.sl = Some(value as u8),
            _ => panic!("{option}"),
        }
    }
    match resolve(Some(&policy), &query) {
        Err(_) => "none".to_owned(),
        Ok(r) => format!(
            "{} {} {} {} {:#06x}",
            r.sl,
            r.mtu,
            r.rate,
            r.packet_life,
            r.pkey & 0x7fff
        ),
    }
}

/// What is compared of OpenSM's answer: bits 6 and 7 of MTU, rate and lifetime are selectors. The bit of full members is left out:
/// OpenSM repeats the query's, and has none where a level names the P_Key; ours is that of the source's table.
fn recorded(answer: &str) -> String {
    let values: Vec<u64> = match answer {
        "none" => return answer.to_owned(),
        _ => answer.split(' ').map(number).collect(),
    };
    let [sl, mtu, rate, life, pkey] = values[..] else {
        panic!("{answer}")
    };
    format!(
        "{sl} {} {} {} {:#06x}",
        mtu & 63,
        rate & 63,
        life & 63,
        pkey & 0x7fff
    )
}

#[test]
fn answers_are_those_of_opensm() {
    let recordings = [
        (
            include_str!("../opensm/full.conf"),
            include_str!("../opensm/full.txt"),
        ),
        (
            include_str!("../opensm/ulps.conf"),
            include_str!("../opensm/ulps.txt"),
        ),
    ];
    for (policy, recording) in recordings {
        let mut wrong = Vec::new();
        let lines = recording.lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in lines {
            let (query, theirs) = line.split_once(": ").expect("a query and an answer");
            let (ours, theirs) = (answer(policy, query), recorded(theirs));
            count += 1;
            if ours != theirs {
                wrong.push(format!("{query}: {ours}, and OpenSM {theirs}"));
            }
        }
        assert!(count > 300, "{count} queries");
        assert!(
            wrong.is_empty(),
            "{} of {count}:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
}

#[test]
fn what_is_wrong_is_told_with_line_and_column() {
    let level =
        |fields: &str| format!("{SHORTEST}qos-levels\nqos-level\n{fields}end-qos-level\nend-qos-levels\n");
    let rule = |fields: &str| {
        format!(
            "{SHORTEST}qos-match-rules\nqos-match-rule\n{fields}end-qos-match-rule\nend-qos-match-rules\n"
        )
    };
    let scope = |fields: &str| {
        format!(
            "{SHORTEST}qos-setup\nsl2vl-tables\nsl2vl-scope\n{fields}end-sl2vl-scope\nend-sl2vl-tables\nend-qos-setup\n"
        )
    };
    let ulp = |line: &str| format!("qos-ulps\ndefault: 0\n{line}\nend-qos-ulps\n");
    let cases: &[(String, &str)] = &[
        (
            String::new(),
            "line 1, column 1: no QoS level has the name DEFAULT",
        ),
        ("qos-ulp\n".into(), "line 1, column 1: `qos-ulp` is unknown here"),
        (
            "  : x".into(),
            "line 1, column 3: a keyword is expected, and `:` stands here",
        ),
        (
            "\n port-groups # all\n".into(),
            "line 2, column 2: `port-groups` has no `end-port-groups`",
        ),
        (
            level("name: a\nsl: 16\n"),
            "line 7, column 5: sl 16 is out of range: 0 to 15",
        ),
        (
            level("name: a\nsl: 1 2\n"),
            "line 7, column 7: `2` stands behind the value of `sl`",
        ),
        (
            level("name: a\nsl 1\n"),
            "line 7, column 4: `:` is expected behind `sl`",
        ),
        (
            level("name: a\nsl:\n"),
            "line 7, column 4: sl: a number is expected, and the end of the line stands here",
        ),
        (
            level("name: a\nsl: 09\n"),
            "line 7, column 5: sl: \"09\" is no number",
        ),
        (level("name: a\n"), "line 5, column 1: `qos-level` has no `sl`"),
        (level("sl: 0\n"), "line 5, column 1: `qos-level` has no `name`"),
        (level("sl: 0\nsl: 0\n"), "line 7, column 1: `sl` is given twice"),
        (
            level("name:  # no name\nsl: 0\n"),
            "line 6, column 8: the name is empty",
        ),
        (
            level("name: \"a\nsl: 0\n"),
            "line 6, column 7: the quote has no end in its line",
        ),
        (
            level("name: a\nmtu-limit: 6\n"),
            "line 7, column 12: mtu-limit 6 is out of range: 1 to 5",
        ),
        (
            level("name: a\nrate-limit: 1\n"),
            "line 7, column 13: rate-limit 1 is out of range: 2 to 24",
        ),
        (
            level("name: a\npacket-life: 64\n"),
            "line 7, column 14: packet-life 64 is out of range: 0 to 63",
        ),
        (
            level("name: a\nmtu: 4\n"),
            "line 7, column 1: `mtu` is unknown here: name, use, sl,",
        ),
        (
            rule("qos-level-name: gone\n"),
            "line 6, column 17: there is no QoS level \"gone\"",
        ),
        (
            rule("source: a, b\nqos-level-name: x\n"),
            "line 6, column 9: there is no port group \"a\"",
        ),
        (
            rule("use: x\n"),
            "line 5, column 1: `qos-match-rule` has no `qos-level-name`",
        ),
        (
            rule("qos-class: 4096\n"),
            "line 6, column 12: QoS class 4096 is out of range: 0 to 4095",
        ),
        (
            rule("pkey: 0x10000\n"),
            "line 6, column 7: P_Key 65536 is out of range",
        ),
        (
            rule("service-id: 0x10000000000000000\n"),
            "line 6, column 13: Service-ID: \"0x10000000000000000\" is no number",
        ),
        (
            scope("group: a\n"),
            "line 6, column 1: `sl2vl-scope` has no `sl2vl-table`",
        ),
        (
            scope("sl2vl-table: 1,2\n"),
            "line 7, column 14: `sl2vl-table` has 2 virtual lanes: 16 are needed",
        ),
        (
            scope("sl2vl-table: 16\n"),
            "line 7, column 14: virtual lane 16 is out of range: 0 to 15",
        ),
        (
            scope("from: *\nsl2vl-table: 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"),
            "line 6, column 1: `sl2vl-scope` has neither",
        ),
        (
            ulp("sdp, port 7: 1"),
            "line 3, column 1: `sdp` takes nothing or `port-num`",
        ),
        (
            ulp("sdp, port-num 65536: 1"),
            "line 3, column 15: port 65536 is out of range: 0 to 65535",
        ),
        (
            ulp("nfs: 1"),
            "line 3, column 1: `nfs` is unknown here: default, sdp, rds,",
        ),
        (
            ulp("rds: 16"),
            "line 3, column 6: service level 16 is out of range: 0 to 15",
        ),
        (
            " ".repeat(vnic_fabric::subnet::TEXT_MAX + 1),
            "line 1, column 1: the file has 262145 bytes",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(text).map(|_| ()).expect_err(expected).to_string();
        assert!(
            error.starts_with(expected),
            "{text}: {error}, expected {expected}"
        );
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let shown = |policy: &str| -> Vec<(u32, String)> {
        let policy = parse(policy).expect("a policy");
        let notes = notes(&policy, &ports());
        notes.into_iter().map(|note| (note.line, note.text)).collect()
    };
    assert_eq!(shown(SHORTEST), []);
    let text = "qos-match-rules\n\
                qos-match-rule\nqos-level-name: default\nend-qos-match-rule\n\
                qos-match-rule\npkey: 0x77\nqos-level-name: default\nend-qos-match-rule\n\
                end-qos-match-rules\n\
                qos-levels\n\
                qos-level\nname: default\nsl: 0\npath-bits: 1\nend-qos-level\n\
                qos-level\nname: DE FAULT\nsl: 1\npkey: 9\nend-qos-level\n\
                end-qos-levels\n\
                qos-ulps\nipoib, pkey 0x44: 2\nend-qos-ulps\n\
                port-groups\nport-group\nname: a\npartition: Blue\nend-port-group\nend-port-groups\n";
    let all = shown(text);
    let lines: Vec<u32> = all.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [5, 5, 11, 16, 16, 23, 23, 26, 26], "{all:#?}");
    for (line, part) in [
        (5, "line 2 matches all paths"),
        (5, "no port here is a member of these partitions"),
        (11, "path-bits"),
        (16, "line 11 has this name, too"),
        (16, "no two ports"),
        (23, "two full members"),
        (26, "no partition \"Blue\""),
        (26, "no port here is in the port group \"a\""),
    ] {
        assert!(
            all.iter().any(|(at, text)| *at == line && text.contains(part)),
            "{part}: {all:#?}"
        );
    }
}
