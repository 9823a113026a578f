//! The states of a connection as one table (IBTA vol 1 section 12.9): what each call, message and timer does in each, which
//! message is sent and what the driver is told. A listener has no state; a REQ that it takes begins a connection in
//! [`State::ReqReceived`].
//!
//! What the standard leaves open:
//!
//! * An MRA is sent when a message comes again that the driver has not answered yet, not before: most answers are quick.
//! * Who rejects stays in [`State::Timewait`] for a while, to reject the same message again.
//! * Connections have no alternate path in RoCE: a LAP is refused by an APR, and none is sent.

use vnic_wire::named;

named! {
    /// State of a connection, by the standard's names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum State {
        /// Not begun, or over.
        Idle => "Idle",
        /// Active: the REQ is sent.
        ReqSent => "REQ sent",
        /// Active: the passive side answers later.
        MraReqReceived => "MRA(REQ) received",
        /// Active: the REP has come, the driver has not answered.
        RepReceived => "REP received",
        /// Active: the REP has come again, the peer knows that the driver answers later.
        MraRepSent => "MRA(REP) sent",
        /// Passive: the REQ has come, the driver has not answered.
        ReqReceived => "REQ received",
        /// Passive: the REQ has come again, the peer knows that the driver answers later.
        MraReqSent => "MRA(REQ) sent",
        /// Passive: the REP is sent.
        RepSent => "REP sent",
        /// Passive: the active side answers later.
        MraRepReceived => "MRA(REP) received",
        /// Nobody yet: requests for a service are waited for.
        Listen => "Listen",
        /// Both sides know each other.
        Established => "Established",
        /// The DREQ is sent.
        DreqSent => "DREQ sent",
        /// The DREQ has come, the driver has not answered.
        DreqReceived => "DREQ received",
        /// Over; packets of it may still be under way.
        Timewait => "Timewait",
        /// The SIDR_REQ is sent.
        SidrReqSent => "SIDR_REQ sent",
        /// The SIDR_REQ has come, the driver has not answered.
        SidrReqReceived => "SIDR_REQ received",
    }
}

named! {
    /// What happens to a connection.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Input {
        /// The driver asks for a connection.
        Connect => "call connect",
        /// The driver accepts a request.
        Accept => "call accept",
        /// The driver is ready, and accepts the reply.
        Establish => "call establish",
        /// The driver rejects a request or a reply.
        Reject => "call reject",
        /// The driver disconnects, or agrees to it.
        Disconnect => "call disconnect",
        /// The driver heard from its queue pair that data came (COMM_EST).
        Communicated => "call communicated",
        /// The driver asks for the queue pair of a service.
        Resolve => "call resolve",
        /// The driver answers such a question.
        Answer => "call answer",
        /// The driver wants to hear no more of it.
        Destroy => "call destroy",
        /// The REQ again.
        Req => "REQ",
        /// An MRA about the REQ.
        MraReq => "MRA(REQ)",
        /// An MRA about the REP.
        MraRep => "MRA(REP)",
        /// A REJ.
        Rej => "REJ",
        /// A REJ with the reason "stale connection".
        RejStale => "REJ(stale)",
        /// A REP.
        Rep => "REP",
        /// An RTU.
        Rtu => "RTU",
        /// A DREQ.
        Dreq => "DREQ",
        /// A DREP.
        Drep => "DREP",
        /// A LAP.
        Lap => "LAP",
        /// A SIDR_REP.
        SidrRep => "SIDR_REP",
        /// The peer's queue pair has begun another connection: the peer has forgotten this one.
        Stale => "peer forgot",
        /// No answer came in time.
        Retry => "no answer",
        /// No answer came in time, and the message was sent often enough.
        GiveUp => "no answer at all",
        /// Nothing of the connection is under way any more.
        TimewaitOver => "timewait over",
    }
}

/// The message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the messages")]
pub enum Send {
    Nothing,
    Req,
    MraReq,
    MraRep,
    /// The driver's REJ; without one, that of a program.
    Rej,
    /// A REJ with the reason "timeout".
    RejTimeout,
    Rep,
    Rtu,
    Dreq,
    Drep,
    Apr,
    SidrReq,
    /// The driver's SIDR_REP; without one, a refusal.
    SidrRep,
    /// The last message once more, if it answers what came.
    Again,
}

/// What the driver is told, by the names of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the events")]
pub enum Tell {
    Nothing,
    Response,
    Established,
    Rejected,
    Unreachable,
    Disconnected,
    TimewaitExit,
    SidrReply,
}

/// What an input does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The state afterwards.
    pub next: State,
    /// The message that is sent.
    pub send: Send,
    /// What the driver is told.
    pub tell: Tell,
}

const fn row(next: State, send: Send, tell: Tell) -> Option<Row> {
    Some(Row { next, send, tell })
}

/// What an input does in a state; none: a call is refused, a message is a duplicate of no use.
pub const fn step(state: State, input: Input) -> Option<Row> {
    use Input as I;
    use State::*;
    use Tell::Nothing as Quiet;
    match (state, input) {
        (Idle, I::Connect) => row(ReqSent, Send::Req, Quiet),
        (Idle, I::Resolve) => row(SidrReqSent, Send::SidrReq, Quiet),
        (Idle, I::Destroy) => row(Idle, Send::Nothing, Quiet),
        // Active, until the reply.
        (ReqSent | MraReqReceived, I::Rep) => row(RepReceived, Send::Nothing, Tell::Response),
        (ReqSent, I::MraReq) => row(MraReqReceived, Send::Nothing, Quiet),
        (ReqSent | MraReqReceived, I::Rej) => row(Idle, Send::Nothing, Tell::Rejected),
        (ReqSent | MraReqReceived, I::RejStale) => row(Timewait, Send::Nothing, Tell::Rejected),
        (ReqSent | MraReqReceived, I::GiveUp) => row(Idle, Send::RejTimeout, Tell::Unreachable),
        (ReqSent | MraReqReceived, I::Destroy) => row(Idle, Send::RejTimeout, Quiet),
        // Active, until the driver is ready.
        (RepReceived | MraRepSent, I::Rep) => row(MraRepSent, Send::MraRep, Quiet),
        (RepReceived | MraRepSent, I::Establish) => row(Established, Send::Rtu, Quiet),
        (RepReceived | MraRepSent, I::Reject | I::Destroy) => row(Timewait, Send::Rej, Quiet),
        (RepReceived | MraRepSent, I::Rej | I::RejStale | I::Stale) => {
            row(Timewait, Send::Nothing, Tell::Rejected)
        }
        // Passive, until the driver answers.
        (ReqReceived | MraReqSent, I::Req) => row(MraReqSent, Send::MraReq, Quiet),
        (ReqReceived | MraReqSent, I::Accept) => row(RepSent, Send::Rep, Quiet),
        (ReqReceived | MraReqSent, I::Reject | I::Destroy) => row(Timewait, Send::Rej, Quiet),
        (ReqReceived | MraReqSent, I::Rej | I::RejStale | I::Stale) => {
            row(Idle, Send::Nothing, Tell::Rejected)
        }
        // Passive, until the active side is ready.
        (RepSent, I::Req) => row(RepSent, Send::Again, Quiet),
        (RepSent, I::MraRep) => row(MraRepReceived, Send::Nothing, Quiet),
        (RepSent | MraRepReceived, I::Rtu | I::Communicated) => {
            row(Established, Send::Nothing, Tell::Established)
        }
        (RepSent | MraRepReceived, I::Rej | I::RejStale | I::Stale) => {
            row(Timewait, Send::Nothing, Tell::Rejected)
        }
        (RepSent | MraRepReceived, I::Dreq) => row(DreqReceived, Send::Nothing, Tell::Disconnected),
        (RepSent | MraRepReceived, I::GiveUp) => row(Timewait, Send::RejTimeout, Tell::Unreachable),
        (RepSent | MraRepReceived, I::Destroy) => row(Timewait, Send::Rej, Quiet),
        // Both.
        (Established, I::Rep) => row(Established, Send::Again, Quiet),
        (Established, I::Communicated) => row(Established, Send::Nothing, Quiet),
        (Established, I::Lap) => row(Established, Send::Apr, Quiet),
        (Established, I::Disconnect | I::Destroy | I::Stale) => row(DreqSent, Send::Dreq, Quiet),
        (Established, I::Dreq) => row(DreqReceived, Send::Nothing, Tell::Disconnected),
        (Established, I::Rej | I::RejStale) => row(Timewait, Send::Nothing, Tell::Disconnected),
        (DreqSent, I::Dreq) => row(Timewait, Send::Drep, Tell::Disconnected),
        (DreqSent, I::Drep | I::Rej | I::RejStale | I::GiveUp) => {
            row(Timewait, Send::Nothing, Tell::Disconnected)
        }
        (DreqSent, I::Destroy) => row(DreqSent, Send::Nothing, Quiet),
        (DreqReceived, I::Disconnect | I::Destroy) => row(Timewait, Send::Drep, Quiet),
        (Timewait, I::Req | I::Rep) => row(Timewait, Send::Again, Quiet),
        (Timewait, I::Dreq) => row(Timewait, Send::Drep, Quiet),
        (Timewait, I::Destroy) => row(Timewait, Send::Nothing, Quiet),
        (Timewait, I::TimewaitOver) => row(Idle, Send::Nothing, Tell::TimewaitExit),
        // Datagram services.
        (SidrReqSent, I::SidrRep) => row(Idle, Send::Nothing, Tell::SidrReply),
        (SidrReqSent, I::GiveUp) => row(Idle, Send::Nothing, Tell::Unreachable),
        (SidrReqSent, I::Destroy) => row(Idle, Send::Nothing, Quiet),
        (SidrReqReceived, I::Answer | I::Destroy) => row(Idle, Send::SidrRep, Quiet),
        (waiting, I::Retry) if waiting.waits() => row(waiting, Send::Again, Quiet),
        _ => None,
    }
}

impl State {
    /// Whether a message is sent again until its answer comes.
    pub const fn waits(self) -> bool {
        use State::*;
        matches!(
            self,
            ReqSent | MraReqReceived | RepSent | MraRepReceived | DreqSent | SidrReqSent
        )
    }

    /// Whether a peer has begun it and the own driver has not answered.
    pub const fn unanswered(self) -> bool {
        use State::*;
        matches!(self, ReqReceived | MraReqSent | SidrReqReceived)
    }

    /// Whether a peer has begun it and it is not established.
    pub const fn under_way(self) -> bool {
        self.unanswered() || self.replied()
    }

    /// Whether one end has asked for a connection and it is not established.
    pub const fn connecting(self) -> bool {
        use State::*;
        matches!(
            self,
            ReqSent
                | MraReqReceived
                | RepReceived
                | MraRepSent
                | ReqReceived
                | MraReqSent
                | RepSent
                | MraRepReceived
        )
    }

    /// Whether the REP was sent and the active side is not heard yet.
    pub const fn replied(self) -> bool {
        matches!(self, State::RepSent | State::MraRepReceived)
    }

    /// Whether it is over.
    pub const fn over(self) -> bool {
        matches!(self, State::Idle | State::Timewait)
    }
}
