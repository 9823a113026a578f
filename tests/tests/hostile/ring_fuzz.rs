//! Fuzzing through the NIC's front door: a guest whose rings and buffers are random bytes, written while the data
//! cores read them. The NIC lives, nobody writes beside the guest's memory, and two other guests lose nothing.
//!
//! `VNIC_FUZZ_CASES` sets how many cases are tried.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use vnic_backend::{AttachState, MacAddr};
use vnic_tests::driver::packets::{BROADCAST, Number, number_of, numbered};
use vnic_tests::driver::rig::{Copies, Dice, PATIENCE, Rig, deadline};
use vnic_tests::driver::{Desc, GuestMem, INDIRECT, NEXT, NetHdr, OFFLOADS, Options, WRITE, feature};

const BUFFERS: u64 = 1 << 32;

fn random_desc(dice: &mut Dice, write: bool, end: u64) -> Desc {
    let addr = match dice.below(12) {
        0 => dice.bits(),
        1 => u64::MAX - dice.below(4096),
        2 => BUFFERS - dice.below(100),
        3 => end - dice.below(5000),
        4 => dice.below(20_000),
        _ => BUFFERS + dice.below(200_000),
    };
    let len = match dice.below(10) {
        0 => dice.bits() as u32,
        1 => 0,
        2 => 16 * dice.below(20) as u32,
        3 => dice.below(70_000) as u32,
        _ => dice.below(3000) as u32,
    };
    let mut flags = if write { WRITE } else { 0 };
    match dice.below(40) {
        0 => flags = dice.bits() as u16,
        1 => flags ^= WRITE,
        2..6 => flags = INDIRECT,
        6..16 => flags |= NEXT,
        _ => {}
    }
    let next = if dice.below(50) == 0 {
        dice.bits() as u16
    } else {
        dice.below(64) as u16
    };
    Desc {
        addr,
        len,
        flags,
        next,
    }
}

/// Writes random bytes over rings and buffers until told to stop.
fn scribble(mem: &GuestMem, rings: u64, mut dice: Dice, until: &AtomicBool) {
    while !until.load(Ordering::Relaxed) {
        let value = dice.bits();
        let at = if dice.below(4) == 0 {
            dice.below(rings - 8)
        } else {
            BUFFERS + dice.below(200_000)
        };
        let bytes = value.to_le_bytes();
        let n = 1 + dice.below(8) as usize;
        // Nothing else to say about it: it is a guest's right.
        let _ = mem.write(at, &bytes[..n]);
        if dice.below(64) == 0 {
            std::thread::yield_now();
        }
    }
}

fn fuzz(cores: usize, default: u64) -> Result<()> {
    let cases = std::env::var("VNIC_FUZZ_CASES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(default);
    let mut dice = Dice::thrown();
    let mut rig = Rig::new(cores)?;
    let mut macs: Vec<MacAddr> = vec![];
    for name in ["liar", "x", "y"] {
        macs.push(rig.add_with(name, |s| s.mtu = 9000)?);
    }
    let plain = Options {
        rx_buffer: 10_000,
        queue_size: 1024,
        ..Options::default()
    };
    let mut x = rig.attach("x", plain.clone())?;
    let mut y = rig.attach("y", plain)?;
    let mut seq = 0;
    for case in 0..cases {
        let all = [
            feature::RING_INDIRECT_DESC,
            feature::RING_EVENT_IDX,
            feature::MRG_RXBUF,
            feature::VERSION_1,
            OFFLOADS,
        ];
        let mut features = feature::PROTOCOL_FEATURES;
        for f in all {
            features |= if dice.below(4) > 0 { f } else { 0 };
        }
        let start_at = dice.bits() as u16;
        let o = Options {
            features,
            queue_size: 64,
            tx_buffer: 8000,
            rx_buffer: 4000,
            start_at,
            ..Options::default()
        };
        let mut liar = rig.attach("liar", o)?;
        let mem = liar.mem().clone();
        let end = BUFFERS + mem.region(BUFFERS)?.memory_size;
        let rings = mem.region(0)?.memory_size;
        // Frames that may be sent, so that chains sometimes carry one.
        for i in 0..100 {
            let to = *dice.pick(&[BROADCAST, macs[1], macs[2]]);
            let n = Number {
                sender: 0,
                stream: 0,
                seq: i,
            };
            let f = [
                &[0; 12][..],
                &numbered(to, macs[0], n, 60 + dice.below(1000) as usize),
            ]
            .concat();
            mem.write(BUFFERS + 2000 * i, &f)?;
        }
        for i in 0..200 {
            let write = dice.below(2) == 0;
            let d = random_desc(&mut dice, write, end).bytes();
            mem.write(BUFFERS + 200_000 + 16 * i, &d)?;
        }
        for ring in 0..2 {
            for i in 0..64 {
                let mut d = random_desc(&mut dice, ring == 0, end);
                let tame = dice.below(256) >= case % 16;
                if d.flags == INDIRECT {
                    (d.addr, d.len) = (
                        BUFFERS + 200_000 + 16 * dice.below(190),
                        16 * (1 + dice.below(9)) as u32,
                    );
                }
                if tame {
                    (d.addr, d.flags) = (BUFFERS + 2000 * dice.below(99), if ring == 0 { WRITE } else { 0 });
                    d.len = 72 + dice.below(1500) as u32;
                }
                liar.ring(ring).set_desc(i, d);
            }
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            if case % 2 == 0 {
                let (mem, dice, stop) = (mem.clone(), dice.clone(), &stop);
                scope.spawn(move || scribble(&mem, rings, dice, stop));
            }
            // Stops the scribbler whatever happens.
            let _stop = Stop(&stop);
            let until = Instant::now() + Duration::from_millis(4);
            while Instant::now() < until {
                for ring in 0..2 {
                    let r = liar.ring(ring);
                    // Mostly as many as there is room for, or nothing but the first fault would ever be seen.
                    let room = 64u16.saturating_sub(r.avail_idx.wrapping_sub(r.used_idx()));
                    let wild = dice.below(100_000) < case % 16;
                    for _ in 0..dice.below(u64::from(room) + 1) {
                        r.offer(if wild {
                            dice.bits() as u16
                        } else {
                            dice.below(64) as u16
                        });
                    }
                    if wild {
                        r.avail_idx = r.avail_idx.wrapping_add(dice.below(200) as u16);
                    }
                    r.publish();
                    r.kick();
                }
                for (g, m) in [(&mut x, 1), (&mut y, 2)] {
                    let n = Number {
                        sender: m,
                        stream: 1,
                        seq: 0,
                    };
                    let len = 60 + dice.below(8000) as usize;
                    if len <= 2000 {
                        g.send(0, &numbered(macs[0], macs[m as usize], n, len), NetHdr::default());
                    }
                    while g.try_recv(0).is_some() {}
                }
            }
            Ok(())
        })?;
        for g in [&mut x, &mut y] {
            g.drain();
            while g.try_recv(0).is_some() {}
        }
        // The others lose nothing. The liar may still be sending: take its frames out of the way.
        for _ in 0..10 {
            seq += 1;
            for turn in 0..2 {
                let (from, to, a, b) = if turn == 0 {
                    (&mut x, &mut y, macs[1], macs[2])
                } else {
                    (&mut y, &mut x, macs[2], macs[1])
                };
                let n = Number {
                    sender: 9,
                    stream: 9,
                    seq,
                };
                from.send_wait(0, &numbered(b, a, n, 100), NetHdr::default());
                loop {
                    let (_, _, f) = to.recv(0, deadline()).expect("the bystanders' frame");
                    if f.len() == 100 && f[6..12] == a.0 && number_of(&f) == Some(n) {
                        break;
                    }
                }
            }
        }
        assert!(rig.nic.responsive(PATIENCE));
        assert_eq!(rig.core_counter("panics"), 0);
        mem.check_canaries()?;
        liar.hang_up();
        rig.state("liar", AttachState::Detached)?;
    }
    let count = |name| rig.counter("liar", name);
    let (faults, sent, got) = (count("ring_faults"), count("tx_frames"), count("rx_frames"));
    println!("{cases} cases, {faults} faults, {sent} frames from the liar, {got} to it");
    for g in [&mut x, &mut y] {
        g.drain();
        g.mem().check_canaries()?;
    }
    rig.finish(Copies::Unknown)
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn random_rings_on_one_core() -> Result<()> {
    fuzz(1, 100)
}

#[test]
fn random_rings_on_two_cores() -> Result<()> {
    fuzz(2, 100)
}
