//! Settings of running adapters.

use vnic_engine::dropless::TIMEOUT_MAX;
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::PortConfig;
use vnic_fabric::wake::Wakes;

use super::state::{AdapterEntry, State};
use super::{Inner, Nic, acting};
use crate::check;
use crate::rehearsal::acts;
use crate::types::*;
use crate::vhost::Endpoint;

impl Nic {
    /// Applies settings to an adapter. Those with [`Apply::Restart`](vnic_engine::settings::Apply) wait for
    /// [`Nic::restart_adapter`]. An error leaves everything unchanged and names the key.
    pub fn configure_adapter(&self, name: &str, settings: &AdapterSettings) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        state.check_settings(name, settings)?;
        let entry = state.adapter_mut(name)?;
        acts()?;
        entry.wanted = settings.clone();
        let acting = entry.adapter.settings().at_once(settings);
        // Under the lock, so that two calls reach all cores in the same order.
        self.inner.enforce(entry, acting, false);
        Ok(())
    }

    /// Checks what [`Nic::configure_adapter`] would check. The error names the key and what is allowed.
    pub fn check_adapter_settings(&self, name: &str, settings: &AdapterSettings) -> Result<(), NicError> {
        self.inner.state()?.check_settings(name, settings)
    }

    /// The settings that were given last: some may wait for a restart. [`AdapterStatus::settings`] has those that act.
    pub fn adapter_settings(&self, name: &str) -> Result<AdapterSettings, NicError> {
        let state = self.inner.state()?;
        let entry = state.adapter(name)?;
        Ok(entry.wanted.clone())
    }

    /// Applies settings that wait for a restart of the adapter; a mode that has ended by itself begins again.
    pub(super) fn apply_waiting(&self, name: &str) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        let entry = state.adapter_mut(name)?;
        let wanted = entry.wanted.clone();
        self.inner.enforce(entry, wanted, true);
        Ok(())
    }

    /// Switches dropless mode on (1..=100: longest wait of a frame in 100 µs) or off (0). Each call is reported as an event,
    /// even if nothing changes.
    pub fn set_dropless(&self, name: &str, timeout: u8) -> Result<(), NicError> {
        if timeout > TIMEOUT_MAX {
            let problem = format!("{timeout} is not in 0..={TIMEOUT_MAX} (100 us)");
            return invalid("DelayDropTimeout", problem);
        }
        let adapter = self.inner.adapter(name)?;
        acts()?;
        let id = adapter.id;
        self.inner.workers[adapter.core].call(move |w| w.core.out.set_dropless(id, timeout));
        Ok(())
    }

    /// Dropless mode of an adapter.
    pub fn dropless(&self, name: &str) -> Result<DroplessStatus, NicError> {
        Ok(self.inner.adapter(name)?.dropless())
    }
}

impl State {
    pub(super) fn check_settings(&self, name: &str, settings: &AdapterSettings) -> Result<(), NicError> {
        let entry = self.adapter(name)?;
        let spec = &*entry.adapter.wanted();
        check::settings(settings, spec)?;
        acting::change(&entry.qos, &settings.qos)?;
        check::free_macs("mac-address-list", &settings.macs, self.others(spec))
    }
}

impl Inner {
    /// Sends checked settings to the cores. `anew`: a mode that has ended by itself begins again.
    pub(super) fn enforce(&self, entry: &AdapterEntry, settings: AdapterSettings, anew: bool) {
        let adapter = &entry.adapter;
        let before = adapter.settings();
        if before == settings && !anew {
            return;
        }
        let spec = adapter.spec();
        self.voices.configure(adapter.id, port_config(&spec, &settings));
        let qos = (before.qos != settings.qos)
            .then(|| acting::of_adapter(&entry.qos, &settings.qos, entry.imposed));
        let congestion = before.congestion != settings.congestion;
        self.start_with(adapter, settings, anew);
        if congestion {
            self.send_congestion(entry);
        }
        if let Some(Ok(change)) = qos {
            self.send_qos(adapter.id, change);
        }
    }

    /// Sends settings to the core that serves the adapter; the switch has them. `anew`: a mode that has ended by itself
    /// begins again.
    pub(super) fn start_with(&self, adapter: &Endpoint, settings: AdapterSettings, anew: bool) {
        adapter.set_settings(settings.clone());
        let id = adapter.id;
        self.workers[adapter.core].call(move |w| w.configure(id, settings, anew));
    }
}

/// Configuration of an adapter's port of the switch.
pub(super) fn port_config(spec: &AdapterSpec, settings: &AdapterSettings) -> PortConfig {
    PortConfig {
        vlan: match settings.vlan_id {
            0 => spec.vlan.clone(),
            vlan => VlanMode::Access(vlan),
        },
        macs: spec.macs.iter().chain(&settings.macs).copied().collect(),
        anti_spoofing: spec.anti_spoofing,
        learning: !spec.anti_spoofing,
        default_priority: settings.vlan_prio,
        priority_tags: match settings {
            s if s.tx_untag_priority_tag => PriorityTags::Strip,
            s if s.vlan_id == 0 && s.vlan_prio > 0 => PriorityTags::Add,
            _ => PriorityTags::Keep,
        },
        wakes: Wakes {
            magic: settings.wake_on_magic,
            patterns: match settings.wake_on_pattern {
                true => spec.wake_patterns.clone(),
                false => Vec::new(),
            },
        },
        times_ptp: settings.ptp,
    }
}
