//! The notification point of a device: marked packets make congestion notification packets, which leave before anything
//! else of their priority (IBTA annex A17.9). Marked acknowledges and READ requests make them, too.

use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::cnp;
use vnic_wire::roce::{Network, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::vlan::Tci;

use crate::congestion::notification::{Cnp, CnpPriority, Key, NotificationPoint, Settings};

use super::counters::Counters;
use super::packet::{Incoming, Outgoing, Payload, Sink};
use super::types::QpNumber;

/// Most notifications of one priority that wait for it to open. Further ones are forgotten: their flows will be marked
/// again, and an adapter may merge notifications.
const WAITING_MAX: usize = 1024;

/// A notification on its way out.
#[derive(Debug, Clone)]
struct Notice {
    /// The queue pair that the marked packet came to.
    from: QpNumber,
    /// The queue pair that the notification is for.
    to: QpNumber,
    /// P_Key of the queue pair that owes it.
    pkey: u16,
    path: Path,
    /// Priority of the marked packet.
    marked: u8,
}

/// Notifications that a device owes.
#[derive(Debug)]
pub(super) struct Notifier {
    point: NotificationPoint<Notice>,
    queues: [VecDeque<(Notice, cnp::Header)>; 8],
    /// Priorities whose queues are not empty, a bit each.
    filled: u8,
    /// Priorities with something of others that waits, and all together.
    others: u8,
    any: u8,
}

/// The path back to the sender of a packet.
fn back(path: &Path) -> Path {
    let (source, destination) = (path.network.source(), path.network.destination());
    let mut back = *path;
    (back.eth.source, back.eth.destination) = (path.eth.destination, path.eth.source);
    back.network = Network::v2(destination, source);
    back.network.set_flow_label(path.network.flow_label());
    back
}

impl Notifier {
    pub fn new(settings: Settings) -> Notifier {
        Notifier {
            point: NotificationPoint::new(settings),
            queues: Default::default(),
            filled: 0,
            others: 0,
            any: 0,
        }
    }

    /// Changes the settings.
    pub fn set(&mut self, settings: Settings) {
        self.point.set(settings);
    }

    /// Priorities with a notification that waits, or with what was noted, a bit each.
    #[inline]
    pub fn priorities(&self) -> u8 {
        self.any
    }

    /// Notes priorities with something else that waits and belongs to no queue pair, so that idle devices look at one number.
    pub fn note_others(&mut self, priorities: u8) {
        self.others = priorities;
        self.any = self.filled | priorities;
    }

    /// A marked packet of a priority came to a queue pair with a P_Key, from another queue pair. False: the sender was notified so
    /// lately that this notification is put off, or forgotten.
    pub fn marked(
        &mut self,
        now: Instant,
        packet: &Incoming<'_>,
        (to, pkey): (QpNumber, u16),
        priority: u8,
    ) -> bool {
        let notice = Notice {
            from: QpNumber(packet.headers.bth.destination_qp),
            to,
            pkey,
            path: back(&packet.path),
            marked: priority,
        };
        let key = Key {
            own: packet.path.network.destination(),
            peer: packet.path.network.source(),
            mac: packet.path.eth.source,
            qp: to.0,
        };
        match self.point.marked(now, key, notice) {
            Some(cnp) => {
                self.queue(cnp);
                true
            }
            None => false,
        }
    }

    /// Puts a notification into the queue of its priority.
    fn queue(&mut self, cnp: Cnp<Notice>) {
        let settings = self.point.settings();
        let mut notice = cnp.to;
        let priority = match settings.priority {
            CnpPriority::Fixed(priority) => priority & 7,
            CnpPriority::Copied => notice.marked & 7,
        };
        let class = (settings.dscp & 63) << 2 | settings.ecn & 3;
        notice.path.network.set_traffic_class(class);
        if let Some(tag) = &mut notice.path.vlan {
            tag.tci = Tci::new(priority, tag.tci.dei(), tag.tci.vid());
        }
        let micros = cnp.period.map_or(0, |period: Duration| period.as_micros());
        let header = cnp::Header {
            period: u32::try_from(micros).unwrap_or(u32::MAX),
        };
        let queue = &mut self.queues[usize::from(priority)];
        if queue.len() < WAITING_MAX {
            queue.push_back((notice, header));
            self.filled |= 1 << priority;
            self.any |= 1 << priority;
        }
    }

    /// When [`handle_timeout`](Notifier::handle_timeout) wants to be called.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.point.next_time()
    }

    /// Queues notifications that were put off and are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(cnp) = self.point.due(now) {
            self.queue(cnp);
        }
    }

    /// Sends notifications that wait, as far as priorities are open, higher ones first.
    #[cold]
    #[inline(never)]
    pub fn send(&mut self, counters: &mut Counters, sink: &mut dyn Sink) {
        while self.filled != 0 {
            let open = sink.open() & self.filled;
            let Some(priority) = open.checked_ilog2() else {
                break;
            };
            let queue = &mut self.queues[priority as usize];
            if let Some((notice, header)) = queue.pop_front() {
                let mut headers = Headers::cnp(notice.to.0);
                headers.extended = Extended::Cnp(header);
                headers.bth.pkey = notice.pkey;
                sink.send(&Outgoing {
                    from: notice.from,
                    priority: priority as u8,
                    path: &notice.path,
                    headers,
                    payload: Payload::NONE,
                    telemetry: None,
                });
                counters.sent(&notice.path, &headers, 0);
                counters.np_cnp_sent += 1;
            }
            if queue.is_empty() {
                self.filled &= !(1 << priority);
                self.any = self.filled | self.others;
            }
        }
    }
}
