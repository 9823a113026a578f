//! Asynchronous events of a context that wait.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};

use super::{Unacknowledged, wait_for};
use crate::errno::Errno;
use crate::sync::lock;

/// Most events that wait: most programs never look, and ports and GIDs change all the time.
const LIMIT: usize = 1024;

/// An object that events are about.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The program's pointer to the object.
    pub pointer: usize,
    /// Events about it that the program has taken.
    pub unacknowledged: Unacknowledged,
}

/// An event that waits.
#[derive(Debug, Clone)]
pub struct Letter {
    /// `IBV_EVENT_*`.
    pub kind: u32,
    /// The object of the event; `None`: the port.
    pub about: Option<Subject>,
}

/// Asynchronous events of one context that wait.
#[derive(Debug)]
pub struct Mailbox {
    /// Descriptor that is readable while there are events, or when no more will come. It is an eventfd: its number
    /// is 1 then, and 0 otherwise.
    fd: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Letter>,
    /// Whether no more events will come.
    closed: bool,
    /// Whether the descriptor is readable.
    raised: bool,
}

impl Mailbox {
    /// A mailbox without events.
    pub fn new() -> Result<Mailbox, Errno> {
        Ok(Mailbox {
            fd: eventfd(0, EventfdFlags::CLOEXEC)?,
            state: Mutex::default(),
        })
    }

    /// The descriptor that programs wait at.
    pub fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Adds an event. Without room the oldest one gives way.
    pub fn put(&self, letter: Letter) {
        let mut state = lock(&self.state);
        if state.waiting.len() >= LIMIT {
            state.waiting.pop_front();
            crate::errno::complain(&"an asynchronous event gave way: the program takes none");
        }
        state.waiting.push_back(letter);
        self.show(&mut state);
    }

    /// Closes the mailbox: no more events will come.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.show(&mut state);
    }

    /// Removes the events about an object that ends.
    pub fn forget(&self, pointer: usize) {
        let mut state = lock(&self.state);
        state
            .waiting
            .retain(|letter| letter.about.as_ref().is_none_or(|s| s.pointer != pointer));
        self.show(&mut state);
    }

    /// Takes the oldest event, if any waits, for the program. EIO when no more will come.
    pub fn take(&self) -> Result<Option<Letter>, Errno> {
        let mut state = lock(&self.state);
        let Some(letter) = state.waiting.pop_front() else {
            return if state.closed {
                Err(Errno::BROKEN)
            } else {
                Ok(None)
            };
        };
        if let Some(subject) = &letter.about {
            subject.unacknowledged.taken();
        }
        self.show(&mut state);
        Ok(Some(letter))
    }

    /// Takes the oldest event. Waits for one unless the descriptor is non-blocking.
    pub fn get(&self) -> Result<Letter, Errno> {
        wait_for(self.fd.as_fd(), || self.take())
    }

    /// Makes the descriptor readable, or not.
    fn show(&self, state: &mut State) {
        let raise = state.closed || !state.waiting.is_empty();
        if raise == state.raised {
            return;
        }
        state.raised = raise;
        // Under the lock the number is 0 before it is raised, and 1 before it is lowered: neither waits.
        let _ = if raise {
            rustix::io::write(&self.fd, &1u64.to_ne_bytes())
        } else {
            rustix::io::read(&self.fd, &mut [0u8; 8])
        };
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::events::interrupts::is_nonblocking;

    fn readable(mailbox: &Mailbox) -> bool {
        let now = Timespec::default();
        poll(&mut [PollFd::new(&mailbox.fd, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    fn letter(kind: u32, pointer: Option<usize>) -> Letter {
        let about = pointer.map(|pointer| Subject {
            pointer,
            unacknowledged: Unacknowledged::default(),
        });
        Letter { kind, about }
    }

    fn kinds(mailbox: &Mailbox) -> Vec<u32> {
        std::iter::from_fn(|| mailbox.take().ok().flatten())
            .map(|letter| letter.kind)
            .collect()
    }

    #[test]
    fn events_come_in_order_while_the_descriptor_is_readable() {
        let mailbox = Mailbox::new().expect("an eventfd");
        assert!(!readable(&mailbox));
        for kind in [3, 1, 2] {
            mailbox.put(letter(kind, None));
        }
        assert!(readable(&mailbox));
        assert_eq!(kinds(&mailbox), [3, 1, 2]);
        assert!(!readable(&mailbox));
    }

    #[test]
    fn nothing_comes_about_what_has_ended() {
        let mailbox = Mailbox::new().expect("an eventfd");
        mailbox.put(letter(1, Some(64)));
        mailbox.put(letter(2, Some(128)));
        mailbox.put(letter(3, None));
        mailbox.forget(64);
        assert_eq!(kinds(&mailbox), [2, 3]);
        mailbox.put(letter(1, Some(64)));
        mailbox.forget(64);
        assert!(!readable(&mailbox));
    }

    #[test]
    fn what_was_taken_waits_for_its_acknowledgement() {
        let mailbox = Mailbox::new().expect("an eventfd");
        let event = letter(1, Some(64));
        let subject = event.about.clone().expect("a subject");
        mailbox.put(event);
        mailbox.take().expect("open").expect("an event");
        let acknowledges = std::thread::spawn({
            let subject = subject.clone();
            move || subject.unacknowledged.acknowledge(1)
        });
        subject.unacknowledged.wait();
        assert!(acknowledges.join().is_ok());
    }

    #[test]
    fn the_end_is_told_behind_what_waits() {
        let mailbox = Mailbox::new().expect("an eventfd");
        mailbox.put(letter(8, None));
        mailbox.close();
        assert_eq!(mailbox.get().map(|l| l.kind), Ok(8));
        assert_eq!(mailbox.get().map(|l| l.kind), Err(Errno::BROKEN));
        assert!(readable(&mailbox));
    }

    #[test]
    fn programs_may_ask_not_to_wait() {
        let mailbox = Mailbox::new().expect("an eventfd");
        assert!(!is_nonblocking(mailbox.fd.as_fd()));
        let flags = rustix::fs::fcntl_getfl(&mailbox.fd).expect("flags");
        rustix::fs::fcntl_setfl(&mailbox.fd, flags | rustix::fs::OFlags::NONBLOCK).expect("flags");
        assert_eq!(mailbox.get().map(|l| l.kind), Err(Errno::AGAIN));
    }

    #[test]
    fn the_oldest_gives_way() {
        let mailbox = Mailbox::new().expect("an eventfd");
        for kind in 0..=LIMIT as u32 {
            mailbox.put(letter(kind, None));
        }
        let kinds = kinds(&mailbox);
        assert_eq!((kinds.first(), kinds.len()), (Some(&1), LIMIT));
    }
}
