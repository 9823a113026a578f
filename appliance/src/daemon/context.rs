//! What the parts of the daemon share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::watch;
use vnic_backend::{FdbEntry, Nic};

use super::pulse::Pulse;
use crate::capture::CaptureFiles;
use crate::config::Settings;
use crate::events::EventHub;
use crate::mesh::Meshes;
use crate::names;
use crate::nv::Nv;
use crate::paced::Paced;
use crate::registry::Registry;
use crate::store::{Store, StoreError};
use crate::teams::Book;

/// Where the daemon really listens (port 0 resolved).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// `unix:PATH`, then `https://ADDR:PORT` where TCP was asked for.
    pub control: Vec<String>,
    /// `http://ADDR:PORT/metrics`.
    pub metrics_url: Option<String>,
}

/// What survives the daemon.
pub struct Stored {
    /// Where it is.
    pub store: Arc<Store>,
    /// Settings of the driver and of adapters.
    pub registry: Registry,
    /// NV configuration.
    pub nv: Nv,
}

impl Stored {
    /// Reads it. The device is reset by this: what was to be next in the NV configuration counts from now on.
    pub fn read(nic: &Nic, store: Store) -> Result<Stored, StoreError> {
        let store = Arc::new(store);
        let registry = Registry::new(nic.clone(), store.clone())?;
        let nv = Nv::new(store.clone())?;
        registry.set_roce_off(nv.roce_off());
        Ok(Stored { store, registry, nv })
    }
}

/// What the parts of the daemon share.
// Wide: it is where the parts of the daemon meet, each of them a type of its own.
pub struct Context {
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
    /// Held while quality of service is looked at and changed: nothing comes between.
    pub qos_order: Mutex<()>,
    teams: Mutex<Book>,
    /// When the daemon started.
    pub started: (SystemTime, Instant),
    /// Adapters and ports that are as the configuration says, by name, and fault rules, by resource name.
    configured: Mutex<BTreeSet<String>>,
    /// Adapters that were made at run time and are stored, by name.
    stored: Mutex<BTreeSet<String>>,
    ready: AtomicBool,
    ending: watch::Sender<bool>,
}

impl Context {
    /// Puts the parts together.
    pub fn new(
        nic: Nic,
        settings: Settings,
        endpoints: Endpoints,
        hub: EventHub,
        captures: CaptureFiles,
        stored: Stored,
        pulse: Pulse,
    ) -> Context {
        let adapters = settings.adapters.iter().map(|a| a.name.clone());
        let ports = settings.ports.iter().map(|p| p.name.clone());
        let faults = settings.faults.iter().map(|f| names::of(names::FAULTS, &f.name));
        Context {
            configured: Mutex::new(adapters.chain(ports).chain(faults).collect()),
            stored: Mutex::default(),
            nic,
            settings,
            endpoints,
            hub,
            captures,
            meshes: Meshes::default(),
            store: stored.store,
            registry: stored.registry,
            nv: stored.nv,
            pulse,
            fdb: Paced::default(),
            qos_order: Mutex::default(),
            teams: Mutex::default(),
            started: (SystemTime::now(), Instant::now()),
            ready: AtomicBool::new(false),
            ending: watch::Sender::new(false),
        }
    }

    /// Teams. Held while one is looked at and changed, or a port of one may go: nothing comes between.
    pub fn teams(&self) -> MutexGuard<'_, Book> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Is the adapter or port as the configuration says?
    pub fn is_configured(&self, name: &str) -> bool {
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(name)
    }

    /// Is it an adapter that was made at run time and is stored?
    pub fn is_stored(&self, name: &str) -> bool {
        self.stored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(name)
    }

    /// It is an adapter that was made at run time and is stored.
    pub fn set_stored(&self, name: &str) {
        self.stored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned());
    }

    /// The adapter or port was removed: a new one of this name is not that of the configuration.
    pub fn forget_configured(&self, name: &str) {
        for set in [&self.configured, &self.stored] {
            set.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
    }
}
