//! Virtqueues, device side, polled.

mod split;

pub use split::{Fault, RingAddresses, SplitRing};

/// What a guest did to a ring, which is not read any more then.
#[derive(Debug, Default)]
pub struct Broken {
    fault: Option<Fault>,
    told: bool,
}

impl Broken {
    /// Is it?
    #[inline]
    pub fn is(&self) -> bool {
        self.fault.is_some()
    }

    /// It is, by this.
    pub fn set(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// What the guest did, told once.
    pub fn take(&mut self) -> Option<Fault> {
        if self.told {
            return None;
        }
        self.told = self.is();
        self.fault
    }
}
