//! NICs with drivers attached, and what most tests begin with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use vnic_backend::{AdapterSpec, VirtualClock};
use vnic_device::queue::{CompletionEntry, Element};
use vnic_device::verbs::{CompletionStatus, QpType};
use vnic_verbs::DeviceAddress;

use super::super::rig::{Copies, Rig};
use super::objects::{Mr, QpSpec};
use super::queues::{Bells, Cq, Qp};
use super::verbs::{Wr, connect};
use super::{Driver, Options};

/// A NIC whose adapters have RDMA functions.
pub struct World {
    /// The NIC.
    pub rig: Rig,
}

impl World {
    /// A NIC with so many data cores and these adapters.
    pub fn new(cores: usize, adapters: &[&str]) -> Result<World> {
        World::with_spin(cores, adapters, Duration::from_micros(50))
    }

    /// The same, with a given idle spin.
    pub fn with_spin(cores: usize, adapters: &[&str], spin: Duration) -> Result<World> {
        let mut world = World {
            rig: Rig::with_spin(cores, spin)?,
        };
        for name in adapters {
            world.add(name, 1500)?;
        }
        Ok(world)
    }

    /// A NIC whose time passes by the rounds of its data core, and these adapters.
    pub fn with_clock(clock: Arc<VirtualClock>, adapters: &[&str]) -> Result<World> {
        let mut world = World {
            rig: Rig::with_clock(clock)?,
        };
        for name in adapters {
            world.add(name, 1500)?;
        }
        Ok(world)
    }

    /// Adds an adapter with an RDMA function.
    pub fn add(&mut self, name: &str, mtu: u16) -> Result<()> {
        self.add_with(name, |spec| spec.mtu = mtu)
    }

    /// The same with other settings.
    pub fn add_with(&mut self, name: &str, change: impl FnOnce(&mut AdapterSpec)) -> Result<()> {
        let socket = self.socket(name);
        self.rig.add_with(name, |spec| {
            spec.rdma_socket = Some(socket);
            change(spec);
        })?;
        Ok(())
    }

    /// The socket of an adapter's RDMA function.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.rig.dir().join(format!("{name}-rdma.sock"))
    }

    /// Devices that a process finds now, with their numbers, if these are the adapters it was given.
    pub fn devices(&self, adapters: &[&str]) -> Vec<(u32, DeviceAddress)> {
        let sockets = adapters
            .iter()
            .map(|name| DeviceAddress::Socket(self.socket(name)));
        vnic_verbs::present(&sockets.collect::<Vec<_>>())
    }

    /// A driver of an adapter, started.
    pub fn driver(&self, name: &str) -> Result<Driver> {
        let socket = match self.devices(&[name]).pop() {
            Some((_, DeviceAddress::Socket(path))) => path,
            _ => self.socket(name),
        };
        Driver::start(socket, Options::default())
    }

    /// A driver with what most tests need.
    pub fn side(&self, name: &str) -> Result<Side> {
        Ok(Side::new(self.driver(name)?))
    }

    /// Objects in use by an adapter's driver, by name, GIDs not counted; only those that there are.
    pub fn objects(&self, name: &str) -> Vec<(&'static str, u32)> {
        let status = self.rig.nic.rdma(name).expect("the adapter");
        let rows = status.expect("an RDMA function").resources;
        let there = rows.into_iter().filter(|r| r.used > 0 && r.name != "gid");
        there.map(|r| (r.name, r.used)).collect()
    }

    /// Shuts down; nothing may have gone wrong.
    pub fn finish(self) -> Result<()> {
        self.rig.finish(Copies::Unknown)
    }
}

/// A driver with a PD, a CQ, a doorbell ring and a region.
pub struct Side {
    /// The driver.
    pub d: Driver,
    /// Its protection domain.
    pub pd: u32,
    /// Its completion queue.
    pub cq: Cq,
    /// Its doorbell ring.
    pub bells: Bells,
    /// Its region: 256 KiB.
    pub mr: Mr,
}

impl Side {
    /// With a driver that has said HELLO.
    pub fn new(mut d: Driver) -> Side {
        let pd = d.pd();
        let cq = d.cq(256);
        let bells = d.bells(64);
        let mr = d.mr(pd, 256 << 10, 0x7f00_0000_0000);
        Side { d, pd, cq, bells, mr }
    }

    /// A usual QP.
    pub fn spec(&self, qp_type: QpType) -> QpSpec {
        let spec = QpSpec::new(qp_type, self.pd, &self.cq);
        match qp_type {
            QpType::XrcInitiator | QpType::DcInitiator => spec.without_receives(),
            QpType::XrcTarget | QpType::DcTarget => QpSpec {
                blocks: 0,
                elements: 0,
                inline: 0,
                ..spec.without_receives()
            },
            _ => spec,
        }
    }

    /// A usual QP in RESET.
    pub fn qp(&mut self, qp_type: QpType) -> Qp {
        let spec = self.spec(qp_type);
        self.d.qp(&spec)
    }

    /// A QP that is connected with one of `other`.
    pub fn pair(&mut self, other: &mut Side, qp_type: QpType) -> (Qp, Qp) {
        let (a, b) = (self.qp(qp_type), other.qp(qp_type));
        connect(&mut self.d, &a, &mut other.d, &b);
        (a, b)
    }

    /// An element of the region.
    pub fn at(&self, offset: u64, len: u32) -> Element {
        self.mr.element(offset, len)
    }

    /// Posts a send.
    pub fn post(&mut self, qp: &mut Qp, wr: &Wr) -> u32 {
        qp.post(&mut self.bells, wr)
    }

    /// Posts a receive.
    pub fn receive(&mut self, qp: &mut Qp, wr_id: u64, elements: &[Element]) -> u32 {
        qp.receive(&mut self.bells, wr_id, elements)
    }

    /// Posts a send and waits for its completion, which is the next one.
    pub fn done(&mut self, qp: &mut Qp, wr: &Wr) -> CompletionEntry {
        self.post(qp, wr);
        let e = self.cq.good(wr.head.wr_id);
        qp.sends().consumer = e.consumed;
        e
    }

    /// Posts a send and waits for its completion, which is the next one and ends so.
    pub fn fails(&mut self, qp: &mut Qp, wr: &Wr, status: CompletionStatus) -> CompletionEntry {
        self.post(qp, wr);
        self.cq.expect(wr.head.wr_id, status)
    }
}
