//! Turns of RDMA functions: one that has the core for itself takes long turns, which cost least; one that shares it with
//! other adapters takes turns as short as theirs.

use std::time::Duration;

use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

/// Time after its guest has sent something for which an adapter counts.
const RECENT: Duration = Duration::from_millis(1);

/// When adapters last had something to send: the latest one, and the latest of the others.
#[derive(Debug, Default)]
pub struct Turns {
    last: Option<(PortId, Instant)>,
    other: Option<Instant>,
}

impl Turns {
    /// Records that an adapter's guest wants to send. (Responders and uplinks do not count.)
    #[inline]
    pub fn asks(&mut self, port: PortId, now: Instant) {
        if let Some((last, at)) = self.last
            && last != port
        {
            self.other = Some(at);
        }
        self.last = Some((port, now));
    }

    /// Whether more than one adapter wanted to send lately.
    #[inline]
    pub fn shared(&self, now: Instant) -> bool {
        self.other.is_some_and(|at| now.since(at) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_shared_while_two_ask() {
        let (a, b) = (PortId(1), PortId(2));
        let at = |us: u64| Instant(us * 1000);
        let mut turns = Turns::default();
        assert!(!turns.shared(at(0)));
        for us in 0..10 {
            turns.asks(a, at(us));
        }
        assert!(!turns.shared(at(10)), "there is one only");
        turns.asks(b, at(10));
        assert!(turns.shared(at(10)));
        turns.asks(a, at(11));
        turns.asks(a, at(900));
        assert!(turns.shared(at(1009)), "the other one has asked lately");
        turns.asks(a, at(1010));
        assert!(!turns.shared(at(1010)), "it has not for a while");
        turns.asks(b, at(1500));
        assert!(turns.shared(at(1500)));
    }
}
