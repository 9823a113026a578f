//! Commands about connections (`SPEC.md`, section 5.7).

use vnic_device::command::connection::{
    ConnectionEvent, ConnectionEventKind as Kind, ConnectionReply, ConnectionState, Listen, Message,
    PRIVATE_MAX, Transport, message_flags,
};
use vnic_device::command::qp::QpAttributes;
use vnic_device::command::{Object, Opcode};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::qp_mask;
use vnic_engine::rdma::cm::{CmError, ConnectionId, Event, State, Status};
use vnic_engine::rdma::{AddressVector, QpNumber};
use vnic_wire::cm::{
    Ece, Path, Private, Reason, Rej, Rep, Req, Rtu, Service, ServiceId, SidrRep, SidrReq, SidrStatus,
};
use vnic_wire::psn::Psn;

use super::qp::{psn, shown_address};
use crate::rdma::function::Function;
use crate::rdma::request::{Failure, Outcome, Request, fail, refused, reserved};
use crate::types::ConnectionOutcome;

/// Extended service type of XRC (IBTA vol 1 annex A14).
const XRC: u8 = 1;
/// LID of ports that have none.
const PERMISSIVE_LID: u16 = 0xffff;
/// Longest of times that are exponents: 5 bits.
const EXPONENT_MAX: u8 = 31;

impl From<CmError> for Failure {
    fn from(error: CmError) -> Failure {
        let status = match error {
            CmError::Unknown => S::NoSuchObject,
            CmError::State(_) => S::WrongState,
            CmError::InUse => S::InUse,
            CmError::Full => S::LimitReached,
        };
        refused(status, error.to_string())
    }
}

/// Refuses what is beyond its limit.
fn within(rows: &[(&str, u64, u64)]) -> Outcome {
    match rows.iter().find(|(_, value, most)| value > most) {
        Some((what, value, most)) => fail(S::OutOfRange, format!("{what} is {value}; at most {most}")),
        None => Ok(()),
    }
}

/// The private data of a message, if a datagram has room for it.
fn private<const N: usize>(m: &Message) -> Result<Private<N>, Failure> {
    let data = m.private_data.get(..m.private_len.into());
    let text = || format!("{} bytes of private data; there is room for {N}", m.private_len);
    data.and_then(Private::new)
        .ok_or_else(|| refused(S::OutOfRange, text()))
}

/// Where the private data of a datagram stand in a message.
fn told<const N: usize>(private: &Private<N>) -> ([u8; PRIVATE_MAX], u8) {
    let mut data = [0; PRIVATE_MAX];
    let len = N.min(PRIVATE_MAX);
    data[..len].copy_from_slice(&private.0[..len]);
    (data, len as u8)
}

fn flags(flow_control: bool, srq: bool) -> u8 {
    let flag = |set, bit| if set { bit } else { 0 };
    flag(flow_control, message_flags::FLOW_CONTROL) | flag(srq, message_flags::SRQ)
}

impl Function {
    pub(super) fn connection(&mut self, r: Request<'_>) -> Outcome {
        match r.opcode {
            Opcode::Listen | Opcode::Unlisten => self.listen(&r),
            Opcode::Connect => self.connect(r),
            Opcode::Accept => self.accept(&r),
            Opcode::Reject => self.reject(&r),
            Opcode::Disconnect => self.disconnect(&r),
            Opcode::DestroyConnection => {
                let id = ConnectionId(r.object()?);
                let now = r.now;
                Ok(self.device.connections(|cm| cm.destroy(now, id))?)
            }
            Opcode::QueryConnection => self.query_connection(r),
            _ => self.take_connection_events(r),
        }
    }

    fn listen(&mut self, r: &Request<'_>) -> Outcome {
        let body: Listen = r.only_body()?;
        reserved(body.reserved)?;
        let service = ServiceId(body.service);
        if r.opcode == Opcode::Unlisten {
            reserved(body.backlog)?;
            self.device.connections(|cm| cm.unlisten(service))?;
            self.services.give(service);
            return Ok(());
        }
        if !self.services.take(service) {
            let text = format!("another driver of this adapter, or this one, listens for {service}");
            return fail(S::InUse, text);
        }
        Ok(self.device.connections(|cm| cm.listen(service, body.backlog))?)
    }

    /// The message of a call. Limits of its fields are checked, but not those of private data.
    fn message(r: &Request<'_>) -> Result<Message, Failure> {
        let m: Message = r.only_body()?;
        reserved(m.reserved)?;
        reserved(m.reserved_end)?;
        if m.flags & !message_flags::ALL != 0 {
            return fail(S::NotSupported, format!("there are no flags {:#x}", m.flags));
        }
        within(&[
            ("private_len", m.private_len.into(), PRIVATE_MAX as u64),
            ("retry_count", m.retry_count.into(), 7),
            ("rnr_retry", m.rnr_retry.into(), 7),
            ("ack_timeout", m.ack_timeout.into(), EXPONENT_MAX.into()),
            ("response_timeout", m.response_timeout.into(), EXPONENT_MAX.into()),
            ("max_retries", m.max_retries.into(), 15),
            ("ece_vendor", m.ece_vendor.into(), 0xff_ffff),
        ])?;
        psn("psn", m.psn)?;
        Ok(m)
    }

    /// A queue pair that a peer is told of must be the driver's own: peers end what they have with its number.
    fn own_qp(&self, qp: u32) -> Outcome {
        match self.device.qp_state(QpNumber(qp)) {
            Some(_) => Ok(()),
            None => fail(S::NoSuchObject, format!("no such queue pair as {qp:#x}")),
        }
    }

    /// What the driver says of enhanced establishment; nothing while the adapter does not have it.
    fn own_ece(&self, m: &Message) -> Ece {
        match self.ece() {
            true => Ece {
                vendor: m.ece_vendor,
                options: m.ece_options,
            },
            false => Ece::default(),
        }
    }

    fn guid(&self) -> u64 {
        u64::from_be_bytes(self.node_guid())
    }

    fn connect(&mut self, mut r: Request<'_>) -> Outcome {
        let m = Self::message(&r)?;
        r.room_for::<Object>()?;
        reserved(m.connection)?;
        let Some(transport) = Transport::from_number(m.transport) else {
            return fail(S::NotSupported, format!("there is no transport {}", m.transport));
        };
        if !self.device.pkeys().as_slice().contains(&m.pkey) {
            let text = format!("P_Key {:#06x} is none of the port's", m.pkey);
            return fail(S::Invalid, text);
        }
        let to = self.address(&m.address)?;
        if to.dgid.is_multicast() {
            return fail(S::Invalid, "nobody connects to a group");
        }
        let own = self.device.gids().get(to.sgid_index)?.gid;
        let now = r.now;
        if transport == Transport::Ud {
            let ask = SidrReq {
                pkey: m.pkey,
                service_id: ServiceId(m.service),
                private: private(&m)?,
                ..SidrReq::default()
            };
            let id = self.device.connections(|cm| cm.resolve(now, to, ask))?;
            r.reply_object(id.0);
            return Ok(());
        }
        if !(1..=5).contains(&m.path_mtu) {
            let text = format!("path_mtu {}; allowed are 1 to 5", m.path_mtu);
            return fail(S::OutOfRange, text);
        }
        self.own_qp(m.qp)?;
        let (service, extended) = match transport {
            Transport::Uc => (Service::Uc, 0),
            Transport::Xrc => (Service::Extended, XRC),
            Transport::Rc | Transport::Ud => (Service::Rc, 0),
        };
        let request = Req {
            service_id: ServiceId(m.service),
            ca_guid: self.guid(),
            qkey: m.qkey,
            qp: m.qp,
            responder_resources: m.responder_resources,
            initiator_depth: m.initiator_depth,
            remote_response_timeout: m.response_timeout,
            service,
            extended,
            flow_control: m.flags & message_flags::FLOW_CONTROL != 0,
            psn: Psn::new(m.psn),
            local_response_timeout: m.response_timeout,
            retry_count: m.retry_count,
            pkey: m.pkey,
            mtu: m.path_mtu,
            rnr_retry_count: m.rnr_retry,
            max_retries: m.max_retries,
            srq: m.flags & message_flags::SRQ != 0,
            ece: self.own_ece(&m),
            primary: Path {
                local_lid: PERMISSIVE_LID,
                remote_lid: PERMISSIVE_LID,
                local_gid: own,
                remote_gid: to.dgid,
                flow_label: to.flow_label,
                traffic_class: to.traffic_class,
                hop_limit: to.hop_limit,
                service_level: to.service_level,
                subnet_local: to.hop_limit <= 1,
                ack_timeout: m.ack_timeout,
                ..Path::default()
            },
            private: private(&m)?,
            ..Req::default()
        };
        let id = self.device.connections(|cm| cm.connect(now, to, request))?;
        self.device.set_service(QpNumber(m.qp), request.service_id)?;
        r.reply_object(id.0);
        Ok(())
    }

    /// The state of a connection, before a call that depends on it.
    fn connection_state(&self, id: ConnectionId) -> Result<State, Failure> {
        let state = self.device.communication().and_then(|cm| cm.state(id));
        state.ok_or_else(|| CmError::Unknown.into())
    }

    fn accept(&mut self, r: &Request<'_>) -> Outcome {
        let m = Self::message(r)?;
        let (id, now) = (ConnectionId(m.connection), r.now);
        match self.connection_state(id)? {
            State::RepReceived | State::MraRepSent => {
                let ready = Rtu {
                    private: private(&m)?,
                    ..Rtu::default()
                };
                self.device.connections(|cm| cm.establish(now, id, ready))?;
                if let Some(status) = self.device.communication().and_then(|cm| cm.status(id)) {
                    self.connection_news()
                        .note(ConnectionOutcome::Established, None, &status);
                }
                Ok(())
            }
            State::SidrReqReceived => {
                self.own_qp(m.qp)?;
                let answer = SidrRep {
                    status: SidrStatus::VALID,
                    qp: m.qp,
                    qkey: m.qkey,
                    private: private(&m)?,
                    ..SidrRep::default()
                };
                Ok(self.device.connections(|cm| cm.answer(now, id, answer))?)
            }
            _ => {
                self.own_qp(m.qp)?;
                let status = self.device.communication().and_then(|cm| cm.status(id));
                let xrc = status.is_some_and(|status| status.terms.is_xrc());
                let reply = Rep {
                    ca_guid: self.guid(),
                    qkey: m.qkey,
                    qp: if xrc { 0 } else { m.qp },
                    eec: if xrc { m.qp } else { 0 },
                    psn: Psn::new(m.psn),
                    responder_resources: m.responder_resources,
                    initiator_depth: m.initiator_depth,
                    flow_control: m.flags & message_flags::FLOW_CONTROL != 0,
                    rnr_retry_count: m.rnr_retry,
                    srq: xrc || m.flags & message_flags::SRQ != 0,
                    ece: self.own_ece(&m),
                    private: private(&m)?,
                    ..Rep::default()
                };
                self.device.connections(|cm| cm.accept(now, id, reply))?;
                let service = status.map_or(ServiceId(0), |status| status.terms.service_id);
                Ok(self.device.set_service(QpNumber(m.qp), service)?)
            }
        }
    }

    fn reject(&mut self, r: &Request<'_>) -> Outcome {
        let m = Self::message(r)?;
        let (id, now) = (ConnectionId(m.connection), r.now);
        if self.connection_state(id)? == State::SidrReqReceived {
            let status = match u8::try_from(m.reason) {
                Ok(0) => SidrStatus::REJECTED,
                Ok(status) => SidrStatus(status),
                Err(_) => return fail(S::OutOfRange, format!("reason is {}; at most 255", m.reason)),
            };
            let answer = SidrRep {
                status,
                private: private(&m)?,
                ..SidrRep::default()
            };
            return Ok(self.device.connections(|cm| cm.answer(now, id, answer))?);
        }
        let reject = Rej {
            reason: Reason(m.reason),
            private: private(&m)?,
            ..Rej::default()
        };
        Ok(self.device.connections(|cm| cm.reject(now, id, reject))?)
    }

    fn disconnect(&mut self, r: &Request<'_>) -> Outcome {
        let m = Self::message(r)?;
        let (id, now) = (ConnectionId(m.connection), r.now);
        Ok(self.device.connections(|cm| cm.disconnect(now, id))?)
    }

    fn query_connection(&mut self, mut r: Request<'_>) -> Outcome {
        let id = ConnectionId(r.object()?);
        r.room_for::<ConnectionReply>()?;
        let status = self.device.communication().and_then(|cm| cm.status(id));
        let status = status.ok_or(Failure::from(CmError::Unknown))?;
        let reply = self.shown_connection(&status);
        r.reply(&reply);
        Ok(())
    }

    /// What the driver needs for its queue pair.
    fn shown_connection(&self, status: &Status) -> ConnectionReply {
        let terms = &status.terms;
        let most = self.device.limits().max_rd_atomic;
        let mut known = 0;
        if terms.own_known || terms.peer_known {
            known |= qp_mask::ADDRESS
                | qp_mask::PATH_MTU
                | qp_mask::TIMEOUT
                | qp_mask::RETRY_COUNT
                | qp_mask::PKEY_INDEX;
        }
        if terms.own_known {
            known |= qp_mask::RQ_PSN;
        }
        if terms.peer_known {
            known |= qp_mask::DESTINATION_QP
                | qp_mask::SQ_PSN
                | qp_mask::MAX_RD_ATOMIC
                | qp_mask::MAX_DEST_RD_ATOMIC
                | qp_mask::MIN_RNR_TIMER
                | qp_mask::RNR_RETRY;
        }
        let ece = terms.ece();
        ConnectionReply {
            state: shown_state(status.state).number(),
            remote_id: status.remote_id,
            ece_vendor: ece.vendor,
            ece_options: ece.options,
            known,
            reserved: 0,
            attributes: QpAttributes {
                path_mtu: terms.mtu.min(self.config.mtu.number()),
                max_rd_atomic: terms.max_rd_atomic.min(most),
                max_dest_rd_atomic: terms.max_dest_rd_atomic.min(most),
                timeout: terms.ack_timeout,
                retry_count: terms.retry_count,
                rnr_retry: terms.rnr_retry,
                has_address: 1,
                rq_psn: terms.rq_psn.value(),
                sq_psn: terms.sq_psn.value(),
                destination_qp: status.remote_qp,
                pkey_index: self.device.pkeys().index_of(terms.pkey).unwrap_or(0),
                address: shown_address(&terms.address),
                ..QpAttributes::default()
            },
        }
    }

    fn take_connection_events(&mut self, mut r: Request<'_>) -> Outcome {
        r.no_body()?;
        let most = r.records::<ConnectionEvent>()?;
        for _ in 0..most {
            let Some(event) = self.device.connections(|cm| cm.poll_event()) else {
                break;
            };
            let mut shown = shown_event(&event);
            if !self.ece() {
                (shown.message.ece_vendor, shown.message.ece_options) = (0, 0);
            }
            let status = self.device.communication().and_then(|cm| cm.status(event.id()));
            self.connection_news().note_event(&event, status.as_ref());
            r.reply(&shown);
        }
        Ok(())
    }
}

fn shown_state(state: State) -> ConnectionState {
    match state {
        // (A listener is no connection: no command asks for its state.)
        State::Idle | State::Listen => ConnectionState::Idle,
        State::ReqSent => ConnectionState::ReqSent,
        State::MraReqReceived => ConnectionState::MraReqReceived,
        State::RepReceived => ConnectionState::RepReceived,
        State::MraRepSent => ConnectionState::MraRepSent,
        State::ReqReceived => ConnectionState::ReqReceived,
        State::MraReqSent => ConnectionState::MraReqSent,
        State::RepSent => ConnectionState::RepSent,
        State::MraRepReceived => ConnectionState::MraRepReceived,
        State::Established => ConnectionState::Established,
        State::DreqSent => ConnectionState::DreqSent,
        State::DreqReceived => ConnectionState::DreqReceived,
        State::Timewait => ConnectionState::Timewait,
        State::SidrReqSent => ConnectionState::SidrReqSent,
        State::SidrReqReceived => ConnectionState::SidrReqReceived,
    }
}

fn shown_request(peer: &AddressVector, req: &Req) -> Message {
    let (private_data, private_len) = told(&req.private);
    Message {
        qp: req.qp,
        service: req.service_id.0,
        psn: req.psn.value(),
        qkey: req.qkey,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        retry_count: req.retry_count,
        rnr_retry: req.rnr_retry_count,
        path_mtu: req.mtu,
        transport: match req.service {
            Service::Uc => Transport::Uc,
            Service::Extended => Transport::Xrc,
            Service::Rc | Service::Rd => Transport::Rc,
        }
        .number(),
        flags: flags(req.flow_control, req.srq),
        ack_timeout: req.primary.ack_timeout,
        response_timeout: req.remote_response_timeout,
        max_retries: req.max_retries,
        pkey: req.pkey,
        ece_vendor: req.ece.vendor,
        ece_options: req.ece.options,
        address: shown_address(peer),
        private_len,
        private_data,
        ..Message::default()
    }
}

fn shown_reply(rep: &Rep) -> Message {
    let (private_data, private_len) = told(&rep.private);
    Message {
        // With XRC the number stands where that of the end-to-end context was.
        qp: if rep.qp == 0 { rep.eec } else { rep.qp },
        psn: rep.psn.value(),
        qkey: rep.qkey,
        responder_resources: rep.responder_resources,
        initiator_depth: rep.initiator_depth,
        rnr_retry: rep.rnr_retry_count,
        flags: flags(rep.flow_control, rep.srq),
        ack_timeout: rep.target_ack_delay,
        ece_vendor: rep.ece.vendor,
        ece_options: rep.ece.options,
        private_len,
        private_data,
        ..Message::default()
    }
}

fn shown_event(event: &Event) -> ConnectionEvent {
    let ud = Transport::Ud.number();
    let (kind, message) = match event {
        Event::Request { peer, request, .. } => (Kind::Request, shown_request(peer, request)),
        Event::Response { reply, .. } => (Kind::Response, shown_reply(reply)),
        Event::Established { .. } => (Kind::Established, Message::default()),
        Event::Rejected { reject, .. } => {
            let (private_data, private_len) = told(&reject.private);
            let message = Message {
                reason: reject.reason.0,
                private_len,
                private_data,
                ..Message::default()
            };
            (Kind::Rejected, message)
        }
        Event::Unreachable { .. } => (Kind::Unreachable, Message::default()),
        Event::Disconnected { .. } => (Kind::Disconnected, Message::default()),
        Event::TimewaitExit { .. } => (Kind::TimewaitExit, Message::default()),
        Event::SidrRequest { peer, request, .. } => {
            let (private_data, private_len) = told(&request.private);
            let message = Message {
                service: request.service_id.0,
                transport: ud,
                pkey: request.pkey,
                address: shown_address(peer),
                private_len,
                private_data,
                ..Message::default()
            };
            (Kind::Request, message)
        }
        Event::SidrReply { reply, .. } => {
            let (private_data, private_len) = told(&reply.private);
            let valid = reply.status == SidrStatus::VALID;
            let message = Message {
                qp: reply.qp,
                service: reply.service_id.0,
                qkey: reply.qkey,
                transport: ud,
                reason: reply.status.0.into(),
                private_len,
                private_data,
                ..Message::default()
            };
            (if valid { Kind::Response } else { Kind::Rejected }, message)
        }
    };
    ConnectionEvent {
        kind: kind.number(),
        reserved: 0,
        message: Message {
            connection: event.id().0,
            ..message
        },
    }
}
