//! Neighbours in one daemon: no packet is built, payload is copied once, from memory to memory.

use std::cell::Cell;

use vnic_engine::rdma::{Incoming, Memory, Outgoing, QpType, SendOp, Sink, Status, Unmapped};

use super::harness::{Connection, Pair, Ram, Side};

/// Counts how payload moves.
struct Counted<'a> {
    ram: &'a Ram,
    copied: &'a Cell<u64>,
    bounced: &'a Cell<u64>,
}

impl Memory for Counted<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        self.bounced.set(self.bounced.get() + into.len() as u64);
        self.ram.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.bounced.set(self.bounced.get() + from.len() as u64);
        self.ram.write(at, from)
    }

    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        self.ram.atomic(at, change)
    }

    fn copy_from(&self, at: u64, source: &dyn Memory, from: u64, len: u64) -> Result<(), Unmapped> {
        self.copied.set(self.copied.get() + len);
        let (copied, bounced) = (self.copied.get(), self.bounced.get());
        let mut bytes = vec![0; len as usize];
        source.read(from, &mut bytes)?;
        self.ram.write(at, &bytes)?;
        self.copied.set(copied);
        self.bounced.set(bounced);
        Ok(())
    }
}

/// Hands every packet to the neighbour at once, as it is.
struct Neighbour<'a> {
    side: &'a mut Side,
    now: vnic_wire::time::Instant,
    copied: &'a Cell<u64>,
    bounced: &'a Cell<u64>,
}

impl Sink for Neighbour<'_> {
    fn open(&mut self) -> u8 {
        0xff
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let memory = Counted {
            ram: &self.side.ram,
            copied: self.copied,
            bounced: self.bounced,
        };
        self.side
            .device
            .receive(self.now, &Incoming::from(packet), &memory);
    }
}

#[test]
fn payload_is_copied_once_from_memory_to_memory() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.fill(0, &[4; 5000]);
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    b.post_recv(1, &[b.sge(30_000, 2000)]);
    a.post(
        1,
        SendOp::Write { addr, rkey },
        &[a.sge(0, 1234), a.sge(1234, 3766)],
    );
    a.post(2, SendOp::Read { addr, rkey }, &[a.sge(20_000, 5000)]);
    a.post(3, SendOp::Send, &[a.sge(0, 2000)]);
    let (copied, bounced) = (Cell::new(0), Cell::new(0));
    while pair.sides.iter().any(|s| s.device.wants_transmit()) {
        let [a, b] = &mut pair.sides;
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = if from < to {
                (&mut *a, &mut *b)
            } else {
                (&mut *b, &mut *a)
            };
            let memory = Counted {
                ram: &from.ram,
                copied: &copied,
                bounced: &bounced,
            };
            let mut sink = Neighbour {
                side: to,
                now: pair.now,
                copied: &copied,
                bounced: &bounced,
            };
            from.device.transmit(pair.now, &memory, &mut sink);
        }
    }
    let [a, b] = &mut pair.sides;
    let done: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(
        done,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert!(a.bytes(20_000, 5000) == [4; 5000]);
    assert!(b.bytes(30_000, 2000) == [4; 2000]);
    assert_eq!((copied.get(), bounced.get()), (5000 + 5000 + 2000, 0));
}
