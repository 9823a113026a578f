//! Adapters of the control plane.

use std::sync::Arc;

use vnic_engine::settings::{AdapterSettings, CongestionKeys, QosKeys};

use super::state::{AdapterEntry, RdmaEntry, not_found};
use super::{Inner, Nic, congestion, qos, settings};
use crate::check;
use crate::datapath::{AdapterCounters, Side};
use crate::rdma::{Function, Identity, RdmaCounters, device_config};
use crate::types::*;
use crate::vhost::{self, Endpoint};

/// Setup of an adapter: its parameters, and the settings that act on it before a guest can attach.
pub struct AdapterSetup {
    /// Parameters of the adapter.
    pub spec: AdapterSpec,
    /// Settings of the adapter's registry.
    pub settings: AdapterSettings,
    /// Quality of service.
    pub qos: QosSpec,
    /// Congestion control.
    pub congestion: CongestionSpec,
}

impl From<AdapterSpec> for AdapterSetup {
    /// Makes the setup of a new adapter with default settings.
    fn from(spec: AdapterSpec) -> AdapterSetup {
        AdapterSetup {
            spec,
            settings: AdapterSettings::default(),
            qos: QosSpec::default(),
            congestion: CongestionSpec::default(),
        }
    }
}

impl Nic {
    /// Adds an adapter and opens its socket. On return the socket listens, and the whole setup acts. An error about a setting
    /// names its key.
    pub fn add_adapter(&self, setup: impl Into<AdapterSetup>) -> Result<AdapterStatus, NicError> {
        let AdapterSetup {
            mut spec,
            settings,
            qos,
            congestion,
        } = setup.into();
        congestion::check(&congestion)?;
        check::adapter(&spec, &self.inner.config)?;
        check::settings(&settings, &spec)?;
        let change = qos::change(&qos, &settings.qos)?;
        let plain =
            congestion == CongestionSpec::default() && settings.congestion == CongestionKeys::default();
        let default = qos == QosSpec::default() && settings.qos == QosKeys::default();
        let mut state = self.inner.state()?;
        state.free_name("adapter", &spec.name)?;
        for (field, macs) in [("macs", &spec.macs), ("mac-address-list", &settings.macs)] {
            check::free_macs(field, macs, state.adapters.values().map(AdapterEntry::owned))?;
        }
        if state.adapters.len() >= ADAPTERS_MAX {
            return Err(NicError::Limit(format!(
                "a NIC has at most {ADAPTERS_MAX} adapters"
            )));
        }
        let load = |core: usize| state.adapters.values().filter(|e| e.adapter.core == core).count();
        let core = self.inner.core_for(spec.data_core, load);
        spec.data_core = Some(self.inner.config.data_cores[core]);
        let id = state.free_id();
        let counters = Arc::new(AdapterCounters::new(usize::from(spec.queue_pairs)));
        let (workers, hub) = (self.inner.workers.clone(), self.inner.hub.clone());
        let adapter = Arc::new(Endpoint::new(spec, id, core, counters, workers, hub)?);
        let config = settings::port_config(&adapter, &settings);
        let allowed = AllowedAddresses::new(&adapter.spec.allowed_addresses);
        let side = Side::Adapter(adapter.counters.clone(), allowed);
        self.inner.add_to_cores(id, core, &config, side);
        let mut entry = AdapterEntry {
            adapter,
            rdma: None,
            wanted: settings.clone(),
            qos,
            congestion,
            threads: Vec::new(),
        };
        let opened = self.inner.add_rdma(&mut entry, config.vlan).and_then(|()| {
            if !default {
                self.inner.send_qos(entry.adapter.id, change);
            }
            self.inner.start_with(&entry.adapter, settings, true);
            if !plain {
                self.inner.send_congestion(&entry);
            }
            open_sockets(&mut entry, self.inner.config.confine)
        });
        if let Err(error) = opened {
            self.inner.end_adapter(&mut entry);
            return Err(error);
        }
        let adapter = &entry.adapter;
        let name = adapter.spec.name.clone();
        let status = adapter.status();
        state.names.insert(id, name.clone());
        state.adapters.insert(name.clone(), entry);
        self.inner.bind_faults(&state, &name);
        drop(state);
        self.inner.hub.publish(&name, NicEventKind::AdapterAdded);
        Ok(status)
    }

    /// Detaches the adapter's guest and removes it and its socket.
    pub fn remove_adapter(&self, name: &str) -> Result<(), NicError> {
        let entry = self.inner.state()?.adapters.remove(name);
        let mut entry = entry.ok_or_else(|| not_found("adapter", name))?;
        self.inner.end_adapter(&mut entry);
        self.inner.forget(entry.adapter.id, name);
        self.inner.hub.publish(name, NicEventKind::AdapterRemoved);
        Ok(())
    }

    /// Applies settings that wait for a restart ([`Nic::configure_adapter`]), and closes the connection to the adapter's
    /// guest, so that its link goes down and comes back when its VMM reconnects.
    pub fn restart_adapter(&self, name: &str) -> Result<AdapterStatus, NicError> {
        let (adapter, rdma) = self.inner.endpoints(name)?;
        self.apply_waiting(name)?;
        adapter.restart();
        if let Some(rdma) = rdma {
            rdma.restart();
        }
        Ok(adapter.status())
    }

    /// Status of an adapter.
    pub fn adapter(&self, name: &str) -> Result<AdapterStatus, NicError> {
        Ok(self.inner.adapter(name)?.status())
    }

    /// Status of all adapters, by name.
    pub fn adapters(&self) -> Vec<AdapterStatus> {
        let state = self.inner.lock();
        state.adapters.values().map(|e| e.adapter.status()).collect()
    }
}

impl Inner {
    /// Gives an adapter its RDMA function, if it is to have one.
    fn add_rdma(&self, entry: &mut AdapterEntry, vlans: VlanMode) -> Result<(), NicError> {
        let spec = &entry.adapter.spec;
        let (Some(_), Some(&mac)) = (&spec.rdma_socket, spec.macs.first()) else {
            return Ok(());
        };
        let counters = Arc::new(RdmaCounters::default());
        let config = device_config(mac, spec.mtu, spec.rdma_memory_mib);
        let identity = Identity::new(mac, vlans, self.gids.clone()).allowing(&spec.allowed_addresses);
        let function =
            Function::new(config, identity, counters.clone()).map_err(|e| NicError::Limit(e.to_string()))?;
        let id = entry.adapter.id;
        self.workers[entry.adapter.core].post(move |w| w.add_function(id, function));
        entry.rdma = Some(RdmaEntry {
            endpoint: Arc::new(entry.adapter.rdma()?),
            counters,
        });
        Ok(())
    }

    /// Ends an adapter: its sockets, then its port of the switch.
    pub(super) fn end_adapter(&self, entry: &mut AdapterEntry) {
        for endpoint in entry.endpoints() {
            endpoint.end();
        }
        for (endpoint, thread) in entry.threads.drain(..) {
            let _ = thread.join();
            endpoint.remove_socket();
        }
        self.remove_from_cores(entry.adapter.id);
    }
}

/// Opens the sockets of an adapter; they listen on return.
fn open_sockets(entry: &mut AdapterEntry, confine: bool) -> Result<(), NicError> {
    let endpoints: Vec<_> = entry.endpoints().cloned().collect();
    for endpoint in endpoints {
        let thread = vhost::spawn(endpoint.clone(), confine)?;
        entry.threads.push((endpoint, thread));
    }
    Ok(())
}
