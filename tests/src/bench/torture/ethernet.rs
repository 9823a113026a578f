//! Two honest guests. Each frame has its number, and its length and bytes follow from it. A window of frames is under way in
//! each direction, less than the receiver has buffers: without a crash nothing is lost, and nothing comes twice or out of
//! order at all. With a daemon goes what it had taken and not delivered; and what a guest sends until the other is attached
//! again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use vnic_backend::MacAddr;

use super::stage::{Books, PATIENCE, Stage, State};
use crate::driver::packets::{Number, number_of, numbered};
use crate::driver::{Guest, NetHdr, Options};

/// Frames under way in each direction.
const WINDOW: u64 = 64;
/// The guests leave the CPU to others between two looks.
const NAP: Duration = Duration::from_micros(200);
/// Time between two frames while the other may not be attached.
const PROBE: Duration = Duration::from_millis(2);

/// One direction, by numbers of frames.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    /// Next to be sent.
    next: u64,
    /// Next to arrive.
    expected: u64,
    /// Sent in this generation: what is before may be lost.
    mark: u64,
}

impl Way {
    /// Has something arrived that was sent in this generation? Then all that follows does.
    fn is_settled(&self) -> bool {
        self.expected > self.mark
    }
}

/// A pair.
pub(super) struct Pair {
    /// Of the first adapter; the second is the next.
    pub(super) first: usize,
    /// Their addresses.
    pub(super) macs: [MacAddr; 2],
    /// Their drivers.
    pub(super) options: Options,
}

/// Bytes of a frame.
fn len(seq: u64) -> usize {
    60 + (seq * 977 % 1440) as usize
}

struct Talk<'a> {
    pair: &'a Pair,
    books: &'a Books,
    guests: [Guest; 2],
    ways: [Way; 2],
    probed: Instant,
}

impl Pair {
    /// Carries frames until all is over.
    pub(super) fn run(&self, stage: &Stage, books: &Books) -> Result<()> {
        let guest = || Guest::new(self.options.clone());
        let mut talk = Talk {
            pair: self,
            books,
            guests: [guest()?, guest()?],
            ways: [Way::default(); 2],
            probed: Instant::now(),
        };
        let mut attached = 0;
        loop {
            let (generation, state) = stage.now();
            match state {
                State::Over => return talk.end(),
                State::Up if attached != generation => match talk.attach(stage) {
                    Ok(()) => attached = generation,
                    Err(e) if stage.lives(generation) => return Err(e),
                    Err(_) => continue,
                },
                State::Up | State::Ending => talk.send(),
                State::Down => {}
            }
            talk.receive()?;
            if attached == generation && talk.ways.iter().all(Way::is_settled) {
                books
                    .flows
                    .store(generation, std::sync::atomic::Ordering::Relaxed);
            }
            sleep(NAP);
        }
    }
}

impl Talk<'_> {
    /// With rings as they are: what a daemon has not taken is sent now.
    fn attach(&mut self, stage: &Stage) -> Result<()> {
        for (i, guest) in self.guests.iter_mut().enumerate() {
            guest.hang_up();
            guest.connect(stage.socket(self.pair.first + i, "eth"))?;
        }
        for way in &mut self.ways {
            way.mark = way.next;
        }
        Ok(())
    }

    fn send(&mut self) {
        let probe = self.probed.elapsed() >= PROBE;
        if probe {
            self.probed = Instant::now();
        }
        for (from, way) in self.ways.iter_mut().enumerate() {
            let macs = self.pair.macs;
            let mut send = |way: &mut Way| {
                let frame = numbered(
                    macs[1 - from],
                    macs[from],
                    number(self.pair, from, way.next),
                    len(way.next),
                );
                let sent = self.guests[from].send(0, &frame, NetHdr::default());
                way.next += u64::from(sent);
                Books::add(&self.books.begun, sent.into());
                sent
            };
            if way.is_settled() {
                while way.next - way.expected < WINDOW && send(way) {}
            } else if probe {
                send(way);
            }
        }
    }

    fn receive(&mut self) -> Result<()> {
        for from in [0, 1] {
            let way = &mut self.ways[from];
            while let Some((_, _, frame)) = self.guests[1 - from].try_recv(0) {
                // (The NIC asks who has an address.)
                let Some(n) = number_of(&frame) else { continue };
                let wanted = number(self.pair, from, n.seq);
                ensure!(n == wanted, "{n:?} is of another pair, or another way");
                ensure!(
                    frame.len() == len(n.seq),
                    "frame {n:?} has {} bytes, sent were {}",
                    frame.len(),
                    len(n.seq)
                );
                ensure!(n.seq < way.next, "frame {n:?} was never sent");
                ensure!(
                    n.seq >= way.expected,
                    "frame {n:?} came twice or late: {} was to come",
                    way.expected
                );
                let lost = n.seq - way.expected;
                if lost > 0 && way.is_settled() {
                    bail!("{lost} frames before {n:?} were lost, and the daemon lives");
                }
                way.expected = n.seq + 1;
                Books::add(&self.books.lost, lost);
                Books::add(&self.books.done, 1);
                Books::add(&self.books.bytes, frame.len() as u64);
            }
            self.guests[from].reclaim(0);
        }
        Ok(())
    }

    /// All that was sent arrives.
    fn end(mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.ways.iter().any(|w| w.expected < w.next) {
            self.receive()?;
            ensure!(Instant::now() < end, "frames do not arrive: {:?}", self.ways);
            sleep(NAP);
        }
        for guest in &mut self.guests {
            guest.mem().check_canaries().context("after all")?;
            guest.detach()?;
        }
        Ok(())
    }
}

fn number(pair: &Pair, from: usize, seq: u64) -> Number {
    Number {
        sender: (pair.first + from) as u32,
        stream: from as u32,
        seq,
    }
}
