//! Events that wait for their acknowledgement.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// Events that the program took and did not acknowledge yet. The thread that destroys the object waits until
/// there are none. Clones are the same count: an acknowledging thread holds one, so that it outlives the
/// object.
#[derive(Debug, Clone, Default)]
pub struct Unacknowledged(Arc<(Mutex<u32>, Condvar)>);

impl Unacknowledged {
    /// The program took an event.
    pub fn taken(&self) {
        let mut count = lock(&self.0.0);
        *count = count.saturating_add(1);
    }

    /// The program has acknowledged `count` events. More than it took do not count.
    pub fn acknowledge(&self, count: u32) {
        let mut left = lock(&self.0.0);
        *left = left.saturating_sub(count);
        if *left == 0 {
            self.0.1.notify_all();
        }
    }

    /// Waits until all events are acknowledged.
    pub fn wait(&self) {
        let mut left = lock(&self.0.0);
        while *left > 0 {
            left = self.0.1.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_last_one() {
        let events = Unacknowledged::default();
        events.wait();
        events.taken();
        events.taken();
        let theirs = events.clone();
        let acknowledges = std::thread::spawn(move || {
            theirs.acknowledge(1);
            theirs.acknowledge(1);
        });
        events.wait();
        assert!(acknowledges.join().is_ok());
    }

    #[test]
    fn too_many_are_forgiven() {
        let events = Unacknowledged::default();
        events.taken();
        events.acknowledge(7);
        events.taken();
        events.acknowledge(1);
        events.wait();
    }
}
