//! The thread of interrupts, and the event queues (`SPEC.md`, section 10).

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use vnic_device::config::FIRST_EVENT_QUEUE;
use vnic_device::event::{EventKind, EventRecord, FaultQueue, fault, pages};
use vnic_device::ring::Extent;
use vnic_device::zerocopy::FromBytes;

use super::doorbells::Doorbells;
use super::fork::NoFork;
use super::shared::Shared;
use super::virtqueue::{Piece, Queue};
use crate::Error;
use crate::event::{AsyncEvent, Fault};
use crate::extents::part_of;
use crate::shared::Memory;
use crate::sync::lock;
use crate::transport::Transport;

const RECORD: usize = size_of::<EventRecord>();

/// The event queues and their buffers: descriptor `i` has buffer `i`.
pub(super) struct EventQueues {
    queues: Vec<(Queue, Memory)>,
}

impl EventQueues {
    pub fn new(transport: &dyn Transport, queues: Vec<Queue>) -> Result<EventQueues, Error> {
        let mut all = Vec::new();
        for mut queue in queues {
            let (memory, extents) = Memory::allocate(transport, RECORD * usize::from(queue.size()))?;
            for i in 0..queue.size() {
                let at = RECORD * usize::from(i);
                // Pages are larger than records, and multiples of them.
                let extent: Extent = part_of(&extents, at as u64, RECORD as u64)
                    .first()
                    .copied()
                    .unwrap_or_default();
                queue.describe(i, &[Piece { extent, write: true }]);
            }
            all.push((queue, memory));
        }
        Ok(EventQueues { queues: all })
    }

    /// Gives all buffers to the device.
    pub fn offer_all(&mut self, transport: &dyn Transport) {
        for (number, (queue, _)) in (FIRST_EVENT_QUEUE..).zip(&mut self.queues) {
            let mut notify = false;
            for i in 0..queue.size() {
                notify = queue.offer(i);
            }
            if notify {
                transport.notify(number);
            }
        }
    }

    /// Takes all records, and gives the buffers back.
    fn drain(&mut self, transport: &dyn Transport, mut take: impl FnMut(EventRecord)) {
        for (number, (queue, memory)) in (FIRST_EVENT_QUEUE..).zip(&mut self.queues) {
            let mut notify = false;
            while let Some(used) = queue.take() {
                if used.head >= queue.size() {
                    continue;
                }
                let mut bytes = [0; RECORD];
                memory.read(RECORD * usize::from(used.head), &mut bytes);
                notify = queue.offer(used.head);
                if used.len as usize >= RECORD
                    && let Ok(record) = EventRecord::read_from_bytes(&bytes)
                {
                    take(record);
                }
            }
            if notify {
                transport.notify(number);
            }
        }
    }
}

/// Waits for interrupts until `stop` is readable or the device is gone.
pub(super) fn run(shared: &Shared, doorbells: &Doorbells, queues: &mut EventQueues, stop: &OwnedFd) {
    loop {
        let interrupt = shared.transport.interrupt();
        let mut fds = [
            PollFd::new(&interrupt, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return shared.die(&format!("waiting for interrupts: {e}"), true),
        }
        if fds[1].revents().contains(PollFlags::IN) {
            return;
        }
        // A forked child would wait for ever for what this thread has locked.
        let _no_fork = NoFork::hold();
        if let Err(e) = shared.transport.acknowledge() {
            return shared.die(&e.to_string(), true);
        }
        queues.drain(&*shared.transport, |record| dispatch(shared, doorbells, &record));
        shared.ring_bell();
        if !shared.check_transport() {
            return;
        }
    }
}

/// Hands an event to whoever waits for it.
fn dispatch(shared: &Shared, doorbells: &Doorbells, record: &EventRecord) {
    let object = record.object;
    let Some(kind) = EventKind::from_number(record.kind) else {
        // An event of a later version of the contract says nothing that is needed.
        return;
    };
    let event = match kind {
        EventKind::Completion => {
            let sink = lock(&shared.sinks).get(&object).cloned();
            if let Some(sink) = sink {
                sink.completed();
            }
            return;
        }
        EventKind::PostsWatched => return shared.posts.told(object),
        EventKind::DeviceFatal => return shared.die("it reported that it has failed", false),
        EventKind::CqError => AsyncEvent::CqError {
            cq: object,
            fault: None,
        },
        EventKind::QpFatal => AsyncEvent::QpFatal {
            qp: object,
            fault: None,
        },
        EventKind::QpRequestError => AsyncEvent::QpRequestError { qp: object },
        EventKind::QpAccessError => AsyncEvent::QpAccessError { qp: object },
        EventKind::CommunicationEstablished => AsyncEvent::CommunicationEstablished { qp: object },
        EventKind::SendQueueDrained => AsyncEvent::SendQueueDrained { qp: object },
        EventKind::PortActive => AsyncEvent::PortActive,
        EventKind::PortError => AsyncEvent::PortError,
        EventKind::LidChange => AsyncEvent::LidChange,
        EventKind::PkeyChange => AsyncEvent::PkeyChange,
        EventKind::SrqError => AsyncEvent::SrqError {
            srq: object,
            fault: None,
        },
        EventKind::SrqLimitReached => AsyncEvent::SrqLimitReached { srq: object },
        EventKind::LastWqeReached => AsyncEvent::LastWqeReached { qp: object },
        EventKind::GidChange => {
            shared.gids_changed();
            AsyncEvent::GidChange { index: object }
        }
        EventKind::MrLost => AsyncEvent::MrLost { mr: object },
        EventKind::EventsLost => {
            shared.gids_changed();
            AsyncEvent::EventsLost { count: record.detail }
        }
        EventKind::ConnectionEvents => return shared.connections_told(),
        EventKind::PageFault => return shared.paging.fault(object, pages(record.detail)),
        EventKind::QueueFault => {
            let Some((queue, reason, index)) = fault(record.detail) else {
                return;
            };
            let fault = Some(Fault { queue, reason, index });
            match queue {
                FaultQueue::Send | FaultQueue::Receive => AsyncEvent::QpFatal { qp: object, fault },
                FaultQueue::SharedReceive => AsyncEvent::SrqError { srq: object, fault },
                FaultQueue::Completion => AsyncEvent::CqError { cq: object, fault },
                // No post arrives any more.
                FaultQueue::Doorbells => {
                    if doorbells.has(object) {
                        shared.die(&format!("it takes no more doorbells ({reason:?})"), false);
                    }
                    return;
                }
            }
        }
    };
    shared.raise(event);
}
