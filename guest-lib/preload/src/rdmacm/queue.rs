//! Event channels: what waits for the program, behind a descriptor that it may wait at.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};

use crate::errno::Errno;
use crate::events::wait_for;
use crate::sync::lock;

/// Letters that wait. The descriptor is an eventfd, which is readable while there are any.
#[derive(Debug)]
pub struct Queue<T> {
    fd: OwnedFd,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Result<Queue<T>, Errno> {
        Ok(Queue {
            fd: eventfd(0, EventfdFlags::CLOEXEC)?,
            waiting: Mutex::default(),
        })
    }

    /// The descriptor that programs wait at.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds a letter.
    pub fn put(&self, letter: T) {
        self.change(|waiting| waiting.push_back(letter));
    }

    /// Takes the letters that are not to be kept, in their order.
    pub fn take_unless(&self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        self.change(|waiting| {
            let (kept, taken): (Vec<T>, Vec<T>) = waiting.drain(..).partition(keep);
            waiting.extend(kept);
            taken
        })
    }

    /// Takes the oldest letter, of which `counted` hears before anybody else can look for it. Waits for one unless the descriptor is
    /// non-blocking.
    pub fn get(&self, counted: impl Fn(&T)) -> Result<T, Errno> {
        wait_for(self.fd.as_fd(), || {
            Ok(self.change(|waiting| waiting.pop_front().inspect(&counted)))
        })
    }

    /// Changes what waits; the descriptor follows: its number is 1 while something waits, and 0 otherwise, so that neither call waits.
    fn change<R>(&self, change: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut waiting = lock(&self.waiting);
        let before = waiting.is_empty();
        let result = change(&mut waiting);
        let _ = match (before, waiting.is_empty()) {
            (true, false) => rustix::io::write(&self.fd, &1u64.to_ne_bytes()),
            (false, true) => rustix::io::read(&self.fd, &mut [0u8; 8]),
            _ => Ok(0),
        };
        result
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    fn readable(queue: &Queue<u32>) -> bool {
        let now = Timespec::default();
        poll(&mut [PollFd::new(&queue.fd, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    #[test]
    fn letters_come_in_order_while_the_descriptor_is_readable() {
        let queue = Queue::new().expect("an eventfd");
        assert!(!readable(&queue));
        for letter in [3, 1, 2] {
            queue.put(letter);
        }
        for letter in [3, 1, 2] {
            assert!(readable(&queue));
            assert_eq!(queue.get(|_| ()), Ok(letter));
        }
        assert!(!readable(&queue));
    }

    #[test]
    fn programs_may_ask_not_to_wait() {
        let queue: Queue<u32> = Queue::new().expect("an eventfd");
        let flags = fcntl_getfl(&queue.fd).expect("flags");
        fcntl_setfl(&queue.fd, flags | OFlags::NONBLOCK).expect("flags");
        assert_eq!(queue.get(|_| ()), Err(Errno::AGAIN));
        queue.put(1);
        assert_eq!(queue.get(|_| ()), Ok(1));
        assert_eq!(queue.get(|_| ()), Err(Errno::AGAIN));
    }

    #[test]
    fn letters_of_what_ends_are_taken_away() {
        let queue = Queue::new().expect("an eventfd");
        for letter in 1..=4 {
            queue.put(letter);
        }
        assert_eq!(queue.take_unless(|l| l % 2 == 0), [1, 3]);
        assert_eq!(queue.get(|_| ()), Ok(2));
        assert_eq!(queue.take_unless(|_| false), [4]);
        assert!(!readable(&queue));
    }
}
