//! Recordings: for every request what the program was told and what really happened at its responder, under faults that make
//! the two differ.

use anyhow::Result;
use vnic_backend::fault::{Action, Opcodes, PsnRange, opcode_of};
use vnic_backend::{Fate, FaultSpec, NicError, RECORDED_DEFAULT, Recorded, There};
use vnic_device::command::Opcode;
use vnic_device::queue::Operation;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType};
use vnic_tests::driver::rdma::{Driver, Link, Options, Qp, Side, World, Wr, fill, link};
use vnic_tests::driver::rig::wait_for;

/// Path MTU of all connections.
const MTU: u32 = 1024;

/// Two adapters, recorded.
struct Pair {
    world: World,
    a: Side,
    b: Side,
}

impl Pair {
    fn new() -> Result<Pair> {
        Pair::on(1)
    }

    /// On so many data cores.
    fn on(cores: usize) -> Result<Pair> {
        let world = World::new(cores, &["a", "b"])?;
        let (a, b) = (world.side("a")?, world.side("b")?);
        world.rig.nic.start_recording(&[], RECORDED_DEFAULT)?;
        Ok(Pair { world, a, b })
    }

    /// A connection that gives up soon.
    fn hasty(&mut self) -> (Qp, Qp) {
        hasty(&mut self.a, &mut self.b)
    }

    fn fault(&self, spec: FaultSpec) -> Result<()> {
        self.world.rig.nic.add_fault(spec)?;
        Ok(())
    }

    fn mend(&self, name: &str) -> Result<()> {
        self.world.rig.nic.remove_fault(name)?;
        Ok(())
    }

    /// A request of `a`; what names memory names that of `b`.
    fn request(&self, operation: Operation, len: u32) -> Wr {
        let wr = Wr::new(1, operation, &[self.a.at(0, len)]);
        match operation {
            Operation::Send => wr,
            _ => wr.remote(self.b.mr.iova, self.b.mr.rkey),
        }
    }

    fn write(&self, wr_id: u64, len: u32) -> Wr {
        Wr::new(wr_id, Operation::Write, &[self.a.at(0, len)]).remote(self.b.mr.iova, self.b.mr.rkey)
    }

    fn report(&self) -> Result<Recorded> {
        report(&self.world)
    }
}

fn hasty(a: &mut Side, b: &mut Side) -> (Qp, Qp) {
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
    let hasty = |link| Link {
        timeout: 8,
        retry: 1,
        rnr_retry: 0,
        ..link
    };
    a.d.up(&qa, &hasty(link(to_b, qb.number)));
    b.d.up(&qb, &hasty(link(to_a, qa.number)));
    (qa, qb)
}

fn report(world: &World) -> Result<Recorded> {
    world.rig.nic.stop_recording()?;
    Ok(world.rig.nic.recorded().expect("a recording has ended"))
}

/// Drops packets for an adapter that have one of these opcodes.
fn lost(to: &str, opcodes: &[&str]) -> FaultSpec {
    let opcodes = opcodes.iter().map(|name| opcode_of(name).expect("an opcode"));
    FaultSpec {
        to: Some(to.to_owned()),
        opcodes: Some(opcodes.collect::<Opcodes>()),
        ..FaultSpec::new("lost", Action::Drop)
    }
}

/// Operation, id and verdict of the requests of an adapter, receives without an operation.
fn verdicts(recorded: &Recorded, adapter: &str) -> Vec<(Option<Operation>, u64, String)> {
    let of = recorded.fates.iter().filter(|fate| fate.adapter == adapter);
    of.map(|f| (f.operation, f.wr_id, f.verdict())).collect()
}

fn only<'a>(recorded: &'a Recorded, adapter: &str) -> &'a Fate {
    let mut of = recorded.fates.iter().filter(|fate| fate.adapter == adapter);
    let fate = of.next().expect("a request");
    assert!(of.next().is_none(), "{:?}", recorded.fates);
    fate
}

/// What was seen at the responder: how often, how many bytes.
fn seen(fate: &Fate) -> (u32, u64) {
    match &fate.there {
        There::Seen(seen) => (seen.times, seen.bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_succeeds_was_carried_out() -> Result<()> {
    // On one core, and on two.
    (1..=2).try_for_each(what_succeeds)
}

fn what_succeeds(cores: usize) -> Result<()> {
    let mut pair = Pair::on(cores)?;
    let (mut qa, mut qb) = pair.a.pair(&mut pair.b, QpType::Rc);
    let (iova, rkey) = (pair.b.mr.iova, pair.b.mr.rkey);
    let at = pair.a.at(0, 3000);
    pair.b.receive(&mut qb, 71, &[pair.b.at(8192, 4000)]);
    pair.b.receive(&mut qb, 72, &[pair.b.at(8192, 4000)]);
    let word = pair.a.at(0, 8);
    let all = [
        Wr::send(1, &[at]),
        Wr::new(2, Operation::Write, &[at]).remote(iova, rkey),
        Wr::new(3, Operation::WriteImm, &[at]).remote(iova, rkey).imm(9),
        Wr::new(4, Operation::Read, &[at]).remote(iova, rkey),
        Wr::new(5, Operation::FetchAdd, &[word]).remote(iova, rkey),
        Wr::new(6, Operation::CompareSwap, &[word]).remote(iova, rkey),
    ];
    for wr in &all {
        pair.a.done(&mut qa, wr);
    }
    let recorded = pair.report()?;
    let words: Vec<(u64, String)> = verdicts(&recorded, "a")
        .into_iter()
        .map(|(_, id, verdict)| (id, verdict))
        .collect();
    let expected = [
        (1, "completed; its data was written"),
        (2, "completed; its data was written"),
        (3, "completed; its data was written"),
        (4, "completed; its data was read"),
        (5, "completed; it was executed"),
        (6, "completed; it was executed"),
    ];
    assert_eq!(words, expected.map(|(id, words)| (id, words.to_owned())));
    assert!(recorded.fates.iter().all(|f| !f.is_lie() && !f.failed()));
    // 3 packets each from 0xfffff0 on, over the end of the number space; 1 for an atomic.
    let psns: Vec<_> = recorded.fates.iter().filter_map(|f| f.psns).collect();
    let first = 0xff_fff0;
    let expected = [
        (first, first + 2),
        (first + 3, first + 5),
        (first + 6, first + 8),
        (first + 9, first + 11),
        (first + 12, first + 12),
        (first + 13, first + 13),
    ];
    assert_eq!(psns, expected);
    let bytes: Vec<_> = recorded
        .fates
        .iter()
        .filter(|f| f.adapter == "a")
        .map(seen)
        .collect();
    assert_eq!(
        bytes,
        [(1, 3000), (1, 3000), (1, 3000), (1, 3000), (1, 8), (1, 8)]
    );
    let taken = recorded.fates.iter().filter_map(|f| match &f.there {
        There::Seen(seen) => seen.receive,
        _ => None,
    });
    let taken: Vec<_> = taken.map(|r| (r.wr_id, r.told)).collect();
    assert_eq!(taken, [(71, Some(Status::Success)), (72, Some(Status::Success))]);
    let receives = [71, 72].map(|id| (None, id, "receive completed".to_owned()));
    assert_eq!(verdicts(&recorded, "b"), receives);
    assert_eq!(recorded.summary["completed; its data was written"], 3);
    assert_eq!(recorded.summary.values().sum::<u64>(), 8);
    assert_eq!((recorded.status.requests, recorded.status.dropped), (8, 0));
    pair.world.finish()
}

/// All acknowledges are lost: what was reported as failed was done.
#[test]
fn lost_acknowledges() -> Result<()> {
    let (imm, send) = (Operation::WriteImm, Operation::Send);
    let rows = [
        (Operation::Write, "its data was written", 3000, None),
        (imm, "its data was written", 3000, Some(Status::Success)),
        (send, "its data was written", 3000, Some(Status::Success)),
        (Operation::Read, "its data was read", 3000, None),
        (Operation::FetchAdd, "it was executed", 8, None),
        (Operation::CompareSwap, "it was executed", 8, None),
    ];
    for (operation, done, bytes, receive) in rows {
        let mut pair = Pair::new()?;
        let answers = [
            "RC ACKNOWLEDGE",
            "RC ATOMIC_ACKNOWLEDGE",
            "RC RDMA_READ_RESPONSE_FIRST",
            "RC RDMA_READ_RESPONSE_MIDDLE",
            "RC RDMA_READ_RESPONSE_LAST",
        ];
        pair.fault(lost("a", &answers))?;
        let (mut qa, mut qb) = pair.hasty();
        pair.b.receive(&mut qb, 7, &[pair.b.at(8192, 4000)]);
        pair.a.mr.area.write(0, &fill(1, 3000));
        let wr = pair.request(operation, bytes);
        pair.a.fails(&mut qa, &wr, Status::RetryExceeded);
        let recorded = pair.report()?;
        let fate = only(&recorded, "a");
        assert_eq!(fate.verdict(), format!("reported as failed; {done}"));
        assert!(fate.is_lie() && fate.failed());
        assert_eq!(fate.really, Some(Status::RetryExceeded));
        let (times, landed) = seen(fate);
        assert_eq!(landed, u64::from(bytes));
        // (What a READ asks for is read again for each request that comes again.)
        assert!(times == 1 || operation == Operation::Read, "{times}");
        let There::Seen(there) = &fate.there else {
            panic!("{fate:?}");
        };
        assert_eq!(there.receive.map(|r| r.told), receive.map(Some));
        if operation == Operation::Write {
            assert_eq!(pair.b.mr.area.bytes(0, 3000), fill(1, 3000), "it is true");
        }
    }
    Ok(())
}

#[test]
fn lost_requests() -> Result<()> {
    let mut pair = Pair::new()?;
    pair.fault(FaultSpec {
        to: Some("b".to_owned()),
        ..lost("b", &["RC RDMA_WRITE_FIRST", "RC RDMA_WRITE_ONLY"])
    })?;
    let (mut qa, _qb) = pair.hasty();
    let wrs = [pair.write(1, 3000), pair.write(2, 8)];
    for wr in &wrs {
        qa.sends().write(wr);
    }
    qa.ring(&mut pair.a.bells);
    pair.a.cq.expect(1, Status::RetryExceeded);
    pair.a.cq.expect(2, Status::FlushError);
    pair.mend("lost")?;
    let recorded = pair.report()?;
    let failed = "reported as failed; its data was not written".to_owned();
    let write = Some(Operation::Write);
    assert_eq!(
        verdicts(&recorded, "a"),
        [(write, 1, failed.clone()), (write, 2, failed)]
    );
    assert!(recorded.fates.iter().all(|f| f.failed() && !f.is_lie()));
    pair.world.finish()
}

#[test]
fn a_lost_middle_leaves_a_part() -> Result<()> {
    for operation in [Operation::Write, Operation::Send] {
        let mut pair = Pair::new()?;
        let (mut qa, mut qb) = pair.hasty();
        pair.b.receive(&mut qb, 7, &[pair.b.at(8192, 8000)]);
        pair.fault(FaultSpec {
            to: Some("b".to_owned()),
            // The third of five.
            psn: Some(PsnRange {
                first: 0xff_fff2,
                last: 0xff_fff2,
            }),
            ..FaultSpec::new("lost", Action::Drop)
        })?;
        let wr = pair.request(operation, 5 * MTU);
        pair.a.fails(&mut qa, &wr, Status::RetryExceeded);
        let recorded = pair.report()?;
        let fate = only(&recorded, "a");
        assert_eq!(fate.verdict(), "reported as failed; its data was partly written");
        assert_eq!(seen(fate), (0, u64::from(2 * MTU)));
        assert!(fate.is_lie());
    }
    Ok(())
}

/// Without acknowledges nobody knows: the requester is content, and the responder has nothing, or has it twice.
#[test]
fn an_unreliable_write() -> Result<()> {
    let mut pair = Pair::new()?;
    let (mut qa, _qb) = pair.a.pair(&mut pair.b, QpType::Uc);
    pair.fault(lost("b", &["UC RDMA_WRITE_ONLY"]))?;
    let wr = pair.write(1, 64);
    pair.a.done(&mut qa, &wr);
    pair.mend("lost")?;
    pair.fault(FaultSpec {
        to: Some("b".to_owned()),
        ..FaultSpec::new("twice", Action::Duplicate { copies: 1 })
    })?;
    let wr = pair.write(2, 64);
    pair.a.done(&mut qa, &wr);
    let b = pair.b.mr.area.clone();
    assert!(wait_for(|| b.bytes(0, 64).len() == 64));
    pair.world.rig.settle()?;
    let recorded = pair.report()?;
    let write = Some(Operation::Write);
    assert_eq!(
        verdicts(&recorded, "a"),
        [
            (
                write,
                1,
                "reported as complete; its data was NOT written".to_owned()
            ),
            (write, 2, "completed; its data was written twice".to_owned()),
        ]
    );
    assert!(recorded.fates.iter().all(Fate::is_lie));
    Ok(())
}

#[test]
fn datagrams() -> Result<()> {
    let mut pair = Pair::new()?;
    let (mut qa, mut qb) = pair.a.pair(&mut pair.b, QpType::Ud);
    let to = pair.a.d.address_of(&mut pair.b.d);
    let ah = pair.a.d.ah(pair.a.pd, to);
    pair.b.receive(&mut qb, 7, &[pair.b.at(8192, 4000)]);
    // The second finds no receive.
    for id in [1, 2] {
        let wr = Wr::send(id, &[pair.a.at(0, 100)]).to(ah, qb.number);
        pair.a.done(&mut qa, &wr);
    }
    pair.b.cq.good(7);
    pair.world.rig.settle()?;
    let recorded = pair.report()?;
    let words: Vec<String> = verdicts(&recorded, "a").into_iter().map(|(.., v)| v).collect();
    assert_eq!(
        words,
        [
            "completed; its data was written",
            "reported as complete; its data was NOT written"
        ]
    );
    Ok(())
}

#[test]
fn what_has_no_completion() -> Result<()> {
    let mut pair = Pair::new()?;
    let (mut qa, qb) = pair.a.pair(&mut pair.b, QpType::Rc);
    // Unsignaled, and a later one says that it is done.
    for wr in [
        pair.write(1, 64).silent(),
        pair.write(2, 64),
        pair.write(3, 64).silent(),
    ] {
        qa.sends().write(&wr);
    }
    qa.ring(&mut pair.a.bells);
    pair.a.cq.good(2);
    pair.a.bells.wait_taken();
    pair.a.d.sync();
    // The acknowledge of the last one never comes, and its queue pair goes.
    pair.fault(lost("a", &["RC ACKNOWLEDGE"]))?;
    let wr = pair.write(4, 64);
    pair.a.post(&mut qa, &wr);
    pair.a.bells.wait_taken();
    pair.a.d.sync();
    pair.a.d.to(&qa, QpState::Reset);
    pair.a.d.end(Opcode::DestroyQp, qa.number).expect("DESTROY_QP");
    // Nor that of another, whose queue pair stays.
    let (mut second, _) = pair.a.pair(&mut pair.b, QpType::Rc);
    let wr = pair.write(5, 64);
    pair.a.post(&mut second, &wr);
    pair.a.bells.wait_taken();
    pair.a.d.sync();
    pair.world.rig.settle()?;
    let recorded = pair.report()?;
    let words: Vec<(u64, u32, String)> = recorded
        .fates
        .iter()
        .map(|f| (f.wr_id, f.pair, f.verdict()))
        .collect();
    let gone = "no completion, its queue pair is gone; its data was written";
    let expected = [
        (1, 1, "no completion wanted; its data was written"),
        (2, 1, "completed; its data was written"),
        (3, 1, "no completion wanted; its data was written"),
        (4, 1, gone),
        (5, 2, "no completion; its data was written"),
    ];
    let expected = expected.map(|(id, pair, words)| (id, pair, words.to_owned()));
    // (A request without a completion whose queue pair is gone is told as such, wanted or not.)
    assert_eq!(words[..2], expected[..2]);
    assert_eq!(words[3..], expected[3..]);
    assert_eq!(words[2].2, gone);
    assert_eq!(recorded.fates[0].really, Some(Status::Success));
    let _ = qb;
    Ok(())
}

#[test]
fn processes_of_one_adapter() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let process = || -> Result<Side> {
        let options = Options {
            shares: true,
            memory: 4 << 20,
            ..Options::default()
        };
        Ok(Side::new(Driver::start(world.socket("a"), options)?))
    };
    let mut first = process()?;
    world.rig.nic.start_recording(&["a".to_owned()], 100)?;
    // It comes while the recording runs, and is gone before that ends.
    let mut second = process()?;
    let (mut q1, mut q2) = first.pair(&mut second, QpType::Rc);
    second.receive(&mut q2, 21, &[second.at(0, 500)]);
    first.done(&mut q1, &Wr::send(11, &[first.at(0, 500)]));
    second.cq.good(21);
    let back = Wr::new(22, Operation::Write, &[second.at(0, 500)]);
    second.done(&mut q2, &back.remote(first.mr.iova, first.mr.rkey));
    drop(second);
    assert!(wait_for(|| {
        world.rig.nic.rdma_owners("a").is_ok_and(|all| all.0.len() == 1)
    }));
    world.rig.settle()?;
    let recorded = report(&world)?;
    let all = recorded
        .fates
        .iter()
        .map(|f| (f.process, f.wr_id, f.verdict(), f.owner.and_then(|o| o.pid)));
    let pid = Some(std::process::id() as i32);
    let written = "completed; its data was written".to_owned();
    let expected = [
        (1, 11, written.clone(), pid),
        (2, 21, "receive completed".to_owned(), pid),
        (2, 22, written, pid),
    ];
    assert_eq!(all.collect::<Vec<_>>(), expected);
    Ok(())
}

#[test]
fn the_limit_keeps_the_newest() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let nic = &world.rig.nic;
    assert!(matches!(
        nic.start_recording(&[], 0),
        Err(NicError::Invalid { field: "limit", .. })
    ));
    nic.start_recording(&[], 10)?;
    assert!(matches!(
        nic.start_recording(&[], 10),
        Err(NicError::Exists { .. })
    ));
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    for id in 0..25 {
        let wr = Wr::new(id, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
        a.done(&mut qa, &wr);
    }
    let recorded = report(&world)?;
    let ids: Vec<u64> = recorded.fates.iter().map(|f| f.wr_id).collect();
    assert_eq!(ids, (15..25).collect::<Vec<_>>());
    let status = &recorded.status;
    assert_eq!((status.requests, status.dropped, status.lost), (25, 15, 15));
    assert_eq!(recorded.summary["completed; its data was written"], 10);
    // A new one forgets the last.
    world.rig.nic.start_recording(&["a".to_owned()], 10)?;
    assert!(world.rig.nic.recorded().is_none() && world.rig.nic.recording().is_some());
    let wr = Wr::new(30, Operation::Write, &[a.at(0, 8)]).remote(b.mr.iova, b.mr.rkey);
    a.done(&mut qa, &wr);
    let recorded = report(&world)?;
    assert_eq!(
        only(&recorded, "a").verdict(),
        "completed; its responder is not recorded"
    );
    assert!(matches!(
        world.rig.nic.stop_recording(),
        Err(NicError::NotFound { .. })
    ));
    let unknown = world.rig.nic.start_recording(&["nobody".to_owned()], 10);
    assert!(matches!(unknown, Err(NicError::NotFound { .. })));
    world.finish()
}

/// A responder behind an uplink is not seen.
#[test]
fn a_responder_elsewhere() -> Result<()> {
    let mut pair = Pair::new()?;
    let mut qa = pair.a.qp(QpType::Rc);
    let mut to = pair.a.d.address_of(&mut pair.b.d);
    to.dmac = [2, 0, 0, 0, 0xee, 0xee];
    let way = Link {
        timeout: 8,
        retry: 1,
        ..link(to, 17)
    };
    pair.a.d.up(&qa, &way);
    let wr = pair.write(1, 64);
    pair.a.fails(&mut qa, &wr, Status::RetryExceeded);
    let recorded = pair.report()?;
    let fate = only(&recorded, "a");
    assert_eq!(fate.verdict(), "reported as failed; its responder is not here");
    assert!(!fate.is_lie());
    Ok(())
}

/// A responder that is recorded from the middle of a connection on, over the end of the number space.
#[test]
fn numbers_that_come_again() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let write = |a: &Side, b: &Side, id, len| {
        Wr::new(id, Operation::Write, &[a.at(0, len)]).remote(b.mr.iova, b.mr.rkey)
    };
    let wr = write(&a, &b, 1, 10 * MTU);
    a.done(&mut qa, &wr);
    world.rig.nic.start_recording(&[], 100)?;
    for id in 2..5 {
        let wr = write(&a, &b, id, 10 * MTU);
        a.done(&mut qa, &wr);
    }
    let recorded = report(&world)?;
    let psns: Vec<_> = recorded.fates.iter().filter_map(|f| f.psns).collect();
    assert_eq!(psns, [(0xff_fffa, 3), (4, 13), (14, 23)]);
    for fate in recorded.fates.iter() {
        assert_eq!(seen(fate), (1, u64::from(10 * MTU)));
    }
    world.finish()
}

/// What rules make of completions: the program is told one thing, and the responder has done another.
#[test]
fn lies_of_rules_are_seen_through() -> Result<()> {
    use vnic_backend::{CompletionFault as F, CompletionKind, VerbsFaultAction, VerbsFaultSpec};
    let mut p = Pair::new()?;
    let (mut qa, _qb) = p.a.pair(&mut p.b, QpType::Rc);
    // Each hits one request more. (Rules behind one that makes a completion a failed one, or loses it, do not see a WRITE in it.)
    let rules = [
        (0, F::Lie(Status::RemoteAccessError)),
        (0, F::Hang),
        (1, F::Lose),
        (0, F::Swap(std::time::Duration::from_secs(8))),
    ];
    for (n, (skip, fault)) in rules.into_iter().enumerate() {
        let action = VerbsFaultAction::Completion {
            qp: None,
            kinds: vec![CompletionKind::Write],
            fault,
        };
        p.world.rig.nic.add_verbs_fault(VerbsFaultSpec {
            skip,
            count: Some(1),
            ..VerbsFaultSpec::new(&format!("rule-{n}"), "a", action)
        })?;
    }
    for id in 0..5 {
        let wr = p.write(id, 8);
        p.a.post(&mut qa, &wr);
    }
    p.a.cq.expect(0, Status::RemoteAccessError);
    for id in [4, 3] {
        p.a.cq.good(id);
    }
    let recorded = p.report()?;
    let verdicts: Vec<String> = verdicts(&recorded, "a")
        .into_iter()
        .map(|(.., verdict)| verdict)
        .collect();
    let wanted = [
        "reported as failed; its data was written",
        "hung; its data was written",
        "hung; its data was written",
        "completed; its data was written",
        "completed; its data was written",
    ];
    assert_eq!(verdicts, wanted);
    p.world.finish()
}
