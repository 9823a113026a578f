//! Congestion control of a device: which algorithm its queue pairs use, and how marked packets are answered.

use alloc::sync::Arc;
use core::time::Duration;

use crate::congestion::none;
use crate::congestion::notification;
use crate::congestion::{CongestionControl, Limits, State};

use super::types::QpNumber;

/// What acts on all queue pairs of a device.
#[derive(Debug, Clone)]
pub struct Congestion {
    /// The algorithm of what they send.
    pub control: Arc<dyn CongestionControl>,
    /// Priorities whose senders react, a bit each (reaction point, `DcqcnRPEnablePrioN`).
    pub reaction: u8,
    /// Priorities whose marked packets are answered, a bit each (notification point, `DcqcnNPEnablePrioN`).
    pub notification: u8,
    /// How they are answered.
    pub point: notification::Settings,
    /// Speed of the port in bit/s; 0: as at 100 Gbit/s.
    pub line_rate: u64,
    /// A loss slows a flow down as a notification does (`roce_slow_restart_en`).
    pub slow_restart: bool,
    /// So does an idle time (`roce_slow_restart_idle_en`).
    pub slow_restart_idle: bool,
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
            slow_restart: true,
            slow_restart_idle: false,
            slack: Duration::from_micros(200),
        }
    }
}

/// A queue pair that is limited now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowStatus {
    /// Which.
    pub qp: QpNumber,
    /// Its priority.
    pub priority: u8,
    /// What it may do.
    pub limits: Limits,
    /// Why.
    pub state: State,
    /// Notifications that it has handled.
    pub notifications: u64,
}
