//! A driver that breaks every rule (`proto/device/SPEC.md`, section 12) harms only itself: the daemon lives, its memory is
//! bounded, the neighbours' traffic goes on and is right.
//!
//! The seed is printed; `VNIC_SEED=… cargo test -p vnic-tests --test hostile rdma::` plays it again. `VNIC_STEPS` makes it
//! longer.

mod neighbours;
mod strangers;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vnic_backend::AttachState;
use vnic_device::queue::Operation;
use vnic_device::verbs::QpType;
use vnic_tests::driver::attacks::{Evil, dead_qp};
use vnic_tests::driver::rdma::{Area, QpSpec, World, Wr};
use vnic_tests::driver::rig::{Dice, wait_for};
use vnic_tests::lab::own_process;

use neighbours::Neighbours;

/// Bytes of this process that are in memory.
fn resident() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("statm")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

fn steps() -> u64 {
    let steps = std::env::var("VNIC_STEPS").ok().and_then(|s| s.parse().ok());
    steps.unwrap_or(5_000)
}

/// A processor of the guest that changes words of memory while the device reads them.
struct Meddler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meddler {
    fn start(memory: Area) -> Result<Meddler> {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let mut dice = Dice::new(7);
        let run = move || {
            while !ended.load(Ordering::Relaxed) {
                for _ in 0..200 {
                    let at = dice.below(memory.len() / 2 / 8) * 8;
                    let word: u64 = memory.load(at);
                    // One bit, and a moment later it is back.
                    memory.store(at, word ^ 1 << dice.below(64));
                    memory.store(at, word);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        let thread = std::thread::Builder::new().name("meddler".into()).spawn(run)?;
        Ok(Meddler {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; this is no place for another.
            let _ = thread.join();
        }
    }
}

#[test]
fn a_driver_that_breaks_every_rule_harms_only_itself() -> Result<()> {
    // Counts the memory of the process.
    own_process(|| {
        // Its neighbours on the same core; then one of them on another.
        for cores in [1, 2] {
            println!("{cores} data cores");
            let seed = Dice::thrown();
            harms_only_itself(cores, seed)?;
        }
        Ok(())
    })
}

/// A line, so that what failed is not lost behind hundreds of them.
fn in_a_line(counts: impl IntoIterator<Item = (String, u64)>) {
    let parts: Vec<_> = counts
        .into_iter()
        .map(|(what, n)| format!("{what} {n}"))
        .collect();
    println!("{}", parts.join(", "));
}

fn harms_only_itself(cores: usize, dice: Dice) -> Result<()> {
    let mut world = World::new(cores, &["a", "b", "evil"])?;
    let result = harms(&mut world, dice);
    let counters = world.rig.nic.counters().into_iter().filter(|s| s.value > 0);
    in_a_line(counters.map(|s| (format!("{} {}", s.owner, s.def.name), s.value)));
    result?;
    world.finish()
}

fn harms(world: &mut World, dice: Dice) -> Result<()> {
    let mut neighbours = Neighbours::start(world)?;
    let mut evil = Evil::new(
        world.socket("evil"),
        dice,
        &neighbours.qps,
        &neighbours.keys,
        &neighbours.addresses,
    )?;
    neighbours.check()?;
    let before = resident()?;
    let steps = steps();
    let meddler = Meddler::start(evil.heap())?;
    for step in 0..steps {
        evil.step().with_context(|| format!("step {step}"))?;
        if step % (steps / 20).max(1) == 0 {
            neighbours.check().with_context(|| format!("step {step}"))?;
        }
    }
    drop(meddler);
    neighbours.check()?;
    let grown = resident()?.saturating_sub(before);
    println!("{} MiB more than before", grown >> 20);
    // 16 MiB of guest memory, a bounded window of work requests, and the tables of a few thousand objects.
    ensure!(grown < 512 << 20, "{grown} bytes more than before");
    in_a_line(evil.finish()?);
    ensure!(
        wait_for(|| world.objects("evil").is_empty()),
        "{:?}",
        world.objects("evil")
    );
    println!("{} rounds of the neighbours", neighbours.finish()?);
    ensure!(
        world.rig.core_counter("panics") == 0,
        "the data core panicked: {:?}",
        world.rig.poll_events()
    );
    ensure!(world.rig.nic.adapter("evil")?.state != AttachState::Failed);
    // And it may come again, as if nothing had been.
    let mut side = world.side("evil")?;
    let own = side.d.own_address();
    let mut qp = side.qp(QpType::Rc);
    side.d.up(&qp, &vnic_tests::driver::rdma::link(own, qp.number));
    let wr = Wr::new(1, Operation::Write, &[side.at(0, 100)]);
    side.done(&mut qp, &wr.remote(side.mr.iova, side.mr.rkey));
    Ok(())
}

/// Arming a queue again and again, with no buffer for its events, costs the daemon no memory: a queue has one event.
#[test]
fn events_of_armed_queues_are_bounded() -> Result<()> {
    use vnic_device::command::Opcode;
    use vnic_device::doorbell::Kind;
    use vnic_device::event::EventKind;
    use vnic_device::queue::Operation;
    use vnic_device::verbs::QpType;
    use vnic_tests::driver::rdma::{Driver, Options, Side, Wr, link};
    let world = World::new(1, &["evil"])?;
    let options = Options {
        events: 0,
        ..Options::default()
    };
    let mut s = Side::new(Driver::start(world.socket("evil"), options)?);
    let own = s.d.own_address();
    // Queues with a completion each; half of them are destroyed with their event on its way.
    let mut queues = Vec::new();
    for _ in 0..20 {
        let mut cq = s.d.cq(16);
        let spec = QpSpec {
            send_cq: cq.handle,
            ..s.spec(QpType::Rc)
        };
        let mut qp = s.d.qp(&spec);
        s.d.up(&qp, &link(own, qp.number));
        s.post(
            &mut qp,
            &Wr::new(1, Operation::Write, &[]).remote(s.mr.iova, s.mr.rkey),
        );
        cq.good(1);
        queues.push((cq, qp));
    }
    for _ in 0..5_000 {
        for (cq, _) in &queues {
            s.bells.ring(Kind::ArmNext, cq.handle, 0);
        }
    }
    s.bells.wait_taken();
    for (cq, qp) in queues.iter().skip(10) {
        s.d.end(Opcode::DestroyQp, qp.number)?;
        s.d.end(Opcode::DestroyCq, cq.handle)?;
    }
    // A queue that comes, is armed and goes, ten thousand times.
    let mark = s.d.mark();
    let mut qp = s.qp(QpType::Rc);
    s.d.up(&qp, &link(own, qp.number));
    for _ in 0..10_000 {
        s.d.release(mark + (64 << 10));
        let cq = s.d.cq(16);
        s.bells.ring(Kind::ArmNext, cq.handle, 0x8000_0001);
        s.d.end(Opcode::DestroyCq, cq.handle)?;
    }
    s.done(
        &mut qp,
        &Wr::new(1, Operation::Write, &[]).remote(s.mr.iova, s.mr.rkey),
    );
    let mut events = Vec::new();
    loop {
        for i in 0..64 {
            s.d.offer_event_buffer(i, 32);
        }
        s.d.event_ring.publish();
        s.d.sync();
        let before = events.len();
        while let Some(event) = s.d.take_event(false) {
            events.extend(event);
        }
        if events.len() - before < 64 {
            break;
        }
    }
    ensure!(events.iter().all(|e| e.kind == EventKind::Completion.number()));
    for (cq, _) in queues.iter().take(10) {
        let n = events.iter().filter(|e| e.object == cq.handle).count();
        ensure!(n == 1, "{n} events of queue {}", cq.handle);
    }
    ensure!(events.len() <= 20 + 8192, "{} events waited", events.len());
    println!("{} events waited", events.len());
    world.finish()
}

/// Completions of queue pairs that are in ERR, in queues of which all entries lie in the same few pages of the guest: what the
/// daemon keeps for them is bounded for the adapter, and is given back.
#[test]
fn completions_that_nobody_takes_are_bounded() -> Result<()> {
    // Counts the memory of the process.
    own_process(completions_are_bounded)
}

fn completions_are_bounded() -> Result<()> {
    use vnic_device::command::Opcode;
    use vnic_device::doorbell::Kind;
    use vnic_device::ring::{Extent, completion_ring_len};
    const ENTRIES: u32 = 1 << 18;
    const BLOCKS: u32 = 4096;
    const QUEUES: u32 = 10;
    let world = World::new(1, &["a", "b", "evil"])?;
    let mut neighbours = Neighbours::start(&world)?;
    let mut s = world.side("evil")?;
    let page = s.d.area(64 << 10).extents[0];
    let before = resident()?;
    let mut dead = Vec::new();
    for _ in 0..QUEUES {
        let mut left = completion_ring_len(ENTRIES);
        let mut extents = Vec::new();
        while left > 0 {
            let len = left.min(page.len);
            extents.push(Extent { len, ..page });
            left -= len;
        }
        let cq = s.d.cq_in(ENTRIES, Area::new(&s.d.mem, extents));
        let qp = dead_qp(&mut s, &cq, BLOCKS);
        dead.push((qp, cq));
    }
    // As much as the rings have room for, and then, from one after the other, what waits in the daemon until that has enough.
    let flushed = || {
        let counters = world.rig.nic.counters().into_iter();
        let all = counters.filter(|s| s.owner == "evil" && s.def.name == "req_cqe_flush_error");
        all.map(|s| s.value).sum::<u64>()
    };
    let (full, mut posted) = (u64::from(QUEUES * ENTRIES) + (1 << 17), 0);
    for bells in [1..=ENTRIES / BLOCKS, ENTRIES / BLOCKS + 1..=ENTRIES / BLOCKS + 8] {
        for (qp, _) in &dead {
            for bell in bells.clone() {
                s.bells.ring(Kind::Send, qp.number, bell * BLOCKS);
                posted += u64::from(BLOCKS);
                // A ring is not posted to before it was read.
                ensure!(
                    wait_for(|| flushed() >= posted.min(full)),
                    "{} of {posted}: {:?}, {:?}",
                    flushed(),
                    world.objects("evil"),
                    world.rig.nic.adapter("evil")?.state
                );
            }
        }
    }
    s.bells.wait_taken();
    neighbours.check()?;
    let grown = resident()?.saturating_sub(before);
    println!("grown by {} KiB", grown >> 10);
    // 2^20 completions of at most 96 bytes; without a bound it would be two and a half times as many.
    ensure!(grown < 128 << 20, "grown by {grown} bytes");
    // Nothing of it stays.
    for (qp, cq) in dead {
        s.d.end(Opcode::DestroyQp, qp.number)?;
        s.d.end(Opcode::DestroyCq, cq.handle)?;
    }
    neighbours.check()?;
    neighbours.finish()?;
    world.finish()
}
