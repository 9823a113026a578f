//! Congestion control: how fast a flow may send, from what the network says about it.
//!
//! ```text
//!            packet sent, acknowledge, CNP, loss
//!  flow ───────────────────────────────────────────▶ Algorithm ─▶ Limits: rate and window
//!  (QP, or a guest's own RoCE flow)                      ▲
//!                                          CongestionControl: name, parameters
//!
//!  marked packet ─▶ NotificationPoint ─▶ CNP to its sender
//! ```
//!
//! An algorithm is told what happens and when, and answers limits; it has no clock and sends nothing. The same code runs in
//! the live NIC, in the simulator, and for guests that run RoCE in software. Whoever wants one of their own implements
//! [`Algorithm`] and [`CongestionControl`]; `examples/` has one that does.
//!
//! Rates are in bit/s on the wire (preamble, FCS and gap included), windows in bytes of payload.

pub mod dcqcn;
pub mod dcqcn_plus;
pub mod hpcc;
pub mod named;
pub mod none;
pub mod notification;
pub mod proxy;
pub mod swift;
pub mod timely;

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use vnic_wire::int::Telemetry;
use vnic_wire::time::Instant;

/// No limit, of a rate or a window.
pub const UNLIMITED: u64 = u64::MAX;

/// What a flow may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// bit/s on the wire, or [`UNLIMITED`].
    pub rate: u64,
    /// Bytes of payload that may be unacknowledged, or [`UNLIMITED`]. One packet may always be.
    pub window: u64,
}

impl Limits {
    /// None.
    pub const NONE: Limits = Limits {
        rate: UNLIMITED,
        window: UNLIMITED,
    };
}

/// What a flow begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Speed of the sender's link in bit/s.
    pub line_rate: u64,
    /// Bytes of payload of a full packet.
    pub mtu: u32,
    /// Bytes of a full packet on the wire.
    pub wire: u32,
    /// Rate that it has already, because parameters changed under way; otherwise the algorithm's own start.
    pub rate: Option<u64>,
}

/// What an algorithm has to be told, and when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// It limits from the first packet; otherwise it is made at the first notification (or loss, where `loss`).
    pub from_start: bool,
    /// An acknowledge is asked for at least so often, in bytes of payload; 0: as the transport does anyway.
    pub ack_every: u32,
    /// Losses make it begin, too (slow restart).
    pub loss: bool,
    /// Packets gather telemetry, and acknowledges carry it back.
    pub telemetry: bool,
    /// Packets leave in bursts of so many bytes of payload at the link's speed, and wait between bursts; 0: each waits.
    pub burst: u32,
}

/// A congestion notification packet came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notification {
    /// Time between two of them for one flow, where the sender says so (DCQCN+).
    pub period: Option<Duration>,
}

/// An acknowledge came that acknowledges something new.
#[derive(Debug, Clone, Copy)]
pub struct Ack<'a> {
    /// Since the newest packet that it acknowledges was sent; none after that packet was sent again.
    pub rtt: Option<Duration>,
    /// Bytes of payload that are acknowledged, of the flow's whole life.
    pub acked: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that this acknowledges.
    pub bytes: u32,
    /// Switches on the way back, from the TTL; 0: not known.
    pub hops: u8,
    /// The acknowledge says that its request was marked (FECN or BECN).
    pub marked: bool,
    /// What its request gathered.
    pub telemetry: Option<&'a Telemetry>,
}

/// Something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// A NAK for a sequence error, or a missing response: the flow goes back.
    OutOfSequence,
    /// Nothing came back in time.
    Timeout,
    /// The receiver was not ready.
    NotReady,
}

/// What people see of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// Target rate in bit/s, where there is one.
    pub target: Option<u64>,
    /// Congestion estimate, 0..=1024, where there is one.
    pub alpha: Option<u32>,
    /// Increases since the last cut, by timer and by bytes.
    pub stages: Option<(u32, u32)>,
    /// Cuts.
    pub cuts: u64,
}

/// The state of one flow. Time never goes back between calls.
pub trait Algorithm: fmt::Debug + Send {
    /// A packet of so many bytes of payload was sent.
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        let _ = (now, bytes);
    }

    /// The network says that it is congested.
    fn on_notification(&mut self, now: Instant, cnp: &Notification) {
        let _ = (now, cnp);
    }

    /// Something arrived.
    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        let _ = (now, ack);
    }

    /// Something did not.
    fn on_loss(&mut self, now: Instant, loss: Loss) {
        let _ = (now, loss);
    }

    /// Time passes: limits that change by themselves change now. Called before [`limits`](Algorithm::limits) is asked.
    /// `paused`: the flow's priority is stopped by flow control.
    fn advance(&mut self, now: Instant, paused: bool) {
        let _ = (now, paused);
    }

    /// What the flow may do now.
    fn limits(&self) -> Limits;

    /// When [`limits`](Algorithm::limits) will change though nothing happens. Only asked for while the flow waits for its
    /// rate, so a state that is brought up to date when it is next looked at costs nothing.
    fn next_change(&self) -> Option<Instant> {
        None
    }

    /// It limits nothing and remembers nothing that matters: it may be forgotten (a rate limiter is released).
    fn is_released(&self) -> bool {
        false
    }

    /// For people.
    fn state(&self) -> State {
        State::default()
    }
}

/// An algorithm with its parameters: makes the state of flows.
pub trait CongestionControl: fmt::Debug + Send + Sync {
    /// Its name: lower case.
    fn name(&self) -> &'static str;

    /// What it has to be told.
    fn needs(&self) -> Needs;

    /// A flow begins.
    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm>;
}
