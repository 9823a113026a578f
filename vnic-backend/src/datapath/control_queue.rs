//! Control queues of Ethernet functions: a guest's driver says which frames it wants, on which queues, and how
//! (`engine::virtio_net::control`).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::virtio_net::control::{COMMAND_MAX, Change, Control, Device};
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};
use vnic_wire::MacAddr;

use super::core::Core;
use super::counters::AdapterCounters;
use super::news::CoreEvent;
use super::sleep::{Sleeper, Source};
use crate::call::{Call, notify};
use crate::mem::{self, Segs, Writer};
use crate::ring::{Broken, Fault, Ring};

/// A control queue that a guest has enabled.
pub struct ControlStart {
    /// vhost-user index.
    pub index: u16,
    /// The ring.
    pub ring: Ring,
    /// The guest's kick eventfd; `None`: its driver polls.
    pub kick: Option<Arc<File>>,
    /// The guest's call eventfd.
    pub call: Option<Arc<Call>>,
    /// Features that the driver has negotiated.
    pub features: u64,
    /// Queue pairs that the driver is told of.
    pub pairs: u16,
    /// Address of the adapter.
    pub mac: MacAddr,
    /// Types of tunnels that the driver may have looked into.
    pub tunnels: u32,
    /// Addresses that the guest may take for its own; `None`: any.
    pub addresses: Option<Vec<MacAddr>>,
    /// Whether the driver is asked to announce the guest, until it says that it has.
    pub announcing: Arc<AtomicBool>,
}

/// Time between two commands of a queue: one may take some microseconds, which other guests of the core wait for.
const PACE: Duration = Duration::from_micros(100);

/// The control queue of an adapter.
struct ControlQueue {
    port: PortId,
    /// When the next command may be carried out.
    next: Instant,
    start: ControlStart,
    broken: Broken,
}

/// Control queues of a data core.
#[derive(Default)]
pub struct ControlQueues {
    queues: Vec<ControlQueue>,
    scratch: Scratch,
}

/// Working memory of one command.
#[derive(Default)]
struct Scratch {
    readable: Segs,
    writable: Segs,
    bytes: Vec<u8>,
    reply: Vec<u8>,
}

/// What commands may know of the adapter.
struct Adapter<'a> {
    addresses: Option<&'a [MacAddr]>,
    counters: &'a AdapterCounters,
}

impl Device for Adapter<'_> {
    fn may_be(&self, mac: MacAddr) -> bool {
        self.addresses.is_none_or(|own| own.contains(&mac))
    }

    fn values(&self, queue: u16) -> [u64; 6] {
        let Some(counters) = self.counters.queues.get(usize::from(queue / 2)) else {
            return [0; 6];
        };
        let get = |c: Q| counters.get(c as usize);
        if queue.is_multiple_of(2) {
            // Drops have no queue: the first tells those of the adapter. The device looks at receive queues by itself.
            let drops = |reason: DropReason| match queue {
                0 => self.counters.drops.get(reason as usize),
                _ => 0,
            };
            let no_buffer = drops(DropReason::NoRxBuffer);
            let all = no_buffer + drops(DropReason::RxBufferTooSmall) + drops(DropReason::ReceiverMtu);
            [
                0,
                get(Q::RxFrames),
                get(Q::RxBytes),
                get(Q::RxNotifications),
                all,
                no_buffer,
            ]
        } else {
            let malformed = match queue {
                1 => self.counters.drops.get(DropReason::MalformedOffload as usize),
                _ => 0,
            };
            let (frames, bytes) = (get(Q::TxFrames), get(Q::TxBytes));
            [
                get(Q::Kicks),
                frames,
                bytes,
                get(Q::TxNotifications),
                malformed,
                malformed,
            ]
        }
    }
}

impl ControlQueues {
    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Starts the control queue of an adapter.
    pub fn start(&mut self, core: &mut Core, sleeper: &Sleeper, port: PortId, start: ControlStart) {
        let Some(adapter) = core.adapter(port) else { return };
        // A driver begins with an empty queue; one that goes on has the state that it has set, if this device heard it.
        let fresh = start.ring.is_at_start();
        let kept = adapter
            .driver
            .take()
            .filter(|d| !fresh && d.features() == start.features);
        let driver = kept.unwrap_or_else(|| {
            let make = if fresh { Control::new } else { Control::forgotten };
            Box::new(make(start.features, start.pairs, start.mac, start.tunnels))
        });
        if fresh {
            start.announcing.store(false, Ordering::Relaxed);
        }
        adapter.driver = Some(driver);
        start.ring.suppress_kicks();
        if let Some(kick) = &start.kick {
            let _ = sleeper.add(kick.as_fd(), Source::Control);
        }
        self.queues.push(ControlQueue {
            port,
            next: core.now,
            start,
            broken: Broken::default(),
        });
    }

    /// Stops the control queue of an adapter. Returns the index at which it resumes. The state stays, for a driver that goes on.
    pub fn stop(&mut self, sleeper: &Sleeper, port: PortId) -> Option<u16> {
        let at = self.queues.iter().position(|queue| queue.port == port)?;
        let queue = self.queues.remove(at);
        if let Some(kick) = queue.kick() {
            sleeper.remove(kick);
        }
        Some(queue.start.ring.base())
    }

    /// Sets the call eventfd of an adapter's control queue.
    pub fn set_call(&mut self, port: PortId, call: Option<Arc<Call>>) {
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.port == port) {
            queue.start.call = call;
        }
    }

    /// Carries out one command of each queue. Returns their number; `changed` has the ports whose adapters changed.
    #[cold]
    pub fn round(&mut self, core: &mut Core, changed: &mut Vec<PortId>) -> usize {
        let mut work = 0;
        for queue in &mut self.queues {
            let port = queue.port;
            if queue.broken.is() || core.now < queue.next {
                continue;
            }
            match queue.take(core, &mut self.scratch) {
                Ok(None) => {}
                Ok(Some(change)) => {
                    work += 1;
                    queue.next = core.now + PACE;
                    if change.is_some() {
                        changed.push(port);
                    }
                }
                Err(fault) => {
                    queue.broken.set(fault);
                    let ring = queue.start.index;
                    core.report(CoreEvent::RingFault { port, ring, fault });
                }
            }
            self.scratch.readable.release();
            self.scratch.writable.release();
        }
        work
    }

    /// Asks guests to kick. True: there are commands already.
    pub fn request_kicks(&mut self) -> bool {
        let rings = self.queues.iter_mut().filter(|queue| !queue.broken.is());
        // A fault is found by the round.
        rings.fold(false, |more, queue| {
            more | queue.start.ring.request_kicks().unwrap_or(true)
        })
    }

    /// Suppresses the guests' kicks: the core polls again.
    pub fn suppress_kicks(&self) {
        self.queues
            .iter()
            .for_each(|queue| queue.start.ring.suppress_kicks());
    }
}

impl ControlQueue {
    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.start.kick.as_ref().map(AsFd::as_fd)
    }

    /// Carries out the next command, and returns what it has changed. `None`: there is no command.
    fn take(&mut self, core: &mut Core, s: &mut Scratch) -> Result<Option<Option<Change>>, Fault> {
        let ring = &mut self.start.ring;
        if ring.ready()? == 0 {
            return Ok(None);
        }
        let mut change = None;
        s.readable.clear();
        s.writable.clear();
        let (head, (len, room)) = ring.request(&mut s.readable, &mut s.writable)?;
        let mut used = 0;
        // (Without room for an acknowledgement nothing is done.)
        if room > 0
            && let Some(adapter) = core.adapter(self.port)
            && let Some(driver) = &mut adapter.driver
        {
            let device = Adapter {
                addresses: self.start.addresses.as_deref(),
                counters: &adapter.counters,
            };
            // A command that is longer than any is refused by its first bytes alone, which are none.
            let len = usize::try_from(len)
                .ok()
                .filter(|len| *len <= COMMAND_MAX)
                .unwrap_or(0);
            s.bytes.clear();
            s.bytes.resize(len, 0);
            mem::gather(s.readable.as_slice(), 0, &mut s.bytes);
            s.reply.clear();
            change = driver.command(&s.bytes, &device, &mut s.reply);
            if change == Some(Change::Announced) {
                self.start.announcing.store(false, Ordering::Relaxed);
            }
            used = s.reply.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            Writer::new(s.writable.as_slice()).bytes(&s.reply[..used]);
            ring.log_written(s.writable.as_slice(), used);
        }
        ring.complete(head, used as u32);
        if ring.publish(ring.staged()) {
            notify(self.start.call.as_deref());
        }
        Ok(Some(change))
    }
}
