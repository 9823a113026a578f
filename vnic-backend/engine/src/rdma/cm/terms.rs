//! What both ends of a connection agree on: the attributes of the own queue pair follow from it.

use vnic_wire::cm::{Ece, Rep, Req, Service, ServiceId, SidrReq};
use vnic_wire::psn::Psn;

use super::super::types::AddressVector;
use super::state::State;

/// Extended service type of a REQ for XRC queue pairs (IBTA vol 1 annex A14).
pub(super) const XRC: u8 = 1;
/// Longest ACK timeout: 5 bits.
const ACK_TIMEOUT_MAX: u8 = 31;
/// Hop limit of the way to a peer that has named none.
const HOP_LIMIT: u8 = 64;

/// Attributes of the own queue pair. What the own driver says is known from its call on, the rest from the peer's message on.
// Wide: one field for each attribute of a queue pair that a connection decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// What was asked for.
    pub service_id: ServiceId,
    /// Type of the queue pairs, and with [`Service::Extended`] the extended one.
    pub service: (Service, u8),
    /// The way to the peer's queue pair.
    pub address: AddressVector,
    /// Path MTU, as in verbs.
    pub mtu: u8,
    /// P_Key.
    pub pkey: u16,
    /// PSN that the own queue pair sends first: the peer has chosen it.
    pub sq_psn: Psn,
    /// PSN that it expects first: chosen here.
    pub rq_psn: Psn,
    /// READs and atomics that the own queue pair may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer that it holds resources for.
    pub max_dest_rd_atomic: u8,
    /// ACK timeout: 4.096 µs · 2^n.
    pub ack_timeout: u8,
    /// Retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Whether the own driver has said its part.
    pub own_known: bool,
    /// Whether the peer has.
    pub peer_known: bool,
    /// What the own driver said of enhanced connection establishment.
    own_ece: Ece,
    /// What the peer said of it.
    peer_ece: Ece,
}

impl Terms {
    /// Of a REQ that the own driver sends to a peer.
    pub(super) fn asked(to: AddressVector, req: &Req) -> Terms {
        Terms {
            address: to,
            rq_psn: req.psn,
            max_rd_atomic: req.initiator_depth,
            max_dest_rd_atomic: req.responder_resources,
            own_known: true,
            own_ece: req.ece,
            ..Terms::common(req)
        }
    }

    /// Of a REQ that came from a peer.
    pub(super) fn heard(from: AddressVector, req: &Req) -> Terms {
        let path = &req.primary;
        Terms {
            address: AddressVector {
                flow_label: path.flow_label,
                traffic_class: path.traffic_class,
                service_level: path.service_level & 15,
                hop_limit: if path.hop_limit > 1 {
                    path.hop_limit
                } else {
                    HOP_LIMIT
                },
                ..from
            },
            sq_psn: req.psn,
            max_rd_atomic: req.responder_resources,
            max_dest_rd_atomic: req.initiator_depth,
            rnr_retry: req.rnr_retry_count,
            peer_known: true,
            peer_ece: req.ece,
            ..Terms::common(req)
        }
    }

    /// Of a question for the queue pair of a service.
    pub(super) fn datagram(address: AddressVector, ask: &SidrReq) -> Terms {
        Terms {
            service_id: ask.service_id,
            address,
            pkey: ask.pkey,
            ..Terms::default()
        }
    }

    fn common(req: &Req) -> Terms {
        Terms {
            service_id: req.service_id,
            service: (req.service, req.extended),
            mtu: req.mtu,
            pkey: req.pkey,
            ack_timeout: req.primary.ack_timeout,
            retry_count: req.retry_count,
            ..Terms::default()
        }
    }

    /// The own driver has accepted.
    pub(super) fn accept(&mut self, rep: &Rep) {
        self.rq_psn = rep.psn;
        self.max_rd_atomic = rep.initiator_depth;
        self.max_dest_rd_atomic = rep.responder_resources;
        (self.own_known, self.own_ece) = (true, rep.ece);
    }

    /// The peer has accepted.
    pub(super) fn learn(&mut self, rep: &Rep) {
        self.sq_psn = rep.psn;
        // A peer cannot ask for more than was offered.
        self.max_rd_atomic = rep.responder_resources.min(self.max_rd_atomic);
        self.max_dest_rd_atomic = rep.initiator_depth.min(self.max_dest_rd_atomic);
        self.rnr_retry = rep.rnr_retry_count;
        self.ack_timeout = ack_timeout(rep.target_ack_delay, self.ack_timeout);
        (self.peer_known, self.peer_ece) = (true, rep.ece);
    }

    /// Whether queue pairs of the types for XRC connect.
    pub fn is_xrc(&self) -> bool {
        self.service == (Service::Extended, XRC)
    }

    /// What both ends have of enhanced connection establishment.
    pub fn ece(&self) -> Ece {
        match self.own_ece.vendor == self.peer_ece.vendor && self.own_ece.vendor != 0 {
            true => Ece {
                vendor: self.own_ece.vendor,
                options: self.own_ece.options & self.peer_ece.options,
            },
            false => Ece::default(),
        }
    }
}

/// The exponent that covers the way there and back and the peer's delay: 2^a + 2^b is at most 2^(max + 1), and about 2^max where
/// they are far apart.
fn ack_timeout(delay: u8, path: u8) -> u8 {
    let (least, most) = (delay.min(path), delay.max(path));
    // 0 waits for ever.
    if path == 0 {
        return 0;
    }
    (most + u8::from(most - least <= 1 && delay > 0)).min(ACK_TIMEOUT_MAX)
}

/// A connection or a listener, for whoever lists them or makes its queue pair ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The own number.
    pub id: u32,
    /// The peer's number; 0: not known yet.
    pub remote_id: u32,
    /// Its state.
    pub state: State,
    /// Whether the peer has begun it.
    pub passive: bool,
    /// The own queue pair; 0: not known yet.
    pub qp: u32,
    /// The peer's queue pair; 0: not known yet.
    pub remote_qp: u32,
    /// Where the peer's datagrams come from.
    pub peer: AddressVector,
    /// What was agreed on.
    pub terms: Terms,
}

impl Status {
    /// Who listens for a service.
    pub fn of_listener(id: u32, service_id: ServiceId) -> Status {
        Status {
            id,
            remote_id: 0,
            state: State::Listen,
            passive: true,
            qp: 0,
            remote_qp: 0,
            peer: AddressVector::default(),
            terms: Terms {
                service_id,
                ..Terms::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_cover_path_and_delay() {
        for (delay, path, covers) in [
            (0, 18, 18),
            (15, 18, 18),
            (17, 18, 19),
            (18, 18, 19),
            (19, 18, 20),
            (20, 18, 20),
            (31, 31, 31),
            (9, 0, 0),
        ] {
            assert_eq!(ack_timeout(delay, path), covers, "{delay} {path}");
        }
    }
}
