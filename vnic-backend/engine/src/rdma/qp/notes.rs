//! What a queue pair notes while a recording runs.

use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;

use super::super::notes::{End, Landed, Note};
use super::super::packet::Incoming;
use super::super::shared::Shared;
use super::super::types::QpNumber;
use super::Qp;

/// The queue pair that it is connected with.
fn peer(of: &Qp) -> Option<End> {
    let mac = of.path.as_ref()?.eth.destination;
    let qp = of.attributes.destination_qp;
    Some(End { mac, qp })
}

/// The request in a slot of the pool got its PSNs.
#[cold]
#[inline(never)]
pub fn begun(of: &Qp, shared: &mut Shared, slot: u32) {
    let (Some(notes), Some(wqe)) = (&mut shared.notes, shared.sends.get(slot)) else {
        return;
    };
    let to = match &wqe.wr.ud {
        Some(to) => shared.ahs.of_datagram(to.ah.0).map(|ah| End {
            mac: ah.path.eth.destination,
            qp: to.qp,
        }),
        None => peer(of),
    };
    if let Some(to) = to {
        notes.push(Note::Begun {
            qp: of.number,
            tag: wqe.wr.tag,
            to,
            first: wqe.first,
            psns: wqe.psns,
        });
    }
}

/// A message took this receive and completes it.
#[cold]
#[inline(never)]
pub fn receive(of: &Qp, shared: &mut Shared, id: u64) {
    if let Some(notes) = &mut shared.notes {
        notes.push(Note::Received { qp: of.number, id });
    }
}

/// A packet of `sender` was carried out.
#[cold]
#[inline(never)]
pub fn landed(of: &Qp, shared: &mut Shared, operation: Operation, packet: &Incoming<'_>, sender: QpNumber) {
    if let Some(notes) = &mut shared.notes {
        let payload = packet.payload.len() as u32;
        notes.push(Note::Landed(Landed {
            qp: of.number,
            from: End {
                mac: packet.path.eth.source,
                qp: sender,
            },
            psn: packet.headers.bth.psn,
            bytes: if operation.is_atomic() { 8 } else { payload },
            begins: operation.starts_message() || operation.is_atomic(),
            ends: operation.ends_message() || operation.is_atomic(),
        }));
    }
}

/// All of an answer to a READ has left.
#[cold]
#[inline(never)]
pub fn read(of: &Qp, shared: &mut Shared, psn: Psn, bytes: u32) {
    if let Some(notes) = &mut shared.notes
        && let Some(from) = peer(of)
    {
        notes.push(Note::Landed(Landed {
            qp: of.number,
            from,
            psn,
            bytes,
            begins: true,
            ends: true,
        }));
    }
}
