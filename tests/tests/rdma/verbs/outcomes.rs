//! What became of requests, as operators see it: `vnicctl fault record` and `fault report` of a daemon, while programs work.

use super::queue_pairs::{Daemon, own_pid};
use super::*;

/// The same few requests again, of which one is lost and one does not know it.
fn scenario(daemon: &Daemon) -> Result<()> {
    let (a, b) = (daemon.side("vf0")?, daemon.side("vf1")?);
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let unreliable =
        |side: &Side| -> Result<QueuePair<Uc>> { Ok(side.pd.qp::<Uc>(&side.cq, &side.cq).build()?) };
    let (ua, ub) = (unreliable(&a)?, unreliable(&b)?);
    connect(&ua, &ub)?;
    daemon.said(&["fault", "record", "start", "--limit", "1000"])?;
    qb.post_recv(&[RecvWr::new(b.region.slice(LEN / 2..)).id(9)])?;
    qa.post_send(&[SendWr::send(a.region.slice(..1000)).signaled().id(1)])?;
    a.done()?;
    b.done()?;
    let lost = ["--to", "vf1", "--opcode", "UC_SEND_ONLY", "--drop"];
    daemon.said(&[&["fault", "add", "lost"], &lost[..]].concat())?;
    ua.post_send(&[SendWr::send(a.region.slice(..100)).signaled().id(2)])?;
    a.done()?;
    daemon.said(&["fault", "remove", "lost"])?;
    daemon.said(&["fault", "record", "stop"])?;
    Ok(())
}

/// A completion of a WRITE that was carried out tells a failure, because a rule says so: the report names the lie.
#[test]
fn a_rule_lies_and_the_report_says_what_happened() -> Result<()> {
    let daemon = Daemon::start()?;
    let (a, b) = (daemon.side("vf0")?, daemon.side("vf1")?);
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let write = |id| -> Result<CompletionStatus> {
        let data = a.region.slice(..1000);
        qa.post_send(&[SendWr::write(data, b.region.addr(), b.region.rkey())
            .signaled()
            .id(id)])?;
        Ok(take(&a.cq)?.status())
    };
    daemon.said(&["fault", "record", "start"])?;
    let rule = [
        "--adapter",
        "vf0",
        "--kind",
        "write",
        "--lie",
        "retry-exceeded",
        "--count",
        "1",
    ];
    daemon.said(&[&["fault", "verbs", "add", "liar"], &rule[..]].concat())?;
    assert_eq!(write(1)?, CompletionStatus::RetryExceeded);
    assert_eq!(write(2)?, CompletionStatus::Success, "the queue pair goes on");
    daemon.said(&["fault", "record", "stop"])?;
    let report = daemon.json(&["fault", "report", "--only", "lies"])?;
    let rows = report["outcomes"].as_array().context("requests")?;
    assert_eq!(rows.len(), 1, "{report}");
    assert_eq!(
        (
            &rows[0]["wr_id"],
            &rows[0]["told_status"],
            &rows[0]["real_status"]
        ),
        (&1.into(), &"RetryExceeded".into(), &"Success".into())
    );
    assert_eq!(rows[0]["verdict"], "reported as failed; its data was written");
    let rules = daemon.json(&["fault", "verbs", "list"])?;
    assert_eq!(rules["verbs_faults"][0]["injected"], 1);

    // Another rule refuses a command: the program sees the status, and its errno.
    let rule = [
        "--adapter",
        "vf0",
        "--command",
        "alloc-pd",
        "--status",
        "limit-reached",
    ];
    daemon.said(&[&["fault", "verbs", "add", "full"], &rule[..]].concat())?;
    let refused = a.context.alloc_pd().err().context("refused")?;
    assert_eq!(refused.status(), Some(CommandStatus::LimitReached));
    assert_eq!(refused.errno(), 12);
    daemon.said(&["fault", "verbs", "remove", "full", "liar"])?;
    a.context.alloc_pd()?;

    // A third keeps this program from opening a device; another program is not meant.
    let own = std::fs::read_to_string("/proc/self/comm")?;
    let adapter = [
        "--adapter",
        "vf1",
        "--command",
        "hello",
        "--status",
        "not-permitted",
    ];
    for (name, process) in [("other", "another"), ("closed", own.trim_end())] {
        daemon.side("vf1")?;
        let add = ["fault", "verbs", "add", name, "--process", process];
        daemon.said(&[&add, &adapter[..]].concat())?;
    }
    let refused = daemon.side("vf1").err().context("refused")?;
    let refused = refused.downcast_ref::<Error>().context("an error of verbs")?;
    assert_eq!(refused.errno(), 1);
    daemon.said(&["fault", "verbs", "remove", "other", "closed"])?;
    daemon.side("vf1")?;
    let told = daemon.json(&["event", "list", "--kind", "verbs_fault_hit"])?;
    let told = told["events"].as_array().context("events")?;
    let rules: Vec<_> = told
        .iter()
        .map(|event| event["parameters"]["fault"].as_str())
        .collect();
    assert_eq!(
        rules,
        [Some("liar"), Some("full"), Some("closed")],
        "once for each rule"
    );
    assert_eq!(daemon.said(&["fault", "verbs", "list"])?, "no faults of verbs\n");
    Ok(())
}

#[test]
fn operators_record_and_read_what_became_of_requests() -> Result<()> {
    let daemon = Daemon::start()?;
    let nothing = daemon.said(&["fault", "report"]);
    ensure!(nothing.is_err_and(|e| e.to_string().contains("nothing was recorded")));
    scenario(&daemon)?;
    let json = daemon.json(&["fault", "report"])?;
    let rows = json["outcomes"].as_array().context("requests")?;
    let words: Vec<(&str, u64, &str, bool)> = rows
        .iter()
        .filter_map(|row| {
            Some((
                row["operation"].as_str()?,
                row["wr_id"].as_u64()?,
                row["verdict"].as_str()?,
                row["lie"].as_bool()?,
            ))
        })
        .collect();
    let lie = "reported as complete; its data was NOT written";
    assert_eq!(
        words,
        [
            ("Send", 1, "completed; its data was written", false),
            ("Send", 2, lie, true),
            ("Receive", 9, "receive completed", false),
        ]
    );
    let first = &rows[0];
    assert_eq!(
        (&first["adapter"], &first["process"]["pid"]),
        (&"adapters/vf0".into(), &own_pid().into())
    );
    assert_eq!(
        (&first["told_status"], &first["real_status"], &first["bytes"]),
        (&"Success".into(), &"Success".into(), &1000.into())
    );
    let there = &first["responder"];
    assert_eq!(
        (&there["adapter"], &there["executions"], &there["receive_wr_id"]),
        (&"adapters/vf1".into(), &1.into(), &9.into())
    );
    assert_eq!(json["recording"]["requests"], 3);

    let lies = daemon.said(&["fault", "report", "--only", "lies"])?;
    let lines: Vec<&str> = lies.lines().collect();
    assert!(lines[1].contains(lie) && lines[2].is_empty(), "{lies}");
    assert!(lies.contains(&format!("       1  {lie}\n")), "{lies}");
    let failed = daemon.said(&["fault", "report", "--only", "failed"])?;
    assert!(failed.starts_with("no such requests\n"), "{failed}");

    // A second run that does the same is the same.
    let shown = daemon.said(&["fault", "report", "--comparable"])?;
    scenario(&daemon)?;
    assert_eq!(daemon.said(&["fault", "report", "--comparable"])?, shown);
    let long = daemon.said(&["fault", "report"])?;
    assert_ne!(long, shown);

    daemon.said(&["fault", "record", "start", "--adapter", "vf0"])?;
    let running = daemon.said(&["fault", "report"]);
    ensure!(running.is_err_and(|e| e.to_string().contains("still runs")));
    let twice = daemon.said(&["fault", "record", "start"]);
    ensure!(twice.is_err_and(|e| e.to_string().contains("exists already")));
    Ok(())
}
