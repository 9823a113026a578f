//! RDMA drivers that give the NIC as much to do as their rings can say.

use std::path::Path;

use anyhow::Result;
use vnic_device::command::Opcode;
use vnic_device::command::device::GidRecord;
use vnic_device::command::memory::RegisterMr;
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::queue::Operation;
use vnic_device::ring::{Extent, ExtentList, REGION_EXTENT_MIN};
use vnic_device::verbs::{QpState, QpType};
use vnic_device::zerocopy::IntoBytes;

use super::super::rdma::{Bells, Cq, Driver, FULL, Options, Qp, QpSpec, Side, Wr, connect, list_of};
use super::super::rig::Dice;
use super::super::{Desc, NEXT, WRITE};
use super::{Attack, Evil, Place};

/// Completions that one piece of an attack takes at most.
const TAKEN: usize = 32;
/// Queue pairs of a flood.
const FLOOD: usize = 16;

fn driver(socket: &Path, mib: u64) -> Result<Driver> {
    let options = Options {
        memory: mib << 20,
        ..Options::default()
    };
    Driver::start(socket, options)
}

fn side(socket: &Path, mib: u64) -> Result<Side> {
    Ok(Side::new(driver(socket, mib)?))
}

/// A queue pair in ERR whose send ring is full of requests: each doorbell flushes what it names.
pub fn dead_qp(s: &mut Side, cq: &Cq, blocks: u32) -> Qp {
    let spec = QpSpec {
        send_cq: cq.handle,
        blocks,
        ..s.spec(QpType::Rc).without_receives()
    };
    let mut qp = s.d.qp(&spec);
    s.d.to(&qp, QpState::Err);
    fill(&mut qp, &Wr::new(1, Operation::Write, &[]).remote(0, 0));
    qp
}

/// A send ring full of this request, of one block.
fn fill(qp: &mut Qp, wr: &Wr) {
    while qp.sends().free() > 0 {
        qp.sends().write(wr);
    }
}

/// Has the ring room for so many?
fn room(bells: &Bells, wanted: u32) -> bool {
    bells.written.wrapping_sub(bells.taken()) + wanted <= bells.entries
}

fn bell(kind: Kind, number: u32, index: u32) -> u64 {
    Doorbell { kind, number, index }.to_bits(false)
}

/// All requests of all rings, again as soon as they complete.
struct Flood {
    s: Side,
    cq: Cq,
    qps: Vec<Qp>,
    /// Completions of which only the last is read. An attacker has a CPU of its own; this one shares the CPU of the drivers that are
    /// measured, so that what it spends is missing there.
    unread: u32,
    /// Not used, but there.
    _peer: Option<Side>,
}

impl Flood {
    fn begin(mut self) -> Attack {
        for qp in &mut self.qps {
            qp.ring(&mut self.s.bells);
        }
        Box::new(move || {
            self.pump();
            Ok(())
        })
    }

    fn pump(&mut self) {
        let bells = &mut self.s.bells;
        if !room(bells, TAKEN as u32) {
            return;
        }
        for _ in 0..TAKEN / self.unread as usize {
            let Some(e) = self.cq.take_last(self.unread) else {
                break;
            };
            if let Some(qp) = self.qps.iter_mut().find(|qp| qp.number == e.qp) {
                let sends = qp.sends();
                // Each bell names more requests than the one before, the last all that there is room for.
                let before = sends.producer;
                sends.consumer = e.consumed;
                sends.producer = e.consumed.wrapping_add(sends.blocks);
                let more = sends.producer.wrapping_sub(before);
                for n in 1..=self.unread {
                    let index = before.wrapping_add(more * n / self.unread);
                    bells.write(bell(Kind::Send, e.qp, index));
                }
            }
        }
        bells.kick_if_wanted();
    }
}

/// Queue pairs from the first adapter to the second, with nothing but this request, made of both sides.
fn flood(place: &Place, pairs: usize, wr: impl FnOnce(&mut Side, &mut Side) -> Wr) -> Result<Attack> {
    let (mut a, mut b) = (side(&place.rdma[0], 16)?, side(&place.rdma[1], 16)?);
    let wr = wr(&mut a, &mut b);
    let cq = a.d.cq((pairs as u32 * 64).next_power_of_two());
    let mut qps = Vec::new();
    for _ in 0..pairs {
        let spec = QpSpec {
            send_cq: cq.handle,
            ..a.spec(QpType::Rc)
        };
        let (mut x, y) = (a.d.qp(&spec), b.qp(QpType::Rc));
        connect(&mut a.d, &x, &mut b.d, &y);
        fill(&mut x, &wr);
        qps.push(x);
    }
    let flood = Flood {
        s: a,
        cq,
        qps,
        unread: 1,
        _peer: Some(b),
    };
    Ok(flood.begin())
}

pub(super) fn rnr(place: &Place, _: Dice) -> Result<Attack> {
    flood(place, 512, |a, _| Wr::send(1, &[a.at(0, 64)]))
}

pub(super) fn atomics(place: &Place, _: Dice) -> Result<Attack> {
    flood(place, FLOOD, |a, b| {
        let add = Wr::new(1, Operation::FetchAdd, &[a.at(0, 8)]);
        add.operands(1, 0).remote(b.mr.iova, b.mr.rkey)
    })
}

pub(super) fn reads(place: &Place, _: Dice) -> Result<Attack> {
    read(place, 8)
}

pub(super) fn large_reads(place: &Place, _: Dice) -> Result<Attack> {
    read(place, 128 << 10)
}

fn read(place: &Place, len: u32) -> Result<Attack> {
    flood(place, FLOOD, |a, b| {
        Wr::new(1, Operation::Read, &[a.at(0, len)]).remote(b.mr.iova, b.mr.rkey)
    })
}

pub(super) fn spans(place: &Place, _: Dice) -> Result<Attack> {
    const LEN: u32 = 16 << 10;
    flood(place, FLOOD, |a, b| {
        let of = |s: &mut Side| {
            let area =
                s.d.area_in(&[REGION_EXTENT_MIN; (LEN as u64 / REGION_EXTENT_MIN) as usize]);
            s.d.mr_of(s.pd, area, 0x1000, FULL)
        };
        let (from, to) = (of(a), of(b));
        Wr::new(1, Operation::Write, &[from.element(0, LEN)]).remote(to.iova, to.rkey)
    })
}

pub(super) fn dead_bells(place: &Place, _: Dice) -> Result<Attack> {
    const BLOCKS: u32 = 4096;
    let mut s = side(&place.rdma[0], 64)?;
    let cq = s.d.cq(FLOOD as u32 * BLOCKS);
    let qps = (0..FLOOD).map(|_| dead_qp(&mut s, &cq, BLOCKS)).collect();
    let flood = Flood {
        s,
        cq,
        qps,
        // (No divisor of what is flushed of a queue pair at once, so that each of them is the last at some time.)
        unread: 31,
        _peer: None,
    };
    Ok(flood.begin())
}

pub(super) fn full_cq(place: &Place, _: Dice) -> Result<Attack> {
    let mut s = side(&place.rdma[0], 16)?;
    let cq = s.d.cq(16);
    let mut qps: Vec<Qp> = (0..256).map(|_| dead_qp(&mut s, &cq, 64)).collect();
    let mut turn = 0;
    Ok(Box::new(move || {
        for _ in 0..TAKEN {
            turn = (turn + 1) % qps.len();
            let (number, sends) = (qps[turn].number, qps[turn].sends());
            if room(&s.bells, 1) {
                sends.producer = sends.producer.wrapping_add(1);
                s.bells.write(bell(Kind::Send, number, sends.producer));
            }
        }
        s.bells.kick_if_wanted();
        Ok(())
    }))
}

/// Fills doorbell rings, some of them in each turn.
fn ringing(s: Side, mut rings: Vec<Bells>, bits: impl Fn(u32) -> u64 + 'static) -> Attack {
    let mut turn = 0;
    Box::new(move || {
        let _alive = &s;
        for _ in 0..4 {
            turn = (turn + 1) % rings.len();
            let bells = &mut rings[turn];
            for _ in 0..8 {
                if room(bells, 1) {
                    bells.write(bits(bells.written));
                }
            }
            bells.kick_if_wanted();
        }
        Ok(())
    })
}

pub(super) fn rings(place: &Place, _: Dice) -> Result<Attack> {
    let mut s = side(&place.rdma[0], 16)?;
    // (One is the side's own.)
    let rings = (1..64).map(|_| s.d.bells(64)).collect();
    let nobody = |index| bell(Kind::Send, 0xff_fff0 - index % 64, index);
    Ok(ringing(s, rings, nobody))
}

pub(super) fn arms(place: &Place, _: Dice) -> Result<Attack> {
    let mut s = side(&place.rdma[0], 16)?;
    let cqs: Vec<u32> = (0..64).map(|_| s.d.cq(16).handle).collect();
    let rings = vec![s.d.bells(64)];
    let arm = move |index: u32| bell(Kind::ArmNext, cqs[index as usize % cqs.len()], 0);
    Ok(ringing(s, rings, arm))
}

/// A command: what it is, its body, its list.
type Command = (Opcode, Vec<u8>, Vec<u8>);

/// These commands in turn, as many at a time as the virtqueue has room for, for ever.
fn always(mut d: Driver, commands: &[Command]) -> Result<Attack> {
    let reply = d.area(4096);
    let written: Vec<(u64, u32)> = commands
        .iter()
        .map(|(opcode, body, list)| {
            let head = d.head(*opcode, body.len(), list.len());
            let bytes = [head.as_bytes(), body, list].concat();
            let area = d.area(bytes.len() as u64);
            area.write(0, &bytes);
            (area.at(0).0, bytes.len() as u32)
        })
        .collect();
    let chains = d.control.size() / 2;
    for i in 0..chains {
        let (addr, len) = written[usize::from(i) % written.len()];
        let (head, next) = (2 * i, 2 * i + 1);
        let command = Desc {
            addr,
            len,
            flags: NEXT,
            next,
        };
        let room = Desc {
            addr: reply.at(0).0,
            len: 4096,
            flags: WRITE,
            next: 0,
        };
        d.control.set_desc(head, command);
        d.control.set_desc(next, room);
    }
    for slot in 0..d.control.size() {
        // From where the ring stands now.
        let place = d.control.avail_idx.wrapping_add(slot);
        d.control.set_avail(place, 2 * (slot % chains));
    }
    Ok(Box::new(move || {
        d.control.avail_idx = d.control.used_idx().wrapping_add(chains);
        d.control.publish();
        Ok(())
    }))
}

pub(super) fn commands(place: &Place, _: Dice) -> Result<Attack> {
    let d = driver(&place.rdma[0], 1)?;
    always(d, &[(Opcode::QueryClock, Vec::new(), Vec::new())])
}

pub(super) fn registers(place: &Place, _: Dice) -> Result<Attack> {
    const EXTENTS: u32 = 1 << 18;
    let mut d = driver(&place.rdma[0], 8)?;
    let pd = d.pd();
    let memory = d.area(4096).extents[0].gpa;
    let mut extents = vec![Extent { gpa: memory, len: 64 }; EXTENTS as usize];
    extents[EXTENTS as usize - 1].gpa = u64::MAX / 2;
    let list = d.area(16 * u64::from(EXTENTS));
    list.write(0, &list_of(&extents));
    let body = RegisterMr {
        pd,
        access: FULL,
        iova: 0,
        extents: ExtentList {
            count: EXTENTS,
            chunks: 1,
        },
    };
    let command = (
        Opcode::RegisterMr,
        body.as_bytes().to_vec(),
        list_of(&list.extents),
    );
    always(d, &[command])
}

pub(super) fn gids(place: &Place, _: Dice) -> Result<Attack> {
    let mut d = driver(&place.rdma[0], 1)?;
    let there = d.gid();
    let commands: Vec<Command> = (0..64)
        .flat_map(|i: u8| {
            let mut gid = [0; 16];
            (gid[0], gid[15]) = (0xfd, i);
            let there = GidRecord {
                index: 40 + u16::from(i),
                gid,
                mac: [0; 6],
                ..there
            };
            let gone = GidRecord {
                index: there.index,
                ..GidRecord::default()
            };
            [there, gone]
        })
        .map(|record| (Opcode::SetGid, record.as_bytes().to_vec(), Vec::new()))
        .collect();
    // (As many as there are chains: each is there in turn.)
    always(d, &commands[..64])
}

pub(super) fn deaths(place: &Place, mut dice: Dice) -> Result<Attack> {
    let place = place.clone();
    Ok(Box::new(move || {
        let (mut a, mut b) = (side(&place.rdma[0], 16)?, side(&place.rdma[1], 16)?);
        for i in 0..4 {
            let (mut x, mut y) = a.pair(&mut b, QpType::Rc);
            for _ in 0..dice.below(30) {
                let len = 1 + dice.below(100_000) as u32;
                b.receive(&mut y, i, &[b.at(0, 256 << 10)]);
                a.post(&mut x, &Wr::send(i, &[a.at(0, len)]));
                let read = Wr::new(i, Operation::Read, &[a.at(0, len)]);
                a.post(&mut x, &read.remote(b.mr.iova, b.mr.rkey));
            }
            if dice.below(4) == 0 {
                a.d.to(&x, QpState::Err);
            }
        }
        // Who goes first hears nothing of the other.
        let mut ends = [a, b];
        ends[dice.below(2) as usize].d.hang_up();
        Ok(())
    }))
}

pub(super) fn evil(place: &Place, dice: Dice) -> Result<Attack> {
    let mut evil = Evil::new(place.rdma[0].clone(), dice, &[0x11, 0x12], &[], &[])?;
    Ok(Box::new(move || evil.step()))
}
