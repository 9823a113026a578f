//! The general services interface: queue pair 1, between which datagrams of communication management travel (IBTA 13.5.1), and which
//! takes the adapter's own questions to subnet administration and sends the answers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::pkey::{FULL_MEMBER, partition};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Network, Path};
use vnic_wire::sa::{self, RmppType, SaMad};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{bth, deth, mad};

use super::cm::Cm;
use super::gid::GidKind;
use super::packet::{Incoming, Outgoing, Payload, Sink};
use super::qp;
use super::questions::{Asker, Question, Questions};
use super::shared::Shared;
use super::timer::Entry;
use super::transfers::Transfers;
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
    transfers: Transfers,
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
            transfers: Transfers::default(),
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
        for (asker, abort) in self.transfers.handle_timeout(now) {
            shared.counters.sa_dropped += 1;
            self.push(shared, &asker, &abort);
        }
        self.take(shared);
    }

    /// Notes the priorities with a datagram that waits, a bit each.
    fn note_priorities(&self, shared: &mut Shared) {
        let waits = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, queue)| !queue.is_empty());
        let waits = waits.fold(0, |all, (priority, _)| all | 1 << priority);
        let transfers = self.transfers.waiting().map(|asker| priority(shared, asker));
        let waits = transfers.fold(waits, |all, priority| all | 1 << priority);
        shared.notifier.note_others(waits);
    }

    /// Has its deadline among those of queue pairs.
    fn arm(&mut self, shared: &mut Shared) {
        let deadlines = [self.cm.next_timeout(), self.transfers.next_timeout()];
        if let Some(at) = deadlines.into_iter().flatten().min() {
            shared.timers.arm(&mut self.timer, QpNumber(mad::GSI_QP), at);
        }
    }

    /// Lets a datagram wait for its priority, if it has a way and there is room.
    fn wait(
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

    /// Lets a datagram of subnet administration wait for its priority.
    fn push(&mut self, shared: &Shared, asker: &Asker, mad: &SaMad) {
        self.wait(shared, &asker.from, (asker.qp, asker.pkey), || mad.emit());
    }

    /// Takes what communication management has to send, and its next deadline. A datagram whose own address is gone goes nowhere.
    pub fn take(&mut self, shared: &mut Shared) {
        while let Some(datagram) = self.cm.transmit() {
            let pkey = shared.partitions.of_a_datagram(datagram.pkey);
            self.wait(shared, &datagram.to, (mad::GSI_QP, pkey), || datagram.mad.emit());
        }
        self.note_priorities(shared);
        self.arm(shared);
        shared.counters.manage(self.cm.counters());
        let news = self.cm.has_events();
        if news && !self.told {
            shared.event(Event::Connections);
        }
        self.told = news;
    }

    /// Sends datagrams that wait and segments of transfers, as far as priorities are open.
    #[cold]
    #[inline(never)]
    pub fn send(&mut self, shared: &mut Shared, now: Instant, sink: &mut dyn Sink) {
        loop {
            let open = sink.open();
            let mut queues = self.waiting.iter_mut().zip(0_u8..);
            let waiting = queues.find_map(|(queue, priority)| {
                let open = open >> priority & 1 == 1;
                open.then(|| queue.pop_front())
                    .flatten()
                    .map(|datagram| (datagram, priority))
            });
            if let Some((datagram, priority)) = waiting {
                let to = (datagram.qp, datagram.pkey);
                self.emit(shared, sink, (&datagram.path, priority), to, &datagram.bytes);
                continue;
            }
            let may = |asker: &Asker| open >> priority(shared, asker) & 1 == 1;
            let Some((asker, segment)) = self.transfers.take_segment(now, may) else {
                break;
            };
            let (to, bytes) = ((asker.qp, asker.pkey), segment.emit());
            if let Ok((path, priority)) = qp::path(shared, &asker.from, SOURCE_PORT) {
                self.emit(shared, sink, (&path, priority & 7), to, &bytes);
            }
        }
        self.arm(shared);
        self.note_priorities(shared);
    }

    /// Sends a datagram.
    #[inline(never)]
    fn emit(
        &mut self,
        shared: &mut Shared,
        sink: &mut dyn Sink,
        (path, priority): (&Path, u8),
        (qp, pkey): (u32, u16),
        bytes: &[u8; mad::LEN],
    ) {
        let headers = Headers {
            bth: bth::Header {
                pkey,
                ..bth::Header::new(Opcode::new(Transport::Ud, Operation::SendOnly), qp, self.psn)
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
            path,
            headers,
            payload: Payload::Bytes(bytes),
            telemetry: None,
        });
        shared.counters.sent(path, &headers, bytes.len());
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

    /// A packet came from this adapter's own queue pair to subnet administration: a question, or what the receiver of an answer says
    /// of it. `None`: there is nothing to answer.
    #[inline(never)]
    pub fn ask(&mut self, shared: &mut Shared, packet: &Incoming<'_>) -> Option<Question> {
        let pkey = packet.headers.bth.pkey;
        if partition(pkey) == 0 {
            shared.wrong_partition(0, packet);
            return None;
        }
        let (from, qp, bytes) = read(shared, packet)?;
        let Ok(mad) = SaMad::parse(&bytes) else {
            shared.counters.drop_malformed += 1;
            return None;
        };
        let sgid_index = from.sgid_index;
        // Administration is a full member of all partitions: limited ones hear it.
        let pkey = pkey | FULL_MEMBER;
        let asker = Asker { from, qp, pkey };
        // (Linux says it by the question's method, others by the answer's.)
        if mad.rmpp.is_active() && mad.rmpp.kind != RmppType::DATA {
            if let Some(abort) = self.transfers.hear(shared.now, &asker, &mad) {
                self.push(shared, &asker, &abort);
            }
            self.arm(shared);
            self.note_priorities(shared);
            return None;
        }
        if mad.method & sa::method::RESPONSE != 0 {
            return None;
        }
        shared.counters.sa_questions += 1;
        // A question that comes again has its answer on the way.
        let number = match self.transfers.has(&asker, mad.transaction) {
            true => None,
            false => self.questions.add(shared.now, asker),
        };
        let Some(number) = number else {
            shared.counters.sa_dropped += 1;
            return None;
        };
        Some(Question {
            number,
            sgid_index,
            mad: Box::new(mad),
        })
    }

    /// The answer to a question has come: a datagram, or the segments of a transfer; none: nobody answers.
    pub fn answer(&mut self, shared: &mut Shared, number: u32, answer: &[SaMad]) {
        let Some(asker) = self.questions.take(number) else {
            return;
        };
        match answer {
            [] => shared.counters.sa_dropped += 1,
            [one] => self.push(shared, &asker, one),
            [first, ..] if self.transfers.has(&asker, first.transaction) => shared.counters.sa_dropped += 1,
            [first, ..] if !self.transfers.begin(&asker, answer) => {
                self.push(shared, &asker, &first.response(sa::status::NO_RESOURCES));
            }
            _ => {}
        }
        self.note_priorities(shared);
    }
}

/// The priority of what goes to somebody. (Who has no way is found out when it is sent.)
fn priority(shared: &Shared, asker: &Asker) -> u8 {
    qp::path(shared, &asker.from, SOURCE_PORT).map_or(0, |(_, priority)| priority & 7)
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
