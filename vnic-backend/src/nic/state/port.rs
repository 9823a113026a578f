//! An uplink port, as the control plane knows it.

use std::sync::Arc;

use vnic_fabric::switch::PortConfig;

use crate::datapath::PortCounters;
use crate::types::*;

/// An uplink port.
pub struct PortEntry {
    /// What it was made from; `data_core` is filled in.
    pub spec: PortSpec,
    /// Its port of the switch.
    pub id: PortId,
    /// Index of its data core.
    pub core: usize,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// Link state of the device.
    pub up: bool,
    /// Quality of service that was given last.
    pub qos: QosSpec,
    /// Index of the network interface that is open; nothing: the device is gone.
    pub index: Option<u32>,
    /// Why the link cannot come up.
    pub problem: Option<String>,
    /// How its frames come and go, in words.
    pub mode: String,
}

impl PortEntry {
    /// The settings of its port of the switch.
    pub fn config(&self) -> PortConfig {
        PortConfig {
            vlan: self.spec.vlan.clone(),
            learning: true,
            ..PortConfig::default()
        }
    }

    /// What an operator configured, at the port's speed at most.
    pub fn limited(&self, spec: &QosSpec) -> QosSpec {
        limited(spec, self.spec.speed_mbps)
    }

    /// The port as it is now; nothing is asked of its device.
    pub fn status(&self) -> PortStatus {
        PortStatus {
            spec: self.spec.clone(),
            port: self.id,
            up: self.up,
            problem: self.problem.clone(),
            mode: self.index.map(|_| self.mode.clone()).unwrap_or_default(),
            device: None,
        }
    }
}

/// What an operator configured, at this speed at most.
pub fn limited(spec: &QosSpec, mbps: Option<u32>) -> QosSpec {
    let speed = mbps.map(|mbps| u64::from(mbps) * 1_000_000);
    let rate = match (spec.rate, speed) {
        (rate, None) => rate,
        (0, Some(speed)) => speed,
        (rate, Some(speed)) => rate.min(speed),
    };
    QosSpec { rate, ..spec.clone() }
}
