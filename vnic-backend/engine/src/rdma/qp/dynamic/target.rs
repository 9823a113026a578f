//! A target of dynamic connections: a responder for each initiator that is connected. They share the target's number, attributes,
//! receive queue and completion queue.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use vnic_wire::aeth::{self, NakCode, Syndrome};
use vnic_wire::gid::Gid;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{bth, dcceth, dceth};

use super::super::super::marks::Mark;
use super::super::super::memory::Memory;
use super::super::super::packet::{Incoming, Sink};
use super::super::super::shared::Shared;
use super::super::super::types::{AddressVector, QpAttributes, QpNumber, QpState};
use super::super::{Qp, connect};
use super::{Dynamic, KEPT, send};

/// Connections that a CONNECT without room looks at, to find one that may go.
const LOOKS: u32 = 8;
/// Refusals that wait to be sent; further ones are not.
const REFUSALS: usize = 16;
/// RNR timer of those for whom there is no room (IBTA 9.7.5.2.8: 10.24 ms).
const NO_ROOM: u8 = 20;

/// An initiator: its address, its VLAN, its queue pair.
type Key = (Gid, u16, u32);

/// A connection with an initiator.
#[derive(Debug)]
struct Connection {
    /// Its number.
    number: u32,
    /// When a packet of it last came.
    heard: Instant,
    /// What it has come to; nothing when it is closed. What is late of it is told from what is new then.
    responder: Option<Box<Qp>>,
    /// It is on the list of those with answers.
    listed: bool,
    /// It was closed by a NAK, which its initiator may not have heard: who asks again must not be served anew.
    refused: bool,
}

/// A CONNECT that is refused.
#[derive(Debug)]
struct Refusal {
    path: Path,
    initiator: u32,
    psn: Psn,
    syndrome: Syndrome,
}

/// What a target has beside other queue pairs.
#[derive(Debug, Default)]
pub struct Target {
    access_key: u64,
    connections: BTreeMap<Key, Connection>,
    /// Keys of all connections, those first that are looked at next when there is no room.
    order: VecDeque<Key>,
    /// Connections with something to send.
    answering: VecDeque<Key>,
    refusals: VecDeque<Refusal>,
}

impl Target {
    /// One without connections, with this access key.
    pub fn with_key(access_key: u64) -> Target {
        Target {
            access_key,
            ..Target::default()
        }
    }

    /// The key that initiators have to know.
    pub fn access_key(&self) -> u64 {
        self.access_key
    }

    fn wants_turn(&self) -> bool {
        !self.answering.is_empty() || !self.refusals.is_empty()
    }
}

fn target(of: &mut Qp) -> Option<&mut Target> {
    match of.dynamic.as_deref_mut() {
        Some(Dynamic::Target(target)) => Some(target),
        _ => None,
    }
}

/// Has a target anything to send?
pub fn has_answers(of: &Qp) -> bool {
    matches!(of.dynamic.as_deref(), Some(Dynamic::Target(target)) if target.wants_turn())
}

/// A request came for a target that takes some.
pub fn receive(
    of: &mut Qp,
    shared: &mut Shared,
    now: Instant,
    operation: Operation,
    packet: &Incoming<'_>,
    memory: &dyn Memory,
) {
    let Some(dceth) = packet.headers.dceth else {
        shared.counters.drop_malformed += 1;
        return;
    };
    let network = &packet.path.network;
    let key = (network.source(), packet.path.vid(), dceth.initiator);
    match (operation, packet.headers.extended) {
        (Operation::Connect, Extended::Connection(connection)) => {
            shared.counters.rx_dct_connect += 1;
            open(of, shared, now, key, &connection, packet);
        }
        (Operation::Disconnect, Extended::Connection(connection)) => {
            let Some(target) = target(of) else { return };
            if target.access_key == connection.access_key
                && let Some(known) = target.connections.get_mut(&key)
                && known.number == connection.connection
            {
                close(shared, known);
            } else {
                shared.marks.hit(Mark::DcDisconnectLate);
            }
        }
        _ => request(of, shared, now, (key, dceth), operation, packet, memory),
    }
}

/// Which initiator sent a request, if that is connected.
pub fn sender(of: &Qp, packet: &Incoming<'_>) -> Option<QpNumber> {
    let Some(Dynamic::Target(target)) = of.dynamic.as_deref() else {
        return None;
    };
    let initiator = packet.headers.dceth?.initiator;
    let known = target
        .connections
        .get(&(packet.path.network.source(), packet.path.vid(), initiator))?;
    let there = known.responder.as_ref()?.is_peers(&packet.path);
    there.then_some(QpNumber(initiator))
}

/// A request of a connection.
fn request(
    of: &mut Qp,
    shared: &mut Shared,
    now: Instant,
    (key, dceth): (Key, dceth::Header),
    operation: Operation,
    packet: &Incoming<'_>,
    memory: &dyn Memory,
) {
    let timer = &mut of.timer;
    let Some(Dynamic::Target(target)) = of.dynamic.as_deref_mut() else {
        return;
    };
    let known = target.connections.get_mut(&key);
    let known = known.filter(|known| known.number as u8 == dceth.connection);
    let Some(Connection {
        heard,
        responder: Some(responder),
        listed,
        ..
    }) = known
    else {
        // The CONNECT was lost, or it is late. Who misses the answer connects again.
        shared.marks.hit(Mark::DcUnknown);
        shared.counters.drop_wrong_state += 1;
        return;
    };
    if !responder.is_peers(&packet.path) || !responder.permissions().receive {
        shared.marks.hit(Mark::DcWrongWay);
        shared.counters.drop_wrong_state += 1;
        return;
    }
    *heard = now;
    core::mem::swap(&mut responder.timer, timer);
    responder.respond(shared, operation, packet, memory);
    core::mem::swap(&mut responder.timer, timer);
    if responder.has_answers() && !core::mem::replace(listed, true) {
        target.answering.push_back(key);
        of.schedule(shared);
    }
}

/// A CONNECT came.
fn open(
    of: &mut Qp,
    shared: &mut Shared,
    now: Instant,
    key: Key,
    wanted: &dcceth::Header,
    packet: &Incoming<'_>,
) {
    let Some((address, path)) = way_back(of, shared, key, packet) else {
        shared.marks.hit(Mark::DcWrongAddress);
        shared.counters.drop_bad_gid += 1;
        return;
    };
    let psn = packet.headers.bth.psn;
    let fresh = |of: &Qp, shared: &Shared| {
        let mut responder = Qp::new(of.number, of.init);
        responder.dynamic = None;
        responder.path = Some(path);
        responder.attributes = QpAttributes {
            state: QpState::Rtr,
            destination_qp: QpNumber(key.2),
            address: Some(address),
            max_dest_rd_atomic: shared.limits.max_rd_atomic,
            ..of.attributes
        };
        responder.responder.established = true;
        responder.responder.start(psn);
        // The target has the turns.
        responder.scheduled = true;
        Some(Box::new(responder))
    };
    let Some(Dynamic::Target(target)) = of.dynamic.as_deref() else {
        return;
    };
    let refused = if target.access_key != wanted.access_key {
        shared.marks.hit(Mark::DcKeyRefused);
        shared.counters.resp_remote_access_errors += 1;
        Syndrome::Nak(NakCode::RemoteAccess)
    } else if let Some(known) = target.connections.get(&key) {
        // What is late changes nothing, as long as it can be told.
        let newer = (wanted.connection.wrapping_sub(known.number) as i32) > 0;
        let forgotten = now.since(known.heard) > KEPT;
        let next = (newer || forgotten).then(|| fresh(of, shared));
        let same = known.number == wanted.connection;
        match (newer || forgotten, same) {
            (true, _) if known.responder.is_none() => {}
            (true, _) => shared.marks.hit(Mark::DcConnectedAnew),
            (false, true) => shared.marks.hit(Mark::DcConnectRepeated),
            (false, false) => shared.marks.hit(Mark::DcConnectLate),
        }
        let known = self::target(of).and_then(|target| target.connections.get_mut(&key));
        if let Some(known) = known
            && (same || next.is_some())
        {
            known.heard = now;
            if let Some(next) = next {
                close(shared, known);
                (known.number, known.responder) = (wanted.connection, next);
                known.refused = false;
            }
        }
        return;
    } else if make_room(of, shared, now) {
        let connection = Connection {
            number: wanted.connection,
            heard: now,
            responder: fresh(of, shared),
            listed: false,
            refused: false,
        };
        let Some(target) = self::target(of) else { return };
        target.order.push_back(key);
        target.connections.insert(key, connection);
        shared.dynamic_connections += 1;
        shared.timers.arm(&mut of.timer, of.number, now + KEPT);
        return;
    } else {
        shared.marks.hit(Mark::DcNoRoom);
        Syndrome::RnrNak { timer: NO_ROOM }
    };
    let Some(target) = self::target(of) else { return };
    if target.refusals.len() < REFUSALS {
        target.refusals.push_back(Refusal {
            path,
            initiator: key.2,
            psn,
            syndrome: refused,
        });
        of.schedule(shared);
    } else {
        shared.marks.hit(Mark::DcRefusalsFull);
    }
}

/// The way back to an initiator. `None`: its packet did not come to the address that this target answers from.
fn way_back(of: &Qp, shared: &Shared, key: Key, packet: &Incoming<'_>) -> Option<(AddressVector, Path)> {
    let own = of.attributes.address?;
    let address = AddressVector {
        dgid: key.0,
        dmac: packet.path.eth.source,
        ..own
    };
    let initiator = QpNumber(key.2);
    let port = connect::datagram_port(shared, &of.attributes, of.number, initiator, own.flow_label);
    let (path, _) = connect::path(shared, &address, port).ok()?;
    path.leads_to_sender_of(&packet.path).then_some((address, path))
}

/// Ends what a connection has come to; that it was there stays known.
fn close(shared: &mut Shared, connection: &mut Connection) {
    if let Some(mut responder) = connection.responder.take() {
        if responder.responder.queued() > 0 {
            shared.marks.hit(Mark::DcEndedMidMessage);
        }
        responder.scheduled = false;
        responder.flush(shared);
    }
}

/// Is there room for one more connection? If not, one that may go makes some, of those that are next: one that its initiator has closed,
/// or of which nothing was heard for long.
fn make_room(of: &mut Qp, shared: &mut Shared, now: Instant) -> bool {
    if shared.dynamic_connections < shared.limits.max_dc_connections {
        return true;
    }
    let Some(target) = target(of) else { return false };
    for _ in 0..LOOKS {
        let Some(key) = target.order.pop_front() else {
            return false;
        };
        let Some(known) = target.connections.get_mut(&key) else {
            continue;
        };
        let closed = known.responder.is_none() && !known.refused;
        if closed || now.since(known.heard) > KEPT {
            shared.marks.hit(match known.responder {
                None => Mark::DcRoomOfClosed,
                Some(_) => Mark::DcRoomOfForgotten,
            });
            close(shared, known);
            target.connections.remove(&key);
            shared.dynamic_connections -= 1;
            return true;
        }
        target.order.push_back(key);
    }
    false
}

/// The target's timer fired, or pages came: whoever waited is asked again, and who was not heard of is forgotten.
pub fn wake(of: &mut Qp, shared: &mut Shared, now: Instant) {
    let Some(target) = target(of) else { return };
    let (answering, order) = (&mut target.answering, &mut target.order);
    target.connections.retain(|key, known| {
        let keep = now.since(known.heard) <= KEPT;
        if !keep {
            shared.marks.hit(Mark::DcForgotten);
            close(shared, known);
            shared.dynamic_connections -= 1;
        } else if known.responder.as_ref().is_some_and(|r| r.has_answers()) && !known.listed {
            known.listed = true;
            answering.push_back(*key);
        }
        keep
    });
    order.retain(|key| target.connections.contains_key(key));
    let (any, wants) = (!target.connections.is_empty(), target.wants_turn());
    if any {
        shared.timers.arm(&mut of.timer, of.number, now + KEPT);
    }
    if wants {
        of.schedule(shared);
    }
}

/// Sends one answer of a target, if one is due.
pub fn answer(
    of: &mut Qp,
    shared: &mut Shared,
    now: Instant,
    memory: &dyn Memory,
    sink: &mut dyn Sink,
) -> bool {
    let (number, priority, pkey, timer) = (of.number, of.priority, of.pkey, &mut of.timer);
    let Some(Dynamic::Target(target)) = of.dynamic.as_deref_mut() else {
        return false;
    };
    if let Some(refusal) = target.refusals.pop_front() {
        if matches!(refusal.syndrome, Syndrome::RnrNak { .. }) {
            shared.counters.resp_rnr_nak += 1;
        }
        let opcode = Opcode::new(Transport::Dc, Operation::Acknowledge);
        let headers = Headers {
            bth: bth::Header {
                pkey,
                ..bth::Header::new(opcode, refusal.initiator, refusal.psn)
            },
            xrceth: None,
            dceth: None,
            extended: Extended::Aeth(aeth::Header {
                syndrome: refusal.syndrome,
                msn: 0,
            }),
        };
        send(shared, sink, number, priority, &refusal.path, headers);
        return true;
    }
    while let Some(key) = target.answering.pop_front() {
        let Some(known) = target.connections.get_mut(&key) else {
            continue;
        };
        known.listed = false;
        let Some(responder) = &mut known.responder else {
            continue;
        };
        (responder.priority, responder.pkey) = (priority, pkey);
        core::mem::swap(&mut responder.timer, timer);
        let sent = responder.send_response(shared, now, memory, sink);
        core::mem::swap(&mut responder.timer, timer);
        if sent && responder.has_answers() {
            known.listed = true;
            target.answering.push_back(key);
        } else if sent && responder.state() == QpState::Err {
            // It was refused: that was the last word.
            shared.marks.hit(Mark::DcEndedByNak);
            close(shared, known);
            known.refused = true;
        }
        if sent {
            return true;
        }
        // It waits for a page.
    }
    false
}

/// Ends all connections of a target that leaves the states in which it has some.
pub fn close_all(of: &mut Qp, shared: &mut Shared) {
    let Some(target) = target(of) else { return };
    let gone = core::mem::replace(target, Target::with_key(target.access_key));
    for mut known in gone.connections.into_values() {
        close(shared, &mut known);
        shared.dynamic_connections -= 1;
    }
}
