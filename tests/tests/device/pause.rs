//! Pause on an uplink's wire: MAC control frames that come are obeyed by priority, and sent for whoever is congested behind
//! the uplink. The wire is the other end of a TAP device.

use std::time::Duration;

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, FlowControl, QosKeys, Trust};
use vnic_backend::{DropReason, MacAddr, QosSpec, Tsa, VirtualClock};
use vnic_tests::driver::packets::{Flow, Number, number_of, numbered, tagged, udp};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options, Wire};
use vnic_wire::pause::Frame;

/// A host behind the uplink.
const HOST: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
/// Where MAC control goes.
const CONTROL: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];

/// The wire of an uplink; none where this machine makes no TAP devices.
fn wire_of(rig: &Rig, what: &str, core: usize) -> Result<Option<Wire>> {
    Wire::of_port(rig, &format!("vn{what}{}", std::process::id()), Some(core))
}

/// The next pause frame of the NIC's.
fn pause(wire: &Wire) -> Result<(Frame, Vec<u8>)> {
    let f = wire.recv(|f| f.starts_with(&CONTROL) && f[6..12] != HOST.0)?;
    Ok((Frame::parse(&f)?, f))
}

fn priorities(enabled: u8, quanta: u16) -> Vec<u8> {
    let frame = Frame::Priorities {
        enabled,
        quanta: [quanta; 8],
    };
    frame.emit(HOST).to_vec()
}

fn global(quanta: u16) -> Vec<u8> {
    Frame::Global(quanta).emit(HOST).to_vec()
}

/// UDP to the host behind the uplink, its priority in the DSCP (the kernel hides tags from this end of the wire), its number
/// in the port.
fn packet(from: MacAddr, priority: u8, number: u16) -> Vec<u8> {
    let flow = Flow {
        to: HOST,
        from,
        v6: false,
        vlan: None,
        port: 1000 + number,
    };
    let mut f = udp(&flow, &[9; 60]);
    f[15] = priority << 5;
    f
}

/// Priority and number of such a packet.
fn read(f: &[u8]) -> Option<(u8, u16)> {
    let ours = f.get(..6)? == HOST.0 && f.get(12..14)? == [8, 0];
    ours.then(|| (f[15] >> 5, u16::from_be_bytes([f[34], f[35]]) - 1000))
}

/// An uplink that believes the DSCP and has priority flow control on these priorities. Its speed makes pause last: 65535
/// quanta are 33 s at 1 Mbit/s.
fn uplink(pfc: u8, rate: u64) -> QosSpec {
    QosSpec {
        rate,
        pfc,
        keys: QosKeys {
            priorities: Trust::Dscp.into(),
            ..QosKeys::default()
        },
        ..QosSpec::default()
    }
}

fn stage(g: &mut Guest, f: &[u8]) {
    assert!(g.stage(0, f, NetHdr::default()), "room for all frames");
}

fn wide() -> Options {
    Options {
        queue_size: 1024,
        ..Options::default()
    }
}

/// What comes out of the wire until there are so many of a priority.
fn until(wire: &Wire, priority: u8, n: usize) -> Result<Vec<(u8, u16)>> {
    let mut all = vec![];
    wire.recv(|f| {
        all.extend(read(f));
        all.iter().filter(|(p, _)| *p == priority).count() == n
    })?;
    Ok(all)
}

/// Frames of two adapters with one priority have two classes on the wire: one has a table of its own there, which was given before the
/// adapter was made.
#[test]
fn one_priority_leaves_in_classes_by_the_port_it_came_by() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add("a")?;
        let Some(wire) = wire_of(&rig, &format!("s{cores}x"), cores - 1)? else {
            return Ok(());
        };
        let mut plain = uplink(0b1000, 1_000_000);
        plain.classes.tsa = [Tsa::Strict; 8];
        let mut tables = plain.clone();
        tables.classes_by_port.insert("b".to_owned(), [7; 16]);
        rig.nic.set_qos("p0", tables.clone())?;
        let b = rig.add("b")?;
        let (mut ga, mut gb) = (rig.attach("a", wide())?, rig.attach("b", wide())?);
        // By tables, without them, and without while frames wait: strict classes in their order, or the sources in the order in which they began.
        for (before, after, classes) in [
            (&tables, &tables, [3, 7]),
            (&plain, &plain, [3, 3]),
            (&tables, &plain, [3, 7]),
        ] {
            rig.nic.set_qos("p0", before.clone())?;
            let queues = || rig.nic.qos("p0").map(|q| q.queues);
            wire.send(&priorities(0b1000, 0xffff))?;
            assert!(wait_for(|| queues().is_ok_and(|q| q.paused == 0b1000)));
            for i in 0..10 {
                stage(&mut ga, &packet(a, 3, i));
            }
            ga.ring(1).publish();
            assert!(wait_for(|| queues().is_ok_and(|q| q.frames == 10)));
            for i in 10..20 {
                stage(&mut gb, &packet(b, 3, i));
            }
            gb.ring(1).publish();
            assert!(wait_for(|| queues().is_ok_and(|q| q.frames == 20)));
            let bytes = queues()?.bytes;
            let filled: Vec<usize> = (0..8).filter(|class| bytes[*class] != 0).collect();
            let mut wanted = classes.to_vec();
            wanted.dedup();
            assert_eq!(filled, wanted);
            rig.nic.set_qos("p0", after.clone())?;
            wire.send(&priorities(0b1000, 0))?;
            let numbers: Vec<u16> = until(&wire, 3, 20)?.iter().map(|(_, n)| *n).collect();
            let of_b = numbers[..10].iter().filter(|n| **n >= 10).count();
            match after.classes_by_port.is_empty() {
                false => assert_eq!(of_b, 10, "{numbers:?}"),
                // (A turn is longer than ten of these frames.)
                true => assert_eq!(of_b, 0, "{numbers:?}"),
            }
        }
        // The adapter goes: its number may be another's.
        rig.nic.set_qos("p0", tables)?;
        assert_eq!(rig.nic.qos("p0")?.acting.classes.by_source.len(), 1);
        drop(gb);
        rig.nic.remove_adapter("b")?;
        assert_eq!(rig.nic.qos("p0")?.acting.classes.by_source, []);
        ga.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Only the priority that is told to waits, until XON, or until its time is over.
#[test]
fn pause_of_a_priority_stops_that_priority() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add("a")?;
        let Some(wire) = wire_of(&rig, &format!("a{cores}x"), cores - 1)? else {
            return Ok(());
        };
        let mut ga = rig.attach("a", wide())?;
        rig.nic.set_qos("p0", uplink(0b1000, 1_000_000))?;
        wire.send(&priorities(0b1001, 0xffff))?;
        assert!(wait_for(|| rig
            .nic
            .qos("p0")
            .is_ok_and(|q| q.queues.paused == 0b1000)));
        for i in 0..10 {
            stage(&mut ga, &packet(a, 3, i));
            stage(&mut ga, &packet(a, 0, i));
        }
        ga.ring(1).publish();
        let all = until(&wire, 0, 10)?;
        assert_eq!(all, (0..10).map(|i| (0, i)).collect::<Vec<_>>());
        assert!(wait_for(|| rig
            .nic
            .qos("p0")
            .is_ok_and(|q| q.queues.frames == 10)));
        wire.send(&priorities(0b1000, 0))?;
        let all = until(&wire, 3, 10)?;
        assert_eq!(all, (0..10).map(|i| (3, i)).collect::<Vec<_>>());
        assert!(wait_for(|| rig.nic.qos("p0").is_ok_and(|q| q.queues.paused == 0)));
        // A time that is over by itself: 2000 quanta at 10 Mbit/s are 0.1 s.
        rig.nic.set_qos("p0", uplink(0b1000, 10_000_000))?;
        wire.send(&priorities(0b1000, 2000))?;
        for i in 0..10 {
            ga.send_wait(0, &packet(a, 3, i), NetHdr::default());
        }
        assert_eq!(until(&wire, 3, 10)?.len(), 10);
        // What has left is counted afterwards.
        rig.settle()?;
        assert_eq!(rig.priority_counter("p0", 3, "rx_pause"), 3);
        assert_eq!(rig.priority_counter("p0", 0, "rx_pause"), 1);
        assert!(wait_for(
            || rig.priority_counter("p0", 3, "rx_pause_transitions") == 2
        ));
        assert!(rig.priority_counter("p0", 3, "rx_pause_us") > 0);
        assert_eq!(rig.priority_counter("p0", 0, "rx_pause_us"), 0);
        assert!(rig.counter("p0", "rx_control_frames") >= 3);
        assert_eq!(rig.priority_counter("p0", 3, "tx_frames"), 20);
        // MAC control is none of the switch's business.
        assert_eq!(rig.drops("p0", DropReason::MacControl), 0);
        ga.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Pause frames name code points, where those of priorities are others.
#[test]
fn pause_frames_name_code_points() -> Result<()> {
    let mut rig = Rig::new(1)?;
    rig.add("a")?;
    let Some(wire) = wire_of(&rig, "c", 0)? else {
        return Ok(());
    };
    let mut spec = uplink(0b1000, 1_000_000);
    spec.tags.pcp[3] = 5;
    rig.nic.set_qos("p0", spec)?;
    wire.send(&priorities(0b1000, 0xffff))?;
    wire.send(&priorities(0b10_0000, 0xffff))?;
    let paused = || rig.nic.qos("p0").map(|q| q.queues.paused);
    assert!(wait_for(|| rig.counter("p0", "rx_control_frames") >= 2));
    assert_eq!(paused()?, 0b1000, "code point 5 is priority 3");
    wire.send(&priorities(0b1000, 0))?;
    assert!(wait_for(|| rig.counter("p0", "rx_control_frames") >= 3));
    assert_eq!(paused()?, 0b1000, "code point 3 is none");
    wire.send(&priorities(0b10_0000, 0))?;
    assert!(wait_for(|| paused().is_ok_and(|p| p == 0)));
    rig.nic.set_pause_storm("a", Some(0b1000))?;
    let (frame, _) = pause(&wire)?;
    let Frame::Priorities { enabled, quanta } = frame else {
        panic!("a pause frame of priorities");
    };
    assert_eq!((enabled, quanta[5]), (0b10_0000, 0xffff));
    rig.nic.set_pause_storm("a", None)?;
    rig.finish(Copies::Unknown)?;
    Ok(())
}

/// Global pause is obeyed where nothing is configured, unless the configuration says otherwise. Frames without sense are
/// counted and nothing else.
#[test]
fn global_pause_stops_everything() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add("a")?;
    let Some(wire) = wire_of(&rig, "g", 0)? else {
        return Ok(());
    };
    let mut ga = rig.attach("a", wide())?;
    // Without a speed a quantum is 5.12 ns: the longest pause is over soon, so it is repeated until it was seen.
    assert!(wait_for(|| {
        wire.send(&global(0xffff)).expect("the wire is there");
        rig.nic.qos("p0").is_ok_and(|q| q.queues.paused == 0xff)
    }));
    for i in 0..10 {
        ga.send_wait(0, &packet(a, (i % 8) as u8, i), NetHdr::default());
    }
    let mut n = 0;
    wire.recv(|f| {
        n += u16::from(read(f).is_some());
        n == 10
    })?;
    assert!(rig.counter("p0", "rx_pause") > 0);
    assert!(wait_for(|| rig.nic.qos("p0").is_ok_and(|q| q.queues.paused == 0)));
    let controls = rig.counter("p0", "rx_control_frames");
    for junk in [
        &CONTROL[..],
        &[CONTROL, HOST.0].concat(),
        &[&CONTROL[..], &HOST.0, &[0x88, 0x08, 9, 9, 1]].concat(),
    ] {
        let mut frame = junk.to_vec();
        frame.resize(60, 0);
        wire.send(&frame)?;
    }
    assert!(wait_for(|| rig.counter("p0", "rx_control_frames") == controls + 3));
    // Switched off, it is not obeyed.
    let mut deaf = uplink(0, 1_000_000);
    deaf.keys.flow_control = FlowControl::Transmit;
    rig.nic.set_qos("p0", deaf)?;
    wire.send(&global(0xffff))?;
    assert!(wait_for(|| rig.counter("p0", "rx_control_frames") == controls + 4));
    for i in 0..10 {
        ga.send_wait(0, &packet(a, 3, i), NetHdr::default());
    }
    assert_eq!(until(&wire, 3, 10)?.len(), 10);
    ga.drain();
    rig.finish(Copies::Unknown)
}

/// A guest behind the uplink has no room: the wire's other end is told, by priority or all of it, again and again, and when
/// it is over.
#[test]
fn who_is_congested_tells_the_wire() -> Result<()> {
    for (cores, pfc, negotiated) in [
        (1, 0b1000, false),
        (2, 0b1000, false),
        (1, 0, false),
        (2, 0, true),
    ] {
        let mut rig = Rig::new(cores)?;
        let b = rig.add("b")?;
        let Some(wire) = wire_of(&rig, &format!("t{cores}{pfc}x"), cores - 1)? else {
            return Ok(());
        };
        let mut congested = QosSpec {
            pfc,
            ..QosSpec::default()
        };
        (congested.buffer.xoff, congested.buffer.xon) = (4 << 10, 2 << 10);
        let waits = pfc != 0 || negotiated;
        if !waits {
            // Global pause that is on by default does not make frames wait for a guest's buffers, a slow link does.
            congested.rate = 1_000_000;
        }
        rig.nic.set_qos("b", congested)?;
        if negotiated {
            let mut settings = AdapterSettings::default();
            settings.qos.flow_control = FlowControl::Negotiated;
            rig.nic.apply_qos_keys("b", &settings)?;
        }
        rig.nic.set_qos("p0", uplink(pfc, 0))?;
        let mut gb = rig.attach("b", Options { post: 0, ..wide() })?;
        if !waits {
            gb.post(0, 1024);
        }
        let n = |seq| Number {
            sender: 0,
            stream: 0,
            seq,
        };
        for seq in 0..20 {
            wire.send(&tagged(&numbered(b, HOST, n(seq), 500), 3 << 13))?;
        }
        let xoff = match pfc {
            0 => Frame::Global(0xffff),
            _ => Frame::Priorities {
                enabled: 0b1000,
                quanta: [0, 0, 0, 0xffff, 0, 0, 0, 0],
            },
        };
        let (first, bytes) = pause(&wire)?;
        assert_eq!(first, xoff);
        assert_eq!(
            (&bytes[..6], &bytes[12..14], bytes.len()),
            (&CONTROL[..], &[0x88, 0x08][..], 60)
        );
        // Its own address, always the same, and locally administered.
        assert_eq!(bytes[6] & 3, 2);
        let (again, repeated) = pause(&wire)?;
        assert_eq!((again, &repeated[6..12]), (xoff, &bytes[6..12]));
        if waits {
            gb.post(0, 1024);
        }
        let mut got = 0;
        assert!(wait_for(|| {
            while let Some((_, _, f)) = gb.try_recv(0) {
                // The host speaks as well (neighbour discovery).
                if f.get(12..14) != Some(&[0x81, 0][..]) {
                    continue;
                }
                let plain = [&f[..12], &f[16..]].concat();
                assert_eq!(number_of(&plain).map(|n| n.seq), Some(got));
                got += 1;
            }
            got == 20
        }));
        let end = match pfc {
            0 => Frame::Global(0),
            _ => Frame::Priorities {
                enabled: 0b1000,
                quanta: [0; 8],
            },
        };
        let (mut last, _) = pause(&wire)?;
        while last == xoff {
            last = pause(&wire)?.0;
        }
        assert_eq!(last, end);
        let (told, us) = match pfc {
            0 => (rig.counter("p0", "tx_pause"), rig.counter("p0", "tx_pause_us")),
            _ => (
                rig.priority_counter("p0", 3, "tx_pause"),
                rig.priority_counter("p0", 3, "tx_pause_us"),
            ),
        };
        assert!(told >= 3 && us > 0, "{told} {us}");
        assert_eq!(rig.nic.qos("p0")?.queues.pausing, 0);
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Lets time pass until the wire has been told more than `n` times: the kernel brings frames when it likes.
fn told_more(rig: &Rig, clock: &VirtualClock, n: u64) -> bool {
    wait_for(|| {
        clock.pass(Duration::from_micros(30));
        times_told(rig) > n
    })
}

/// Pause frames of `p0`: for all, and for priority 3.
fn times_told(rig: &Rig) -> u64 {
    rig.counter("p0", "tx_pause") + rig.priority_counter("p0", 3, "tx_pause")
}

/// A peer that has not heard is told again as soon as it goes on; one that may go on, until it is heard. What the first frame says lasts
/// 33 s of virtual time.
#[test]
fn who_has_not_heard_is_told_again() -> Result<()> {
    let clock = VirtualClock::new(Duration::from_micros(1));
    let mut rig = Rig::with_clock(clock.clone())?;
    let b = rig.add("b")?;
    let Some(wire) = wire_of(&rig, "nhx", 0)? else {
        return Ok(());
    };
    let mut congested = QosSpec {
        pfc: 0b1000,
        ..QosSpec::default()
    };
    (congested.buffer.xoff, congested.buffer.xon) = (4 << 10, 2 << 10);
    rig.nic.set_qos("b", congested.clone())?;
    congested.rate = 1_000_000;
    rig.nic.set_qos("p0", congested)?;
    let mut gb = rig.attach("b", Options { post: 0, ..wide() })?;
    let mut seq = 0;
    let mut send = |frames: u64| -> Result<()> {
        for _ in 0..frames {
            let number = Number {
                sender: 0,
                stream: 0,
                seq,
            };
            wire.send(&tagged(&numbered(b, HOST, number, 500), 3 << 13))?;
            seq += 1;
        }
        Ok(())
    };
    let pass = || clock.pass(Duration::from_micros(500));
    let says = |quanta| Frame::Priorities {
        enabled: 0b1000,
        quanta: [0, 0, 0, quanta, 0, 0, 0, 0],
    };
    send(20)?;
    assert!(told_more(&rig, &clock, 0));
    assert_eq!(pause(&wire)?.0, says(0xffff));
    for _ in 0..5 {
        let before = times_told(&rig);
        send(1)?;
        assert!(told_more(&rig, &clock, before));
        assert_eq!(pause(&wire)?.0, says(0xffff));
    }
    gb.post(0, 1024);
    pass();
    let mut last = pause(&wire)?.0;
    while last == says(0xffff) {
        last = pause(&wire)?.0;
    }
    for _ in 0..3 {
        assert_eq!(last, says(0));
        pass();
        last = pause(&wire)?.0;
    }
    let told = || rig.priority_counter("p0", 3, "tx_pause");
    assert!(told() >= 10);
    // Heard: nothing is said any more, however long that is.
    send(1)?;
    let mut got = 0;
    assert!(wait_for(|| {
        pass();
        // The host speaks as well (neighbour discovery).
        while let Some((_, _, f)) = gb.try_recv(0) {
            got += u64::from(f.get(12..14) == Some(&[0x81, 0][..]));
        }
        got == 26
    }));
    let before = told();
    clock.pass(Duration::from_millis(50));
    rig.settle()?;
    assert_eq!(told(), before);
    rig.finish(Copies::Unknown)
}

/// Lets so little time pass that nothing has waited for long, and so much that the uplinks are looked at.
fn looks(clock: &VirtualClock) {
    for _ in 0..10 {
        clock.pass(Duration::from_micros(30));
    }
}

/// Dropless mode: a frame from the wire that waits for a receive buffer keeps those behind it on the wire, which is told so: all of it,
/// or the frame's priority; when it goes, or the mode ends, the wire is told that as well.
#[test]
fn dropless_mode_tells_the_wire() -> Result<()> {
    for (pfc, posted) in [(0, true), (0, false), (0b1000, true)] {
        let clock = VirtualClock::new(Duration::from_micros(1));
        let mut rig = Rig::with_clock(clock.clone())?;
        let b = rig.add("b")?;
        let Some(wire) = wire_of(&rig, &format!("d{pfc}{}x", u8::from(posted)), 0)? else {
            return Ok(());
        };
        rig.nic.set_qos("p0", uplink(pfc, 0))?;
        let mut gb = rig.attach("b", Options { post: 0, ..wide() })?;
        // Until frames come through the kernel, which may lose the first ones. These are for nobody.
        let nobody = packet(HOST, 0, 0);
        assert!(wait_for(|| {
            clock.pass(Duration::from_micros(30));
            wire.send(&nobody).is_ok() && rig.counter("p0", "rx_frames") > 0
        }));
        rig.nic.set_dropless("b", 100)?;
        for number in 0..20 {
            let flow = Flow {
                to: b,
                from: HOST,
                v6: false,
                vlan: None,
                port: 1000 + number,
            };
            let mut f = udp(&flow, &[9; 60]);
            f[15] = 3 << 5;
            wire.send(&f)?;
        }
        assert!(
            told_more(&rig, &clock, 0),
            "{} frames came, {:?}",
            rig.counter("p0", "rx_frames"),
            rig.nic.dropless("b")
        );
        let xoff = match pfc {
            0 => Frame::Global(0xffff),
            _ => Frame::Priorities {
                enabled: 0b1000,
                quanta: [0, 0, 0, 0xffff, 0, 0, 0, 0],
            },
        };
        assert_eq!(pause(&wire)?.0, xoff);
        assert!(rig.nic.dropless("b")?.on);
        if posted {
            gb.post(0, 1024);
            looks(&clock);
        } else {
            // The first frame has waited too long.
            clock.pass(Duration::from_millis(11));
        }
        let end = match pfc {
            0 => Frame::Global(0),
            _ => Frame::Priorities {
                enabled: 0b1000,
                quanta: [0; 8],
            },
        };
        let (mut last, _) = pause(&wire)?;
        while last == xoff {
            last = pause(&wire)?.0;
        }
        assert_eq!(last, end);
        assert_eq!(rig.nic.dropless("b")?.on, posted);
        let mut got = 0;
        assert!(wait_for(|| {
            looks(&clock);
            while let Some((_, _, f)) = gb.try_recv(0) {
                got += u64::from(f.get(12..14) == Some(&[8, 0][..]));
            }
            match posted {
                true => got == 20,
                false => rig.drops("b", DropReason::NoRxBuffer) >= 20,
            }
        }));
        assert_eq!(got, if posted { 20 } else { 0 });
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// A peer that never stops saying wait: other priorities go on, what waits is bounded, and when it stops all is well.
#[test]
fn endless_pause_stops_only_its_priority() -> Result<()> {
    for cores in [1, 2] {
        const FRAMES: u16 = 500;
        let mut rig = Rig::new(cores)?;
        let a = rig.add("a")?;
        let Some(wire) = wire_of(&rig, &format!("e{cores}x"), cores - 1)? else {
            return Ok(());
        };
        let mut ga = rig.attach("a", wide())?;
        let mut spec = uplink(0b1000, 2_000_000);
        (spec.buffer.size, spec.buffer.xoff, spec.buffer.xon) = (64 << 10, 8 << 10, 4 << 10);
        spec.buffer.headroom = 16 << 10;
        rig.nic.set_qos("p0", spec)?;
        // The sender has no flow control for this priority: it goes on, and what has no room is lost.
        wire.send(&priorities(0b1000, 0xffff))?;
        assert!(wait_for(|| rig
            .nic
            .qos("p0")
            .is_ok_and(|q| q.queues.paused == 0b1000)));
        let mut next = 0;
        let mut most = 0;
        for i in 0..FRAMES {
            wire.send(&priorities(0b1000, 0xffff))?;
            ga.send_wait(0, &packet(a, 3, i), NetHdr::default());
            ga.send_wait(0, &packet(a, 0, i), NetHdr::default());
            while next + 20 < i {
                match wire.try_recv().as_deref().and_then(read) {
                    Some((0, n)) => {
                        assert_eq!(n, next);
                        next += 1;
                    }
                    Some(other) => panic!("{other:?} although it is paused"),
                    None => std::thread::yield_now(),
                }
            }
            let queues = rig.nic.qos("p0")?.queues;
            most = most.max(queues.bytes.iter().sum());
        }
        let all = until(&wire, 0, usize::from(FRAMES - next))?;
        assert!(all.iter().all(|(p, _)| *p == 0));
        assert!(most <= 80 << 10, "{most}");
        let lost = rig.drops("p0", DropReason::LosslessOverflow);
        assert!(lost > 0);
        wire.send(&priorities(0b1000, 0))?;
        let all = until(&wire, 3, usize::from(FRAMES) - lost as usize)?;
        assert_eq!(all.len(), usize::from(FRAMES) - lost as usize);
        ga.drain();
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
