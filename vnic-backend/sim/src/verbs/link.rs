//! From a device to the network and out of it again.

use std::rc::Rc;

use vnic_engine::rdma::{Incoming, Outgoing, Payload, QpNumber, Sink};
use vnic_fabric::fault::{Roce, Verdict};
use vnic_fabric::network::Arrival;
use vnic_fabric::{Facts, PortId};
use vnic_wire::aeth::Syndrome;
use vnic_wire::roce::{self, Ecn, Frame, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{EtherType, MacAddr};

use super::capture::Seen;
use super::world::World;
use crate::oracle::{Judgement, Mishap, Rule};

/// A packet on its way.
#[derive(Debug, Clone)]
pub enum Parcel {
    /// As bytes.
    Frame(Vec<u8>),
    /// As values; the payload, unless it is still in the sender's memory.
    Value {
        /// Its number.
        id: u64,
        path: Path,
        headers: Headers,
        payload: Option<Rc<[u8]>>,
    },
}

/// Where a device's packets go.
struct Port<'a> {
    world: &'a mut World,
    from: usize,
    budget: u32,
    /// Priorities that may send.
    open: u8,
    stop: Judgement,
}

impl Sink for Port<'_> {
    fn open(&mut self) -> u8 {
        if self.budget > 0 && self.stop.is_ok() {
            self.open
        } else {
            0
        }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        self.budget = self.budget.saturating_sub(1);
        if self.open >> packet.priority & 1 == 0 && self.stop.is_ok() {
            let text = format!("dev{} sends of closed priority {}", self.from, packet.priority);
            self.stop = Rule::Progress.broken(text);
        }
        if self.stop.is_ok() {
            self.stop = self.world.carry(self.from, packet);
        }
    }
}

/// Number of a device's port.
fn port(dev: usize) -> PortId {
    PortId(dev as u16)
}

/// What a rule looks at, of a packet that is no frame.
fn facts(from: usize, to: usize, path: &Path, headers: &Headers, payload: usize) -> Facts {
    let len = path.frame_len(headers, payload) as u32;
    let first = path.headers_len() as u32;
    Facts {
        from: port(from),
        to: port(to),
        len,
        ethertype: match path.network {
            roce::Network::V1 { .. } => EtherType::ROCE,
            roce::Network::V4 { .. } => EtherType::IPV4,
            roce::Network::V6 { .. } => EtherType::IPV6,
        },
        header: path.network_offset() as u32,
        ecn: Some(Ecn::of(path.network.traffic_class())),
        roce: Some(Roce {
            opcode: headers.bth.opcode.0,
            destination_qp: headers.bth.destination_qp,
            psn: headers.bth.psn.value(),
            packet: first..len,
        }),
    }
}

/// What happened to it, in words.
fn words(verdict: &Verdict) -> String {
    let effects: Vec<String> = verdict.injections.iter().map(|i| i.effect.to_string()).collect();
    effects.join(", ")
}

impl World {
    /// Lets a device send.
    pub(super) fn transmit(&mut self, dev: usize) -> Judgement {
        let Some(mut device) = self.nodes[dev].device.take() else {
            return Ok(());
        };
        let memories = self.memories.clone();
        let (now, budget) = (Instant(self.now), self.plan.burst);
        let open = self.change_outlets(dev, &mut device);
        let mut port = Port {
            world: self,
            from: dev,
            budget,
            open,
            stop: Ok(()),
        };
        device.transmit(now, &memories[dev], &mut port);
        let stop = port.stop;
        self.nodes[dev].device = Some(device);
        stop?;
        self.stirred(dev)
    }

    fn receivers(&self, from: usize, to: MacAddr) -> Vec<usize> {
        if to.is_multicast() {
            (0..self.nodes.len()).filter(|d| *d != from).collect()
        } else {
            self.nodes.iter().position(|n| n.mac == to).into_iter().collect()
        }
    }

    /// Takes a packet from a device.
    fn carry(&mut self, from: usize, packet: &Outgoing<'_>) -> Judgement {
        self.ledger.sent(from, packet);
        if !packet.headers.is_consistent() {
            return Rule::Delivery.broken(format!(
                "dev{from} sends headers that contradict each other: {:?}",
                packet.headers
            ));
        }
        let receivers = self.receivers(from, packet.path.eth.destination);
        if receivers.is_empty() {
            return Rule::Delivery.broken(format!("dev{from} sends to nobody: {:?}", packet.path));
        }
        let frame = if self.plan.wire || self.capture.wants_frames() {
            Some(self.build(packet)?)
        } else {
            None
        };
        for to in receivers {
            let seen = Seen::of(from, to, &packet.headers, packet.payload.len());
            if self.plan.wire {
                let Some(frame) = frame.clone() else { continue };
                let facts = Facts::of(port(from), port(to), &frame);
                let verdict = self
                    .net
                    .send(Instant(self.now), facts, Parcel::Frame(frame.clone()));
                self.judge(&seen, &verdict, Some(&frame));
            } else {
                self.carry_value(to, packet, &seen, frame.as_deref())?;
            }
        }
        Ok(())
    }

    fn build(&self, packet: &Outgoing<'_>) -> Judgement<Vec<u8>> {
        let mut payload = vec![0; packet.payload.len()];
        let read = packet.payload.read(&mut payload);
        let mut frame = Vec::new();
        let built = roce::build(packet.path, &packet.headers, &payload, &mut frame);
        if read.is_err() || built.is_err() {
            return Rule::Delivery.broken(format!(
                "{:?} cannot be built: {read:?} {built:?}",
                packet.headers
            ));
        }
        Ok(frame)
    }

    /// Delivered at once, the payload straight from the sender's memory, unless a fault holds it back.
    fn carry_value(
        &mut self,
        to: usize,
        packet: &Outgoing<'_>,
        seen: &Seen,
        frame: Option<&[u8]>,
    ) -> Judgement {
        let facts = facts(seen.from, to, packet.path, &packet.headers, packet.payload.len());
        let mut copy = None;
        if !self.net.faults.is_empty() || self.nodes[to].device.is_none() {
            let mut bytes = vec![0; packet.payload.len()];
            if packet.payload.read(&mut bytes).is_err() {
                return Rule::Protection.broken("a payload that cannot be read");
            }
            copy = Some(bytes.into());
        }
        self.next_id += 1;
        let number = self.next_id;
        let parcel = Parcel::Value {
            id: number,
            path: *packet.path,
            headers: packet.headers,
            payload: copy,
        };
        let verdict = self.net.send(Instant(self.now), facts, parcel);
        self.judge(seen, &verdict, frame);
        if self.nodes[to].device.is_none() {
            return Ok(());
        }
        let mut later = Vec::new();
        let mut result = Ok(());
        while let Some(arrival) = self.net.pop(Instant(self.now)) {
            if result.is_err() || self.nodes[usize::from(arrival.to.0)].device.is_none() {
                later.push(arrival);
                continue;
            }
            let this = matches!(arrival.item, Parcel::Value { id, .. } if id == number);
            result = self.arrive(&arrival, this.then_some(packet.payload));
        }
        self.held_back.extend(later);
        result
    }

    /// Notes what the network does to a packet.
    fn judge(&mut self, seen: &Seen, verdict: &Verdict, frame: Option<&[u8]>) {
        let (from, to) = (seen.from, seen.to);
        if verdict.dropped().is_some() {
            self.ledger.lost += 1;
        }
        let trouble =
            verdict.dropped().is_some() || verdict.hold().is_some() || verdict.flips().next().is_some();
        if trouble {
            self.oracle.mishap(from, to, Mishap::Trouble);
        }
        if verdict.copies() > 0 {
            self.oracle.mishap(from, to, Mishap::Copies(verdict.copies()));
            self.ledger.copies += u64::from(verdict.copies());
        }
        let effect = || words(verdict);
        self.capture.packet(self.now, seen, frame, effect);
    }

    /// A packet is there.
    pub(super) fn arrive(&mut self, arrival: &Arrival<Parcel>, payload: Option<Payload<'_>>) -> Judgement {
        let to = usize::from(arrival.to.0);
        match &arrival.item {
            Parcel::Frame(frame) => {
                let mut bytes = frame.clone();
                arrival.verdict.apply(&mut bytes);
                let damaged = arrival.verdict.flips().next().is_some();
                self.receive_frame(to, &bytes, damaged)
            }
            Parcel::Value {
                path,
                headers,
                payload: copy,
                ..
            } => {
                let mut path = *path;
                if arrival.verdict.marks_ce() {
                    path.network.set_traffic_class(path.network.traffic_class() | 3);
                }
                let payload = payload.unwrap_or(Payload::Bytes(copy.as_deref().unwrap_or(&[])));
                let incoming = Incoming {
                    path,
                    headers: *headers,
                    payload,
                    telemetry: None,
                };
                self.receive(to, &incoming)
            }
        }
    }

    /// A frame comes to a device.
    pub(super) fn receive_frame(&mut self, to: usize, bytes: &[u8], damaged: bool) -> Judgement {
        let Ok(frame) = Frame::parse(bytes) else {
            self.ledger.unreadable += 1;
            if !damaged {
                return Rule::Delivery.broken(format!("dev{to} gets a frame that cannot be parsed"));
            }
            return Ok(());
        };
        if !frame.icrc_ok() {
            self.ledger.bad_icrc[to] += 1;
            self.nodes[to].device().count_bad_icrc();
            if !damaged {
                return Rule::Delivery.broken(format!("dev{to} gets a frame with a wrong ICRC"));
            }
            return Ok(());
        }
        let incoming = Incoming::from(&frame);
        self.receive(to, &incoming)
    }

    fn receive(&mut self, to: usize, incoming: &Incoming<'_>) -> Judgement {
        let connects = self.connects(to, incoming);
        self.ledger.received(to, incoming, connects);
        if let Extended::Aeth(aeth) = incoming.headers.extended
            && matches!(aeth.syndrome, Syndrome::RnrNak { .. })
        {
            let qp = QpNumber(incoming.headers.bth.destination_qp);
            self.oracle.rnr_nak(to, qp);
        }
        let memories = self.memories.clone();
        let now = Instant(self.now);
        self.nodes[to].device().receive(now, incoming, &memories[to]);
        self.stirred(to)
    }
}
