//! What one queue's frames cost does not come out of the turns of others. Rounds are counted, not timed: the data core does one
//! when the test says so.

use std::sync::Arc;
use std::time::Duration;

use vnic_backend::VirtualClock;
use vnic_tests::driver::OFFLOADS;
use vnic_tests::driver::packets::{FIRST_SEQ, Flow, parse, pattern, tso};

use super::*;

/// Plain frames of a queue in a round.
const BURST: usize = 32;
const TABLE: u64 = 1 << 40;

/// Of a round: how many of the liar's buffers were completed, and what its peer got.
type Round = (u16, Vec<(NetHdr, Vec<u8>)>);

/// A liar and its peer, and two bystanders of which one has always frames to send.
struct Rounds {
    rig: Rig,
    clock: Arc<VirtualClock>,
    liar: Guest,
    peer: Guest,
    x: Guest,
    y: Guest,
    macs: [MacAddr; 4],
}

impl Rounds {
    fn new(liar: Options, peer: Options) -> Result<Rounds> {
        let clock = VirtualClock::new(Duration::from_micros(1));
        let mut rig = Rig::with_clock(clock.clone())?;
        let macs = [rig.add("liar")?, rig.add("peer")?, rig.add("x")?, rig.add("y")?];
        Ok(Rounds {
            liar: rig.attach("liar", liar)?,
            peer: rig.attach("peer", peer)?,
            x: rig.attach("x", Options::default())?,
            y: rig.attach("y", Options::default())?,
            rig,
            clock,
            macs,
        })
    }

    fn flow(&self) -> Flow {
        Flow {
            to: self.macs[1],
            from: self.macs[0],
            v6: false,
            vlan: None,
            port: 1000,
        }
    }

    /// So many rounds from when the liar offers what it has staged; in each of them the bystander's turn comes.
    fn run(&mut self, rounds: usize) -> Vec<Round> {
        let held = self.clock.hold();
        // What was on its way when the core was let go is of no round.
        while self.y.try_recv(0).is_some() {}
        self.liar.ring(1).publish();
        let number = Number {
            sender: 2,
            stream: 0,
            seq: 0,
        };
        let frame = numbered(self.macs[3], self.macs[2], number, 60);
        let mut each = Vec::new();
        for round in 0..rounds {
            while self.x.stage(0, &frame, NetHdr::default()) {}
            self.x.ring(1).publish();
            let before = self.liar.ring(1).used_idx();
            held.rounds(1);
            let mut got = 0;
            while self.y.try_recv(0).is_some() {
                got += 1;
            }
            assert_eq!(got, BURST, "of the bystander's frames in round {round}");
            let done = self.liar.ring(1).used_idx().wrapping_sub(before);
            let mut frames = Vec::new();
            while let Some((hdr, _, frame)) = self.peer.try_recv(0) {
                frames.push((hdr, frame));
            }
            each.push((done, frames));
        }
        each
    }

    /// The peer's buffers are full, a frame waits for the next one, and senders wait for that.
    fn fill_peer(&mut self) -> Result<()> {
        self.rig.nic.set_dropless("peer", 100)?;
        self.peer.options.repost = false;
        let number = Number {
            sender: 1,
            stream: 0,
            seq: 0,
        };
        let plain = numbered(self.macs[1], self.macs[0], number, 60);
        while self.rig.nic.dropless("peer")?.waiting == 0 {
            self.liar.send_wait(0, &plain, NetHdr::default());
            // One that waits is completed; another one behind it would not be.
            self.liar.drain();
            self.rig.settle()?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        assert_eq!(self.rig.core_counter("panics"), 0);
        self.rig.finish(Copies::Unknown)
    }
}

/// All buffers of a ring are one table, of descriptors of these lengths: to send this, or to receive.
fn tables(guest: &mut Guest, ring: usize, bytes: &[u8], lens: &[u32]) -> Result<()> {
    let at = TABLE + (32 << 10);
    guest.plug(TABLE, 64 << 10)?;
    guest.mem().write(at, bytes)?;
    let write = if ring == 0 { WRITE } else { 0 };
    let mut offset = 0;
    for (i, len) in (0u16..).zip(lens) {
        let last = usize::from(i) + 1 == lens.len();
        let (next, next_at) = if last { (0, 0) } else { (NEXT, i + 1) };
        let desc = d(at + offset, *len, write | next, next_at);
        guest.mem().write(TABLE + 16 * u64::from(i), &desc.bytes())?;
        offset += u64::from(*len);
    }
    let ring = guest.ring(ring);
    for i in 0..ring.size() {
        ring.set_desc(i, d(TABLE, 16 * lens.len() as u32, INDIRECT, 0));
        ring.set_avail(i, i);
    }
    ring.avail_idx = ring.used_idx().wrapping_add(ring.size());
    Ok(())
}

/// A frame of 60 bytes in so many descriptors, all but the first of which are empty.
fn long_chains(guest: &mut Guest, frame: &[u8], descriptors: usize) -> Result<()> {
    let whole = [&[0; 12], frame].concat();
    let mut lens = vec![0; descriptors];
    lens[0] = whole.len() as u32;
    tables(guest, 1, &whole, &lens)
}

#[test]
fn a_burst_ends_behind_a_long_chain_though_it_is_empty() -> Result<()> {
    let indirect = Options::default().with(feature::RING_INDIRECT_DESC);
    let mut r = Rounds::new(indirect, Options::default())?;
    let number = Number {
        sender: 1,
        stream: 0,
        seq: 0,
    };
    let frame = numbered(r.macs[1], r.macs[0], number, 60);
    long_chains(&mut r.liar, &frame, 1024)?;
    let rounds = r.run(300);
    let done: Vec<u16> = rounds.iter().map(|(done, _)| *done).collect();
    assert_eq!(done[0], 1, "one frame, then others have their turns");
    assert!(done.iter().all(|n| *n <= 1), "{done:?}");
    // 2,044 plain frames each, at 32 a round.
    let all: u16 = done.iter().sum();
    assert!((4..=5).contains(&all), "{all} long frames in 300 rounds");
    assert!(
        rounds
            .iter()
            .flat_map(|(_, frames)| frames)
            .all(|(_, f)| *f == frame)
    );
    r.finish()
}

#[test]
fn short_chains_are_as_good_as_none() -> Result<()> {
    let indirect = Options::default().with(feature::RING_INDIRECT_DESC);
    let mut r = Rounds::new(indirect, Options::default())?;
    let number = Number {
        sender: 1,
        stream: 0,
        seq: 0,
    };
    let frame = numbered(r.macs[1], r.macs[0], number, 60);
    long_chains(&mut r.liar, &frame, 2)?;
    let rounds = r.run(4);
    assert!(rounds.iter().all(|(done, _)| usize::from(*done) == BURST));
    r.finish()
}

fn segmenting() -> Options {
    Options {
        tx_buffer: 66_000,
        queue_size: 64,
        ..Options::default().with(OFFLOADS)
    }
}

fn plain_receiver() -> Options {
    Options {
        queue_size: 512,
        ..Options::default()
    }
}

#[test]
fn a_request_of_many_segments_is_sent_in_parts() -> Result<()> {
    let mut r = Rounds::new(segmenting(), plain_receiver())?;
    let payload = pattern(60_000);
    let (frame, hdr) = tso(&r.flow(), &payload, 8);
    assert!(r.liar.stage(0, &frame, hdr) && r.liar.stage(0, &frame, hdr));
    let rounds = r.run(1200);
    // A buffer is completed once: when its bytes have been read.
    let done: Vec<usize> = (0..rounds.len()).filter(|i| rounds[*i].0 > 0).collect();
    assert_eq!(done.len(), 2);
    assert!(rounds.iter().all(|(n, _)| *n <= 1));
    let most = rounds.iter().map(|(_, frames)| frames.len()).max();
    assert_eq!(most, Some(32), "segments in a round");
    let segments: Vec<&(NetHdr, Vec<u8>)> = rounds.iter().flat_map(|(_, frames)| frames).collect();
    assert_eq!(segments.len(), 2 * 7500);
    for (i, (hdr, frame)) in segments.iter().enumerate() {
        let (at, p) = (i % 7500 * 8, parse(frame));
        assert_eq!(*hdr, NetHdr::default());
        assert_eq!(p.seq, FIRST_SEQ.wrapping_add(at as u32), "segment {i}");
        assert!(p.payload == payload[at..at + 8], "payload of segment {i}");
        let last = at + 8 == payload.len();
        assert_eq!(p.fin_psh, (last, last), "segment {i}");
    }
    let first_of = |frame: usize| {
        let before = |i: &usize| rounds[..*i].iter().map(|(_, f)| f.len()).sum::<usize>();
        (0..rounds.len()).find(|i| before(i) == frame * 7500 && !rounds[*i].1.is_empty())
    };
    assert!(first_of(0) > Some(done[0]), "completed before anybody sees it");
    assert!(first_of(1) > Some(done[1]) && Some(done[1]) > first_of(0));
    r.finish()
}

#[test]
fn a_burst_ends_where_its_requests_have_many_segments() -> Result<()> {
    let mut r = Rounds::new(segmenting(), plain_receiver())?;
    // 100 segments: of 8 bytes, and such as come of the default MSS.
    for (len, size, a_round) in [(800, 8, 3), (53_600, 536, 4)] {
        let (frame, hdr) = tso(&r.flow(), &pattern(len), size);
        for _ in 0..4 {
            assert!(r.liar.stage(0, &frame, hdr));
        }
        let rounds = r.run(20);
        let done: Vec<u16> = rounds.iter().map(|(n, _)| *n).collect();
        assert_eq!(done[0], a_round, "{done:?}");
        assert_eq!(done.iter().sum::<u16>(), 4);
    }
    r.finish()
}

/// Whoever sends to it would have to walk them, and a broadcaster those of all.
#[test]
fn buffers_in_many_pieces_cost_their_guest_the_frame() -> Result<()> {
    let indirect = || Options::default().with(feature::RING_INDIRECT_DESC);
    let empty = |n: usize, len: u32| [vec![0; n - 1], vec![len]].concat();
    for (lens, fits) in [
        // A frame of 60 bytes and its header: 64 descriptors, and one more.
        (empty(65, 2000), true),
        (empty(66, 2000), false),
        (vec![2; 1024], false),
        (empty(1024, 2000), false),
        // Three buffers for a frame.
        (empty(21, 24), true),
        (empty(22, 24), false),
    ] {
        let mut r = Rounds::new(indirect(), indirect())?;
        tables(&mut r.peer, 0, &[], &lens)?;
        r.peer.ring(0).publish();
        let before = r.peer.ring(0).used_idx();
        let number = Number {
            sender: 1,
            stream: 0,
            seq: 0,
        };
        let frame = numbered(r.macs[1], r.macs[0], number, 60);
        for _ in 0..10 {
            r.liar.send_wait(0, &frame, NetHdr::default());
        }
        r.liar.drain();
        r.rig.settle()?;
        let buffers = r.peer.ring(0).used_idx().wrapping_sub(before);
        let each = 72u32.div_ceil(lens.iter().sum()) as u16;
        let what = format!("{} descriptors", lens.len());
        assert_eq!(buffers, if fits { 10 * each } else { 0 }, "{what}");
        let lost = r.rig.drops("peer", DropReason::RxBufferTooSmall);
        assert_eq!(lost, if fits { 0 } else { 10 }, "{what}");
        r.finish()?;
    }
    Ok(())
}

/// While its receiver has no room, a request is not cut: its sender owes nothing for it.
#[test]
fn a_request_that_waits_is_owed_for_once() -> Result<()> {
    for wait in 1..8 {
        let receiver = Options {
            queue_size: 128,
            ..Options::default()
        };
        let mut r = Rounds::new(segmenting(), receiver)?;
        r.fill_peer()?;
        let (frame, hdr) = tso(&r.flow(), &pattern(800), 8);
        assert!(r.liar.stage(0, &frame, hdr));
        let held = r.clock.hold();
        let before = r.liar.ring(1).used_idx();
        r.liar.ring(1).publish();
        held.rounds(wait);
        assert_eq!(r.liar.ring(1).used_idx(), before, "it waits");
        while r.peer.try_recv(0).is_some() {}
        r.peer.post(0, 128);
        // A round sees that there is room; in the next one it goes at the latest.
        held.rounds(2);
        assert_eq!(
            r.liar.ring(1).used_idx(),
            before.wrapping_add(1),
            "after {wait} rounds"
        );
        drop(held);
        r.finish()?;
    }
    Ok(())
}

/// What has not gone of a request is forgotten when its ring is stopped.
#[test]
fn a_ring_stops_in_the_middle_of_a_request() -> Result<()> {
    let mut r = Rounds::new(segmenting(), plain_receiver())?;
    r.fill_peer()?;
    let (frame, hdr) = tso(&r.flow(), &pattern(60_000), 8);
    for _ in 0..4 {
        assert!(r.liar.stage(0, &frame, hdr));
    }
    let before = r.liar.ring(1).used_idx();
    let rounds = r.run(3);
    assert_eq!(rounds[0].0, 1, "it is taken, and waits");
    assert!(rounds[1..].iter().all(|(n, _)| *n == 0));
    assert_eq!(r.liar.stop_ring(1)?, before.wrapping_add(1));
    assert_eq!(r.liar.ring(1).used_idx(), before.wrapping_add(1));
    r.finish()
}
