//! Rings of the RDMA function: doorbells, laps, pieces, room, arming, events, sleep (`proto/device/SPEC.md`, sections 6 to
//! 10), with a driver written out by hand.

use std::time::Duration;

use anyhow::Result;
use vnic_device::command::device::GidRecord;
use vnic_device::command::qp::QpAttributes;
use vnic_device::command::queues::{ResizeCq, ResizeCqReply};
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::event::{EventKind, EventRecord};
use vnic_device::queue::{Operation, send_flags};
use vnic_device::ring;
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType, qp_mask};
use vnic_tests::driver::rdma::{
    Cq, Driver, Link, Options, Qp, QpSpec, Side, World, Wr, connect, extents, fill, link, list_of,
};
use vnic_tests::driver::rig::wait_for;

fn write(side: &Side, wr_id: u64, at: u64) -> Wr {
    Wr::new(wr_id, Operation::Write, &[side.at(0, 8)]).remote(side.mr.iova + at, side.mr.rkey)
}

/// A QP that is connected with itself.
fn alone(s: &mut Side) -> Qp {
    let spec = s.spec(QpType::Rc);
    alone_of(s, &spec)
}

fn alone_of(s: &mut Side, spec: &QpSpec) -> Qp {
    let qp = s.d.qp(spec);
    let own = s.d.own_address();
    s.d.up(&qp, &link(own, qp.number));
    qp
}

#[test]
fn requests_lie_over_the_end_of_rings_in_pieces() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let spec = QpSpec {
        blocks: 8,
        pieces: vec![64, 192, 256],
        inline: 300,
        ..a.spec(QpType::Rc)
    };
    let qb_spec = QpSpec {
        entries: 4,
        receive_elements: 7,
        ..b.spec(QpType::Rc)
    };
    let (mut qa, mut qb) = (a.d.qp(&spec), b.d.qp(&qb_spec));
    connect(&mut a.d, &qa, &mut b.d, &qb);
    let bytes = fill(1, 1024);
    a.mr.area.write(0, &bytes);
    let mut blocks = 0u32;
    for i in 0..200u64 {
        // One to six blocks, elements and inline bytes in turn.
        let n = (i * 7 % 301) as usize;
        let elements: Vec<_> = (0..i % 7).map(|k| a.at(100 * k, 100)).collect();
        let (wr, data) = if i.is_multiple_of(2) {
            (Wr::send(i, &[]).inline(&bytes[..n]), &bytes[..n])
        } else {
            (Wr::send(i, &elements), &bytes[..100 * elements.len()])
        };
        b.receive(&mut qb, i, &[b.at(8, 1), b.at(16, 0), b.at(1000, 1023)]);
        let e = a.done(&mut qa, &wr);
        blocks += (32 + wr.behind.len()).div_ceil(64) as u32;
        assert_eq!(e.consumed, blocks, "request {i}");
        let e = b.cq.good(i);
        assert_eq!((e.byte_len as usize, e.consumed), (data.len(), i as u32 + 1));
        let (first, rest) = data.split_at(data.len().min(1));
        assert_eq!(b.mr.area.bytes(8, first.len()), first);
        assert_eq!(b.mr.area.bytes(1000, rest.len()), rest);
    }
    a.d.mem.check_canaries()?;
    world.finish()
}

#[test]
fn requests_that_are_not_signaled_are_freed_by_later_ones() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut qp = alone(&mut s);
    for i in 0..20u64 {
        for k in 0..7 {
            qp.sends().write(&write(&s, 100 + k, 4096).silent());
        }
        let e = s.done(&mut qp, &write(&s, i, 4096));
        assert_eq!(e.consumed, 8 * (i as u32 + 1));
    }
    assert!(s.cq.poll().is_none());
    // A failure is always told, and with SIGNAL_ALL a success, too.
    let bad = Wr::new(7, Operation::Write, &[s.at(1 << 20, 8)]).remote(s.mr.iova, s.mr.rkey);
    s.fails(&mut qp, &bad.silent(), Status::LocalProtectionError);
    let spec = QpSpec {
        flags: 1,
        ..s.spec(QpType::Rc)
    };
    let mut qp = alone_of(&mut s, &spec);
    s.done(&mut qp, &write(&s, 8, 0).silent());
    world.finish()
}

#[test]
fn doorbells_of_several_rings_overtake_each_other() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut qp = alone(&mut s);
    let mut other = s.d.bells(16);
    let mut next = 0;
    for round in 0..100u32 {
        let begin = qp.sends().producer;
        for _ in 0..6 {
            let wr = write(&s, next, 4096);
            qp.sends().write(&wr);
            next += 1;
        }
        // The newest index first, then older ones by both rings.
        other.ring(Kind::Send, qp.number, begin + 6);
        if round.is_multiple_of(2) {
            other.wait_taken();
        }
        for old in [3, 0, 5, 1] {
            s.bells.ring(Kind::Send, qp.number, begin + old);
        }
        for i in (0..6).rev() {
            let e = s.cq.good(next - 1 - i);
            qp.sends().consumer = e.consumed;
        }
    }
    assert!(s.cq.poll().is_none(), "nothing is carried out twice");
    // Queues that there are not, numbers of other kinds, and QPs that do not send yet.
    let quiet = s.qp(QpType::Rc);
    for number in [0, 1, 0xff_ffff, 0x12_3456, s.cq.handle, quiet.number] {
        for kind in [Kind::Send, Kind::Receive, Kind::SharedReceive] {
            if number != qp.number {
                s.bells.ring(kind, number, 5);
            }
        }
    }
    for kind in [Kind::ArmNext, Kind::ArmSolicited] {
        s.bells.ring(kind, 0xff_ffff, 1);
    }
    s.bells.wait_taken();
    s.done(&mut qp, &write(&s, 1, 0));
    s.d.sync();
    assert_eq!(s.d.poll_events(), 0, "{:?}", s.d.events);
    world.finish()
}

#[test]
fn what_is_posted_too_early_is_posted_by_a_later_doorbell() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    let way = link(own, qp.number);
    // In RESET neither; from INIT on receives.
    s.receive(&mut qp, 1, &[s.at(0, 8)]);
    s.d.init(&qp);
    s.post(&mut qp, &write(&s, 10, 4096));
    s.receive(&mut qp, 2, &[s.at(8, 8)]);
    s.d.rtr(&qp, &way);
    s.post(&mut qp, &write(&s, 11, 4096));
    s.d.rts(&qp, &way);
    s.d.sync();
    assert!(s.cq.poll().is_none());
    s.post(&mut qp, &write(&s, 12, 4096));
    for id in [10, 11, 12] {
        s.cq.good(id);
    }
    s.post(&mut qp, &Wr::send(13, &[]).inline(b"early"));
    let mut ends = [s.cq.wait(), s.cq.wait()].map(|e| (e.wr_id, e.status));
    ends.sort();
    assert_eq!(ends, [(1, 0), (13, 0)]);
    // To RESET: what was posted is forgotten, and both sides begin with index 0.
    s.d.to(&qp, QpState::Reset);
    qp.begin_anew();
    s.d.up(&qp, &way);
    assert!(s.cq.poll().is_none());
    let e = s.done(&mut qp, &write(&s, 20, 0));
    assert_eq!(e.consumed, 1);
    s.receive(&mut qp, 21, &[]);
    // To ERR and DESTROY_QP: flushed before the reply.
    s.d.to(&qp, QpState::Sqd);
    s.post(&mut qp, &write(&s, 22, 0));
    s.d.to(&qp, QpState::Err);
    let mut ends: Vec<_> = std::iter::from_fn(|| s.cq.poll())
        .map(|e| (e.wr_id, e.status()))
        .collect();
    ends.sort_by_key(|e| e.0);
    assert_eq!(ends, [(21, Status::FlushError), (22, Status::FlushError)]);
    // In ERR what is posted is flushed as before.
    s.fails(&mut qp, &write(&s, 23, 0), Status::FlushError);
    let mut doomed = alone(&mut s);
    s.d.to(&doomed, QpState::Sqd);
    for i in 0..10 {
        s.receive(&mut doomed, i, &[]);
        s.post(&mut doomed, &write(&s, 100 + i, 0));
    }
    s.d.end(Opcode::DestroyQp, doomed.number).expect("DESTROY_QP");
    let ends: Vec<_> = std::iter::from_fn(|| s.cq.poll()).collect();
    assert_eq!(ends.len(), 20, "{ends:?}");
    assert!(
        ends.iter()
            .all(|e| e.status() == Status::FlushError && e.qp == doomed.number)
    );
    s.d.sync();
    assert!(s.cq.poll().is_none());
    world.finish()
}

#[test]
fn a_full_completion_queue_holds_back_or_overruns() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut cq = s.d.cq(4);
    let spec = QpSpec {
        send_cq: cq.handle,
        recv_cq: cq.handle,
        ..s.spec(QpType::Rc)
    };
    let mut qp = alone_of(&mut s, &spec);
    // As many as there are entries are outstanding, for many laps; the driver takes them late.
    let mut next = 0;
    for _ in 0..50 {
        for i in 0..4 {
            s.post(&mut qp, &write(&s, next + i, 0));
        }
        s.bells.wait_taken();
        s.d.sync();
        for _ in 0..4 {
            let e = cq.good(next);
            qp.sends().consumer = e.consumed;
            next += 1;
        }
        assert!(cq.poll().is_none());
    }
    // An index that is ahead, or more than the ring behind, is a full ring: nothing is written over.
    for i in 0..4 {
        s.post(&mut qp, &write(&s, next + i, 0));
    }
    assert!(wait_for(|| cq.peek().is_some()));
    for wild in [cq.consumer + 5, cq.consumer.wrapping_sub(1000), u32::MAX / 2] {
        cq.set_consumer(wild);
        s.d.sync();
        assert_eq!(cq.peek().map(|e| e.wr_id), Some(next));
    }
    // Far too many: what was written can be taken, the QP fails.
    for i in 4..40 {
        s.post(&mut qp, &write(&s, next + i, 0));
    }
    let e = s.d.event(EventKind::CqError);
    assert_eq!((e.object, e.detail), (cq.handle, 0));
    assert_eq!(s.d.event(EventKind::QpFatal).object, qp.number);
    assert_eq!(s.d.state(&qp), QpState::Err);
    let there: Vec<_> = (0..4)
        .filter_map(|_| cq.peek().inspect(|_| cq.consumer += 1))
        .collect();
    assert_eq!(
        there.iter().map(|e| e.wr_id).collect::<Vec<_>>(),
        [0, 1, 2, 3].map(|i| next + i)
    );
    world.finish()
}

#[test]
fn completion_queues_change_their_rings_under_traffic() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut cq = s.d.cq(16);
    let spec = QpSpec {
        send_cq: cq.handle,
        ..s.spec(QpType::Rc)
    };
    let mut qp = alone_of(&mut s, &spec);
    let mut next = 0;
    for round in 0..40u64 {
        let entries = 16 << (round % 3);
        for i in 0..10 {
            s.post(&mut qp, &write(&s, next + i, 0));
        }
        let area = if round.is_multiple_of(2) {
            s.d.area_in(&[64 * 3, 64 * (u64::from(entries) - 3), 64])
        } else {
            s.d.area(ring::completion_ring_len(entries))
        };
        let body = ResizeCq {
            cq: cq.handle,
            entries,
            ring: extents(&area),
        };
        let reply: ResizeCqReply =
            s.d.ask(Opcode::ResizeCq, &body, &list_of(&area.extents))
                .expect("RESIZE_CQ");
        while cq.consumer != reply.produced {
            assert_eq!(cq.good(next).wr_id, next);
            next += 1;
        }
        assert!(cq.peek().is_none(), "nothing more comes into the old ring");
        cq = Cq {
            area,
            entries,
            consumer: 0,
            handle: cq.handle,
        };
        while next < 10 * (round + 1) {
            let e = cq.good(next);
            qp.sends().consumer = e.consumed;
            next += 1;
        }
        assert!(cq.poll().is_none());
    }
    world.finish()
}

#[test]
fn armed_queues_raise_one_event() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let (mut out, mut into) = (s.d.cq(64), s.d.cq(64));
    let spec = QpSpec {
        send_cq: out.handle,
        recv_cq: into.handle,
        ..s.spec(QpType::Rc)
    };
    let mut qp = alone_of(&mut s, &spec);
    let none = |d: &mut Driver| assert_eq!(d.count_events(EventKind::Completion), 0);
    let is = |e: EventRecord, cq: &Cq, n: u64| assert_eq!((e.object, e.detail), (cq.handle, n));

    // Not armed: nothing.
    s.post(&mut qp, &write(&s, 1, 0));
    out.good(1);
    none(&mut s.d);
    // Armed, then a completion: one event, and only one.
    out.arm(&mut s.bells, false);
    s.bells.wait_taken();
    none(&mut s.d);
    s.post(&mut qp, &write(&s, 2, 0));
    is(s.d.event(EventKind::Completion), &out, 2);
    s.post(&mut qp, &write(&s, 3, 0));
    out.good(2);
    out.good(3);
    none(&mut s.d);
    // A completion, then armed from before it: at once. From behind it: not.
    s.post(&mut qp, &write(&s, 4, 0));
    while out.peek().is_none() {
        std::thread::yield_now();
    }
    out.arm(&mut s.bells, false);
    is(s.d.event(EventKind::Completion), &out, 4);
    out.good(4);
    out.arm(&mut s.bells, false);
    s.bells.wait_taken();
    none(&mut s.d);
    s.post(&mut qp, &write(&s, 5, 0));
    is(s.d.event(EventKind::Completion), &out, 5);
    out.good(5);

    // Solicited: those that are, and failures.
    into.arm(&mut s.bells, true);
    for (id, flags) in [(10, 0), (11, send_flags::SOLICITED)] {
        s.receive(&mut qp, id, &[]);
        s.post(&mut qp, &Wr::send(id, &[]).flags(flags).silent());
        into.good(id);
        if flags == 0 {
            none(&mut s.d);
        }
    }
    is(s.d.event(EventKind::Completion), &into, 2);
    // It was there before it was asked for.
    s.receive(&mut qp, 12, &[]);
    s.post(&mut qp, &Wr::send(12, &[]).flags(send_flags::SOLICITED).silent());
    while into.peek().is_none() {
        std::thread::yield_now();
    }
    into.arm(&mut s.bells, true);
    is(s.d.event(EventKind::Completion), &into, 3);
    into.good(12);
    // ARM_NEXT replaces ARM_SOLICITED, and not the other way round.
    into.arm(&mut s.bells, true);
    into.arm(&mut s.bells, false);
    into.arm(&mut s.bells, true);
    s.receive(&mut qp, 13, &[]);
    s.post(&mut qp, &Wr::send(13, &[]).silent());
    is(s.d.event(EventKind::Completion), &into, 4);
    into.good(13);
    into.arm(&mut s.bells, true);
    s.receive(&mut qp, 14, &[]);
    s.bells.wait_taken();
    s.d.to(&qp, QpState::Err);
    is(s.d.event(EventKind::Completion), &into, 5);
    into.expect(14, Status::FlushError);
    none(&mut s.d);
    world.finish()
}

/// Whoever waits for an event when the ring is replaced is not forgotten.
#[test]
fn queues_stay_armed_when_they_are_resized() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut cq = s.d.cq(16);
    let spec = QpSpec {
        send_cq: cq.handle,
        recv_cq: cq.handle,
        ..s.spec(QpType::Rc)
    };
    let mut qp = alone_of(&mut s, &spec);
    for (round, solicited) in [false, true, false, true].into_iter().enumerate() {
        // Some laps on, so that old and new indices differ.
        for i in 0..7 {
            s.post(&mut qp, &write(&s, i, 0));
            cq.good(i);
        }
        cq.arm(&mut s.bells, solicited);
        s.bells.wait_taken();
        let entries = [32, 8, 16, 64][round];
        let area = s.d.area(ring::completion_ring_len(entries));
        let body = ResizeCq {
            cq: cq.handle,
            entries,
            ring: extents(&area),
        };
        let list = list_of(&area.extents);
        let reply: ResizeCqReply = s.d.ask(Opcode::ResizeCq, &body, &list).expect("RESIZE_CQ");
        assert_eq!(reply.produced, cq.consumer);
        cq = Cq {
            area,
            entries,
            consumer: 0,
            handle: cq.handle,
        };
        assert_eq!(s.d.count_events(EventKind::Completion), 0);
        s.receive(&mut qp, 9, &[]);
        s.post(&mut qp, &Wr::send(9, &[]).flags(send_flags::SOLICITED).silent());
        let e = s.d.event(EventKind::Completion);
        assert_eq!((e.object, e.detail), (cq.handle, 1));
        cq.good(9);
    }
    world.finish()
}

/// A driver that takes all there is, arms and waits for the event loses none, however the two meet.
#[test]
fn arming_loses_no_completion() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut s = world.side("a")?;
    let mut qp = alone(&mut s);
    let mut dice = vnic_tests::driver::rig::Dice::thrown();
    let (mut posted, mut taken) = (0u64, 0u64);
    while taken < 3000 {
        while posted < 3000 && posted - taken < 1 + dice.below(20) && qp.sends().free() > 0 {
            s.post(&mut qp, &write(&s, posted, 0));
            posted += 1;
        }
        s.cq.arm(&mut s.bells, false);
        let e = s.d.event(EventKind::Completion);
        assert_eq!(e.object, s.cq.handle);
        while let Some(e) = s.cq.poll() {
            assert_eq!((e.wr_id, e.status()), (taken, Status::Success));
            qp.sends().consumer = e.consumed;
            taken += 1;
        }
        // An event is not early: what it told of was there.
        assert!(e.detail as u32 <= s.cq.consumer);
    }
    world.finish()
}

#[test]
fn events_of_queue_pairs_and_of_the_gid_table() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    // The first packet in RTR.
    let (mut qa, mut qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
    a.d.up(&qa, &link(to_b, qb.number));
    b.d.init(&qb);
    b.d.rtr(&qb, &link(to_a, qa.number));
    b.receive(&mut qb, 1, &[]);
    a.done(&mut qa, &Wr::send(1, &[]));
    let e = b.d.event(EventKind::CommunicationEstablished);
    assert_eq!((e.object, e.detail), (qb.number, 0));
    b.cq.good(1);
    // Drained in SQD, if that was asked for.
    let sqd = |drained_event| QpAttributes {
        state: QpState::Sqd.number(),
        drained_event,
        ..QpAttributes::default()
    };
    let mask = qp_mask::STATE | qp_mask::DRAINED_EVENT;
    a.d.modify(qa.number, mask, sqd(1)).expect("SQD");
    assert_eq!(a.d.event(EventKind::SendQueueDrained).object, qa.number);
    a.post(&mut qa, &Wr::send(2, &[]));
    a.d.sync();
    assert!(a.cq.poll().is_none(), "nothing is sent in SQD");
    b.receive(&mut qb, 2, &[]);
    a.d.to(&qa, QpState::Rts);
    a.cq.good(2);
    a.d.modify(qa.number, mask, sqd(0)).expect("SQD");
    assert_eq!(a.d.count_events(EventKind::SendQueueDrained), 0);
    // The GID table.
    let record = GidRecord {
        gid: [0xfd; 16],
        index: 77,
        kind: 2,
        ..GidRecord::default()
    };
    a.d.ask::<_, [u8; 0]>(Opcode::SetGid, &record, &[])
        .expect("SET_GID");
    assert_eq!(a.d.event(EventKind::GidChange).object, 77);
    assert_eq!(b.d.count_events(EventKind::GidChange), 0);
    world.finish()
}

#[test]
fn events_wait_for_buffers_and_too_many_are_counted() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let mut d = Driver::start(
        world.socket("a"),
        Options {
            events: 0,
            ..Options::default()
        },
    )?;
    let gid = |index, kind| GidRecord {
        gid: [0xfd; 16],
        index,
        kind,
        ..GidRecord::default()
    };
    let set = |d: &mut Driver, n: u64| {
        let changes = (0..n).map(|i| gid(100, if i.is_multiple_of(2) { 2 } else { 0 }));
        let commands = changes.map(|g| {
            (
                Opcode::SetGid,
                vnic_device::zerocopy::IntoBytes::as_bytes(&g).to_vec(),
            )
        });
        let mut bad = 0;
        d.burst(commands.collect::<Vec<_>>().into_iter(), |r| {
            bad += u64::from(!r.bytes.is_empty())
        });
        assert_eq!(bad, 0);
    };
    set(&mut d, 6000);
    let mut s = Side::new(d);
    let mut qp = alone(&mut s);
    s.cq.arm(&mut s.bells, false);
    s.post(&mut qp, &write(&s, 1, 0));
    s.cq.good(1);
    // Buffers too small come back empty, and the record takes the next.
    for (i, len) in [(0, 31), (1, 8), (2, 64)] {
        s.d.offer_event_buffer(i, len);
    }
    s.d.event_ring.publish();
    let mut got = Vec::new();
    assert!(wait_for(|| {
        got.extend(s.d.take_event(false));
        got.len() == 3
    }));
    assert_eq!((got[0], got[1]), (None, None));
    s.d.events.push_back(got[2].expect("an event"));
    for i in 0..32 {
        s.d.offer_event_buffer(i, 32);
    }
    s.d.event_ring.publish();
    // (A turn writes as many as its work allows.)
    assert!(wait_for(|| {
        s.d.poll_events();
        let (common, lost) = gid_events(&s.d);
        common + lost >= 6000 && completions(&s.d) >= 1
    }));
    s.d.sync();
    s.d.poll_events();
    let (common, lost) = gid_events(&s.d);
    assert!(common >= 1024, "{common} waited");
    assert_eq!(common + lost, 6000, "{common} waited, {lost} were lost");
    assert_eq!(completions(&s.d), 1, "those of armed queues are never lost");
    world.finish()
}

/// Number of changed GIDs of which the driver was told, and of those that [`EventKind::EventsLost`] counts.
fn gid_events(d: &Driver) -> (u64, u64) {
    let of = |kind: EventKind| d.events.iter().filter(move |e| e.kind == kind.number());
    let told = of(EventKind::GidChange).count() as u64;
    (told, of(EventKind::EventsLost).map(|e| e.detail).sum())
}

fn completions(d: &Driver) -> usize {
    let completion = EventKind::Completion.number();
    d.events.iter().filter(|e| e.kind == completion).count()
}

#[test]
fn a_core_that_sleeps_is_woken() -> Result<()> {
    let world = World::with_spin(1, &["a", "b"], Duration::ZERO)?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    for i in 0..300u64 {
        // Every other time the core has certainly gone to sleep.
        if i.is_multiple_of(2) {
            assert!(
                wait_for(|| !a.bells.no_kick() && !b.bells.no_kick()),
                "it never sleeps"
            );
        }
        b.receive(&mut qb, i, &[b.at(0, 64)]);
        a.done(&mut qa, &Wr::send(i, &[a.at(0, 64)]));
        b.cq.good(i);
    }
    assert!(a.bells.kicks > 0 && b.bells.kicks > 0);
    // Several entries, one look.
    assert!(wait_for(|| !a.bells.no_kick()));
    for i in 0..5 {
        b.receive(&mut qb, i, &[]);
    }
    b.bells.wait_taken();
    assert!(wait_for(|| !a.bells.no_kick()));
    for i in 0..5 {
        let index = qa.sends().write(&Wr::send(i, &[]));
        let bell = Doorbell {
            kind: Kind::Send,
            number: qa.number,
            index,
        };
        a.bells.write(bell.to_bits(false));
    }
    a.bells.kick_if_wanted();
    for i in 0..5 {
        a.cq.good(i);
        b.cq.good(i);
    }
    // Also while a shared receive queue has more than the device may hold.
    let mut srq = b.d.srq(b.pd, 16, 1, None);
    let spec = b.spec(QpType::Rc).shared(&srq);
    let (mut q1, q2) = (a.qp(QpType::Rc), b.d.qp(&spec));
    connect(&mut a.d, &q1, &mut b.d, &q2);
    for i in 0..32 {
        while srq.ring.producer.wrapping_sub(srq.taken()) == 16 {
            std::thread::yield_now();
        }
        srq.receive(&mut b.bells, i, &[]);
    }
    for i in 0..32 {
        let before = world.rig.core_counter("sleeps");
        a.d.sync();
        assert!(
            wait_for(|| world.rig.core_counter("sleeps") > before),
            "it does not sleep"
        );
        a.done(&mut q1, &Wr::send(i, &[]));
        b.cq.good(i);
    }
    // And while a QP waits for ever for somebody who is not there.
    let spec = QpSpec {
        blocks: 256,
        ..a.spec(QpType::Rc)
    };
    let mut lost = a.d.qp(&spec);
    let to_b = a.d.address_of(&mut b.d);
    let way = Link {
        timeout: 0,
        ..link(to_b, 0xab_cdef)
    };
    a.d.up(&lost, &way);
    for i in 0..256 {
        lost.sends().write(&Wr::send(i, &[]));
    }
    lost.ring(&mut a.bells);
    a.bells.wait_taken();
    let before = world.rig.core_counter("sleeps");
    a.d.sync();
    assert!(
        wait_for(|| world.rig.core_counter("sleeps") > before + 1),
        "it does not sleep"
    );
    a.d.to(&lost, QpState::Err);
    for i in 0..256 {
        a.cq.expect(i, Status::FlushError);
    }
    // Kicks too many do no harm.
    for _ in 0..10_000 {
        a.d.wake.write(1)?;
    }
    let handle = a.bells.handle;
    let body = Object { handle, reserved: 0 };
    a.d.ask::<_, [u8; 0]>(Opcode::DestroyDoorbells, &body, &[])
        .expect("DESTROY_DOORBELLS");
    world.finish()
}

#[test]
fn times_of_requests_of_reliable_queue_pairs_are_sampled() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut s, mut other) = (world.side("a")?, world.side("b")?);
    let latency = |adapter: &str| {
        let all = world.rig.nic.histograms();
        let mine = all
            .into_iter()
            .find(|h| h.owner == adapter && h.def.name == "message_latency");
        mine.expect("the histogram").values
    };
    assert_eq!(latency("a").count(), 0);
    let spec = s.spec(QpType::Rc);
    let (mut qa, qb) = (s.d.qp(&spec), other.d.qp(&other.spec(QpType::Rc)));
    connect(&mut s.d, &qa, &mut other.d, &qb);
    // One at a time: each is followed. (A completion is counted when the round that wrote it is over.)
    let remote = (other.mr.iova, other.mr.rkey);
    for i in 0..10 {
        let wr = Wr::new(i, Operation::Write, &[s.at(0, 8)]).remote(remote.0, remote.1);
        s.done(&mut qa, &wr);
        assert!(wait_for(|| latency("a").count() == i + 1), "request {i}");
    }
    assert!(latency("a").sum > 0);
    // One that has no completion is not, nor one that fails, nor is the responder's side.
    let silent = Wr::new(10, Operation::Write, &[s.at(0, 8)]).remote(remote.0, remote.1);
    qa.sends().write(&silent.silent());
    let bad = Wr::new(11, Operation::Write, &[s.at(1 << 20, 8)]).remote(remote.0, remote.1);
    s.fails(&mut qa, &bad, Status::LocalProtectionError);
    world.rig.settle()?;
    assert_eq!((latency("a").count(), latency("b").count()), (10, 0));
    world.finish()
}
