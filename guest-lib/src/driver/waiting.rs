//! Queues with a descriptor to wait for: of completion channels, and of asynchronous events.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::Error;
use crate::sync::lock;

/// A queue with a descriptor that is readable while entries wait, or when no more will come.
pub(crate) struct News<T> {
    fd: OwnedFd,
    state: Mutex<State<T>>,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Why no more entries will come.
    closed: Option<String>,
    /// Whether the descriptor is readable.
    raised: bool,
    /// Entries that gave way and were not reported yet.
    lost: u64,
}

impl<T> News<T> {
    pub fn new() -> Result<News<T>, Error> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(Error::os("making an eventfd"))?;
        Ok(News {
            fd,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                closed: None,
                raised: false,
                lost: 0,
            }),
        })
    }

    /// Adds an entry. With `limit` others waiting, the oldest gives way.
    pub fn push(&self, one: T, limit: usize) {
        let mut state = lock(&self.state);
        if state.waiting.len() >= limit && state.waiting.pop_front().is_some() {
            state.lost += 1;
        }
        state.waiting.push_back(one);
        self.raise(&mut state);
    }

    /// Entries that gave way since the last call.
    pub fn lost(&self) -> u64 {
        std::mem::take(&mut lock(&self.state).lost)
    }

    /// Closes the queue: no more entries will come.
    pub fn close(&self, why: &str) {
        let mut state = lock(&self.state);
        state.closed.get_or_insert_with(|| why.to_owned());
        self.raise(&mut state);
    }

    /// Takes the oldest entry; `None` if none waits. After [`close`](News::close), and when all are taken,
    /// the error that was given there.
    pub fn take(&self) -> Result<Option<T>, Error> {
        let mut state = lock(&self.state);
        let first = state.waiting.pop_front();
        if first.is_none()
            && let Some(why) = &state.closed
        {
            return Err(Error::Gone(why.clone()));
        }
        if state.waiting.is_empty() && state.closed.is_none() && state.raised {
            state.raised = false;
            // An eventfd that was written and not read since can be read.
            let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        }
        Ok(first)
    }

    /// Takes the oldest entry, and waits for one. `None`: the time is over.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<T>, Error> {
        let end = patience.and_then(|p| Instant::now().checked_add(p));
        loop {
            if let Some(one) = self.take()? {
                return Ok(Some(one));
            }
            let left = match end {
                None => None,
                Some(end) => match end.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return Ok(None),
                },
            };
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Error::os("waiting for an event")(e)),
            }
        }
    }

    fn raise(&self, state: &mut State<T>) {
        if !state.raised {
            state.raised = true;
            // The counter is at most 1 then: a write never fails for its value.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

impl<T> AsFd for News<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A wait that ends when the device is gone.
pub(crate) trait Closing: Send + Sync {
    /// Ends all waiting.
    fn close(&self, why: &str);
}

impl<T: Send> Closing for News<T> {
    fn close(&self, why: &str) {
        News::close(self, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(news: &News<u32>) -> bool {
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(news, PollFlags::IN)];
        poll(&mut fds, Some(&zero)).expect("poll works") == 1
    }

    #[test]
    fn the_descriptor_is_readable_while_something_waits() {
        let news = News::new().expect("an eventfd");
        assert!(!readable(&news));
        assert!(matches!(news.take(), Ok(None)));
        news.push(1, 2);
        news.push(2, 2);
        news.push(3, 2);
        assert_eq!([news.lost(), news.lost()], [1, 0], "the oldest gave way");
        assert!(readable(&news));
        assert!(matches!(news.take(), Ok(Some(2))));
        assert!(readable(&news));
        assert!(matches!(news.wait(None), Ok(Some(3))));
        assert!(!readable(&news));
        assert!(matches!(news.wait(Some(Duration::ZERO)), Ok(None)));
    }

    #[test]
    fn what_waited_comes_before_the_end() {
        let news = News::new().expect("an eventfd");
        news.push(1, 9);
        news.close("over");
        news.close("over and over");
        assert!(matches!(news.wait(None), Ok(Some(1))));
        for _ in 0..2 {
            assert!(matches!(news.wait(None), Err(Error::Gone(why)) if why == "over"));
            assert!(readable(&news));
        }
    }
}
