//! Drivers that die in the middle of their work, a hundred in this process and some as processes that are killed: nothing of
//! them is left in the daemon, and no peer hangs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost::VhostBackend;
use vnic_device::command::Opcode;
use vnic_device::command::memory::{AllocDm, AllocMw};
use vnic_device::command::qp::AddressVector;
use vnic_device::doorbell::Kind;
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType};
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::feature;
use vnic_tests::driver::rdma::{Driver, Link, Options, Qp, Side, World, Wr, fill, link};
use vnic_tests::driver::rig::{Dice, wait_for};
use vnic_tests::lab::own_process::{own_process, this_test, with_test};

/// Deaths in this process.
const DEATHS: u32 = 100;
/// Processes that are killed.
const KILLED: u32 = 100;
/// Set for a process that is to be killed.
const VICTIM: &str = "VNIC_RDMA_VICTIM";

/// What could leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    fds: usize,
    maps: usize,
    threads: usize,
}

impl Counts {
    fn now() -> Result<Counts> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        Ok(Counts {
            fds: std::fs::read_dir("/proc/self/fd")?.count(),
            maps: maps.lines().filter(|l| l.contains("memfd:")).count(),
            threads: std::fs::read_dir("/proc/self/task")?.count(),
        })
    }
}

/// A link that gives up soon.
fn hasty(address: AddressVector, qp: u32) -> Link {
    Link {
        timeout: 9,
        retry: 2,
        ..link(address, qp)
    }
}

/// Where the victim's memory and QP are.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub qp: u32,
    pub iova: u64,
    pub rkey: u32,
}

/// The peer's QP ends with an error; what was outstanding ends, too.
fn ends(peer: &mut Side, qp: &mut Qp, target: Target, outstanding: u64) -> Result<()> {
    let mut first = None;
    let mut left = outstanding;
    // The daemon hears of a death a moment later: until then it goes on.
    let ended = wait_for(|| {
        if left == 0 {
            let wr = Wr::new(u64::MAX, Operation::Write, &[peer.at(0, 64)]);
            peer.post(qp, &wr.remote(target.iova, target.rkey));
            left = 1;
        }
        while left > 0 {
            let e = peer.cq.wait();
            // Receives of the victim's SENDs may be among them.
            if e.kind & 0x80 != 0 {
                continue;
            }
            assert_eq!(e.qp, qp.number, "{e:?}");
            qp.sends().consumer = e.consumed;
            left -= 1;
            if e.status() != Status::Success && first.is_none() {
                first = Some(e.status());
            }
        }
        first.is_some()
    });
    ensure!(
        ended && first == Some(Status::RetryExceeded),
        "the peer's QP ended with {first:?}"
    );
    ensure!(peer.d.state(qp) == QpState::Err);
    Ok(())
}

/// The next driver of the adapter takes the peer's QP over: it is reset and connected anew.
fn goes_on(world: &World, peer: &mut Side, qp: &mut Qp, n: u64) -> Result<()> {
    let mut next = world.side("victim")?;
    let mut other = next.qp(QpType::Rc);
    peer.d.to(qp, QpState::Reset);
    qp.begin_anew();
    while peer.cq.poll().is_some() {}
    let (there, back) = (peer.d.address_of(&mut next.d), next.d.address_of(&mut peer.d));
    peer.d.up(qp, &link(there, other.number));
    next.d.up(&other, &link(back, qp.number));
    let bytes = fill(n, 5000);
    peer.mr.area.write(0, &bytes);
    next.receive(&mut other, n, &[next.at(0, 5000)]);
    peer.done(qp, &Wr::send(n, &[peer.at(0, 5000)]));
    next.cq.good(n);
    ensure!(next.mr.area.bytes(0, 5000) == bytes);
    next.d.hang_up();
    Ok(())
}

/// One of everything, in the middle of traffic in both directions, and then gone.
fn die(world: &World, peer: &mut Side, dice: &mut Dice, n: u64) -> Result<()> {
    if n % 10 == 9 {
        return half_begun(&world.socket("victim"), dice);
    }
    let mut v = world.side("victim")?;
    let (mut qv, mut qp) = (v.qp(QpType::Rc), peer.qp(QpType::Rc));
    let (there, back) = (peer.d.address_of(&mut v.d), v.d.address_of(&mut peer.d));
    peer.d.up(&qp, &hasty(there, qv.number));
    v.d.up(&qv, &link(back, qp.number));
    let target = Target {
        qp: qv.number,
        iova: v.mr.iova,
        rkey: v.mr.rkey,
    };
    clutter(&mut v, back);
    v.cq.arm(&mut v.bells, n.is_multiple_of(2));
    for i in 0..16 {
        let big = 1 + dice.below(60_000) as u32;
        peer.receive(&mut qp, 1000 + i, &[peer.at(0, 100_000)]);
        v.receive(&mut qv, 1000 + i, &[v.at(0, 100_000)]);
        let wr = Wr::send(i, &[v.at(0, big)]);
        v.post(&mut qv, &wr);
        let operation = *dice.pick(&[Operation::Write, Operation::Read]);
        let wr = Wr::new(i, operation, &[peer.at(0, big)]).remote(target.iova, target.rkey);
        peer.post(&mut qp, &wr);
    }
    // Somewhere in there.
    for _ in 0..dice.below(6) {
        v.cq.wait();
    }
    match dice.below(4) {
        0 => v.d.set_mem_table()?,
        1 => v.bells.ring(Kind::Send, qv.number, 5000),
        2 => {
            // A command is on its way, and nobody takes its end.
            let head = v.d.head(Opcode::AllocPd, 0, 0);
            v.d.submit(head.as_bytes(), 64);
        }
        _ => {}
    }
    v.d.hang_up();
    drop(v);
    ends(peer, &mut qp, target, 16)?;
    if n.is_multiple_of(3) {
        goes_on(world, peer, &mut qp, n)?;
    }
    peer.d.end(Opcode::DestroyQp, qp.number)?;
    while peer.cq.poll().is_some() {}
    peer.d.poll_events();
    peer.d.events.clear();
    Ok(())
}

/// Objects of all kinds.
fn clutter(v: &mut Side, address: AddressVector) {
    let pd = v.pd;
    let xrcd = v.d.xrcd();
    let mut srq = v.d.srq(pd, 16, 2, Some((xrcd, v.cq.handle)));
    srq.receive(&mut v.bells, 1, &[]);
    v.d.ah(pd, address);
    v.qp(QpType::Ud);
    let dm = AllocDm {
        len: 8192,
        ..AllocDm::default()
    };
    assert_eq!(v.d.status(Opcode::AllocDm, &dm, &[]), S::Ok);
    assert_eq!(
        v.d.status(Opcode::AllocMw, &AllocMw { pd, mw_type: 1 }, &[]),
        S::Ok
    );
}

/// A connection that ends while it is set up.
fn half_begun(socket: &Path, dice: &mut Dice) -> Result<()> {
    let features = feature::VERSION_1 | feature::PROTOCOL_FEATURES;
    let f = Driver::negotiate(socket, features, false)?;
    let d = Driver::new(Options::default())?;
    let far = dice.below(4);
    if far > 0 {
        f.set_mem_table(&d.mem.regions())?;
    }
    if far > 1 {
        f.set_vring_num(0, 128)?;
        f.set_vring_kick(0, &d.control.kick)?;
    }
    if far > 2 {
        f.set_vring_call(2, &d.wake)?;
        f.set_vring_kick(2, &d.wake)?;
    }
    drop(f);
    Ok(())
}

#[test]
fn nothing_is_left_of_drivers_that_die() -> Result<()> {
    if let Ok(args) = std::env::var(VICTIM) {
        return victim(&args);
    }
    // Counts what the process has.
    own_process(nothing_is_left)
}

fn nothing_is_left() -> Result<()> {
    let mut dice = Dice::thrown();
    let world = World::new(1, &["peer", "victim"])?;
    let mut peer = world.side("peer")?;
    let objects = world.objects("peer");
    // The first few make threads and buffers that stay.
    for n in 0..10 {
        die(&world, &mut peer, &mut dice, n).with_context(|| format!("death {n}"))?;
    }
    let child = kill_one(&world, &mut peer, &mut dice)?;
    ensure!(child > 0);
    let clean = || world.objects("victim").is_empty();
    ensure!(wait_for(clean), "{:?}", world.objects("victim"));
    let before = Counts::now()?;
    println!("before: {before:?}, peer: {objects:?}");
    for n in 0..u64::from(DEATHS) {
        let what = || format!("death {n}");
        die(&world, &mut peer, &mut dice, n).with_context(what)?;
        ensure!(wait_for(clean), "death {n}: {:?}", world.objects("victim"));
    }
    println!("after {DEATHS} deaths: {:?}", Counts::now()?);
    let mut work = 0;
    for n in 0..KILLED {
        work += kill_one(&world, &mut peer, &mut dice).with_context(|| format!("kill {n}"))?;
        ensure!(wait_for(clean), "kill {n}: {:?}", world.objects("victim"));
    }
    println!(
        "after {KILLED} processes were killed: {:?}; they had written {work} times",
        Counts::now()?
    );
    ensure!(
        wait_for(|| Counts::now().is_ok_and(|now| now == before)),
        "{before:?} before, {:?} now",
        Counts::now()?
    );
    ensure!(world.objects("peer") == objects, "{:?}", world.objects("peer"));
    peer.d.mem.check_canaries()?;
    world.finish()
}

/// A process that drives the adapter, and is killed in the middle. Answers how often it had written.
fn kill_one(world: &World, peer: &mut Side, dice: &mut Dice) -> Result<u64> {
    let mut qp = peer.qp(QpType::Rc);
    peer.mr.area.put(128 << 10, &0u64);
    let own = peer.d.own_address();
    let mut child = Victim::start(&world.socket("victim"), &own, qp.number, peer)?;
    let target = child.target()?;
    let mut there = child.address;
    there.sgid_index = own.sgid_index;
    let way = Link {
        timeout: 12,
        ..link(there, target.qp)
    };
    peer.d.up(&qp, &way);
    child.go()?;
    // Both write until it dies; it counts in the peer's memory.
    let least = 5 + dice.below(200);
    let mut posted = 0u64;
    let mut done = 0u64;
    let count = |peer: &Side| peer.mr.area.load::<u64>(128 << 10);
    let alive = wait_for(|| {
        while posted - done < 8 && qp.sends().free() > 0 {
            let wr =
                Wr::new(posted, Operation::Write, &[peer.at(0, 20_000)]).remote(target.iova, target.rkey);
            peer.post(&mut qp, &wr);
            posted += 1;
        }
        while let Some(e) = peer.cq.poll() {
            assert_eq!((e.wr_id, e.status()), (done, Status::Success));
            qp.sends().consumer = e.consumed;
            done += 1;
        }
        count(peer) >= least && done >= 3
    });
    ensure!(alive, "the process wrote {} times, this one {done}", count(peer));
    child.kill()?;
    ends(peer, &mut qp, target, posted - done)?;
    peer.d.end(Opcode::DestroyQp, qp.number)?;
    while peer.cq.poll().is_some() {}
    Ok(count(peer))
}

/// A process to kill.
pub struct Victim {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub address: AddressVector,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn address(hex: &str) -> Result<AddressVector> {
    let bytes: Result<Vec<u8>, _> = (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16))
        .collect();
    AddressVector::read_from_bytes(&bytes?)
        .ok()
        .context("32 bytes in hexadecimal")
}

impl Victim {
    fn start(socket: &Path, own: &AddressVector, qp: u32, peer: &Side) -> Result<Victim> {
        let (iova, rkey) = (peer.mr.iova + (128 << 10), peer.mr.rkey);
        let socket = socket.display();
        let args = format!("{socket} {} {qp} {iova} {rkey}", hex(own.as_bytes()));
        Victim::spawn(VICTIM, &args, *own)
    }

    /// Starts the test that calls this as a process of its own, which finds `args` in its environment.
    pub fn spawn(variable: &str, args: &str, own: AddressVector) -> Result<Victim> {
        let mut child = with_test(&this_test()?)?
            .env(variable, args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Victim {
            child,
            lines,
            address: own,
        })
    }

    /// Its QP and memory; its address is known then.
    pub fn target(&mut self) -> Result<Target> {
        loop {
            let mut line = String::new();
            ensure!(self.lines.read_line(&mut line)? > 0, "the process has ended");
            // (The test's own harness writes, too.)
            let Some((_, rest)) = line.split_once("victim ") else {
                continue;
            };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [gid, qp, iova, rkey] = words[..] else {
                continue;
            };
            self.address = address(gid)?;
            return Ok(Target {
                qp: qp.parse()?,
                iova: iova.parse()?,
                rkey: rkey.parse()?,
            });
        }
    }

    pub fn go(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("its input")?;
        Ok(writeln!(stdin, "go")?)
    }

    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        let status = self.child.wait()?;
        ensure!(status.signal() == Some(9), "it ended by itself: {status}");
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Killed already, or a test that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process: writes a growing number into the peer's memory until it is killed.
fn victim(args: &str) -> Result<()> {
    let words: Vec<&str> = args.split(' ').collect();
    let [socket, to, qp, iova, rkey] = words[..] else {
        anyhow::bail!("five words: {args}")
    };
    let mut v = Side::new(Driver::start(PathBuf::from(socket), Options::default())?);
    let mut own = v.qp(QpType::Rc);
    let mut to = address(to)?;
    let back = v.d.own_address();
    to.sgid_index = back.sgid_index;
    v.d.up(&own, &link(to, qp.parse()?));
    println!(
        "victim {} {} {} {}",
        hex(back.as_bytes()),
        own.number,
        v.mr.iova,
        v.mr.rkey
    );
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    clutter(&mut v, to);
    let (iova, rkey) = (iova.parse()?, rkey.parse()?);
    for n in 1u64.. {
        let wr = Wr::new(n, Operation::Write, &[])
            .inline(&n.to_le_bytes())
            .remote(iova, rkey);
        v.done(&mut own, &wr);
        if n.is_multiple_of(50) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}
