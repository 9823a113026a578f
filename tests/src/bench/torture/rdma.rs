//! An honest pair of RDMA programs: SEND, WRITE, READ and an atomic in each round, and every byte of them compared. With a
//! daemon go its queue pairs: what was posted and has not completed may have happened or not. Programs make all anew.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use vnic_verbs::{
    Access, CompletionQueue, ConnectOptions, Context, Device, DeviceAddress, MemoryRegion, ProtectionDomain,
    QueuePair, Rc, RecvWr, SendWr, WorkCompletion,
};

use super::stage::{Books, PATIENCE, Stage, State};
use crate::driver::rdma::fill;

/// Bytes of the longest message.
const LONGEST: usize = 20_000;
/// Places in a region: what is sent, what is read back, what arrives by SEND, what by WRITE, and a counter.
const SOURCE: usize = 0;
const BACK: usize = 1 << 16;
const SENT: usize = 2 << 16;
const WRITTEN: usize = 3 << 16;
const COUNTER: usize = 4 << 16;
/// Requests of a round.
const REQUESTS: u64 = 4;
/// The programs leave the CPU to others between two looks.
const NAP: Duration = Duration::from_micros(100);

struct Side {
    region: MemoryRegion,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    _device: Context,
}

impl Side {
    fn open(stage: &Stage, index: usize) -> Result<Side> {
        let device = Device::open(&DeviceAddress::Socket(stage.socket(index, "rdma")))?;
        let pd = device.alloc_pd()?;
        let access = Access::REMOTE_ALL | Access::LOCAL_WRITE;
        Ok(Side {
            cq: device.create_cq(64)?,
            region: pd.allocate(COUNTER + 4096, access)?,
            pd,
            _device: device,
        })
    }
}

struct Talk<'a> {
    ends: [QueuePair<Rc>; 2],
    sides: [Side; 2],
    /// What the counters stand at.
    added: [u64; 2],
    books: &'a Books,
    stage: &'a Stage,
}

/// Carries messages between two adapters until all is over.
pub(super) fn run(first: usize, stage: &Stage, books: &Books) -> Result<()> {
    let mut round = 0;
    loop {
        let (generation, state) = stage.now();
        match state {
            State::Over => return Ok(()),
            State::Up => {}
            State::Ending | State::Down => {
                sleep(Duration::from_millis(1));
                continue;
            }
        }
        let ended = Talk::open(first, stage, books).and_then(|mut talk| {
            while matches!(stage.now(), (g, State::Up | State::Ending) if g == generation) {
                // There and back.
                talk.round(0, round)?;
                talk.round(1, round)?;
                round += 1;
                books.flows.store(generation, Ordering::Relaxed);
            }
            Ok(())
        });
        match ended {
            Err(e) if stage.lives(generation) => return Err(e.context("and the daemon lives")),
            _ => Books::add(&books.lost, books.count().under_way()),
        }
    }
}

impl Talk<'_> {
    fn open<'a>(first: usize, stage: &'a Stage, books: &'a Books) -> Result<Talk<'a>> {
        let sides = [Side::open(stage, first)?, Side::open(stage, first + 1)?];
        let make = |s: &Side| {
            s.pd.qp::<Rc>(&s.cq, &s.cq)
                .max_send_wr(16)
                .max_recv_wr(16)
                .build()
        };
        let ends = [make(&sides[0])?, make(&sides[1])?];
        // The longest there is: a data core may wait for its CPU.
        let options = ConnectOptions {
            timeout: 18,
            ..ConnectOptions::default()
        };
        ends[0].connect(&ends[1].endpoint(1)?, &options)?;
        ends[1].connect(&ends[0].endpoint(1)?, &options)?;
        Ok(Talk {
            ends,
            sides,
            added: [0; 2],
            books,
            stage,
        })
    }

    fn round(&mut self, from: usize, round: u64) -> Result<()> {
        let len = 1 + (round * 977 % LONGEST as u64) as usize;
        let bytes = fill(round << 1 | from as u64, len);
        let [near, far] = [&self.sides[from], &self.sides[1 - from]];
        near.region.write_at(SOURCE, &bytes);
        for place in [SENT, WRITTEN] {
            far.region.fill(place..place + len, 0xdd);
        }
        near.region.fill(BACK..BACK + len, 0xdd);
        let remote = |place: usize| far.region.addr() + place as u64;
        let source = || near.region.slice(SOURCE..SOURCE + len);
        let rkey = far.region.rkey();
        self.ends[1 - from].post_recv(&[RecvWr::new(far.region.slice(SENT..SENT + len)).id(round)])?;
        Books::add(&self.books.begun, REQUESTS);
        let back = near.region.slice(BACK..BACK + len);
        let old = near.region.slice(COUNTER + 8..COUNTER + 16);
        self.ends[from].post_send(&[
            SendWr::send(source()).signaled(),
            SendWr::write(source(), remote(WRITTEN), rkey).signaled(),
            SendWr::read(back, remote(WRITTEN), rkey).signaled(),
            SendWr::fetch_add(old, remote(COUNTER), rkey, round | 1).signaled(),
        ])?;
        self.complete(from, REQUESTS as usize)?;
        let received = self.complete(1 - from, 1)?;
        ensure!(
            received.id() == round && received.byte_len() as usize == len,
            "round {round}: a SEND of {len} bytes arrived as {received:?}"
        );
        for (what, at) in [
            ("SEND", far.region.read_vec(SENT, len)),
            ("WRITE", far.region.read_vec(WRITTEN, len)),
            ("READ", near.region.read_vec(BACK, len)),
        ] {
            ensure!(at == bytes, "round {round}: the bytes of the {what} are wrong");
        }
        let (was, is) = (near.region.load(COUNTER + 8), far.region.load(COUNTER));
        let before = self.added[from];
        self.added[from] = before.wrapping_add(round | 1);
        ensure!(
            was == before && is == self.added[from],
            "round {round}: a counter at {before} was fetched as {was} and is {is}"
        );
        Books::add(&self.books.done, REQUESTS);
        Books::add(&self.books.bytes, 3 * len as u64 + 8);
        Ok(())
    }

    /// So many completions; the last one.
    fn complete(&self, side: usize, mut left: usize) -> Result<WorkCompletion> {
        let end = Instant::now() + PATIENCE;
        let mut done = [WorkCompletion::default(); 8];
        loop {
            let n = self.sides[side].cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            left = left.saturating_sub(n);
            if left == 0 {
                return Ok(done[n.saturating_sub(1)]);
            }
            if n == 0 {
                if self.stage.now().1 == State::Down {
                    bail!("the daemon is dead");
                }
                ensure!(Instant::now() < end, "{left} work requests do not complete");
                sleep(NAP);
            }
        }
    }
}
