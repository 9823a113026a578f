//! What is known of a connection, and the messages that are made of it.

use core::time::Duration;

use vnic_wire::cm::{
    About, ApStatus, Apr, Drep, Dreq, Mad, Message, Mra, Reason, Rej, Rep, Req, Rtu, ServiceId, SidrRep,
    SidrStatus,
};
use vnic_wire::time::Instant;

use super::super::types::AddressVector;
use super::event::Event;
use super::state::{Input, Send, State};
use super::terms::{Status, Terms};

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Bytes of a connection: its message and the peer's, what is told of it, and its places in tables.
pub(in super::super) const CONNECTION: u64 =
    (size_of::<Connection>() + 2 * size_of::<Mad>() + 4 * 64 + 4 * 32) as u64;

/// A connection, or a question for the queue pair of a service.
#[derive(Debug)]
pub(super) struct Connection {
    /// State of the connection.
    pub state: State,
    /// Where the peer is.
    pub peer: AddressVector,
    /// The peer's number of it; 0: not known yet.
    pub remote_id: u32,
    /// The peer's queue pair.
    pub remote_qp: u32,
    /// What both ends have agreed on.
    pub terms: Terms,
    /// What both queue pairs and adapters are called here.
    pub local: Local,
    /// Transaction of its REQ or SIDR_REQ.
    pub transaction: u64,
    /// The message that is sent again when no answer comes, or when what it answers comes again.
    pub last: Option<Box<Mad>>,
    /// When something is due.
    pub deadline: Option<Instant>,
    /// How it waits.
    pub patience: Patience,
    /// What a peer asked for, and the number of the listener.
    pub listener: Option<(ServiceId, u32)>,
    /// What the driver is told of it and has not taken, with the numbers of the order among all.
    pub told: VecDeque<(u64, Event)>,
    /// The driver wants to hear no more of it.
    pub orphan: bool,
}

/// The own end of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Local {
    /// The own number of it.
    pub id: u32,
    /// The own queue pair.
    pub qp: u32,
    /// The own channel adapter.
    pub ca_guid: u64,
}

/// How a connection waits for answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long after a message is sent first.
    pub first: Duration,
    /// How long now.
    pub now: Duration,
    /// How often a message is sent.
    pub sends: u8,
    /// How often it may be sent again.
    pub left: u8,
}

impl Patience {
    pub fn new(first: Duration, sends: u8) -> Patience {
        Patience {
            first,
            now: first,
            sends: sends.max(1),
            left: 0,
        }
    }
}

impl Connection {
    /// What is known of it.
    pub fn status(&self) -> Status {
        Status {
            id: self.local.id,
            remote_id: self.remote_id,
            state: self.state,
            passive: self.listener.is_some(),
            qp: self.local.qp,
            remote_qp: self.remote_qp,
            peer: self.peer,
            terms: self.terms,
        }
    }

    /// Whether the last message answers what came: then it is sent once more.
    pub fn answers(&self, input: Input) -> Option<Mad> {
        let last = self.last.as_deref()?;
        let fits = match input {
            Input::Retry => true,
            Input::Req => matches!(last.message, Message::Rep(_) | Message::Rej(_)),
            Input::Rep => matches!(last.message, Message::Rtu(_) | Message::Rej(_)),
            _ => false,
        };
        fits.then_some(*last)
    }

    /// The message that a row of the table sends: the driver's, if there is one, with what the connection knows.
    pub fn compose(&self, send: Send, given: Option<Message>, service_timeout: u8) -> Option<Message> {
        let (local_id, remote_id) = (self.local.id, self.remote_id);
        let mra = |about| Mra {
            local_id,
            remote_id,
            about,
            service_timeout,
            ..Mra::default()
        };
        Some(match (send, given) {
            (Send::Nothing | Send::Again, _) => return None,
            (Send::Req, Some(Message::Req(req))) => Req { local_id, ..req }.into(),
            (Send::Rep, Some(Message::Rep(rep))) => Rep {
                local_id,
                remote_id,
                ..rep
            }
            .into(),
            (Send::SidrReq, Some(Message::SidrReq(mut ask))) => {
                ask.request_id = local_id;
                ask.into()
            }
            (Send::Req | Send::Rep | Send::SidrReq, _) => return None,
            (Send::MraReq, _) => mra(About::Req).into(),
            (Send::MraRep, _) => mra(About::Rep).into(),
            (Send::Rtu, given) => match given {
                Some(Message::Rtu(rtu)) => Rtu {
                    local_id,
                    remote_id,
                    ..rtu
                },
                _ => Rtu {
                    local_id,
                    remote_id,
                    ..Rtu::default()
                },
            }
            .into(),
            (Send::Rej | Send::RejTimeout, given) => self.rejection(send, given).into(),
            (Send::Dreq, given) => {
                let dreq = match given {
                    Some(Message::Dreq(dreq)) => dreq,
                    _ => Dreq::default(),
                };
                Dreq {
                    local_id,
                    remote_id,
                    remote_qp: self.remote_qp,
                    ..dreq
                }
                .into()
            }
            (Send::Drep, given) => {
                let said = self.last.as_deref().map(|mad| mad.message);
                let drep = match (given, said) {
                    (Some(Message::Drep(drep)), _) | (None, Some(Message::Drep(drep))) => drep,
                    _ => Drep::default(),
                };
                Drep {
                    local_id,
                    remote_id,
                    ..drep
                }
                .into()
            }
            (Send::Apr, _) => Apr {
                local_id,
                remote_id,
                status: ApStatus::UNSUPPORTED,
                ..Apr::default()
            }
            .into(),
            (Send::SidrRep, given) => {
                let answer = match given {
                    Some(Message::SidrRep(answer)) => answer,
                    _ => SidrRep {
                        status: SidrStatus::REJECTED,
                        ..SidrRep::default()
                    },
                };
                SidrRep {
                    request_id: self.remote_id,
                    service_id: self.listener.map_or(ServiceId(0), |(service, _)| service),
                    ..answer
                }
                .into()
            }
        })
    }

    /// The driver's REJ, that of a program that went, or that of an answer that did not come. The last names the own channel
    /// adapter, by which a peer finds the connection that it has not numbered yet (section 12.6.7.2).
    fn rejection(&self, send: Send, given: Option<Message>) -> Rej {
        let mut rej = match given {
            Some(Message::Rej(rej)) => rej,
            _ => Rej {
                reason: Reason::CONSUMER,
                ..Rej::default()
            },
        };
        if send == Send::RejTimeout {
            rej.reason = Reason::TIMEOUT;
            rej.info_len = 8;
            rej.info[..8].copy_from_slice(&self.local.ca_guid.to_be_bytes());
        }
        Rej {
            local_id: self.local.id,
            remote_id: self.remote_id,
            about: match self.state {
                State::ReqReceived | State::MraReqSent => About::Req,
                State::RepReceived | State::MraRepSent => About::Rep,
                _ => About::Other,
            },
            ..rej
        }
    }
}
