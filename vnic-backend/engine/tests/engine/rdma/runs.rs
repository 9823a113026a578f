//! Runs of packets are a shorter way between neighbours, and nothing else: whatever is done with them and without, looks
//! the same at both ends.

use vnic_engine::rdma::{
    Access, Incoming, Outgoing, QpNumber, QpState, QpType, Run, SendData, SendFlags, SendOp, Sge, Sink, Span,
};
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;

use super::harness::{BASE, Connection, Pair, Side, send};
use super::strangers::estranged;

/// Hands packets to the neighbour at once, in runs of at most `room`.
struct Neighbour<'a> {
    side: &'a mut Side,
    now: Instant,
    room: usize,
    /// Packets that it takes before others have their turn.
    left: usize,
    /// Packets that came in runs.
    taken: u64,
}

impl Sink for Neighbour<'_> {
    fn open(&mut self) -> u8 {
        if self.left > 0 { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        self.left -= 1;
        let side = &mut *self.side;
        side.device.receive(self.now, &Incoming::from(packet), &side.ram);
    }

    fn run_room(&mut self, _path: &Path, _to: QpNumber) -> usize {
        self.room.min(self.left)
    }

    fn send_run(&mut self, run: &Run<'_>) -> usize {
        assert!(run.len() <= self.room.min(self.left));
        let mut frames = 0;
        run.for_each(|packet| frames += packet.path.frame_len(&packet.headers, packet.payload.len()) as u64);
        assert_eq!(run.frame_bytes(run.len()), frames);
        let taken = self.side.device.receive_run(self.now, run, &self.side.ram);
        self.left -= taken;
        self.taken += taken as u64;
        taken
    }
}

/// Numbers that look like chance.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A work request, one of those that a run may hold or one that it may not.
fn request(dice: &mut Dice, id: u64, pair: &Pair, rkeys: &[u32]) -> vnic_engine::rdma::SendWr {
    let [a, b] = &pair.sides;
    let rkey = rkeys[dice.below(40).saturating_sub(38) as usize % rkeys.len()];
    let addr = b.va(dice.below(1 << 19));
    let len = match dice.below(8) {
        0 => 0,
        1..=4 => dice.below(64) as u32,
        5 => dice.below(256) as u32 + 1,
        _ => dice.below(5000) as u32,
    };
    let sge = |at: u64, len: u32| Sge {
        addr: a.va(at),
        len,
        lkey: a.keys.lkey,
    };
    let from = dice.below(1 << 18);
    let op = match dice.below(16) {
        0 => SendOp::Send,
        1 => SendOp::WriteImm { addr, rkey, imm: 7 },
        2 => SendOp::Read { addr, rkey },
        _ => SendOp::Write { addr, rkey },
    };
    let mut wr = send(id, op, &[sge(from, len)]);
    if len > 1 && dice.below(8) == 0 {
        wr = send(id, op, &[sge(from, len / 2), sge(from + 9, len - len / 2)]);
    }
    if len <= 64 && !matches!(op, SendOp::Read { .. }) && dice.below(2) == 0 {
        let bytes = (0..len).map(|i| (id + u64::from(i)) as u8).collect();
        wr.data = SendData::Inline(bytes);
    }
    if dice.below(16) == 0 {
        wr.flags = SendFlags::FENCE;
    }
    wr
}

/// Lets each side send at most `budget` packets, in runs of at most `room`. Returns how many came in runs.
pub fn turn(pair: &mut Pair, room: usize, budget: usize) -> u64 {
    let (mut taken, now) = (0, pair.now);
    let [a, b] = &mut pair.sides;
    for forth in [true, false] {
        let (from, side) = if forth {
            (&mut *a, &mut *b)
        } else {
            (&mut *b, &mut *a)
        };
        let mut sink = Neighbour {
            side,
            now,
            room,
            left: budget,
            taken: 0,
        };
        from.device.transmit(now, &from.ram, &mut sink);
        taken += sink.taken;
    }
    taken
}

/// Everything that there is to see.
pub fn seen(pair: &mut Pair) -> Vec<String> {
    let mut all = Vec::new();
    for side in &mut pair.sides {
        let (qp, device) = (side.qp, &mut side.device);
        all.push(format!("{:?}", device.counters()));
        all.push(format!("{:?}", device.query_qp(qp)));
        all.push(format!("{:?} {:?}", side.completions(), side.events()));
    }
    all
}

/// Goes through what a seed says, with runs of at most `room`. Gives what was seen, step by step, the memories at the end,
/// and how many packets came in runs.
fn story(seed: u64, room: usize) -> (Vec<Vec<String>>, [Vec<u8>; 2], u64) {
    let mut dice = Dice(seed);
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for (i, side) in pair.sides.iter_mut().enumerate() {
        let bytes: Vec<u8> = (0..1 << 18).map(|n| (n * 7 + i) as u8).collect();
        side.fill(0, &bytes);
    }
    let b = &mut pair.sides[1];
    // Memory in pieces, memory that may only be read, and a key that comes and goes.
    let pieces = (0..128).map(|i| Span {
        at: BASE + 8192 * (i * 37 % 128),
        len: 8192,
    });
    let access = Access::LOCAL_WRITE | Access::REMOTE;
    let scattered = b
        .device
        .register(b.pd, 0x4000_0000, access, pieces.collect())
        .unwrap();
    let all = || {
        vec![Span {
            at: BASE,
            len: 1 << 20,
        }]
    };
    let going = b.device.register(b.pd, 0x4000_0000, access, all()).unwrap();
    let scattered_from_now = dice.below(2) == 0;
    let mut rkeys = vec![b.keys.rkey, going.rkey, 0x77];
    if scattered_from_now {
        rkeys.insert(0, scattered.rkey);
    }
    let (mut story, mut taken, mut id) = (Vec::new(), 0, 0);
    for step in 0..60 {
        for _ in 0..dice.below(24) {
            id += 1;
            let wr = request(&mut dice, id, &pair, &rkeys);
            let _ = {
                let a = &mut pair.sides[0];
                a.device.post_send(a.qp, wr)
            };
        }
        for _ in 0..dice.below(3) {
            let b = &mut pair.sides[1];
            let sge = b.sge(600_000, 6000);
            if b.device.held(b.qp).1 < 60 && b.state() == QpState::Rts {
                b.post_recv(1000 + id, &[sge]);
            }
        }
        if step == 40 {
            let b = &mut pair.sides[1];
            b.device.deregister(going.mr).unwrap();
        }
        let budget = dice.below(40) as usize;
        let turns = dice.below(3);
        for _ in 0..turns {
            taken += turn(&mut pair, room, budget);
        }
        pair.now = Instant(pair.now.0 + dice.below(3) * 1_000_000);
        for side in &mut pair.sides {
            side.device.handle_timeout(pair.now);
        }
        story.push(seen(&mut pair));
    }
    let memories = [0, 1].map(|i| pair.sides[i].bytes(0, 1 << 20));
    (story, memories, taken)
}

#[test]
fn what_is_done_in_runs_is_what_is_done_packet_by_packet() {
    let mut in_runs = 0;
    for seed in 0..200 {
        let (one_by_one, memories, none) = story(seed, 0);
        assert_eq!(none, 0);
        for room in [1, 5, 64] {
            let (story, memories_too, taken) = story(seed, room);
            for (step, (a, b)) in one_by_one.iter().zip(&story).enumerate() {
                assert_eq!(a, b, "seed {seed}, runs of {room}, step {step}");
            }
            assert!(memories == memories_too, "seed {seed}, runs of {room}");
            in_runs += taken;
        }
    }
    assert!(in_runs > 10_000, "only {in_runs} packets came in runs");
}

#[test]
fn a_run_of_a_stranger_is_not_taken() {
    for room in [0, 16] {
        let mut pair = estranged(QpType::Rc);
        let [a, b] = &mut pair.sides;
        a.fill(0, &[0xee; 4096]);
        let (addr, rkey) = (b.va(0), b.keys.rkey);
        for id in 0..4 {
            a.post(id, SendOp::Write { addr, rkey }, &[a.sge(0, 1000)]);
        }
        let mut sink = Neighbour {
            side: b,
            now: Instant(0),
            room,
            left: 64,
            taken: 0,
        };
        a.device.transmit(Instant(0), &a.ram, &mut sink);
        assert_eq!(sink.taken, 0);
        assert!(b.bytes(0, 4096) == [0; 4096]);
        assert_eq!(b.device.counters().drop_bad_gid, 16);
    }
}
