//! Which adapters speak for their addresses. Of two adapters between which a guest moves only one does: that on which the guest runs.
//!
//! ```text
//!            source   target      a guest begins to run at the target: it speaks, the source falls silent
//!  prepared  speaks   silent      it begins to run at the source again (the move failed): the same the other way
//! ```
//!
//! While both run, the one that spoke goes on. A source whose target is elsewhere falls silent when its guest stops.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vnic_fabric::VlanMode;
use vnic_fabric::switch::{PortConfig, PortId};
use vnic_wire::MacAddr;

use crate::datapath::WorkerHandle;
use crate::hub::EventHub;
use crate::types::{MovePart, Moving, NicEventKind};

/// Most VLANs in which an address is announced.
const VLANS_MAX: usize = 64;

/// What the switch is to know of an adapter.
struct Voice {
    name: String,
    config: PortConfig,
    moving: Option<Moving>,
    /// Whether a ring of the guest runs.
    runs: bool,
    /// Whether the switch knows the adapter's addresses.
    speaks: bool,
}

impl Voice {
    /// The configuration that the switch gets. A silent adapter has no address, and learning gives it none.
    fn heard(&self) -> PortConfig {
        let mut config = self.config.clone();
        if !self.speaks {
            config.macs.clear();
            (config.anti_spoofing, config.learning) = (true, false);
        }
        config
    }
}

/// The voices of a NIC's adapters. The lock is held while the data cores are told, so that all hear of changes in the same order.
#[derive(Default)]
pub struct Voices {
    workers: Arc<Vec<WorkerHandle>>,
    hub: EventHub,
    all: Mutex<BTreeMap<PortId, Voice>>,
}

impl Voices {
    /// No adapter is there.
    pub fn new(workers: Arc<Vec<WorkerHandle>>, hub: EventHub) -> Voices {
        let all = Mutex::default();
        Voices { workers, hub, all }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PortId, Voice>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an adapter whose guest does not run. Returns the configuration that the switch is to get.
    pub fn enter(&self, id: PortId, name: &str, moving: Option<Moving>, config: PortConfig) -> PortConfig {
        let mut all = self.lock();
        let speaks = begins_to_speak(&all, moving.as_ref(), false);
        let voice = Voice {
            name: name.to_owned(),
            config,
            moving,
            runs: false,
            speaks,
        };
        let heard = voice.heard();
        all.insert(id, voice);
        heard
    }

    /// Changes the configuration of an adapter; on return it acts.
    pub fn configure(&self, id: PortId, config: PortConfig) {
        let mut all = self.lock();
        if let Some(voice) = all.get_mut(&id).filter(|voice| voice.config != config) {
            voice.config = config;
            self.tell(id, voice);
        }
    }

    /// Changes the part of an adapter in a move; on return it acts.
    pub fn take_part(&self, id: PortId, moving: Option<Moving>) {
        let mut all = self.lock();
        let Some(runs) = all.get(&id).filter(|v| v.moving != moving).map(|v| v.runs) else {
            return;
        };
        let speaks = begins_to_speak(&all, moving.as_ref(), runs);
        if let Some(voice) = all.get_mut(&id) {
            (voice.moving, voice.speaks) = (moving, speaks);
            self.tell(id, voice);
        }
    }

    /// Forgets an adapter.
    pub fn leave(&self, id: PortId) {
        self.lock().remove(&id);
    }

    /// Whether an adapter speaks for its addresses.
    pub fn speaks(&self, id: PortId) -> bool {
        self.lock().get(&id).is_none_or(|voice| voice.speaks)
    }

    /// Notes that the guest of an adapter is about to run, or that it has stopped. On return the addresses are where they belong.
    pub fn guest_runs(&self, id: PortId, runs: bool) {
        let mut all = self.lock();
        let Some(me) = all.get_mut(&id).filter(|voice| voice.runs != runs) else {
            return;
        };
        me.runs = runs;
        let Some(moving) = me.moving.clone() else { return };
        let peer = peer_of(&all, &moving);
        match (peer, runs) {
            (None, false) if moving.part == MovePart::Source && moving.peer.is_none() => {
                self.switch(&mut all, id, false);
            }
            (None, true) => self.switch(&mut all, id, true),
            (Some(peer), true) if !all.get(&peer).is_some_and(|p| p.runs && p.speaks) => {
                self.switch(&mut all, peer, false);
                self.switch(&mut all, id, true);
            }
            (Some(peer), false) if all.get(&peer).is_some_and(|p| p.runs) => {
                self.switch(&mut all, id, false);
                self.switch(&mut all, peer, true);
                self.send(&all, peer, None);
            }
            _ => {}
        }
    }

    /// Lets an adapter speak, or fall silent.
    fn switch(&self, all: &mut BTreeMap<PortId, Voice>, id: PortId, speaks: bool) {
        let Some(voice) = all.get_mut(&id).filter(|voice| voice.speaks != speaks) else {
            return;
        };
        voice.speaks = speaks;
        self.tell(id, voice);
        if let Some(Moving { part, peer }) = voice.moving.clone() {
            // Of two adapters of this NIC the event of the one that speaks is enough.
            if speaks || peer.is_none() {
                let event = NicEventKind::GuestMoved { part, peer, speaks };
                self.hub.publish(&voice.name, event);
            }
        }
    }

    /// Tells the data cores, and waits until all know.
    fn tell(&self, id: PortId, voice: &Voice) {
        let heard = voice.heard();
        let told: Vec<_> = self
            .workers
            .iter()
            .map(|w| {
                let heard = heard.clone();
                w.start(move |w| w.set_port(id, heard))
            })
            .collect();
        for core in told {
            core.wait();
        }
    }

    /// Announces an address of an adapter in the adapter's VLANs, at all ports and adapters. An address that is not the adapter's, or
    /// for which it does not speak, is not announced.
    pub fn announce(&self, id: PortId, mac: MacAddr) {
        self.send(&self.lock(), id, Some(mac));
    }

    /// Announces one address, or all.
    fn send(&self, all: &BTreeMap<PortId, Voice>, id: PortId, only: Option<MacAddr>) {
        let Some(voice) = all.get(&id).filter(|voice| voice.speaks) else {
            return;
        };
        let tagged = match &voice.config.vlan {
            VlanMode::Trunk { native, allowed } => {
                let others = allowed.iter().flatten().filter(|vlan| *vlan != native);
                others.map(|vlan| Some(*vlan)).take(VLANS_MAX).collect()
            }
            VlanMode::Access(_) => Vec::new(),
        };
        let vlans: Vec<Option<u16>> = std::iter::once(None).chain(tagged).collect();
        let macs = voice
            .config
            .macs
            .iter()
            .filter(|mac| only.is_none_or(|only| only == **mac));
        for mac in macs.copied() {
            let told: Vec<_> = self
                .workers
                .iter()
                .map(|w| {
                    let vlans = vlans.clone();
                    w.start(move |w| w.broadcast(id, mac, &vlans))
                })
                .collect();
            for core in told {
                core.wait();
            }
        }
    }
}

/// The other adapter of a move, if it is of this NIC and there.
fn peer_of(all: &BTreeMap<PortId, Voice>, moving: &Moving) -> Option<PortId> {
    let peer = moving.peer.as_deref()?;
    all.iter()
        .find(|(_, voice)| voice.name == peer)
        .map(|(id, _)| *id)
}

/// Whether an adapter speaks that takes this part in a move.
fn begins_to_speak(all: &BTreeMap<PortId, Voice>, moving: Option<&Moving>, runs: bool) -> bool {
    let Some(moving) = moving else { return true };
    let peer = peer_of(all, moving).and_then(|id| all.get(&id));
    match (moving.part, &moving.peer, peer) {
        (MovePart::Source, None, _) => runs,
        (MovePart::Source, Some(_), peer) => !peer.is_some_and(|p| p.moving.is_some() && p.speaks),
        (MovePart::Target, ..) => false,
    }
}
