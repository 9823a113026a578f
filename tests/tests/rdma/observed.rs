//! A queue pair's own page, as operators have it: `vnicctl qp show` beside a program that works.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vnic_testkit::{Setup, Vnic};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::lab::{built, output};
use vnic_verbs::{
    Access, CompletionQueue, ConnectOptions, Device, DeviceAddress, MemoryRegion, QueuePair, Rc, SendWr,
    WorkCompletion,
};

/// `vnicctl` for a daemon.
fn vnicctl(nic: &Vnic, program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    let endpoint = format!("unix:{}", nic.sockets().join("control.sock").display());
    command.env("VNIC_ENDPOINT", endpoint).args(args);
    command
}

fn number(of: &Value, path: &str) -> Result<u64> {
    let found = of.pointer(path).and_then(Value::as_u64);
    found.with_context(|| format!("{path} in {of:#}"))
}

/// A WRITE, and its completion.
fn write(qp: &QueuePair<Rc>, cq: &CompletionQueue, from: &MemoryRegion, to: &MemoryRegion) -> Result<()> {
    qp.post_send(&[SendWr::write(from.slice(..), to.addr(), to.rkey()).signaled()])?;
    let mut one = [WorkCompletion::default()];
    ensure!(
        wait_for(|| cq.poll(&mut one).is_ok_and(|n| n == 1)),
        "no completion"
    );
    Ok(())
}

#[test]
fn a_queue_pair_at_work_has_a_page() -> Result<()> {
    let program = built("vnic-appliance", "vnicctl")?;
    let programs = built("vnic-appliance", "vnicd")?;
    let setup = Setup {
        programs: programs.parent().map(Path::to_owned),
        ..Setup::default()
    };
    let nic = setup.start()?;
    let open = |adapter: &str| {
        let socket = nic.sockets().join(format!("{adapter}-rdma.sock"));
        Device::open(&DeviceAddress::Socket(socket))
    };
    let (a, b) = (open("vf0")?, open("vf1")?);
    let (pa, pb) = (a.alloc_pd()?, b.alloc_pd()?);
    let (ca, cb) = (a.create_cq(16)?, b.create_cq(16)?);
    let (ra, rb) = (
        pa.allocate(10_000, Access::REMOTE_ALL)?,
        pb.allocate(10_000, Access::REMOTE_ALL)?,
    );
    let (qa, qb) = (pa.qp::<Rc>(&ca, &ca).build()?, pb.qp::<Rc>(&cb, &cb).build()?);
    qa.connect(&qb.endpoint(1)?, &ConnectOptions::default())?;
    qb.connect(&qa.endpoint(1)?, &ConnectOptions::default())?;
    let qpn = qa.number().to_string();
    let vnicctl = |args: &[&str]| vnicctl(&nic, &program, args);
    let said = |before: &[&str], after: &[&str]| {
        let args = [before, &["qp", "show", "vf0", qpn.as_str()], after].concat();
        output(&mut vnicctl(&args))
    };
    let json = || -> Result<Value> { Ok(serde_json::from_str(&said(&["-o", "json"], &[])?)?) };

    // Somebody looks all the time, so that the observation goes on however slow this is.
    let mut watching = vnicctl(&["qp", "show", "vf0", &qpn, "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().context("a pipe")?);
    lines.read_line(&mut String::new())?;
    let first = json()?;
    ensure!(
        number(&first, "/observation/requests_sent/packets")? == 0,
        "{first:#}"
    );
    for _ in 0..10 {
        write(&qa, &ca, &ra, &rb)?;
    }
    let seen = json()?;
    let mtu = number(&seen, "/path_mtu")?;
    let packets = 10 * 10_000u64.div_ceil(mtu);
    ensure!(
        number(&seen, "/observation/requests_sent/packets")? == packets,
        "{seen:#}"
    );
    ensure!(
        number(&seen, "/observation/requests_sent/bytes")? > 100_000,
        "{seen:#}"
    );
    ensure!(
        number(&seen, "/observation/responses_received/packets")? >= 10,
        "{seen:#}"
    );
    ensure!(number(&seen, "/observation/sent_again")? == 0, "{seen:#}");
    let trips = seen
        .pointer("/observation/round_trips/counts")
        .and_then(Value::as_array);
    let trips = trips
        .context("a histogram")?
        .iter()
        .filter_map(Value::as_u64)
        .sum::<u64>();
    ensure!((1..=packets).contains(&trips), "{seen:#}");
    ensure!(number(&seen, "/path/udp_source_port")? >= 0xc000, "{seen:#}");
    ensure!(number(&seen, "/path/hop_limit")? > 0, "{seen:#}");
    let text = said(&[], &[])?;
    ensure!(
        text.contains("packets sent again ") && text.contains("round trips "),
        "{text}"
    );
    // Lists have no observation.
    let list = output(&mut vnicctl(&["-o", "json", "qp", "list", "vf0"]))?;
    let list: Value = serde_json::from_str(&list)?;
    let listed = list.pointer("/queue_pairs/0").context("a queue pair")?;
    ensure!(
        listed.pointer("/observation/span").is_none() && listed.pointer("/path/dscp").is_some(),
        "{list:#}"
    );

    // A stream, while there is traffic.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let work = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                write(&qa, &ca, &ra, &rb)?;
            }
            Ok(())
        });
        let watch = ["--watch", "100ms", "--iterations", "3"];
        let lines = said(&[], &watch);
        let objects = said(&["-o", "json"], &watch);
        stop.store(true, Ordering::Relaxed);
        work.join().expect("a worker")?;
        let lines = lines?;
        ensure!(
            lines.lines().filter(|l| l.ends_with("RTS")).count() == 3,
            "{lines}"
        );
        ensure!(
            lines.starts_with("TIME") && lines.contains("round trips: "),
            "{lines}"
        );
        let objects: Vec<Value> = objects?
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        ensure!(objects.len() == 4, "{objects:#?}");
        let sent: Vec<u64> = objects
            .iter()
            .map(|o| number(o, "/queue_pair/observation/requests_sent/packets"))
            .collect::<Result<_>>()?;
        ensure!(sent.is_sorted() && sent[0] < sent[3], "{sent:?}");
        let changes: Vec<_> = objects.iter().map(|o| o["change"].as_str()).collect();
        ensure!(changes[0] == Some("CHANGE_EXISTING") && changes[3] == Some("CHANGE_UPDATED"));
        Ok(())
    })?;

    // It ends with the queue pair, and says so.
    drop(qa);
    lines.read_to_string(&mut String::new())?;
    let ended = watching.wait()?;
    let mut said = String::new();
    watching
        .stderr
        .take()
        .context("a pipe")?
        .read_to_string(&mut said)?;
    ensure!(ended.code() == Some(1), "{ended}: {said}");
    ensure!(
        said.contains(&format!("queue pair {qpn} of adapter vf0 was destroyed")),
        "{said}"
    );
    let gone = vnicctl(&["qp", "show", "vf0", &qpn]).output()?;
    ensure!(gone.status.code() == Some(1));
    Ok(())
}
