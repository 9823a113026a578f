//! Mirror sessions: who gets copies of what, and that nothing else changes for anybody.

use anyhow::{Result, ensure};
use vnic_backend::{
    BondSpec, DropReason, MirrorDirection, MirrorSpec, MirrorStatus, NicError, PortKind, PortSpec,
};
use vnic_device::verbs::QpType;
use vnic_tests::driver::packets::{BROADCAST, Flow, Number, numbered, parse, pattern, tagged, tso};
use vnic_tests::driver::rdma::{World, Wr, fill};
use vnic_tests::driver::rig::{Copies, Rig, deadline};
use vnic_tests::driver::{Guest, NetHdr, OFFLOADS, Options};

fn n(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 3,
        seq,
    }
}

fn mirror(name: &str, source: &str, direction: MirrorDirection, destination: &str) -> MirrorSpec {
    MirrorSpec {
        name: name.into(),
        source: source.into(),
        direction,
        destination: destination.into(),
    }
}

/// A port whose other end is a queue of this test.
fn port(name: &str) -> PortSpec {
    PortSpec::new(name, PortKind::Mesh { label: name.into() })
}

fn send(guest: &mut Guest, frame: &[u8]) {
    guest.send_wait(0, frame, NetHdr::default());
}

fn get(guest: &mut Guest) -> Vec<u8> {
    guest.recv(0, deadline()).expect("a frame").2
}

/// Nothing more is there for a guest.
fn quiet(rig: &Rig, guest: &mut Guest) -> Result<()> {
    rig.settle()?;
    let more = guest.try_recv(0);
    ensure!(more.is_none(), "{more:?}");
    Ok(())
}

fn counts(status: &MirrorStatus) -> (u64, u64) {
    (status.mirrored, status.dropped)
}

#[test]
fn a_session_copies_its_directions_and_the_destination_gets_nothing_else() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let (c, m) = (rig.add("c")?, rig.add("m")?);
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let mut gc = rig.attach("c", Options::default())?;
        let mut gm = rig.attach("m", Options::default())?;
        // Before: an adapter as others.
        send(&mut gm, &numbered(a, m, n(0), 60));
        get(&mut ga);
        for direction in MirrorDirection::ALL {
            let (rx, tx) = (direction != MirrorDirection::Tx, direction != MirrorDirection::Rx);
            rig.nic.add_mirror(mirror("s", "a", direction, "m"))?;
            let mut copies = 0;
            let mut copied = |wanted: bool, guest: &mut Guest, frame: &[u8]| {
                if wanted {
                    assert_eq!(get(guest), frame, "{direction:?}");
                    copies += 1;
                }
            };
            for i in 0..20 {
                let f = numbered(b, a, n(i), 60 + 40 * i as usize);
                send(&mut ga, &f);
                assert_eq!(get(&mut gb), f);
                copied(tx, &mut gm, &f);
                // As the source gets it or sends it: with its tag.
                let f = tagged(&numbered(a, b, n(100 + i), 100), 9);
                send(&mut gb, &f);
                assert_eq!(get(&mut ga), f);
                copied(rx, &mut gm, &f);
                send(&mut gc, &numbered(b, c, n(200 + i), 100));
                get(&mut gb);
            }
            // A flooded frame is copied because the source gets it, and does not reach the destination as such.
            let f = numbered(BROADCAST, c, n(300), 70);
            send(&mut gc, &f);
            assert_eq!((get(&mut ga), get(&mut gb)), (f.clone(), f.clone()));
            copied(rx, &mut gm, &f);
            quiet(&rig, &mut gm)?;
            // What is for the destination and what comes from it is dropped, and a trace says so.
            let before = (
                rig.drops("c", DropReason::MirrorDestination),
                rig.drops("m", DropReason::MirrorDestination),
            );
            let (to, from) = (numbered(m, c, n(301), 60), numbered(a, m, n(302), 60));
            send(&mut gc, &to);
            send(&mut gm, &from);
            gc.drain();
            gm.drain();
            quiet(&rig, &mut gm)?;
            quiet(&rig, &mut ga)?;
            let after = (
                rig.drops("c", DropReason::MirrorDestination),
                rig.drops("m", DropReason::MirrorDestination),
            );
            assert_eq!(after, (before.0 + 1, before.1 + 1));
            for (owner, frame) in [("c", &to), ("m", &from)] {
                let trace = rig.nic.trace(owner, frame, frame.len())?;
                assert_eq!(trace.dropped, Some(DropReason::MirrorDestination), "{trace:?}");
            }
            let traced = |owner: &str, to, from| -> Result<usize> {
                let frame = numbered(to, from, n(303), 60);
                let steps = rig.nic.trace(owner, &frame, frame.len())?.steps;
                Ok(steps.iter().filter(|(name, _)| *name == "mirror").count())
            };
            assert_eq!(traced("a", b, a)?, usize::from(tx));
            assert_eq!(traced("b", a, b)?, usize::from(rx));
            assert_eq!(traced("c", b, c)?, 0);
            assert_eq!(counts(&rig.nic.mirror("s")?), (copies, 0));
            assert_eq!(counts(&rig.nic.remove_mirror("s")?), (copies, 0));
            // An adapter as others again.
            send(&mut gm, &numbered(a, m, n(304), 60));
            get(&mut ga);
            send(&mut ga, &numbered(m, a, n(305), 60));
            get(&mut gm);
            quiet(&rig, &mut gm)?;
        }
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// The books of a destination are those of every receiver, and what it does not take costs nobody else a frame.
#[test]
fn a_destination_without_buffers_costs_only_copies() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        rig.add("m")?;
        let mut ga = rig.attach("a", Options::default())?;
        let mut gb = rig.attach("b", Options::default())?;
        let few = Options {
            post: 8,
            repost: false,
            ..Options::default()
        };
        let mut gm = rig.attach("m", few)?;
        rig.nic.add_mirror(mirror("s", "a", MirrorDirection::Tx, "m"))?;
        for i in 0..50 {
            let f = numbered(b, a, n(i), 100);
            send(&mut ga, &f);
            assert_eq!(get(&mut gb), f);
        }
        for _ in 0..8 {
            get(&mut gm);
        }
        quiet(&rig, &mut gm)?;
        assert_eq!(counts(&rig.nic.mirror("s")?), (50, 0));
        assert_eq!(rig.drops("m", DropReason::NoRxBuffer), 42);
        assert_eq!(rig.core_counter("mirrored"), 50);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A request is copied as it was sent, and cut for a destination that does not take it.
#[test]
fn requests_are_finished_for_the_destination() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    rig.add("m")?;
    let big = || Options {
        tx_buffer: 10_000,
        ..Options::default()
    };
    let mut ga = rig.attach("a", big().with(OFFLOADS))?;
    let mut gb = rig.attach("b", big().with(OFFLOADS))?;
    let mut gm = rig.attach("m", Options::default())?;
    rig.nic.add_mirror(mirror("s", "a", MirrorDirection::Tx, "m"))?;
    let flow = Flow {
        to: b,
        from: a,
        v6: false,
        vlan: None,
        port: 9,
    };
    let (frame, hdr) = tso(&flow, &pattern(5000), 1000);
    ga.send_wait(0, &frame, hdr);
    assert_eq!(gb.recv(0, deadline()).expect("the request").2.len(), frame.len());
    let mut payload = Vec::new();
    for _ in 0..5 {
        let segment = parse(&get(&mut gm));
        payload.extend(segment.payload);
    }
    assert_eq!(payload, pattern(5000));
    quiet(&rig, &mut gm)?;
    assert_eq!(counts(&rig.nic.mirror("s")?), (1, 0));
    rig.finish(Copies::Unknown)
}

/// Packets between RDMA functions of neighbours, which are no frames otherwise.
#[test]
fn packets_of_rdma_functions_are_copied_as_frames() -> Result<()> {
    for cores in [1, 2] {
        copied_packets(cores)?;
    }
    Ok(())
}

fn copied_packets(cores: usize) -> Result<()> {
    let mut world = World::new(cores, &["a", "b", "m"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    // The function of the destination has a driver, and is no end of the packets.
    let _m = world.side("m")?;
    let mut gm = world.rig.attach("m", Options::default())?;
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    let mut message = |id: u64| {
        let bytes = fill(id, 500);
        a.mr.area.write(4096, &bytes);
        b.receive(&mut qb, id, &[b.at(8192, 500)]);
        a.done(&mut qa, &Wr::send(id, &[a.at(4096, 500)]));
        assert_eq!(b.cq.good(id).byte_len, 500);
        assert_eq!(b.mr.area.bytes(8192, 500), bytes);
        bytes
    };
    message(1);
    quiet(&world.rig, &mut gm)?;
    world
        .rig
        .nic
        .add_mirror(mirror("s", "a", MirrorDirection::Both, "m"))?;
    let bytes = message(2);
    // The SEND, and its acknowledgement.
    let frames = [get(&mut gm), get(&mut gm)];
    let contains = |f: &Vec<u8>| f.windows(500).any(|w| w == bytes);
    assert_eq!(frames.iter().filter(|f| contains(f)).count(), 1);
    assert_eq!(
        frames.map(|f| f.len() > 500).iter().filter(|long| **long).count(),
        1
    );
    quiet(&world.rig, &mut gm)?;
    world.rig.nic.remove_mirror("s")?;
    message(3);
    quiet(&world.rig, &mut gm)
}

#[test]
fn sessions_follow_their_ports_and_no_copy_is_copied() -> Result<()> {
    let mut rig = Rig::new(2)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    rig.add("m")?;
    rig.nic.add_port_exchange(port("p0"))?;
    rig.nic.add_port_exchange(port("p1"))?;
    let both = MirrorDirection::Both;
    rig.nic.add_mirror(mirror("s", "a", both, "m"))?;
    for (spec, field) in [
        (mirror("t", "a", both, "a"), "destination"),
        (mirror("t", "nobody", both, "m"), "source"),
        (mirror("t", "a", both, "nobody"), "destination"),
        (mirror("t", "m", both, "b"), "source"),
        (mirror("t", "b", both, "a"), "destination"),
        (mirror("T", "b", both, "m"), "name"),
    ] {
        match rig.nic.add_mirror(spec.clone()) {
            Err(NicError::Invalid { field: named, .. }) => assert_eq!(named, field, "{spec:?}"),
            other => panic!("{spec:?}: {other:?}"),
        }
    }
    let again = rig.nic.add_mirror(mirror("s", "b", both, "m"));
    assert!(matches!(again, Err(NicError::Exists { kind: "mirror", .. })));
    let unknown = rig.nic.remove_mirror("t");
    assert!(matches!(unknown, Err(NicError::NotFound { kind: "mirror", .. })));
    // A port that carries copies carries nothing else, and a bond's member carries no copies only.
    rig.nic.add_mirror(mirror("wire", "b", both, "p0"))?;
    let bond = |member: &str| BondSpec::new("t0", vec![member.into()]);
    let refused = rig.nic.set_bond(bond("p0"));
    assert!(
        matches!(refused, Err(NicError::Invalid { field: "members", .. })),
        "{refused:?}"
    );
    rig.nic.set_bond(bond("p1"))?;
    let refused = rig.nic.add_mirror(mirror("t", "b", both, "p1"));
    assert!(
        matches!(
            refused,
            Err(NicError::Invalid {
                field: "destination",
                ..
            })
        ),
        "{refused:?}"
    );
    // The session waits for its ends, and finds them again.
    rig.nic.remove_adapter("a")?;
    let problem = rig.nic.mirror("s")?.problem.expect("a problem");
    assert!(problem.contains("named a"), "{problem}");
    rig.add_with("a", |s| s.macs = vec![a])?;
    assert_eq!(rig.nic.mirror("s")?.problem, None);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let f = numbered(b, a, n(1), 80);
    rig.nic.remove_adapter("m")?;
    send(&mut ga, &f);
    assert_eq!(get(&mut gb), f);
    rig.add("m")?;
    let mut gm = rig.attach("m", Options::default())?;
    send(&mut ga, &f);
    assert_eq!((get(&mut gb), get(&mut gm)), (f.clone(), f));
    quiet(&rig, &mut gm)?;
    assert_eq!(rig.nic.mirrors().len(), 2);
    // One that is brought back may wait from the beginning.
    rig.nic.remove_mirror("s")?;
    let waiting = rig.nic.restore_mirror(mirror("later", "z", both, "m"))?;
    assert!(waiting.problem.is_some());
    rig.add("z")?;
    assert_eq!(rig.nic.mirror("later")?.problem, None);
    rig.finish(Copies::Unknown)
}
