//! Commands about queue pairs, address handles and multicast (`SPEC.md`, section 5.5).

use vnic_device::command::flow::{CreateFlow, CreateHashQp, FlowFields};
use vnic_device::command::qp::{
    AddressVector, CreateAh, CreateQp, ModifyQp, Multicast, QpAttributes, QpRate, QpReply, create_flags,
};
use vnic_device::command::{Object, Opcode};
use vnic_device::queue::{SendLimits, receive_stride, send_blocks_max};
use vnic_device::ring::{self, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{Mtu, QpState, QpType, flow_headers, qp_mask};
use vnic_engine::rdma as engine;
use vnic_engine::rdma::{
    AhHandle, AttributeMask as Mask, CqHandle, PdHandle, QpNumber, SrqHandle, XrcdHandle,
};
use vnic_fabric::Instant;
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;

use super::device::max_send_blocks;
use super::queues::entries;
use crate::rdma::function::Function;
use crate::rdma::request::{Failure, Outcome, Request, fail, optional, reserved};
use crate::rdma::session::QueuePair;
use crate::rdma::work_queue::{ReceiveQueue, SendQueue, right_bits, rights};

/// Bits of the ABI's mask, and of the engine's.
const MASKS: [(u32, Mask); 19] = [
    (qp_mask::STATE, Mask::STATE),
    (qp_mask::CURRENT_STATE, Mask::CURRENT_STATE),
    (qp_mask::DRAINED_EVENT, Mask::DRAINED_EVENT),
    (qp_mask::ACCESS, Mask::ACCESS),
    (qp_mask::PKEY_INDEX, Mask::PKEY_INDEX),
    (qp_mask::PORT, Mask::PORT),
    (qp_mask::QKEY, Mask::QKEY),
    (qp_mask::ADDRESS, Mask::ADDRESS),
    (qp_mask::PATH_MTU, Mask::PATH_MTU),
    (qp_mask::TIMEOUT, Mask::TIMEOUT),
    (qp_mask::RETRY_COUNT, Mask::RETRY_COUNT),
    (qp_mask::RNR_RETRY, Mask::RNR_RETRY),
    (qp_mask::RQ_PSN, Mask::RQ_PSN),
    (qp_mask::MAX_RD_ATOMIC, Mask::MAX_RD_ATOMIC),
    (qp_mask::MIN_RNR_TIMER, Mask::MIN_RNR_TIMER),
    (qp_mask::SQ_PSN, Mask::SQ_PSN),
    (qp_mask::MAX_DEST_RD_ATOMIC, Mask::MAX_DEST_RD_ATOMIC),
    (qp_mask::DESTINATION_QP, Mask::DESTINATION_QP),
    (qp_mask::UDP_SOURCE_PORT, Mask::UDP_SOURCE_PORT),
];

fn state(number: u8) -> Result<QpState, Failure> {
    match QpState::from_number(number) {
        Some(state) => Ok(state),
        None => fail(S::NotSupported, format!("there is no state {number}")),
    }
}

pub(super) fn psn(what: &str, value: u32) -> Result<Psn, Failure> {
    if value >> 24 != 0 {
        return fail(S::OutOfRange, format!("{what} is {value:#x}; PSNs have 24 bits"));
    }
    Ok(Psn::new(value))
}

pub(super) fn shown_address(a: &engine::AddressVector) -> AddressVector {
    AddressVector {
        dgid: a.dgid.0,
        dmac: a.dmac.0,
        sgid_index: a.sgid_index,
        flow_label: a.flow_label,
        traffic_class: a.traffic_class,
        hop_limit: a.hop_limit,
        service_level: a.service_level,
        reserved: 0,
    }
}

impl Function {
    /// The engine's address vector; a missing Ethernet address is resolved.
    pub(super) fn address(&self, a: &AddressVector) -> Result<engine::AddressVector, Failure> {
        reserved(a.reserved)?;
        let dgid = Gid(a.dgid);
        let dmac = if a.dmac == [0; 6] {
            match self.resolve(dgid, a.sgid_index) {
                Some(mac) => mac,
                None => {
                    let text = format!("nobody knows the Ethernet address of {dgid}; give it as dmac");
                    return fail(S::Unreachable, text);
                }
            }
        } else {
            MacAddr(a.dmac)
        };
        Ok(engine::AddressVector {
            dgid,
            dmac,
            sgid_index: a.sgid_index,
            traffic_class: a.traffic_class,
            flow_label: a.flow_label,
            hop_limit: a.hop_limit,
            service_level: a.service_level,
        })
    }

    pub(super) fn create_ah(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateAh = r.only_body()?;
        r.room_for::<Object>()?;
        reserved(body.reserved)?;
        let address = self.address(&body.address)?;
        let ah = self.device.create_ah(PdHandle(body.pd), address)?;
        r.reply_object(ah.0);
        Ok(())
    }

    pub(super) fn query_ah(&mut self, mut r: Request<'_>) -> Outcome {
        let ah = AhHandle(r.object()?);
        r.room_for::<AddressVector>()?;
        let address = self.device.query_ah(ah)?;
        r.reply(&shown_address(&address));
        Ok(())
    }

    pub(super) fn destroy_ah(&mut self, r: Request<'_>) -> Outcome {
        Ok(self.device.destroy_ah(AhHandle(r.object()?))?)
    }

    pub(super) fn create_qp(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateQp = r.body_since(CreateQp::LEN_1_0)?;
        r.room_for::<Object>()?;
        let most = self.free_extents();
        let send_list = r.announced(body.send_ring, most)?;
        let receive_list = r.announced(body.receive_ring, most - body.send_ring.count)?;
        r.used_up()?;
        let Some(kind) = QpType::from_number(body.qp_type) else {
            let text = format!("there are no QPs of type {}", body.qp_type);
            return fail(S::NotSupported, text);
        };
        if body.flags & !create_flags::ALL != 0 {
            return fail(S::NotSupported, format!("there are no flags {:#x}", body.flags));
        }
        let limits = *self.device.limits();
        let sends = body.send_blocks > 0;
        if sends {
            entries(
                "send_blocks",
                body.send_blocks,
                1,
                max_send_blocks(limits.max_qp_wr),
            )?;
        }
        if body.receive_entries > 0 {
            entries("receive_entries", body.receive_entries, 1, limits.max_qp_wr)?;
        }
        let dc = matches!(kind, QpType::DcInitiator | QpType::DcTarget);
        if self.session.minor < 5 && (dc || body.access_key != 0) {
            let text = "this version has no dynamic connections";
            return fail(S::NotSupported, text);
        }
        if self.session.minor < 6 && kind == QpType::RawPacket {
            return fail(S::NotSupported, "this version has no raw packets");
        }
        if kind != QpType::DcTarget && body.access_key != 0 {
            return fail(S::Invalid, "only a DC target has an access key");
        }
        let shared =
            optional(body.srq).is_some() || dc || matches!(kind, QpType::XrcInitiator | QpType::XrcTarget);
        if shared && (body.receive_entries > 0 || body.receive_elements > 0) {
            let text = "receives come from a shared receive queue: there is no receive ring";
            return fail(S::Invalid, text);
        }
        if matches!(kind, QpType::XrcTarget | QpType::DcTarget) && sends {
            return fail(S::Invalid, "a target sends nothing: there is no send ring");
        }
        if !sends && (body.send_elements > 0 || body.max_inline > 0) {
            return fail(S::Invalid, "send_elements or max_inline without send_blocks");
        }
        let Some(stride) = receive_stride(body.receive_elements) else {
            let text = format!("{} receive_elements; at most 255", body.receive_elements);
            return fail(S::OutOfRange, text);
        };
        let init = engine::QpInit {
            qp_type: kind,
            pd: optional(body.pd).map(PdHandle),
            send_cq: optional(body.send_cq).map(CqHandle),
            recv_cq: optional(body.recv_cq).map(CqHandle),
            srq: optional(body.srq).map(SrqHandle),
            xrcd: optional(body.xrcd).map(XrcdHandle),
            max_send_wr: body.send_blocks.min(limits.max_qp_wr),
            max_recv_wr: body.receive_entries.min(limits.max_qp_wr),
            max_send_sge: body.send_elements,
            max_recv_sge: body.receive_elements,
            max_inline: body.max_inline,
            signal_all: body.flags & create_flags::SIGNAL_ALL != 0,
        };
        if body.send_elements > limits.max_sge || body.max_inline > limits.max_inline {
            let text = format!(
                "{} elements and {} inline bytes; at most {} and {}",
                body.send_elements, body.max_inline, limits.max_sge, limits.max_inline
            );
            return fail(S::OutOfRange, text);
        }
        let send_limits = SendLimits {
            qp_type: kind,
            elements: body.send_elements,
            inline: body.max_inline,
        };
        let longest = send_blocks_max(&send_limits);
        if sends && body.send_blocks < longest {
            let text = format!(
                "{} send_blocks; the longest work request takes {longest}",
                body.send_blocks
            );
            return fail(S::Invalid, text);
        }
        // Both lists are read as a whole before anything is made from them.
        let (send_len, receive_len) = (
            ring::send_ring_len(body.send_blocks),
            ring::receive_ring_len(body.receive_entries, stride),
        );
        self.read_ring(&mut r, 0, &send_list, send_len, 64)?;
        self.read_ring(&mut r, 1, &receive_list, receive_len, stride)?;
        let send = if sends {
            Some(SendQueue::new(r.ring(0)?, body.send_blocks, send_limits))
        } else {
            None
        };
        let receive = if body.receive_entries > 0 {
            Some(ReceiveQueue::new(
                r.ring(1)?,
                body.receive_entries,
                stride,
                body.receive_elements,
            ))
        } else {
            None
        };
        let qp = self.device.create_qp(&init)?;
        if kind == QpType::DcTarget {
            self.device.set_access_key(qp, body.access_key)?;
        }
        let made = QueuePair {
            send,
            receive,
            created: CreateQp {
                send_ring: ExtentList::default(),
                receive_ring: ExtentList::default(),
                ..body
            },
            starving: false,
            fault_told: false,
        };
        self.session.ring_extents += made.extents();
        self.session.qps.insert(qp.0, made);
        r.reply_object(qp.0);
        Ok(())
    }

    pub(super) fn modify_qp(&mut self, r: Request<'_>) -> Outcome {
        let body: ModifyQp = r.only_body()?;
        if body.mask & !qp_mask::ALL != 0 {
            let unknown = body.mask & !qp_mask::ALL;
            return fail(S::NotSupported, format!("there are no attributes {unknown:#x}"));
        }
        let qp = QpNumber(body.qp);
        let Some(before) = self.device.qp_state(qp) else {
            return fail(S::NoSuchObject, format!("no such queue pair as {:#x}", body.qp));
        };
        if r.goes_on && before == QpState::Err {
            return self.flush(body.qp, r.now);
        }
        let a = &body.attributes;
        reserved(a.reserved)?;
        reserved(a.has_address)?;
        let has = |bit| body.mask & bit != 0;
        let mut values = engine::QpAttributes::default();
        let mut mask = Mask::empty();
        for (bit, engine_bit) in MASKS {
            mask.set(engine_bit, has(bit));
        }
        // The engine always wants a target state; without STATE it is the current one.
        mask |= Mask::STATE;
        values.state = if has(qp_mask::STATE) {
            state(a.state)?
        } else {
            before
        };
        if has(qp_mask::CURRENT_STATE) {
            values.current_state = state(a.current_state)?;
            if values.current_state != before {
                let text = format!("it is in {before:?}, not in {:?}", values.current_state);
                return fail(S::WrongState, text);
            }
        }
        if has(qp_mask::PATH_MTU) {
            let known = Mtu::from_number(a.path_mtu);
            let Some(mtu) = known else {
                let text = format!("path_mtu {}; allowed are 1 to 5", a.path_mtu);
                return fail(S::OutOfRange, text);
            };
            if mtu > self.config.mtu {
                let text = format!(
                    "a path MTU of {} bytes; the adapter's MTU has room for {}",
                    mtu.bytes(),
                    self.config.mtu.bytes()
                );
                return fail(S::OutOfRange, text);
            }
            values.path_mtu = mtu;
        }
        if has(qp_mask::ACCESS) {
            let Some(rights) = rights(a.access) else {
                let text = format!("there are rights among {:#x} that there are not", a.access);
                return fail(S::NotSupported, text);
            };
            values.access = rights;
        }
        if has(qp_mask::ADDRESS) {
            let mut address = a.address;
            if self.is_dynamic(body.qp) {
                // Nobody is found out: the engine does not look at it.
                address.dmac = self.device.mac().0;
            }
            values.address = Some(self.address(&address)?);
        }
        if has(qp_mask::RQ_PSN) {
            values.rq_psn = psn("rq_psn", a.rq_psn)?;
        }
        if has(qp_mask::SQ_PSN) {
            values.sq_psn = psn("sq_psn", a.sq_psn)?;
        }
        if has(qp_mask::DRAINED_EVENT) && a.drained_event > 1 {
            let text = format!("drained_event is {}; it is 0 or 1", a.drained_event);
            return fail(S::OutOfRange, text);
        }
        values.qkey = a.qkey;
        values.destination_qp = QpNumber(a.destination_qp);
        values.pkey_index = a.pkey_index;
        values.drained_event = a.drained_event == 1;
        values.max_rd_atomic = a.max_rd_atomic;
        values.max_dest_rd_atomic = a.max_dest_rd_atomic;
        values.min_rnr_timer = a.min_rnr_timer;
        values.port = a.port;
        values.timeout = a.timeout;
        values.retry_count = a.retry_count;
        values.rnr_retry = a.rnr_retry;
        values.udp_source_port = has(qp_mask::UDP_SOURCE_PORT).then_some(a.udp_source_port);
        if matches!(values.state, QpState::Err | QpState::Reset) && self.device.has_answers(qp) && !r.goes_on
        {
            // The acknowledge of what the program has as a completion leaves in this turn, as it has left a card by then: the peer
            // would wait for it until its retries are over.
            return Err(Failure::Unfinished);
        }
        self.device.modify_qp(qp, &values, mask, r.now)?;
        match self.device.qp_state(qp) {
            Some(QpState::Reset) => {
                if let Some(shell) = self.session.qps.get_mut(body.qp) {
                    shell.reset();
                }
                self.forget_qp(body.qp, r.now);
                self.forget_withheld(body.qp);
            }
            Some(QpState::Err) => self.flush(body.qp, r.now)?,
            // Requests that were posted in a state that does not send are sent now.
            _ => self.feed_sends(body.qp),
        }
        Ok(())
    }

    /// Is it an end of dynamic connections?
    fn is_dynamic(&self, number: u32) -> bool {
        let kinds = [QpType::DcInitiator, QpType::DcTarget].map(QpType::number);
        let made = self.session.qps.get(number);
        made.is_some_and(|qp| kinds.contains(&qp.created.qp_type))
    }

    /// Flushes requests that were posted to a QP in error.
    fn flush(&mut self, number: u32, now: Instant) -> Outcome {
        match self.flush_all(number, now) {
            true => Ok(()),
            false => Err(Failure::Unfinished),
        }
    }

    pub(super) fn query_qp(&mut self, mut r: Request<'_>) -> Outcome {
        let number = r.object()?;
        let len = match self.session.minor {
            0..5 => QpReply::LEN_1_0,
            _ => size_of::<QpReply>(),
        };
        let a = self.device.query_qp(QpNumber(number))?;
        let Some(shell) = self.session.qps.get(number) else {
            return fail(S::NoSuchObject, format!("no such queue pair as {number:#x}"));
        };
        let attributes = QpAttributes {
            state: a.state.number(),
            current_state: a.state.number(),
            path_mtu: a.path_mtu.number(),
            drained_event: a.drained_event.into(),
            max_rd_atomic: a.max_rd_atomic,
            max_dest_rd_atomic: a.max_dest_rd_atomic,
            min_rnr_timer: a.min_rnr_timer,
            port: a.port,
            timeout: a.timeout,
            retry_count: a.retry_count,
            rnr_retry: a.rnr_retry,
            has_address: a.address.is_some().into(),
            pkey_index: a.pkey_index,
            udp_source_port: a.udp_source_port.unwrap_or(0),
            access: right_bits(a.access),
            qkey: a.qkey,
            rq_psn: a.rq_psn.value(),
            sq_psn: a.sq_psn.value(),
            destination_qp: a.destination_qp.0,
            reserved: 0,
            address: a.address.as_ref().map(shown_address).unwrap_or_default(),
        };
        let reply = QpReply {
            attributes,
            created: shell.created,
        };
        r.reply_cut(&reply, len)
    }

    pub(super) fn modify_qp_rate(&mut self, r: Request<'_>) -> Outcome {
        let body: QpRate = r.only_body()?;
        reserved(body.reserved)?;
        let limit = engine::RateLimit {
            rate: body.rate,
            max_burst: body.max_burst,
            typical_packet: body.typical_packet,
        };
        Ok(self.device.set_qp_rate(QpNumber(body.qp), limit, r.now)?)
    }

    pub(super) fn query_qp_rate(&mut self, mut r: Request<'_>) -> Outcome {
        let qp = r.object()?;
        r.room_for::<QpRate>()?;
        let limit = self.device.qp_rate(QpNumber(qp))?;
        r.reply(&QpRate {
            qp,
            rate: limit.rate,
            max_burst: limit.max_burst,
            typical_packet: limit.typical_packet,
            reserved: 0,
        });
        Ok(())
    }

    pub(super) fn destroy_qp(&mut self, r: Request<'_>) -> Outcome {
        let number = r.object()?;
        let qp = QpNumber(number);
        let Some(state) = self.device.qp_state(qp) else {
            return fail(S::NoSuchObject, format!("no such queue pair as {number:#x}"));
        };
        if self.device.is_in_group(qp) {
            return fail(S::InUse, "the queue pair is attached to a multicast group");
        }
        if self.flows.lead_to(qp) {
            return fail(S::InUse, "flows lead to the queue pair");
        }
        if self.flows.spread_over(qp) {
            return fail(S::InUse, "the queue pair is in the table of a hash queue pair");
        }
        let waits = state == QpState::Rts && self.device.held(qp).0 > 0 || self.device.has_answers(qp);
        if waits && !r.goes_on {
            // What was posted before, and what is acknowledged, may leave in this turn, as it leaves a card while a program makes
            // its next call: the last datagram of a program that ends, for which it waits for no completion.
            return Err(Failure::Unfinished);
        }
        if state != QpState::Reset {
            self.device.fail_qp(qp);
            self.flush(number, r.now)?;
        }
        self.device.destroy_qp(qp)?;
        // No completion may come after the reply: those without room now would.
        self.finish(r.now);
        self.forget_qp(number, r.now);
        self.forget_withheld(number);
        if let Some(shell) = self.session.qps.remove(number) {
            let extents = shell.extents();
            self.session.ring_extents -= extents;
            self.remains.leave(extents as usize, shell);
        }
        Ok(())
    }

    pub(super) fn create_flow(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateFlow = r.body_since(CreateFlow::LEN_1_6)?;
        r.no_list()?;
        r.room_for::<Object>()?;
        for fields in [body.value, body.mask, body.inner_value, body.inner_mask] {
            reserved(fields.reserved)?;
        }
        let inside = body.headers & !flow_headers::ALL_1_6 != 0
            || body.inner_value != FlowFields::default()
            || body.inner_mask != FlowFields::default();
        if self.session.minor < 8 && inside {
            return fail(S::NotSupported, "this version has no fields inside of tunnels");
        }
        let qp = QpNumber(body.qp);
        if !self.flows.has_hash_qp(qp) {
            self.takes_frames(qp, "flows")?;
        }
        if !self.identity.flows {
            return fail(
                S::NotPermitted,
                "the adapter has no flows (its setting rdma_flows)",
            );
        }
        let flow = self.flows.insert(&body)?;
        r.reply_object(flow);
        Ok(())
    }

    /// Refuses what is no raw packet queue pair.
    fn takes_frames(&self, qp: QpNumber, what: &str) -> Outcome {
        match self.device.query_qp_init(qp)?.qp_type {
            QpType::RawPacket => Ok(()),
            _ => fail(S::Invalid, format!("only raw packet queue pairs have {what}")),
        }
    }

    pub(super) fn create_hash_qp(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateHashQp = r.only_body()?;
        r.room_for::<Object>()?;
        for number in body.table.iter().take(body.entries as usize) {
            self.takes_frames(QpNumber(*number), "hash queue pairs")?;
        }
        let number = self.flows.insert_hash_qp(&body)?;
        r.reply_object(number.0);
        Ok(())
    }

    pub(super) fn multicast(&mut self, r: Request<'_>) -> Outcome {
        let body: Multicast = r.only_body()?;
        reserved(body.reserved)?;
        let (qp, gid) = (QpNumber(body.qp), Gid(body.gid));
        if r.opcode == Opcode::AttachMulticast {
            self.device.attach_multicast(qp, gid)?;
        } else {
            self.device.detach_multicast(qp, gid)?;
        }
        Ok(())
    }
}

impl QueuePair {
    /// Extents of the queue pair's rings.
    fn extents(&self) -> u32 {
        let send = self.send.as_ref().map_or(0, |q| q.ring.extents());
        let receive = self.receive.as_ref().map_or(0, |q| q.ring.extents());
        (send + receive) as u32
    }

    fn reset(&mut self) {
        if let Some(send) = &mut self.send {
            send.reset();
        }
        if let Some(receive) = &mut self.receive {
            receive.reset();
        }
        self.fault_told = false;
    }
}
