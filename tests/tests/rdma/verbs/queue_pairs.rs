//! Queue pairs as operators see them: by the NIC, and by `vnicctl` of a daemon, while programs use them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use vnic_backend::{NicError, QUEUE_PAIRS_AT_ONCE, QpState as Seen, QpStatus};
use vnic_tests::lab::process::Process;
use vnic_tests::lab::{built, output};

use super::*;

/// After this a program hangs. Never a statement about speed.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_queue_pair_is_seen_at_work() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    let seen = |adapter: &str, number: u32| rig.nic.queue_pair(adapter, number);
    assert_eq!(seen("a", qa.number())?.attributes.state, Seen::Reset);
    connect(&qa, &qb)?;
    let idle = seen("a", qa.number())?;
    assert_eq!(idle.attributes.state, Seen::Rts);
    assert_eq!(idle.attributes.destination_qp.0, qb.number());
    assert_eq!((idle.sends.posted, idle.sends.in_flight), (0, 0));
    let numbers = [idle.init.pd.map(|pd| pd.0), idle.init.send_cq.map(|cq| cq.0)];
    assert_eq!(numbers, [Some(a.pd.number()), Some(a.cq.number())]);

    // A message without a receive, and one behind it.
    for id in 0..2 {
        qa.post_send(&[SendWr::send(a.region.slice(..5000)).signaled().id(id)])?;
    }
    let refused = |s: &QpStatus| s.errors.rnr_nak_retry_err > 0 && s.sends.posted == 2;
    ensure!(wait_for(|| seen("a", qa.number()).is_ok_and(|s| refused(&s))));
    let waiting = seen("a", qa.number())?;
    assert_eq!(
        (waiting.sends.posted, waiting.sends.oldest),
        (2, idle.sends.oldest)
    );
    assert!(seen("b", qb.number())?.errors.out_of_buffer > 0);
    let worst = |adapter: &str| -> Result<Vec<u32>> {
        let status = rig.nic.rdma(adapter)?.context("a function")?;
        Ok(status.worst.iter().map(|(qp, _)| qp.0).collect())
    };
    assert_eq!((worst("a")?, worst("b")?), (vec![qa.number()], vec![qb.number()]));
    for half in [..LEN / 2, ..LEN / 4] {
        qb.post_recv(&[RecvWr::new(b.region.slice(half))])?;
    }
    for side in [&a, &a, &b, &b] {
        side.done()?;
    }
    let done = seen("a", qa.number())?;
    assert_eq!((done.sends.posted, done.sends.in_flight), (0, 0));
    // Two messages of 5000 bytes.
    let packets = 2 * 5000_u32.div_ceil(done.attributes.path_mtu.bytes()) as i32;
    assert_eq!(done.attributes.sq_psn.distance(idle.attributes.sq_psn), packets);
    assert_eq!(seen("b", qb.number())?.attributes.rq_psn, done.attributes.sq_psn);
    assert_eq!(
        rig.nic.rdma_owners("a")?.all().next().and_then(|o| o.pid),
        Some(own_pid())
    );

    qa.to_error()?;
    assert_eq!(seen("a", qa.number())?.attributes.state, Seen::Err);
    let number = qa.number();
    drop(qa);
    let gone = seen("a", number);
    let named = |e: &NicError| e.to_string().contains(&format!("{number:#x}"));
    assert!(gone.as_ref().is_err_and(named), "{gone:?}");
    assert!(worst("a")?.is_empty());
    Ok(())
}

pub(super) fn own_pid() -> i32 {
    i32::try_from(std::process::id()).expect("a process number")
}

#[test]
fn many_queue_pairs_come_by_pages_and_one_that_goes_hides_no_other() -> Result<()> {
    let Pair { rig, a, b: _b } = pair()?;
    let mut all: Vec<Option<QueuePair<Rc>>> = Vec::new();
    for _ in 0..600 {
        all.push(Some(a.rc()?));
    }
    let page = |behind| rig.nic.queue_pairs("a", behind, usize::MAX);
    let first = page(None)?;
    assert_eq!(first.rows.len(), QUEUE_PAIRS_AT_ONCE);
    // The last one of the page, the first one of the next, and one that was told already.
    for gone in [3, 255, 256] {
        all[gone] = None;
    }
    let (mut next, mut seen) = (first.next, Vec::new());
    while let Some(behind) = next {
        let page = page(Some(behind))?;
        seen.extend(page.rows.iter().map(|s| s.number.0));
        next = page.next;
    }
    let left: Vec<u32> = all[256..].iter().flatten().map(QueuePair::number).collect();
    assert_eq!((seen.len(), seen), (343, left));
    assert!(rig.nic.queue_pairs("nobody", None, 1).is_err());
    Ok(())
}

/// A daemon with adapters `vf0` and `vf1`.
pub(super) struct Daemon {
    dir: tempfile::TempDir,
    _process: Process,
}

impl Daemon {
    pub(super) fn start() -> Result<Daemon> {
        let dir = tempfile::tempdir()?;
        let at = |file: &str| dir.path().join(file).display().to_string();
        let program = built("vnic-appliance", "vnicd")?.display().to_string();
        let (sockets, state) = (at(""), at("state"));
        // Daemons of several tests run at once, and the port of metrics is one.
        let places = ["--socket-dir", &sockets, "--state-dir", &state];
        let words = ["--adapters", "2", "--metrics", "off"].into_iter().chain(places);
        let command: Vec<String> = [&program]
            .into_iter()
            .cloned()
            .chain(words.map(str::to_owned))
            .collect();
        let log = dir.path().join("vnicd.log");
        let mut process = Process::start("vnicd", &command, &log, &log)?;
        let end = Instant::now() + LONG;
        while !process
            .line(end)
            .context("waiting for `ready`")?
            .contains("ready")
        {}
        Ok(Daemon {
            dir,
            _process: process,
        })
    }

    fn command(&self, words: &[&str]) -> Result<Vec<String>> {
        let socket = self.dir.path().join("control.sock");
        let program = built("vnic-appliance", "vnicctl")?.display().to_string();
        let mut all = vec![
            program,
            "--endpoint".to_owned(),
            format!("unix:{}", socket.display()),
        ];
        all.extend(words.iter().map(|&w| w.to_owned()));
        Ok(all)
    }

    pub(super) fn said(&self, words: &[&str]) -> Result<String> {
        let command = self.command(words)?;
        output(Command::new(&command[0]).args(&command[1..]))
    }

    pub(super) fn json(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.said(&[&["-o", "json"], words].concat())?,
        )?)
    }

    pub(super) fn side(&self, adapter: &str) -> Result<Side> {
        let socket = self.dir.path().join(format!("{adapter}-rdma.sock"));
        let context = Device::open(&DeviceAddress::Socket(socket))?;
        let pd = context.alloc_pd()?;
        Ok(Side {
            cq: context.create_cq(1024)?,
            region: pd.allocate(LEN, Access::REMOTE_ALL)?,
            pd,
            context,
        })
    }
}

/// Lines of a watcher, until one is about this change.
fn until(watcher: &mut Process, change: &str) -> Result<Value> {
    let end = Instant::now() + LONG;
    loop {
        let line = watcher.line(end).with_context(|| change.to_owned())?;
        let message: Value = serde_json::from_str(&line)?;
        if message["change"] == change {
            return Ok(message["queue_pair"].clone());
        }
    }
}

#[test]
fn operators_list_show_and_watch_queue_pairs() -> Result<()> {
    let daemon = Daemon::start()?;
    let (a, b) = (daemon.side("vf0")?, daemon.side("vf1")?);
    let (qa, qb) = (a.rc()?, b.rc()?);
    let words = daemon.command(&["-o", "json", "qp", "watch", "vf0", "--interval", "100ms"])?;
    let log = daemon.dir.path().join("watch.log");
    let mut watcher = Process::start("vnicctl", &words, Path::new("/dev/null"), &log)?;
    let existing = until(&mut watcher, "CHANGE_EXISTING")?;
    assert_eq!(
        (&existing["number"], &existing["state"]),
        (&qa.number().into(), &"STATE_RESET".into())
    );
    until(&mut watcher, "CHANGE_SYNCED")?;
    connect(&qa, &qb)?;
    let changed = loop {
        let pair = until(&mut watcher, "CHANGE_CHANGED")?;
        if pair["state"] == "STATE_RTS" {
            break pair;
        }
    };
    assert_eq!(changed["peer"]["queue_pair"], qb.number());

    for id in 0..3 {
        qb.post_recv(&[RecvWr::new(b.region.slice(LEN / 2..)).id(id)])?;
        qa.post_send(&[SendWr::send(a.region.slice(..1000)).signaled()])?;
        a.done()?;
        b.done()?;
    }
    let list = daemon.json(&["qp", "list"])?;
    let rows = list["queue_pairs"].as_array().context("a list")?;
    assert_eq!(rows.len(), 2, "{list}");
    for (row, own, peer) in [(&rows[0], &qa, &qb), (&rows[1], &qb, &qa)] {
        assert_eq!(row["number"], own.number());
        assert_eq!(
            (&row["type"], &row["state"]),
            (&"TYPE_RC".into(), &"STATE_RTS".into())
        );
        assert_eq!(row["peer"]["queue_pair"], peer.number());
        assert_eq!(row["owner"]["pid"], own_pid());
        assert_eq!(row["sends"]["in_flight"], 0);
        assert_ne!(row["owner"]["command"], "");
    }
    assert_eq!(rows[0]["sends"]["next_psn"], rows[1]["expected_psn"]);
    let table = daemon.said(&["qp", "list", "vf0", "--state", "rts"])?;
    let row = table.lines().nth(1).context("a row")?;
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        words[..4],
        ["vf0", &qa.number().to_string(), "RC", "RTS"],
        "{table}"
    );
    assert_eq!(
        daemon.said(&["qp", "list", "vf0", "--state", "err"])?,
        "no queue pairs\n"
    );
    let shown = daemon.said(&["qp", "show", "vf0", &format!("{:#x}", qa.number())])?;
    for part in [
        &format!("pid {}", own_pid()),
        &format!("queue pair {}", qb.number()),
        "local_ack_timeout_err",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let missing = daemon.said(&["qp", "show", "vf0", &qb.number().wrapping_add(70_000).to_string()]);
    assert!(missing.is_err_and(|e| e.to_string().contains("queue pair")));

    // More than one page, and one that comes and goes under the eyes of the watcher.
    let many = (0..1100).map(|_| a.rc()).collect::<Result<Vec<_>>>()?;
    let list = daemon.json(&["qp", "list", "vf0", "--state", "reset"])?;
    let numbers: Option<Vec<u64>> = list["queue_pairs"]
        .as_array()
        .map(|rows| rows.iter().filter_map(|row| row["number"].as_u64()).collect());
    let made: Vec<u64> = many.iter().map(|qp| qp.number().into()).collect();
    assert_eq!(numbers, Some(made));
    until(&mut watcher, "CHANGE_ADDED")?;
    let number = qa.number();
    drop(qa);
    loop {
        let gone = until(&mut watcher, "CHANGE_REMOVED")?;
        if gone["number"] == number {
            return Ok(());
        }
    }
}
