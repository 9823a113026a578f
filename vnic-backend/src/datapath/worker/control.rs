//! Calls of the control plane to a data core about its ports. The other calls are at the core's parts.

use std::sync::Arc;

use vnic_engine::clock::NicClock;
use vnic_engine::counters::CoreCounter as C;
use vnic_fabric::access_list::AccessList;
use vnic_fabric::switch::{AllowedAddresses, PortConfig, PortId};
use vnic_wire::MacAddr;
use vnic_wire::pkey::PkeyTable;

use super::super::congestion::CongestionChange;
use super::super::counters::{AdapterCounters, PortCounters};
use super::super::outputs::{AdapterRx, BondSide, Mirror, Slot};
use super::super::qos::QosChange;
use super::super::rdma::Seat;
use super::Worker;
use crate::rdma::{Attachment, Function};
use crate::types::{FdbEntry, QueueStatus, StormControl};
use crate::uplink::{Opened, PortTx, RxHalf, TxHalf};

/// The core that serves a port.
pub enum Side {
    /// An adapter of this core: its counters, its queue pairs, and the addresses that its guest may claim (`None`: any).
    Adapter(Arc<AdapterCounters>, usize, Option<AllowedAddresses>),
    /// An uplink of this core.
    Uplink(Box<Opened>, Arc<PortCounters>),
    /// Another core.
    Remote(usize),
}

impl Worker {
    /// Adds a port.
    pub(crate) fn add_port(&mut self, id: PortId, config: PortConfig, side: Side) {
        self.core.out.set_timed(id, config.times_ptp);
        self.core.switch.add_port(id, config);
        let slot = match side {
            Side::Adapter(counters, pairs, allowed) => {
                let mut adapter = AdapterRx::new(counters, pairs);
                adapter.allowed = allowed.map(Arc::new);
                Slot::Adapter(Box::new(adapter))
            }
            Side::Remote(core) => Slot::Remote(core),
            Side::Uplink(opened, counters) => {
                let Opened {
                    rx,
                    tx,
                    mtu,
                    mac,
                    index,
                    ..
                } = *opened;
                self.uplinks
                    .add(&self.sleeper, id, (rx, index), mtu, counters.clone());
                Slot::Uplink(Box::new(PortTx::new(tx, mac, counters)))
            }
        };
        *self.core.out.slot(id) = slot;
    }

    /// Changes a port's settings of the switch.
    pub(crate) fn set_port(&mut self, id: PortId, config: PortConfig) {
        if self.functions.get_mut(id).is_some() {
            for function in self.functions.each(id) {
                function.set_vlans(config.vlan.clone());
            }
            self.functions.news(&mut self.core, id);
        }
        self.core.out.set_timed(id, config.times_ptp);
        self.core.switch.set_port(id, config);
    }

    /// Changes the P_Keys of the RDMA function of an adapter of this core.
    pub(crate) fn set_pkeys(&mut self, id: PortId, pkeys: PkeyTable) {
        self.functions
            .change(&mut self.core, id, |function| function.set_pkeys(pkeys));
    }

    /// Removes a port with all its state.
    pub(crate) fn remove_port(&mut self, id: PortId) {
        self.core.out.qos.set(id, None);
        self.core.forget_sender(id);
        self.core.out.forget_receiver(id);
        self.core.forget_guest_roce(id);
        self.functions.remove(&mut self.core, &self.sleeper, id);
        self.core.out.forget_waiting(id);
        self.core.out.set_access_list(id, None);
        self.core.out.set_timed(id, false);
        self.core.out.bonds.forget(id);
        self.core.switch.remove_port(id);
        *self.core.out.slot(id) = Slot::Empty;
        if let Some(faults) = self.core.out.faults() {
            let orphans = faults.forget_port(id);
            self.core.out.round.counters.add(C::Orphans as usize, orphans);
        }
        self.uplinks.remove(&self.sleeper, id);
    }

    /// Sets a port's link. With `announce` the local uplinks announce this address.
    pub(crate) fn set_link(&mut self, id: PortId, up: bool, announce: Option<MacAddr>) {
        self.core.switch.set_link(id, up);
        if !up && matches!(self.core.out.slot(id), Slot::Uplink(_) | Slot::Bond(_)) {
            self.core.switch.flush_port(id);
        }
        if let (true, Some(mac)) = (up, announce) {
            self.core.announce(id, mac);
        }
    }

    /// Announces an adapter's address to all ports and adapters of this core, in the VLANs with these tags.
    pub(crate) fn broadcast(&mut self, id: PortId, mac: MacAddr, tags: &[Option<u16>]) {
        self.core.broadcast(id, mac, tags);
    }

    /// Replaces the device of an uplink of this core after it was opened again.
    pub(crate) fn reopen_uplink(&mut self, id: PortId, (rx, index): (RxHalf, u32), tx: TxHalf) {
        if self.uplinks.reopen(&self.sleeper, id, (rx, index))
            && let Slot::Uplink(p) = self.core.out.slot(id)
        {
            p.replace(tx);
        }
    }

    /// Sets or removes the access list of an adapter of this core.
    pub(crate) fn set_access_list(&mut self, id: PortId, list: Option<Arc<AccessList>>) {
        self.core.out.set_access_list(id, list);
    }

    /// Sets the NIC's clock, and what times of completions are of.
    pub(crate) fn set_clock(&mut self, clock: NicClock, of_completions: NicClock) {
        self.core.out.set_clock(clock);
        self.functions.set_clock(of_completions);
    }

    /// Replaces the mirror sessions. The switch gives their destinations nothing else.
    pub(crate) fn set_mirrors(&mut self, sessions: Vec<Mirror>) {
        let destinations = sessions.iter().map(|m| m.destination);
        self.core.switch.isolate(destinations.collect());
        self.core.out.set_mirrors(sessions);
    }

    /// Replaces the ports that are joined, each with the other one.
    pub(crate) fn set_bridges(&mut self, joined: &[(PortId, Option<PortId>)]) {
        self.core.switch.bridge(joined);
        self.uplinks.set_bridged(joined);
    }

    /// Sets whether link layer discovery of an uplink is for the control plane, if it is one of this core.
    pub(crate) fn set_lldp(&mut self, id: PortId, on: bool) {
        self.uplinks.set_lldp(id, on);
    }

    /// Sets the limits of storm control of an uplink, if it is one of this core.
    pub(crate) fn set_storm(&mut self, id: PortId, limits: StormControl) {
        self.uplinks.set_storm(id, limits);
    }

    /// Adds or replaces a bond (`members`: its members for a core that does not serve it). Its members are no ports of the
    /// switch any more.
    pub(crate) fn set_bond(&mut self, id: PortId, config: PortConfig, members: Vec<PortId>, side: BondSide) {
        if let BondSide::Local(setup) = &side {
            self.uplinks.join(id, setup);
        }
        self.core.set_bond(id, config, members, side);
    }

    /// Makes members of a bond ports of the switch again, with these settings; a bond without members is removed.
    /// [`Worker::set_link`] follows for each member with a link.
    pub(crate) fn unbond(&mut self, id: PortId, members: Vec<(PortId, PortConfig)>) {
        for (port, _) in &members {
            self.uplinks.leave(id, *port);
        }
        self.core.unbond(id, members);
    }

    /// Sets the quality of service of a port, on whichever core it is.
    pub(crate) fn set_qos(&mut self, id: PortId, change: Arc<QosChange>) {
        self.core.out.qos.set(id, Some(change.clone()));
        self.core.set_sender(id, &change);
        self.police();
        self.core.out.set_receiver(id, &change, self.core.now);
        self.functions.set_marking(&self.core, id);
    }

    /// Queues of a port of this core.
    pub(crate) fn qos_status(&mut self, id: PortId) -> QueueStatus {
        let mut status = QueueStatus::default();
        self.core.out.receiver_status(id, &mut status);
        self.core.sender_status(id, &mut status);
        status
    }

    /// Sets congestion control of an adapter of this core.
    pub(crate) fn set_congestion(&mut self, id: PortId, change: &CongestionChange) {
        for function in self.functions.each(id) {
            function.set_congestion(change.congestion.clone(), self.core.now);
            function.pin_source_port(change.pin_source_port);
        }
        self.core.set_guest_roce(id, &change.congestion, change.soft);
        self.police();
    }

    /// This core's forwarding database.
    pub(crate) fn fdb(&self) -> Vec<(PortId, FdbEntry)> {
        let entries = self.core.switch.entries(self.core.now);
        let entries = entries.map(|(vlan, mac, port, is_static, age)| {
            let owner = String::new();
            let entry = FdbEntry {
                vlan,
                mac,
                owner,
                is_static,
                age,
            };
            (port, entry)
        });
        entries.collect()
    }

    /// Adds an RDMA function to an adapter of this core.
    pub(crate) fn add_function(&mut self, id: PortId, function: Function) {
        self.functions.add(&mut self.core, id, function);
    }

    /// Attaches a driver to an RDMA function.
    pub(crate) fn attach_driver(&mut self, seat: Seat, attachment: Attachment) {
        self.functions.attach(&self.sleeper, seat, attachment);
    }

    /// Detaches the driver from an RDMA function and ends all its objects. Returns the ring indexes of the control and event
    /// virtqueues; the core does not use the driver's memory any more.
    pub(crate) fn detach_driver(&mut self, seat: Seat) -> Vec<u16> {
        self.functions.detach(&mut self.core, &self.sleeper, seat)
    }
}
