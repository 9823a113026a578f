//! Virtqueues, device side, polled.

mod split;

pub use split::{Fault, RingAddresses, SplitRing};

/// Fault of a ring by its guest; the ring is not read any more then.
#[derive(Debug, Default)]
pub struct Broken {
    fault: Option<Fault>,
    told: bool,
}

impl Broken {
    /// Whether the ring has a fault.
    #[inline]
    pub fn is(&self) -> bool {
        self.fault.is_some()
    }

    /// Records a fault.
    pub fn set(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// The fault, reported once.
    pub fn take(&mut self) -> Option<Fault> {
        if self.told {
            return None;
        }
        self.told = self.is();
        self.fault
    }
}
