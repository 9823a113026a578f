//! What a driver may rely on: that nothing touches memory of objects that have ended, that commands and doorbells keep their
//! order, and that indices, clocks and PSNs say what they should (`proto/device/SPEC.md`, sections 3, 5.1, 7 and 8.3).

use std::time::Duration;

use anyhow::{Result, ensure};
use vnic_backend::{
    CompletionFault, CompletionKind, MacAddr, PortKind, PortSpec, VerbsFaultAction, VerbsFaultSpec,
    VirtualClock,
};
use vnic_device::command::device::ClockReply;
use vnic_device::command::flow::CreateFlow;
use vnic_device::command::memory::{MrReply, RegisterMr, ReregisterMr};
use vnic_device::command::queues::SrqReply;
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::Kind;
use vnic_device::queue::Operation;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType, reregister};
use vnic_tests::driver::Wire;
use vnic_tests::driver::packets::{BROADCAST, eth};
use vnic_tests::driver::rdma::{Mr, QpSpec, Side, World, Wr, connect, fill, link};
use vnic_tests::driver::rig::wait_for;
use vnic_tests::driver::veth::{ENDS, Veth};

/// Ways to take memory away from a peer that writes there.
#[derive(Debug, Clone, Copy)]
enum Away {
    Deregister,
    Rekey,
    DestroyQp,
    ToErr,
    ToReset,
}

/// A peer on another core writes all the time; when the reply is there, it has stopped.
#[test]
fn what_has_ended_is_not_touched() -> Result<()> {
    use Away::*;
    for cores in [1, 2] {
        let world = World::new(cores, &["a", "b"])?;
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        for round in 0..25 {
            let how = [Deregister, Rekey, DestroyQp, ToErr, ToReset][round % 5];
            let (mut qa, qb) = a.pair(&mut b, QpType::Rc);
            let mr = b.d.mr(b.pd, 64 << 10, 0);
            for id in 0..20 {
                a.mr.area.write(0, &fill(id, 64 << 10)[..]);
                let wr = Wr::new(id, Operation::Write, &[a.at(0, 64 << 10)]).remote(0, mr.rkey);
                a.post(&mut qa, &wr);
            }
            // It is in the middle.
            for _ in 0..=round % 3 {
                a.cq.wait();
            }
            match how {
                Deregister => b.d.end(Opcode::DeregisterMr, mr.handle)?,
                Rekey => {
                    let body = ReregisterMr {
                        mr: mr.handle,
                        change: reregister::ACCESS,
                        register: RegisterMr {
                            access: 1,
                            ..RegisterMr::default()
                        },
                    };
                    b.d.ask::<_, MrReply>(Opcode::ReregisterMr, &body, &[])?;
                }
                DestroyQp => b.d.end(Opcode::DestroyQp, qb.number)?,
                ToErr => b.d.to(&qb, QpState::Err),
                ToReset => b.d.to(&qb, QpState::Reset),
            }
            mr.area.write(0, &[0x77; 64 << 10]);
            a.d.sync();
            b.d.sync();
            let same = |mr: &Mr| mr.area.bytes(0, 64 << 10).iter().all(|b| *b == 0x77);
            ensure!(same(&mr), "{how:?}, round {round}");
            // The peer is told, or gives up.
            a.d.to(&qa, QpState::Err);
            a.d.end(Opcode::DestroyQp, qa.number)?;
            while a.cq.poll().is_some() {}
            ensure!(same(&mr), "{how:?}, round {round}");
            if !matches!(how, DestroyQp) {
                b.d.end(Opcode::DestroyQp, qb.number)?;
            }
            if !matches!(how, Deregister) {
                b.d.end(Opcode::DeregisterMr, mr.handle)?;
            }
            b.d.poll_events();
            b.d.events.clear();
            b.d.release(b.mr.area.extents[0].gpa + (512 << 10));
        }
        world.finish()?;
    }
    Ok(())
}

/// Whatever a driver has posted before a command is known to the device when it begins the command.
#[test]
fn doorbells_before_a_command_are_taken_before_it() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let srq = s.d.srq(s.pd, 64, 1, None);
    let own = s.d.own_address();
    let mut posted = 0;
    let mut other = s.d.bells(256);
    for round in 0..200u32 {
        // By several rings, the newest anywhere.
        for i in 0..round % 5 {
            let bells = if (round + i).is_multiple_of(2) {
                &mut other
            } else {
                &mut s.bells
            };
            posted = (posted + 1).min(64);
            bells.ring(Kind::SharedReceive, srq.handle, posted);
        }
        let query = Object {
            handle: srq.handle,
            reserved: 0,
        };
        let reply: SrqReply = s.d.ask(Opcode::QuerySrq, &query, &[])?;
        assert_eq!(reply.waiting, posted);
        // A QP that is destroyed at once flushes what was posted just now.
        let mut qp = s.qp(QpType::Rc);
        s.d.up(&qp, &link(own, 0xab_cdef));
        s.d.to(&qp, QpState::Sqd);
        for i in 0..3 {
            qp.receive(&mut other, i, &[]);
            s.post(&mut qp, &Wr::send(10 + i, &[]));
        }
        s.d.end(Opcode::DestroyQp, qp.number)?;
        let ends: Vec<_> = std::iter::from_fn(|| s.cq.poll()).collect();
        assert_eq!(ends.len(), 6, "{ends:?}");
        s.d.release(s.mr.area.extents[0].gpa + (512 << 10));
    }
    // All was taken, and said so.
    s.bells.wait_taken();
    other.wait_taken();
    assert!(wait_for(|| srq.taken() == posted));
    world.finish()
}

/// `taken` is told often enough for a driver that waits for room: rings of 16 under thousands of doorbells.
#[test]
fn full_doorbell_rings_are_taken_from() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut bells = s.d.bells(16);
    let own = s.d.own_address();
    let mut qp = s.qp(QpType::Rc);
    s.d.up(&qp, &link(own, qp.number));
    let mut done = 0;
    for n in 0..2000u64 {
        let wr = Wr::new(n, Operation::Write, &[s.at(0, 8)]).remote(s.mr.iova + 64, s.mr.rkey);
        let index = qp.sends().write(&wr);
        for _ in 0..3 {
            bells.ring(Kind::Send, qp.number, index);
        }
        while qp.sends().free() == 0 || (n == 1999 && done < 2000) {
            let e = s.cq.good(done);
            qp.sends().consumer = e.consumed;
            done += 1;
        }
    }
    bells.wait_taken();
    assert_eq!(bells.taken(), 6000);
    world.finish()
}

#[test]
fn clocks_and_sequence_numbers() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    let clock = |s: &mut Side| -> u64 {
        let reply: ClockReply = s.d.ask(Opcode::QueryClock, &[0u8; 0], &[]).expect("QUERY_CLOCK");
        reply.now
    };
    let mut psn = 0xff_fff0u32;
    for len in [0u32, 1, 1024, 1025, 5000, 20_000] {
        b.receive(&mut qb, 1, &[b.at(0, 32 << 10)]);
        let before = [clock(&mut a), clock(&mut b)];
        let here = a.done(&mut qa, &Wr::send(1, &[a.at(0, len)]));
        let there = b.cq.good(1);
        let after = [clock(&mut a), clock(&mut b)];
        for (i, e) in [here, there].iter().enumerate() {
            ensure!(
                before[i] <= e.time && e.time <= after[i],
                "{before:?} {e:?} {after:?}"
            );
        }
        // As many PSNs as packets.
        psn = (psn + len.div_ceil(1024).max(1)) & 0xff_ffff;
        assert_eq!(a.d.query_qp(qa.number).attributes.sq_psn, psn, "{len} bytes");
        assert_eq!(b.d.query_qp(qb.number).attributes.rq_psn, psn, "{len} bytes");
    }
    world.finish()
}

/// Times of completions follow the NIC's clock, or a counter that nobody sets.
#[test]
fn times_are_of_the_clock_or_of_a_counter() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let own = s.d.own_address();
    let mut qp = s.qp(QpType::Rc);
    s.d.up(&qp, &link(own, qp.number));
    // The daemon runs for less than a day, and its clock is far from that.
    let (day, far) = (Duration::from_secs(86_400), Duration::from_secs(4_000_000_000));
    let mut n = 0;
    let mut times = |s: &mut Side| {
        let clock = |s: &mut Side| -> u64 {
            let reply: ClockReply = s.d.ask(Opcode::QueryClock, &[0u8; 0], &[]).expect("QUERY_CLOCK");
            reply.now
        };
        n += 1;
        let before = clock(s);
        let wr = Wr::new(n, Operation::Write, &[s.at(0, 8)]).remote(s.mr.iova + 64, s.mr.rkey);
        let time = s.done(&mut qp, &wr).time;
        let after = clock(s);
        assert!(before <= time && time <= after, "{before} {time} {after}");
        [before, after].map(Duration::from_nanos)
    };
    let nic = &world.rig.nic;
    nic.set_clock(far)?;
    let [first, _] = times(&mut s);
    assert!(first >= far, "{first:?}");
    nic.stamp_in_real_time(false)?;
    let [first, last] = times(&mut s);
    assert!(last < day, "{last:?}");
    nic.set_clock(far * 2)?;
    let [next, last] = times(&mut s);
    assert!(first <= next && last < day, "{first:?} {next:?}");
    assert!(nic.clock().time >= far * 2, "the clock is set all the same");
    nic.stamp_in_real_time(true)?;
    assert!(times(&mut s)[0] >= far * 2);
    world.finish()
}

/// A frame from a wire for a raw packet queue pair has the time when the kernel, or hardware, got it, however late it completes.
#[test]
fn a_frames_time_is_that_of_its_arrival() -> Result<()> {
    let Some(_veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let clock = VirtualClock::new(Duration::from_micros(10));
    let world = World::with_clock(clock.clone(), &["a"])?;
    let ifname = ENDS[0].into();
    world
        .rig
        .nic
        .add_port(PortSpec::new("p0", PortKind::Packet { ifname }))?;
    let late = VerbsFaultAction::Completion {
        qp: None,
        kinds: vec![CompletionKind::Recv],
        fault: CompletionFault::Late(Duration::from_millis(5)),
    };
    world
        .rig
        .nic
        .add_verbs_fault(VerbsFaultSpec::new("rule", "a", late))?;
    let mut s = world.side("a")?;
    let own = s.d.own_address();
    let mut qp = s.qp(QpType::RawPacket);
    s.d.up(&qp, &link(own, qp.number));
    let flow = CreateFlow {
        qp: qp.number,
        ..CreateFlow::default()
    };
    let _: Object = s.d.ask(Opcode::CreateFlow, &flow, &[]).expect("a flow");
    s.receive(&mut qp, 7, &[s.at(0, 2000)]);
    clock.pass(Duration::from_millis(1));
    let sender = [2, 0, 0, 0, 0, 9];
    Wire::open(ENDS[1])?.send(&eth(BROADCAST, MacAddr(sender), [0x88, 0xb5], &[0; 46]))?;
    let came = wait_for(|| {
        clock.pass(Duration::from_micros(10));
        world.rig.counter("p0", "rx_frames") == 1
    });
    ensure!(came, "the frame did not come");
    clock.pass(Duration::from_millis(6));
    let time = s.cq.good(7).time;
    let now: ClockReply = s.d.ask(Opcode::QueryClock, &[0u8; 0], &[]).expect("QUERY_CLOCK");
    assert!(now.now - time >= 5_000_000, "{time} {}", now.now);
    world.finish()
}

/// A device that is told nothing does nothing: entries, blocks and buffers without doorbells are not read.
#[test]
fn nothing_is_read_without_a_doorbell() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let spec = QpSpec {
        entries: 16,
        ..b.spec(QpType::Rc)
    };
    let (mut qa, mut qb) = (a.qp(QpType::Rc), b.d.qp(&spec));
    connect(&mut a.d, &qa, &mut b.d, &qb);
    // What is posted may be written anew until its doorbell.
    for n in 0..40u64 {
        let junk = Wr::send(9, &[a.at(1 << 30, 64)]);
        let at = qa.sends().producer;
        qa.sends().write(&junk);
        qa.sends().producer = at;
        let at = qb.receives().producer;
        qb.receives().write(9, &[b.at(1 << 30, 64)]);
        qb.receives().producer = at;
        a.d.sync();
        b.d.sync();
        b.receive(&mut qb, n, &[b.at(0, 64)]);
        a.done(&mut qa, &Wr::send(n, &[a.at(0, 64)]));
        assert_eq!(b.cq.expect(n, Status::Success).byte_len, 64);
    }
    assert!(a.cq.poll().is_none() && b.cq.poll().is_none());
    world.finish()
}
