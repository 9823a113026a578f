//! The device as others see it: captures, the uplink's wire, and rust-vmm's queue as oracle for chains.

use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use crossbeam_channel::TryRecvError;
use vhost::VhostBackend;
use virtio_queue::desc::{RawDescriptor, split::Descriptor as SplitDescriptor};
use virtio_queue::mock::{MockSplitQueue, UsedRing};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;
use vnic_backend::{
    CaptureSpec, CapturedFrame, Direction, DropReason, NicError, NicEventKind, PortKind, PortSpec, VlanMode,
};
use vnic_tests::driver::packets::{BROADCAST, Flow, Number, number_of, numbered, pattern, tagged, tso};
use vnic_tests::driver::rig::{Copies, Dice, Rig, deadline, wait_for};
use vnic_tests::driver::{Desc, INDIRECT, NEXT, NetHdr, OFFLOADS, Options, Wire, feature};

fn n(seq: u64) -> Number {
    Number {
        sender: 1,
        stream: 2,
        seq,
    }
}

fn record(c: &CapturedFrame) -> (u16, Direction, Option<DropReason>, u32) {
    (c.port.0, c.direction, c.drop, c.original_len)
}

#[test]
fn captures() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let a = rig.add_with("a", |s| s.anti_spoofing = true)?;
    let b = rig.add("b")?;
    let mut ga = rig.attach(
        "a",
        Options {
            tx_buffer: 10000,
            ..Options::default()
        }
        .with(OFFLOADS),
    )?;
    let mut gb = rig.attach(
        "b",
        Options {
            post: 1,
            repost: false,
            ..Options::default()
        },
    )?;
    let (pa, pb) = (rig.nic.adapter("a")?.port.0, rig.nic.adapter("b")?.port.0);
    let spec = CaptureSpec {
        owners: vec![],
        snaplen: 65535,
        drops_only: false,
    };
    let all = rig.nic.capture(spec.clone())?;
    let short = rig.nic.capture(CaptureSpec {
        snaplen: 70,
        owners: vec!["a".into()],
        ..spec.clone()
    })?;
    let drops = rig.nic.capture(CaptureSpec {
        drops_only: true,
        ..spec.clone()
    })?;
    let unknown = rig.nic.capture(CaptureSpec {
        owners: vec!["nobody".into()],
        ..spec
    });
    assert!(matches!(unknown, Err(NicError::NotFound { .. })));
    rig.settle()?;
    let good = numbered(b, a, n(0), 500);
    let again = numbered(b, a, n(1), 501);
    let spoofed = numbered(b, BROADCAST, n(2), 502);
    let foreign = numbered(b, b, n(3), 503);
    for f in [&good, &again, &spoofed, &foreign] {
        ga.send_wait(0, f, NetHdr::default());
    }
    assert_eq!(gb.recv(0, deadline()).expect("a frame").2, good);
    let flow = Flow {
        to: b,
        from: a,
        v6: false,
        vlan: None,
        port: 5,
    };
    // The second frame has met its lack of a buffer before there are new ones.
    ga.drain();
    gb.post(0, 10);
    let (request, hdr) = tso(&flow, &pattern(3000), 1000);
    ga.send_wait(0, &request, hdr);
    ga.drain();
    rig.settle()?;
    use Direction::{Egress, Ingress};
    let want = [
        (pa, Ingress, None, 500),
        (pb, Egress, None, 500),
        (pa, Ingress, None, 501),
        (pb, Egress, Some(DropReason::NoRxBuffer), 501),
        (pa, Ingress, Some(DropReason::InvalidSource), 502),
        (pa, Ingress, Some(DropReason::SpoofedSource), 503),
        (pa, Ingress, None, request.len() as u32),
        (pb, Egress, None, 1066),
        (pb, Egress, None, 1066),
        (pb, Egress, None, 1066),
    ];
    let got: Vec<CapturedFrame> = all.frames.try_iter().collect();
    assert_eq!(got.iter().map(record).collect::<Vec<_>>(), want);
    for (c, f) in got
        .iter()
        .zip([&good, &good, &again, &again, &spoofed, &foreign, &request])
    {
        assert!(c.data == *f, "{:?}", record(c));
    }
    for (i, c) in got[7..].iter().enumerate() {
        let p = vnic_tests::driver::packets::parse(&c.data);
        assert!(p.payload == pattern(3000)[1000 * i..1000 * (i + 1)]);
    }
    let got: Vec<CapturedFrame> = short.frames.try_iter().collect();
    assert_eq!(
        got.iter().map(record).collect::<Vec<_>>(),
        want.iter().filter(|w| w.0 == pa).copied().collect::<Vec<_>>()
    );
    for (c, f) in got.iter().zip([&good, &again, &spoofed, &foreign, &request]) {
        assert!(c.data == f[..70], "{:?}", record(c));
    }
    let got: Vec<_> = drops.frames.try_iter().map(|c| record(&c)).collect();
    assert_eq!(
        got,
        want.iter().filter(|w| w.2.is_some()).copied().collect::<Vec<_>>()
    );
    // A reader that sleeps loses frames, which is counted, and holds up nobody.
    drop((short, drops));
    for i in 0..9000 {
        ga.send_wait(0, &numbered(b, b, n(i), 60), NetHdr::default());
    }
    ga.drain();
    rig.settle()?;
    assert_eq!(all.frames.len(), 8192);
    assert_eq!(rig.core_counter("capture_lost"), 9000 - 8192);
    // When it goes, it takes with it what waits for it: no data core has a part of the capture any more, or frees it.
    let frames = all.frames.clone();
    drop(all);
    assert_eq!(frames.try_iter().count(), 8192);
    assert_eq!(frames.try_recv().err(), Some(TryRecvError::Disconnected));
    rig.finish(Copies::Extra(2))
}

/// The device behind an uplink is deleted: the port goes down and says so, and the core goes on.
#[test]
fn uplink_that_vanishes() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let ifname = format!("vnd{}", std::process::id());
    let port = PortSpec::new(
        "p0",
        PortKind::Tap {
            ifname: ifname.clone(),
            queues: 1,
        },
    );
    match rig.nic.add_port(port) {
        Err(NicError::Os { what, source }) => {
            println!("skipped: {what}: {source}");
            return Ok(());
        }
        other => other?,
    };
    let deleted = std::process::Command::new("ip")
        .args(["link", "delete", &ifname])
        .status()?;
    assert!(deleted.success());
    rig.wait_event("p0", |e| matches!(e, NicEventKind::PortLink { up: false }))?;
    assert!(!rig.nic.port("p0")?.up);
    let mut from = rig.attach("a", Options::default())?;
    let mut to = rig.attach("b", Options::default())?;
    let f = numbered(b, a, n(0), 100);
    from.send(0, &f, NetHdr::default());
    assert_eq!(to.recv(0, deadline()).expect("a frame").2, f);
    rig.nic.remove_port("p0")?;
    rig.finish(Copies::Unknown)
}

#[test]
fn uplink() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let a = rig.add_with("a", |s| s.vlan = VlanMode::Access(30))?;
        let b = rig.add("b")?;
        let ifname = format!("vnt{cores}x{}", std::process::id());
        let Some(wire) = Wire::of_port(&rig, &ifname, None)? else {
            return Ok(());
        };
        let owners = vec!["p0".into()];
        let sent = rig.nic.capture(CaptureSpec {
            owners,
            snaplen: 65535,
            drops_only: false,
        })?;
        rig.settle()?;
        // The kernel takes the tag out of what it shows of the wire: the capture has it.
        let with_tag = |f: &[u8]| {
            let egress = sent
                .frames
                .try_iter()
                .filter(|c| c.direction == Direction::Egress);
            assert_eq!(egress.last().map(|c| c.data), Some(tagged(f, 30)));
        };
        let mut ga = rig.attach(
            "a",
            Options {
                tx_buffer: 66000,
                queue_size: 64,
                ..Options::default()
            }
            .with(OFFLOADS),
        )?;
        // The switches behind the uplink learn where it is.
        let announce = wire.recv(|f| f.ends_with(&vnic_announce(a)[14..]))?;
        assert_eq!(announce[6..12], a.0);
        with_tag(&announce);
        let mut gb = rig.attach("b", Options::default())?;
        let numbers = |f: &[u8]| number_of(f).is_some();
        for i in 0..50 {
            let host = vnic_backend::MacAddr([2, 0xaa, 0, 0, 0, 1]);
            let len = 60 + 29 * i as usize;
            let f = numbered(b, host, n(i), len);
            wire.send(&f)?;
            let got =
                std::iter::repeat_with(|| gb.recv(0, deadline()).expect("a frame").2).find(|f| numbers(f));
            assert_eq!(got.expect("endless"), f);
            let f = numbered(host, b, n(1000 + i), len);
            gb.send_wait(0, &f, NetHdr::default());
            assert_eq!(wire.recv(|f| f[6..12] == b.0 && numbers(f))?, f);
            // Tags appear and disappear at the access adapter.
            let f = numbered(a, host, n(2000 + i), len);
            wire.send(&tagged(&f, 30))?;
            let got =
                std::iter::repeat_with(|| ga.recv(0, deadline()).expect("a frame").2).find(|f| numbers(f));
            assert_eq!(got.expect("endless"), f);
            let f = numbered(host, a, n(3000 + i), len);
            ga.send_wait(0, &f, NetHdr::default());
            assert_eq!(wire.recv(|f| f[6..12] == a.0 && numbers(f))?, f);
            with_tag(&f);
        }
        // A request goes to the host as it is.
        let flow = Flow {
            to: BROADCAST,
            from: b,
            v6: true,
            vlan: None,
            port: 9,
        };
        let payload = pattern(5000);
        gb.detach()?;
        let mut gb = rig.attach(
            "b",
            Options {
                tx_buffer: 66000,
                queue_size: 64,
                ..Options::default()
            }
            .with(OFFLOADS),
        )?;
        let (f, hdr) = tso(&flow, &payload, 1000);
        gb.send_wait(0, &f, hdr);
        assert!(wire.recv(|f| f[12..14] == [0x86, 0xdd] && f[6..12] == b.0)? == f);
        assert!(wait_for(|| rig.counter("p0", "tx_frames") > 101));
        rig.nic.remove_port("p0")?;
        assert!(wait_for(|| !std::path::Path::new("/sys/class/net")
            .join(&ifname)
            .exists()));
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// In dropless mode an uplink is not read while a frame of it waits for a receiver: the kernel keeps the rest, and nothing is
/// lost or out of order. As long as a frame may wait is short, so it is tried until no timer ran out.
#[test]
fn uplink_waits_for_a_receiver() -> Result<()> {
    const FRAMES: u64 = 300;
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        // The port is on the first core, and so is the first adapter.
        rig.add("a")?;
        let b = rig.add("b")?;
        let ifname = format!("vnw{cores}x{}", std::process::id());
        let Some(wire) = Wire::of_port(&rig, &ifname, None)? else {
            return Ok(());
        };
        let mut gb = rig.attach(
            "b",
            Options {
                queue_size: 64,
                ..Options::default()
            },
        )?;
        let host = vnic_backend::MacAddr([2, 0xaa, 0, 0, 0, 1]);
        let end = Instant::now() + std::time::Duration::from_secs(120);
        for stream in 0.. {
            ensure!(Instant::now() < end, "no frame was waited for in time");
            rig.nic.set_dropless("b", 100)?;
            let before = rig.nic.dropless("b")?.timeouts;
            for seq in 0..FRAMES {
                let number = Number {
                    sender: 1,
                    stream,
                    seq,
                };
                wire.send(&numbered(b, host, number, 200))?;
            }
            let status = || rig.nic.dropless("b").expect("the adapter is there");
            assert!(wait_for(|| status().waiting > 0 || status().timeouts > before));
            let mut next = 0;
            assert!(wait_for(|| {
                while let Some((_, _, f)) = gb.try_recv(0) {
                    if let Some(n) = number_of(&f).filter(|n| n.stream == stream) {
                        assert!(n.seq >= next, "{n:?} after {next}");
                        assert!(n.seq == next || status().timeouts > before, "{next} is lost");
                        next = n.seq + 1;
                    }
                }
                next == FRAMES || status().timeouts > before
            }));
            if status().timeouts == before {
                assert_eq!(next, FRAMES);
                break;
            }
        }
        rig.nic.remove_port("p0")?;
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// What an adapter that came up sends: a reverse ARP request (RFC 903).
fn vnic_announce(mac: vnic_backend::MacAddr) -> Vec<u8> {
    let mut f = [
        &BROADCAST.0[..],
        &mac.0,
        &[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3],
        &mac.0,
        &[0; 4],
        &mac.0,
        &[0; 4],
    ]
    .concat();
    f.resize(60, 0);
    f
}

/// The same ring, consumed by virtio-queue's `Queue` and by the device: the same chains, in the same order.
#[test]
fn chains_are_what_virtio_queue_says() -> Result<()> {
    // A round of 67 chains: the mock's used ring lies in its available ring from the 64th entry on.
    for dice in [Dice::new(1795952488609278676), Dice::thrown()] {
        compare_chains(dice)?;
    }
    Ok(())
}

fn compare_chains(mut dice: Dice) -> Result<()> {
    const AT: u64 = 8 << 32;
    // The mock's own (virtio-queue 0.18) begins where it counts an entry of the available ring as one byte.
    const USED_AT: u64 = AT + (32 << 10);
    const SIZE: u16 = 128;
    let mut rig = Rig::new(1)?;
    let (a, b) = (
        rig.add_with("a", |s| s.mtu = 9216)?,
        rig.add_with("b", |s| s.mtu = 9216)?,
    );
    let mut gb = rig.attach(
        "b",
        Options {
            queue_size: 1024,
            ..Options::default()
        },
    )?;
    for _ in 0..60 {
        let o = Options {
            queue_size: SIZE,
            ..Options::default()
        };
        let mut ga = rig.attach("a", o.with(feature::RING_INDIRECT_DESC))?;
        ga.plug(AT, 1 << 20)?;
        let mem = ga.mem().clone();
        let mock = MockSplitQueue::create(mem.map(), GuestAddress(AT), SIZE);
        let used = UsedRing::new(mem.map(), GuestAddress(USED_AT), SIZE);
        // Frames scattered over memory, chains scattered over the table.
        let mut free: Vec<u16> = (0..SIZE).collect();
        let (mut data, mut tables) = (AT + (64 << 10), AT + (896 << 10));
        let mut seq = 0;
        while free.len() > 8 && dice.below(60) > 0 {
            let bytes = [
                &[0; 12][..],
                &numbered(b, a, n(seq), 60 + dice.below(3000) as usize),
            ]
            .concat();
            seq += 1;
            let pieces = 1 + dice.below(8) as usize;
            let mut cuts: Vec<usize> = (1..pieces)
                .map(|_| dice.below(bytes.len() as u64 + 1) as usize)
                .collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut descs = vec![];
            for w in cuts.windows(2) {
                data += dice.below(64);
                mem.write(data, &bytes[w[0]..w[1]])?;
                descs.push(Desc {
                    addr: data,
                    len: (w[1] - w[0]) as u32,
                    flags: NEXT,
                    next: 0,
                });
                data += (w[1] - w[0]) as u64;
            }
            let count = descs.len();
            let indirect = dice.below(2) == 0;
            let slots: Vec<u16> = if indirect {
                (0..count as u16).collect()
            } else {
                (0..count)
                    .map(|_| free.swap_remove(dice.below(free.len() as u64) as usize))
                    .collect()
            };
            for (i, d) in descs.iter_mut().enumerate() {
                d.next = slots.get(i + 1).copied().unwrap_or(0);
            }
            descs[count - 1].flags = 0;
            let put = |i: u16, d: Desc| {
                let d = SplitDescriptor::new(d.addr, d.len, d.flags, d.next);
                mock.desc_table()
                    .store(i, RawDescriptor::from(d))
                    .context("storing a descriptor")
            };
            let head = if indirect {
                for (i, d) in (0..).zip(&descs) {
                    mem.write(tables + 16 * i, &d.bytes())?;
                }
                let head = free.swap_remove(dice.below(free.len() as u64) as usize);
                put(
                    head,
                    Desc {
                        addr: tables,
                        len: 16 * count as u32,
                        flags: INDIRECT,
                        next: 0,
                    },
                )?;
                tables += 16 * count as u64 + dice.below(3) * 16;
                head
            } else {
                for (i, d) in slots.iter().zip(&descs) {
                    put(*i, *d)?;
                }
                slots[0]
            };
            mock.avail()
                .ring()
                .ref_at(usize::from(seq as u16 - 1))?
                .store(u16::to_le(head));
        }
        mock.avail().idx().store(u16::to_le(seq as u16));
        // The oracle's view.
        let mut queue: Queue = mock.create_queue()?;
        assert_eq!(queue.avail_idx(mem.map(), Ordering::Acquire)?.0, seq as u16);
        let mut chains = vec![];
        for chain in queue.iter(mem.map())? {
            let head = chain.head_index();
            let mut bytes = vec![];
            for d in chain.readable() {
                let at = bytes.len();
                bytes.resize(at + d.len() as usize, 0);
                mem.read(d.addr().0, &mut bytes[at..])?;
            }
            chains.push((head, bytes));
        }
        assert_eq!(chains.len() as u64, seq);
        // The device's view.
        let host = |gpa: GuestAddress| mem.host(gpa.0, 16).map(|p| p as u64);
        let mut config = ga.ring(1).config(false);
        config.desc_table_addr = host(mock.desc_table_addr())?;
        config.avail_ring_addr = host(mock.avail_addr())?;
        config.used_ring_addr = host(GuestAddress(USED_AT))?;
        ga.frontend()?.set_vring_addr(1, &config)?;
        ga.ring(1).kick();
        for (i, (head, bytes)) in chains.iter().enumerate() {
            let (_, _, f) = gb.recv(0, deadline()).expect("a frame");
            assert!(f == bytes[12..], "chain {i}");
            assert!(wait_for(|| u16::from_le(used.idx().load()) > i as u16));
            let entry = used.ring().ref_at(i)?.load();
            assert_eq!((entry.id(), entry.len()), (u32::from(*head), 0), "used entry {i}");
        }
        rig.settle()?;
        assert_eq!(u16::from_le(used.idx().load()), seq as u16);
        ga.hang_up();
        rig.state("a", vnic_backend::AttachState::Detached)?;
    }
    rig.finish(Copies::Extra(0))
}
