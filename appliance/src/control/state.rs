//! What the daemon consists of while it runs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::watch;
use vnic_backend::{FdbEntry, Nic};

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

/// Where the daemon really listens (port 0 resolved).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// `unix:PATH`, then `https://ADDR:PORT` where TCP was asked for.
    pub control: Vec<String>,
    /// `http://ADDR:PORT/metrics`.
    pub metrics_url: Option<String>,
}

/// What survives the daemon.
pub struct Kept {
    /// Where it is.
    pub store: Arc<Store>,
    /// Settings of the driver and of adapters.
    pub registry: Registry,
    /// NV configuration.
    pub nv: Nv,
}

impl Kept {
    /// Reads it. The device is reset by this: what was to be next in the NV configuration counts from now on.
    pub fn read(nic: &Nic, store: Store) -> Result<Kept, StoreError> {
        let store = Arc::new(store);
        let registry = Registry::new(nic.clone(), store.clone())?;
        let nv = Nv::new(store.clone())?;
        registry.set_roce_off(nv.roce_off());
        Ok(Kept { store, registry, nv })
    }
}

/// A daemon without its faces: the NIC, what is known of it besides, and what survives it.
pub struct Control {
    /// The NIC.
    pub nic: Nic,
    /// What the daemon was started with.
    pub settings: Settings,
    /// Where it listens.
    pub endpoints: Endpoints,
    /// Events of the NIC.
    pub hub: EventHub,
    /// Captures to files.
    pub captures: CaptureFiles,
    /// Meshes of ports.
    pub meshes: Meshes,
    /// What survives the daemon.
    pub store: Arc<Store>,
    /// Settings of the driver and of adapters.
    pub registry: Registry,
    /// NV configuration.
    pub nv: Nv,
    /// Do the data cores turn?
    pub pulse: Pulse,
    /// The switch's address table.
    pub fdb: Paced<Arc<[FdbEntry]>>,
    /// Where adapters, ports and fault rules come from.
    pub origins: Origins,
    /// Whether the daemon is up, and since when.
    pub life: Life,
    /// Held while quality of service is looked at and changed: nothing comes between.
    qos_order: Mutex<()>,
    teams: Mutex<Book>,
}

impl Control {
    /// Records that settings of this kind were changed, and by whom.
    pub(super) fn settings_changed(&self, owner: Owner, store: &'static str, what: String, by: &str) {
        self.hub.record(ControlEvent::SettingsChanged {
            owner,
            store,
            what,
            by: by.to_owned(),
        });
    }

    /// Records that a change of settings of this kind was refused, and whose it was.
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
            life: Life::default(),
            qos_order: Mutex::default(),
            teams: Mutex::default(),
        }
    }

    /// Teams. Held while one is looked at and changed, or a port of one may go: nothing comes between.
    pub fn teams(&self) -> MutexGuard<'_, Book> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while quality of service or congestion control is looked at and changed: nothing comes between.
    pub(super) fn qos_order(&self) -> MutexGuard<'_, ()> {
        self.qos_order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The CPU of a data core that is asked for; none: any.
    pub fn data_core(&self, asked: Option<u32>) -> Checked<Option<usize>> {
        let one = |core| check::data_core(i64::from(core), &self.settings.nic.data_cores);
        asked.map(one).transpose()
    }

    /// Names of the adapters that there are.
    pub fn adapter_names(&self) -> BTreeSet<String> {
        self.nic.adapters().into_iter().map(|a| a.spec.name).collect()
    }

    /// Names of the ports that there are.
    pub fn port_names(&self) -> BTreeSet<String> {
        self.nic.ports().into_iter().map(|p| p.spec.name).collect()
    }
}

/// Where adapters and ports, by name, and fault rules, by resource name, come from.
pub struct Origins {
    /// These are as the configuration says.
    configured: Mutex<BTreeSet<String>>,
    /// These adapters were made at run time and are stored.
    stored: Mutex<BTreeSet<String>>,
}

fn lock(names: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Origins {
    fn of(settings: &Settings) -> Origins {
        let adapters = settings.adapters.iter().map(|a| a.name.clone());
        let ports = settings.ports.iter().map(|p| p.name.clone());
        let faults = settings.faults.iter().map(|f| names::of(names::FAULTS, &f.name));
        Origins {
            configured: Mutex::new(adapters.chain(ports).chain(faults).collect()),
            stored: Mutex::default(),
        }
    }

    /// Is the adapter, port or rule as the configuration says?
    pub fn is_configured(&self, name: &str) -> bool {
        lock(&self.configured).contains(name)
    }

    /// Is it an adapter that was made at run time and is stored?
    pub fn is_stored(&self, name: &str) -> bool {
        lock(&self.stored).contains(name)
    }

    /// It is an adapter that was made at run time and is stored.
    pub(super) fn set_stored(&self, name: &str) {
        lock(&self.stored).insert(name.to_owned());
    }

    /// The adapter, port or rule was removed: a new one of this name is not that of the configuration.
    pub(super) fn forget(&self, name: &str) {
        for set in [&self.configured, &self.stored] {
            lock(set).remove(name);
        }
    }
}

/// Whether the daemon is up.
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
    /// All sockets of the configuration listen, and the daemon is not ending.
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// All sockets of the configuration listen.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// The daemon ends: streams must.
    pub fn begin_shutdown(&self) {
        self.ready.store(false, Ordering::Release);
        self.ending.send_replace(true);
    }

    /// Returns when the daemon ends.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ending = self.ending.subscribe();
        async move {
            // An error means that the daemon is gone: that is an end, too.
            let _ = ending.wait_for(|ending| *ending).await;
        }
    }
}
