//! The dynamically connected transport (DC). An initiator is a requester whose peer follows from each work request: it connects with
//! a target when the first request for that target has its turn, and disconnects before it turns to another, or when it has been
//! idle. A [target](Target) is a queue pair number with a responder for each initiator.
//!
//! ```text
//!  initiator                         target
//!     │ CONNECT key, number, PSN n      │
//!     │ request n, n+1, …               │  half a handshake: requests follow at once
//!     │ ◀─── acknowledges as of RC      │
//!     │ (all is acknowledged)           │
//!     │ DISCONNECT                      │
//! ```
//!
//! A CONNECT that is lost is sent again with what behind it is sent again. It makes a responder that expects the oldest
//! request that is not acknowledged; a target that knows the connection ignores it. That executes nothing twice, for a target keeps what it knows
//! for [`KEPT`] after it has heard of it, and an initiator that has heard nothing for [`TRUSTED`] connects no more.

mod target;

use core::time::Duration;

use vnic_wire::aeth::{NakCode, Syndrome};
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{aeth, bth, dcceth, dceth};

use super::super::marks::Mark;
use super::super::packet::{Outgoing, Payload, Sink};
use super::super::shared::Shared;
use super::super::types::{QpNumber, QpType, Status};
use super::requester::Turn;
use super::{Qp, connect};

pub(super) use target::Target;
pub(super) use target::{answer, has_answers, receive, sender};

/// How long a target keeps what it knows of a connection that it hears nothing of.
pub(super) const KEPT: Duration = Duration::from_secs(8);
/// How long an initiator that hears nothing trusts in that: so much less that what is still on its way counts as well.
const TRUSTED: Duration = Duration::from_secs(6);
/// How long an initiator stays connected with nothing to send.
const IDLE: Duration = Duration::from_secs(1);

/// What a queue pair of this transport has beside the others.
#[derive(Debug)]
pub(super) enum Dynamic {
    Initiator(Initiator),
    Target(Target),
}

impl Dynamic {
    /// For a queue pair that is made.
    pub fn of(qp_type: QpType) -> Option<Dynamic> {
        match qp_type {
            QpType::DcInitiator => Some(Dynamic::Initiator(Initiator::default())),
            QpType::DcTarget => Some(Dynamic::Target(Target::default())),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Not connected.
    #[default]
    Closed,
    /// A CONNECT goes before the next request.
    Due,
    /// It is connected, as far as it knows.
    Open,
}

/// Where an initiator is connected. The way there and the target's number are attributes of the queue pair.
#[derive(Debug, Default)]
pub(super) struct Initiator {
    stage: Stage,
    access_key: u64,
    /// Number of the connection.
    connection: u32,
    /// Something of it was acknowledged.
    heard_of: bool,
    /// When that was last, or else when it began.
    heard: Instant,
    /// It was idle for so long that it disconnects.
    leaves: bool,
}

fn initiator(of: &mut Qp) -> Option<&mut Initiator> {
    match of.dynamic.as_deref_mut() {
        Some(Dynamic::Initiator(initiator)) => Some(initiator),
        _ => None,
    }
}

/// Header of the requests of an initiator.
pub(super) fn header(of: &Qp) -> Option<dceth::Header> {
    match of.dynamic.as_deref() {
        Some(Dynamic::Initiator(initiator)) => Some(dceth::Header {
            connection: initiator.connection as u8,
            initiator: of.number.0,
        }),
        _ => None,
    }
}

/// Before an initiator looks at its next request: it leaves, if it was idle.
#[cold]
#[inline(never)]
pub(super) fn leave(of: &mut Qp, shared: &mut Shared, sink: &mut dyn Sink) -> Option<Turn> {
    let quiet = of.requester.quiet();
    let initiator = initiator(of)?;
    if !core::mem::take(&mut initiator.leaves) || !quiet {
        return None;
    }
    let left = disconnect(of, shared, sink);
    if left.is_some() {
        shared.marks.hit(Mark::DcIdleLeft);
    }
    left
}

fn disconnect(of: &mut Qp, shared: &mut Shared, sink: &mut dyn Sink) -> Option<Turn> {
    let initiator = initiator(of)?;
    let open = core::mem::take(&mut initiator.stage) == Stage::Open;
    open.then(|| {
        announce(of, shared, sink, Operation::Disconnect);
        Turn::Sent
    })
}

/// Before the request at `slot` begins: turns to its target. `None`: it may begin.
pub(super) fn turn_to(
    of: &mut Qp,
    shared: &mut Shared,
    slot: u32,
    now: Instant,
    sink: &mut dyn Sink,
) -> Option<Turn> {
    let wr = &shared.sends.get(slot)?.wr;
    let (to, access_key) = (wr.ud, wr.access_key);
    let found = to.and_then(|to| Some((to.qp, *shared.ahs.of_datagram(to.ah.0)?)));
    let Some((target, handle)) = found else {
        shared.marks.hit(Mark::DcNoHandle);
        of.end_request(shared, slot, Status::LocalQpOperationError);
        return Some(Turn::Next);
    };
    let same = of.attributes.destination_qp == target && of.attributes.address == Some(handle.address);
    let quiet = of.requester.quiet();
    let there = initiator(of)?;
    let fresh = !quiet || now.since(there.heard) < TRUSTED;
    if same && there.stage != Stage::Closed && there.access_key == access_key && fresh {
        return None;
    }
    if !quiet {
        // Until all of the connection that there is was answered.
        shared.marks.hit(Mark::DcTurnWaited);
        return Some(Turn::Blocked);
    }
    if let Some(turn) = disconnect(of, shared, sink) {
        shared.marks.hit(Mark::DcLeft);
        return Some(turn);
    }
    let connection = shared.next_connection(now);
    let (number, label) = (of.number, handle.address.flow_label);
    let mut path = handle.path;
    path.source_port = connect::datagram_port(shared, &of.attributes, number, target, label);
    of.path = Some(path);
    of.attributes.address = Some(handle.address);
    of.attributes.destination_qp = target;
    of.requester.credit_limit = None;
    // Another target may not know what this one did of losses and of ways.
    of.forget_losses();
    *initiator(of)? = Initiator {
        stage: Stage::Due,
        access_key,
        connection,
        heard: now,
        ..Initiator::default()
    };
    if of.priority != handle.priority {
        // This turn is over if its priority is closed.
        of.priority = handle.priority;
        shared.marks.hit(Mark::DcPriorityChanged);
        return Some(Turn::Next);
    }
    None
}

/// Before a packet is sent: the CONNECT, if it is due.
pub(super) fn connect_first(of: &mut Qp, shared: &mut Shared, sink: &mut dyn Sink) -> Option<Turn> {
    let initiator = initiator(of)?;
    if initiator.stage != Stage::Due {
        return None;
    }
    initiator.stage = Stage::Open;
    announce(of, shared, sink, Operation::Connect);
    Some(Turn::Sent)
}

/// Sends a CONNECT or DISCONNECT.
fn announce(of: &Qp, shared: &mut Shared, sink: &mut dyn Sink, operation: Operation) {
    let (Some(path), Some(dceth)) = (&of.path, header(of)) else {
        return;
    };
    let Some(Dynamic::Initiator(initiator)) = of.dynamic.as_deref() else {
        return;
    };
    let opcode = Opcode::new(Transport::Dc, operation);
    let headers = Headers {
        bth: bth::Header {
            pkey: of.pkey,
            ..bth::Header::new(opcode, of.attributes.destination_qp.0, of.requester.oldest)
        },
        xrceth: None,
        dceth: Some(dceth),
        extended: Extended::Connection(dcceth::Header {
            access_key: initiator.access_key,
            connection: initiator.connection,
        }),
    };
    send(shared, sink, of.number, of.priority, path, headers);
}

/// Sends a packet without payload.
fn send(
    shared: &mut Shared,
    sink: &mut dyn Sink,
    from: QpNumber,
    priority: u8,
    path: &vnic_wire::roce::Path,
    headers: Headers,
) {
    sink.send(&Outgoing {
        from,
        priority,
        path,
        headers,
        payload: Payload::NONE,
        telemetry: None,
    });
    shared.counters.sent(path, &headers, 0);
}

/// Whether this is an answer to the CONNECT in front of a request of which nothing was sent yet.
#[cold]
pub(super) fn is_refusal(of: &Qp, psn: Psn, aeth: Option<aeth::Header>) -> bool {
    let connecting = match of.dynamic.as_deref() {
        Some(Dynamic::Initiator(initiator)) => initiator.stage == Stage::Open && !initiator.heard_of,
        _ => false,
    };
    let refused = matches!(
        aeth,
        Some(aeth::Header {
            syndrome: Syndrome::RnrNak { .. } | Syndrome::Nak(NakCode::RemoteAccess),
            ..
        })
    );
    connecting && refused && psn == of.requester.end && of.requester.quiet()
}

/// What is not acknowledged is sent again after a time without an answer, or when the target was not ready: it may not know the
/// connection.
pub(super) fn connect_again(of: &mut Qp, shared: &mut Shared, now: Instant) {
    if let Some(initiator) = initiator(of)
        && initiator.stage == Stage::Open
    {
        if now.since(initiator.heard) < TRUSTED {
            initiator.stage = Stage::Due;
            shared.marks.hit(Mark::DcConnectedAgain);
        } else {
            shared.marks.hit(Mark::DcDistrusted);
        }
    }
}

/// The target was not ready: it may have had no room for the connection.
pub(super) fn not_ready(of: &mut Qp, shared: &mut Shared, now: Instant) {
    if let Some(initiator) = initiator(of)
        && !initiator.heard_of
    {
        // Whoever was refused has executed nothing.
        initiator.heard = now;
        connect_again(of, shared, now);
    }
}

/// Something was acknowledged. An initiator with nothing to do looks later whether that has changed.
pub(super) fn progressed(of: &mut Qp, shared: &mut Shared, now: Instant) {
    let quiet = of.requester.quiet();
    let Some(initiator) = initiator(of) else { return };
    (initiator.heard_of, initiator.heard) = (true, now);
    if quiet {
        shared.timers.arm(&mut of.timer, of.number, now + IDLE);
    }
}

/// It leaves the states in which it has connections.
pub(super) fn end(of: &mut Qp, shared: &mut Shared) {
    match of.dynamic.as_deref_mut() {
        Some(Dynamic::Initiator(initiator)) => *initiator = Initiator::default(),
        Some(Dynamic::Target(_)) => target::close_all(of, shared),
        None => {}
    }
}

/// Pages came, or were refused, that it waited for.
pub(super) fn pages_came(of: &mut Qp, shared: &mut Shared) {
    let now = shared.now;
    target::wake(of, shared, now);
}

/// The timer fired.
pub(super) fn timeout(of: &mut Qp, shared: &mut Shared, now: Instant) {
    target::wake(of, shared, now);
    look_idle(of, shared, now);
}

fn look_idle(of: &mut Qp, shared: &mut Shared, now: Instant) {
    let (quiet, number) = (of.requester.quiet(), of.number);
    let Some(initiator) = initiator(of) else { return };
    if initiator.stage != Stage::Open || !quiet {
        return;
    }
    let until = initiator.heard + IDLE;
    if until > now {
        shared.timers.arm(&mut of.timer, number, until);
    } else {
        initiator.leaves = true;
        of.schedule(shared);
    }
}
