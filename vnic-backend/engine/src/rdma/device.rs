//! The RDMA function of one adapter: its objects, and the packets that go in and out.

mod groups;
mod members;
mod outlet;
mod run;
mod shell;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::MacAddr;
use vnic_wire::bth::MULTICAST_QP;
use vnic_wire::mad::GSI_QP;
use vnic_wire::opcode::Transport;
use vnic_wire::roce::{Ecn, Network};
use vnic_wire::time::Instant;

use crate::congestion::Needs;

use super::address_handle::{AddressHandle, AddressHandles};
use super::attributes::check_address;
use super::completion_queue::{CompletionQueue, Member};
use super::congestion::Congestion;
use super::counters::{Counters, ReceivedByPriority};
use super::gid::{GidEntry, GidTable};
use super::gsi::Gsi;
use super::handle::{Table, mix};
use super::limits::{Limits, Place, Resources, Usage, in_range, table};
use super::marking::Marking;
use super::marks::{Mark, Marks};
use super::memory::Memory;
use super::multicast::MulticastGroups;
use super::notifier::Notifier;
use super::observation::QpObservation;
use super::on_demand::Faults;
use super::packet::{Incoming, IncomingFrame};
use super::partition::Partitions;
use super::pool::Pool;
use super::qp::{self, Qp, Seats};
use super::ready::Ready;
use super::region::{MemoryWalk, Regions, Registration, Reregister, Translation};
use super::shared::Shared;
use super::shared_receive_queue::{SharedReceiveQueue, SrqInit};
use super::status::{QpErrors, QpPage, QpStatus, Worst};
use super::timer::Timers;
use super::types::{
    Access, AddressVector, AhHandle, Arm, AttributeMask, CqHandle, Event, MrHandle, Mtu, MwHandle, MwType,
    Object, PdHandle, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendWr, Span, SrqHandle,
    VerbsError, XrcdHandle,
};
use super::wheel::Wheel;
pub use groups::COPIES_AT_ONCE;
pub use shell::{Freed, Given, work_of_pieces};

/// The first QP numbers are for management (IBTA 3.9.4, 3.9.5).
const QP_FIRST: u32 = 2;

/// Settings of a new device.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// The adapter's address.
    pub mac: MacAddr,
    /// Limits of its objects.
    pub limits: Limits,
    /// Path MTU of its port: the largest that fits into the Ethernet MTU.
    pub mtu: Mtu,
    /// Whether frames may carry telemetry, in a trailer: a full packet fits into the Ethernet MTU with it.
    pub trailers: bool,
    /// Whether all QPs send from UDP port 49152, as early firmware did: hashing by ports then sees one flow.
    pub pin_source_port: bool,
    /// Seed of the first numbers of queue pairs and keys of memory: nobody who does not know it guesses them. 0: the least
    /// numbers.
    pub seed: u64,
    /// Place in a function that several devices share; `None`: it is the function's only one. It lowers the limits.
    pub place: Option<Place>,
}

/// A protection domain.
#[derive(Debug, Default)]
struct Domain {
    users: u32,
}

/// The RDMA function of one adapter.
///
/// Nothing happens by itself: packets come by [`receive`](Device::receive), leave by [`transmit`](Device::transmit),
/// and the caller says when [`next_timeout`](Device::next_timeout) has come.
#[derive(Debug)]
pub struct Device {
    qps: Table<Qp>,
    pds: Table<Domain>,
    xrcds: Table<Domain>,
    groups: MulticastGroups,
    /// Datagrams for groups that have more members than get their copies at once.
    copies: VecDeque<groups::Waiting>,
    /// Queue pair 1, once it was needed.
    gsi: Option<Box<Gsi>>,
    place: Option<Place>,
    /// The first number of a connection.
    seed: u32,
    shared: Shared,
    /// Memory of the region or completion queue that was the last to end.
    freed: Option<Freed>,
}

/// Finds the object of a handle, or returns the error that names its kind.
macro_rules! find {
    ($table:expr, $handle:expr, $object:ident) => {
        $table
            .get_mut($handle.0)
            .ok_or(VerbsError::NoSuch(Object::$object))
    };
}

/// Notifies the sender of a marked packet, if its priority is one that is notified.
#[cold]
#[inline(never)]
fn notify_sender(shared: &mut Shared, qps: &Table<Qp>, now: Instant, packet: &Incoming<'_>) {
    let bth = &packet.headers.bth;
    let priority = shared.marking.received(&packet.path) & 7;
    let answered = shared.congestion.notification >> priority & 1 == 1
        && bth.version == 0
        && bth.opcode.transport() != Transport::Cnp
        // RoCEv1 has no notifications.
        && !matches!(packet.path.network, Network::V1 { .. })
        // All members of a group would answer.
        && !packet.path.network.destination().is_multicast();
    let own = match answered {
        true => qps.get(bth.destination_qp).filter(|qp| qp.takes(bth.pkey)),
        false => None,
    };
    let told = own.and_then(|qp| {
        let sender = qp.sender(packet)?;
        Some(shared.notifier.marked(now, packet, (sender, qp.pkey), priority))
    });
    match told {
        Some(true) => {}
        Some(false) => shared.counters.np_ecn_coalesced += 1,
        None => shared.counters.np_ecn_ignored += 1,
    }
}

/// Counts a packet that may have another priority than 0, and shows it to the observation of its queue pair.
#[cold]
#[inline(never)]
fn tell_apart(shared: &mut Shared, qps: &Table<Qp>, now: Instant, packet: &Incoming<'_>) {
    shared.count_received(packet);
    let Some(observed) = &mut shared.observed else {
        return;
    };
    let to = QpNumber(packet.headers.bth.destination_qp);
    if observed.has(to) && qps.get(to.0).is_some_and(|qp| qp.sender(packet).is_some()) {
        observed.came(now, to, packet);
    }
}

impl Device {
    /// A device without objects. Refused when the limits contradict each other.
    pub fn new(config: DeviceConfig) -> Result<Device, VerbsError> {
        config.limits.check()?;
        let place = config.place;
        let limits = place.map_or(config.limits, |place| config.limits.at(place));
        // One for each table.
        let seed = |n: u64| if config.seed == 0 { 0 } else { mix(config.seed ^ n) };
        let qps = table(Object::Qp, limits.max_qp, place).with_first_index(QP_FIRST);
        Ok(Device {
            // In a row: source ports follow from numbers, and shall spread evenly.
            qps: qps.scattered(seed(1), false),
            pds: table(Object::Pd, limits.max_pd, place),
            xrcds: table(Object::Xrcd, limits.max_xrcd, place),
            groups: MulticastGroups::new(&limits),
            copies: VecDeque::new(),
            gsi: None,
            place,
            seed: seed(3) as u32,
            shared: Shared {
                mac: config.mac,
                mtu: config.mtu,
                trailers: config.trailers,
                pin_source_port: config.pin_source_port,
                gids: GidTable::new(limits.gid_table_len),
                partitions: Partitions::default(),
                regions: Regions::at(&limits, place).scattered(seed(2)),
                cqs: table(Object::Cq, limits.max_cq, place),
                srqs: table(Object::Srq, limits.max_srq, place),
                ahs: AddressHandles::new(table(Object::Ah, limits.max_ah, place)),
                counters: Counters::default(),
                marks: Marks::default(),
                timers: Timers::default(),
                paced: Wheel::default(),
                held: 0,
                window: Congestion::default().zero_touch.most(),
                seats: Seats::of_losses(),
                spreads: Seats::of_spreads(),
                ready: Ready::default(),
                apart: Marking::default().sorts(),
                marking: Marking::default(),
                faults: Faults::default(),
                notifier: Notifier::new(Congestion::default().point),
                congestion: Congestion::default(),
                needs: Needs::default(),
                closed: [None; 8],
                now: Instant::default(),
                received: ReceivedByPriority::default(),
                sends: Pool::new(),
                receives: Pool::new(),
                shared_receives: 0,
                watch: Default::default(),
                waiting: 0,
                spares: Default::default(),
                events: VecDeque::new(),
                completed: VecDeque::new(),
                overrun: Vec::new(),
                failures: members::FAILURES,
                worst: Worst::default(),
                work: 0,
                notes: None,
                observed: None,
                dynamic_connections: 0,
                connection: 0,
                limits,
            },
            freed: None,
        })
    }

    /// The adapter's address.
    pub fn mac(&self) -> MacAddr {
        self.shared.mac
    }

    /// Limits of its objects.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Objects in use.
    pub fn resources(&self) -> Resources {
        let shared = &self.shared;
        fn usage<T>(table: &Table<T>) -> Usage {
            Usage {
                used: table.len(),
                limit: table.limit(),
            }
        }
        Resources {
            pd: usage(&self.pds),
            cq: usage(&shared.cqs),
            qp: usage(&self.qps),
            mr: shared.regions.region_usage(),
            mr_extents: shared.regions.extent_usage(),
            mw: shared.regions.window_usage(),
            srq: usage(&shared.srqs),
            ah: usage(&shared.ahs.table),
            xrcd: usage(&self.xrcds),
            cm_id: Usage {
                used: self.gsi.as_ref().map_or(0, |gsi| gsi.cm.used() as u32),
                limit: shared.limits.max_cm_id,
            },
            mcast_group: self.groups.usage(),
            gid: shared.gids.usage(),
        }
    }

    /// Counters since the device was made.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Which paths of the protocol were taken.
    pub fn marks(&self) -> &Marks {
        &self.shared.marks
    }

    /// Counts a frame for this adapter with a wrong ICRC, for the caller that parsed it.
    pub fn count_bad_icrc(&mut self) {
        self.shared.counters.rx_icrc_encapsulated += 1;
    }

    /// Counts a frame for this adapter that looked like RoCE and could not be read, for the caller that tried.
    pub fn count_malformed(&mut self) {
        self.shared.counters.drop_malformed += 1;
    }

    // GIDs.

    /// The GID table.
    pub fn gids(&self) -> &GidTable {
        &self.shared.gids
    }

    /// Sets or clears an entry of the GID table. Connected QPs keep the addresses they have.
    pub fn set_gid(&mut self, index: u16, entry: Option<GidEntry>) -> Result<(), VerbsError> {
        self.shared.ahs.forget_late();
        self.shared.gids.set(index, entry)
    }

    // Protection domains and memory.

    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdHandle, VerbsError> {
        self.pds.insert(Domain::default()).map(PdHandle)
    }

    /// Ends a protection domain. Refused while something belongs to it.
    pub fn dealloc_pd(&mut self, pd: PdHandle) -> Result<(), VerbsError> {
        let users = find!(self.pds, pd, Pd)?.users;
        if users > 0 {
            return Err(VerbsError::InUse {
                object: Object::Pd,
                users,
            });
        }
        self.pds.remove(pd.0);
        Ok(())
    }

    fn use_pd(&mut self, pd: PdHandle) {
        if let Some(domain) = self.pds.get_mut(pd.0) {
            domain.users += 1;
        }
    }

    fn leave_pd(&mut self, pd: PdHandle) {
        if let Some(domain) = self.pds.get_mut(pd.0) {
            domain.users = domain.users.saturating_sub(1);
        }
    }

    /// Registers memory: `spans`, one behind the other, are at `iova` (or at 0 when zero-based) under the keys.
    pub fn register(
        &mut self,
        pd: PdHandle,
        iova: u64,
        access: Access,
        spans: Vec<Span>,
    ) -> Result<Registration, VerbsError> {
        self.register_memory(pd, iova, access, spans.into())
    }

    /// As [`register`](Device::register), with spans that were given one by one.
    pub fn register_memory(
        &mut self,
        pd: PdHandle,
        iova: u64,
        access: Access,
        memory: Translation,
    ) -> Result<Registration, VerbsError> {
        find!(self.pds, pd, Pd)?;
        let registration = self.shared.regions.register_memory(pd, iova, access, memory)?;
        self.use_pd(pd);
        Ok(registration)
    }

    /// Registers all addresses and no memory.
    pub fn register_null(&mut self, pd: PdHandle) -> Result<Registration, VerbsError> {
        find!(self.pds, pd, Pd)?;
        let registration = self.shared.regions.register_null(pd)?;
        self.use_pd(pd);
        Ok(registration)
    }

    /// Changes a region.
    pub fn reregister(&mut self, mr: MrHandle, change: Reregister) -> Result<Registration, VerbsError> {
        if let Some(pd) = change.pd {
            find!(self.pds, pd, Pd)?;
        }
        let before = self.shared.regions.domain(mr)?;
        let to = change.pd;
        let (registration, memory) = self.shared.regions.reregister(mr, change)?;
        self.freed = memory.map(Freed::from);
        if let Some(to) = to {
            self.leave_pd(before);
            self.use_pd(to);
        }
        Ok(registration)
    }

    /// Takes memory away: every region with a piece that `is_there` denies loses its keys for good. Each use of them, and of
    /// those of windows bound to it, is an access error; the region stays until it is deregistered or registered again with
    /// other memory. Returns the regions that were lost by this call; each is named once.
    pub fn lose_memory(&mut self, is_there: &dyn Fn(Span) -> bool) -> Vec<MrHandle> {
        self.lose_memory_in_turns(&mut MemoryWalk::default(), u32::MAX, is_there)
            .0
    }

    /// As [`lose_memory`](Device::lose_memory), in turns, each of which looks at `most` pieces of memory. Returns the regions
    /// that this turn lost, and the number of pieces that it looked at. A region that is registered meanwhile may be looked at
    /// or not.
    pub fn lose_memory_in_turns(
        &mut self,
        walk: &mut MemoryWalk,
        most: u32,
        is_there: &dyn Fn(Span) -> bool,
    ) -> (Vec<MrHandle>, u32) {
        self.shared.regions.lose(walk, most, is_there)
    }

    /// Ends a region. Refused while windows are bound to it.
    pub fn deregister(&mut self, mr: MrHandle) -> Result<(), VerbsError> {
        let pd = self.shared.regions.domain(mr)?;
        self.freed = self.shared.regions.deregister(mr)?.map(Freed::from);
        self.leave_pd(pd);
        Ok(())
    }

    /// Makes a memory window, not bound to anything. Returns its key, too.
    pub fn alloc_mw(&mut self, pd: PdHandle, kind: MwType) -> Result<(MwHandle, u32), VerbsError> {
        find!(self.pds, pd, Pd)?;
        let made = self.shared.regions.alloc_mw(pd, kind)?;
        self.use_pd(pd);
        Ok(made)
    }

    /// Ends a memory window.
    pub fn dealloc_mw(&mut self, mw: MwHandle) -> Result<(), VerbsError> {
        let (pd, _) = self.shared.regions.window_domain(mw)?;
        self.shared.regions.dealloc_mw(mw)?;
        self.leave_pd(pd);
        Ok(())
    }

    // Completion queues.

    /// Makes a completion queue of at least `entries` entries.
    pub fn create_cq(&mut self, entries: u32) -> Result<CqHandle, VerbsError> {
        in_range("entries", entries, 1, self.shared.limits.max_cqe)?;
        self.shared
            .cqs
            .insert(CompletionQueue::new(entries))
            .map(CqHandle)
    }

    /// Changes a completion queue's size. Refused when more completions wait than would fit.
    pub fn resize_cq(&mut self, cq: CqHandle, entries: u32) -> Result<(), VerbsError> {
        in_range("entries", entries, 1, self.shared.limits.max_cqe)?;
        let queue = find!(self.shared.cqs, cq, Cq)?;
        let busy = !queue.is_empty();
        queue.resize(entries)?;
        if busy {
            self.shared.marks.hit(Mark::CqResizedBusy);
        }
        Ok(())
    }

    /// Ends a completion queue. Refused while a QP or SRQ completes there.
    pub fn destroy_cq(&mut self, cq: CqHandle) -> Result<(), VerbsError> {
        let users = find!(self.shared.cqs, cq, Cq)?.users;
        if users > 0 {
            return Err(VerbsError::InUse {
                object: Object::Cq,
                users,
            });
        }
        if let Some(queue) = self.shared.cqs.remove(cq.0) {
            self.shared.waiting -= u64::from(queue.len());
            self.freed = Some(queue.into());
        }
        Ok(())
    }

    /// Asks for an event at the next completion.
    pub fn arm_cq(&mut self, cq: CqHandle, arm: Arm) -> Result<(), VerbsError> {
        find!(self.shared.cqs, cq, Cq)?.arm(arm);
        Ok(())
    }

    // Shared receive queues, address handles, XRC domains.

    /// Makes a shared receive queue.
    pub fn create_srq(&mut self, init: SrqInit) -> Result<SrqHandle, VerbsError> {
        let limits = &self.shared.limits;
        in_range("receive work requests", init.max_wr, 1, limits.max_srq_wr)?;
        in_range("elements of a receive", init.max_sge, 0, limits.max_srq_sge)?;
        find!(self.pds, init.pd, Pd)?;
        if let Some(cq) = init.cq {
            find!(self.shared.cqs, cq, Cq)?;
        }
        if init.xrcd.is_some() != init.cq.is_some() {
            return Err(VerbsError::Invalid(
                "an XRC receive queue has a domain and a completion queue, another neither",
            ));
        }
        if let Some(xrcd) = init.xrcd {
            find!(self.xrcds, xrcd, Xrcd)?.users += 1;
        }
        let made = self.shared.srqs.insert(SharedReceiveQueue::new(&init));
        match made {
            Ok(srq) => {
                self.use_pd(init.pd);
                self.use_cq(init.cq, Member::Srq(SrqHandle(srq)));
                Ok(SrqHandle(srq))
            }
            Err(error) => {
                self.leave_xrcd(init.xrcd);
                Err(error)
            }
        }
    }

    /// Sets the limit below which an event is raised once, or the size.
    pub fn modify_srq(
        &mut self,
        srq: SrqHandle,
        limit: Option<u32>,
        max_wr: Option<u32>,
    ) -> Result<(), VerbsError> {
        if let Some(max_wr) = max_wr {
            let most = self.shared.limits.max_srq_wr;
            in_range("receive work requests", max_wr, 1, most)?;
        }
        find!(self.shared.srqs, srq, Srq)?.modify(limit, max_wr)
    }

    /// What a shared receive queue holds, how many it may hold, and the limit that is armed.
    pub fn query_srq(&self, srq: SrqHandle) -> Result<(u32, u32, u32), VerbsError> {
        let queue = self.shared.srqs.get(srq.0);
        Ok(queue.ok_or(VerbsError::NoSuch(Object::Srq))?.query())
    }

    /// Tells how many receives of a shared receive queue were not read yet: its limit counts them, too.
    pub fn set_srq_unread(&mut self, srq: SrqHandle, unread: u32) {
        if let Some(queue) = self.shared.srqs.get_mut(srq.0) {
            queue.unread = unread;
        }
    }

    /// Ends a shared receive queue. Refused while QPs use it.
    pub fn destroy_srq(&mut self, srq: SrqHandle) -> Result<(), VerbsError> {
        let users = find!(self.shared.srqs, srq, Srq)?.users;
        if users > 0 {
            return Err(VerbsError::InUse {
                object: Object::Srq,
                users,
            });
        }
        if let Some(queue) = self.shared.srqs.remove(srq.0) {
            self.shared.shared_receives -= u64::from(queue.len());
            self.leave_pd(queue.pd);
            self.leave_cq(queue.cq, Member::Srq(srq));
            self.leave_xrcd(queue.xrcd);
        }
        Ok(())
    }

    /// Posts to a shared receive queue.
    pub fn post_srq_recv(&mut self, srq: SrqHandle, wr: RecvWr) -> Result<(), VerbsError> {
        find!(self.shared.srqs, srq, Srq)?.post(wr)?;
        self.shared.shared_receives += 1;
        Ok(())
    }

    /// Makes an address handle.
    pub fn create_ah(&mut self, pd: PdHandle, address: AddressVector) -> Result<AhHandle, VerbsError> {
        find!(self.pds, pd, Pd)?;
        check_address(&address, &self.shared.gids)?;
        let (path, priority) = qp::path(&self.shared, &address, 0)?;
        let handle = AddressHandle {
            pd,
            address,
            path,
            priority,
        };
        let handle = self.shared.ahs.insert(handle)?;
        self.use_pd(pd);
        Ok(AhHandle(handle))
    }

    /// What an address handle was made with.
    pub fn query_ah(&self, ah: AhHandle) -> Result<AddressVector, VerbsError> {
        let handle = self.shared.ahs.table.get(ah.0);
        Ok(handle.ok_or(VerbsError::NoSuch(Object::Ah))?.address)
    }

    /// Ends an address handle.
    pub fn destroy_ah(&mut self, ah: AhHandle) -> Result<(), VerbsError> {
        let handle = self.shared.ahs.destroy(ah.0);
        let handle = handle.ok_or(VerbsError::NoSuch(Object::Ah))?;
        self.leave_pd(handle.pd);
        Ok(())
    }

    /// Makes an XRC domain.
    pub fn open_xrcd(&mut self) -> Result<XrcdHandle, VerbsError> {
        self.xrcds.insert(Domain::default()).map(XrcdHandle)
    }

    /// Ends an XRC domain. Refused while QPs or SRQs belong to it.
    pub fn close_xrcd(&mut self, xrcd: XrcdHandle) -> Result<(), VerbsError> {
        let users = find!(self.xrcds, xrcd, Xrcd)?.users;
        if users > 0 {
            return Err(VerbsError::InUse {
                object: Object::Xrcd,
                users,
            });
        }
        self.xrcds.remove(xrcd.0);
        Ok(())
    }

    fn leave_xrcd(&mut self, xrcd: Option<XrcdHandle>) {
        if let Some(domain) = xrcd.and_then(|x| self.xrcds.get_mut(x.0)) {
            domain.users = domain.users.saturating_sub(1);
        }
    }

    // Queue pairs.

    /// Makes a queue pair, in state RESET.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<QpNumber, VerbsError> {
        self.check_qp(init)?;
        let number = QpNumber(self.qps.insert(Qp::new(QpNumber(0), *init))?);
        if let Some(qp) = self.qps.get_mut(number.0) {
            qp.number = number;
        }
        if let Some(pd) = init.pd {
            self.use_pd(pd);
        }
        self.use_cq(init.send_cq, Member::Qp(number));
        self.use_cq(init.recv_cq, Member::Qp(number));
        if let Some(queue) = init.srq.and_then(|s| self.shared.srqs.get_mut(s.0)) {
            queue.users += 1;
        }
        if let Some(domain) = init.xrcd.and_then(|x| self.xrcds.get_mut(x.0)) {
            domain.users += 1;
        }
        Ok(number)
    }

    /// Sets the access key of a DC target, which initiators have to know. Without one it is 0.
    pub fn set_access_key(&mut self, qp: QpNumber, key: u64) -> Result<(), VerbsError> {
        find!(self.qps, qp, Qp)?.set_access_key(key)
    }

    /// The access key of a DC target.
    pub fn access_key(&self, qp: QpNumber) -> Option<u64> {
        self.qps.get(qp.0)?.access_key()
    }

    fn check_qp(&mut self, init: &QpInit) -> Result<(), VerbsError> {
        let limits = &self.shared.limits;
        in_range("send work requests", init.max_send_wr, 0, limits.max_qp_wr)?;
        in_range("receive work requests", init.max_recv_wr, 0, limits.max_qp_wr)?;
        in_range("elements of a send", init.max_send_sge, 0, limits.max_sge)?;
        in_range("elements of a receive", init.max_recv_sge, 0, limits.max_sge)?;
        in_range("bytes of an inline send", init.max_inline, 0, limits.max_inline)?;
        let has = |given: bool, needed: bool, what| {
            if given == needed {
                Ok(())
            } else {
                Err(VerbsError::Invalid(what))
            }
        };
        let target = init.qp_type == QpType::XrcTarget;
        let xrc = target || init.qp_type == QpType::XrcInitiator;
        let dc_target = init.qp_type == QpType::DcTarget;
        let dc_initiator = init.qp_type == QpType::DcInitiator;
        has(
            init.pd.is_some(),
            !target,
            "an XRC target has no protection domain, others have one",
        )?;
        has(
            init.send_cq.is_some(),
            !target && !dc_target,
            "a target of XRC or DC sends nothing, others need a completion queue for sends",
        )?;
        has(
            init.recv_cq.is_some(),
            !xrc && !dc_initiator,
            "XRC receives by its SRQs, a DC initiator not at all, others need a completion queue for receives",
        )?;
        has(
            init.xrcd.is_some(),
            target,
            "an XRC target needs a domain, others have none",
        )?;
        if init.srq.is_none() && dc_target || init.srq.is_some() && dc_initiator {
            return Err(VerbsError::Invalid(
                "a DC target needs an SRQ, a DC initiator has none",
            ));
        }
        if init.srq.is_some() && xrc {
            return Err(VerbsError::Invalid(
                "an XRC packet names its SRQ, its QP has none",
            ));
        }
        if let Some(pd) = init.pd {
            find!(self.pds, pd, Pd)?;
        }
        for cq in init.send_cq.iter().chain(&init.recv_cq) {
            find!(self.shared.cqs, cq, Cq)?;
        }
        if let Some(srq) = init.srq
            && find!(self.shared.srqs, srq, Srq)?.xrcd.is_some()
        {
            return Err(VerbsError::Invalid("the SRQ is for XRC"));
        }
        if let Some(xrcd) = init.xrcd {
            find!(self.xrcds, xrcd, Xrcd)?;
        }
        Ok(())
    }

    /// Sets attributes of a QP and moves it to another state.
    pub fn modify_qp(
        &mut self,
        qp: QpNumber,
        attributes: &QpAttributes,
        mask: AttributeMask,
        now: Instant,
    ) -> Result<(), VerbsError> {
        find!(self.qps, qp, Qp)?.modify(&mut self.shared, attributes, mask, now)?;
        self.fail_overrun();
        Ok(())
    }

    /// Attributes of a QP, with the PSNs it has come to.
    pub fn query_qp(&self, qp: QpNumber) -> Result<QpAttributes, VerbsError> {
        let qp = self.qps.get(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        Ok(QpAttributes {
            rq_psn: qp.expected_psn(),
            sq_psn: qp.next_psn(),
            ..qp.attributes
        })
    }

    /// What a QP was made with.
    pub fn query_qp_init(&self, qp: QpNumber) -> Result<QpInit, VerbsError> {
        let qp = self.qps.get(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        Ok(qp.init)
    }

    /// A QP at one time.
    pub fn qp_status(&mut self, qp: QpNumber, now: Instant) -> Result<QpStatus, VerbsError> {
        let found = find!(self.qps, qp, Qp)?;
        Ok(found.status(&self.shared, now))
    }

    /// What was counted of a QP since somebody looks at it. With `keep` the observation begins, if there is none, and lasts for so
    /// long, or until a later look's time is over. Nothing: it is not observed, or [`OBSERVED_MAX`](super::OBSERVED_MAX) others are.
    pub fn observe_qp(
        &mut self,
        qp: QpNumber,
        keep: Option<Duration>,
        now: Instant,
    ) -> Result<Option<QpObservation>, VerbsError> {
        let at = find!(self.qps, qp, Qp)?.whereabouts();
        let Shared { observed, timers, .. } = &mut self.shared;
        let Some(keep) = keep else {
            return Ok(observed.as_mut().and_then(|all| all.seen(now, qp)));
        };
        let all = observed.get_or_insert_default();
        let seen = all.look(timers, now, now + keep, qp, at);
        self.shared.apart = true;
        Ok(seen)
    }

    /// QPs behind a place, at most `most` and of `places` places: of many, one page after the other. A QP that is made or
    /// destroyed meanwhile hides no other.
    pub fn qp_page(&mut self, behind: Option<u32>, most: usize, places: u32, now: Instant) -> QpPage {
        let first = behind.map_or(0, |place| place.saturating_add(1));
        let mut page = QpPage::default();
        for place in first..first.saturating_add(places) {
            match self.qps.place(place as usize) {
                None => {
                    page.next = None;
                    break;
                }
                Some(Some((_, qp))) => page.rows.push(qp.status(&self.shared, now)),
                Some(None) => {}
            }
            page.next = Some(place);
            if page.rows.len() == most {
                break;
            }
        }
        page
    }

    /// QPs with errors: the [`WORST`](super::WORST) with the most, these first. (One that was replaced by a worse one that is
    /// gone comes back with its next error.)
    pub fn worst_qps(&self) -> Vec<(QpNumber, QpErrors)> {
        self.shared.worst.list()
    }

    /// Ends a QP. What is posted is flushed first: its completions are there when this returns. Refused while it
    /// is attached to a multicast group.
    pub fn destroy_qp(&mut self, number: QpNumber) -> Result<(), VerbsError> {
        find!(self.qps, number, Qp)?;
        let users = self.groups.users(number);
        if users > 0 {
            return Err(VerbsError::InUse {
                object: Object::Qp,
                users,
            });
        }
        let Some(mut qp) = self.qps.remove(number.0) else {
            return Err(VerbsError::NoSuch(Object::Qp));
        };
        qp.flush(&mut self.shared);
        self.shared.worst.forget(number);
        if self.shared.observed.is_some() {
            self.shared.with_observed(|all, timers| all.end(timers, number));
        }
        let init = qp.init;
        if let Some(pd) = init.pd {
            self.leave_pd(pd);
        }
        self.leave_cq(init.send_cq, Member::Qp(number));
        self.leave_cq(init.recv_cq, Member::Qp(number));
        if let Some(queue) = init.srq.and_then(|s| self.shared.srqs.get_mut(s.0)) {
            queue.users = queue.users.saturating_sub(1);
        }
        self.leave_xrcd(init.xrcd);
        self.fail_overrun();
        Ok(())
    }

    /// Posts to a send queue.
    pub fn post_send(&mut self, qp: QpNumber, wr: SendWr) -> Result<(), VerbsError> {
        self.shared.sends.spare().wr = wr;
        find!(self.qps, qp, Qp)?.post_spare(&mut self.shared)?;
        self.fail_overrun();
        Ok(())
    }

    /// Posts to a receive queue.
    pub fn post_recv(&mut self, qp: QpNumber, wr: RecvWr) -> Result<(), VerbsError> {
        find!(self.qps, qp, Qp)?.post_recv(&mut self.shared, wr)?;
        self.fail_overrun();
        Ok(())
    }

    // Packets and time.

    /// Takes a packet that came for this adapter. Copies for members of a large group may wait: see [`next_member`](Device::next_member).
    pub fn receive(&mut self, now: Instant, packet: &Incoming<'_>, memory: &dyn Memory) {
        let shared = &mut self.shared;
        shared.now = now;
        let bth = &packet.headers.bth;
        shared.counters.received(packet);
        if shared.apart || packet.path.vlan.is_some() {
            tell_apart(shared, &self.qps, now, packet);
        }
        if Ecn::of(packet.path.network.traffic_class()) == Ecn::Ce {
            shared.counters.np_ecn_marked_roce_packets += 1;
            shared.marks.hit(Mark::EcnMarked);
            notify_sender(shared, &self.qps, now, packet);
        }
        if bth.version != 0 {
            shared.counters.drop_malformed += 1;
            return;
        }
        if bth.destination_qp == MULTICAST_QP {
            self.receive_multicast(now, packet, memory);
        } else if let Some(qp) = self.qps.get_mut(bth.destination_qp) {
            if bth.opcode.transport() == Transport::Cnp {
                return qp.receive_notification(shared, now, packet);
            }
            qp.receive(shared, now, packet, memory);
        } else if bth.destination_qp == GSI_QP {
            let (gsi, shared) = self.gsi();
            gsi.receive(shared, packet);
        } else {
            shared.counters.drop_no_qp += 1;
            shared.marks.hit(Mark::NoSuchQp);
        }
        self.fail_overrun();
    }

    /// Takes a frame that a flow gives to a raw packet QP.
    pub fn receive_frame(
        &mut self,
        now: Instant,
        qp: QpNumber,
        frame: IncomingFrame<'_>,
        memory: &dyn Memory,
    ) {
        self.shared.now = now;
        match self.qps.get_mut(qp.0) {
            Some(found) if found.init.qp_type == QpType::RawPacket => {
                found.receive_frame(&mut self.shared, frame, memory);
            }
            _ => self.shared.counters.drop_no_qp += 1,
        }
        self.fail_overrun();
    }

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// State of a QP.
    pub fn qp_state(&self, qp: QpNumber) -> Option<QpState> {
        self.qps.get(qp.0).map(|qp| qp.state())
    }
}
