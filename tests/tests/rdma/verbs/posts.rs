//! Posts that fail by rules of the operator: which, when, and what they cost.

use vnic_backend::{Operation, Post, PostErrno, VerbsFaultAction, VerbsFaultSpec};

use super::*;

fn rule(post: Post, errno: PostErrno) -> VerbsFaultSpec {
    let action = VerbsFaultAction::Post {
        post,
        qp: None,
        operations: Vec::new(),
        errno,
    };
    VerbsFaultSpec::new("rule", "a", action)
}

fn sends(qp: Option<u32>, operations: &[Operation]) -> VerbsFaultSpec {
    let action = VerbsFaultAction::Post {
        post: Post::Send,
        qp,
        operations: operations.to_vec(),
        errno: PostErrno::Eagain,
    };
    VerbsFaultSpec::new("rule", "a", action)
}

const EAGAIN: PostReason = PostReason::OnDemand(11);
const EIO: PostReason = PostReason::OnDemand(5);

/// What the rule has matched and hit.
fn counts(rig: &Rig) -> (u64, u64) {
    let rule = &rig.nic.verbs_faults()[0];
    (rule.matched, rule.injected)
}

/// The driver hears of a change of the rules in the end.
fn until(is: impl FnMut() -> bool) {
    assert!(wait_for(is), "the driver never heard of it");
}

/// A pair whose drivers come when the rule is there already.
fn pair_under(rule: VerbsFaultSpec) -> Result<Pair> {
    let mut rig = Rig::new(1)?;
    add(&mut rig, "a")?;
    add(&mut rig, "b")?;
    rig.nic.add_verbs_fault(rule)?;
    Ok(Pair {
        a: Side::new(&rig, "a")?,
        b: Side::new(&rig, "b")?,
        rig,
    })
}

impl Pair {
    fn connected(&self) -> Result<(QueuePair<Rc>, QueuePair<Rc>)> {
        let (qa, qb) = (self.a.rc()?, self.b.rc()?);
        connect(&qa, &qb)?;
        Ok((qa, qb))
    }

    /// Posts a write of so many bytes, and waits for its end; or why it is refused.
    fn write(&self, qp: &QueuePair<Rc>, len: usize) -> Result<(), PostReason> {
        let wr = SendWr::write(
            self.a.region.slice(..len),
            self.b.region.addr(),
            self.b.region.rkey(),
        );
        let posted = qp.post_send(&[wr.signaled()]).map_err(|e| e.reason);
        let done = |_| self.a.done().expect("a completion");
        posted.map(done).map(|_| ())
    }

    fn add(&self, rule: VerbsFaultSpec) -> Result<()> {
        self.rig.nic.add_verbs_fault(rule)?;
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        self.rig.nic.remove_verbs_fault("rule")?;
        Ok(())
    }
}

/// A driver that opens the device under a rule asks from its first post on.
#[test]
fn the_kth_post_behind_the_opening_fails() -> Result<()> {
    let pair = pair_under(VerbsFaultSpec {
        skip: 2,
        count: Some(1),
        ..rule(Post::Send, PostErrno::Eagain)
    })?;
    let (qp, _peer) = pair.connected()?;
    let told: Vec<_> = (0..5).map(|_| pair.write(&qp, 8)).collect();
    assert_eq!(told, [Ok(()), Ok(()), Err(EAGAIN), Ok(()), Ok(())]);
    // The rule is spent: nobody asks any more.
    until(|| {
        let before = counts(&pair.rig);
        pair.write(&qp, 8).is_ok() && counts(&pair.rig) == before
    });
    assert_eq!(counts(&pair.rig).1, 1);
    Ok(())
}

/// The rest of a list is not posted, and nothing of the refused request is in the ring.
#[test]
fn a_list_ends_at_the_refused_request() -> Result<()> {
    let pair = pair_under(VerbsFaultSpec {
        skip: 1,
        count: Some(1),
        ..rule(Post::Send, PostErrno::Eagain)
    })?;
    let (qp, _peer) = pair.connected()?;
    let (addr, rkey) = (pair.b.region.addr(), pair.b.region.rkey());
    let wrs = [1, 2, 3].map(|id| {
        SendWr::write(Data::inline(b"x"), addr + id, rkey)
            .id(id)
            .signaled()
    });
    let refused = qp.post_send(&wrs).expect_err("the second is refused");
    assert_eq!((refused.posted, refused.reason), (1, EAGAIN));
    qp.post_send(&wrs[1..])?;
    for id in [1, 2, 3] {
        assert_eq!(pair.a.done()?.id(), id);
    }
    Ok(())
}

/// A driver that runs hears of rules, and of their end.
#[test]
fn rules_come_and_go_while_a_program_posts() -> Result<()> {
    let pair = pair()?;
    let (qp, _peer) = pair.connected()?;
    for _ in 0..2 {
        pair.add(rule(Post::Send, PostErrno::Eagain))?;
        until(|| pair.write(&qp, 8) == Err(EAGAIN));
        assert_eq!(pair.write(&qp, 8), Err(EAGAIN));
        pair.remove()?;
        // What is asked now is let go.
        pair.write(&qp, 8)?;
    }
    // A reset does not end a rule.
    pair.add(rule(Post::Send, PostErrno::Eagain))?;
    pair.a.context.reset()?;
    let pd = pair.a.context.alloc_pd()?;
    let region = pd.allocate(64, Access::REMOTE_ALL)?;
    let cq = pair.a.context.create_cq(16)?;
    let (again, peer) = (pd.qp::<Rc>(&cq, &cq).build()?, pair.b.rc()?);
    connect(&again, &peer)?;
    let wr = SendWr::write(region.slice(..8), pair.b.region.addr(), pair.b.region.rkey());
    assert_eq!(again.post_send(&[wr]).map_err(|e| e.reason), Err(EAGAIN));
    Ok(())
}

#[test]
fn sends_match_by_queue_pair_operation_and_size() -> Result<()> {
    let pair = pair_under(sends(None, &[Operation::Read]))?;
    let (qp, _peer) = pair.connected()?;
    let (other, _another) = pair.connected()?;
    let read = || {
        let wr = SendWr::read(
            pair.a.region.slice(..8),
            pair.b.region.addr(),
            pair.b.region.rkey(),
        );
        let posted = qp.post_send(&[wr.signaled()]).map_err(|e| e.reason);
        let done = |_| pair.a.done().expect("a completion");
        posted.map(done).map(|_| ())
    };
    assert_eq!((pair.write(&qp, 8), read()), (Ok(()), Err(EAGAIN)));
    pair.remove()?;
    pair.add(sends(Some(other.number()), &[Operation::Write]))?;
    until(|| pair.write(&other, 8) == Err(EAGAIN));
    assert_eq!((pair.write(&qp, 8), read()), (Ok(()), Ok(())));
    pair.remove()?;
    pair.add(VerbsFaultSpec {
        min_bytes: Some(9),
        max_bytes: Some(10),
        ..sends(None, &[])
    })?;
    until(|| pair.write(&qp, 9) == Err(EAGAIN));
    let told = [8, 10, 11].map(|len| pair.write(&qp, len));
    assert_eq!(told, [Ok(()), Err(EAGAIN), Ok(())]);
    Ok(())
}

#[test]
fn receives_and_shared_receives_are_different_posts() -> Result<()> {
    let pair = pair_under(VerbsFaultSpec {
        skip: 1,
        count: Some(1),
        ..rule(Post::Receive, PostErrno::Eio)
    })?;
    let (qp, _peer) = pair.connected()?;
    let srq = pair.a.pd.srq().build()?;
    let wr = RecvWr::new(pair.a.region.slice(..64));
    assert_eq!(srq.post(&[wr, wr, wr]), Ok(3));
    let refused = qp.post_recv(&[wr, wr, wr]).expect_err("the second is refused");
    assert_eq!((refused.posted, refused.reason), (1, EIO));
    assert_eq!(qp.post_recv(&[wr, wr]), Ok(2));
    pair.remove()?;
    pair.add(rule(Post::SharedReceive, PostErrno::Eio))?;
    until(|| srq.post(&[wr]).map_err(|e| e.reason) == Err(EIO));
    assert_eq!(qp.post_recv(&[wr, wr]), Ok(2));
    Ok(())
}

#[test]
fn rules_that_contradict_themselves_are_refused() -> Result<()> {
    let pair = pair()?;
    let wrong = |post, qp, operations: &[Operation]| {
        let action = VerbsFaultAction::Post {
            post,
            qp,
            operations: operations.to_vec(),
            errno: PostErrno::Eio,
        };
        let rule = VerbsFaultSpec::new("rule", "a", action);
        assert!(pair.rig.nic.add_verbs_fault(rule).is_err());
    };
    wrong(Post::SharedReceive, Some(17), &[]);
    wrong(Post::Receive, None, &[Operation::Write]);
    Ok(())
}
