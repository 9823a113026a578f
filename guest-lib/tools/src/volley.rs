//! Ping-pong by SEND: the client sends, the server answers each message with one of its own. Over services that lose messages
//! (UC, UD) each message carries its number, and the client goes on when an answer does not come.

use std::time::{Duration, Instant};

use vnic_verbs::{Access, Data, MemoryRegion, ProtectionDomain, RecvWr, SendWr, WorkCompletion};

use crate::exchange::{Account, Role};
use crate::failure::{Failure, Result};
use crate::flow::Goal;
use crate::queue::GRH;
use crate::report::Report;
use crate::seat::{Progress, Seat};
use crate::session::Session;
use crate::slots::{Layout, Slots};
use crate::stats::Times;
use crate::wait::Completions;

/// Lost answers in a row after which the peer counts as gone.
const PATIENCE: u64 = 10;

/// Memory of a ping-pong.
pub struct Court {
    source: MemoryRegion,
    sink: MemoryRegion,
    sends: Layout,
    /// Layout of receives.
    pub receives: Layout,
    size: u32,
    head: u32,
}

impl Court {
    /// Memory for messages of `size` bytes, with as many receives as fit.
    pub fn new(pd: &ProtectionDomain, size: u32, receives: u32, datagrams: bool) -> Result<Court> {
        let head = if datagrams { GRH } else { 0 };
        let sends = Layout::new(1, size, 2);
        let receives = Layout::new(1, size + head, receives);
        Ok(Court {
            source: pd.allocate(sends.bytes(1), Access::LOCAL_WRITE)?,
            sink: pd.allocate(receives.bytes(1), Access::LOCAL_WRITE)?,
            sends,
            receives,
            size,
            head,
        })
    }
}

/// Result of a ping-pong.
pub struct Score {
    /// Times there and back, at the client.
    pub times: Times,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that came, and that did not.
    pub account: Account,
}

/// A ping-pong.
pub struct Volley<'a> {
    session: &'a mut Session,
    court: &'a Court,
    sends: Slots<'a>,
    receives: Slots<'a>,
    seeds: [u64; 2],
    verify: bool,
    inline: u32,
    bad: u64,
}

impl<'a> Volley<'a> {
    /// Posts the receives.
    pub fn new(
        seat: &Seat<'_>,
        session: &'a mut Session,
        court: &'a Court,
        inline: u32,
    ) -> Result<Volley<'a>> {
        let peer_seed = session.peer.seed.unwrap_or(seat.seed());
        let volley = Volley {
            sends: Slots::new(&court.source, court.sends, court.size, 0),
            receives: Slots::new(&court.sink, court.receives, court.size, court.head),
            seeds: [seat.seed(), peer_seed],
            verify: !seat.options.no_verify,
            inline,
            bad: 0,
            session,
            court,
        };
        for place in 0..court.receives.count {
            volley.receive(place)?;
        }
        Ok(volley)
    }

    /// Posts the receive of a place.
    fn receive(&self, place: u64) -> Result {
        let request = RecvWr::new(self.receives.sge(0, place)).id(place);
        self.session.queues[0].receive(&[request])?;
        Ok(())
    }

    /// Writes message `i`.
    fn prepare(&self, i: u64) {
        if self.verify {
            self.sends.fill(0, i, self.seeds[0].wrapping_add(i));
        }
    }

    /// Sends message `i`.
    fn send(&mut self, i: u64) -> Result {
        let sge = self.sends.sge(0, i);
        let bytes;
        let request = if self.court.size <= self.inline {
            bytes = self
                .court
                .source
                .read_vec(self.court.sends.offset(0, i) as usize, self.court.size as usize);
            SendWr::send(Data::inline(&bytes))
        } else {
            SendWr::send(sge)
        };
        let request = request.id(i).signaled();
        // Services that may lose a message carry a number.
        let request = if self.session.is_lossy() {
            request.imm(i as u32)
        } else {
            request
        };
        self.session.queues[0].send(request)?;
        self.session.outstanding += 1;
        Ok(())
    }

    /// Number of a received message: the one that it carries, or the expected one.
    fn number(&self, completion: &WorkCompletion, expected: u64) -> u64 {
        match completion.imm() {
            // The 64-bit number nearest to what is expected.
            Some(low) => expected.wrapping_add_signed(i64::from((low).wrapping_sub(expected as u32) as i32)),
            None => expected,
        }
    }

    /// Checks message `i` in the place where it came, and posts the receive anew.
    fn look(&mut self, completion: &WorkCompletion, i: u64) -> Result {
        let place = completion.id();
        let len = completion.byte_len().saturating_sub(self.court.head);
        if len != self.court.size {
            return Err(Failure::Data(format!(
                "message {i} has {len} bytes, not {}",
                self.court.size
            )));
        }
        if self.verify
            && let Some(at) = self
                .receives
                .first_difference(0, place, self.seeds[1].wrapping_add(i))
        {
            self.bad += 1;
            return Err(Failure::Data(format!(
                "message {i} differs from byte {at} on (seed {})",
                self.seeds[1].wrapping_add(i)
            )));
        }
        self.receive(place)
    }

    /// Runs the client's side.
    pub fn call(mut self, seat: &Seat<'_>, goal: Goal) -> Result<Score> {
        let mut times = Times::new();
        let (mut lost, mut silent, mut i) = (0, 0, 0);
        let start = Instant::now();
        let mut progress = Progress::new(seat.watched);
        while goal.wants(i, start) && silent < PATIENCE {
            self.prepare(i);
            let begun = Instant::now();
            self.send(i)?;
            let answer = self.answer(i)?;
            match answer {
                Some(answer) => {
                    times.add(begun.elapsed());
                    self.look(&answer, i)?;
                    silent = 0;
                }
                None => {
                    lost += 1;
                    silent += 1;
                }
            }
            i += 1;
            progress.at(i, || format!("{i} messages"));
        }
        Ok(Score {
            times,
            sent: i,
            account: Account {
                sent: None,
                bad: self.bad,
                lost,
            },
        })
    }

    /// Waits for the answer to message `i`, and until it is sent itself. `None`: the answer is lost.
    fn answer(&mut self, i: u64) -> Result<Option<WorkCompletion>> {
        let mut answer = None;
        let mut taken = Completions::new();
        loop {
            self.session.take(&mut taken)?;
            for completion in taken.iter() {
                if !completion.is_receive() {
                    self.session.outstanding -= 1;
                } else if self.number(completion, i) == i {
                    answer = Some(*completion);
                } else {
                    // The answer to a message that was given up counts as lost.
                    let late = self.number(completion, i);
                    self.look(completion, late)?;
                }
            }
            if answer.is_some() && self.session.outstanding == 0 {
                return Ok(answer);
            }
            if taken.is_empty() && self.session.is_lossy() && self.session.outstanding == 0 {
                return Ok(None);
            }
        }
    }

    /// Runs the server's side, until all messages have come, or the client is done.
    pub fn answer_all(mut self, seat: &mut Seat<'_>, goal: Goal) -> Result<Score> {
        let (mut next, mut came) = (0, 0);
        let mut progress = Progress::new(seat.watched);
        let mut taken = Completions::new();
        loop {
            let all = matches!(goal, Goal::Messages(n) if came >= n);
            if all && self.session.outstanding == 0 {
                break;
            }
            self.session.take(&mut taken)?;
            // Nothing comes: is the client done, or did it give up?
            if taken.is_empty() {
                let done = seat.link.done_within(Duration::ZERO);
                if done.map_err(|failure| self.session.cause(failure))?.is_some() {
                    break;
                }
            }
            for completion in taken.iter() {
                if !completion.is_receive() {
                    self.session.outstanding -= 1;
                    continue;
                }
                let i = self.number(completion, next);
                self.prepare(i);
                self.send(i)?;
                self.look(completion, i)?;
                came += 1;
                next = i + 1;
                progress.at(came, || format!("{came} messages"));
            }
        }
        let sent = match goal {
            Goal::Messages(n) => n,
            Goal::Time(_) => next,
        };
        Ok(Score {
            times: Times::new(),
            sent,
            account: Account {
                sent: None,
                bad: self.bad,
                lost: sent - came.min(sent),
            },
        })
    }

    /// Runs this side.
    pub fn play(self, seat: &mut Seat<'_>, goal: Goal) -> Result<Score> {
        match seat.role() {
            Role::Client => self.call(seat, goal),
            Role::Server => self.answer_all(seat, goal),
        }
    }
}

impl Score {
    /// Makes a run in which nothing came a failure.
    pub fn judge(&self, report: &mut Report) {
        if self.sent > 0 && self.account.lost == self.sent {
            report.fail(format!(
                "none of {} messages came through: the peer is silent",
                self.sent
            ));
        }
    }
}
