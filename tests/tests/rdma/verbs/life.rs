//! How objects come and go, also when the device does.

use vnic_tests::driver::rdma::{Driver, Options};

use super::*;

#[test]
fn wrong_sockets_are_refused_with_the_cure() -> Result<()> {
    let mut rig = Rig::new(1)?;
    add(&mut rig, "a")?;
    let refusal = |path: PathBuf| match Device::open(&DeviceAddress::Socket(path)) {
        Ok(_) => bail!("opened"),
        Err(e) => Ok(e.to_string()),
    };
    let text = refusal(rig.socket("a"))?;
    assert!(text.contains("NAME-rdma.sock"), "{text}");
    let text = refusal(rig.dir().join("none"))?;
    assert!(text.contains("is vnicd running"), "{text}");
    // Beside a guest nobody has a place.
    let guest = Driver::start(rdma_socket(&rig, "a"), Options::default())?;
    let text = refusal(rdma_socket(&rig, "a"))?;
    assert!(text.contains("a virtual machine or another program"), "{text}");
    drop(guest);
    ensure!(wait_for(|| open(&rig, "a").is_ok()));
    Ok(())
}

#[test]
fn a_process_has_many_adapters_at_once_and_opens_and_closes_them_at_will() -> Result<()> {
    const ADAPTERS: usize = 9;
    let mut rig = Rig::new(1)?;
    let names: Vec<String> = (0..ADAPTERS).map(|i| format!("a{i}")).collect();
    for name in &names {
        add(&mut rig, name)?;
    }
    let all = names
        .iter()
        .map(|name| Side::new(&rig, name))
        .collect::<Result<Vec<_>>>()?;
    let write = |from: &Side, to: &Side| -> Result<()> {
        let (qa, qb) = (from.rc()?, to.rc()?);
        connect(&qa, &qb)?;
        let data = Data::inline(b"across");
        qa.post_send(&[SendWr::write(data, to.region.addr(), to.region.rkey()).signaled()])?;
        ensure!(take(&from.cq)?.status() == CompletionStatus::Success);
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ADAPTERS)
            .map(|i| {
                let (all, rig, names) = (&all, &rig, &names);
                scope.spawn(move || -> Result<()> {
                    for n in 1..4 {
                        // The same adapters are opened once more, and closed again.
                        let (one, two) = (
                            Side::new(rig, &names[i])?,
                            Side::new(rig, &names[(i + n) % ADAPTERS])?,
                        );
                        write(&one, &two)?;
                        write(&one, &all[(i + n) % ADAPTERS])?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic")?;
        }
        anyhow::Ok(())
    })?;
    for i in 0..ADAPTERS {
        write(&all[i], &all[(i + 1) % ADAPTERS])?;
    }
    Ok(())
}

#[test]
fn regions_change_and_go_at_any_time() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let buffer = b.context.allocate(100_000)?;
    let mut region = b.pd.register(&buffer, 1000..2000, Access::REMOTE_ALL)?;
    assert_eq!((region.addr(), region.len()), (buffer.addr() + 1000, 1000));
    let write = |addr: u64, rkey: u32, data: &[u8]| -> Result<CompletionStatus> {
        qa.post_send(&[SendWr::write(Data::inline(data), addr, rkey).signaled()])?;
        Ok(take(&a.cq)?.status())
    };
    assert_eq!(
        write(region.addr() + 5, region.rkey(), b"abc")?,
        CompletionStatus::Success
    );
    assert_eq!(buffer.read_vec(1004, 5), b"\0abc\0");
    // The same bytes under another address, and then elsewhere.
    let again =
        b.pd.register_at(&buffer, .., 0x77_0000_0000, Access::REMOTE_ALL)?;
    assert_eq!(
        write(0x77_0000_0000 + 1005, again.rkey(), b"xyz")?,
        CompletionStatus::Success
    );
    assert_eq!(region.read_vec(5, 3), b"xyz");
    let old = region.rkey();
    region.reregister(Reregister {
        translation: Some((&buffer, 50_000, 100, Some(0x1000))),
        ..Reregister::default()
    })?;
    assert_eq!(region.rkey(), old);
    assert_eq!((region.addr(), region.len()), (0x1000, 100));
    assert_eq!(write(0x1000, region.rkey(), b"moved")?, CompletionStatus::Success);
    assert_eq!(buffer.read_vec(50_000, 5), b"moved");
    // Rights that do not go together: nothing changes.
    let refused = region.reregister(Reregister {
        access: Some(Access::REMOTE_WRITE),
        ..Reregister::default()
    });
    assert_eq!(
        refused.expect_err("refused").status(),
        Some(CommandStatus::Invalid)
    );
    assert_eq!(write(0x1000, region.rkey(), b"still")?, CompletionStatus::Success);
    let zero_based =
        b.pd.register(&buffer, .., Access::REMOTE_ALL | Access::ZERO_BASED)?;
    assert_eq!(zero_based.addr(), 0);
    assert_eq!(write(7, zero_based.rkey(), b"zero")?, CompletionStatus::Success);
    assert_eq!(buffer.read_vec(7, 4), b"zero");
    // A region that goes while a request names it: an error for the request, and for nobody else.
    let local = a.pd.allocate(LEN, Access::LOCAL_WRITE)?;
    let reads: Vec<_> = (0..16)
        .map(|i| {
            SendWr::read(local.slice(..LEN), b.region.addr(), b.region.rkey())
                .id(i)
                .signaled()
        })
        .collect();
    qa.post_send(&reads)?;
    drop(local);
    let statuses: Vec<_> = (0..16)
        .map(|_| Ok(take(&a.cq)?.status()))
        .collect::<Result<_>>()?;
    let ended = statuses.iter().position(|s| *s != CompletionStatus::Success);
    if let Some(first) = ended {
        assert!(
            matches!(
                statuses[first],
                CompletionStatus::LocalProtectionError | CompletionStatus::LocalAccessError
            ),
            "{statuses:?}"
        );
        assert!(
            statuses[first + 1..]
                .iter()
                .all(|s| *s == CompletionStatus::FlushError),
            "{statuses:?}"
        );
    }
    drop((qa, qb, region, again, zero_based, buffer, a, b));
    nothing_left(&rig, "a")?;
    nothing_left(&rig, "b")
}

#[test]
fn objects_may_be_dropped_in_any_order() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let window = b.pd.alloc_mw(MwType::Type2)?;
    qb.post_send(&[window.bind(&b.region, ..100, Access::REMOTE_WRITE).signaled()])?;
    b.done()?;
    let Side {
        context,
        pd,
        cq,
        region,
    } = b;
    drop(context);
    drop(pd);
    drop(cq);
    // Still bound: the device keeps the region, and the library its memory.
    drop(region);
    qa.post_send(&[SendWr::write(Data::inline(b"late"), 0, window.rkey()).signaled()])?;
    take(&a.cq)?;
    drop(window);
    drop(qb);
    nothing_left(&rig, "b")
}

/// Ends the adapter's connection while a program uses it in every way.
fn ends(end: impl FnOnce(&Rig, &Side)) -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let channel = a.context.create_completion_channel()?;
    let cq = a.context.create_cq_with(CqBuilder::new(64).channel(&channel))?;
    let waiting = a.pd.qp::<Rc>(&cq, &cq).build()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    cq.req_notify(false)?;
    std::thread::scope(|scope| -> Result<()> {
        let waiter = scope.spawn(|| channel.get_event().err());
        let poller = scope.spawn(|| {
            let mut wcs = [WorkCompletion::default(); 16];
            loop {
                let _ = qa.post_send(&[
                    SendWr::write(a.region.slice(..), b.region.addr(), b.region.rkey()).signaled(),
                ]);
                if let Err(e) = a.cq.poll(&mut wcs) {
                    return Some(e);
                }
            }
        });
        let asker = scope.spawn(|| {
            loop {
                if let Err(e) = a.context.alloc_pd() {
                    return Some(e);
                }
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        end(&rig, &a);
        for thread in [waiter, poller, asker] {
            let e = thread.join().expect("no panic").context("an error")?;
            ensure!(e.is_gone(), "{e}");
        }
        Ok(())
    })?;
    assert_eq!(
        a.context.wait_async_event(Some(PATIENCE))?,
        Some(AsyncEvent::DeviceFatal)
    );
    let wr = SendWr::write(a.region.slice(..8), b.region.addr(), b.region.rkey());
    assert_eq!(qa.post_send(&[wr]).map_err(|e| e.reason), Err(PostReason::Gone));
    assert!(cq.req_notify(false).is_err_and(|e| e.is_gone()));
    assert!(waiting.to_init(Access::empty()).is_err_and(|e| e.is_gone()));
    // What was in memory is there still.
    a.region.fill(.., 1);
    drop((qa, waiting, cq, channel, a));
    let mut again = Side::new(&rig, "a");
    wait_for(|| {
        if again.is_err() {
            again = Side::new(&rig, "a");
        }
        again.is_ok()
    });
    let a = again?;
    // The peer's queue pair is as one whose peer has died; a new one works.
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    qa.post_send(&[SendWr::write(a.region.slice(..8), b.region.addr(), b.region.rkey()).signaled()])?;
    a.done()?;
    Ok(())
}

/// What a card's driver does when its card is gone: each request that was posted ends once, in its queue.
#[test]
fn requests_that_are_left_when_the_device_ends_are_flushed() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let received = a.context.create_cq(64)?;
    let (qa, qb) = (a.pd.qp::<Rc>(&a.cq, &received).max_inline(200).build()?, b.rc()?);
    connect(&qa, &qb)?;
    // A send without a receive there waits, and so does what follows it.
    let (near, far) = (&a.region, &b.region);
    let long = [7; 200];
    qa.post_recv(&[1, 2, 3].map(|id| RecvWr::new(near.slice(..8)).id(id)))?;
    qa.post_send(&[
        SendWr::send(near.slice(..8)).id(10).signaled(),
        SendWr::write(Data::inline(&long), far.addr(), far.rkey()).id(11),
        SendWr::read(near.slice(..8), far.addr(), far.rkey())
            .id(12)
            .signaled(),
    ])?;
    // A queue pair that has gone before leaves nothing, and a shared queue has no queue pair to end for.
    let (gone, gone_peer) = (a.rc()?, b.rc()?);
    connect(&gone, &gone_peer)?;
    gone.post_send(&[SendWr::send(near.slice(..8)).id(20).signaled()])?;
    drop(gone);
    assert_eq!(take(&a.cq)?.id(), 20);
    let srq = a.pd.srq().build()?;
    let shared = a.pd.qp::<Rc>(&received, &received).srq(&srq).build()?;
    srq.post(&[RecvWr::new(near.slice(..8)).id(30)])?;
    rig.nic.restart_adapter("a").expect("it restarts");
    let ended = |cq: &CompletionQueue, ids: &[u64], receives: bool| -> Result<()> {
        for id in ids {
            let wc = take(cq)?;
            ensure!(
                wc.status() == CompletionStatus::FlushError
                    && (wc.id(), wc.qp(), wc.is_receive()) == (*id, qa.number(), receives),
                "{id}: {wc:?}"
            );
        }
        for _ in 0..2 {
            ensure!(
                cq.poll(&mut [WorkCompletion::default()])
                    .is_err_and(|e| e.is_gone())
            );
        }
        Ok(())
    };
    ended(&a.cq, &[10, 11, 12], false)?;
    ended(&received, &[1, 2, 3], true)?;
    // What is refused is not flushed, too.
    let late = qa.post_recv(&[RecvWr::new(near.slice(..8)).id(4)]);
    assert_eq!(late.map_err(|e| e.reason), Err(PostReason::Gone));
    ended(&received, &[], true)?;
    drop(shared);
    Ok(())
}

/// A thread that posts one by one may look at its queue meanwhile, also when the device ends.
#[test]
fn a_queue_pair_that_is_being_posted_to_is_flushed_later() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let mut sending = qa.sending()?;
    sending.post(&SendWr::send(a.region.slice(..8)).id(1).signaled())?;
    sending.ring()?;
    sending.post(&SendWr::send(a.region.slice(..8)).id(2).signaled())?;
    rig.nic.restart_adapter("a").expect("it restarts");
    assert_eq!(
        a.context.wait_async_event(Some(PATIENCE))?,
        Some(AsyncEvent::DeviceFatal)
    );
    quiet(&a.cq)?;
    assert_eq!(sending.ring(), Err(PostReason::Gone));
    drop(sending);
    let wc = take(&a.cq)?;
    assert_eq!((wc.id(), wc.status()), (1, CompletionStatus::FlushError));
    assert!(
        a.cq.poll(&mut [WorkCompletion::default()])
            .is_err_and(|e| e.is_gone())
    );
    Ok(())
}

#[test]
fn a_restart_of_the_adapter_ends_everything_and_nothing_hangs() -> Result<()> {
    ends(|rig, _| {
        rig.nic.restart_adapter("a").expect("it restarts");
    })
}

#[test]
fn a_reset_ends_everything_and_the_context_goes_on() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let channel = a.context.create_completion_channel()?;
    let cq = a.context.create_cq_with(CqBuilder::new(4).channel(&channel))?;
    for _ in 0..5 {
        let (qa, qb) = (a.context.alloc_pd()?, b.rc()?);
        let region = qa.allocate(4096, Access::REMOTE_ALL)?;
        let own = a.context.create_cq(10)?;
        let qa = qa.qp::<Rc>(&own, &own).build()?;
        connect(&qa, &qb)?;
        let write = SendWr::write(region.slice(..8), b.region.addr(), b.region.rkey()).signaled();
        qa.post_send(&[write])?;
        take(&own)?.ok()?;
        a.context.reset()?;
        assert_eq!(
            qa.post_send(&[write]).map_err(|e| e.reason),
            Err(PostReason::Gone)
        );
        assert!(
            own.poll(&mut [WorkCompletion::default()])
                .is_err_and(|e| e.is_gone())
        );
        assert_eq!(
            a.context.wait_async_event(Some(PATIENCE))?,
            Some(AsyncEvent::DeviceFatal)
        );
    }
    assert!(channel.get_event().is_err_and(|e| e.is_gone()));
    assert!(
        cq.poll(&mut [WorkCompletion::default()])
            .is_err_and(|e| e.is_gone())
    );
    for resource in a.context.resources()? {
        let kept = ["gid", "doorbells", "extents"]
            .iter()
            .any(|n| resource.name.contains(n));
        ensure!(resource.used == 0 || kept, "{resource:?}");
    }
    Ok(())
}

#[test]
fn threads_share_everything() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    const THREADS: usize = 12;
    const EACH: usize = 400;
    let qps = (0..THREADS)
        .map(|_| {
            let (qa, qb) = (a.rc()?, b.rc()?);
            connect(&qa, &qb)?;
            Ok((qa, qb))
        })
        .collect::<Result<Vec<_>>>()?;
    let shared = {
        let (qa, qb) = (a.rc()?, b.rc()?);
        connect(&qa, &qb)?;
        (qa, qb)
    };
    let left: Vec<_> = (0..THREADS)
        .map(|_| std::sync::atomic::AtomicUsize::new(0))
        .collect();
    let of: HashMap<u32, usize> = qps
        .iter()
        .enumerate()
        .map(|(i, (qa, _))| (qa.number(), i))
        .collect();
    let common = std::sync::atomic::AtomicUsize::new(0);
    use std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for (i, (qa, _)) in qps.iter().enumerate() {
            let (a, b, left, of, common, shared) = (&a, &b, &left, &of, &common, &shared);
            threads.push(scope.spawn(move || -> Result<()> {
                let mut end = Instant::now() + PATIENCE;
                let (mut own, mut others, mut seen) = (0, 0, 0);
                let mut wcs = [WorkCompletion::default(); 16];
                loop {
                    let at = i * 4096 + own * 8;
                    let write = |at: usize| {
                        SendWr::write(
                            Data::inline(&[7; 8][..]),
                            b.region.addr() + at as u64,
                            b.region.rkey(),
                        )
                        .signaled()
                    };
                    if own < EACH {
                        own += qa.post_send(&[write(at)]).or_else(|e| match e.reason {
                            PostReason::Full => Ok(e.posted),
                            _ => Err(e),
                        })?;
                    }
                    if others < EACH {
                        others += shared
                            .0
                            .post_send(&[write(LEN - 8)])
                            .or_else(|e| match e.reason {
                                PostReason::Full => Ok(e.posted),
                                _ => Err(e),
                            })?;
                    }
                    // Whoever polls takes what is there, of all threads.
                    let count = a.cq.poll(&mut wcs)?;
                    for wc in &wcs[..count] {
                        wc.ok()?;
                        match of.get(&wc.qp()) {
                            Some(i) => left[*i].fetch_add(1, SeqCst),
                            None => common.fetch_add(1, SeqCst),
                        };
                    }
                    let done: usize = left.iter().chain([common]).map(|n| n.load(SeqCst)).sum();
                    if own == EACH && others == EACH && done == 2 * THREADS * EACH {
                        return Ok(());
                    }
                    if done != seen {
                        (seen, end) = (done, Instant::now() + PATIENCE);
                    }
                    ensure!(Instant::now() < end, "stuck");
                    // Objects come and go meanwhile.
                    if own % 100 == 50 {
                        a.pd.allocate(5000, Access::LOCAL_WRITE)?;
                        a.context.create_cq(10)?;
                    }
                    std::thread::yield_now();
                }
            }));
        }
        for thread in threads {
            thread.join().expect("no panic")?;
        }
        Ok(())
    })?;
    for i in 0..THREADS {
        assert!(b.region.read_vec(i * 4096, EACH * 8).iter().all(|b| *b == 7));
    }
    Ok(())
}

#[test]
fn memory_is_asked_for_in_few_pieces_and_used_again() -> Result<()> {
    let mut rig = Rig::new(1)?;
    add(&mut rig, "a")?;
    let context = open(&rig, "a")?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16)?;
    for round in 0..3 {
        let mut kept = Vec::new();
        for i in 0..600 {
            let region = pd.allocate(1 + i * 997, Access::LOCAL_WRITE)?;
            assert!(
                region.load_u8(0) == 0 && region.load_u8(region.len() - 1) == 0,
                "{round} {i}"
            );
            region.fill(.., 0xff);
            let qp = pd.qp::<Rc>(&cq, &cq).build()?;
            kept.push((region, qp));
        }
    }
    let large = pd.allocate(100 << 20, Access::LOCAL_WRITE)?;
    large.store(large.len() - 8, 5);
    assert_eq!(large.load(large.len() - 8), 5);
    Ok(())
}
