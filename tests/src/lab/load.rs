//! Loads that check each byte, and know their longest pause.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use vnic_verbs::{
    Access, CompletionChannel, CompletionQueue, ConnectOptions, Context, CqBuilder, Device, DeviceAddress,
    MemoryRegion, ProtectionDomain, QueuePair, Rc, SendWr, WorkCompletion,
};

use super::{Host, PATIENCE};

/// Shared with who looks on.
#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    done: AtomicU64,
    /// In µs, since somebody took it last.
    pause: AtomicU64,
}

impl Progress {
    fn paused(&self, time: Duration) {
        self.pause.fetch_max(time.as_micros() as u64, Relaxed);
    }
}

/// A load that runs.
pub struct Load {
    name: &'static str,
    progress: Arc<Progress>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Waits for so much more of it.
    pub fn goes_on(&self, more: u64) -> Result<()> {
        let begin = self.done();
        let end = Instant::now() + PATIENCE;
        while self.done() - begin < more {
            let (done, ended) = (
                self.done() - begin,
                self.threads.iter().any(JoinHandle::is_finished),
            );
            ensure!(
                !ended,
                "{}: it has ended by itself after {done} of {more}",
                self.name
            );
            ensure!(
                Instant::now() < end,
                "{}: it stands still after {done} of {more}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Work requests, or KiB of TCP.
    pub fn done(&self) -> u64 {
        self.progress.done.load(Relaxed)
    }

    /// The longest pause since the last question.
    pub fn longest_pause(&self) -> Duration {
        Duration::from_micros(self.progress.pause.swap(0, Relaxed))
    }

    /// Ends it: all that was begun must have arrived.
    pub fn stop(mut self) -> Result<u64> {
        self.progress.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| anyhow!("{}: a thread panicked", self.name))?
                .with_context(|| self.name.to_owned())?;
        }
        Ok(self.done())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.progress.stop.store(true, Relaxed);
    }
}

// ---- RDMA -----------------------------------------------------------------------------------------------

/// Bytes of a WRITE (several packets), and how many a queue pair has under way.
const MESSAGE: usize = 6000;
const PLACE: usize = 6016;
const DEPTH: usize = 2;

struct Side {
    _device: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    events: CompletionChannel,
    region: MemoryRegion,
}

/// Connected queue pairs between `vf0` of two hosts, made in a row.
pub struct Pairs {
    sides: [Side; 2],
    qps: Vec<[QueuePair<Rc>; 2]>,
}

impl Pairs {
    /// So many.
    pub fn connect(hosts: [&Host; 2], count: usize) -> Result<Pairs> {
        let side = |host: &Host| -> Result<Side> {
            let device = Device::open(&DeviceAddress::Socket(host.rdma_socket("vf0")))?;
            let pd = device.alloc_pd()?;
            let events = device.create_completion_channel()?;
            let cq = device.create_cq_with(CqBuilder::new((count * DEPTH) as u32).channel(&events))?;
            let region = pd.allocate(count * DEPTH * PLACE, Access::REMOTE_ALL | Access::LOCAL_WRITE)?;
            Ok(Side {
                _device: device,
                pd,
                cq,
                events,
                region,
            })
        };
        let sides = [side(hosts[0])?, side(hosts[1])?];
        // Retries for longer than a machine that has much to do lets a daemon wait for its CPU.
        let options = ConnectOptions {
            timeout: 16,
            ..ConnectOptions::default()
        };
        let qps = (0..count).map(|_| {
            let make = |s: &Side| s.pd.qp::<Rc>(&s.cq, &s.cq).max_send_wr(DEPTH as u32).build();
            let ends = [make(&sides[0])?, make(&sides[1])?];
            ends[0].connect(&ends[1].endpoint(1)?, &options)?;
            ends[1].connect(&ends[0].endpoint(1)?, &options)?;
            Ok(ends)
        });
        let qps = qps.collect::<Result<Vec<_>>>()?;
        Ok(Pairs { sides, qps })
    }

    /// Numbers of the first host's queue pairs.
    pub fn numbers(&self) -> Vec<u32> {
        self.qps.iter().map(|[near, _]| near.number()).collect()
    }

    /// Writes of all queue pairs, over and over.
    pub fn load(self) -> Load {
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        Load {
            name: "RDMA WRITE",
            threads: vec![std::thread::spawn(move || self.run(&shared))],
            progress,
        }
    }

    /// So many writes of each queue pair.
    pub fn write(&self, each: u64) -> Result<()> {
        let mut state = State::new(self);
        state.begin_all()?;
        while state.left > 0 {
            state.completions(|number| number + 1 < each * DEPTH as u64)?;
        }
        Ok(())
    }

    fn run(&self, progress: &Progress) -> Result<()> {
        let mut state = State::new(self);
        state.begin_all()?;
        let mut last = Instant::now();
        while state.left > 0 {
            let done = state.completions(|_| !progress.stop.load(Relaxed))?;
            progress.done.fetch_add(done, Relaxed);
            progress.paused(last.elapsed());
            last = Instant::now();
        }
        Ok(())
    }
}

/// What is under way.
struct State<'a> {
    pairs: &'a Pairs,
    left: usize,
    bytes: Vec<u8>,
}

impl<'a> State<'a> {
    fn new(pairs: &'a Pairs) -> State<'a> {
        State {
            pairs,
            left: 0,
            bytes: vec![0; MESSAGE],
        }
    }

    fn begin_all(&mut self) -> Result<()> {
        for qp in 0..self.pairs.qps.len() {
            for slot in 0..DEPTH {
                self.begin(qp, slot, 0)?;
            }
        }
        Ok(())
    }

    /// The message with this number of a queue pair and a place.
    fn content(&mut self, place: usize, number: u64) -> &[u8] {
        let mut word = (place as u64) << 40 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for bytes in self.bytes.chunks_mut(8) {
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            word = word.wrapping_add(0x0101_0101_0101_0101);
        }
        &self.bytes
    }

    fn begin(&mut self, qp: usize, slot: usize, number: u64) -> Result<()> {
        let pairs = self.pairs;
        let [near, far] = &pairs.sides;
        let place = qp * DEPTH + slot;
        let at = place * PLACE;
        near.region.write_at(at, self.content(place, number));
        let remote = far.region.addr() + at as u64;
        let write = SendWr::write(near.region.slice(at..at + MESSAGE), remote, far.region.rkey());
        let id = number * (pairs.qps.len() * DEPTH) as u64 + place as u64;
        pairs.qps[qp][0].post_send(&[write.signaled().id(id)])?;
        self.left += 1;
        Ok(())
    }

    /// Waits for one or more, checks what they wrote, and begins the next where `more` says so.
    fn completions(&mut self, more: impl Fn(u64) -> bool) -> Result<u64> {
        let pairs = self.pairs;
        let Side { cq, events, .. } = &pairs.sides[0];
        let mut done = [WorkCompletion::default(); 32];
        let mut n = cq.poll(&mut done)?;
        if n == 0 {
            cq.req_notify(false)?;
            let event = events.wait_event(Some(PATIENCE))?;
            ensure!(event.is_some(), "{} writes do not complete", self.left);
            n = cq.poll(&mut done)?;
        }
        for completion in &done[..n] {
            completion.ok()?;
            self.left -= 1;
            let all = (pairs.qps.len() * DEPTH) as u64;
            let (number, place) = (completion.id() / all, (completion.id() % all) as usize);
            let there = pairs.sides[1].region.read_vec(place * PLACE, MESSAGE);
            ensure!(
                there == self.content(place, number),
                "write {number} at place {place} is not what was written"
            );
            if more(number) {
                self.begin(place / DEPTH, place % DEPTH, number + 1)?;
            }
        }
        Ok(n as u64)
    }
}

// ---- TCP ------------------------------------------------------------------------------------------------

const CHUNK: usize = 16 << 10;

/// TCP streams of the kernels of two hosts: numbers that go up, from the first host to the second.
pub fn tcp(hosts: [&Host; 2], to: Ipv4Addr, streams: usize) -> Result<Load> {
    let listener = hosts[1].net.run(|| Ok(TcpListener::bind((to, 0))?))?;
    let address = listener.local_addr()?;
    let progress = Arc::new(Progress::default());
    let mut threads = Vec::new();
    for _ in 0..streams {
        let sender = hosts[0].net.run(|| Ok(TcpStream::connect(address)?))?;
        let (receiver, _) = listener.accept()?;
        let shared = Arc::clone(&progress);
        threads.push(std::thread::spawn(move || send(sender, &shared)));
        let shared = Arc::clone(&progress);
        threads.push(std::thread::spawn(move || receive(receiver, &shared)));
    }
    Ok(Load {
        name: "TCP",
        progress,
        threads,
    })
}

fn send(mut to: TcpStream, progress: &Progress) -> Result<()> {
    to.set_write_timeout(Some(PATIENCE))?;
    let (mut next, mut chunk) = (0u64, vec![0; CHUNK]);
    while !progress.stop.load(Relaxed) {
        for bytes in chunk.chunks_mut(8) {
            bytes.copy_from_slice(&next.to_le_bytes());
            next += 1;
        }
        to.write_all(&chunk).context("sending")?;
    }
    // Zero is said once more: the end was meant.
    to.write_all(&0u64.to_le_bytes())?;
    to.shutdown(Shutdown::Write)?;
    // Until the other end has closed, too.
    to.set_read_timeout(Some(PATIENCE))?;
    ensure!(to.read(&mut [0])? == 0, "an answer");
    Ok(())
}

fn receive(mut from: TcpStream, progress: &Progress) -> Result<()> {
    from.set_read_timeout(Some(PATIENCE))?;
    let (mut next, mut chunk, mut have) = (0u64, vec![0; CHUNK], 0);
    let (mut last, mut ended) = (Instant::now(), false);
    loop {
        let n = match from.read(&mut chunk[have..]) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            other => other.context("receiving")?,
        };
        if n == 0 {
            ensure!(ended && have == 0, "the stream ends at number {next}");
            return Ok(());
        }
        progress.paused(last.elapsed());
        last = Instant::now();
        have += n;
        let whole = have / 8 * 8;
        for bytes in chunk[..whole].chunks(8) {
            let number = u64::from_le_bytes(bytes.try_into()?);
            ensure!(!ended, "{number} behind the end");
            ended = number == 0 && next > 0;
            ensure!(ended || number == next, "{number} instead of {next}");
            next += 1;
        }
        progress.done.fetch_add(n as u64 / 1024, Relaxed);
        chunk.copy_within(whole..have, 0);
        have -= whole;
    }
}
