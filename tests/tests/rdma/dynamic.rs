//! Dynamic connections (DC) by the driver that is written from the contract, beside processes that are killed.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vnic_device::queue::Operation;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType};
use vnic_device::zerocopy::IntoBytes;
use vnic_tests::driver::rdma::{Driver, Link, Options, Qp, QpSpec, Side, Srq, World, Wr, fill, link};
use vnic_tests::driver::rig::wait_for;

use super::deaths::{Victim, address, hex};

/// Set for a process that is to be killed.
const VICTIM: &str = "VNIC_DC_VICTIM";
/// The key of targets here.
pub const KEY: u64 = 0;
/// Where a process counts in the memory of its peer.
const COUNT: u64 = 128 << 10;

/// A target that works, and its receive queue.
pub fn target(side: &mut Side) -> (Qp, Srq) {
    let srq = side.d.srq(side.pd, 64, 2, None);
    let spec = QpSpec {
        srq: srq.handle,
        ..side.spec(QpType::DcTarget)
    };
    let qp = side.d.qp(&spec);
    let own = side.d.own_address();
    side.d.up(&qp, &link(own, 0));
    (qp, srq)
}

/// Makes an initiator ready, which gives up after a while.
fn ready(side: &mut Side, qp: &Qp) {
    let own = side.d.own_address();
    let way = Link {
        timeout: 12,
        ..link(own, 0)
    };
    side.d.up(qp, &way);
}

/// An initiator that works.
pub fn initiator(side: &mut Side) -> Qp {
    let qp = side.qp(QpType::DcInitiator);
    ready(side, &qp);
    qp
}

#[test]
fn others_go_on_when_an_end_is_killed() -> Result<()> {
    if let Ok(args) = std::env::var(VICTIM) {
        return victim(&args);
    }
    let world = World::new(1, &["peer", "victim", "other"])?;
    let (mut peer, mut other) = (world.side("peer")?, world.side("other")?);
    for round in 0..5 {
        a_target_is_killed(&world, &mut peer, &mut other, round)?;
        an_initiator_is_killed(&world, &mut peer, &mut other, round)?;
    }
    peer.d.mem.check_canaries()?;
    world.finish()
}

fn clean(world: &World) -> Result<()> {
    let is_clean = wait_for(|| world.objects("victim").is_empty());
    ensure!(is_clean, "{:?}", world.objects("victim"));
    Ok(())
}

/// The initiator hears that nobody answers, and works with another target after a reset.
fn a_target_is_killed(world: &World, peer: &mut Side, other: &mut Side, round: u64) -> Result<()> {
    let own = peer.d.own_address();
    let args = format!("target {}", world.socket("victim").display());
    let mut child = Victim::spawn(VICTIM, &args, own)?;
    let there = child.target()?;
    let mut way = child.address;
    way.sgid_index = own.sgid_index;
    let ah = peer.d.ah(peer.pd, way);
    let mut qp = initiator(peer);
    let write = |n, side: &Side| {
        let wr = Wr::new(n, Operation::Write, &[side.at(0, 20_000)]);
        wr.remote(there.iova, there.rkey).to_target(ah, there.qp, KEY)
    };
    for n in 0..20 + round {
        let wr = write(n, peer);
        peer.done(&mut qp, &wr);
    }
    child.kill()?;
    // The daemon hears of it a moment later: until then it goes on.
    let mut last = Status::Success;
    let ended = wait_for(|| {
        let wr = write(1000, peer);
        peer.post(&mut qp, &wr);
        let e = peer.cq.wait();
        qp.sends().consumer = e.consumed;
        last = e.status();
        last != Status::Success
    });
    ensure!(ended && last == Status::RetryExceeded, "{last:?}");
    ensure!(peer.d.state(&qp) == QpState::Err);
    clean(world)?;
    peer.d.to(&qp, QpState::Reset);
    qp.begin_anew();
    ready(peer, &qp);
    let (next, _) = target(other);
    let way = peer.d.address_of(&mut other.d);
    let ah = peer.d.ah(peer.pd, way);
    let bytes = fill(round, 20_000);
    peer.mr.area.write(0, &bytes[..]);
    let wr = Wr::new(1, Operation::Write, &[peer.at(0, 20_000)]).remote(other.mr.iova, other.mr.rkey);
    peer.done(&mut qp, &wr.to_target(ah, next.number, KEY));
    ensure!(other.mr.area.bytes(0, 20_000) == bytes, "what arrived");
    Ok(())
}

/// Its target serves others.
fn an_initiator_is_killed(world: &World, peer: &mut Side, other: &mut Side, round: u64) -> Result<()> {
    let own = peer.d.own_address();
    let (qp, _) = target(peer);
    peer.mr.area.put(COUNT, &0u64);
    let (socket, to) = (world.socket("victim"), hex(own.as_bytes()));
    let (iova, rkey) = (peer.mr.iova + COUNT, peer.mr.rkey);
    let args = format!("initiator {} {to} {} {iova} {rkey}", socket.display(), qp.number);
    let mut child = Victim::spawn(VICTIM, &args, own)?;
    child.target()?;
    child.go()?;
    let count = |peer: &Side| peer.mr.area.load::<u64>(COUNT);
    ensure!(
        wait_for(|| count(peer) > 20 + round),
        "it wrote {} times",
        count(peer)
    );
    child.kill()?;
    clean(world)?;
    let before = count(peer);
    let mut next = initiator(other);
    let way = other.d.address_of(&mut peer.d);
    let ah = other.d.ah(other.pd, way);
    let wr = Wr::new(1, Operation::FetchAdd, &[other.at(0, 8)]).remote(iova, rkey);
    other.done(&mut next, &wr.operands(7, 0).to_target(ah, qp.number, KEY));
    ensure!(other.mr.area.load::<u64>(0) == before && count(peer) == before + 7);
    // (Counters are told by the core now and then.)
    let connected = || world.rig.counter("peer", "rx_dct_connect");
    ensure!(wait_for(|| connected() >= 2 * (round + 1)), "{}", connected());
    Ok(())
}

/// The process that is killed: a target that others write to, or an initiator that writes a growing number until then.
fn victim(args: &str) -> Result<()> {
    let words: Vec<&str> = args.split(' ').collect();
    let socket = words.get(1).context("a socket")?;
    let mut v = Side::new(Driver::start(PathBuf::from(socket), Options::default())?);
    let own = v.d.own_address();
    let say = |qp: &Qp, v: &Side| {
        let own = hex(own.as_bytes());
        println!("victim {own} {} {} {}", qp.number, v.mr.iova, v.mr.rkey);
        std::io::stdout().flush()
    };
    if words[0] == "target" {
        let (qp, _srq) = target(&mut v);
        say(&qp, &v)?;
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let [_, _, to, number, iova, rkey] = words[..] else {
        anyhow::bail!("six words: {args}")
    };
    let mut way = address(to)?;
    way.sgid_index = own.sgid_index;
    let ah = v.d.ah(v.pd, way);
    let mut qp = initiator(&mut v);
    say(&qp, &v)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let (number, iova, rkey) = (number.parse()?, iova.parse()?, rkey.parse()?);
    for n in 1u64.. {
        let wr = Wr::new(n, Operation::Write, &[]).inline(&n.to_le_bytes());
        v.done(&mut qp, &wr.remote(iova, rkey).to_target(ah, number, KEY));
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}
