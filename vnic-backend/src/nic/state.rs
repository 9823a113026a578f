//! State of a NIC in the control plane: adapters, ports, bonds, fault rules, mirror sessions.

mod access_list;
mod bond;
mod discovery;
mod faults;
mod mirror;
mod port;
mod program;
mod recordings;
mod speaker;
mod subnet;
mod verbs_faults;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::lag::Member;

use super::clock::Times;
use crate::rdma::RdmaCounters;
use crate::types::*;
use crate::vhost::Endpoint;
pub use access_list::ListEntry;
pub use bond::{BondEntry, MemberEntry};
pub use discovery::{Discovery, Wanted, wanted};
pub use faults::{FaultEntry, FaultTable};
pub use mirror::MirrorEntry;
pub use port::{PortEntry, limited};
pub use program::Loaded;
pub use recordings::{Recordings, Running};
pub use speaker::Speaker;
pub use subnet::Subnet;
pub use verbs_faults::{VerbsFaultEntry, VerbsFaultTable};

/// State of a NIC.
// Wide: all that operators have made, by kind.
#[derive(Default)]
pub struct State {
    /// Adapters.
    pub adapters: BTreeMap<String, AdapterEntry>,
    /// Uplink ports.
    pub ports: BTreeMap<String, PortEntry>,
    /// What acts on the quality of service of all adapters and ports.
    pub imposed: Imposed,
    /// What the NV configuration wants of the first ports by name.
    pub presets: [PortPreset; PRESETS],
    /// Names of adapters, uplink ports and bonds, by their ports of the switch.
    pub names: BTreeMap<PortId, String>,
    /// The number that the next capture gets.
    pub next_capture: u64,
    /// Fault rules.
    pub faults: FaultTable,
    /// Rules for completions and commands of RDMA functions, in the order of matching.
    pub verbs_faults: VerbsFaultTable,
    /// Mirror sessions.
    pub mirrors: BTreeMap<String, MirrorEntry>,
    /// Access lists by the names of adapters, which may come later.
    pub lists: BTreeMap<String, ListEntry>,
    /// Recordings of work requests.
    pub recordings: Recordings,
    /// The subnet of the RDMA functions.
    pub subnet: Subnet,
    /// Bonds.
    pub bonds: BTreeMap<String, BondEntry>,
    /// Wakes the thread that tells LACP machines the time, while a bond runs LACP. If this is dropped, the thread ends.
    pub alarm: Option<Sender<()>>,
    /// The NIC's clock, and what has its time.
    pub times: Times,
    /// Whether the NIC has ended.
    pub ended: bool,
}

/// What others than its operator want of an adapter's quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imposed {
    /// Priority of RDMA that the peer of a port names by data center bridging exchange, of the first port by name. It acts where nobody
    /// else names one.
    pub rdma_priority: Option<u8>,
    /// Most classes, and most priorities with flow control (NV configuration).
    pub limits: QosLimits,
}

/// An adapter.
pub struct AdapterEntry {
    /// The Ethernet function's socket.
    pub adapter: Arc<Endpoint>,
    /// The RDMA function of the adapter, if it has one.
    pub rdma: Option<RdmaEntry>,
    /// Settings that were given last; the endpoint has those that act.
    pub wanted: AdapterSettings,
    /// Quality of service that was given last.
    pub qos: QosSpec,
    /// What others want of its quality of service, as [`State::imposed`].
    pub imposed: Imposed,
    /// Congestion control that was given last.
    pub congestion: CongestionSpec,
    /// The program of its flows.
    pub program: Loaded,
    /// Threads of the adapter's sockets.
    pub threads: Vec<(Arc<Endpoint>, JoinHandle<()>)>,
}

/// The RDMA function of an adapter.
pub struct RdmaEntry {
    /// The function's socket.
    pub endpoint: Arc<Endpoint>,
    /// Counters of the function.
    pub counters: Arc<RdmaCounters>,
}

impl State {
    /// The adapter of this name.
    pub fn adapter(&self, name: &str) -> Result<&AdapterEntry, NicError> {
        self.adapters.get(name).ok_or_else(|| not_found("adapter", name))
    }

    /// The adapter of this name, to change it.
    pub fn adapter_mut(&mut self, name: &str) -> Result<&mut AdapterEntry, NicError> {
        let entry = self.adapters.get_mut(name);
        entry.ok_or_else(|| not_found("adapter", name))
    }

    /// The uplink port of this name.
    pub fn port(&self, name: &str) -> Result<&PortEntry, NicError> {
        self.ports.get(name).ok_or_else(|| not_found("port", name))
    }

    /// The bond of this name.
    pub fn bond(&self, name: &str) -> Result<&BondEntry, NicError> {
        self.bonds.get(name).ok_or_else(|| not_found("bond", name))
    }

    /// Refuses a name that an adapter, a port or a bond has.
    pub fn free_name(&self, kind: &'static str, name: &str) -> Result<(), NicError> {
        let taken = self.adapters.contains_key(name) || self.ports.contains_key(name);
        if taken || self.bonds.contains_key(name) {
            return Err(NicError::Exists {
                kind,
                name: name.into(),
            });
        }
        Ok(())
    }

    /// The first number that no port of the switch has.
    pub fn free_id(&self) -> PortId {
        // There are a few hundred at most, so the first gap is searched.
        let gap = self
            .names
            .keys()
            .zip(0u16..)
            .find(|(id, i)| id.0 != *i)
            .map(|(_, i)| i);
        PortId(gap.unwrap_or(self.names.len() as u16))
    }

    /// The port of the switch of the adapter or uplink port with this name.
    pub fn id_of(&self, name: &str) -> Option<PortId> {
        let adapter = self.adapters.get(name).map(|e| e.adapter.id);
        adapter.or_else(|| self.ports.get(name).map(|p| p.id))
    }

    /// The name of the bond that a port is a member of.
    pub fn bond_of(&self, port: PortId) -> Option<&str> {
        let mut all = self.bonds.iter();
        let (name, _) = all.find(|(_, b)| b.ids().any(|id| id == port))?;
        Some(name)
    }

    /// The bond of a member port, with the bond's name and the port's place in it.
    pub fn membership(&mut self, port: PortId) -> Option<(&str, &mut BondEntry, Member)> {
        self.bonds.iter_mut().find_map(|(name, bond)| {
            let (member, _) = (0..).zip(bond.ids()).find(|(_, id)| *id == port)?;
            Some((name.as_str(), bond, Member(member)))
        })
    }

    /// Wakes the thread that tells the time, so that it looks again when something is due.
    pub fn ring_alarm(&self) {
        if let Some(wake) = &self.alarm {
            // A failure means that it was already woken.
            let _ = wake.try_send(());
        }
    }
}

impl AdapterEntry {
    /// The sockets of the adapter.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        std::iter::once(&self.adapter).chain(self.rdma.iter().map(|r| &r.endpoint))
    }

    /// Name of the adapter and all its addresses, also those that it gets at its next restart.
    pub fn owned(&self) -> (String, impl Iterator<Item = MacAddr>) {
        let (spec, wanted) = (self.adapter.spec(), self.adapter.wanted());
        let more = [self.adapter.settings().macs, self.wanted.macs.clone()];
        let own = [spec.macs.clone(), wanted.macs.clone()];
        (spec.name.clone(), own.into_iter().chain(more).flatten())
    }

    /// Speed of the adapter's link in bit/s.
    pub fn line_rate(&self) -> u64 {
        match self.qos.rate {
            0 => u64::from(LINE_RATE_MBPS) * 1_000_000,
            rate => rate,
        }
    }
}

/// The error that nothing of this kind has the name.
pub fn not_found(kind: &'static str, name: &str) -> NicError {
    NicError::NotFound {
        kind,
        name: name.into(),
    }
}
