//! Rules for completions and commands: what a driver is told beside what has happened.

mod calls;
mod matching;
mod scarcity;

use std::time::Duration;

use anyhow::Result;
use vnic_backend::{
    CommandStatus, CompletionFault as Fault, CompletionKind as Kind, NicError, VerbsCommand,
    VerbsFaultAction, VerbsFaultSpec, VirtualClock,
};
use vnic_device::command::Opcode;
use vnic_device::queue::Operation;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType};
use vnic_tests::driver::rdma::{Driver, Options, Qp, Side, World, Wr, fill};

const LONG: Duration = Duration::from_secs(8);

/// A rule for adapter `a` that lets `skip` completions of this kind go, and hits the next.
fn once(skip: u64, kind: Kind, fault: Fault) -> VerbsFaultSpec {
    VerbsFaultSpec {
        skip,
        count: Some(1),
        ..always(kind, fault)
    }
}

fn always(kind: Kind, fault: Fault) -> VerbsFaultSpec {
    let action = VerbsFaultAction::Completion {
        qp: None,
        kinds: vec![kind],
        fault,
    };
    VerbsFaultSpec::new("rule", "a", action)
}

/// A rule at `a`, whose queue pair is connected with one of `b`.
struct Pair {
    world: World,
    a: Side,
    b: Side,
    qa: Qp,
    qb: Qp,
}

impl Pair {
    fn with(rule: VerbsFaultSpec) -> Result<Pair> {
        Pair::of(World::new(1, &["a", "b"])?, rule)
    }

    fn of(world: World, rule: VerbsFaultSpec) -> Result<Pair> {
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (qa, qb) = a.pair(&mut b, QpType::Rc);
        world.rig.nic.add_verbs_fault(rule)?;
        Ok(Pair { world, a, b, qa, qb })
    }

    fn write(&mut self, id: u64) {
        let wr = Wr::new(id, Operation::Write, &[self.a.at(0, 8)]).remote(self.b.mr.iova, self.b.mr.rkey);
        self.a.post(&mut self.qa, &wr);
    }

    /// What was posted has been carried out and judged, as far as it goes.
    fn settle(&mut self) {
        self.a.bells.wait_taken();
        self.a.d.sync();
        self.b.d.sync();
        self.a.d.sync();
    }

    fn injected(&self) -> u64 {
        self.world.rig.nic.verbs_faults()[0].injected
    }

    fn remove(&self) -> Result<()> {
        self.world.rig.nic.remove_verbs_fault("rule")?;
        Ok(())
    }

    /// The driver believes that all entries of the send queue are free, and uses them all.
    fn all_entries_work(&mut self, consumed: u32) -> Result<()> {
        let sends = self.qa.sends();
        assert_eq!(consumed, sends.producer, "the last completion frees all entries");
        sends.consumer = consumed;
        for id in 1000..1200 {
            let wr = Wr::new(id, Operation::Write, &[self.a.at(0, 8)]).remote(self.b.mr.iova, self.b.mr.rkey);
            self.a.done(&mut self.qa, &wr);
        }
        Ok(())
    }
}

#[test]
fn a_lie_changes_the_status_only() -> Result<()> {
    let mut p = Pair::with(once(2, Kind::Write, Fault::Lie(Status::RemoteAccessError)))?;
    p.a.mr.area.write(0, &[0x5a; 8]);
    for id in 0..5 {
        p.write(id);
    }
    for id in [0, 1] {
        p.a.cq.good(id);
    }
    p.a.cq.expect(2, Status::RemoteAccessError);
    p.a.cq.good(3);
    let last = p.a.cq.good(4);
    assert_eq!(p.b.mr.area.bytes(0, 8), [0x5a; 8], "it was carried out");
    assert_eq!(p.a.d.state(&p.qa), QpState::Rts);
    assert_eq!(p.injected(), 1);
    p.all_entries_work(last.consumed)?;
    p.world.finish()
}

#[test]
fn a_failure_ends_the_queue_pair() -> Result<()> {
    let mut p = Pair::with(once(2, Kind::Write, Fault::Fail(Status::RetryExceeded)))?;
    for id in 0..5 {
        p.write(id);
    }
    for id in [0, 1] {
        p.a.cq.good(id);
    }
    p.a.cq.expect(2, Status::RetryExceeded);
    for id in [3, 4] {
        p.a.cq.expect(id, Status::FlushError);
    }
    assert_eq!(p.a.d.state(&p.qa), QpState::Err);
    p.write(5);
    p.a.cq.expect(5, Status::FlushError);
    // A reset mends it: neither the failure nor an index of before is left.
    p.a.d.to(&p.qa, QpState::Reset);
    p.b.d.to(&p.qb, QpState::Reset);
    p.qa.begin_anew();
    p.qb.begin_anew();
    vnic_tests::driver::rdma::connect(&mut p.a.d, &p.qa, &mut p.b.d, &p.qb);
    p.write(6);
    assert_eq!(p.a.cq.good(6).consumed, p.qa.sends().producer);
    p.world.finish()
}

/// The next completion says that the entries of the lost one are free.
#[test]
fn a_lost_completion_loses_no_entry() -> Result<()> {
    let mut p = Pair::with(once(1, Kind::Write, Fault::Lose))?;
    for id in 0..4 {
        p.write(id);
    }
    p.a.cq.good(0);
    p.a.cq.good(2);
    let last = p.a.cq.good(3);
    p.all_entries_work(last.consumed)?;
    assert!(p.a.cq.poll().is_none());
    p.world.finish()
}

#[test]
fn a_completion_comes_twice() -> Result<()> {
    let mut p = Pair::with(once(0, Kind::Write, Fault::Double))?;
    p.write(0);
    p.write(1);
    let (one, two) = (p.a.cq.good(0), p.a.cq.good(0));
    assert_eq!(one.consumed, two.consumed);
    let last = p.a.cq.good(1);
    p.all_entries_work(last.consumed)?;
    p.world.finish()
}

/// Both requests are carried out by one doorbell, and both times are the device's.
#[test]
fn a_late_completion_waits_its_time_and_frees_no_less() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(10));
    let world = World::with_clock(clock.clone(), &["a", "b"])?;
    let mut p = Pair::of(world, once(0, Kind::Write, Fault::Late(Duration::from_millis(5))))?;
    for id in [0, 1] {
        p.write(id);
    }
    clock.pass(Duration::from_millis(4));
    let first = p.a.cq.good(1);
    assert!(p.a.cq.poll().is_none(), "5 ms have not passed");
    clock.pass(Duration::from_millis(2));
    let second = p.a.cq.good(0);
    assert!(second.time - first.time >= 4_000_000, "{first:?} {second:?}");
    p.all_entries_work(second.consumed)?;
    p.world.finish()
}

#[test]
fn a_request_hangs_until_its_rule_goes() -> Result<()> {
    let mut p = Pair::with(once(1, Kind::Write, Fault::Hang))?;
    for id in 0..3 {
        p.write(id);
    }
    p.a.cq.good(0);
    p.a.cq.good(2);
    p.settle();
    assert!(p.a.cq.poll().is_none());
    p.remove()?;
    let last = p.a.cq.good(1);
    p.all_entries_work(last.consumed)?;
    p.world.finish()
}

#[test]
fn a_completion_is_overtaken_by_the_next() -> Result<()> {
    let mut p = Pair::with(once(0, Kind::Write, Fault::Swap(LONG)))?;
    for id in 0..3 {
        p.write(id);
    }
    for id in [1, 0] {
        p.a.cq.good(id);
    }
    let last = p.a.cq.good(2);
    p.all_entries_work(last.consumed)?;
    p.world.finish()
}

/// If nothing follows, the completion comes after its time.
#[test]
fn a_completion_that_nothing_follows_comes_nevertheless() -> Result<()> {
    let mut p = Pair::with(once(0, Kind::Write, Fault::Swap(Duration::from_millis(5))))?;
    p.write(0);
    p.a.cq.good(0);
    p.world.finish()
}

#[test]
fn lengths_and_immediates_are_wrong() -> Result<()> {
    for fault in [Fault::Length(7), Fault::Immediate(0xbad)] {
        let mut p = Pair::with(once(0, Kind::Recv, fault))?;
        let bytes = fill(1, 100);
        p.b.mr.area.write(0, &bytes);
        p.a.receive(&mut p.qa, 9, &[p.a.at(4096, 200)]);
        let mut wr = Wr::send(1, &[p.b.at(0, 100)]).imm(77);
        wr.head.operation = Operation::SendImm.number();
        p.b.done(&mut p.qb, &wr);
        let e = p.a.cq.good(9);
        let wanted = match fault {
            Fault::Length(len) => (len, 77),
            _ => (100, 0xbad),
        };
        assert_eq!((e.byte_len, e.imm), wanted);
        assert_eq!(p.a.mr.area.bytes(4096, 100), bytes, "what came is right");
        p.world.finish()?;
    }
    Ok(())
}

/// Same seed, same completions: with a probability, too.
#[test]
fn a_seed_is_a_run() -> Result<()> {
    let run = |seed| -> Result<Vec<u64>> {
        let mut p = Pair::with(VerbsFaultSpec {
            probability: 300_000,
            seed: Some(seed),
            ..always(Kind::Write, Fault::Lie(Status::RemoteOperationError))
        })?;
        let mut hit = Vec::new();
        for id in 0..64 {
            p.write(id);
            let e = p.a.cq.wait();
            p.qa.sends().consumer = e.consumed;
            if e.status() != Status::Success {
                hit.push(e.wr_id);
            }
        }
        p.world.finish()?;
        Ok(hit)
    };
    let first = run(5)?;
    assert!((5..40).contains(&first.len()), "{first:?}");
    assert_eq!(run(5)?, first);
    assert_ne!(run(6)?, first);
    Ok(())
}

/// Objects that end while completions are withheld take those with them.
#[test]
fn what_is_withheld_ends_with_its_objects() -> Result<()> {
    let mut p = Pair::with(always(Kind::Write, Fault::Hang))?;
    p.write(0);
    p.write(1);
    p.settle();
    assert_eq!(p.injected(), 2);
    p.a.d.end(Opcode::DestroyQp, p.qa.number)?;
    let (qa, qb) = p.a.pair(&mut p.b, QpType::Rc);
    (p.qa, p.qb) = (qa, qb);
    p.write(2);
    p.settle();
    p.remove()?;
    p.a.cq.good(2);
    assert!(p.a.cq.poll().is_none());

    // The driver goes; the next one is judged by the same rule, and gets nothing of the old one.
    p.world
        .rig
        .nic
        .add_verbs_fault(always(Kind::Write, Fault::Hang))?;
    p.write(3);
    p.settle();
    assert_eq!(p.injected(), 1);
    drop(p.a);
    p.a = p.world.side("a")?;
    let (qa, qb) = p.a.pair(&mut p.b, QpType::Rc);
    (p.qa, p.qb) = (qa, qb);
    p.write(4);
    p.settle();
    assert!(p.a.cq.poll().is_none());
    p.remove()?;
    p.a.cq.good(4);
    assert!(p.a.cq.poll().is_none());
    p.world.finish()
}

/// A rule for one queue pair leaves the others alone.
#[test]
fn one_queue_pair_of_two() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut one, _qb) = a.pair(&mut b, QpType::Rc);
    let (mut two, _qb) = a.pair(&mut b, QpType::Rc);
    let action = VerbsFaultAction::Completion {
        qp: Some(two.number),
        kinds: Vec::new(),
        fault: Fault::Lie(Status::RemoteAccessError),
    };
    world
        .rig
        .nic
        .add_verbs_fault(VerbsFaultSpec::new("rule", "a", action))?;
    let wr = Wr::new(1, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
    a.done(&mut one, &wr);
    a.fails(&mut two, &wr, Status::RemoteAccessError);
    world.finish()
}

#[test]
fn commands_are_refused() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let action = VerbsFaultAction::Command {
        commands: vec![VerbsCommand::AllocPd],
        status: Some(CommandStatus::LimitReached),
        delay: None,
    };
    let rule = VerbsFaultSpec {
        skip: 1,
        count: Some(1),
        ..VerbsFaultSpec::new("rule", "a", action)
    };
    world.rig.nic.add_verbs_fault(rule)?;
    let before = world.objects("a");
    let first = a.d.pd();
    let status = |s: &mut Side| s.d.status(Opcode::AllocPd, &[0u8; 0], &[]);
    assert_eq!(status(&mut a), CommandStatus::LimitReached);
    assert_eq!(status(&mut b), CommandStatus::Ok);
    a.d.end(Opcode::DeallocPd, first)?;
    assert_eq!(world.objects("a"), before, "a refused command has no effect");
    assert_eq!(status(&mut a), CommandStatus::Ok);
    world.finish()
}

/// An adapter that starts anew has its rules.
#[test]
fn rules_outlive_a_restart() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    world
        .rig
        .nic
        .add_verbs_fault(always(Kind::Write, Fault::Lie(Status::RemoteAccessError)))?;
    world.rig.nic.restart_adapter("a")?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let wr = Wr::new(1, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
    a.fails(&mut qa, &wr, Status::RemoteAccessError);
    world.rig.nic.remove_verbs_fault("rule")?;
    a.done(&mut qa, &wr);
    world.finish()
}

#[test]
fn rules_without_a_meaning_are_refused() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let nic = &world.rig.nic;
    let good = always(Kind::Send, Fault::Lose);
    let bad = [
        always(Kind::Send, Fault::Lie(Status::Success)),
        always(Kind::Send, Fault::Late(Duration::ZERO)),
        VerbsFaultSpec {
            probability: 1_000_001,
            ..good.clone()
        },
        VerbsFaultSpec {
            adapter: "nobody".into(),
            ..good.clone()
        },
    ];
    for rule in bad {
        assert!(
            matches!(nic.add_verbs_fault(rule.clone()), Err(NicError::Invalid { .. })),
            "{rule:?}"
        );
    }
    nic.add_verbs_fault(good.clone())?;
    assert!(matches!(nic.add_verbs_fault(good), Err(NicError::Exists { .. })));
    nic.remove_verbs_fault("rule")?;
    assert!(nic.verbs_faults().is_empty() && nic.remove_verbs_fault("rule").is_err());
    world.finish()
}

/// A rule of an adapter counts the completions of all its processes; what it holds back of one, the others do not feel.
#[test]
fn a_rule_is_of_all_processes_of_its_adapter() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let options = || Options {
        shares: true,
        memory: 2 << 20,
        ..Options::default()
    };
    let process =
        |adapter: &str| -> Result<Side> { Ok(Side::new(Driver::start(world.socket(adapter), options())?)) };
    let (mut first, mut second, mut peer) = (process("a")?, process("a")?, process("b")?);
    let mut pairs = [
        first.pair(&mut peer, QpType::Rc).0,
        second.pair(&mut peer, QpType::Rc).0,
    ];
    world.rig.nic.add_verbs_fault(once(1, Kind::Write, Fault::Hang))?;
    let write =
        |side: &Side, id| Wr::new(id, Operation::Write, &[side.at(0, 8)]).remote(peer.mr.iova, peer.mr.rkey);
    let wr = write(&first, 1);
    first.done(&mut pairs[0], &wr);
    let wr = write(&second, 2);
    second.post(&mut pairs[1], &wr);
    second.bells.wait_taken();
    for id in 3..6 {
        let wr = write(&first, id);
        first.done(&mut pairs[0], &wr);
    }
    assert!(second.cq.poll().is_none(), "the second match hangs");
    // A process that comes later is under the rule as well, and one that goes takes what was held back with it.
    let mut third = process("a")?;
    let mut own = third.pair(&mut peer, QpType::Rc).0;
    let wr = Wr::new(7, Operation::Write, &[third.at(0, 8)]).remote(peer.mr.iova, peer.mr.rkey);
    third.done(&mut own, &wr);
    let status = &world.rig.nic.verbs_faults()[0];
    assert_eq!((status.matched, status.injected), (6, 1));
    drop(second);
    world.rig.nic.remove_verbs_fault("rule")?;
    let wr = Wr::new(8, Operation::Write, &[third.at(0, 8)]).remote(peer.mr.iova, peer.mr.rkey);
    third.done(&mut own, &wr);
    drop((first, third, peer));
    world.finish()
}
