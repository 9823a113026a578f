//! State that the QPs of a device share.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::time::Instant;

use crate::congestion::Needs;

use super::address_handle::AddressHandles;
use super::completion_queue::{CompletionQueue, Spares};
use super::congestion::Congestion;
use super::counters::{Counters, ReceivedByPriority};
use super::gid::GidTable;
use super::handle::Table;
use super::limits::Limits;
use super::marking::Marking;
use super::marks::{Mark, Marks};
use super::notes::Notes;
use super::notifier::Notifier;
use super::observation::{Cause, Observations};
use super::on_demand::Faults;
use super::packet::Incoming;
use super::partition::Partitions;
use super::pool::Pool;
use super::qp::{PooledSend, Seats};
use super::ready::Ready;
use super::region::Regions;
use super::shared_receive_queue::SharedReceiveQueue;
use super::status::Worst;
use super::timer::Timers;
use super::types::{Completion, CqHandle, Event, Mtu, QpNumber, RecvWr, SrqHandle};
use super::wheel::Wheel;

/// Destroyed completion queues that may always be on the list of those that got something.
const COMPLETED_SPARE: usize = 64;

/// Takes the mark from a completion queue that is on the list. False: it was destroyed, also when a newer one has its
/// handle, or it was on the list twice for that reason.
fn unlist(cqs: &mut Table<CompletionQueue>, cq: CqHandle) -> bool {
    cqs.get_mut(cq.0)
        .is_some_and(|queue| core::mem::take(&mut queue.listed))
}

/// What the shell asked for of receives ([`Device::watch_receives`](super::device::Device::watch_receives)).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Watch {
    /// Whether it watches.
    pub on: bool,
    /// Whether there are none.
    pub withhold: bool,
    /// Whether one was asked for.
    pub asked: bool,
}

impl Watch {
    #[cold]
    #[inline(never)]
    fn ask(&mut self) -> bool {
        self.asked = true;
        self.withhold
    }
}

/// Everything of a device but its QPs.
// Wide: the machine of a QP borrows all of it beside the QP; its fields are types of their own.
#[derive(Debug)]
pub(super) struct Shared {
    pub mac: MacAddr,
    pub limits: Limits,
    pub mtu: Mtu,
    /// Whether frames may carry telemetry.
    pub trailers: bool,
    pub pin_source_port: bool,
    pub gids: GidTable,
    pub partitions: Partitions,
    pub regions: Regions,
    /// Accesses that wait for pages.
    pub faults: Faults,
    pub cqs: Table<CompletionQueue>,
    pub srqs: Table<SharedReceiveQueue>,
    pub ahs: AddressHandles,
    pub counters: Counters,
    pub marks: Marks,
    pub timers: Timers,
    /// QPs over their rate.
    pub paced: Wheel,
    /// Priorities whose QPs could not have their turn when packets were last taken, a bit each.
    pub held: u8,
    /// Most request packets that a QP may have unacknowledged.
    pub window: u32,
    /// Places for what queue pairs know of losses that are being repaired.
    pub seats: Seats,
    /// Places for queue pairs whose packets take several ways.
    pub spreads: Seats,
    /// QPs that may have something to send, in the order of their turns.
    pub ready: Ready,
    /// Whether packets that come are told from each other: those without a tag may have other priorities than 0, too, or a queue
    /// pair is observed.
    pub apart: bool,
    /// Rules of marking.
    pub marking: Marking,
    /// Settings of congestion control.
    pub congestion: Congestion,
    /// Events that its algorithm needs.
    pub needs: Needs,
    /// Notifications that are owed.
    pub notifier: Notifier,
    /// For each priority the last time at which it was closed with something to send, while others were open.
    pub closed: [Option<Instant>; 8],
    /// The latest time of any call.
    pub now: Instant,
    /// Packets that came with other priorities than 0.
    pub received: ReceivedByPriority,
    pub sends: Pool<PooledSend>,
    /// Receives of QPs; those of shared receive queues once they are in use.
    pub receives: Pool<RecvWr>,
    /// Receives that wait in shared receive queues.
    pub shared_receives: u64,
    /// What the shell does about receives.
    pub watch: Watch,
    /// Completions that wait in all completion queues.
    pub waiting: u64,
    /// Spare memory for completions.
    pub spares: Spares,
    pub events: VecDeque<Event>,
    /// Completion queues that got a completion since they were last named, and some that are gone.
    pub completed: VecDeque<CqHandle>,
    /// Completion queues that have overrun, and whose QPs do not know it yet.
    pub overrun: Vec<CqHandle>,
    /// Number of QPs and SRQs that may learn it now.
    pub failures: u32,
    /// QPs with the most errors.
    pub worst: Worst,
    /// Work that was done and not taken yet, as [`Device::take_work`](super::Device::take_work) counts it.
    pub work: u32,
    /// Notes of a recording, while one runs.
    pub notes: Option<Box<Notes>>,
    /// Observations of queue pairs, while there are any.
    pub observed: Option<Box<Observations>>,
    /// Connections that targets of the dynamically connected transport know.
    pub dynamic_connections: u32,
    /// Number of the newest connection that an initiator has made.
    pub connection: u32,
}

impl Shared {
    /// Number of a new connection of an initiator: the time in microseconds, or more. So they go up also when a device, or the whole
    /// daemon, begins anew and gives out the same numbers of queue pairs.
    pub fn next_connection(&mut self, now: Instant) -> u32 {
        let time = (now.0 / 1000) as u32;
        let next = self.connection.wrapping_add(1);
        self.connection = match time.wrapping_sub(next) as i32 {
            0.. => time,
            _ => next,
        };
        self.connection
    }

    /// Adds a completion. (Inlined, so that a completion is written once, to its place.)
    #[inline(always)]
    pub fn complete(&mut self, cq: CqHandle, completion: Completion) {
        let mut completion = Some(completion);
        self.complete_all(cq, |_| completion.take());
    }

    /// Adds completions of successive work requests: what `next` makes of the pool of sends, until there is no more.
    #[inline(always)]
    pub fn complete_all(
        &mut self,
        cq: CqHandle,
        mut next: impl FnMut(&mut Pool<PooledSend>) -> Option<Completion>,
    ) {
        let Some(queue) = self.cqs.get_mut(cq.0) else {
            return;
        };
        queue.borrow(&mut self.spares);
        let before = queue.len();
        let (mut any, mut event, mut overrun) = (false, false, false);
        while let Some(completion) = next(&mut self.sends) {
            let pushed = queue.push(completion);
            any |= pushed.taken;
            event |= pushed.event;
            overrun |= pushed.overrun;
        }
        self.waiting += u64::from(queue.len() - before);
        if any && !queue.listed {
            self.list_completed(cq);
        }
        if event {
            self.event(Event::Completion(cq));
        }
        if overrun {
            self.overran(cq);
        }
    }

    #[cold]
    #[inline(never)]
    pub fn overran(&mut self, cq: CqHandle) {
        self.marks.hit(Mark::CqOverrun);
        self.counters.cq_overrun += 1;
        self.event(Event::CqError(cq));
        self.overrun.push(cq);
    }

    /// Puts a completion queue on the list of those that got a completion.
    #[inline(never)]
    fn list_completed(&mut self, cq: CqHandle) {
        // Destroyed queues stay on the list. When they may be half of it, they are removed: the completions since then pay
        // for that, also when nobody ever reads the list.
        if self.completed.len() > 2 * self.cqs.len() as usize + COMPLETED_SPARE {
            let cqs = &mut self.cqs;
            self.completed.retain(|named| unlist(cqs, *named));
            for named in &self.completed {
                if let Some(queue) = cqs.get_mut(named.0) {
                    queue.listed = true;
                }
            }
        }
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.listed = true;
            self.completed.push_back(cq);
        }
    }

    /// Takes a completion queue that got a completion since it was last named.
    pub fn next_completed(&mut self) -> Option<CqHandle> {
        while let Some(cq) = self.completed.pop_front() {
            if unlist(&mut self.cqs, cq) {
                return Some(cq);
            }
        }
        None
    }

    /// Queues an event for the user.
    pub fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Counts a packet that may have another priority than 0.
    #[cold]
    #[inline(never)]
    pub fn count_received(&mut self, packet: &Incoming<'_>) {
        let priority = self.marking.received(&packet.path);
        if priority != 0 {
            let len = packet.path.frame_len(&packet.headers, packet.payload.len());
            let [packets, bytes] = &mut self.received[usize::from(priority & 7)];
            *packets += 1;
            *bytes += len as u64;
        }
    }

    /// A queue pair sends again, from a packet on or single ones.
    pub fn sends_again(&mut self, qp: QpNumber, cause: Cause) {
        if let Some(observed) = &mut self.observed {
            observed.again(qp, cause);
        }
    }

    /// Changes the observations, if there are any; the last one ends them. `left`: whether there are any then.
    #[cold]
    pub fn with_observed(&mut self, change: impl FnOnce(&mut Observations, &mut Timers) -> bool) {
        if let Some(observed) = &mut self.observed
            && !change(observed, &mut self.timers)
        {
            self.observed = None;
        }
        self.apart = self.marking.sorts() || self.observed.is_some();
    }

    /// Notes that something waits, and only these priorities are open, a bit each. (None at all: the sink is full, and no
    /// priority is closed.)
    #[cold]
    #[inline(never)]
    pub fn note_closed(&mut self, now: Instant, open: u8) {
        let mut closed = self.held & !open;
        while closed != 0 {
            self.closed[closed.trailing_zeros() as usize & 7] = Some(now);
            closed &= closed - 1;
        }
    }

    /// Takes a receive of a shared queue.
    pub fn take_shared_receive(&mut self, srq: SrqHandle) -> Option<RecvWr> {
        if self.withheld() {
            return None;
        }
        let taken = self.srqs.get_mut(srq.0)?.pop()?;
        self.shared_receives -= 1;
        if taken.limit_reached {
            self.marks.hit(Mark::SrqLimit);
            self.event(Event::SrqLimitReached(srq));
        }
        Some(taken.wr)
    }

    /// Whether receives are withheld from the message that asks for one.
    #[inline(always)]
    pub fn withheld(&mut self) -> bool {
        self.watch.on && self.watch.ask()
    }
}
