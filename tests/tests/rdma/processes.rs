//! Processes that share an adapter's RDMA function: each has handles of its own, all have one address, and none disturbs another.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, ensure};
use vnic_backend::{GidKind, GidSetting, NicEventKind};
use vnic_device::command::connection::{ConnectionEventKind as Told, Message};
use vnic_device::command::device::GidRecord;
use vnic_device::command::qp::{AddressVector, Multicast};
use vnic_device::command::queues::ModifySrq;
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::Kind;
use vnic_device::event::EventKind;
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{CompletionStatus as Status, QpType, srq_mask};
use vnic_device::zerocopy::IntoBytes;
use vnic_tests::driver::rdma::{Driver, Options, Qp, Side, World, Wr, connect, fill, link};
use vnic_tests::driver::rig::wait_for;

/// Processes that may share a function.
const PLACES: usize = 64;

fn options() -> Options {
    Options {
        shares: true,
        memory: 2 << 20,
        ..Options::default()
    }
}

/// A process at an adapter.
fn process(world: &World, adapter: &str) -> Result<Side> {
    Ok(Side::new(Driver::start(world.socket(adapter), options())?))
}

/// A process with two queue pairs.
struct Rank {
    side: Side,
    out: Qp,
    back: Qp,
}

impl Rank {
    fn at(world: &World, adapter: &str) -> Result<Rank> {
        let mut side = process(world, adapter)?;
        let (out, back) = (side.qp(QpType::Rc), side.qp(QpType::Rc));
        Ok(Rank { side, out, back })
    }

    /// Connects the queue pair to that of another, and sends messages both ways.
    fn talk(&mut self, other: &mut Rank, n: u64) {
        connect(&mut self.side.d, &self.out, &mut other.side.d, &other.back);
        message(
            (&mut self.side, &mut self.out),
            (&mut other.side, &mut other.back),
            n,
        );
        message(
            (&mut other.side, &mut other.back),
            (&mut self.side, &mut self.out),
            n + 1,
        );
    }
}

/// A SEND, and a WRITE, from a process to another.
fn message((a, qa): (&mut Side, &mut Qp), (b, qb): (&mut Side, &mut Qp), n: u64) {
    let bytes = fill(n, 3000);
    a.mr.area.write(0, &bytes);
    b.receive(qb, n, &[b.at(8192, 3000)]);
    a.done(qa, &Wr::send(n, &[a.at(0, 3000)]));
    b.cq.good(n);
    assert_eq!(b.mr.area.bytes(8192, 3000), bytes);
    let write = Wr::new(n, Operation::Write, &[a.at(0, 3000)]);
    a.done(qa, &write.remote(b.mr.iova + 100, b.mr.rkey));
    assert_eq!(b.mr.area.bytes(100, 3000), bytes);
}

/// Two of a list at once.
fn two<T>(all: &mut [T], first: usize, second: usize) -> (&mut T, &mut T) {
    let (low, high) = all.split_at_mut(first.max(second));
    match first < second {
        true => (&mut low[first], &mut high[0]),
        false => (&mut high[0], &mut low[second]),
    }
}

/// Asks for a connection to a service, which is accepted, or says why not.
fn ask((a, qa): (&mut Side, u32), (b, qb): (&mut Side, u32), service: u64) -> (u32, u32) {
    let to = a.d.address_of(&mut b.d);
    let request = Message {
        qp: qa,
        service,
        path_mtu: 3,
        ack_timeout: 14,
        response_timeout: 22,
        max_retries: 15,
        pkey: 0xffff,
        address: to,
        ..Message::default()
    };
    let active = a.d.ask_for(&request);
    let passive = b.d.connection_event(Told::Request).connection;
    let answer = Message {
        connection: passive,
        qp: qb,
        ..Message::default()
    };
    assert_eq!(b.d.status(Opcode::Accept, &answer, &[]), S::Ok);
    assert_eq!(a.d.connection_event(Told::Response).connection, active);
    let ready = Message {
        connection: active,
        ..Message::default()
    };
    assert_eq!(a.d.status(Opcode::Accept, &ready, &[]), S::Ok);
    assert_eq!(b.d.connection_event(Told::Established).connection, passive);
    (active, passive)
}

/// Ends a connection from its active side.
fn part((a, active): (&mut Side, u32), (b, passive): (&mut Side, u32)) {
    let say = |connection| Message {
        connection,
        ..Message::default()
    };
    assert_eq!(a.d.status(Opcode::Disconnect, &say(active), &[]), S::Ok);
    assert_eq!(b.d.connection_event(Told::Disconnected).connection, passive);
    assert_eq!(b.d.status(Opcode::Disconnect, &say(passive), &[]), S::Ok);
    for (side, connection) in [(a, active), (b, passive)] {
        // A side hears of the end before it forgets it; what it has not taken is forgotten with it.
        assert_eq!(
            side.d.status(
                Opcode::DestroyConnection,
                &Object {
                    handle: connection,
                    reserved: 0
                },
                &[]
            ),
            S::Ok
        );
    }
}

/// Each process has its services and connections; all have one queue pair 1.
#[test]
fn processes_that_share_a_function_connect_with_each_other_and_with_others() -> Result<()> {
    const BASE: u64 = 0x0106_4e20;
    // More than the messages of a turn.
    const LEFT: usize = 50;
    let world = World::new(2, &["a", "b"])?;
    let mut all = (0..4)
        .map(|_| Rank::at(&world, "a"))
        .collect::<Result<Vec<_>>>()?;
    all.push(Rank::at(&world, "b")?);
    for (service, rank) in (BASE..).zip(&mut all) {
        ensure!(rank.side.d.listen(service) == S::Ok);
    }
    for other in 0..4 {
        ensure!(all[(other + 1) % 4].side.d.listen(BASE + other as u64) == S::InUse);
    }
    // On another adapter the number is free.
    ensure!(all[4].side.d.listen(BASE) == S::Ok);
    for i in 0..5 {
        for j in (0..5).filter(|j| *j != i) {
            let (a, b) = two(&mut all, i, j);
            let (qa, qb) = (a.out.number, b.back.number);
            let (active, passive) = ask((&mut a.side, qa), (&mut b.side, qb), BASE + j as u64);
            part((&mut a.side, active), (&mut b.side, passive));
        }
    }
    // Those that are connected with a process hear of its end, on its adapter and on another, by many connections, too.
    let mut left = Vec::new();
    for other in [0, 4] {
        for _ in 0..LEFT {
            let (a, b) = two(&mut all, 1, other);
            let (qa, qb) = (a.side.qp(QpType::Rc).number, b.side.qp(QpType::Rc).number);
            let (_, passive) = ask((&mut a.side, qa), (&mut b.side, qb), BASE + other as u64);
            left.push((other, passive));
        }
    }
    // With the process its services end, and another may have them.
    let mut gone = all.remove(1);
    gone.side.d.hang_up();
    for (other, at) in [(0, 0), (4, 3)] {
        let events = all[at].side.d.connection_events(LEFT);
        ensure!(events.iter().all(|e| e.kind == Told::Disconnected.number()));
        let told: BTreeSet<u32> = events.iter().map(|e| e.message.connection).collect();
        let expected = left.iter().filter(|(who, _)| *who == other);
        ensure!(told == expected.map(|(_, passive)| *passive).collect());
    }
    let third = &mut all[1].side.d;
    ensure!(
        wait_for(|| third.listen(BASE + 1) == S::Ok),
        "the service is not free"
    );
    world.finish()
}

#[test]
fn as_many_as_there_are_places_share_a_function_and_talk_with_all() -> Result<()> {
    let world = World::new(2, &["a", "b"])?;
    let mut all = (0..PLACES)
        .map(|_| Rank::at(&world, "a"))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        Driver::attach(world.socket("a"), options()).is_err(),
        "there is no more place"
    );
    let numbers: BTreeSet<u32> = all.iter().flat_map(|r| [r.out.number, r.back.number]).collect();
    let keys: BTreeSet<u32> = all.iter().map(|r| r.side.mr.rkey >> 8).collect();
    ensure!((numbers.len(), keys.len()) == (2 * PLACES, PLACES));
    for i in 0..PLACES {
        let (this, next) = two(&mut all, i, (i + 1) % PLACES);
        this.talk(next, 10 * i as u64 + 1);
    }
    // Another adapter, on another core.
    let mut there = process(&world, "b")?;
    for (n, rank) in (1..).zip(all.iter_mut().step_by(9)) {
        let (mut own, mut other) = rank.side.pair(&mut there, QpType::Rc);
        message((&mut rank.side, &mut own), (&mut there, &mut other), n);
        message((&mut there, &mut other), (&mut rank.side, &mut own), n);
    }
    // The operator sees all queue pairs, each once, by pages of any size.
    for size in [1, 7, 64, 1000] {
        let (mut seen, mut behind) = (Vec::new(), None);
        loop {
            let page = world.rig.nic.queue_pairs("a", behind, size)?;
            seen.extend(page.rows.iter().map(|row| row.number.0));
            behind = page.next;
            if behind.is_none() {
                break;
            }
        }
        let unique: BTreeSet<u32> = seen.iter().copied().collect();
        ensure!(
            seen.len() == unique.len() && unique.is_superset(&numbers),
            "{size}"
        );
    }
    let number = all[40].out.number;
    ensure!(world.rig.nic.queue_pair("a", number)?.number.0 == number);
    ensure!(world.rig.nic.rdma_owners("a")?.all().count() == PLACES);
    // A place that was left is free for the next.
    drop(all.remove(5));
    ensure!(wait_for(|| process(&world, "a").is_ok()));
    drop((all, there));
    world.finish()
}

#[test]
fn a_guest_has_its_function_for_itself() -> Result<()> {
    let mut world = World::new(1, &["a", "b"])?;
    let mut guest = world.side("a")?;
    ensure!(Driver::attach(world.socket("a"), options()).is_err());
    guest.d.sync();
    let refused = |kind: &NicEventKind| matches!(kind, NicEventKind::VmmRefused { .. });
    world.rig.wait_event("a", refused)?;
    drop(guest);
    let mut first = None;
    ensure!(wait_for(|| {
        first = process(&world, "a").ok();
        first.is_some()
    }));
    // Nor comes a guest to processes, which go on, and may be more.
    ensure!(Driver::attach(world.socket("a"), Options::default()).is_err());
    let mut first = first.expect("opened");
    first.d.sync();
    let mut second = process(&world, "a")?;
    let (mut qa, mut qb) = first.pair(&mut second, QpType::Rc);
    message((&mut first, &mut qa), (&mut second, &mut qb), 7);
    drop((first, second));
    ensure!(wait_for(|| world.driver("a").is_ok()));
    world.finish()
}

#[test]
fn one_that_dies_leaves_nothing_and_disturbs_nobody() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let mut all = (0..6)
        .map(|_| Rank::at(&world, "a"))
        .collect::<Result<Vec<_>>>()?;
    let mut peer = process(&world, "b")?;
    let of_six = world.objects("a");
    for round in 0..20 {
        let mut victim = Rank::at(&world, "a")?;
        let (mut qv, mut qp) = victim.side.pair(&mut peer, QpType::Rc);
        message((&mut victim.side, &mut qv), (&mut peer, &mut qp), round);
        victim.talk(&mut all[0], round);
        // It dies with work on its way, in both directions.
        for n in 0..20 {
            let write = Wr::new(n, Operation::Write, &[victim.side.at(0, 200_000)]);
            victim
                .side
                .post(&mut qv, &write.remote(peer.mr.iova, peer.mr.rkey));
        }
        let counted = world.rig.counter("a", "rdma_tx_packets");
        victim.side.d.hang_up();
        drop(victim);
        for i in 1..6 {
            let (this, next) = two(&mut all, i, i % 5 + 1);
            if round == 0 {
                this.talk(next, 3 * i as u64);
            } else {
                message(
                    (&mut this.side, &mut this.out),
                    (&mut next.side, &mut next.back),
                    round,
                );
            }
        }
        let clean = || world.objects("a") == of_six;
        ensure!(wait_for(clean), "{:?}, not {of_six:?}", world.objects("a"));
        ensure!(world.rig.counter("a", "rdma_tx_packets") >= counted);
        // The survivors' own QPs that it was connected with are made anew.
        let spec = all[0].side.spec(QpType::Rc);
        let new = all[0].side.d.qp(&spec);
        let old = std::mem::replace(&mut all[0].back, new);
        all[0]
            .side
            .d
            .end(Opcode::DestroyQp, old.number)
            .expect("it is its own");
        peer.d.end(Opcode::DestroyQp, qp.number).expect("it is its own");
    }
    drop((all, peer));
    ensure!(wait_for(|| world.objects("a").is_empty()));
    world.finish()
}

#[test]
fn handles_and_keys_of_others_are_unknown() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let (mut a, mut b, mut c) = (
        process(&world, "a")?,
        process(&world, "a")?,
        process(&world, "a")?,
    );
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    message((&mut a, &mut qa), (&mut b, &mut qb), 1);
    for (opcode, handle) in [
        (Opcode::DestroyQp, qb.number),
        (Opcode::DeregisterMr, b.mr.handle),
        (Opcode::QueryQp, qb.number),
    ] {
        let refused = a.d.end(opcode, handle).expect_err("another's");
        ensure!(refused.status == S::NoSuchObject, "{opcode:?}: {refused}");
    }
    // A key opens what it belongs to, through a queue pair of the same process only.
    let write = |n: u64, from: &Side| Wr::new(n, Operation::Write, &[from.at(0, 100)]);
    let stolen = write(2, &a).remote(c.mr.iova, c.mr.rkey);
    a.fails(&mut qa, &stolen, Status::RemoteAccessError);
    let (mut qa, mut qc) = a.pair(&mut c, QpType::Rc);
    message((&mut a, &mut qa), (&mut c, &mut qc), 3);
    let mut element = a.at(0, 100);
    element.lkey = c.mr.lkey;
    let stolen = Wr::new(4, Operation::Write, &[element]).remote(c.mr.iova, c.mr.rkey);
    a.fails(&mut qa, &stolen, Status::LocalProtectionError);
    drop((a, b, c));
    world.finish()
}

#[test]
fn there_is_one_table_of_gids_which_the_operator_sets() -> Result<()> {
    let world = World::new(1, &["a"])?;
    let (mut a, mut b) = (process(&world, "a")?, process(&world, "a")?);
    let own = GidRecord {
        gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        index: 30,
        kind: 2,
        ..GidRecord::default()
    };
    for side in [&mut a, &mut b] {
        ensure!(side.d.status(Opcode::SetGid, own.as_bytes(), &[]) == S::NotPermitted);
    }
    let before = a.d.gids();
    let setting = GidSetting {
        gid: own.gid,
        kind: GidKind::RoceV2,
        vlan: None,
    };
    for index in [30, 12] {
        world.rig.nic.set_gid("a", Some(index), Some(setting))?;
        let mut late = process(&world, "a")?;
        for side in [&mut a, &mut b] {
            side.d.event(EventKind::GidChange);
        }
        for side in [&mut a, &mut b, &mut late] {
            let there = side.d.gids().into_iter().find(|g| g.index == index);
            ensure!(there.is_some_and(|g| g.gid == own.gid));
        }
        world.rig.nic.set_gid("a", Some(index), None)?;
    }
    for side in [&mut a, &mut b] {
        ensure!(wait_for(|| side.d.gids() == before));
    }
    drop((a, b));
    world.finish()
}

#[test]
fn each_gets_its_part_of_the_memory_however_much_another_takes() -> Result<()> {
    let mut world = World::new(1, &[])?;
    world.add_with("a", |spec| spec.rdma_memory_mib = 64)?;
    let mut hogs = [
        process(&world, "a")?,
        process(&world, "a")?,
        process(&world, "a")?,
    ];
    let mut meek = process(&world, "a")?;
    let refusals = hogs.each_mut().map(|hog| {
        let (spec, mark) = (hog.spec(QpType::Ud).without_receives(), hog.d.mark());
        loop {
            // (Nothing is posted there.)
            hog.d.release(mark);
            if let Err(refusal) = hog.d.try_qp(&spec) {
                assert_eq!(refusal.status, S::LimitReached, "{refusal}");
                break refusal.text().to_owned();
            }
        }
    });
    // Each has its own limits, and all together one.
    ensure!(!refusals[0].contains("processes"), "{refusals:?}");
    ensure!(
        refusals[2].contains("the processes of this adapter"),
        "{refusals:?}"
    );
    for _ in 0..8 {
        meek.qp(QpType::Rc);
    }
    let memory = world.rig.nic.rdma("a")?.expect("an RDMA function").daemon_memory;
    ensure!(memory.used <= memory.limit, "{memory:?}");
    // What one leaves, another gets.
    let [first, second, mut last] = hogs;
    drop((first, second));
    let (spec, mark) = (last.spec(QpType::Ud).without_receives(), last.d.mark());
    ensure!(wait_for(|| {
        last.d.release(mark);
        last.d.try_qp(&spec).is_ok()
    }));
    drop((last, meek));
    world.finish()
}

#[test]
fn one_with_many_queue_pairs_gets_no_more_turns_than_one_with_one() -> Result<()> {
    const EACH: u64 = 24;
    let world = World::new(1, &["a", "b"])?;
    let (mut meek, mut hog, mut peer) = (
        process(&world, "a")?,
        process(&world, "a")?,
        process(&world, "b")?,
    );
    let mut own = meek.pair(&mut peer, QpType::Rc).0;
    let mut many: Vec<Qp> = (0..12).map(|_| hog.pair(&mut peer, QpType::Rc).0).collect();
    let write = |side: &Side, n: u64| {
        let write = Wr::new(n, Operation::Write, &[side.at(0, 100_000)]);
        write.remote(peer.mr.iova, peer.mr.rkey)
    };
    for n in 0..EACH {
        let wr = write(&meek, n);
        meek.post(&mut own, &wr);
    }
    for n in 0..10 {
        for qp in &mut many {
            let wr = write(&hog, n);
            hog.post(qp, &wr);
        }
    }
    let mut end = 0;
    for n in 0..EACH {
        end = meek.cq.good(n).time;
    }
    let mut done = 0;
    while hog.cq.wait().time <= end {
        done += 1;
    }
    ensure!(done < 2 * EACH, "{done} of the other's were done");
    drop((meek, hog, peer));
    world.finish()
}

/// A place beside the first has room for 1024 requests in its queues: with 4000 receives posted, it still sends and takes messages,
/// by each of its queues.
#[test]
fn receives_that_wait_leave_room_to_send_and_to_take() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (first, mut here, mut there) = (
        process(&world, "a")?,
        process(&world, "a")?,
        process(&world, "b")?,
    );
    let mut srqs = [(); 2].map(|()| here.d.srq(here.pd, 2048, 1, None));
    for srq in &mut srqs {
        for n in 0..2000 {
            let index = srq.ring.write(n, &[here.mr.element(0, 8)]);
            if n % 100 == 99 {
                here.bells.ring(Kind::SharedReceive, srq.handle, index);
                here.bells.wait_taken();
            }
        }
        let body = ModifySrq {
            srq: srq.handle,
            mask: srq_mask::LIMIT,
            limit: 1998,
            max_wr: 0,
        };
        here.d
            .ask::<_, [u8; 0]>(Opcode::ModifySrq, &body, &[])
            .map_err(|reply| anyhow!("{reply:?}"))?;
    }
    for srq in &srqs {
        let spec = here.spec(QpType::Rc).shared(srq);
        let (mut qa, mut qb) = (here.d.qp(&spec), there.qp(QpType::Rc));
        connect(&mut here.d, &qa, &mut there.d, &qb);
        there.receive(&mut qb, 7, &[]);
        here.done(&mut qa, &Wr::send(8, &[]));
        there.cq.good(7);
        let mut own = here.qp(QpType::Rc);
        let back = here.d.qp(&spec);
        let address = here.d.own_address();
        here.d.up(&own, &link(address, back.number));
        here.d.up(&back, &link(address, own.number));
        for n in 0..3 {
            ensure!(
                here.d.count_events(EventKind::SrqLimitReached) == 0,
                "{n} were taken"
            );
            match n {
                0 => drop(here.post(&mut own, &Wr::send(9, &[]))),
                _ => drop(there.done(&mut qb, &Wr::send(n, &[]))),
            }
            ensure!(here.cq.wait().status == 0);
            if n == 0 {
                ensure!(here.cq.wait().status == 0);
            }
            // What is complete is free, so that the driver can post as many again.
            ensure!(u64::from(srq.taken()) > n, "{} are free", srq.taken());
        }
        ensure!(here.d.event(EventKind::SrqLimitReached).object == srq.handle);
    }
    drop((first, here, there));
    world.finish()
}

#[test]
fn groups_reach_members_in_all_processes_but_the_sender() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let group = *b"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\x07";
    let mut all = [
        process(&world, "a")?,
        process(&world, "a")?,
        process(&world, "a")?,
        process(&world, "b")?,
    ];
    let mut members: Vec<Qp> = Vec::new();
    for side in &mut all {
        let qp = side.qp(QpType::Ud);
        let own = side.d.own_address();
        side.d.up(&qp, &link(own, 0));
        let body = Multicast {
            qp: qp.number,
            reserved: 0,
            gid: group,
        };
        ensure!(side.d.status(Opcode::AttachMulticast, &body, &[]) == S::Ok);
        members.push(qp);
    }
    for sender in 0..all.len() {
        for (side, qp) in all.iter_mut().zip(&mut members) {
            side.receive(qp, 1, &[side.at(0, 1000)]);
            side.bells.wait_taken();
        }
        let side = &mut all[sender];
        let to = AddressVector {
            dgid: group,
            dmac: [0; 6],
            ..side.d.own_address()
        };
        let ah = side.d.ah(side.pd, to);
        let bytes = fill(sender as u64, 500);
        side.mr.area.write(2000, &bytes);
        side.done(
            &mut members[sender],
            &Wr::send(9, &[side.at(2000, 500)]).to(ah, 0xff_ffff),
        );
        for (i, side) in all.iter_mut().enumerate().filter(|(i, _)| *i != sender) {
            side.cq.good(1);
            ensure!(side.mr.area.bytes(40, 500) == bytes, "{i}");
        }
    }
    drop(all);
    world.finish()
}
