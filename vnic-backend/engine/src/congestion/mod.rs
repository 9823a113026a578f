//! Congestion control: how fast a flow may send, by what it hears from the network.
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
//! An algorithm takes events and their times, and returns limits; it has no clock and sends nothing. The same code runs in
//! the live NIC, in the simulator, and for guests that run RoCE in software. To add an algorithm, implement [`Algorithm`]
//! and [`CongestionControl`] (`examples/` has one), or load a [`program`].
//!
//! Rates are in bit/s on the wire (preamble, FCS and gap included), windows in bytes of payload.

pub mod dcqcn;
pub mod dcqcn_plus;
pub mod hpcc;
pub mod named;
pub mod none;
pub mod notification;
pub mod program;
pub mod proxy;
pub mod swift;
pub mod timely;
pub mod zero_touch;

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use vnic_wire::int::Telemetry;
use vnic_wire::time::Instant;

/// No limit of a rate or a window.
pub const UNLIMITED: u64 = u64::MAX;

/// Limits of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rate in bit/s on the wire, or [`UNLIMITED`].
    pub rate: u64,
    /// Bytes of payload that may be unacknowledged, or [`UNLIMITED`]. One packet may always be.
    pub window: u64,
}

impl Limits {
    /// No limits.
    pub const NONE: Limits = Limits {
        rate: UNLIMITED,
        window: UNLIMITED,
    };
}

/// Facts that a flow begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Speed of the sender's link in bit/s.
    pub line_rate: u64,
    /// Bytes of payload of a full packet.
    pub mtu: u32,
    /// Bytes of a full packet on the wire.
    pub wire: u32,
    /// Rate that the flow has already, because parameters changed under way; otherwise the algorithm's own start.
    pub rate: Option<u64>,
}

/// Events that an algorithm needs, and when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Whether it limits from the first packet; otherwise it is made at the first notification (or loss, with `loss`).
    pub from_start: bool,
    /// Bytes of payload after which it needs an acknowledge; 0: as the transport asks anyway.
    pub ack_every: u32,
    /// Whether losses make it begin, too (slow restart).
    pub loss: bool,
    /// Whether packets gather telemetry, and acknowledges carry it back.
    pub telemetry: bool,
    /// Whether acknowledges say how long the receiver had the packet ([`Telemetry::endpoint`]).
    pub endpoint: bool,
    /// Bytes of payload of a burst that leaves at the link's speed, with waits between bursts; 0: each packet waits.
    pub burst: u32,
}

/// A congestion notification packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notification {
    /// Time between two of them for one flow, if the sender gives it (DCQCN+).
    pub period: Option<Duration>,
}

/// An acknowledge of something new.
#[derive(Debug, Clone, Copy)]
pub struct Ack<'a> {
    /// Time since the newest packet that it acknowledges was sent; `None` if that packet was sent again.
    pub rtt: Option<Duration>,
    /// Bytes of payload acknowledged in the flow's whole life.
    pub acked: u64,
    /// Bytes of payload sent in the flow's whole life.
    pub sent: u64,
    /// Bytes of payload that this acknowledges.
    pub bytes: u32,
    /// Switches on the way back, from the TTL; 0: not known.
    pub hops: u8,
    /// Whether its request was marked (FECN or BECN).
    pub marked: bool,
    /// Telemetry that its request gathered.
    pub telemetry: Option<&'a Telemetry>,
}

/// A loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// A NAK for a sequence error, or a missing response: the flow goes back.
    OutOfSequence,
    /// No answer came in time.
    Timeout,
    /// The receiver was not ready.
    NotReady,
}

/// State of a flow, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// Target rate in bit/s, if there is one.
    pub target: Option<u64>,
    /// Congestion estimate, 0..=1024, if there is one.
    pub alpha: Option<u32>,
    /// Increases since the last cut, by timer and by bytes.
    pub stages: Option<(u32, u32)>,
    /// Cuts.
    pub cuts: u64,
}

/// Events that an algorithm could not handle. Only those that were [loaded](program) have any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    /// Events.
    pub count: u64,
    /// Whether there were so many that another algorithm has taken over.
    pub stopped: bool,
    /// The last one, in words.
    pub last: Option<String>,
}

/// The algorithm of one flow. Time never goes back between calls.
pub trait Algorithm: fmt::Debug + Send {
    /// A packet with `bytes` bytes of payload was sent.
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        let _ = (now, bytes);
    }

    /// A congestion notification came.
    fn on_notification(&mut self, now: Instant, cnp: &Notification) {
        let _ = (now, cnp);
    }

    /// An acknowledge came.
    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        let _ = (now, ack);
    }

    /// A packet was lost.
    fn on_loss(&mut self, now: Instant, loss: Loss) {
        let _ = (now, loss);
    }

    /// Lets time pass: limits that change by themselves change now. Called before [`limits`](Algorithm::limits). `paused`:
    /// flow control stops the flow's priority.
    fn advance(&mut self, now: Instant, paused: bool) {
        let _ = (now, paused);
    }

    /// The limits of the flow now.
    fn limits(&self) -> Limits;

    /// When [`limits`](Algorithm::limits) will change without an event. Called only while the flow waits for its rate, so
    /// that a state that is brought up to date at the next look costs nothing.
    fn next_change(&self) -> Option<Instant> {
        None
    }

    /// Whether the algorithm limits nothing and remembers nothing that matters: it may be forgotten (a rate limiter is
    /// released).
    fn is_released(&self) -> bool {
        false
    }

    /// State of the flow, for people.
    fn state(&self) -> State {
        State::default()
    }
}

/// An algorithm with its parameters, which makes the state of flows.
pub trait CongestionControl: fmt::Debug + Send + Sync {
    /// Name, in lower case.
    fn name(&self) -> &'static str;

    /// Events that the algorithm needs.
    fn needs(&self) -> Needs;

    /// A flow begins.
    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm>;

    /// Events of all flows that the algorithm could not handle.
    fn faults(&self) -> Faults {
        Faults::default()
    }
}
