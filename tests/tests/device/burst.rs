//! The reserve for bursts (`AsyncReceiveIndicate`, `RfdReservationFactor`): what finds no receive buffer waits in it, in
//! order, and not more than it may hold.

use anyhow::Result;
use vnic_backend::settings::{AdapterSettings, Burst};
use vnic_backend::{DropReason, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{Flow, Number, number_of, numbered, udp};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::{Guest, NetHdr, Options, feature};

/// Buffers of the receiver.
const BUFFERS: u64 = 64;
/// Frames sent to it.
const FRAMES: u64 = 300;
/// Bytes of each.
const LEN: usize = 500;

fn sender() -> Options {
    Options {
        queue_size: 1024,
        ..Options::default()
    }
}

fn receiver() -> Options {
    Options {
        queue_size: BUFFERS as u16,
        ..Options::default()
    }
}

fn settings(burst: Burst, reserve: u32) -> AdapterSettings {
    AdapterSettings {
        burst,
        reserve,
        ..AdapterSettings::default()
    }
}

fn burst(g: &mut Guest, to: MacAddr, from: MacAddr, seqs: std::ops::Range<u64>) {
    for seq in seqs {
        let n = Number {
            sender: 0,
            stream: 0,
            seq,
        };
        assert!(g.stage(0, &numbered(to, from, n, LEN), NetHdr::default()));
    }
    g.ring(1).publish();
    g.drain();
}

fn take(g: &mut Guest, seqs: &mut Vec<u64>) {
    while let Some((_, _, f)) = g.try_recv(0) {
        seqs.extend(number_of(&f).map(|n| n.seq));
    }
}

/// Waits until so many have come; they are all that came.
fn expect(g: &mut Guest, seqs: &mut Vec<u64>, wanted: impl Iterator<Item = u64>) {
    let wanted: Vec<u64> = wanted.collect();
    assert!(
        wait_for(|| {
            take(g, seqs);
            seqs.len() >= wanted.len()
        }),
        "{} of {} came",
        seqs.len(),
        wanted.len()
    );
    assert_eq!(*seqs, wanted);
}

/// Guests with and without event indices are asked for kicks in different ways.
fn flavours() -> [Options; 2] {
    [receiver(), receiver().with(feature::RING_EVENT_IDX)]
}

/// Bound, order, gauge and high-water mark; the core sleeps meanwhile and is woken by the guest's kick.
#[test]
fn a_burst_waits_in_the_reserve() -> Result<()> {
    for cores in [1, 2] {
        for mode in [Burst::Thread, Burst::Poll] {
            for options in flavours() {
                let mut rig = Rig::new(cores)?;
                let (a, b) = (rig.add("a")?, rig.add("b")?);
                let mut ga = rig.attach("a", sender())?;
                let mut gb = rig.attach("b", options)?;
                rig.nic.configure_adapter("b", &settings(mode, 150))?;
                burst(&mut ga, b, a, 0..FRAMES);
                rig.settle()?;
                assert!(wait_for(|| {
                    rig.counter("b", "rx_waited") + rig.counter("b", "drops") == FRAMES - BUFFERS
                }));
                let held = rig.nic.adapter("b")?.burst;
                assert_eq!((held.mode, held.reserve, held.frames), (mode, 150, 150));
                assert!(held.bytes >= 150 * LEN as u64 && held.bytes < 150 * (LEN as u64 + 200));
                assert_eq!(rig.drops("b", DropReason::NoRxBuffer), FRAMES - 150 - BUFFERS);
                assert_eq!(rig.counter("b", "rx_waited"), 150);
                // Nobody spins for a guest that takes its time.
                let sleeps = rig.core_counter("sleeps");
                assert!(wait_for(|| rig.core_counter("sleeps") > sleeps));
                assert_eq!(rig.nic.adapter("b")?.burst.frames, 150);
                let kicks = gb.ring(0).kicks;
                let mut seqs = vec![];
                expect(&mut gb, &mut seqs, 0..BUFFERS + 150);
                // The thread has nothing else to go by; a core that polls may have been awake.
                assert!(mode == Burst::Poll || gb.ring(0).kicks > kicks);
                let empty = || rig.nic.adapter("b").map(|a| (a.burst.frames, a.burst.bytes));
                assert!(wait_for(|| empty().is_ok_and(|e| e == (0, 0))));
                let held = rig.nic.adapter("b")?.burst;
                assert_eq!(held.frames_max, 150);
                assert!(held.bytes_max >= 150 * LEN as u64);
                assert!(rig.counter("b", "rx_waited_ns") > 0);
                // And as before, without waiting or kicks.
                burst(&mut ga, b, a, 500..510);
                expect(&mut gb, &mut seqs, (0..BUFFERS + 150).chain(500..510));
                rig.finish(Copies::Extra(0))?;
            }
        }
    }
    Ok(())
}

/// Frames that come later queue behind those that wait, also when there are buffers by then.
#[test]
fn nobody_overtakes() -> Result<()> {
    for mode in [Burst::Thread, Burst::Poll] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let mut ga = rig.attach("a", sender())?;
        let mut gb = rig.attach("b", receiver())?;
        rig.nic.configure_adapter("b", &settings(mode, 5000))?;
        let (mut sent, mut seqs) = (0, vec![]);
        for round in 0..40u64 {
            let n = 1 + round * 53 % 97;
            burst(&mut ga, b, a, sent..sent + n);
            sent += n;
            // A few buffers at a time.
            for _ in 0..1 + round * 31 % 60 {
                if let Some((_, _, f)) = gb.try_recv(0) {
                    seqs.extend(number_of(&f).map(|n| n.seq));
                }
            }
        }
        expect(&mut gb, &mut seqs, 0..sent);
        assert_eq!(rig.counter("b", "drops"), 0);
        assert!(rig.counter("b", "rx_waited") > 0);
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// All queues share the reserve.
#[test]
fn the_reserve_is_the_adapters() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (
        rig.add_with("a", |s| s.queue_pairs = 2)?,
        rig.add_with("b", |s| s.queue_pairs = 2)?,
    );
    let two = |o: Options| Options { pairs: 2, ..o }.with(feature::MQ);
    let mut ga = rig.attach("a", two(sender()))?;
    let mut gb = rig.attach("b", two(receiver()))?;
    rig.nic.configure_adapter("b", &settings(Burst::Poll, 100))?;
    let mut sent = 0u64;
    for i in 0..800u16 {
        let flow = Flow {
            to: b,
            from: a,
            v6: false,
            vlan: None,
            port: 1000 + i % 40,
        };
        ga.send_wait(0, &udp(&flow, &i.to_be_bytes()), NetHdr::default());
        sent += 1;
    }
    ga.drain();
    rig.settle()?;
    let on = |q| rig.queue_counter("b", q, "rx_waited");
    assert!(on(0) > 0 && on(1) > 0, "frames of both queues wait");
    assert_eq!(on(0) + on(1), 100);
    assert_eq!(rig.nic.adapter("b")?.burst.frames, 100);
    let dropped = rig.drops("b", DropReason::NoRxBuffer);
    assert_eq!(dropped, sent - 100 - 2 * BUFFERS);
    let mut got = 0;
    assert!(wait_for(|| {
        while gb.try_recv_any().is_some() {
            got += 1;
        }
        got == 100 + 2 * BUFFERS
    }));
    rig.finish(Copies::Extra(0))
}

/// Settings act at once: a smaller reserve takes nothing more, what is in it still arrives.
#[test]
fn settings_change_under_way() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", sender())?;
    let mut gb = rig.attach("b", receiver())?;
    let nic = rig.nic.clone();
    let set = |mode, n| nic.configure_adapter("b", &settings(mode, n));
    burst(&mut ga, b, a, 0..BUFFERS);
    set(Burst::Thread, 10)?;
    burst(&mut ga, b, a, 100..150);
    assert_eq!(nic.adapter("b")?.burst.frames, 10);
    set(Burst::Poll, 30)?;
    burst(&mut ga, b, a, 200..250);
    assert_eq!(nic.adapter("b")?.burst.frames, 30);
    set(Burst::Thread, 20)?;
    burst(&mut ga, b, a, 300..350);
    assert_eq!(nic.adapter("b")?.burst.frames, 30);
    set(Burst::Off, 20)?;
    burst(&mut ga, b, a, 400..450);
    assert_eq!(nic.adapter("b")?.burst.frames, 30);
    let mut seqs = vec![];
    expect(&mut gb, &mut seqs, (0..BUFFERS).chain(100..110).chain(200..220));
    burst(&mut ga, b, a, 500..550);
    let before = (0..BUFFERS).chain(100..110).chain(200..220);
    expect(&mut gb, &mut seqs, before.chain(500..550));
    rig.finish(Copies::Extra(0))
}

/// The guest goes away: what waited for it is dropped and counted.
#[test]
fn the_guest_goes_away() -> Result<()> {
    for mode in [Burst::Thread, Burst::Poll] {
        for polite in [true, false] {
            let mut rig = Rig::new(1)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            let mut ga = rig.attach("a", sender())?;
            let mut gb = rig.attach("b", receiver())?;
            rig.nic.configure_adapter("b", &settings(mode, 150))?;
            burst(&mut ga, b, a, 0..FRAMES);
            if polite {
                gb.detach()?;
            } else {
                gb.hang_up();
            }
            assert!(wait_for(|| rig.drops("b", DropReason::ReceiverDown) == 150));
            assert_eq!(rig.nic.adapter("b")?.burst.bytes, 0);
            // It comes back: nothing old is left, the new works.
            gb.connect(rig.socket("b"))?;
            rig.up("b")?;
            let mut seqs = vec![];
            expect(&mut gb, &mut seqs, 0..BUFFERS);
            burst(&mut ga, b, a, 600..700);
            expect(&mut gb, &mut seqs, (0..BUFFERS).chain(600..700));
            rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}

/// Dropless mode begins where the reserve ends, and its end does not touch the reserve.
#[test]
fn dropless_begins_where_the_reserve_ends() -> Result<()> {
    for cores in [1, 2] {
        for mode in [Burst::Thread, Burst::Poll] {
            let mut rig = Rig::new(cores)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            let mut ga = rig.attach("a", sender())?;
            let mut gb = rig.attach("b", receiver())?;
            rig.nic.configure_adapter("b", &settings(mode, 100))?;
            rig.nic.set_dropless("b", 1)?;
            // As many as have room: nobody waits in dropless mode, however long it takes.
            burst(&mut ga, b, a, 0..BUFFERS + 100);
            let sleeps = rig.core_counter("sleeps");
            assert!(wait_for(|| rig.core_counter("sleeps") > sleeps));
            let status = rig.nic.dropless("b")?;
            assert!(status.on && status.waiting == 0 && status.timeouts == 0);
            // One more waits, and nobody gives a buffer.
            burst(&mut ga, b, a, 1000..1001);
            rig.wait_event("b", |k| matches!(k, NicEventKind::DroplessTimeout { queue: 0 }))?;
            assert_eq!(rig.nic.adapter("b")?.burst.frames, 100);
            assert!(wait_for(|| rig.drops("b", DropReason::NoRxBuffer) == 1));
            let mut seqs = vec![];
            expect(&mut gb, &mut seqs, 0..BUFFERS + 100);
            rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}

/// A frame that needs more buffers than the guest gives at a time, and a guest that gives them one by one: nobody spins, nothing
/// is delivered in part.
#[test]
fn buffers_that_are_not_enough() -> Result<()> {
    for mode in [Burst::Thread, Burst::Poll] {
        for event_idx in [false, true] {
            let mut rig = Rig::new(1)?;
            let (a, b) = (rig.add("a")?, rig.add("b")?);
            let mut ga = rig.attach("a", sender())?;
            let mut o = receiver();
            (o.rx_buffer, o.post, o.repost) = (64, 5, false);
            if event_idx {
                o = o.with(feature::RING_EVENT_IDX);
            }
            let mut gb = rig.attach("b", o)?;
            rig.nic.configure_adapter("b", &settings(mode, 10))?;
            // 512 bytes with the header: eight buffers.
            burst(&mut ga, b, a, 7..8);
            for _ in 5..8 {
                assert_eq!(rig.nic.adapter("b")?.burst.frames, 1);
                for _ in 0..2 {
                    let sleeps = rig.core_counter("sleeps");
                    assert!(wait_for(|| rig.core_counter("sleeps") > sleeps));
                }
                assert!(gb.try_recv(0).is_none());
                assert_eq!(gb.post(0, 1), 1);
            }
            let mut seqs = vec![];
            expect(&mut gb, &mut seqs, 7..8);
            rig.finish(Copies::Extra(0))?;
        }
    }
    Ok(())
}
