//! What runs out on demand: completion queues, shared receives, and receives.

use vnic_device::event::EventKind;
use vnic_tests::driver::rdma::{Link, link};

use super::*;

/// The queue overruns as one does that nobody reads: its event, and its queue pairs end; others go on.
#[test]
fn a_completion_queue_overruns_on_demand() -> Result<()> {
    let mut p = Pair::with(once(1, Kind::Write, Fault::Overrun))?;
    let other = p.a.d.cq(64);
    let own = std::mem::replace(&mut p.a.cq, other);
    let (mut second, _qb) = p.a.pair(&mut p.b, QpType::Rc);
    let mut other = std::mem::replace(&mut p.a.cq, own);
    for id in 0..3 {
        p.write(id);
    }
    p.a.cq.good(0);
    let told = p.a.d.event(EventKind::CqError);
    assert_eq!(told.object, p.a.cq.handle);
    assert_eq!(p.a.d.state(&p.qa), QpState::Err);
    p.settle();
    assert!(p.a.cq.poll().is_none(), "nothing comes any more");
    let wr = Wr::new(7, Operation::Write, &[p.a.at(0, 8)]).remote(p.b.mr.iova, p.b.mr.rkey);
    p.a.post(&mut second, &wr);
    other.good(7);
    assert_eq!(p.injected(), 1);
    p.world.finish()
}

/// The event comes though the limit is not reached, nor set; only of a shared queue.
#[test]
fn a_shared_queue_tells_its_limit_on_demand() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let mut srq = a.d.srq(a.pd, 16, 1, None);
    let spec = a.spec(QpType::Rc).shared(&srq);
    let qa = a.d.qp(&spec);
    let mut qb = b.qp(QpType::Rc);
    vnic_tests::driver::rdma::connect(&mut a.d, &qa, &mut b.d, &qb);
    let (mut plain, mut to_plain) = a.pair(&mut b, QpType::Rc);
    world
        .rig
        .nic
        .add_verbs_fault(once(1, Kind::Recv, Fault::SrqLimit))?;
    let element = a.at(0, 64);
    for id in 0..8 {
        srq.receive(&mut a.bells, id, &[element]);
    }
    a.receive(&mut plain, 99, &[element]);
    let wr = Wr::send(1, &[b.at(0, 8)]);
    b.done(&mut to_plain, &wr);
    a.cq.good(99);
    b.done(&mut qb, &wr);
    a.cq.good(0);
    assert_eq!(a.d.count_events(EventKind::SrqLimitReached), 0, "one is let go");
    b.done(&mut qb, &wr);
    a.cq.good(1);
    assert_eq!(a.d.event(EventKind::SrqLimitReached).object, srq.handle);
    let status = &world.rig.nic.verbs_faults()[0];
    assert_eq!((status.matched, status.injected), (2, 1));
    world.finish()
}

fn not_ready(count: Option<u64>) -> VerbsFaultSpec {
    VerbsFaultSpec {
        count,
        ..VerbsFaultSpec::new("rule", "b", VerbsFaultAction::NotReady { qp: None })
    }
}

/// A queue pair that tries so often again when the receiver is not ready.
fn patient(p: &mut Pair, rnr_retry: u8) {
    let (to_b, to_a) = (p.a.d.address_of(&mut p.b.d), p.b.d.address_of(&mut p.a.d));
    let (qa, qb) = (p.a.qp(QpType::Rc), p.b.qp(QpType::Rc));
    let patient = |link| Link { rnr_retry, ..link };
    p.a.d.up(&qa, &patient(link(to_b, qb.number)));
    p.b.d.up(&qb, &patient(link(to_a, qa.number)));
    (p.qa, p.qb) = (qa, qb);
}

/// Receives are there, and the first messages find none: the sender is told to come again, and does.
#[test]
fn receives_are_not_found_so_often() -> Result<()> {
    let mut p = Pair::with(not_ready(Some(3)))?;
    patient(&mut p, 7);
    for id in 0..2 {
        p.b.receive(&mut p.qb, id, &[p.b.at(0, 5000)]);
    }
    // A WRITE needs none. A message of several packets is refused as a whole.
    p.write(9);
    p.a.cq.good(9);
    for (id, len) in [(1, 5000), (2, 8)] {
        let wr = Wr::send(id, &[p.a.at(0, len)]);
        p.a.done(&mut p.qa, &wr);
    }
    p.b.cq.good(0);
    p.b.cq.good(1);
    let status = &p.world.rig.nic.verbs_faults()[0];
    assert_eq!((status.matched, status.injected), (5, 3));
    p.world.finish()
}

/// A storm ends a sender that tries three times; datagrams are lost. Other queue pairs are spared.
#[test]
fn a_storm_ends_who_has_no_patience() -> Result<()> {
    let mut p = Pair::with(not_ready(None))?;
    patient(&mut p, 3);
    p.b.receive(&mut p.qb, 5, &[p.b.at(0, 64)]);
    let wr = Wr::send(1, &[p.a.at(0, 8)]);
    p.a.fails(&mut p.qa, &wr, Status::RnrRetryExceeded);
    assert_eq!(p.injected(), 4);
    p.remove()?;
    // One queue pair, by its number.
    let (mut one, mut to_one) = p.b.pair(&mut p.a, QpType::Uc);
    let (mut two, mut to_two) = p.b.pair(&mut p.a, QpType::Uc);
    let rule = VerbsFaultAction::NotReady { qp: Some(one.number) };
    p.world
        .rig
        .nic
        .add_verbs_fault(VerbsFaultSpec::new("rule", "b", rule))?;
    for (qp, peer, id) in [(&mut one, &mut to_one, 10), (&mut two, &mut to_two, 20)] {
        p.b.receive(qp, id, &[p.b.at(0, 64)]);
        p.a.done(peer, &wr);
    }
    p.b.cq.good(20);
    p.settle();
    assert!(p.b.cq.poll().is_none(), "lost");
    assert_eq!(p.injected(), 1);
    p.world.finish()
}

/// Same seed, same messages.
#[test]
fn a_storm_of_a_seed_is_a_run() -> Result<()> {
    let run = |seed| -> Result<Vec<u64>> {
        let mut p = Pair::with(VerbsFaultSpec {
            probability: 300_000,
            seed: Some(seed),
            ..not_ready(None)
        })?;
        patient(&mut p, 0);
        let (mut lost, mut got) = (Vec::new(), 0);
        let (mut qa, mut qb) = p.a.pair(&mut p.b, QpType::Uc);
        for id in 0..32 {
            p.b.receive(&mut qb, id, &[p.b.at(0, 64)]);
            let before = p.injected();
            let wr = Wr::send(id, &[p.a.at(0, 8)]);
            p.a.done(&mut qa, &wr);
            p.settle();
            match p.injected() > before {
                true => lost.push(id),
                false => {
                    p.b.cq.good(got);
                    got += 1;
                }
            }
        }
        p.world.finish()?;
        Ok(lost)
    };
    let first = run(5)?;
    assert!((3..25).contains(&first.len()), "{first:?}");
    assert_eq!(run(5)?, first);
    assert_ne!(run(6)?, first);
    Ok(())
}
