//! Guests that lie. After each lie the NIC lives, the liar's ring is stopped and reported (or nothing happened at
//! all), and another pair of guests still exchanges every frame.

mod turns;

use anyhow::Result;
use vhost::{VhostBackend, VringConfigData};
use vnic_backend::{AttachState, DropReason, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{BROADCAST, Number, number_of, numbered};
use vnic_tests::driver::rig::{Copies, Dice, Rig, deadline, wait_for};
use vnic_tests::driver::{Desc, Guest, INDIRECT, NEXT, NetHdr, Options, WRITE, feature};

const BUFFERS: u64 = 1 << 32;

/// What is to be expected of the liar's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// It is stopped, and that is told.
    Fault,
    /// It works on: what looks odd is legal, or only a frame is dropped.
    Nothing,
    /// Either, by chance.
    Any,
}

/// A liar, its victim-to-be, and two bystanders.
struct Stage {
    rig: Rig,
    liar: Guest,
    peer: Guest,
    x: Guest,
    y: Guest,
    macs: [MacAddr; 4],
    seq: u64,
}

impl Stage {
    fn new(cores: usize) -> Result<Stage> {
        Stage::with(cores, Options::default().with(feature::RING_INDIRECT_DESC))
    }

    fn with(cores: usize, o: Options) -> Result<Stage> {
        let mut rig = Rig::new(cores)?;
        let macs = [rig.add("liar")?, rig.add("peer")?, rig.add("x")?, rig.add("y")?];
        let liar = rig.attach("liar", o)?;
        let peer = rig.attach("peer", Options::default())?;
        let x = rig.attach("x", Options::default())?;
        let y = rig.attach("y", Options::default())?;
        Ok(Stage {
            rig,
            liar,
            peer,
            x,
            y,
            macs,
            seq: 0,
        })
    }

    fn faults(&self) -> u64 {
        self.rig.counter("liar", "ring_faults")
    }

    /// The liar starts over.
    fn again(&mut self) -> Result<()> {
        self.liar.hang_up();
        self.rig.state("liar", AttachState::Detached)?;
        let o = self.liar.options.clone();
        self.liar = self.rig.attach("liar", o)?;
        Ok(())
    }

    /// The bystanders talk in both directions, all of it arrives.
    fn bystanders(&mut self, what: &str) {
        for _ in 0..40 {
            let n = Number {
                sender: 9,
                stream: 9,
                seq: self.seq,
            };
            self.seq += 1;
            for turn in 0..2 {
                let (from, to) = if turn == 0 {
                    (&mut self.x, &mut self.y)
                } else {
                    (&mut self.y, &mut self.x)
                };
                let (a, b) = if turn == 0 {
                    (self.macs[2], self.macs[3])
                } else {
                    (self.macs[3], self.macs[2])
                };
                from.send_wait(
                    0,
                    &numbered(b, a, n, 60 + self.seq as usize % 1000),
                    NetHdr::default(),
                );
                let got = loop {
                    let (_, _, f) = to
                        .recv(0, deadline())
                        .unwrap_or_else(|| panic!("{what}: bystanders' frame lost"));
                    // The liar may flood.
                    if let Some(n) = number_of(&f).filter(|n| n.sender == 9) {
                        break n;
                    }
                };
                assert_eq!(got, n, "{what}");
            }
        }
    }

    /// Lets the liar's transmit ring be seen, and judges.
    fn judge(&mut self, what: &str, ring: u16, faults_before: u64, expect: Expect) -> Result<()> {
        self.bystanders(what);
        self.rig.settle()?;
        let faults = self.faults() - faults_before;
        match expect {
            Expect::Fault => {
                assert!(faults >= 1, "{what}: no fault counted");
                let like =
                    |k: &NicEventKind| matches!(k, NicEventKind::RingFault { ring: r, .. } if *r == ring);
                self.rig.wait_event("liar", like)?;
                self.rig.events.clear();
            }
            Expect::Nothing => assert_eq!(faults, 0, "{what}: {:?}", self.rig.poll_events()),
            Expect::Any => {}
        }
        assert_eq!(self.rig.core_counter("panics"), 0, "{what}");
        self.liar.mem().check_canaries()?;
        self.peer.mem().check_canaries()?;
        while self.peer.try_recv(0).is_some() {}
        self.again()
    }

    /// The liar offers these descriptors for sending, head 0.
    fn transmit(&mut self, what: &str, descs: &[Desc], expect: Expect) -> Result<()> {
        let before = self.faults();
        let ring = self.liar.ring(1);
        for (i, d) in (0..).zip(descs) {
            ring.set_desc(i, *d);
        }
        ring.offer(0);
        ring.publish();
        self.judge(what, 1, before, expect)
    }

    /// The liar offers these descriptors for receiving, head 0, and somebody sends it a frame.
    fn receive(&mut self, what: &str, descs: &[Desc], expect: Expect) -> Result<()> {
        let before = self.faults();
        let ring = self.liar.ring(0);
        for (i, d) in (0..).zip(descs) {
            ring.set_desc(i, *d);
        }
        for slot in 0..ring.size() {
            ring.set_avail(slot, 0);
        }
        let f = numbered(
            self.macs[0],
            self.macs[1],
            Number {
                sender: 1,
                stream: 0,
                seq: 0,
            },
            1000,
        );
        for _ in 0..3 {
            self.peer.send_wait(0, &f, NetHdr::default());
        }
        self.peer.drain();
        self.judge(what, 0, before, expect)
    }
}

fn d(addr: u64, len: u32, flags: u16, next: u16) -> Desc {
    Desc {
        addr,
        len,
        flags,
        next,
    }
}

#[test]
fn transmit_descriptors() -> Result<()> {
    for cores in [1, 2] {
        let mut s = Stage::new(cores)?;
        use Expect::{Fault, Nothing};
        let b = BUFFERS;
        let end = b + s.liar.mem().region(b)?.memory_size;
        s.transmit("a loop of one", &[d(b, 64, NEXT, 0)], Fault)?;
        s.transmit("a loop of two", &[d(b, 64, NEXT, 1), d(b, 64, NEXT, 0)], Fault)?;
        s.transmit(
            "a loop of empty descriptors",
            &[d(b, 0, NEXT, 1), d(b, 0, NEXT, 0)],
            Fault,
        )?;
        s.transmit("next out of range", &[d(b, 64, NEXT, 256)], Fault)?;
        s.transmit("next far out of range", &[d(b, 64, NEXT, u16::MAX)], Fault)?;
        s.transmit("outside memory", &[d(1 << 50, 64, 0, 0)], Fault)?;
        s.transmit("between the regions", &[d(b - 1, 64, 0, 0)], Fault)?;
        s.transmit("wraps around", &[d(u64::MAX - 10, 64, 0, 0)], Fault)?;
        s.transmit("the last byte", &[d(u64::MAX, 1, 0, 0)], Fault)?;
        s.transmit("over the end", &[d(end - 63, 64, 0, 0)], Fault)?;
        s.transmit("up to the end", &[d(end - 64, 64, 0, 0)], Nothing)?;
        s.transmit("4 GiB", &[d(b, u32::MAX, 0, 0)], Fault)?;
        s.transmit("empty", &[d(b, 0, 0, 0)], Fault)?;
        s.transmit("empty and nowhere", &[d(1 << 50, 0, 0, 0)], Fault)?;
        s.transmit("shorter than the header", &[d(b, 11, 0, 0)], Fault)?;
        s.transmit("only a header", &[d(b, 12, 0, 0)], Nothing)?;
        s.transmit(
            "an empty piece",
            &[d(b, 12, NEXT, 1), d(1 << 50, 0, NEXT, 2), d(b, 60, 0, 0)],
            Nothing,
        )?;
        s.transmit("wrong direction", &[d(b, 64, WRITE, 0)], Fault)?;
        s.transmit(
            "wrong direction behind",
            &[d(b, 64, NEXT, 1), d(b, 64, WRITE, 0)],
            Fault,
        )?;
        s.transmit("unknown flags", &[d(b, 64, 0xfff8, 0)], Expect::Any)?;
        s.rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn indirect_tables() -> Result<()> {
    let mut s = Stage::new(1)?;
    use Expect::{Fault, Nothing};
    let b = BUFFERS;
    let table = b + (1 << 16);
    let end = b + s.liar.mem().region(b)?.memory_size;
    let put = |s: &Stage, at: u64, descs: &[Desc]| -> Result<()> {
        for (i, d) in (0..).zip(descs) {
            s.liar.mem().write(at + 16 * i, &d.bytes())?;
        }
        Ok(())
    };
    let cases: [(&str, &[Desc], Desc, Expect); 17] = [
        (
            "fine",
            &[d(b, 12, NEXT, 1), d(b, 60, 0, 0)],
            d(table, 32, INDIRECT, 0),
            Nothing,
        ),
        (
            "backwards",
            &[d(b, 12, NEXT, 2), d(b, 60, 0, 0), d(b, 10, NEXT, 1)],
            d(table, 48, INDIRECT, 0),
            Nothing,
        ),
        (
            "a loop",
            &[d(b, 12, NEXT, 1), d(b, 60, NEXT, 0)],
            d(table, 32, INDIRECT, 0),
            Fault,
        ),
        (
            "nested",
            &[d(table + 16, 16, INDIRECT, 0), d(b, 60, 0, 0)],
            d(table, 16, INDIRECT, 0),
            Fault,
        ),
        (
            "nested behind",
            &[d(b, 60, NEXT, 1), d(table, 16, INDIRECT, 0)],
            d(table, 32, INDIRECT, 0),
            Fault,
        ),
        (
            "next at the end",
            &[d(b, 12, NEXT, 1), d(b, 60, 0, 0)],
            d(table, 16, INDIRECT, 0),
            Fault,
        ),
        (
            "not a multiple of 16",
            &[d(b, 60, 0, 0)],
            d(table, 17, INDIRECT, 0),
            Fault,
        ),
        ("empty", &[d(b, 60, 0, 0)], d(table, 0, INDIRECT, 0), Fault),
        ("huge", &[d(b, 60, 0, 0)], d(table, 1 << 20, INDIRECT, 0), Fault),
        ("4 GiB", &[d(b, 60, 0, 0)], d(table, !15, INDIRECT, 0), Fault),
        ("outside memory", &[], d(1 << 50, 16, INDIRECT, 0), Fault),
        ("over the end", &[], d(end - 16, 32, INDIRECT, 0), Fault),
        ("wraps around", &[], d(u64::MAX - 15, 32, INDIRECT, 0), Fault),
        (
            "with next",
            &[d(b, 60, 0, 0)],
            d(table, 16, INDIRECT | NEXT, 1),
            Fault,
        ),
        (
            "wrong direction",
            &[d(b, 60, WRITE, 0)],
            d(table, 16, INDIRECT, 0),
            Fault,
        ),
        ("unaligned", &[d(b, 60, 0, 0)], d(table, 16, INDIRECT, 0), Nothing),
        (
            "behind a chain",
            &[d(b, 60, 0, 0)],
            d(table, 16, INDIRECT, 0),
            Nothing,
        ),
    ];
    for (what, in_table, head, expect) in cases {
        put(&s, table, in_table)?;
        match what {
            "unaligned" => {
                put(&s, table + 3, in_table)?;
                s.transmit(
                    what,
                    &[Desc {
                        addr: table + 3,
                        ..head
                    }],
                    expect,
                )?;
            }
            "behind a chain" => s.transmit(what, &[d(b, 12, NEXT, 1), head], Fault)?,
            _ => s.transmit(what, &[head], expect)?,
        }
    }
    // Not negotiated.
    s.liar.options = Options::default();
    s.again()?;
    put(&s, table, &[d(b, 60, 0, 0)])?;
    s.transmit("not negotiated", &[d(table, 16, INDIRECT, 0)], Fault)?;
    s.rig.finish(Copies::Unknown)
}

#[test]
fn receive_descriptors() -> Result<()> {
    for cores in [1, 2] {
        let mut s = Stage::new(cores)?;
        use Expect::{Fault, Nothing};
        let b = BUFFERS;
        s.receive("fine", &[d(b, 2000, WRITE, 0)], Nothing)?;
        s.receive("a loop", &[d(b, 64, WRITE | NEXT, 0)], Fault)?;
        s.receive("next out of range", &[d(b, 64, WRITE | NEXT, 256)], Fault)?;
        s.receive("outside memory", &[d(1 << 50, 2000, WRITE, 0)], Fault)?;
        s.receive("wraps around", &[d(u64::MAX - 100, 2000, WRITE, 0)], Fault)?;
        s.receive("4 GiB", &[d(b, u32::MAX, WRITE, 0)], Fault)?;
        s.receive("wrong direction", &[d(b, 2000, 0, 0)], Fault)?;
        s.receive(
            "wrong direction behind",
            &[d(b, 12, WRITE | NEXT, 1), d(b, 2000, 0, 0)],
            Fault,
        )?;
        s.receive("empty buffers", &[d(b, 0, WRITE, 0)], Fault)?;
        s.receive("buffers shorter than the header", &[d(b, 11, WRITE, 0)], Fault)?;
        s.receive("tiny buffers, all the same", &[d(b, 12, WRITE, 0)], Nothing)?;
        s.receive("the ring itself as buffer", &[d(0, 4096, WRITE, 0)], Expect::Any)?;
        s.receive("a nested table", &[d(b, 32, INDIRECT, 0)], Expect::Any)?;
        s.rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn available_rings() -> Result<()> {
    let mut s = Stage::new(1)?;
    for jump in [257u16, 300, 1000, 32768, u16::MAX] {
        let before = s.faults();
        let ring = s.liar.ring(1);
        ring.set_avail_idx(jump);
        ring.kick();
        s.judge("avail.idx jumps", 1, before, Expect::Fault)?;
    }
    // Back after forth.
    let before = s.faults();
    let f = numbered(
        s.macs[1],
        s.macs[0],
        Number {
            sender: 1,
            stream: 0,
            seq: 0,
        },
        60,
    );
    for _ in 0..10 {
        s.liar.send_wait(0, &f, NetHdr::default());
    }
    s.liar.drain();
    s.liar.ring(1).set_avail_idx(3);
    s.liar.ring(1).kick();
    s.judge("avail.idx goes back", 1, before, Expect::Fault)?;
    for head in [256u16, 257, 32768, u16::MAX] {
        let before = s.faults();
        let ring = s.liar.ring(1);
        ring.offer(head);
        ring.publish();
        s.judge("head out of range", 1, before, Expect::Fault)?;
    }
    // The same for receiving.
    for jump in [257u16.wrapping_add(256), 40000] {
        let before = s.faults();
        s.liar.ring(0).set_avail_idx(jump);
        let f = numbered(
            s.macs[0],
            s.macs[1],
            Number {
                sender: 1,
                stream: 0,
                seq: 0,
            },
            60,
        );
        // The 256 buffers that are there come first.
        for _ in 0..300 {
            s.peer.send_wait(0, &f, NetHdr::default());
        }
        s.peer.drain();
        s.judge("avail.idx for receiving jumps", 0, before, Expect::Fault)?;
    }
    // The same head many times is foolish, not illegal.
    let before = s.faults();
    let to_self = numbered(
        s.macs[1],
        s.macs[0],
        Number {
            sender: 1,
            stream: 0,
            seq: 0,
        },
        60,
    );
    s.liar.mem().write(BUFFERS, &[&[0; 12], &to_self[..]].concat())?;
    let ring = s.liar.ring(1);
    ring.set_desc(0, d(BUFFERS, 72, 0, 0));
    for _ in 0..256 {
        ring.offer(0);
    }
    ring.publish();
    s.judge("one head many times", 1, before, Expect::Nothing)?;
    s.rig.finish(Copies::Unknown)
}

/// Sizes and addresses of rings come through the VMM: either the connection or the ring ends.
#[test]
fn ring_sizes_and_addresses() -> Result<()> {
    let mut s = Stage::new(1)?;
    for size in [0u16, 3, 255, 257, 65535, 32769] {
        for ring in [0, 1] {
            let _ = s.liar.frontend()?.set_vring_num(ring, size);
            s.bystanders("ring size");
            s.again()?;
        }
    }
    let good = s.liar.ring(1).config(false);
    let region = s.liar.mem().regions()[0];
    let end = region.userspace_addr + region.memory_size;
    type Part = fn(&mut VringConfigData) -> &mut u64;
    let parts: [Part; 3] = [
        |c| &mut c.desc_table_addr,
        |c| &mut c.avail_ring_addr,
        |c| &mut c.used_ring_addr,
    ];
    for part in parts {
        for addr in [
            0,
            1,
            good.desc_table_addr + 1,
            1 << 60,
            u64::MAX - 15,
            !4095,
            end - 16,
            end,
        ] {
            let mut config = s.liar.ring(1).config(false);
            *part(&mut config) = addr;
            let _ = s.liar.frontend()?.set_vring_addr(1, &config);
            s.bystanders("ring address");
            s.again()?;
        }
    }
    // Parts that overlap each other, or the other ring: the guest's loss only.
    for part in parts {
        for other in parts {
            let mut config = s.liar.ring(1).config(false);
            let addr = *other(&mut s.liar.ring(0).config(false));
            *part(&mut config) = addr;
            let _ = s.liar.frontend()?.set_vring_addr(1, &config);
            for i in 0..20 {
                let f = numbered(
                    BROADCAST,
                    s.macs[0],
                    Number {
                        sender: 1,
                        stream: 0,
                        seq: i,
                    },
                    60,
                );
                let q = s.liar.ring(1);
                q.set_desc(0, d(BUFFERS, 72, 0, 0));
                q.offer(0);
                q.publish();
                s.peer.send(0, &f, NetHdr::default());
            }
            s.bystanders("overlapping rings");
            s.again()?;
        }
    }
    assert_eq!(s.rig.core_counter("panics"), 0);
    s.rig.finish(Copies::Unknown)
}

/// A ring that is moved under traffic goes on at the new place.
#[test]
fn rings_moved_while_running() -> Result<()> {
    let mut s = Stage::new(1)?;
    for round in 0..20 {
        let f = numbered(
            s.macs[1],
            s.macs[0],
            Number {
                sender: 1,
                stream: 0,
                seq: round,
            },
            60,
        );
        for _ in 0..50 {
            s.liar.send_wait(0, &f, NetHdr::default());
        }
        let config = s.liar.ring(1).config(false);
        s.liar.frontend()?.set_vring_addr(1, &config)?;
        let other = s.liar.ring(0).config(false);
        s.liar.frontend()?.set_vring_addr(0, &other)?;
        s.liar.send_wait(0, &f, NetHdr::default());
        s.liar.drain();
        s.bystanders("moved");
    }
    // To another ring's place, and a base of nowhere.
    let config = s.liar.ring(0).config(false);
    let _ = s.liar.frontend()?.set_vring_addr(1, &config);
    s.bystanders("moved onto the other");
    s.again()?;
    let _ = s.liar.frontend()?.set_vring_base(1, 12345);
    s.bystanders("base of nowhere");
    s.again()?;
    s.rig.finish(Copies::Unknown)
}

#[test]
fn long_chains() -> Result<()> {
    let o = Options {
        queue_size: 32768,
        rx_buffer: 256,
        tx_buffer: 256,
        ..Options::default()
    };
    let mut s = Stage::with(1, o.with(feature::RING_INDIRECT_DESC))?;
    let before = s.faults();
    for i in 0..32767 {
        s.liar.ring(1).set_desc(i, d(BUFFERS, 1, NEXT, i + 1));
    }
    s.liar.ring(1).set_desc(32767, d(BUFFERS, 1, 0, 0));
    s.liar.ring(1).offer(0);
    s.liar.ring(1).publish();
    s.judge("32768 descriptors", 1, before, Expect::Fault)?;
    // 32768 buffers of the longest legal chains of nothing, for each frame to be looked through in vain.
    let before = s.faults();
    for i in 0..1023 {
        s.liar
            .ring(0)
            .set_desc(i, d(BUFFERS, u32::from(i < 12), WRITE | NEXT, i + 1));
    }
    s.liar.ring(0).set_desc(1023, d(BUFFERS, 0, WRITE, 0));
    for slot in 0..32768 {
        s.liar.ring(0).set_avail(slot, 0);
    }
    let f = numbered(
        s.macs[0],
        s.macs[1],
        Number {
            sender: 1,
            stream: 0,
            seq: 0,
        },
        1514,
    );
    for _ in 0..50 {
        s.peer.send_wait(0, &f, NetHdr::default());
    }
    s.peer.drain();
    s.judge("long chains of little", 0, before, Expect::Any)?;
    s.rig.finish(Copies::Unknown)
}

#[test]
fn a_guest_that_never_takes() -> Result<()> {
    for cores in [1, 2] {
        let mut s = Stage::new(cores)?;
        let f = numbered(
            s.macs[0],
            s.macs[1],
            Number {
                sender: 1,
                stream: 0,
                seq: 0,
            },
            600,
        );
        for _ in 0..2000 {
            s.peer.send_wait(0, &f, NetHdr::default());
        }
        s.peer.drain();
        s.rig.settle()?;
        assert!(wait_for(
            || s.rig.drops("liar", DropReason::NoRxBuffer) == 2000 - 256
        ));
        s.bystanders("never takes");
        // Floods reach the others.
        let f = numbered(
            BROADCAST,
            s.macs[1],
            Number {
                sender: 9,
                stream: 9,
                seq: 77,
            },
            600,
        );
        s.peer.send_wait(0, &f, NetHdr::default());
        assert_eq!(s.x.recv(0, deadline()).expect("a frame").2, f);
        assert_eq!(s.y.recv(0, deadline()).expect("a frame").2, f);
        s.rig.finish(Copies::Extra(2))?;
    }
    Ok(())
}

/// Random virtio headers and frames.
#[test]
fn random_headers() -> Result<()> {
    for cores in [1, 2] {
        let mut dice = Dice::thrown();
        let o = Options {
            tx_buffer: 66000,
            queue_size: 64,
            ..Options::default()
        };
        let mut s = Stage::with(cores, o)?;
        let before = s.faults();
        for i in 0..6000u64 {
            let len = match dice.below(4) {
                0 => dice.below(100),
                1 => dice.below(1600),
                _ => dice.below(65900),
            } as usize;
            let mut f: Vec<u8> = (0..len).map(|_| dice.bits() as u8).collect();
            if dice.below(8) > 0 && len >= 70 {
                f[..6].copy_from_slice(&s.macs[1].0);
                f[6..12].copy_from_slice(&s.macs[0].0);
                let l3s: [&[u8]; 3] = [&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0, 0, 0, 8, 0, 0x45]];
                let l3 = *dice.pick(&l3s);
                f[12..12 + l3.len()].copy_from_slice(l3);
                let ip = 12 + l3.len() - 1;
                if dice.below(2) == 0 {
                    // TCP without options, no fragment.
                    f[ip + 6] = if l3[0] == 0x86 { 6 } else { 0 };
                    f[ip + 7] = 0;
                    f[ip + 9] = 6;
                    let tcp = ip + if l3[0] == 0x86 { 40 } else { 20 };
                    if tcp + 13 < len {
                        f[tcp + 12] = 0x50;
                    }
                }
            }
            let small = |d: &mut Dice| *d.pick(&[0u16, 1, 14, 16, 18, 34, 38, 54, 58, 65535]);
            let any = |d: &mut Dice| {
                if d.below(3) == 0 {
                    d.bits() as u16
                } else {
                    small(d)
                }
            };
            let hdr = NetHdr {
                flags: *dice.pick(&[0u8, 1, 1, 1, 2, 3, 4, 255]),
                gso_type: *dice.pick(&[0u8, 0, 1, 1, 4, 4, 3, 5, 0x80, 0x81, 0x84, 255]),
                hdr_len: any(&mut dice),
                gso_size: if dice.below(2) == 0 {
                    8 + dice.below(3000) as u16
                } else {
                    any(&mut dice)
                },
                csum_start: any(&mut dice),
                csum_offset: any(&mut dice),
            };
            s.liar.send_wait(0, &f, hdr);
            if i % 16 == 0 {
                while s.peer.try_recv(0).is_some() {}
                while s.x.try_recv(0).is_some() {}
                while s.y.try_recv(0).is_some() {}
            }
        }
        s.liar.drain();
        while s.x.try_recv(0).is_some() || s.y.try_recv(0).is_some() || s.peer.try_recv(0).is_some() {}
        s.judge("random headers", 1, before, Expect::Nothing)?;
        s.rig.finish(Copies::Unknown)?;
    }
    Ok(())
}
