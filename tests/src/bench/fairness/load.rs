//! Drivers that always have work for the NIC, and cost their own thread next to nothing.

use anyhow::{Result, ensure};
use vnic_backend::MacAddr;
use vnic_verbs::{Data, QueuePair, Rc, SendWr, WorkCompletion};

use super::super::product::Product;
use super::super::rdma::{BATCH, LARGE, PLACES, RATE_WINDOW, Side, WINDOW, connect};
use super::super::testpmd::guest_mac;
use crate::driver::packets::{Number, numbered};
use crate::driver::{Desc, Guest, NetHdr, Options};

/// Bytes of virtio's header before a frame.
const HEADER: u32 = 12;
/// Bytes of the longest frames.
pub(in crate::bench) const LONG: usize = 1514;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Load {
    /// Frames of so many bytes (without FCS).
    Frames(usize),
    /// RDMA WRITEs of 64 KiB.
    LargeWrites,
    /// RDMA WRITEs of 8 bytes, in batches.
    SmallWrites,
}

impl Load {
    /// As the names of figures have it.
    pub(in crate::bench) fn name(self) -> &'static str {
        match self {
            Load::Frames(..100) => "eth-64",
            Load::Frames(_) => "eth-1514",
            Load::LargeWrites => "write-64k",
            Load::SmallWrites => "write-8",
        }
    }
}

/// A pair of adapters, one of which sends to the other whatever is wanted.
pub(in crate::bench) struct Lane {
    guests: [Guest; 2],
    sides: [Side; 2],
    ends: [QueuePair<Rc>; 2],
    used: [u16; 2],
    frames: u64,
    posted: usize,
    completed: usize,
}

impl Lane {
    /// From `vf<from>` to `vf<to>`.
    pub(in crate::bench) fn open(product: &Product, from: usize, to: usize) -> Result<Lane> {
        let attach = |i| Guest::attach(product.socket(i), Options::default());
        let mut guests = [attach(from)?, attach(to)?];
        let sides = [Side::open(product, from, 1)?, Side::open(product, to, 1)?];
        let ends = connect(&sides[0], &sides[1])?;
        // All buffers of the sender hold the same frame from now on; the length is set when a load begins.
        let (to, from): (MacAddr, MacAddr) = (guest_mac(to).parse()?, guest_mac(from).parse()?);
        let number = Number {
            sender: 0,
            stream: 0,
            seq: 0,
        };
        let frame = numbered(to, from, number, LONG);
        while guests[0].tx(0).free() > 0 {
            ensure!(guests[0].stage(0, &frame, NetHdr::default()), "no room");
        }
        Ok(Lane {
            guests,
            sides,
            ends,
            used: [0; 2],
            frames: 0,
            posted: 0,
            completed: 0,
        })
    }

    /// What is pumped from now on: frames of other lengths.
    pub(in crate::bench) fn begin(&mut self, load: Load) -> Result<()> {
        let Load::Frames(len) = load else { return Ok(()) };
        let (table, size) = {
            let ring = &self.guests[0].tx(0).ring;
            (ring.desc_gpa, ring.size())
        };
        for i in 0..size {
            let mut desc = [0; 16];
            self.guests[0].mem().read(table + 16 * u64::from(i), &mut desc)?;
            let [a0, a1, a2, a3, a4, a5, a6, a7, ..] = desc;
            let addr = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
            let desc = Desc {
                addr,
                len: HEADER + len as u32,
                ..Desc::default()
            };
            self.guests[0].tx(0).ring.set_desc(i, desc);
        }
        Ok(())
    }

    /// Keeps the NIC busy: to be called again and again.
    pub(in crate::bench) fn pump(&mut self, load: Load) -> Result<()> {
        match load {
            Load::Frames(_) => {
                self.frames();
                Ok(())
            }
            Load::LargeWrites => self.large_writes(),
            Load::SmallWrites => self.small_writes(),
        }
    }

    /// Every buffer that the device has used is available again, as it was: rings are used in order.
    fn frames(&mut self) {
        let [sender, receiver] = &mut self.guests;
        for (ring, used) in [&mut sender.tx(0).ring, &mut receiver.rx(0).ring]
            .into_iter()
            .zip(&mut self.used)
        {
            let now = ring.used_idx();
            let done = now.wrapping_sub(std::mem::replace(used, now));
            ring.avail_idx = now.wrapping_add(ring.size());
            ring.publish();
            self.frames += u64::from(done);
        }
    }

    fn large_writes(&mut self) -> Result<()> {
        let [near, far] = &self.sides;
        while self.posted - self.completed < WINDOW {
            let at = self.posted % PLACES * LARGE;
            let remote = far.region.addr() + at as u64;
            let write = SendWr::write(near.region.slice(at..at + LARGE), remote, far.region.rkey());
            self.ends[0].post_send(&[write.signaled()])?;
            self.posted += 1;
        }
        self.collect()
    }

    fn small_writes(&mut self) -> Result<()> {
        let far = &self.sides[1].region;
        let bytes = [0x5au8; 8];
        while self.posted - self.completed + BATCH <= RATE_WINDOW {
            let batch: [SendWr<'_>; BATCH] = std::array::from_fn(|i| {
                let remote = far.addr() + 8 * i as u64;
                SendWr::write(Data::inline(&bytes), remote, far.rkey()).signaled()
            });
            self.ends[0].post_send(&batch)?;
            self.posted += BATCH;
        }
        self.collect()
    }

    fn collect(&mut self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 64];
        let n = self.sides[0].cq.poll(&mut done)?;
        for c in &done[..n] {
            c.ok()?;
        }
        self.completed += n;
        Ok(())
    }

    /// Frames (sent and received, both counted) or messages so far.
    pub(in crate::bench) fn moved(&self, load: Load) -> u64 {
        match load {
            Load::Frames(_) => self.frames / 2,
            Load::LargeWrites | Load::SmallWrites => self.completed as u64,
        }
    }

    /// Waits until nothing is under way.
    pub(in crate::bench) fn end(&mut self, load: Load) -> Result<()> {
        let begin = std::time::Instant::now();
        loop {
            let idle = match load {
                Load::Frames(_) => {
                    let ring = &self.guests[0].tx(0).ring;
                    ring.used_idx() == ring.avail_idx
                }
                _ => {
                    self.collect()?;
                    self.posted == self.completed
                }
            };
            if idle {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < super::PATIENCE,
                "the NIC does not finish its work"
            );
        }
    }
}

/// Two adapters whose drivers send one thing at a time, and look how long it takes.
pub(in crate::bench) struct Pingers {
    guests: [Guest; 2],
    frames: [Vec<u8>; 2],
    got: Vec<u8>,
    sides: [Side; 2],
    ends: [QueuePair<Rc>; 2],
    count: u64,
}

impl Pingers {
    pub(in crate::bench) fn open(product: &Product, one: usize, other: usize) -> Result<Pingers> {
        let attach = |i| Guest::attach(product.socket(i), Options::default());
        let sides = [Side::open(product, one, 1)?, Side::open(product, other, 1)?];
        let macs: [MacAddr; 2] = [guest_mac(one).parse()?, guest_mac(other).parse()?];
        let number = Number {
            sender: 1,
            stream: 0,
            seq: 0,
        };
        Ok(Pingers {
            guests: [attach(one)?, attach(other)?],
            frames: [
                numbered(macs[1], macs[0], number, 60),
                numbered(macs[0], macs[1], number, 60),
            ],
            got: Vec::with_capacity(64),
            ends: connect(&sides[0], &sides[1])?,
            sides,
            count: 0,
        })
    }

    /// A frame, then one back.
    pub(in crate::bench) fn frame(&mut self, beside: &mut impl FnMut() -> Result<()>) -> Result<()> {
        for from in [0, 1] {
            ensure!(
                self.guests[from].send(0, &self.frames[from], NetHdr::default()),
                "the sender's ring is full"
            );
            while self.guests[1 - from].try_recv_into(0, &mut self.got).is_none() {
                beside()?;
            }
            self.guests[from].reclaim(0);
        }
        Ok(())
    }

    /// A WRITE of 8 bytes, then one back.
    pub(in crate::bench) fn write(&mut self, beside: &mut impl FnMut() -> Result<()>) -> Result<()> {
        self.count += 1;
        for from in [0, 1] {
            let target = &self.sides[1 - from].region;
            let word = self.count.to_le_bytes();
            let write = SendWr::write(Data::inline(&word), target.addr(), target.rkey()).signaled();
            self.ends[from].post_send(&[write])?;
            while target.load(0) != self.count {
                beside()?;
            }
        }
        let mut done = [WorkCompletion::default(); 4];
        for side in &self.sides {
            let n = side.cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
        }
        Ok(())
    }
}
