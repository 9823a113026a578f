//! Memory that comes and goes, dirty logging, rings that stop and go on.

use std::collections::BTreeSet;

use anyhow::Result;
use vhost::VhostBackend;
use vnic_backend::{AttachState, MacAddr, NicEventKind};
use vnic_tests::driver::packets::{Number, number_of, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{Guest, Layout, Log, NetHdr, Options, feature};
use vnic_tests::lab::own_process;

struct Pair {
    a: Guest,
    b: Guest,
    macs: [MacAddr; 2],
    sent: u64,
    got: u64,
}

impl Pair {
    fn new(rig: &mut Rig, o: &Options) -> Result<Pair> {
        let macs = [rig.add("a")?, rig.add("b")?];
        Ok(Pair {
            a: rig.attach("a", o.clone())?,
            b: rig.attach("b", o.clone())?,
            macs,
            sent: 0,
            got: 0,
        })
    }

    /// Sends `n` frames; does not wait for them.
    fn send(&mut self, n: u64) {
        for _ in 0..n {
            let number = Number {
                sender: 0,
                stream: 0,
                seq: self.sent,
            };
            let len = 60 + (self.sent * 37 % 1400) as usize;
            self.a.send_wait(
                0,
                &numbered(self.macs[1], self.macs[0], number, len),
                NetHdr::default(),
            );
            self.sent += 1;
        }
    }

    /// Receives what is there; frames may be missing, never repeated or out of order.
    fn poll(&mut self) {
        while let Some((_, _, f)) = self.b.try_recv(0) {
            let n = number_of(&f).expect("a numbered frame");
            assert!(n.seq >= self.got, "frame {} after {}", n.seq, self.got);
            self.got = n.seq + 1;
        }
    }

    /// Receives what is left of all that was sent; frames may be missing. A frame is complete for its sender a
    /// moment before its receiver sees it, so the core ends its round first.
    fn skip_to_the_end(&mut self, rig: &Rig) -> Result<()> {
        self.a.drain();
        rig.settle()?;
        self.poll();
        self.got = self.sent;
        Ok(())
    }

    /// Receives all that was sent, without loss.
    fn all(&mut self) {
        while self.got < self.sent {
            let (_, _, f) = self.b.recv(0, deadline()).expect("a frame");
            assert_eq!(number_of(&f).expect("a numbered frame").seq, self.got);
            self.got += 1;
        }
    }
}

const EXTRA_AT: u64 = 5 << 32;

#[test]
fn memory_hot_plug_under_traffic() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mut p = Pair::new(&mut rig, &Options::default())?;
    let changes = |rig: &mut Rig| rig.count_events("b", |k| matches!(k, NicEventKind::AdapterState(_)));
    rig.wait_event("b", |k| *k == NicEventKind::AdapterState(AttachState::Up))?;
    let before = changes(&mut rig);
    for round in 0..5 {
        p.send(20);
        p.b.plug(EXTRA_AT, 4 << 20)?;
        p.a.plug(EXTRA_AT, 4 << 20)?;
        p.b.move_buffers(0, EXTRA_AT)?;
        p.a.move_buffers(1, EXTRA_AT + (1 << 20))?;
        for _ in 0..40 {
            p.send(20);
            p.poll();
        }
        p.skip_to_the_end(&rig)?;
        // Everything posted lies in the new memory now: nothing may be lost there.
        for _ in 0..20 {
            p.send(20);
            p.all();
        }
        // And back.
        p.b.move_buffers_home(0);
        p.a.move_buffers_home(1);
        for _ in 0..40 {
            p.send(20);
            p.all();
        }
        p.a.drain();
        p.b.unplug(EXTRA_AT)?;
        p.a.unplug(EXTRA_AT)?;
        p.send(20);
        p.all();
        p.a.set_mem_table()?;
        p.send(10);
        p.b.set_mem_table()?;
        p.poll();
        p.skip_to_the_end(&rig)?;
        p.send(10);
        p.all();
        assert_eq!(rig.nic.adapter("b")?.state, AttachState::Up, "round {round}");
        p.a.mem().check_canaries()?;
        p.b.mem().check_canaries()?;
    }
    // The link did not flap: the guest and the network see nothing of it.
    rig.settle()?;
    assert_eq!(changes(&mut rig), before, "{:?}", rig.events);
    rig.finish(Copies::Extra(0))
}

/// Buffers that cross from one region into the next are one buffer.
#[test]
fn buffers_across_regions() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let macs = [rig.add("a")?, rig.add("b")?];
    let o = Options {
        queue_size: 4,
        rx_buffer: 16384,
        tx_buffer: 16384,
        ..Options::default()
    };
    let mut guests = [Guest::new(o.clone())?, Guest::new(o)?];
    for (i, g) in guests.iter_mut().enumerate() {
        g.connect(rig.socket(["a", "b"][i]))?;
        // Pages of different files, side by side.
        for page in 0..16 {
            g.plug(EXTRA_AT + page * 4096, 4096)?;
        }
    }
    rig.up("a")?;
    rig.up("b")?;
    let [ga, gb] = &mut guests;
    let f = numbered(
        macs[1],
        macs[0],
        Number {
            sender: 0,
            stream: 0,
            seq: 0,
        },
        1514,
    );
    for start in [4096 - 12, 4096 - 5, 8192 - 200, 4096 * 3 - 1] {
        use vnic_tests::driver::{Desc, WRITE};
        ga.mem().write(EXTRA_AT + start, &NetHdr::default().emit(0))?;
        ga.mem().write(EXTRA_AT + start + 12, &f)?;
        let tx = ga.ring(1);
        tx.set_desc(
            0,
            Desc {
                addr: EXTRA_AT + start,
                len: 12 + f.len() as u32,
                flags: 0,
                next: 0,
            },
        );
        tx.offer(0);
        let rx = gb.ring(0);
        // All posted buffers are replaced by one across pages.
        for i in 0..4 {
            rx.set_desc(
                i,
                Desc {
                    addr: EXTRA_AT + 8192 - 7,
                    len: 4096,
                    flags: WRITE,
                    next: 0,
                },
            );
        }
        ga.ring(1).publish();
        assert!(wait_for(|| gb.ring(0).take().is_some()));
        let mut got = vec![0; f.len()];
        gb.mem().read(EXTRA_AT + 8192 - 7 + 12, &mut got)?;
        assert!(got == f, "start {start}");
        assert!(wait_for(|| ga.ring(1).take().is_some()));
    }
    rig.finish(Copies::Extra(0))
}

#[test]
fn dirty_log_is_exact() -> Result<()> {
    for layout in [Layout::Same, Layout::Split(5)] {
        let mut rig = Rig::new(1)?;
        let o = Options {
            rx_buffer: 16384,
            rx_layout: layout,
            queue_size: 64,
            ..Options::default()
        };
        let mut p = Pair::new(&mut rig, &o)?;
        p.send(5);
        p.all();
        let log = Log::start(&mut p.b)?;
        rig.up("b")?;
        p.b.options.repost = false;
        // What starting the rings marked is not looked at.
        log.take()?;
        for _ in 0..7 {
            // Before the first unread buffer.
            let used_page = p.b.ring(0).used_gpa / 4096;
            p.send(1);
            p.a.drain();
            rig.settle()?;
            // Where the frame lies: look for its bytes.
            let len = 60 + ((p.sent - 1) * 37 % 1400);
            let mut written = BTreeSet::from([used_page]);
            let regions = p.b.mem().regions();
            let buffers = regions
                .iter()
                .find(|r| r.guest_phys_addr >= 1 << 32)
                .expect("buffers");
            let mut bytes = vec![0; buffers.memory_size as usize];
            p.b.mem().read(buffers.guest_phys_addr, &mut bytes)?;
            if layout == Layout::Same {
                let mut head = numbered(
                    p.macs[1],
                    p.macs[0],
                    Number {
                        sender: 0,
                        stream: 0,
                        seq: p.sent - 1,
                    },
                    60,
                );
                head.truncate(30);
                let at = bytes.windows(30).position(|w| w == head).expect("the frame") as u64;
                let from = buffers.guest_phys_addr + at - 12;
                written.extend((from..from + 12 + len).map(|b| b / 4096));
            }
            p.all();
            let marked = log.take()?;
            assert!(
                marked.is_superset(&written),
                "{marked:x?} marked, {written:x?} written"
            );
            if layout == Layout::Same {
                assert_eq!(marked, written, "pages that were not written are marked");
            }
        }
        // Of the sender's memory nothing is written but its used ring.
        let log = Log::start(&mut p.a)?;
        rig.up("a")?;
        log.take()?;
        p.b.options.repost = true;
        p.b.post(0, 10);
        p.send(3);
        p.a.drain();
        p.all();
        let used_page = p.a.ring(1).used_gpa / 4096;
        assert_eq!(log.take()?, BTreeSet::from([used_page]));
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

/// GET_VRING_BASE, RESET_DEVICE, enable and disable in the middle of traffic: nothing is lost on the sender's
/// side, nothing comes twice.
#[test]
fn stop_and_go_on_in_the_middle_of_a_ring() -> Result<()> {
    for cores in [1, 2] {
        let mut rig = Rig::new(cores)?;
        let o = Options {
            start_at: 65000,
            ..Options::default()
        };
        let mut p = Pair::new(&mut rig, &o)?;
        for round in 0..30 {
            p.send(10 + round);
            match round % 4 {
                0 => {
                    // The sender's ring stands still; what it posts meanwhile goes out later.
                    let base = p.a.stop_ring(1)?;
                    assert_eq!(base, p.a.ring(1).used_idx());
                    for _ in 0..5 {
                        let number = Number {
                            sender: 0,
                            stream: 0,
                            seq: p.sent,
                        };
                        assert!(p.a.stage(0, &numbered(p.macs[1], p.macs[0], number, 60), NetHdr::default()));
                        p.a.ring(1).publish();
                        p.sent += 1;
                    }
                    let waiting = p.a.ring(1).avail_idx.wrapping_sub(base);
                    p.all_but(waiting.into());
                    assert!(p.b.try_recv(0).is_none());
                    p.a.start_ring(1)?;
                    rig.up("a")?;
                    p.all();
                }
                1 => {
                    p.a.frontend()?.set_vring_enable_off_on(1)?;
                    p.all();
                }
                2 => {
                    p.all();
                    let base = p.b.stop_ring(0)?;
                    assert_eq!(base, p.b.ring(0).used_idx());
                    p.b.start_ring(0)?;
                    rig.up("b")?;
                    p.send(3);
                    p.all();
                }
                _ => {
                    p.a.drain();
                    p.all();
                    p.a.reset()?;
                    rig.up("a")?;
                    p.b.reset()?;
                    rig.up("b")?;
                }
            }
            p.send(5);
            p.all();
        }
        rig.finish(Copies::Extra(0))?;
    }
    Ok(())
}

impl Pair {
    fn all_but(&mut self, n: u64) {
        let sent = self.sent;
        self.sent -= n;
        self.all();
        self.sent = sent;
    }
}

trait OffOn {
    fn set_vring_enable_off_on(&mut self, i: usize) -> Result<()>;
}

impl OffOn for vhost::vhost_user::Frontend {
    fn set_vring_enable_off_on(&mut self, i: usize) -> Result<()> {
        use vhost::vhost_user::VhostUserFrontend;
        self.set_vring_enable(i, false)?;
        Ok(self.set_vring_enable(i, true)?)
    }
}

/// A new interrupt descriptor while frames come: QEMU does that whenever the guest masks its interrupt. No frame
/// may be lost.
#[test]
fn a_new_call_descriptor_loses_nothing() -> Result<()> {
    let mut rig = Rig::new(1)?;
    let mut p = Pair::new(&mut rig, &Options::default().with(feature::RING_EVENT_IDX))?;
    for _ in 0..50 {
        p.send(30);
        let call = p.b.ring(0).call.try_clone()?;
        p.b.frontend()?.set_vring_call(0, &call)?;
        let call = p.a.ring(1).call.try_clone()?;
        p.a.frontend()?.set_vring_call(1, &call)?;
        p.all();
    }
    rig.finish(Copies::Extra(0))
}

/// Of a guest that is gone nothing stays mapped, whatever its buffers were made of: its memory would stay taken.
#[test]
fn memory_of_a_guest_that_is_gone_is_unmapped() -> Result<()> {
    // Counts maps of the process.
    own_process(|| {
        let maps = || {
            std::fs::read_to_string("/proc/self/maps")
                .expect("our maps")
                .matches("memfd:guest")
                .count()
        };
        for layout in [Layout::Same, Layout::Separate, Layout::Split(5)] {
            let mut rig = Rig::new(1)?;
            let o = Options {
                rx_layout: layout,
                tx_layout: layout,
                ..Options::default()
            };
            let mut p = Pair::new(&mut rig, &o)?;
            p.send(20);
            p.all();
            p.a.detach()?;
            p.b.detach()?;
            drop(p);
            assert!(wait_for(|| maps() == 0), "{layout:?}: {} maps are left", maps());
            rig.finish(Copies::Unknown)?;
        }
        Ok(())
    })
}
