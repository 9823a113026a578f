//! What a guest's flow hears of the links on its way, if its algorithm wants telemetry.
//!
//! ```text
//!  packets with a trailer behind them ─▶ links write ─▶ the peer's adapter takes it off
//!  acknowledges with that trailer behind them  ◀─────── and gives it back
//! ```
//!
//! So does the queue pair of an RDMA function. Any other peer never gives it back: after some acknowledges without telemetry the flow's packets have no trailer any more,
//! and nothing limits the flow.

/// Acknowledges in a row without telemetry after which nobody is there who gives it back.
pub const SILENT: u8 = 16;

/// What has been heard of a flow's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Links {
    /// Whether the algorithm wants telemetry.
    wanted: bool,
    /// Whether the peer gives telemetry back.
    heard: bool,
    /// Acknowledges without telemetry in a row.
    silent: u8,
}

impl Links {
    /// Nothing heard yet.
    pub fn new(wanted: bool) -> Links {
        Links {
            wanted,
            ..Links::default()
        }
    }

    /// Whether packets shall have a trailer.
    pub fn asks(&self) -> bool {
        self.wanted && self.silent < SILENT
    }

    /// Whether the algorithm has what it needs to limit the flow.
    pub fn limits(&self) -> bool {
        !self.wanted || self.heard
    }

    /// An acknowledge of something new came, with telemetry or without.
    pub fn acknowledged(&mut self, telemetry: bool) {
        self.silent = match telemetry {
            true => 0,
            false => self.silent.saturating_add(1),
        };
        self.heard = telemetry || self.heard && self.silent < SILENT;
    }
}
