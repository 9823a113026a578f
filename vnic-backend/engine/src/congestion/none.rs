//! No congestion control.

use alloc::boxed::Box;

use vnic_wire::time::Instant;

use super::{Algorithm, CongestionControl, Limits, Needs, Start};

/// Flows send as fast as their link does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct None;

impl Algorithm for None {
    fn limits(&self) -> Limits {
        Limits::NONE
    }

    fn is_released(&self) -> bool {
        true
    }
}

impl CongestionControl for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn start(&self, _: Instant, _: &Start) -> Box<dyn Algorithm> {
        Box::new(None)
    }
}
