//! What arrives, and what its completions and events say.

use super::*;

#[test]
fn a_device_says_what_it_is() -> Result<()> {
    let mut rig = Rig::new(1)?;
    add(&mut rig, "a")?;
    let context = open(&rig, "a")?;
    assert_eq!(context.name(), rdma_socket(&rig, "a").display().to_string());
    let device = context.query_device();
    assert!(device.max_qp > 0 && device.max_command_len >= 65536 && !device.firmware().is_empty());
    let port = context.query_port()?;
    assert_eq!(port.mac().0, [2, 0, 0, 0, 0, 1]);
    let gids = context.gids()?;
    assert_eq!((gids[0].kind, gids[1].kind), (GidKind::RoceV1, GidKind::RoceV2));
    assert_eq!(gids[1].gid.to_string(), "fe80:0000:0000:0000:0000:00ff:fe00:0001");
    assert_eq!(gids[1].mac, port.mac());
    assert!(context.counters()?.len() > 10);
    let names: Vec<String> = context.resources()?.into_iter().map(|r| r.name).collect();
    assert!(
        ["pd", "cq", "qp", "mr"]
            .iter()
            .all(|n| names.iter().any(|m| m == n)),
        "{names:?}"
    );
    let before = context.clock()?;
    assert!(context.clock()? >= before && !before.is_zero());
    Ok(())
}

#[test]
fn writes_reads_sends_and_atomics_arrive() -> Result<()> {
    let Pair { rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let (to, rkey) = (b.region.addr(), b.region.rkey());
    for (i, len) in [0, 1, 7, 8, 1023, 1024, 4097, 65536, 300_000]
        .into_iter()
        .enumerate()
    {
        let data = pattern(i as u64, len);
        a.region.write_at(3, &data);
        b.region.fill(.., 0xee);
        qa.post_send(&[SendWr::write(a.region.slice(3..3 + len), to + 5, rkey)
            .id(7)
            .signaled()])?;
        let wc = a.done()?;
        assert_eq!(
            (wc.id(), wc.kind(), wc.qp()),
            (7, Some(CompletionKind::Write), qa.number())
        );
        assert_eq!(b.region.read_vec(5, len), data, "WRITE of {len}");
        assert_eq!((b.region.load_u8(4), b.region.load_u8(5 + len)), (0xee, 0xee));
        a.region.fill(.., 0);
        qa.post_send(&[SendWr::read(a.region.slice(..len), to + 5, rkey).signaled()])?;
        assert_eq!(a.done()?.kind(), Some(CompletionKind::Read));
        assert_eq!(a.region.read_vec(0, len), data, "READ of {len}");
        qb.post_recv(&[RecvWr::new(b.region.slice(LEN / 2..)).id(9)])?;
        qa.post_send(&[SendWr::send(a.region.slice(..len)).imm(0xabcd).signaled()])?;
        a.done()?;
        let wc = b.done()?;
        assert_eq!((wc.id(), wc.imm(), wc.byte_len()), (9, Some(0xabcd), len as u32));
        assert_eq!(b.region.read_vec(LEN / 2, len), data, "SEND of {len}");
    }
    // Several elements, and inline bytes that are the stack's.
    a.region.write_at(0, b"one two three");
    let parts = [a.region.slice(8..13), a.region.slice(0..3), a.region.slice(4..7)];
    qb.post_recv(&[
        RecvWr::new(b.region.slice(..100)),
        RecvWr::new(b.region.slice(100..200)),
    ])?;
    qa.post_send(&[
        SendWr::send(&parts).signaled(),
        SendWr::send(Data::inline(&pattern(1, 99))).signaled(),
    ])?;
    assert_eq!([b.done()?.byte_len(), b.done()?.byte_len()], [11, 99]);
    assert_eq!(b.region.read_vec(0, 11), b"threeonetwo");
    assert_eq!(b.region.read_vec(100, 99), pattern(1, 99));
    a.done()?;
    a.done()?;
    // A WRITE with immediate data takes a receive.
    qb.post_recv(&[RecvWr::new(Data::NONE).id(1)])?;
    qa.post_send(&[SendWr::write(Data::inline(b"wr"), to, rkey).imm(5).signaled()])?;
    a.done()?;
    let wc = b.done()?;
    assert_eq!(
        (wc.kind(), wc.imm(), wc.byte_len()),
        (Some(CompletionKind::RecvWriteImm), Some(5), 2)
    );
    // Atomics.
    b.region.store(64, 40);
    qa.post_send(&[
        SendWr::fetch_add(a.region.slice(0..8), to + 64, rkey, 2),
        SendWr::compare_swap(a.region.slice(8..16), to + 64, rkey, 42, 1000),
        SendWr::compare_swap(a.region.slice(16..24), to + 64, rkey, 42, 2000).signaled(),
    ])?;
    a.done()?;
    assert_eq!([0, 8, 16].map(|i| a.region.load(i)), [40, 42, 1000]);
    assert_eq!(b.region.load(64), 1000);
    quiet(&a.cq)?;
    quiet(&b.cq)?;
    drop((qa, qb, a, b));
    nothing_left(&rig, "a")?;
    nothing_left(&rig, "b")
}

#[test]
fn rings_go_round_many_times() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let small = |side: &Side| {
        side.pd
            .qp::<Rc>(&side.cq, &side.cq)
            .max_send_wr(8)
            .max_recv_wr(8)
            .max_send_sge(3)
            .build()
    };
    let (qa, qb) = (small(&a)?, small(&b)?);
    connect(&qa, &qb)?;
    assert_eq!(qa.send_blocks(), 16);
    // Posted as long as there is room; one of four is signaled. Each has one to two blocks.
    let total = 3000u64;
    let (mut posted, mut received, mut outstanding, mut ready) = (0, 0u64, 0u32, 0u64);
    let mut full = 0;
    let mut end = Instant::now() + PATIENCE;
    let mut wcs = [WorkCompletion::default(); 7];
    while received < total {
        ensure!(
            Instant::now() < end,
            "stuck at {posted} posted, {received} received"
        );
        while ready < total && ready - received < 8 {
            let at = (ready % 8) as usize * 64;
            match qb.post_recv(&[RecvWr::new(b.region.slice(at..at + 64)).id(ready)]) {
                Ok(_) => ready += 1,
                Err(e) if e.reason == PostReason::Full => break,
                Err(e) => bail!(e),
            }
        }
        while posted < ready {
            let at = (posted % 64) as usize * 64;
            a.region.write_at(at, &posted.to_le_bytes());
            let parts = [
                a.region.slice(at..at + 4),
                a.region.slice(at + 4..at + 8),
                a.region.slice(at + 4..at + 8),
            ];
            let parts = if posted % 3 == 0 { &parts[..] } else { &parts[..2] };
            let wr = SendWr::send(parts).id(posted);
            let wr = if posted % 4 == 3 { wr.signaled() } else { wr };
            match qa.post_send(&[wr]) {
                Ok(_) => {
                    outstanding += u32::from(posted % 4 == 3);
                    posted += 1;
                }
                Err(e) if e.reason == PostReason::Full => {
                    full += 1;
                    break;
                }
                Err(e) => bail!(e),
            }
        }
        let count = a.cq.poll(&mut wcs)?;
        for wc in &wcs[..count] {
            wc.ok()?;
            assert_eq!(wc.id() % 4, 3);
            outstanding -= 1;
        }
        let count = b.cq.poll(&mut wcs)?;
        for wc in &wcs[..count] {
            wc.ok()?;
            assert_eq!(wc.id(), received);
            end = Instant::now() + PATIENCE;
            assert_eq!(b.region.load((received % 8) as usize * 64), received);
            received += 1;
        }
    }
    assert!(wait_for(|| {
        let count = a.cq.poll(&mut wcs).unwrap_or(0);
        outstanding -= count as u32;
        outstanding == 0
    }));
    println!("{full} times the queue was full");
    Ok(())
}

#[test]
fn other_services_do_what_they_promise() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    // UC.
    let uc = |side: &Side| side.pd.qp::<Uc>(&side.cq, &side.cq).build();
    let (ua, ub) = (uc(&a)?, uc(&b)?);
    connect(&ua, &ub)?;
    let data = pattern(5, 10_000);
    a.region.write_at(0, &data);
    ub.post_recv(&[RecvWr::new(b.region.slice(..20_000))])?;
    ua.post_send(&[
        SendWr::write(
            a.region.slice(..10_000),
            b.region.addr() + 50_000,
            b.region.rkey(),
        ),
        SendWr::send(a.region.slice(..10_000)).signaled(),
    ])?;
    a.done()?;
    assert_eq!(b.done()?.byte_len(), 10_000);
    assert_eq!(b.region.read_vec(0, 10_000), data);
    assert_eq!(b.region.read_vec(50_000, 10_000), data);
    let refused = ua.post_send(&[SendWr::read(a.region.slice(..1), 0, 0)]);
    assert_eq!(
        refused.map_err(|e| (e.posted, e.reason)),
        Err((0, PostReason::Operation))
    );
    // UD.
    let qkey = 0x1234_5678;
    let ud = |side: &Side| -> Result<QueuePair<Ud>> {
        let qp = side.pd.qp::<Ud>(&side.cq, &side.cq).max_inline(64).build()?;
        qp.activate(qkey)?;
        Ok(qp)
    };
    let (da, db) = (ud(&a)?, ud(&b)?);
    let end = db.endpoint(1)?;
    let address = AddressVector {
        dgid: end.gid,
        dmac: end.mac,
        sgid_index: 1,
        ..AddressVector::default()
    };
    let ah = a.pd.create_ah(&address)?;
    assert_eq!(ah.query()?, address);
    b.region.fill(.., 0xee);
    db.post_recv(&[RecvWr::new(b.region.slice(..1000)).id(3)])?;
    da.post_send(&[
        SendWr::send(Data::inline(b"nobody has this key"))
            .to(&ah, end.qpn, qkey + 1)
            .signaled(),
        SendWr::send(Data::inline(b"datagram"))
            .to(&ah, end.qpn, qkey)
            .imm(8)
            .signaled(),
    ])?;
    a.done()?;
    a.done()?;
    let wc = b.done()?;
    assert_eq!(
        (wc.id(), wc.byte_len(), wc.imm(), wc.has_grh()),
        (3, 48, Some(8), true)
    );
    assert_eq!(
        (wc.source_qp(), wc.source_mac()),
        (da.number(), da.endpoint(1)?.mac.expect("known"))
    );
    assert_eq!(b.region.read_vec(40, 9), b"datagram\xee");
    let refused = da.post_send(&[SendWr::send(Data::NONE)]);
    assert_eq!(refused.map_err(|e| e.reason), Err(PostReason::Malformed));
    // XRC.
    let domain = b.context.open_xrcd()?;
    let srq = b.pd.srq().max_wr(10).xrc(&domain, &b.cq).build()?;
    let initiator = a.pd.xrc_initiator(&a.cq).max_inline(10).build()?;
    let target = domain.xrc_target().build()?;
    connect(&initiator, &target)?;
    srq.post(&[RecvWr::new(b.region.slice(..100)).id(77)])?;
    initiator.post_send(&[SendWr::send(Data::inline(b"by xrc"))
        .to_srq(srq.number())
        .signaled()])?;
    a.done()?;
    let wc = b.done()?;
    assert_eq!((wc.id(), wc.qp(), wc.byte_len()), (77, target.number(), 6));
    Ok(())
}

#[test]
fn an_initiator_serves_targets_in_turn() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    const KEY: u64 = 0x0123_4567_89ab_cdef;
    let options = ConnectOptions::default();
    let srq = b.pd.srq().max_wr(64).max_sge(2).build()?;
    let targets = [b.pd.dc_target(&b.cq, &srq, KEY), b.pd.dc_target(&b.cq, &srq, 7)];
    let targets: Vec<_> = targets.into_iter().map(|t| t.build()).collect::<Result<_, _>>()?;
    let initiator = a.pd.dc_initiator(&a.cq).max_send_sge(4).max_inline(200).build()?;
    targets.iter().try_for_each(|target| target.to_ready(&options))?;
    initiator.to_ready(&options)?;
    assert_eq!(
        (initiator.state(), targets[0].state()),
        (QpState::Rts, QpState::Rtr)
    );
    assert_eq!(targets[0].query()?.created.access_key, KEY);
    let handle = a.pd.create_ah(&AddressVector {
        dgid: b.context.gids()?[1].gid,
        sgid_index: 1,
        ..AddressVector::default()
    })?;
    let way = |i: usize| (targets[i].number(), [KEY, 7][i]);
    let (addr, rkey) = (b.region.addr(), b.region.rkey());
    for round in 0..20u64 {
        let (number, key) = way(round as usize % 2);
        let (long, short) = (pattern(round, 9000), pattern(round + 100, 150));
        a.region.write_at(0, &long);
        b.region.fill(.., 0xee);
        b.region.write_at(20_000, &round.to_ne_bytes());
        srq.post(&[RecvWr::new(b.region.slice(30_000..40_000)).id(round)])?;
        let pieces = [
            a.region.slice(..10),
            a.region.slice(10..20),
            a.region.slice(20..9000),
        ];
        let into = a.region.slice(50_000..59_000);
        let wrs = [
            SendWr::write(&pieces, addr + 5, rkey),
            SendWr::write(Data::inline(&short), addr + 10_000, rkey),
            SendWr::read(into, addr + 5, rkey),
            SendWr::fetch_add(a.region.slice(60_000..60_008), addr + 20_000, rkey, 5),
            SendWr::compare_swap(a.region.slice(60_008..60_016), addr + 20_000, rkey, round + 5, 99),
            SendWr::send(a.region.slice(..9000)).imm(round as u32).signaled(),
        ];
        initiator.post_send(&wrs.map(|wr| wr.to_target(&handle, number, key)))?;
        a.done()?;
        let wc = b.done()?;
        assert_eq!((wc.id(), wc.qp(), wc.byte_len()), (round, number, 9000));
        assert_eq!(wc.imm(), Some(round as u32));
        assert_eq!(b.region.read_vec(5, 9000), long);
        assert_eq!(b.region.read_vec(10_000, 150), short);
        assert_eq!(b.region.read_vec(30_000, 9000), long);
        assert_eq!(a.region.read_vec(50_000, 9000), long);
        assert_eq!(a.region.read_vec(60_000, 8), round.to_ne_bytes());
        assert_eq!(a.region.read_vec(60_008, 8), (round + 5).to_ne_bytes());
        assert_eq!(b.region.read_vec(20_000, 8), 99u64.to_ne_bytes());
    }
    let counted = |name: &str| -> Result<u64> {
        let all = b.context.counters()?;
        Ok(all
            .into_iter()
            .find(|c| c.name == name)
            .context("a counter")?
            .value)
    };
    assert!(counted("rx_dct_connect")? >= 20);
    // A request has a target, and only requests of an initiator have one.
    let refused = initiator.post_send(&[SendWr::send(Data::NONE)]);
    assert_eq!(refused.map_err(|e| e.reason), Err(PostReason::Malformed));
    let plain = a.rc()?;
    connect(&plain, &b.rc()?)?;
    let refused = plain.post_send(&[SendWr::send(Data::NONE).to_target(&handle, 5, 5)]);
    assert_eq!(refused.map_err(|e| e.reason), Err(PostReason::Malformed));
    // Whoever does not know the key is refused, and nobody else is.
    initiator.post_send(&[SendWr::send(Data::NONE).to_target(&handle, way(0).0, KEY + 1)])?;
    assert_eq!(take(&a.cq)?.status(), CompletionStatus::RemoteAccessError);
    assert_eq!(counted("resp_remote_access_errors")?, 1);
    initiator.to_reset()?;
    initiator.to_ready(&options)?;
    srq.post(&[RecvWr::new(b.region.slice(..10)).id(50)])?;
    initiator.post_send(&[SendWr::send(Data::inline(b"again"))
        .to_target(&handle, way(0).0, KEY)
        .signaled()])?;
    a.done()?;
    assert_eq!(b.done()?.id(), 50);
    Ok(())
}

#[test]
fn shared_receive_queues_serve_many() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let srq = b.pd.srq().max_wr(16).max_sge(2).build()?;
    assert_eq!(srq.max_wr(), 16);
    let senders: Vec<_> = (0..4).map(|_| a.rc()).collect::<Result<_>>()?;
    let receivers: Vec<_> = senders
        .iter()
        .map(|_| b.pd.qp::<Rc>(&b.cq, &b.cq).srq(&srq).build())
        .collect::<Result<_, _>>()?;
    for (s, r) in senders.iter().zip(&receivers) {
        connect(s, r)?;
        let refused = r.post_recv(&[RecvWr::new(Data::NONE)]);
        assert_eq!(refused.map_err(|e| e.reason), Err(PostReason::NoQueue));
    }
    let receive = |id: u64| RecvWr::new(b.region.slice(id as usize * 64..(id as usize + 1) * 64)).id(id);
    let all: Vec<_> = (0..20).map(receive).collect();
    let refused = srq.post(&all);
    assert_eq!(
        refused.map_err(|e| (e.posted, e.reason)),
        Err((16, PostReason::Full))
    );
    srq.set_limit(14)?;
    let state = srq.query()?;
    assert_eq!((state.waiting, state.limit), (16, 14));
    let mut counts = HashMap::new();
    for round in 0..100u64 {
        for (i, s) in senders.iter().enumerate() {
            let number = round * 4 + i as u64;
            s.post_send(&[SendWr::send(Data::inline(&number.to_le_bytes()))
                .id(number)
                .signaled()])?;
        }
        for _ in 0..4 {
            a.done()?;
            let wc = b.done()?;
            assert_eq!(b.region.load(wc.id() as usize * 64) / 4, round);
            *counts.entry(wc.qp()).or_insert(0) += 1;
            assert_eq!(srq.post(&[receive(wc.id())])?, 1);
        }
    }
    assert!(receivers.iter().all(|r| counts[&r.number()] == 100));
    let event = b.context.wait_async_event(Some(PATIENCE))?;
    assert_eq!(event, Some(AsyncEvent::SrqLimitReached { srq: srq.number() }));
    Ok(())
}

#[test]
fn channels_tell_of_completions() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let channel = b.context.create_completion_channel()?;
    let cq = b
        .context
        .create_cq_with(CqBuilder::new(64).channel(&channel).context(42))?;
    let qa = a.rc()?;
    let qb = b.pd.qp::<Rc>(&cq, &cq).build()?;
    connect(&qa, &qb)?;
    let receives = vec![RecvWr::new(b.region.slice(..64)); 64];
    qb.post_recv(&receives)?;
    let send = |wr: SendWr<'_>| -> Result<()> {
        qa.post_send(&[wr.signaled()])?;
        a.done()?;
        Ok(())
    };
    let plain = || SendWr::send(Data::NONE);
    // Nobody asked.
    send(plain())?;
    assert!(channel.try_event()?.is_none());
    take(&cq)?;
    // Asked before, and asked when it is there already.
    for before in [true, false] {
        if before {
            cq.req_notify(false)?;
            assert!(channel.wait_event(Some(Duration::from_millis(5)))?.is_none());
        }
        send(plain())?;
        if !before {
            cq.req_notify(false)?;
        }
        let heard = channel.get_event()?;
        assert_eq!((heard.number(), heard.context()), (cq.number(), 42));
        take(&heard)?.ok()?;
        // Once for each time it was asked.
        send(plain())?;
        take(&cq)?;
        assert!(channel.try_event()?.is_none());
    }
    // Only solicited ones.
    cq.req_notify(true)?;
    send(plain())?;
    assert!(channel.wait_event(Some(Duration::from_millis(5)))?.is_none());
    send(plain().solicited())?;
    channel.get_event()?;
    assert_eq!(take(&cq)?.kind(), Some(CompletionKind::Recv));
    take(&cq)?;
    // A waiting thread, many times: no completion is lost.
    let total = 1000;
    std::thread::scope(|scope| -> Result<()> {
        let waiter = scope.spawn(|| -> Result<()> {
            let mut wcs = [WorkCompletion::default(); 8];
            let mut seen = 0;
            while seen < total {
                cq.req_notify(false)?;
                let heard = channel.wait_event(Some(PATIENCE))?.context("no event")?;
                loop {
                    let count = heard.poll(&mut wcs)?;
                    if count == 0 {
                        break;
                    }
                    seen += count;
                    qb.post_recv(&receives[..count])?;
                }
            }
            Ok(())
        });
        for _ in 0..total {
            send(plain())?;
        }
        waiter.join().expect("no panic")
    })
}

#[test]
fn windows_open_and_close() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let write = |key: u32| -> Result<CompletionStatus> {
        qa.post_send(&[SendWr::write(Data::inline(b"through"), b.region.addr() + 100, key).signaled()])?;
        Ok(take(&a.cq)?.status())
    };
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let first = b.pd.alloc_mw(MwType::Type1)?;
    for _ in 0..3 {
        let old = first.rkey();
        let bind = first.bind(&b.region, 100..200, all);
        assert_ne!(first.rkey(), old);
        qb.post_send(&[bind.signaled()])?;
        assert_eq!(b.done()?.kind(), Some(CompletionKind::BindMw));
        b.region.fill(100..110, 0);
        assert_eq!(write(first.rkey())?, CompletionStatus::Success);
        assert_eq!(b.region.read_vec(100, 8), b"through\0");
    }
    let second = b.pd.alloc_mw(MwType::Type2)?;
    for _ in 0..3 {
        qb.post_send(&[second.bind(&b.region, 100..200, all).signaled()])?;
        b.done()?;
        assert_eq!(write(second.rkey())?, CompletionStatus::Success);
        qb.post_send(&[SendWr::local_invalidate(second.rkey()).signaled()])?;
        b.done()?;
    }
    // Closed by the peer.
    qb.post_send(&[second.bind(&b.region, 100..200, all).signaled()])?;
    b.done()?;
    qb.post_recv(&[RecvWr::new(Data::NONE)])?;
    qa.post_send(&[SendWr::send(Data::NONE).invalidate(second.rkey()).signaled()])?;
    a.done()?;
    assert_eq!(b.done()?.invalidated(), Some(second.rkey()));
    assert_eq!(write(second.rkey())?, CompletionStatus::RemoteAccessError);
    assert_eq!(qa.query()?.state(), QpState::Err);
    Ok(())
}

#[test]
fn device_memory_is_reached_by_copies_and_keys() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    let dm = b.context.alloc_dm(100_000, 12)?;
    let mut bytes = vec![1; 100_000];
    dm.copy_from(0, &mut bytes)?;
    assert!(bytes.iter().all(|b| *b == 0));
    let data = pattern(3, 100_000);
    dm.copy_to(0, &data)?;
    dm.copy_from(0, &mut bytes)?;
    assert_eq!(bytes, data);
    let region = b.pd.register_dm(&dm, 4, 99_000, Access::REMOTE_ALL)?;
    assert_eq!((region.addr(), region.length()), (0, 99_000));
    qa.post_send(&[SendWr::read(a.region.slice(..1000), 50_000, region.rkey()).signaled()])?;
    a.done()?;
    assert_eq!(a.region.read_vec(0, 1000), data[50_004..51_004]);
    // It is mapped: a peer reads what the program stores, and the program loads what a peer writes.
    dm.mapped().store(8, 0x0123_4567_89ab_cdef);
    qa.post_send(&[SendWr::read(a.region.slice(..8), 4, region.rkey()).signaled()])?;
    a.done()?;
    assert_eq!(a.region.load(0), 0x0123_4567_89ab_cdef);
    a.region.store(0, 7);
    qa.post_send(&[SendWr::write(a.region.slice(..8), 12, region.rkey()).signaled()])?;
    a.done()?;
    assert_eq!(dm.mapped().load(16), 7);
    // The region holds the memory.
    drop(dm);
    qa.post_send(&[SendWr::write(a.region.slice(..8), 0, region.rkey()).signaled()])?;
    a.done()?;
    // Any length, and what an adapter has is counted.
    let odd = b.context.alloc_dm(61, 0)?;
    odd.copy_to(56, b"abcde")?;
    let mut end = [0; 3];
    odd.copy_from(58, &mut end)?;
    assert_eq!(&end, b"cde");
    let tail = b.pd.register_dm(&odd, 57, 3, Access::REMOTE_ALL)?;
    qa.post_send(&[SendWr::read(a.region.slice(..3), 0, tail.rkey()).signaled()])?;
    a.done()?;
    assert_eq!(a.region.read_vec(0, 3), b"bcd");
    for (offset, len) in [(1, 4), (60, 2), (64, 0), (u64::MAX - 3, 8)] {
        assert!(
            odd.copy_to(offset, &vec![0; len]).is_err(),
            "{len} bytes at {offset}"
        );
    }
    assert!(b.pd.register_dm(&odd, 60, 2, Access::REMOTE_ALL).is_err());
    let most = b.context.alloc_dm(128 << 10, 0);
    assert_eq!(
        most.expect_err("too much").status(),
        Some(CommandStatus::LimitReached)
    );
    Ok(())
}

#[test]
fn errors_flush_and_a_reset_begins_anew() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    let early = qa.post_send(&[SendWr::send(Data::NONE)]);
    assert_eq!(
        early.map_err(|e| e.reason),
        Err(PostReason::State(QpState::Reset))
    );
    let early = qa.post_recv(&[RecvWr::new(Data::NONE)]);
    assert_eq!(
        early.map_err(|e| e.reason),
        Err(PostReason::State(QpState::Reset))
    );
    for round in 0..5 {
        connect(&qa, &qb)?;
        // Completions of this time are still there when the next begins.
        let used = 10 + round * 7;
        for _ in 0..used {
            qb.post_recv(&[RecvWr::new(b.region.slice(..8)).id(1)])?;
            qa.post_send(&[SendWr::send(Data::inline(b"12345678")).signaled()])?;
        }
        for _ in 0..used {
            a.done()?;
        }
        qa.post_recv(&[RecvWr::new(Data::NONE).id(5)])?;
        let (to, wrong) = (b.region.addr(), b.region.rkey() ^ 0x5500_0000);
        qa.post_send(&[
            SendWr::write(Data::inline(b"x"), to, wrong).id(2),
            SendWr::write(Data::inline(b"x"), to, wrong).id(3),
        ])?;
        let wc = take(&a.cq)?;
        assert_eq!((wc.id(), wc.status()), (2, CompletionStatus::RemoteAccessError));
        assert!(wc.ok().is_err());
        let (one, other) = (take(&a.cq)?, take(&a.cq)?);
        let flushed = if one.is_receive() {
            [other, one]
        } else {
            [one, other]
        };
        assert_eq!(flushed.map(|w| w.id()), [3, 5]);
        assert!(flushed.iter().all(|w| w.status() == CompletionStatus::FlushError));
        assert_eq!(qa.query()?.state(), QpState::Err);
        qa.to_reset()?;
        qb.to_reset()?;
        assert_eq!(qa.state(), QpState::Reset);
        if round % 2 == 1 {
            let mut wcs = vec![WorkCompletion::default(); 1024];
            while b.cq.poll(&mut wcs)? > 0 {}
        }
    }
    let event = b.context.wait_async_event(Some(PATIENCE))?;
    ensure!(
        matches!(event, Some(AsyncEvent::QpAccessError { qp }) if qp == qb.number()),
        "{event:?}"
    );
    Ok(())
}

#[test]
fn queues_grow_while_they_are_used() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let cq = a.context.create_cq(4)?;
    let qa = a.pd.qp::<Rc>(&cq, &cq).max_send_wr(2000).build()?;
    let qb = b.rc()?;
    connect(&qa, &qb)?;
    let wr = |id: usize| {
        SendWr::write(a.region.slice(..8), b.region.addr(), b.region.rkey())
            .id(id as u64)
            .signaled()
    };
    let mut next = 0;
    let mut seen = 0;
    let mut wcs = [WorkCompletion::default(); 3];
    for entries in [8, 64, 16, 1024] {
        let before = cq.entries() as usize;
        for _ in 0..before {
            qa.post_send(&[wr(next)])?;
            next += 1;
        }
        // Some are taken, the rest lies in the old ring, or comes into the new one: no more than that holds.
        let left = (before / 2).min(entries as usize);
        let end = Instant::now() + PATIENCE;
        while seen < next - left {
            ensure!(Instant::now() < end, "no completion");
            if cq.poll(&mut wcs[..1])? == 1 {
                assert_eq!(wcs[0].id(), seen as u64);
                seen += 1;
            }
        }
        cq.resize(entries)?;
        assert_eq!(cq.entries(), entries);
        while seen < next {
            ensure!(Instant::now() < end, "no completion");
            let count = cq.poll(&mut wcs)?;
            for wc in &wcs[..count] {
                wc.ok()?;
                assert_eq!(wc.id(), seen as u64);
                seen += 1;
            }
        }
    }
    Ok(())
}

/// A receive that was posted before the peer posted its send, as programs see it, is there when the packet
/// comes, although the two doorbells are in rings of different functions.
fn receives_are_there_on(cores: usize) -> Result<()> {
    let Pair { rig: _rig, a, b } = pair_on(cores)?;
    let uc = |side: &Side| side.pd.qp::<Uc>(&side.cq, &side.cq).build();
    let (ua, ub) = (uc(&a)?, uc(&b)?);
    connect(&ua, &ub)?;
    for (from, to, at, there) in [(&ua, &ub, &a, &b), (&ub, &ua, &b, &a)] {
        for round in 0..200 {
            if round % 20 == 0 {
                // Let the data core sleep.
                std::thread::sleep(Duration::from_millis(2));
            }
            to.post_recv(&[RecvWr::new(there.region.slice(..64))])?;
            from.post_send(&[SendWr::send(at.region.slice(..64)).signaled()])?;
            at.done()?;
            there.done()?;
        }
    }
    Ok(())
}

#[test]
fn receives_are_there_when_the_peer_sends() -> Result<()> {
    receives_are_there_on(1)
}

#[test]
fn receives_are_there_when_a_peer_of_another_core_sends() -> Result<()> {
    receives_are_there_on(2)
}

#[test]
fn adapters_of_different_cores_talk() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair_on(2)?;
    let (qa, qb) = (a.rc()?, b.rc()?);
    connect(&qa, &qb)?;
    for round in 0..50u64 {
        let len = 1 + (round as usize * 7919) % (LEN / 2);
        let data = pattern(round, len);
        a.region.write_at(0, &data);
        qb.post_recv(&[RecvWr::new(Data::NONE)])?;
        qa.post_send(&[
            SendWr::write(a.region.slice(..len), b.region.addr(), b.region.rkey())
                .imm(1)
                .signaled(),
        ])?;
        assert_eq!(b.done()?.byte_len(), len as u32);
        a.done()?;
        assert!(b.region.read_vec(0, len) == data, "WRITE of {len}");
        b.region.fill(..len, 0);
        qb.post_send(&[SendWr::read(b.region.slice(..len), a.region.addr(), a.region.rkey()).signaled()])?;
        b.done()?;
        assert!(b.region.read_vec(0, len) == data, "READ of {len}");
    }
    Ok(())
}

#[test]
fn queue_pairs_stop_drain_and_go_on() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let receives = a.context.create_cq(64)?;
    let qa = a.pd.qp::<Rc>(&a.cq, &receives).signal_all().build()?;
    let qb = b.rc()?;
    connect(&qa, &qb)?;
    let write = SendWr::write(a.region.slice(..LEN / 2), b.region.addr(), b.region.rkey());
    for round in 0..50 {
        qa.post_send(&[write.id(1), write.id(2)])?;
        qa.to_sqd(true)?;
        let event = a.context.wait_async_event(Some(PATIENCE))?;
        ensure!(
            event == Some(AsyncEvent::SendQueueDrained { qp: qa.number() }),
            "{event:?}"
        );
        // What had begun has ended; the rest waits, with what is posted now.
        let mut wcs = [WorkCompletion::default(); 3];
        let begun = a.cq.poll(&mut wcs)?;
        ensure!(begun < 3, "{begun} of 2");
        qa.post_send(&[write.id(3)])?;
        a.context.clock()?;
        quiet(&a.cq)?;
        assert_eq!(qa.query()?.state(), QpState::Sqd);
        qa.resume()?;
        for wc in &mut wcs[begun..] {
            *wc = a.done()?;
        }
        assert_eq!(wcs.map(|w| w.id()), [1, 2, 3], "{round}");
        // Receives have a queue of their own, which goes round, too.
        for i in 0..10 {
            qa.post_recv(&[RecvWr::new(a.region.slice(..8)).id(i)])?;
            qb.post_send(&[SendWr::send(b.region.slice(..8)).signaled()])?;
            b.done()?;
            assert_eq!(take(&receives)?.ok()?.id(), i);
        }
        quiet(&a.cq)?;
    }
    Ok(())
}

#[test]
fn unreliable_senders_recover_from_their_errors() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let uc = |side: &Side| side.pd.qp::<Uc>(&side.cq, &side.cq).build();
    let (ua, ub) = (uc(&a)?, uc(&b)?);
    connect(&ua, &ub)?;
    let good = SendWr::write(a.region.slice(..8), b.region.addr(), b.region.rkey()).signaled();
    let mut wrong = a.region.slice(..8);
    wrong.lkey ^= 0x0100_0000;
    let bad = SendWr::write(wrong, b.region.addr(), b.region.rkey());
    for _ in 0..30 {
        ua.post_send(&[good.id(1), bad.id(2), good.id(3)])?;
        let ends: Vec<_> = (0..3).map(|_| take(&a.cq)).collect::<Result<_>>()?;
        let ends: Vec<_> = ends.iter().map(|w| (w.id(), w.status())).collect();
        assert_eq!(
            ends,
            [
                (1, CompletionStatus::Success),
                (2, CompletionStatus::LocalProtectionError),
                (3, CompletionStatus::FlushError)
            ]
        );
        assert_eq!(ua.query()?.state(), QpState::Sqe);
        ua.resume()?;
        ua.post_send(&[good])?;
        a.done()?;
    }
    Ok(())
}

/// More members than get their copies at once, who have their receives in rings that the device has not read.
#[test]
fn every_member_of_a_large_group_receives() -> Result<()> {
    const MEMBERS: u64 = 100;
    let Pair { rig: _rig, a, b } = pair()?;
    let group = "ff0e::1234:5678".parse()?;
    let sender = a.pd.qp::<Ud>(&a.cq, &a.cq).max_inline(64).build()?;
    sender.activate(7)?;
    let to = a.pd.create_ah(&AddressVector {
        dgid: group,
        sgid_index: 1,
        ..AddressVector::default()
    })?;
    let mut members = Vec::new();
    for i in 0..MEMBERS {
        let qp = b.pd.qp::<Ud>(&b.cq, &b.cq).build()?;
        qp.activate(7)?;
        qp.attach_multicast(group)?;
        qp.post_recv(&[RecvWr::new(b.region.slice(0..100)).id(i)])?;
        members.push(qp);
    }
    sender.post_send(&[SendWr::send(Data::inline(b"to all"))
        .to(&to, 0xff_ffff, 7)
        .signaled()])?;
    a.done()?;
    let mut ids = (0..MEMBERS)
        .map(|_| Ok(b.done()?.id()))
        .collect::<Result<Vec<_>>>()?;
    ids.sort_unstable();
    assert_eq!(ids, (0..MEMBERS).collect::<Vec<_>>());
    quiet(&b.cq)
}

#[test]
fn groups_receive_what_is_sent_to_them() -> Result<()> {
    let Pair { rig: _rig, a, b } = pair()?;
    let group = "ff0e::1234:5678".parse()?;
    let ud = |side: &Side| -> Result<QueuePair<Ud>> {
        let qp = side.pd.qp::<Ud>(&side.cq, &side.cq).max_inline(64).build()?;
        qp.activate(7)?;
        Ok(qp)
    };
    let (sender, one, other) = (ud(&a)?, ud(&b)?, ud(&b)?);
    for (i, qp) in [&one, &other].into_iter().enumerate() {
        qp.attach_multicast(group)?;
        qp.post_recv(&[RecvWr::new(b.region.slice(i * 100..(i + 1) * 100)).id(i as u64)])?;
    }
    let to = a.pd.create_ah(&AddressVector {
        dgid: group,
        sgid_index: 1,
        ..AddressVector::default()
    })?;
    let send = |what: &[u8]| -> Result<()> {
        sender.post_send(&[SendWr::send(Data::inline(what)).to(&to, 0xff_ffff, 7).signaled()])?;
        a.done()?;
        Ok(())
    };
    send(b"to both")?;
    let mut ids = [b.done()?.id(), b.done()?.id()];
    ids.sort_unstable();
    assert_eq!(ids, [0, 1]);
    assert_eq!(
        [40, 140].map(|at| b.region.read_vec(at, 7)),
        [b"to both".to_vec(), b"to both".to_vec()]
    );
    one.detach_multicast(group)?;
    for (i, qp) in [&one, &other].into_iter().enumerate() {
        qp.post_recv(&[RecvWr::new(b.region.slice(i * 100..(i + 1) * 100)).id(i as u64)])?;
    }
    send(b"to one")?;
    assert_eq!(b.done()?.id(), 1);
    // More than the device looks ahead.
    let many = 100;
    for i in 0..many {
        other.post_recv(&[RecvWr::new(b.region.slice(100..200)).id(i)])?;
    }
    for i in 0..many {
        send(b"to one")?;
        assert_eq!(b.done()?.id(), i);
    }
    b.context.clock()?;
    quiet(&b.cq)
}
