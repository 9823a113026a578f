//! Questions of an adapter to subnet administration that wait for their answers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::time::Duration;

use vnic_wire::sa::SaMad;
use vnic_wire::time::Instant;

use super::types::AddressVector;

/// Questions that wait for their answers, at most. Others are dropped.
pub const QUESTIONS_MAX: usize = 16;
/// Questions in a second, at most. Others are dropped: each looks at all adapters, beside whoever else wants the control plane.
pub const QUESTIONS_PER_SECOND: u32 = 100;

/// A question to subnet administration, for whoever answers it by [`Device::answer`](super::Device::answer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Its number, among those of the device.
    pub number: u32,
    /// Index of the own GID from which it was asked.
    pub sgid_index: u16,
    /// The datagram.
    pub mad: Box<SaMad>,
}

/// Who has asked a question.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub from: AddressVector,
    pub qp: u32,
    pub pkey: u16,
}

impl Asker {
    /// Whether both are the same queue pair, by the same address.
    pub fn is(&self, other: &Asker) -> bool {
        (self.qp, self.from.dgid) == (other.qp, other.from.dgid)
    }
}

/// The questions of a device.
#[derive(Debug)]
pub(super) struct Questions {
    waiting: BTreeMap<u32, Asker>,
    /// Number of the next question.
    next: u32,
    /// When the second began that goes on, and how many questions it has seen.
    second: (Instant, u32),
}

impl Questions {
    /// The seed says with which number they begin: a device that starts again takes no answers to its last life.
    pub fn new(seed: u32) -> Questions {
        Questions {
            waiting: BTreeMap::new(),
            next: seed,
            second: (Instant(0), 0),
        }
    }

    /// Keeps who has asked a question. `None`: there are too many.
    pub fn add(&mut self, now: Instant, asker: Asker) -> Option<u32> {
        if now.since(self.second.0) >= Duration::from_secs(1) {
            self.second = (now, 0);
        }
        if self.waiting.len() >= QUESTIONS_MAX || self.second.1 >= QUESTIONS_PER_SECOND {
            return None;
        }
        self.second.1 += 1;
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.waiting.insert(number, asker);
        Some(number)
    }

    /// Who has asked the question of this number. It waits no more.
    pub fn take(&mut self, number: u32) -> Option<Asker> {
        self.waiting.remove(&number)
    }
}
