//! The states of a queue pair as one table (IBTA 10.3.1 and 11.2.5.2, table "QP state transition properties";
//! `ibv_modify_qp(3)`): which transitions there are, which attributes they need and allow, what a QP may do in each
//! state, and which states it goes to by itself.

use super::super::types::{AttributeMask, QpState, QpType, VerbsError};

use AttributeMask as A;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use QpType::{DcInitiator, DcTarget, RawPacket, Rc, Uc, Ud, XrcInitiator, XrcTarget};

/// A transition that `modify` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// State it is in.
    pub from: QpState,
    /// State it goes to.
    pub to: QpState,
    /// For which type of QP.
    pub qp_type: QpType,
    /// Attributes that must be given.
    pub required: AttributeMask,
    /// Attributes that may be given as well.
    pub optional: AttributeMask,
}

const NONE: A = A::empty();

/// Where all connected types are reached.
const PEER: A = all(&[A::ADDRESS, A::PATH_MTU, A::DESTINATION_QP, A::RQ_PSN]);
/// What a responder of READs, atomics and RNR NAKs needs.
const RESPONDER: A = A::MAX_DEST_RD_ATOMIC.union(A::MIN_RNR_TIMER);
/// What a requester that retries needs.
const RETRIES: A = A::RETRY_COUNT.union(A::RNR_RETRY).union(A::MAX_RD_ATOMIC);
/// Placement of a connected QP.
const PLACE: A = all(&[A::PKEY_INDEX, A::PORT, A::ACCESS]);
/// Placement of an initiator of dynamic connections, which peers do not reach.
const DC_PLACE: A = A::PKEY_INDEX.union(A::PORT);
/// What may change when a connected QP becomes ready, and while it is.
const LIVE: A = all(&[A::CURRENT_STATE, A::ACCESS, A::UDP_SOURCE_PORT]);
/// What may change on its way to ready-to-receive.
const READY: A = all(&[A::PKEY_INDEX, A::ACCESS, A::UDP_SOURCE_PORT]);
/// What may change of the way to the peer while nothing is sent.
const MOVED: A = all(&[A::ADDRESS, A::ACCESS, A::PKEY_INDEX, A::UDP_SOURCE_PORT]);

const fn all(masks: &[A]) -> A {
    let mut sum = NONE;
    let mut i = 0;
    while i < masks.len() {
        sum = sum.union(masks[i]);
        i += 1;
    }
    sum
}

const fn row(from: QpState, to: QpState, qp_type: QpType, required: A, optional: A) -> Transition {
    Transition {
        from,
        to,
        qp_type,
        required,
        optional,
    }
}

/// Every transition that a type of QP has besides those from any state to `Reset` and `Err`, which need and allow nothing
/// but the state. Attributes of path migration and of rate limits are not here: RoCE has no alternate path.
/// `UDP_SOURCE_PORT` may be given where the address or the state of the send queue may change. Those of the dynamically connected
/// transport are what Linux's driver of its adapters asks for (`mlx5_ib`): a target is ready in RTR, and neither drains.
pub const TRANSITIONS: &[Transition] = &[
    row(Reset, Init, Rc, PLACE, NONE),
    row(Reset, Init, Uc, PLACE, NONE),
    row(Reset, Init, Ud, all(&[A::PKEY_INDEX, A::PORT, A::QKEY]), NONE),
    row(Reset, Init, RawPacket, A::PORT, NONE),
    row(Reset, Init, XrcInitiator, PLACE, NONE),
    row(Reset, Init, XrcTarget, PLACE, NONE),
    row(Reset, Init, DcInitiator, DC_PLACE, A::ACCESS),
    row(Reset, Init, DcTarget, PLACE, NONE),
    //
    row(Init, Init, Rc, NONE, PLACE),
    row(Init, Init, Uc, NONE, PLACE),
    row(Init, Init, Ud, NONE, all(&[A::PKEY_INDEX, A::PORT, A::QKEY])),
    row(Init, Init, RawPacket, NONE, A::PORT),
    row(Init, Init, XrcInitiator, NONE, PLACE),
    row(Init, Init, XrcTarget, NONE, PLACE),
    row(Init, Init, DcInitiator, NONE, PLACE),
    row(Init, Init, DcTarget, NONE, PLACE),
    //
    row(Init, Rtr, Rc, PEER.union(RESPONDER), READY),
    row(Init, Rtr, Uc, PEER, READY),
    row(
        Init,
        Rtr,
        Ud,
        NONE,
        all(&[A::PKEY_INDEX, A::QKEY, A::UDP_SOURCE_PORT]),
    ),
    row(Init, Rtr, RawPacket, NONE, NONE),
    row(Init, Rtr, XrcInitiator, PEER, READY),
    row(Init, Rtr, XrcTarget, PEER.union(RESPONDER), READY),
    row(Init, Rtr, DcInitiator, A::PATH_MTU, READY.union(A::ADDRESS)),
    row(
        Init,
        Rtr,
        DcTarget,
        all(&[A::ADDRESS, A::PATH_MTU, A::MIN_RNR_TIMER]),
        READY,
    ),
    //
    row(
        Rtr,
        Rts,
        Rc,
        all(&[A::SQ_PSN, A::TIMEOUT, RETRIES]),
        LIVE.union(A::MIN_RNR_TIMER),
    ),
    row(Rtr, Rts, Uc, A::SQ_PSN, LIVE),
    row(
        Rtr,
        Rts,
        Ud,
        A::SQ_PSN,
        all(&[A::CURRENT_STATE, A::QKEY, A::UDP_SOURCE_PORT]),
    ),
    row(Rtr, Rts, RawPacket, NONE, A::CURRENT_STATE),
    row(
        Rtr,
        Rts,
        XrcInitiator,
        all(&[A::SQ_PSN, A::TIMEOUT, RETRIES]),
        LIVE,
    ),
    row(
        Rtr,
        Rts,
        XrcTarget,
        all(&[A::SQ_PSN, A::TIMEOUT]),
        LIVE.union(A::MIN_RNR_TIMER),
    ),
    row(
        Rtr,
        Rts,
        DcInitiator,
        all(&[A::SQ_PSN, A::TIMEOUT, RETRIES]),
        LIVE.union(A::MIN_RNR_TIMER),
    ),
    //
    row(Rts, Rts, Rc, NONE, LIVE.union(A::MIN_RNR_TIMER)),
    row(Rts, Rts, Uc, NONE, LIVE),
    row(
        Rts,
        Rts,
        Ud,
        NONE,
        all(&[A::CURRENT_STATE, A::QKEY, A::UDP_SOURCE_PORT]),
    ),
    row(Rts, Rts, RawPacket, NONE, A::CURRENT_STATE),
    row(Rts, Rts, XrcInitiator, NONE, LIVE),
    row(Rts, Rts, XrcTarget, NONE, LIVE.union(A::MIN_RNR_TIMER)),
    row(Rts, Rts, DcInitiator, NONE, LIVE.union(A::MIN_RNR_TIMER)),
    //
    row(Rts, Sqd, Rc, NONE, A::DRAINED_EVENT),
    row(Rts, Sqd, Uc, NONE, A::DRAINED_EVENT),
    row(Rts, Sqd, Ud, NONE, A::DRAINED_EVENT),
    row(Rts, Sqd, RawPacket, NONE, A::DRAINED_EVENT),
    row(Rts, Sqd, XrcInitiator, NONE, A::DRAINED_EVENT),
    row(Rts, Sqd, XrcTarget, NONE, A::DRAINED_EVENT),
    //
    row(
        Sqd,
        Sqd,
        Rc,
        NONE,
        all(&[MOVED, A::PORT, A::TIMEOUT, RETRIES, RESPONDER]),
    ),
    row(Sqd, Sqd, Uc, NONE, MOVED),
    row(
        Sqd,
        Sqd,
        Ud,
        NONE,
        all(&[A::PKEY_INDEX, A::QKEY, A::UDP_SOURCE_PORT]),
    ),
    row(Sqd, Sqd, RawPacket, NONE, A::PORT),
    row(
        Sqd,
        Sqd,
        XrcInitiator,
        NONE,
        all(&[MOVED, A::PORT, A::TIMEOUT, RETRIES]),
    ),
    row(
        Sqd,
        Sqd,
        XrcTarget,
        NONE,
        all(&[MOVED, A::PORT, A::TIMEOUT, RESPONDER]),
    ),
    //
    row(Sqd, Rts, Rc, NONE, LIVE.union(A::MIN_RNR_TIMER)),
    row(Sqd, Rts, Uc, NONE, LIVE),
    row(
        Sqd,
        Rts,
        Ud,
        NONE,
        all(&[A::CURRENT_STATE, A::QKEY, A::UDP_SOURCE_PORT]),
    ),
    row(Sqd, Rts, RawPacket, NONE, A::CURRENT_STATE),
    row(Sqd, Rts, XrcInitiator, NONE, LIVE),
    row(Sqd, Rts, XrcTarget, NONE, LIVE.union(A::MIN_RNR_TIMER)),
    // Only unreliable services come to SQE: a reliable one goes to Err.
    row(Sqe, Rts, Uc, NONE, all(&[A::CURRENT_STATE, A::ACCESS])),
    row(Sqe, Rts, Ud, NONE, all(&[A::CURRENT_STATE, A::QKEY])),
    row(Sqe, Rts, RawPacket, NONE, A::CURRENT_STATE),
];

/// The row of a transition, if there is one.
pub fn find(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    match to {
        Reset | Err => Some(row(from, to, qp_type, NONE, NONE)),
        _ => TRANSITIONS
            .iter()
            .find(|t| t.from == from && t.to == to && t.qp_type == qp_type)
            .copied(),
    }
}

/// May `modify` make this transition with these attributes? `STATE` itself is always allowed.
pub fn transition(
    qp_type: QpType,
    from: QpState,
    to: QpState,
    given: AttributeMask,
) -> Result<(), VerbsError> {
    let row = find(qp_type, from, to).ok_or(VerbsError::Transition { from, to })?;
    let missing = row.required.difference(given);
    let unexpected = given.difference(all(&[row.required, row.optional, A::STATE]));
    if missing.is_empty() && unexpected.is_empty() {
        Ok(())
    } else {
        Result::Err(VerbsError::Attributes { missing, unexpected })
    }
}

/// What a QP may do in a state (IBTA 10.3.1.1 to 10.3.1.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Sends may be posted.
    pub post_send: bool,
    /// Receives may be posted, if it has a receive queue.
    pub post_recv: bool,
    /// New send work requests are begun.
    pub transmit: bool,
    /// Send work requests that were begun go on: their packets are sent, and sent again.
    pub drain: bool,
    /// Responses to what it sent are taken.
    pub receive_responses: bool,
    /// Requests of the peer are taken; otherwise they are dropped silently.
    pub receive: bool,
    /// Responses to the peer's requests are sent.
    pub respond: bool,
    /// What is on the send queue, and what is posted there, is flushed.
    pub flush_send: bool,
    /// What is on the receive queue, and what is posted there, is flushed.
    pub flush_recv: bool,
}

const NOTHING: Permissions = Permissions {
    post_send: false,
    post_recv: false,
    transmit: false,
    drain: false,
    receive_responses: false,
    receive: false,
    respond: false,
    flush_send: false,
    flush_recv: false,
};

/// What a QP may do. XRC divides the two directions: the initiator has no receive queue and takes no requests, the
/// target has no send queue (annex A14). The dynamically connected transport divides them as well.
#[inline(always)]
pub const fn allows(qp_type: QpType, state: QpState) -> Permissions {
    let reliable = qp_type.reliable();
    if reliable && matches!(state, Sqe) {
        // It never comes there.
        return NOTHING;
    }
    let sends = !matches!(qp_type, XrcTarget | DcTarget);
    let receives = !matches!(qp_type, XrcInitiator | DcInitiator);
    let has_recv_queue = sends && receives;
    let (sending, draining) = match state {
        Rts => (sends, sends),
        Sqd => (false, sends),
        _ => (false, false),
    };
    let receiving = receives && matches!(state, Rtr | Rts | Sqd | Sqe);
    Permissions {
        post_send: sends && matches!(state, Rts | Sqd | Sqe | Err),
        post_recv: has_recv_queue && !matches!(state, Reset),
        transmit: sending,
        drain: draining,
        receive_responses: draining && reliable,
        receive: receiving,
        respond: receiving && reliable,
        flush_send: sends && matches!(state, Sqe | Err),
        flush_recv: has_recv_queue && matches!(state, Err),
    }
}

/// What makes a QP change its state by itself (IBTA 10.3.1, 10.10.2 and 9.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A send work request ended in an error.
    SendError,
    /// A receive ended in an error.
    ReceiveError,
    /// The peer's request was not valid, and no receive says so.
    RequestError,
    /// The peer's request violated the protection of memory, and no receive says so.
    AccessError,
    /// A completion queue that it uses overran.
    CqOverrun,
    /// Its shared receive queue failed.
    SrqError,
    /// The device failed it.
    Fatal,
    /// The send queue has drained.
    Drained,
}

impl Trigger {
    /// Every trigger.
    pub const ALL: [Trigger; 8] = [
        Trigger::SendError,
        Trigger::ReceiveError,
        Trigger::RequestError,
        Trigger::AccessError,
        Trigger::CqOverrun,
        Trigger::SrqError,
        Trigger::Fatal,
        Trigger::Drained,
    ];
}

/// The state that a trigger leads to; none where it changes nothing or cannot happen.
pub const fn triggered(qp_type: QpType, state: QpState, trigger: Trigger) -> Option<QpState> {
    let may = allows(qp_type, state);
    match trigger {
        // Both directions of a reliable connection stop together. Otherwise only the send queue does.
        Trigger::SendError if !may.drain => None,
        Trigger::SendError if qp_type.reliable() => Some(Err),
        Trigger::SendError => Some(Sqe),
        Trigger::ReceiveError if may.receive => Some(Err),
        // Unreliable services drop such requests silently (IBTA 9.9.3, classes D and E).
        Trigger::RequestError | Trigger::AccessError if may.receive && qp_type.reliable() => Some(Err),
        Trigger::ReceiveError | Trigger::RequestError | Trigger::AccessError => None,
        Trigger::CqOverrun | Trigger::SrqError | Trigger::Fatal => match state {
            Reset | Err => None,
            Sqe if qp_type.reliable() => None,
            _ => Some(Err),
        },
        // It stays drained until `modify` says otherwise; the event tells.
        Trigger::Drained => None,
    }
}
