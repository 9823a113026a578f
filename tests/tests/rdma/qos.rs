//! Quality of service of RDMA: traffic class to priority, what the adapter's rules write, rates of queue pairs, pause by
//! priority. Frames and completions are counted, never rates.

use anyhow::Result;
use vnic_backend::rehearsal::rehearsed;
use vnic_backend::settings::{AdapterSettings, QosKeys, Trust};
use vnic_backend::{Capture, CaptureSpec, NicError, QosSpec};
use vnic_device::command::Opcode;
use vnic_device::command::qp::QpRate;
use vnic_device::queue::Operation;
use vnic_device::verbs::QpType;
use vnic_tests::driver::rdma::{Link, Qp, Side, World, Wr, fill, link};
use vnic_tests::driver::rig::wait_for;

/// The keys of an adapter, with changes, at once.
fn keys(world: &World, name: &str, change: impl FnOnce(&mut QosKeys)) -> Result<()> {
    let mut settings = AdapterSettings::default();
    change(&mut settings.qos);
    Ok(world.rig.nic.apply_qos_keys(name, &settings)?)
}

fn trust_dscp(world: &World, names: &[&str]) -> Result<()> {
    for name in names {
        keys(world, name, |k| k.priorities.trust = Trust::Dscp)?;
    }
    Ok(())
}

/// Connected queue pairs; what both send has this traffic class and service level.
fn pair(a: &mut Side, b: &mut Side, traffic_class: u8, service_level: u8) -> (Qp, Qp) {
    let (qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
    for (side, own, peer, mut address) in [(&mut *a, &qa, &qb, to_b), (&mut *b, &qb, &qa, to_a)] {
        address.traffic_class = traffic_class;
        address.service_level = service_level;
        let way = Link {
            // 17 s: no test waits that long for an acknowledge.
            timeout: 22,
            ..link(address, peer.number)
        };
        side.d.up(own, &way);
    }
    (qa, qb)
}

fn write(a: &Side, b: &Side, id: u64, len: u32) -> Wr {
    Wr::new(id, Operation::Write, &[a.at(0, len)]).remote(b.mr.iova, b.mr.rkey)
}

/// Everything that an adapter sends and gets, as frames.
fn capture(world: &World, owner: &str) -> Result<Capture> {
    let spec = CaptureSpec {
        owners: vec![owner.into()],
        snaplen: 64,
        drops_only: false,
    };
    Ok(world.rig.nic.capture(spec)?)
}

/// ToS bytes of the RoCE v2 frames so far.
fn tos(capture: &Capture) -> Vec<u8> {
    let frames = capture.frames.try_iter();
    let bytes = frames.filter_map(|c| match c.data.get(12..16) {
        Some([0x08, 0x00, _, tos]) => Some(*tos),
        Some([0x86, 0xdd, a, b]) => Some(a << 4 | b >> 4),
        _ => None,
    });
    bytes.collect()
}

/// Packets of a priority that an adapter sent and got.
fn counted(world: &World, name: &str, priority: u8) -> (u64, u64) {
    let of = |counter| world.rig.priority_counter(name, priority, counter);
    (of("tx_frames"), of("rx_frames"))
}

#[test]
fn traffic_class_106_is_dscp_26_is_priority_3() -> Result<()> {
    for cores in [1, 2] {
        let world = World::new(cores, &["a", "b"])?;
        trust_dscp(&world, &["a", "b"])?;
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (mut qa, _qb) = pair(&mut a, &mut b, 106, 0);
        let bytes = fill(1, 20_000);
        a.mr.area.write(0, &bytes);
        let seen = capture(&world, "a")?;
        world.rig.settle()?;
        a.done(&mut qa, &write(&a, &b, 1, 20_000));
        assert_eq!(b.mr.area.bytes(0, 20_000), bytes);
        // 20 packets, and at least one acknowledge.
        let all = tos(&seen);
        assert!(all.len() >= 21 && all.iter().all(|t| *t == 106), "{all:?}");
        let sent = 20;
        assert!(wait_for(
            || counted(&world, "a", 3).0 == sent && counted(&world, "b", 3).1 == sent
        ));
        let answers = all.len() as u64 - sent;
        assert!(wait_for(
            || counted(&world, "b", 3).0 == answers && counted(&world, "a", 3).1 == answers
        ));
        // Without anybody who looks, neighbours hand packets over as they are: counted all the same.
        drop(seen);
        world.rig.settle()?;
        a.done(&mut qa, &write(&a, &b, 2, 20_000));
        assert!(wait_for(
            || counted(&world, "a", 3).0 == 2 * sent && counted(&world, "b", 3).1 == 2 * sent
        ));
        // Sums are what the other priorities leave for priority 0.
        let total = |name: &str, counter: &str| world.rig.counter(name, counter);
        assert!(wait_for(
            || total("a", "tx_vport_rdma_unicast_packets") == 2 * sent
        ));
        assert_eq!(counted(&world, "a", 0), (0, 0));
        world.finish()?;
    }
    Ok(())
}

/// The TCIs of the frames so far; 0: a frame without a tag.
fn tcis(capture: &Capture) -> Vec<u16> {
    let frames = capture.frames.try_iter();
    let tci = |data: &[u8]| match data.get(12..16) {
        Some([0x81, 0x00, high, low]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    frames.map(|c| tci(&c.data)).collect()
}

#[test]
fn the_fourth_bit_of_a_service_level_is_in_a_tag() -> Result<()> {
    for cores in [1, 2] {
        let world = World::new(cores, &["a", "b"])?;
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (mut qa, _qb) = pair(&mut a, &mut b, 0, 11);
        let (mut low, _other) = pair(&mut a, &mut b, 0, 3);
        let bytes = fill(3, 20_000);
        a.mr.area.write(0, &bytes);
        for seen in [true, false] {
            let seen = if seen { Some(capture(&world, "a")?) } else { None };
            world.rig.settle()?;
            b.mr.area.write(0, &[0; 20_000]);
            let before = counted(&world, "b", 3).1;
            a.done(&mut qa, &write(&a, &b, 1, 20_000));
            assert_eq!(b.mr.area.bytes(0, 20_000), bytes);
            assert!(wait_for(|| counted(&world, "b", 3).1 == before + 20));
            if let Some(seen) = seen {
                let all = tcis(&seen);
                assert!(
                    all.len() >= 21 && all.iter().all(|tci| *tci == 3 << 13 | 1 << 12),
                    "{all:x?}"
                );
                a.done(&mut low, &write(&a, &b, 2, 20_000));
                let all = tcis(&seen);
                assert!(all.iter().all(|tci| tci & 1 << 12 == 0), "{all:x?}");
            }
        }
        // By the DSCP there is no such bit: the level's priority has its DSCP.
        trust_dscp(&world, &["a", "b"])?;
        let seen = capture(&world, "a")?;
        world.rig.settle()?;
        a.done(&mut qa, &write(&a, &b, 3, 20_000));
        let frames = tcis(&seen);
        assert!(
            !frames.is_empty() && frames.iter().all(|tci| *tci == 0),
            "{frames:x?}"
        );
        world.finish()?;
    }
    Ok(())
}

#[test]
fn rules_of_the_adapter_reach_queue_pairs_that_are_there() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = pair(&mut a, &mut b, 0, 0);
    let number = qa.number;
    let seen = capture(&world, "a")?;
    world.rig.settle()?;
    let mut sent = |a: &mut Side, b: &Side, id| {
        a.done(&mut qa, &write(a, b, id, 3000));
        let all: Vec<u8> = tos(&seen);
        assert!(all.len() >= 4, "{all:?}");
        // The first three are of `a`.
        assert!(all[..3].iter().all(|t| *t == all[0]), "{all:?}");
        all[0]
    };
    // Neither traffic class nor service level: nothing in PCP trust, DSCP 26 in DSCP trust, or what the key says.
    assert_eq!(sent(&mut a, &b, 1), 0);
    trust_dscp(&world, &["a"])?;
    assert_eq!(sent(&mut a, &b, 2), 26 << 2);
    assert!(wait_for(|| counted(&world, "a", 3).0 == 3));
    keys(&world, "a", |k| {
        k.priorities.trust = Trust::Dscp;
        k.marks.default_dscp = 46;
    })?;
    assert_eq!(sent(&mut a, &b, 3), 46 << 2);
    assert!(wait_for(|| counted(&world, "a", 5).0 == 3));
    // A traffic class of the operator's, over everything; what the queue pair has set stays to be seen.
    let forced = |class| QosSpec {
        forced_traffic_class: class,
        ..QosSpec::default()
    };
    world.rig.nic.set_qos("a", forced(Some(106)))?;
    assert_eq!(sent(&mut a, &b, 4), 106);
    assert_eq!(a.d.query_qp(number).attributes.address.traffic_class, 0);
    // Taken back, and by priority: that of the service level, 0, has DSCP 8 now.
    world.rig.nic.set_qos("a", forced(None))?;
    keys(&world, "a", |k| {
        k.marks.dscp_by_priority = true;
        k.priority_to_dscp = [8, 9, 10, 11, 12, 13, 14, 15];
    })?;
    assert_eq!(sent(&mut a, &b, 5), 8 << 2);
    // A driver that comes later has the same rules.
    drop(a);
    let mut a = world.side("a")?;
    let (mut qa, _qb) = pair(&mut a, &mut b, 0, 3);
    seen.frames.try_iter().for_each(drop);
    a.done(&mut qa, &write(&a, &b, 6, 3000));
    assert_eq!(tos(&seen)[..3], [11 << 2; 3]);
    world.finish()
}

#[test]
fn what_is_paced_arrives() -> Result<()> {
    for cores in [1, 2] {
        let world = World::new(cores, &["a", "b"])?;
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (mut qa, _qb) = pair(&mut a, &mut b, 0, 0);
        let bytes = fill(2, 200_000);
        a.mr.area.write(0, &bytes);
        let rate = |rate| QpRate {
            qp: qa.number,
            rate,
            max_burst: 4096,
            ..QpRate::default()
        };
        // 32 Mbit/s: it waits some fifty times.
        let slow = rate(32_000);
        a.d.ask::<_, [u8; 0]>(Opcode::ModifyQpRate, &slow, &[])
            .expect("a rate");
        let nic = &world.rig.nic;
        let listed = nic.qp_rates("a")?;
        assert_eq!(
            listed
                .iter()
                .map(|r| (r.qp, r.rate_kbps, r.ceiling_kbps))
                .collect::<Vec<_>>(),
            [(qa.number, 32_000, 0)]
        );
        a.done(&mut qa, &write(&a, &b, 1, 200_000));
        assert_eq!(b.mr.area.bytes(0, 200_000), bytes);
        // So slow that it would take for ever; the operator's word and then the driver's change it under way.
        nic.set_qp_rate("a", qa.number, 1)?;
        b.mr.area.write(0, &[0; 200_000]);
        a.post(&mut qa, &write(&a, &b, 2, 200_000));
        a.bells.wait_taken();
        let object = vnic_device::command::Object {
            handle: qa.number,
            reserved: 0,
        };
        let shown: QpRate = a.d.ask(Opcode::QueryQpRate, &object, &[]).expect("a rate");
        assert_eq!(shown, slow);
        assert!(a.cq.poll().is_none());
        nic.set_qp_rate("a", qa.number, 0)?;
        a.d.ask::<_, [u8; 0]>(
            Opcode::ModifyQpRate,
            &QpRate {
                qp: qa.number,
                ..QpRate::default()
            },
            &[],
        )
        .expect("no rate");
        qa.sends().consumer = a.cq.good(2).consumed;
        assert_eq!(b.mr.area.bytes(0, 200_000), bytes);
        assert!(nic.qp_rates("a")?.is_empty());
        // No loss was suspected.
        assert_eq!(world.rig.counter("a", "local_ack_timeout_err"), 0);
        world.finish()?;
    }
    Ok(())
}

#[test]
fn an_operators_rate_is_checked() -> Result<()> {
    let mut world = World::new(1, &["a"])?;
    world.rig.add("plain")?;
    let nic = &world.rig.nic;
    let missing = |result: Result<(), NicError>, what: &str| {
        assert!(
            matches!(&result, Err(NicError::NotFound { kind, .. }) if *kind == what),
            "{result:?}"
        );
    };
    for rehearses in [true, false] {
        let set = |adapter, qp| rehearsed(rehearses, || nic.set_qp_rate(adapter, qp, 1));
        missing(set("nobody", 2), "adapter");
        missing(set("plain", 2), "adapter with an RDMA function");
        missing(set("a", 0x102), "queue pair");
    }
    let mut a = world.side("a")?;
    let qp = a.qp(QpType::Rc).number;
    let wrong = nic.set_qp_rate("a", qp, 100_000_001);
    assert!(
        matches!(
            &wrong,
            Err(NicError::Invalid {
                field: "rate_kbps",
                ..
            })
        ),
        "{wrong:?}"
    );
    let would = rehearsed(true, || nic.set_qp_rate("a", qp, 100_000_000));
    assert!(matches!(would, Err(NicError::Rehearsed)), "{would:?}");
    assert!(nic.qp_rates("a")?.is_empty());
    nic.set_qp_rate("a", qp, 100_000_000)?;
    assert_eq!(nic.qp_rates("a")?.len(), 1);
    // It ends with the driver.
    drop(a);
    assert!(wait_for(|| nic.qp_rates("a").is_ok_and(|r| r.is_empty())));
    world.finish()
}

/// A receiver that takes almost nothing tells its senders to wait, with one priority; what they have of others goes on.
#[test]
fn pause_holds_only_its_priority() -> Result<()> {
    for cores in [1, 2] {
        let world = World::new(cores, &["a", "b", "c"])?;
        trust_dscp(&world, &["a", "b", "c"])?;
        let nic = &world.rig.nic;
        let lossless = QosSpec {
            pfc: 1 << 3,
            ..QosSpec::default()
        };
        nic.set_qos("a", lossless.clone())?;
        let (mut a, mut b, mut c) = (world.side("a")?, world.side("b")?, world.side("c")?);
        let (mut stuck, _qb) = pair(&mut a, &mut b, 106, 0);
        let (mut same, _qc) = pair(&mut a, &mut c, 106, 0);
        let (mut other, _qc) = pair(&mut a, &mut c, 4, 0);
        let bytes = fill(3, 100_000);
        a.mr.area.write(0, &bytes);
        // 1 kbit/s: a packet takes nine seconds.
        let mut slow = lossless.clone();
        slow.rate = 1000;
        slow.buffer.xoff = 4096;
        slow.buffer.xon = 2048;
        nic.set_qos("b", slow)?;
        a.post(&mut stuck, &write(&a, &b, 1, 100_000));
        assert!(wait_for(|| nic.qos("a").is_ok_and(|q| q.queues.paused == 1 << 3)));
        assert!(nic.qos("b")?.queues.pausing == 1 << 3);
        a.post(&mut same, &write(&a, &c, 2, 1000));
        for id in 10..60 {
            a.done(&mut other, &write(&a, &c, id, 5000));
        }
        assert_eq!(c.mr.area.bytes(0, 5000), bytes[..5000]);
        assert!(a.cq.poll().is_none(), "of the paused priority");
        // It goes on where it was; nothing was lost, nothing sent twice.
        nic.set_qos("b", lossless)?;
        let mut done = [a.cq.wait().wr_id, a.cq.wait().wr_id];
        done.sort();
        assert_eq!(done, [1, 2]);
        assert_eq!(b.mr.area.bytes(0, 100_000), bytes);
        assert!(wait_for(|| nic.qos("a").is_ok_and(|q| q.queues.paused == 0)));
        for name in ["local_ack_timeout_err", "packet_seq_err"] {
            assert_eq!(world.rig.counter("a", name), 0, "{name}");
        }
        // 98 packets and one, each once.
        assert!(wait_for(|| counted(&world, "a", 3).0 == 99));
        world.finish()?;
    }
    Ok(())
}
