//! Congestion control of a device: the algorithm of its queue pairs, and the answer to marked packets.

use alloc::sync::Arc;
use core::time::Duration;

use crate::congestion::none;
use crate::congestion::notification;
use crate::congestion::zero_touch::ZeroTouch;
use crate::congestion::{CongestionControl, Limits, State};

use super::types::QpNumber;

/// Settings for all queue pairs of a device.
#[derive(Debug, Clone)]
pub struct Congestion {
    /// The algorithm of the sending queue pairs.
    pub control: Arc<dyn CongestionControl>,
    /// Priorities whose senders react, a bit each (reaction point, `DcqcnRPEnablePrioN`).
    pub reaction: u8,
    /// Priorities whose marked packets are answered, a bit each (notification point, `DcqcnNPEnablePrioN`).
    pub notification: u8,
    /// Settings of the notification point.
    pub point: notification::Settings,
    /// Speed of the port in bit/s; 0: as at 100 Gbit/s.
    pub line_rate: u64,
    /// Zero touch RoCE: timers, window and restarts of the senders of all priorities.
    pub zero_touch: ZeroTouch,
    /// Credit that a flow gathers at its rate while it sends nothing.
    pub slack: Duration,
}

impl Default for Congestion {
    fn default() -> Self {
        Congestion {
            control: Arc::new(none::None),
            reaction: 0,
            notification: 0,
            point: notification::Settings::default(),
            line_rate: 0,
            zero_touch: ZeroTouch::default(),
            slack: Duration::from_micros(200),
        }
    }
}

/// A queue pair that is limited now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowStatus {
    /// The queue pair.
    pub qp: QpNumber,
    /// Priority of its packets.
    pub priority: u8,
    /// Limits of its flow.
    pub limits: Limits,
    /// State of its algorithm.
    pub state: State,
    /// Notifications that it has handled.
    pub notifications: u64,
}
