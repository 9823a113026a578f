//! Unreliable datagrams (IBTA 9.8.3).

use vnic_wire::opcode::{Opcode, Operation};
use vnic_wire::roce::{Network, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{bth, deth, grh, ipv4};

use super::super::address_handle::{AddressHandle, AddressHandles};
use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::packet::{Incoming, Outgoing, Payload, Sink, SpanList};
use super::super::shared::Shared;
use super::super::types::{
    Access, Completion, CompletionOp, NetworkHeader, Object, Origin, QpNumber, QpType, SendData, SendFlags,
    SendOp, Status, UdDestination, UdSource, VerbsError,
};
use super::requester::Turn;
use super::{Qp, connect, notes, responder, state};

/// Bytes in front of every datagram in its receive buffer (IBTA 11.4.1.2; for RoCEv2 annex A17.4.5: an IPv4 header
/// takes the last 20).
pub const GRH_LEN: u32 = grh::HEADER_LEN as u32;

/// A queue key with this bit means the sending QP's own (IBTA 10.2.5).
const QKEY_OWN: u32 = 1 << 31;

impl Qp {
    /// Does the destination exist?
    pub(super) fn check_destination(
        &self,
        ahs: &AddressHandles,
        to: &UdDestination,
    ) -> Result<(), VerbsError> {
        let handle = ahs.of_datagram(to.ah.0).ok_or(VerbsError::NoSuch(Object::Ah))?;
        if Some(handle.pd) != self.init.pd {
            return Err(VerbsError::OtherDomain(Object::Ah));
        }
        Ok(())
    }

    /// Sends the datagram at the cursor.
    pub(super) fn send_datagram(
        &mut self,
        shared: &mut Shared,
        slot: u32,
        memory: &dyn Memory,
        now: Instant,
        sink: &mut dyn Sink,
    ) -> Turn {
        let Some(wqe) = shared.sends.get(slot) else {
            return Turn::Blocked;
        };
        let number = self.number;
        let handle = wqe
            .wr
            .ud
            .and_then(|to| Some((to, shared.ahs.of_datagram(to.ah.0)?)));
        let (
            Some((
                to,
                &AddressHandle {
                    mut path, address, ..
                },
            )),
            Some(pd),
        ) = (handle, self.init.pd)
        else {
            self.end_request(shared, slot, Status::LocalQpOperationError);
            return Turn::Next;
        };
        if wqe.len > u64::from(shared.mtu.bytes()) {
            shared.marks.hit(Mark::UdTooLong);
            self.end_request(shared, slot, Status::LocalLengthError);
            return Turn::Next;
        }
        let len = wqe.len as u32;
        let mut spans = SpanList::new();
        let payload = match &wqe.wr.data {
            _ if len == 0 => Payload::NONE,
            SendData::Inline(bytes) => Payload::Bytes(bytes),
            SendData::Sges(sges) => {
                let found = shared
                    .regions
                    .local(pd, sges, 0, len.into(), Access::empty(), &mut spans);
                if let Err(status) = found {
                    let _ = shared.regions.take_missing();
                    shared.marks.hit(Mark::LocalProtection);
                    self.end_request(shared, slot, status);
                    return Turn::Next;
                }
                Payload::Spans {
                    memory,
                    spans: &spans,
                }
            }
        };
        path.source_port =
            connect::datagram_port(shared, &self.attributes, number, to.qp, address.flow_label);
        let deth = deth::Header {
            qkey: if to.qkey & QKEY_OWN != 0 {
                self.attributes.qkey
            } else {
                to.qkey
            },
            source_qp: number.0,
        };
        let (operation, extended) = match wqe.wr.op {
            SendOp::SendImm(imm) => (Operation::SendOnlyImm, Extended::DethImm(deth, imm)),
            _ => (Operation::SendOnly, Extended::Deth(deth)),
        };
        let headers = Headers {
            bth: bth::Header {
                pkey: self.pkey,
                solicited: wqe.wr.flags.contains(SendFlags::SOLICITED),
                pad: (len.wrapping_neg() & 3) as u8,
                ..bth::Header::new(
                    Opcode::new(self.transport(), operation),
                    to.qp.0,
                    self.requester.next_psn(),
                )
            },
            xrceth: None,
            dceth: None,
            extended,
        };
        sink.send(&Outgoing {
            from: number,
            priority: self.priority,
            path: &path,
            headers,
            payload,
            telemetry: None,
        });
        shared.counters.sent(&path, &headers, payload.len());
        if let Some(pace) = &mut self.pace {
            pace.payload = len;
        }
        self.datagram_sent(shared, slot, now);
        Turn::Sent
    }

    /// A datagram came.
    pub(super) fn receive_datagram(
        &mut self,
        shared: &mut Shared,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) {
        if !self.permissions().receive {
            shared.counters.drop_wrong_state += 1;
            return;
        }
        let (deth, imm) = match packet.headers.extended {
            Extended::Deth(deth) => (deth, None),
            Extended::DethImm(deth, imm) => (deth, Some(imm)),
            _ => {
                shared.counters.drop_malformed += 1;
                return;
            }
        };
        if deth.qkey != self.attributes.qkey {
            shared.marks.hit(Mark::QkeyViolation);
            shared.counters.drop_qkey_violation += 1;
            return;
        }
        let (Some(pd), Some(cq)) = (self.receive_pd(shared), self.init.recv_cq) else {
            return;
        };
        let wr = match self.init.srq {
            Some(srq) => shared.take_shared_receive(srq),
            None => self.responder.take_waiting(shared),
        };
        let Some(wr) = wr else {
            shared.marks.hit(Mark::UdNoReceive);
            shared.counters.out_of_buffer += 1;
            self.went_wrong(shared, |errors| &mut errors.out_of_buffer);
            return;
        };
        let grh = global_route_header(&packet.path, packet);
        let front = Payload::Bytes(&grh);
        let landed = responder::place(shared, pd, &wr.sges, 0, &front, memory)
            .and_then(|()| responder::place(shared, pd, &wr.sges, GRH_LEN.into(), &packet.payload, memory));
        let mut completion = Completion::new(wr.id, wr.tag, self.number, CompletionOp::Recv, Status::Success);
        if let Err(status) = landed {
            let _ = shared.regions.take_missing();
            shared.counters.responder_error(status);
            if status == Status::LocalLengthError {
                shared.marks.hit(Mark::UdTooLong);
            }
            completion.status = status;
            shared.complete(cq, completion);
            return self.fail(shared, state::Trigger::ReceiveError);
        }
        let bytes = packet.payload.len() as u32;
        completion.byte_len = GRH_LEN + bytes;
        completion.imm = imm;
        completion.solicited = packet.headers.bth.solicited;
        let tag = packet.path.vlan.map(|v| v.tci);
        completion.origin = Origin::Datagram(UdSource {
            qp: QpNumber(deth.source_qp),
            mac: packet.path.eth.source,
            vlan: tag.map(|t| t.vid()),
            service_level: tag.map_or(0, |t| t.service_level()),
            network: match packet.path.network {
                Network::V1 { .. } => NetworkHeader::Grh,
                Network::V6 { .. } => NetworkHeader::Ipv6,
                Network::V4 { .. } => NetworkHeader::Ipv4,
            },
        });
        if shared.notes.is_some() {
            notes::receive(self, shared, wr.id);
            let from = QpNumber(deth.source_qp);
            notes::landed(self, shared, Operation::SendOnly, packet, from);
        }
        shared.complete(cq, completion);
    }

    /// Is it a path of the peer's to this QP, which is connected?
    #[inline(always)]
    pub(super) fn is_peers(&self, theirs: &Path) -> bool {
        debug_assert!(self.init.qp_type != QpType::Ud);
        self.path
            .as_ref()
            .is_some_and(|path| path.leads_to_sender_of(theirs))
    }
}

/// The 40 bytes that the receiver of a datagram sees of its network header.
fn global_route_header(path: &Path, packet: &Incoming<'_>) -> [u8; GRH_LEN as usize] {
    let bytes = packet.payload.len() as u16;
    let behind = packet.headers.len() as u16 + bytes + (bytes.wrapping_neg() & 3) + 4;
    let udp = vnic_wire::udp::HEADER_LEN as u16;
    let v6 = |traffic_class, flow_label, payload_len, next_header, hop_limit, source, destination| {
        grh::Header {
            traffic_class,
            flow_label,
            payload_len,
            next_header,
            hop_limit,
            source,
            destination,
        }
        .emit()
    };
    match path.network {
        Network::V1 { grh } => v6(
            grh.traffic_class,
            grh.flow_label,
            behind,
            grh::NEXT_HEADER_IBA,
            grh.hop_limit,
            grh.source,
            grh.destination,
        ),
        Network::V6 {
            source,
            destination,
            traffic_class,
            flow_label,
            hop_limit,
        } => v6(
            traffic_class,
            flow_label,
            behind + udp,
            ipv4::PROTOCOL_UDP,
            hop_limit,
            source,
            destination,
        ),
        Network::V4 {
            source,
            destination,
            tos,
            ttl,
            id,
            dont_fragment,
        } => {
            let mut all = [0; GRH_LEN as usize];
            let header = ipv4::Header {
                header_len: ipv4::HEADER_LEN,
                dscp_ecn: tos,
                total_len: behind + udp + ipv4::HEADER_LEN as u16,
                id,
                dont_fragment,
                more_fragments: false,
                fragment_offset: 0,
                ttl,
                protocol: ipv4::PROTOCOL_UDP,
                checksum: 0,
                source,
                destination,
            };
            all[GRH_LEN as usize - ipv4::HEADER_LEN..].copy_from_slice(&header.emit());
            all
        }
    }
}
