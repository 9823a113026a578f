//! The general services interface: queue pair 1, between which datagrams of communication management travel (IBTA 13.5.1).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{Network, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{bth, deth, mad};

use super::cm::Cm;
use super::gid::GidKind;
use super::packet::{Incoming, Outgoing, Payload, Sink};
use super::qp;
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
    /// Whether it was told that something has happened, and not all was taken since.
    told: bool,
    /// Its entry among the deadlines of queue pairs.
    timer: Entry,
}

impl Gsi {
    pub fn new(cm: Cm) -> Gsi {
        Gsi {
            cm,
            waiting: Default::default(),
            psn: Psn::new(0),
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

    /// Takes what communication management has to send, and its next deadline. A datagram whose own address is gone goes nowhere.
    pub fn take(&mut self, shared: &mut Shared) {
        while let Some(datagram) = self.cm.transmit() {
            let Ok((path, priority)) = qp::path(shared, &datagram.to, SOURCE_PORT) else {
                continue;
            };
            let queue = &mut self.waiting[usize::from(priority & 7)];
            if queue.len() < WAITING_MAX {
                let bytes = Box::new(datagram.mad.emit());
                let pkey = shared.partitions.of_a_datagram(datagram.pkey);
                queue.push_back(Waiting { path, pkey, bytes });
            }
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
                        mad::GSI_QP,
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
        let Extended::Deth(deth) = packet.headers.extended else {
            shared.counters.drop_malformed += 1;
            return;
        };
        if deth.qkey != mad::GSI_QKEY {
            shared.counters.drop_qkey_violation += 1;
            return;
        }
        let mut bytes = [0; mad::LEN];
        let whole = packet.payload.len() == mad::LEN && deth.source_qp == mad::GSI_QP;
        if !whole || packet.payload.read(&mut bytes).is_err() {
            shared.counters.drop_malformed += 1;
            return;
        }
        let network = &packet.path.network;
        let kind = match network {
            Network::V1 { .. } => GidKind::RoceV1,
            Network::V4 { .. } | Network::V6 { .. } => GidKind::RoceV2,
        };
        let vlan = Some(packet.path.vid());
        let Some(sgid_index) = shared.gids.find(network.destination(), kind, vlan) else {
            shared.counters.drop_bad_gid += 1;
            return;
        };
        let from = AddressVector {
            dgid: network.source(),
            dmac: packet.path.eth.source,
            sgid_index,
            // Without ECN.
            traffic_class: network.traffic_class() & !3,
            flow_label: 0,
            hop_limit: HOP_LIMIT,
            service_level: packet.path.vlan.map_or(0, |tag| tag.tci.pcp()),
        };
        self.cm.receive(shared.now, from, &bytes);
        self.take(shared);
    }
}
