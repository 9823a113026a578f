//! An uplink port in the control plane.

use std::sync::Arc;

use vnic_engine::settings::QosKeys;
use vnic_fabric::dcbx::{Source, taken};
use vnic_fabric::switch::PortConfig;
use vnic_wire::qos::Trust;
use vnic_wire::{EtherType, roce};

use super::discovery::Discovery;
use crate::datapath::PortCounters;
use crate::types::*;
use crate::uplink::Stamping;

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
    /// Most classes, and most priorities with flow control (NV configuration).
    pub limits: QosLimits,
    /// Link layer discovery, while it speaks or listens.
    pub lldp: Option<Discovery>,
    /// What the NV configuration wants of it, while its own link layer discovery is disabled.
    pub preset: PortPreset,
    /// Index of the network interface that is open; `None`: the device is gone.
    pub index: Option<u32>,
    /// Reason why the link cannot come up.
    pub problem: Option<String>,
    /// How frames come and go, as a text.
    pub mode: String,
    /// Stamping of the device's hardware, if it has any.
    pub stamping: Option<Arc<Stamping>>,
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

    /// The operator's configuration, limited to what the port can have.
    pub fn limited(&self, spec: &QosSpec) -> QosSpec {
        limited(&spec.within(self.limits), self.spec.speed_mbps)
    }

    /// What acts: the operator's configuration, limited to what the port can have, with what was taken from the peer by data center
    /// bridging exchange.
    pub fn operational(&self) -> QosSpec {
        let mut acts = self.limited(&self.qos);
        let Some(dcbx) = self.lldp.as_ref().and_then(|of| of.agent.dcbx()) else {
            return acts;
        };
        let outcome = dcbx.outcome();
        let (sources, told) = (outcome.sources, &outcome.operational);
        if sources.ets == Source::Peer {
            acts.classes = taken(&told.classes, acts.classes.limit);
        }
        if sources.pfc == Source::Peer {
            acts.pfc = told.pfc;
        }
        if sources.applications == Source::Peer {
            apply(&told.applications, &mut acts.keys);
        }
        acts
    }

    /// Priority of RDMA by the peer's table of applications: that of UDP port 4791 (RoCE v2), otherwise of EtherType 0x8915 (RoCE v1).
    pub fn rdma_priority(&self) -> Option<u8> {
        let outcome = self.lldp.as_ref()?.agent.dcbx()?.outcome();
        if outcome.sources.applications != Source::Peer {
            return None;
        }
        let of = |selectors: &[u8], protocol: u16| {
            let rows = &outcome.operational.applications;
            let row = rows
                .iter()
                .find(|row| selectors.contains(&row.selector) && row.protocol == protocol);
            row.map(|row| row.priority)
        };
        of(&[3, 4], roce::UDP_PORT).or_else(|| of(&[1], EtherType::ROCE.0))
    }

    /// Status of the port, without its device.
    pub fn status(&self) -> PortStatus {
        PortStatus {
            spec: self.spec.clone(),
            port: self.id,
            up: self.up,
            problem: self.problem.clone(),
            mode: self.index.map(|_| self.mode.clone()).unwrap_or_default(),
            lldp: self.lldp.as_ref().map(|of| {
                let pfc = match self.qos.disabled {
                    true => 0,
                    false => self.operational().pfc,
                };
                of.status(pfc, &self.counters)
            }),
            device: None,
        }
    }
}

/// Lets rows of a table of applications act that name a field of received frames: a DSCP, which then names the priority before a tag
/// does, and EtherType 0, which stands for all others (IEEE 802.1Q, Application Priority TLV). Other rows are for programs, which ask for them.
fn apply(rows: &[dcbx::Application], keys: &mut QosKeys) {
    let mut map = keys.acting_dscp_map();
    let mut by_dscp = false;
    for row in rows {
        match (row.selector, row.protocol) {
            (1, 0) => keys.priorities.default_priority = row.priority,
            (5, dscp) => {
                if let Some(priority) = map.get_mut(usize::from(dscp)) {
                    (*priority, by_dscp) = (row.priority, true);
                }
            }
            _ => {}
        }
    }
    if by_dscp {
        keys.set_dscp_map(map);
        keys.priorities.trust = match keys.priorities.trust {
            Trust::Port | Trust::Dscp => Trust::Dscp,
            Trust::Pcp | Trust::Both => Trust::Both,
        };
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
