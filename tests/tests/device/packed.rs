//! Packed rings (VIRTIO_F_RING_PACKED): what differs from split ones. That they carry frames in every layout, wake the NIC, and go on
//! after a kill is in `basic`, `cores` and `crash`.

use std::collections::BTreeSet;

use anyhow::Result;
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Desc, Guest, Layout, Log, NEXT, NetHdr, Options, feature};

fn options(more: u64) -> Options {
    Options::default().with(feature::RING_PACKED | more)
}

fn n(seq: u64) -> Number {
    Number {
        sender: 0,
        stream: 0,
        seq,
    }
}

/// Used descriptors that told of several buffers of a guest's transmit ring.
fn batches(guest: &mut Guest) -> u64 {
    guest.ring(1).packed.as_ref().map_or(0, |packed| packed.batches)
}

/// With IN_ORDER one used descriptor tells of a burst of frames, without it each buffer has its own; of received frames each has its
/// own, because its length counts.
#[test]
fn a_batch_in_order_is_one_descriptor() -> Result<()> {
    for (in_order, layout) in [
        (0, Layout::Same),
        (feature::IN_ORDER, Layout::Same),
        (feature::IN_ORDER, Layout::Split(5)),
    ] {
        let mut rig = Rig::new(1)?;
        let (a, b) = (rig.add("a")?, rig.add("b")?);
        let o = Options {
            tx_layout: layout,
            queue_size: 200,
            ..options(in_order)
        };
        let (mut ga, mut gb) = (rig.attach("a", o.clone())?, rig.attach("b", o)?);
        let mut seq = 0;
        for _ in 0..100 {
            for k in 0..20 {
                assert!(ga.stage(0, &numbered(b, a, n(seq + k), 60 + k as usize), NetHdr::default()));
            }
            ga.tx(0).ring.publish();
            for k in 0..20 {
                let (_, _, frame) = gb.recv(0, deadline()).expect("a frame");
                assert!(
                    frame == numbered(b, a, n(seq + k), 60 + k as usize),
                    "{seq} + {k}"
                );
            }
            seq += 20;
            ga.drain();
        }
        assert_eq!(batches(&mut ga) > 0, in_order != 0);
        assert_eq!(gb.ring(0).packed.as_ref().map(|packed| packed.batches), Some(0));
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// A frame in several buffers is there as a whole; rings stop and go on in between, by their place, and after a VMM that said
/// nothing.
#[test]
fn merged_frames_and_new_vmms() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (
        rig.add_with("a", |s| s.mtu = 9216)?,
        rig.add_with("b", |s| s.mtu = 9216)?,
    );
    for (rx_buffer, rx_layout) in [
        (1526, Layout::Same),
        (512, Layout::Split(7)),
        (300, Layout::Separate),
    ] {
        let o = Options {
            tx_buffer: 10000,
            rx_buffer,
            rx_layout,
            queue_size: 1000,
            ..options(feature::IN_ORDER | feature::RING_EVENT_IDX)
        };
        let mut g = [rig.attach("a", o.clone())?, rig.attach("b", o)?];
        for (i, len) in (0u64..).zip(
            [60, 9230, 1514, 1515, 4000, 9229, 100]
                .into_iter()
                .cycle()
                .take(200),
        ) {
            let f = numbered(b, a, n(i), len);
            g[0].send_wait(0, &f, NetHdr::default());
            let (_, buffers, got) = g[1].recv(0, deadline()).expect("a frame");
            assert!(got == f, "{i}: {len}");
            assert_eq!(usize::from(buffers), (len + 12).div_ceil(rx_buffer as usize));
            let name = if i % 2 == 0 { "a" } else { "b" };
            let guest = &mut g[usize::from(i % 2 == 1)];
            match i % 40 {
                7 | 18 => drop(guest.detach()?),
                29 | 36 => guest.hang_up(),
                _ => continue,
            }
            rig.state(name, vnic_backend::AttachState::Detached)?;
            guest.connect(rig.socket(name))?;
            rig.up(name)?;
        }
        for (guest, name) in g.iter_mut().zip(["a", "b"]) {
            guest.detach()?;
            guest.mem().check_canaries()?;
            rig.state(name, vnic_backend::AttachState::Detached)?;
        }
    }
    rig.finish(Copies::Extra(0))
}

/// The pages of the descriptors and of the written buffers are marked.
#[test]
fn used_descriptors_are_in_the_dirty_log() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", options(0))?;
    let mut gb = rig.attach("b", options(0))?;
    let log = Log::start(&mut gb)?;
    rig.up("b")?;
    // What starting the rings marked is not looked at.
    log.take()?;
    ga.send_wait(0, &numbered(b, a, n(0), 60), NetHdr::default());
    assert!(gb.recv(0, deadline()).is_some());
    rig.settle()?;
    let ring = gb.ring(0);
    let (descriptors, own) = (ring.desc_gpa / 4096, 1 << 20);
    let marked = log.take()?;
    let rings: BTreeSet<u64> = marked.iter().copied().filter(|page| *page < own).collect();
    assert!(rings.contains(&descriptors), "{marked:x?}");
    assert_eq!(marked.len() - rings.len(), 1, "one buffer: {marked:x?}");
    rig.finish(Copies::Extra(0))
}

/// Commands go by a packed ring as well, before and after a new VMM.
#[test]
fn the_control_queue_is_packed_too() -> Result<()> {
    let mut rig = Rig::new(1)?;
    rig.add_with("a", |s| s.control_queue = true)?;
    let more = feature::CTRL_VQ | feature::CTRL_RX;
    let mut guest = rig.attach("a", options(more))?;
    let promiscuous = |on: u8| [0, 0, on];
    for round in 0..100 {
        assert_eq!(guest.command(&promiscuous(round % 2), 1)?, [0]);
        if round % 30 == 7 {
            guest.detach()?;
            rig.state("a", vnic_backend::AttachState::Detached)?;
            guest.connect(rig.socket("a"))?;
            rig.up("a")?;
        }
    }
    Ok(())
}

/// A chain that never ends costs its guest this ring, and nobody else anything.
#[test]
fn a_loop_stops_its_ring() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let (c, d) = (rig.add("c")?, rig.add("d")?);
    let _ = (a, b);
    let mut liar = rig.attach("a", options(0))?;
    let mut honest = rig.attach("c", options(0))?;
    let mut peer = rig.attach("d", options(feature::IN_ORDER))?;
    let ring = liar.ring(1);
    let packed = ring.packed.as_mut().expect("a packed ring");
    let endless = Desc {
        addr: 1 << 32,
        len: 1,
        flags: NEXT,
        next: 0,
    };
    let mut words = Vec::new();
    for place in 0..256 {
        words.push(packed.put(place | 1 << 15, endless, 0));
    }
    for (place, word) in (0..256).zip(words).rev() {
        packed
            .word(place)
            .store(word.to_le(), std::sync::atomic::Ordering::Release);
    }
    ring.kick();
    assert!(wait_for(|| rig.counter("a", "ring_faults") == 1));
    honest.send_wait(0, &numbered(d, c, n(1), 60), NetHdr::default());
    assert!(peer.recv(0, deadline()).is_some());
    Ok(())
}
