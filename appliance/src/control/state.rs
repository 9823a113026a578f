//! State of the running daemon.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::watch;
use vnic_backend::{FdbEntry, Nic};

use super::scenarios::Stage;
use super::subnet::Loaded;
use super::teams::Book;
use crate::capture::CaptureFiles;
use crate::check::{self, Checked};
use crate::config::Settings;
use crate::events::{ControlEvent, EventHub, Owner};
use crate::mesh::Meshes;
use crate::names;
use crate::nv::Nv;
use crate::paced::Paced;
use crate::pulse::Pulse;
use crate::registry::Registry;
use crate::store::{Store, StoreError};

/// Addresses on which the daemon listens, with port 0 resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// `unix:PATH`, and `https://ADDR:PORT` if TCP is configured.
    pub control: Vec<String>,
    /// `http://ADDR:PORT/metrics`, if metrics are configured.
    pub metrics_url: Option<String>,
}

/// State that survives the daemon.
pub struct Kept {
    pub store: Arc<Store>,
    /// Settings of the driver and of adapters.
    pub registry: Registry,
    /// NV configuration.
    pub nv: Nv,
}

impl Kept {
    /// Reads the state from the store. This counts as a device reset: the pending NV configuration acts from now on.
    pub fn read(nic: &Nic, store: Store) -> Result<Kept, StoreError> {
        let store = Arc::new(store);
        let registry = Registry::new(nic.clone(), store.clone())?;
        let nv = Nv::new(store.clone())?;
        registry.set_nv(nv.acting());
        // A NIC that has ended already has no adapter either.
        let _ = nic.limit_algorithms(nv.algorithms());
        let _ = nic.stamp_in_real_time(nv.real_time());
        let _ = nic.limit_qos(nv.qos_limits());
        let _ = nic.preset_ports(nv.presets());
        Ok(Kept { store, registry, nv })
    }
}

/// The daemon below gRPC and metrics.
// Wide: the parts of the daemon, each once.
pub struct Control {
    pub nic: Nic,
    /// Settings with which the daemon was started.
    pub settings: Settings,
    /// Addresses on which the daemon listens.
    pub endpoints: Endpoints,
    /// Events of the NIC.
    pub hub: EventHub,
    pub captures: CaptureFiles,
    /// Meshes of ports.
    pub meshes: Meshes,
    pub store: Arc<Store>,
    /// Settings of the driver and of adapters.
    pub registry: Registry,
    /// NV configuration.
    pub nv: Nv,
    /// Whether the data cores turn.
    pub pulse: Pulse,
    /// The switch's address table.
    pub fdb: Paced<Arc<[FdbEntry]>>,
    /// Origins of adapters, ports and fault rules.
    pub origins: Origins,
    /// Scenarios.
    pub stage: Stage,
    /// Whether the daemon is ready, and since when it runs.
    pub life: Life,
    /// Held during each change of an adapter, quality of service or congestion control, so that changes are one after the other.
    change_order: Mutex<()>,
    teams: Mutex<Book>,
    /// Quality of service by path.
    pub(super) subnet: Mutex<Loaded>,
    /// Held while a file is applied, so that files are one after the other.
    pub(super) applying: Mutex<()>,
    /// Reads certificates and roles of the control interface again; see [`super::Reload`].
    pub doors: OnceLock<Doors>,
}

/// Reads the certificates of the control interface again, and takes the roles of these settings, if there are any. An error: what is
/// wrong.
pub type Doors = Box<dyn Fn(Option<&Settings>) -> Result<(), String> + Send + Sync>;

impl Control {
    /// Records that settings of a kind were changed, and by whom.
    pub(super) fn settings_changed(&self, owner: Owner, store: &'static str, what: String, by: &str) {
        self.hub.record(ControlEvent::SettingsChanged {
            owner,
            store,
            what,
            by: by.to_owned(),
        });
    }

    /// Records that a change of settings of a kind was refused, and whose it was.
    pub(super) fn settings_refused(&self, owner: Owner, store: &'static str, what: String, by: &str) {
        self.hub.record(ControlEvent::SettingsRefused {
            owner,
            store,
            what,
            by: by.to_owned(),
        });
    }

    /// Puts the parts together.
    pub fn new(
        nic: Nic,
        settings: Settings,
        endpoints: Endpoints,
        hub: EventHub,
        captures: CaptureFiles,
        kept: Kept,
        pulse: Pulse,
    ) -> Control {
        Control {
            origins: Origins::of(&settings),
            nic,
            settings,
            endpoints,
            hub,
            captures,
            meshes: Meshes::default(),
            store: kept.store,
            registry: kept.registry,
            nv: kept.nv,
            pulse,
            fdb: Paced::default(),
            stage: Stage::default(),
            life: Life::default(),
            change_order: Mutex::default(),
            teams: Mutex::default(),
            subnet: Mutex::default(),
            applying: Mutex::default(),
            doors: OnceLock::new(),
        }
    }

    /// Book of teams. The lock is held during each change of a team, and while a port may go, so that these are one after the other.
    pub fn teams(&self) -> MutexGuard<'_, Book> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held during each change of an adapter, quality of service or congestion control, so that changes are one after the other.
    pub(super) fn change_order(&self) -> MutexGuard<'_, ()> {
        self.change_order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the CPU of a requested data core; `None`: any.
    pub fn data_core(&self, asked: Option<u32>) -> Checked<Option<usize>> {
        let one = |core| check::data_core(i64::from(core), &self.settings.nic.data_cores);
        asked.map(one).transpose()
    }

    pub fn adapter_names(&self) -> BTreeSet<String> {
        self.nic.adapters().into_iter().map(|a| a.spec.name).collect()
    }

    pub fn port_names(&self) -> BTreeSet<String> {
        self.nic.ports().into_iter().map(|p| p.spec.name).collect()
    }
}

/// Origins of adapters and ports, by name, and of fault rules and multicast groups, by resource name.
pub struct Origins {
    /// Names from the configuration.
    configured: Mutex<BTreeSet<String>>,
    /// Adapters and ports that were made at run time and are stored.
    stored: Mutex<BTreeSet<String>>,
    /// Adapters and ports that have no data core of their own: the NIC has chosen one.
    anywhere: Mutex<BTreeSet<String>>,
}

fn lock(names: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Origins {
    fn of(settings: &Settings) -> Origins {
        let adapters = settings.adapters.iter().map(|a| a.name.clone());
        let ports = settings.ports.iter().map(|p| p.name.clone());
        let faults = settings.faults.iter().map(|f| names::of(names::FAULTS, &f.name));
        let verbs = settings.verbs_faults.iter();
        let verbs = verbs.map(|f| names::of(names::VERBS_FAULTS, &f.name));
        let groups = settings.subnet_groups.iter();
        let groups = groups.map(|(name, _)| names::of(names::SUBNET_GROUPS, name));
        let all = adapters.chain(ports).chain(faults).chain(verbs).chain(groups);
        Origins {
            configured: Mutex::new(all.collect()),
            stored: Mutex::default(),
            anywhere: Mutex::default(),
        }
    }

    /// Whether the adapter, port, rule or group is of the configuration.
    pub fn is_configured(&self, name: &str) -> bool {
        lock(&self.configured).contains(name)
    }

    /// Whether the adapter or port was made at run time and is stored.
    pub fn is_stored(&self, name: &str) -> bool {
        lock(&self.stored).contains(name)
    }

    /// Whether the NIC has chosen the data core of the adapter or port.
    pub fn is_anywhere(&self, name: &str) -> bool {
        lock(&self.anywhere).contains(name)
    }

    /// Notes which data core was asked for.
    pub(super) fn set_core(&self, name: &str, asked: Option<usize>) {
        let mut anywhere = lock(&self.anywhere);
        match asked {
            None => anywhere.insert(name.to_owned()),
            Some(_) => anywhere.remove(name),
        };
    }

    /// Notes that the adapter, port or rule is of the configuration, and not stored.
    pub(super) fn set_configured(&self, name: &str) {
        lock(&self.stored).remove(name);
        lock(&self.configured).insert(name.to_owned());
    }

    /// Notes that the adapter or port was made at run time and is stored.
    pub(super) fn set_stored(&self, name: &str) {
        lock(&self.stored).insert(name.to_owned());
    }

    /// Forgets the origin of a removed adapter, port or rule: a new one of its name is not of the configuration.
    pub(super) fn forget(&self, name: &str) {
        for set in [&self.configured, &self.stored, &self.anywhere] {
            lock(set).remove(name);
        }
    }
}

/// Readiness and end of the daemon.
pub struct Life {
    /// When the daemon started.
    pub started: (SystemTime, Instant),
    ready: AtomicBool,
    ending: watch::Sender<bool>,
}

impl Default for Life {
    fn default() -> Life {
        Life {
            started: (SystemTime::now(), Instant::now()),
            ready: AtomicBool::new(false),
            ending: watch::Sender::new(false),
        }
    }
}

impl Life {
    /// Whether all sockets of the configuration listen and the daemon is not ending.
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Notes that all sockets of the configuration listen.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Begins the end of the daemon: it is no longer ready, and streams end.
    pub fn begin_shutdown(&self) {
        self.ready.store(false, Ordering::Release);
        self.ending.send_replace(true);
    }

    /// Returns when the daemon ends.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ending = self.ending.subscribe();
        async move {
            // An error means that the sender is gone, which is an end, too.
            let _ = ending.wait_for(|ending| *ending).await;
        }
    }
}
