//! Back-off at a socket whose callers are refused. A VMM that reconnects at once (QEMU 7.2 does so until its device
//! starts) must cost neither a CPU nor the log.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::types::{Caller, NicEventKind};

/// First pause of a back-off.
pub const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause of a back-off.
pub const LONG_PAUSE: Duration = Duration::from_millis(640);
/// Number of refused callers that are held. While there are as many, nobody is accepted.
const HELD_MAX: usize = 8;
/// Time over which refused callers are summed up after an event; without a caller for this time the pauses begin anew.
const SUM: Duration = Duration::from_secs(60);

/// The refused callers of a socket. A refused caller is held for a pause, which doubles with each one: its connection stays
/// open, and it hears nothing. A caller that waits for its answer does not come again before that, and keeps nobody else
/// from being accepted.
pub struct Refused {
    /// The VMM that has the adapter; `None`: the callers' users are not listed.
    owner: Option<Caller>,
    /// Connections of held callers, and the time at which each is closed.
    held: VecDeque<(Instant, UnixStream)>,
    pause: Duration,
    /// Time of the last event.
    told: Option<Instant>,
    /// Number of callers that no event has told of, and the last one.
    untold: u64,
    last: Caller,
}

impl Refused {
    /// Nobody was refused yet. `owner` has the adapter; `None`: the callers' users are not listed.
    pub fn new(owner: Option<Caller>) -> Refused {
        Refused {
            owner,
            held: VecDeque::new(),
            pause: Duration::ZERO,
            told: None,
            untold: 0,
            last: Caller::default(),
        }
    }

    /// Sets who has the adapter.
    pub fn set_owner(&mut self, owner: Option<Caller>) {
        self.owner = owner;
    }

    /// Refuses a caller. Returns the event if one is due.
    pub fn refuse(&mut self, stream: UnixStream, by: Caller, now: Instant) -> Option<NicEventKind> {
        let quiet = self.held.is_empty() && self.told.is_none_or(|told| now >= told + SUM);
        self.pause = match quiet {
            true => SHORT_PAUSE,
            false => (self.pause * 2).clamp(SHORT_PAUSE, LONG_PAUSE),
        };
        self.held.push_back((now + self.pause, stream));
        self.untold += 1;
        self.last = by;
        self.due(now)
    }

    /// Closes the connections whose pause is over. Returns the event if one is due.
    pub fn release(&mut self, now: Instant) -> Option<NicEventKind> {
        while self.held.front().is_some_and(|(until, _)| *until <= now) {
            self.held.pop_front();
        }
        self.due(now)
    }

    /// The event about those that no event has told of, if there are any.
    pub fn sum(&mut self) -> Option<NicEventKind> {
        let refused = std::mem::take(&mut self.untold);
        (refused > 0).then_some(NicEventKind::VmmRefused {
            owner: self.owner,
            by: self.last,
            refused,
        })
    }

    fn due(&mut self, now: Instant) -> Option<NicEventKind> {
        if self.untold == 0 || self.told.is_some_and(|told| now < told + SUM) {
            return None;
        }
        self.told = Some(now);
        self.sum()
    }

    /// Whether a refused caller is held.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether nobody is to be accepted now.
    pub fn is_full(&self) -> bool {
        self.held.len() >= HELD_MAX
    }

    /// Time until [`Refused::release`] has something to do; `None`: until somebody is refused, it has not.
    pub fn next(&self, now: Instant) -> Option<Duration> {
        let close = self.held.front().map(|(until, _)| *until);
        let sum = self.told.filter(|_| self.untold > 0).map(|told| told + SUM);
        let next = close.into_iter().chain(sum).min()?;
        Some(next.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pid: i32) -> Caller {
        Caller {
            pid: Some(pid),
            uid: Some(7),
        }
    }

    fn refused(event: Option<NicEventKind>) -> Option<u64> {
        event.map(|event| match event {
            NicEventKind::VmmRefused { owner, by, refused } => {
                assert_eq!((owner, by), (Some(caller(1)), caller(2)));
                refused
            }
            other => panic!("{other:?}"),
        })
    }

    /// Callers of a virtual minute that come again at once: how many were refused, and what events told.
    fn a_minute_of(callers: usize) -> (u64, Vec<u64>) {
        let begin = Instant::now();
        let (mut all, mut now) = (Refused::new(Some(caller(1))), begin);
        let (mut clients, mut count, mut told) = (Vec::new(), 0, Vec::new());
        while now < begin + SUM {
            told.extend(refused(all.release(now)));
            // Those whose connection was closed have come again.
            clients.retain(|client: &UnixStream| {
                client.set_nonblocking(true).expect("a socket");
                let closed = matches!(std::io::Read::read(&mut &*client, &mut [0]), Ok(0));
                !closed
            });
            while clients.len() < callers && !all.is_full() {
                let (ours, theirs) = UnixStream::pair().expect("a pair");
                told.extend(refused(all.refuse(ours, caller(2), now)));
                clients.push(theirs);
                count += 1;
            }
            now += all.next(now).expect("somebody is held");
        }
        told.extend(refused(all.sum()));
        (count, told)
    }

    #[test]
    fn a_caller_that_comes_again_at_once_is_slowed_down_and_told_of_twice_a_minute() {
        // 5 + 10 + .. + 320 ms, then 640 ms each.
        let (count, told) = a_minute_of(1);
        assert_eq!(count, 7 + (60_000_u64 - 635).div_ceil(640));
        assert_eq!(told, [1, count - 1]);
        // Any number of them are no more than can be held at a time.
        let (count, told) = a_minute_of(1000);
        assert!(count <= 8 * 102, "{count}");
        assert_eq!(told, [1, count - 1]);
    }

    #[test]
    fn a_sum_does_not_wait_for_another_caller_and_pauses_begin_anew() {
        let (mut all, begin) = (Refused::new(Some(caller(1))), Instant::now());
        let call = |all: &mut Refused, now| {
            let (ours, _) = UnixStream::pair().expect("a pair");
            refused(all.refuse(ours, caller(2), now))
        };
        assert_eq!(all.next(begin), None);
        assert_eq!(call(&mut all, begin), Some(1));
        assert_eq!(all.next(begin), Some(SHORT_PAUSE));
        assert_eq!(call(&mut all, begin), None);
        assert_eq!(all.release(begin + LONG_PAUSE), None);
        let left = SUM - LONG_PAUSE;
        assert_eq!(all.next(begin + LONG_PAUSE), Some(left));
        assert_eq!(refused(all.release(begin + SUM)), Some(1));
        assert_eq!((all.next(begin + SUM), all.sum()), (None, None));
        let later = begin + 2 * SUM;
        assert_eq!(call(&mut all, later), Some(1));
        assert_eq!(all.next(later), Some(SHORT_PAUSE));
    }
}
