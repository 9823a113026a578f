//! The sender of a transfer of RMPP (IBTA vol 1 section 13.6.6), which an answer of several segments is. [`step`] is the table of its
//! states, [`Sender`] has its numbers: it says which segment is the next, takes acknowledgements and time, and says when it wants to
//! hear of time again.
//!
//! What the standard leaves open:
//!
//! * A transfer begins with a window of one segment, and a window never shrinks; both as in Linux.
//! * Without an acknowledgement all that the window has is sent again, [`TRIES`] times in all. An acknowledgement of more begins to
//!   count anew.
//! * STOP and ABORT end a transfer whatever their status; who ends one by an ABORT is not answered.

use core::time::Duration;

use vnic_wire::named;
use vnic_wire::sa::{Rmpp, RmppType, rmpp_status};
use vnic_wire::time::Instant;

/// How often a segment is sent that nobody acknowledges.
pub const TRIES: u8 = 5;
/// Time until an acknowledgement that a receiver has at most, and that one has which says none.
pub const RESPONSE: Duration = Duration::from_secs(2);
/// Time that it has at least: it also takes its datagrams from its queue.
pub const RESPONSE_LEAST: Duration = Duration::from_millis(200);
/// Time that a transfer takes at most, from its first segment on.
pub const TOTAL: Duration = Duration::from_secs(40);

named! {
    /// State of a transfer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum State {
        /// There are segments that the window has and that are not sent.
        Sending => "Sending",
        /// All that the window has is sent, and an acknowledgement has to come.
        Waiting => "Waiting",
        /// The receiver has all.
        Done => "Done",
        /// The receiver wants no more.
        Stopped => "Stopped",
        /// The sender has given up.
        Aborted => "Aborted",
    }
}

named! {
    /// What happens to a transfer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Input {
        /// The last segment of the window is sent.
        Sent => "window sent",
        /// An ACK of more segments, with others in the window that may follow.
        Ack => "ACK",
        /// An ACK of more segments; the others of the window are sent.
        AckInWindow => "ACK in window",
        /// An ACK of all.
        AckAll => "ACK of all",
        /// An ACK that says nothing new.
        AckOld => "ACK again",
        /// An ACK of a segment behind the window, or behind the last.
        AckBeyond => "ACK beyond window",
        /// An ACK whose window ends before what it acknowledges.
        WindowBelow => "ACK with small window",
        /// An ACK with a status.
        IllegalStatus => "ACK with status",
        /// A packet of another type.
        BadType => "other type",
        /// A packet of another version of the protocol.
        BadVersion => "other version",
        /// A STOP.
        Stop => "STOP",
        /// An ABORT.
        Abort => "ABORT",
        /// No ACK came in time.
        Retry => "no ACK",
        /// No ACK came in time, and it was sent often enough.
        GiveUp => "no ACK at all",
        /// The transfer has gone on for too long.
        TooLong => "too long",
    }
}

/// What the sender does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// It goes on with the window.
    Send,
    /// It sends what is not acknowledged again.
    Again,
    /// It sends an ABORT with this status.
    Abort(u8),
}

/// What an input does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The state afterwards.
    pub next: State,
    /// What the sender does.
    pub act: Act,
}

const fn row(next: State, act: Act) -> Option<Row> {
    Some(Row { next, act })
}

const fn abort(status: u8) -> Option<Row> {
    row(State::Aborted, Act::Abort(status))
}

/// What an input does in a state; none: it says nothing there.
pub const fn step(state: State, input: Input) -> Option<Row> {
    use Input as I;
    use State::*;
    match (state, input) {
        (Done | Stopped | Aborted, _) => None,
        (Sending, I::Sent) => row(Waiting, Act::Nothing),
        (Waiting, I::Sent) | (_, I::AckOld) => None,
        (_, I::Ack) => row(Sending, Act::Send),
        (_, I::AckInWindow) => row(Waiting, Act::Nothing),
        (_, I::AckAll) => row(Done, Act::Nothing),
        (_, I::AckBeyond) => abort(rmpp_status::SEGMENT_TOO_BIG),
        (_, I::WindowBelow) => abort(rmpp_status::WINDOW_TOO_SMALL),
        (_, I::IllegalStatus) => abort(rmpp_status::ILLEGAL_STATUS),
        (_, I::BadType) => abort(rmpp_status::BAD_TYPE),
        (_, I::BadVersion) => abort(rmpp_status::BAD_VERSION),
        (_, I::Stop | I::Abort) => row(Stopped, Act::Nothing),
        (Waiting, I::Retry) => row(Sending, Act::Again),
        (Waiting, I::GiveUp) => abort(rmpp_status::TOO_MANY_RETRIES),
        // What waits for its priority is not overdue.
        (Sending, I::Retry | I::GiveUp) => None,
        (_, I::TooLong) => abort(rmpp_status::TOO_LONG),
    }
}

impl State {
    /// Whether the transfer is over.
    pub const fn over(self) -> bool {
        matches!(self, State::Done | State::Stopped | State::Aborted)
    }
}

/// The sender of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    state: State,
    segments: u32,
    /// Last segment that is acknowledged with all before it.
    acked: u32,
    /// Last segment that may be sent.
    window: u32,
    /// The segment that is sent next.
    next: u32,
    /// How often what is not acknowledged may still be sent.
    tries: u8,
    /// How long the receiver has to acknowledge.
    response: Duration,
    /// When an acknowledgement is overdue.
    overdue: Option<Instant>,
    /// When the transfer has gone on for too long. It begins with its first segment.
    end: Option<Instant>,
}

impl Sender {
    /// A transfer of so many segments, 1 or more.
    pub fn new(segments: u32) -> Sender {
        Sender {
            state: State::Sending,
            segments,
            acked: 0,
            window: 1,
            next: 1,
            tries: TRIES,
            response: RESPONSE,
            overdue: None,
            end: None,
        }
    }

    /// State of the transfer.
    pub fn state(&self) -> State {
        self.state
    }

    /// Number of the segment that is to be sent, if there is one.
    pub fn next_segment(&self) -> Option<u32> {
        (self.state == State::Sending).then_some(self.next)
    }

    /// The segment of [`next_segment`](Sender::next_segment) is sent.
    pub fn sent(&mut self, now: Instant) {
        if self.next_segment().is_none() {
            return;
        }
        self.next += 1;
        self.end.get_or_insert(now + TOTAL);
        if !self.has_next() {
            self.put(now, Input::Sent);
        }
    }

    /// A packet of the receiver's came. Returns the status of an ABORT that is to be sent.
    pub fn hear(&mut self, now: Instant, packet: &Rmpp) -> Option<u8> {
        let input = match packet.kind {
            _ if packet.version != Rmpp::VERSION => Input::BadVersion,
            RmppType::ACK if packet.status != 0 => Input::IllegalStatus,
            RmppType::ACK => self.acknowledge(packet),
            RmppType::STOP => Input::Stop,
            RmppType::ABORT => Input::Abort,
            _ => Input::BadType,
        };
        self.put(now, input)
    }

    /// Takes the numbers of an ACK.
    fn acknowledge(&mut self, packet: &Rmpp) -> Input {
        let (segment, window) = (packet.segment, packet.payload_len);
        if window < segment {
            return Input::WindowBelow;
        }
        if segment > self.window.min(self.segments) {
            return Input::AckBeyond;
        }
        if segment < self.acked || window < self.window || (segment, window) == (self.acked, self.window) {
            return Input::AckOld;
        }
        if segment > self.acked {
            self.tries = TRIES;
        }
        self.response = match packet.response_time {
            Rmpp::NO_TIME => RESPONSE,
            time => Duration::from_nanos(4096 << time).clamp(RESPONSE_LEAST, RESPONSE),
        };
        (self.acked, self.window) = (segment, window);
        self.next = self.next.max(segment + 1);
        match (segment == self.segments, self.has_next()) {
            (true, _) => Input::AckAll,
            (_, true) => Input::Ack,
            (_, false) => Input::AckInWindow,
        }
    }

    /// When [`handle_timeout`](Sender::handle_timeout) must be called, at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        match (self.overdue, self.end) {
            (Some(overdue), Some(end)) => Some(overdue.min(end)),
            (_, end) => end,
        }
    }

    /// Lets time pass. Returns the status of an ABORT that is to be sent.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<u8> {
        let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let input = match past(self.overdue) {
            _ if past(self.end) => Input::TooLong,
            true if self.tries <= 1 => Input::GiveUp,
            true => Input::Retry,
            false => return None,
        };
        self.put(now, input)
    }

    /// Whether the window has a segment that is not sent.
    fn has_next(&self) -> bool {
        self.next <= self.window.min(self.segments)
    }

    fn put(&mut self, now: Instant, input: Input) -> Option<u8> {
        let row = step(self.state, input)?;
        self.state = row.next;
        self.overdue = (row.next == State::Waiting).then(|| now + self.response);
        if row.next.over() {
            self.end = None;
        }
        match row.act {
            Act::Nothing | Act::Send => None,
            Act::Again => {
                self.tries -= 1;
                // Who has all of the window says a larger one when the last of it comes again.
                self.next = self.window.min(self.acked + 1);
                None
            }
            Act::Abort(status) => Some(status),
        }
    }
}
