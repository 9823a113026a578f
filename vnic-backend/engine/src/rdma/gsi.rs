//! The general services interface: queue pair 1, between which datagrams of communication management travel (IBTA 13.5.1), and which
//! takes the adapter's own questions to subnet administration.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::pkey::{FULL_MEMBER, partition};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Network, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{bth, deth, mad, sa};

use super::cm::Cm;
use super::gid::GidKind;
use super::packet::{Incoming, Outgoing, Payload, Sink};
use super::qp;
use super::questions::{Asker, Question, Questions};
use super::shared::Shared;
use super::timer::Entry;
use super::types::{AddressVector, Event, QpNumber};

/// First of the UDP source ports of RoCEv2: all datagrams of the interface come from it.
const SOURCE_PORT: u16 = 0xc000;
/// Datagrams that wait for a priority to open, at most. Others are lost, as a network may lose them.
const WAITING_MAX: usize = 4096;
/// Connections whose deadline is looked at, at one deadline of the interface.
const TIMEOUTS_AT_ONCE: usize = 8;
/// Hop limit of answers: they go as far as questions come from.
const HOP_LIMIT: u8 = 255;

/// A datagram on its way out.
#[derive(Debug)]
struct Waiting {
    path: Path,
    /// The queue pair that it is for.
    qp: u32,
    pkey: u16,
    bytes: Box<[u8; mad::LEN]>,
}

/// The interface of a device whose driver manages connections.
#[derive(Debug)]
pub(super) struct Gsi {
    pub cm: Cm,
    /// Datagrams that wait, by priority.
    waiting: [VecDeque<Waiting>; 8],
    psn: Psn,
    questions: Questions,
    /// Whether it was told that something has happened, and not all was taken since.
    told: bool,
    /// Its entry among the deadlines of queue pairs.
    timer: Entry,
}

impl Gsi {
    /// The seed is that of [`Questions::new`].
    pub fn new(cm: Cm, seed: u32) -> Gsi {
        Gsi {
            cm,
            waiting: Default::default(),
            psn: Psn::new(0),
            questions: Questions::new(seed),
            told: false,
            timer: Entry::default(),
        }
    }

    /// Its end: nothing waits any more.
    pub fn end(mut self, shared: &mut Shared) {
        shared.timers.disarm(&mut self.timer, QpNumber(mad::GSI_QP));
        shared.notifier.note_others(0);
    }

    /// Its deadline has come.
    pub fn handle_timeout(&mut self, shared: &mut Shared, now: Instant) {
        self.timer.fired();
        // What is due besides comes with its next deadline, which has come, too.
        self.cm.handle_timeouts(now, TIMEOUTS_AT_ONCE);
        self.take(shared);
    }

    /// Notes the priorities with a datagram that waits, a bit each.
    fn note_priorities(&self, shared: &mut Shared) {
        let waits = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, queue)| !queue.is_empty());
        shared
            .notifier
            .note_others(waits.fold(0, |all, (priority, _)| all | 1 << priority));
    }

    /// Lets a datagram wait for its priority, if it has a way and there is room.
    fn push(
        &mut self,
        shared: &Shared,
        to: &AddressVector,
        (qp, pkey): (u32, u16),
        emit: impl FnOnce() -> [u8; mad::LEN],
    ) {
        let Ok((path, priority)) = qp::path(shared, to, SOURCE_PORT) else {
            return;
        };
        let queue = &mut self.waiting[usize::from(priority & 7)];
        if queue.len() < WAITING_MAX {
            let bytes = Box::new(emit());
            queue.push_back(Waiting {
                path,
                qp,
                pkey,
                bytes,
            });
        }
    }

    /// Takes what communication management has to send, and its next deadline. A datagram whose own address is gone goes nowhere.
    pub fn take(&mut self, shared: &mut Shared) {
        while let Some(datagram) = self.cm.transmit() {
            let pkey = shared.partitions.of_a_datagram(datagram.pkey);
            self.push(shared, &datagram.to, (mad::GSI_QP, pkey), || datagram.mad.emit());
        }
        self.note_priorities(shared);
        if let Some(at) = self.cm.next_timeout() {
            shared.timers.arm(&mut self.timer, QpNumber(mad::GSI_QP), at);
        }
        shared.counters.manage(self.cm.counters());
        let news = self.cm.has_events();
        if news && !self.told {
            shared.event(Event::Connections);
        }
        self.told = news;
    }

    /// Sends datagrams that wait, as far as priorities are open.
    pub fn send(&mut self, shared: &mut Shared, sink: &mut dyn Sink) {
        while self.waiting.iter().any(|queue| !queue.is_empty()) {
            let open = sink.open();
            let mut queues = self.waiting.iter_mut().zip(0_u8..);
            let next = queues.find_map(|(queue, priority)| {
                let open = open >> priority & 1 == 1;
                open.then(|| queue.pop_front())
                    .flatten()
                    .map(|datagram| (datagram, priority))
            });
            let Some((datagram, priority)) = next else {
                break;
            };
            let headers = Headers {
                bth: bth::Header {
                    pkey: datagram.pkey,
                    ..bth::Header::new(
                        Opcode::new(Transport::Ud, Operation::SendOnly),
                        datagram.qp,
                        self.psn,
                    )
                },
                xrceth: None,
                dceth: None,
                extended: Extended::Deth(deth::Header {
                    qkey: mad::GSI_QKEY,
                    source_qp: mad::GSI_QP,
                }),
            };
            self.psn = self.psn.add(1);
            sink.send(&Outgoing {
                from: QpNumber(mad::GSI_QP),
                priority,
                path: &datagram.path,
                headers,
                payload: Payload::Bytes(&datagram.bytes[..]),
                telemetry: None,
            });
            shared
                .counters
                .sent(&datagram.path, &headers, datagram.bytes.len());
        }
        self.note_priorities(shared);
    }

    /// A packet came to queue pair 1.
    pub fn receive(&mut self, shared: &mut Shared, packet: &Incoming<'_>) {
        if !shared.partitions.table.admits(packet.headers.bth.pkey) {
            return shared.wrong_partition(0, packet);
        }
        let Some((from, source_qp, bytes)) = read(shared, packet) else {
            return;
        };
        if source_qp != mad::GSI_QP {
            shared.counters.drop_malformed += 1;
            return;
        }
        self.cm.receive(shared.now, from, &bytes);
        self.take(shared);
    }

    /// A packet came from this adapter's own queue pair to subnet administration. `None`: there is nothing to answer.
    pub fn ask(&mut self, shared: &mut Shared, packet: &Incoming<'_>) -> Option<Question> {
        let pkey = packet.headers.bth.pkey;
        if partition(pkey) == 0 {
            shared.wrong_partition(0, packet);
            return None;
        }
        let (from, qp, bytes) = read(shared, packet)?;
        let Ok(mad) = sa::SaMad::parse(&bytes) else {
            shared.counters.drop_malformed += 1;
            return None;
        };
        // (An acknowledgement of an answer is one.)
        if mad.method & sa::method::RESPONSE != 0 {
            return None;
        }
        shared.counters.sa_questions += 1;
        let sgid_index = from.sgid_index;
        // Administration is a full member of all partitions: limited ones hear it.
        let pkey = pkey | FULL_MEMBER;
        let Some(number) = self.questions.add(shared.now, Asker { from, qp, pkey }) else {
            shared.counters.sa_dropped += 1;
            return None;
        };
        Some(Question {
            number,
            sgid_index,
            mad: Box::new(mad),
        })
    }

    /// The answer to a question has come; `None`: there is none.
    pub fn answer(&mut self, shared: &mut Shared, number: u32, answer: Option<&sa::SaMad>) {
        let Some(asker) = self.questions.take(number) else {
            return;
        };
        match answer {
            Some(mad) => self.push(shared, &asker.from, (asker.qp, asker.pkey), || mad.emit()),
            None => shared.counters.sa_dropped += 1,
        }
        self.note_priorities(shared);
    }
}

/// A datagram's sender, the sender's queue pair, and the datagram. `None`: it is none, and is counted.
fn read(shared: &mut Shared, packet: &Incoming<'_>) -> Option<(AddressVector, u32, [u8; mad::LEN])> {
    let counters = &mut shared.counters;
    let Extended::Deth(deth) = packet.headers.extended else {
        counters.drop_malformed += 1;
        return None;
    };
    if deth.qkey != mad::GSI_QKEY {
        counters.drop_qkey_violation += 1;
        return None;
    }
    let mut bytes = [0; mad::LEN];
    if packet.payload.len() != mad::LEN || packet.payload.read(&mut bytes).is_err() {
        counters.drop_malformed += 1;
        return None;
    }
    let network = &packet.path.network;
    let kind = match network {
        Network::V1 { .. } => GidKind::RoceV1,
        Network::V4 { .. } | Network::V6 { .. } => GidKind::RoceV2,
    };
    let vlan = Some(packet.path.vid());
    let Some(sgid_index) = shared.gids.find(network.destination(), kind, vlan) else {
        counters.drop_bad_gid += 1;
        return None;
    };
    let from = AddressVector {
        dgid: network.source(),
        dmac: packet.path.eth.source,
        sgid_index,
        // Without ECN.
        traffic_class: network.traffic_class() & !3,
        flow_label: 0,
        hop_limit: HOP_LIMIT,
        service_level: packet.path.vlan.map_or(0, |tag| tag.tci.service_level()),
    };
    Some((from, deth.source_qp, bytes))
}
