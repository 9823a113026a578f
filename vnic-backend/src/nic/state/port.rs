//! An uplink port in the control plane.

use std::sync::Arc;

use vnic_fabric::switch::PortConfig;

use super::discovery::Discovery;
use crate::datapath::PortCounters;
use crate::types::*;

/// An uplink port.
pub struct PortEntry {
    /// Specification of the port; `data_core` is filled in.
    pub spec: PortSpec,
    /// Port of the switch.
    pub id: PortId,
    /// Index of the data core.
    pub core: usize,
    /// Counters of the port.
    pub counters: Arc<PortCounters>,
    /// Link state of the device.
    pub up: bool,
    /// Quality of service that was given last.
    pub qos: QosSpec,
    /// Link layer discovery, while it speaks or listens.
    pub lldp: Option<Discovery>,
    /// Index of the network interface that is open; `None`: the device is gone.
    pub index: Option<u32>,
    /// Reason why the link cannot come up.
    pub problem: Option<String>,
    /// How frames come and go, as a text.
    pub mode: String,
}

impl PortEntry {
    /// Configuration of the port of the switch.
    pub fn config(&self) -> PortConfig {
        PortConfig {
            vlan: self.spec.vlan.clone(),
            learning: true,
            ..PortConfig::default()
        }
    }

    /// The operator's configuration, limited to the port's speed.
    pub fn limited(&self, spec: &QosSpec) -> QosSpec {
        limited(spec, self.spec.speed_mbps)
    }

    /// Status of the port, without its device.
    pub fn status(&self) -> PortStatus {
        PortStatus {
            spec: self.spec.clone(),
            port: self.id,
            up: self.up,
            problem: self.problem.clone(),
            mode: self.index.map(|_| self.mode.clone()).unwrap_or_default(),
            lldp: self
                .lldp
                .as_ref()
                .map(|of| of.status(if self.qos.disabled { 0 } else { self.qos.pfc })),
            device: None,
        }
    }
}

/// The operator's configuration, limited to this speed.
pub fn limited(spec: &QosSpec, mbps: Option<u32>) -> QosSpec {
    let speed = mbps.map(|mbps| u64::from(mbps) * 1_000_000);
    let rate = match (spec.rate, speed) {
        (rate, None) => rate,
        (0, Some(speed)) => speed,
        (rate, Some(speed)) => rate.min(speed),
    };
    QosSpec { rate, ..spec.clone() }
}
