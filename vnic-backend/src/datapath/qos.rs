//! Quality of service on a data core.
//!
//! ```text
//!  guest ring ─▶ tx ─▶ sender: classify, limits, pause obeyed ─▶ switch ─▶ receiver's queues ─▶ guest or wire
//!                        ▲ waits in the ring, or in a send                      │ no room
//!                        │ queue of its priority                                ▼
//!                        └───────────────── Pauses ◀─────────────── XOFF by source and priority
//! ```
//!
//! Without a configuration for a port none of this is there: a check of an `Option` for each frame.

mod pauses;
mod spans;

use std::sync::Arc;

use vnic_engine::rdma::Marking;
use vnic_fabric::qos::{PauseSettings, PortQos};
use vnic_fabric::switch::PortId;

pub use pauses::{PauseState, Pauses};
pub use spans::PauseSpans;

/// Quality of service of a port, as the control plane sends it to all cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosChange {
    /// Settings that act.
    pub qos: PortQos,
    /// Marking of the adapter's RDMA packets.
    pub marking: Marking,
}

/// Quality of service of all ports, as each core has it.
pub struct PortsQos {
    /// Settings by [`PortId`]; `None`: the default.
    ports: Vec<Option<Arc<QosChange>>>,
    /// Defaults of an adapter and of an uplink.
    adapter: Arc<QosChange>,
    uplink: Arc<QosChange>,
}

impl Default for PortsQos {
    fn default() -> PortsQos {
        let plain = |pause| {
            let qos = PortQos {
                pause,
                ..PortQos::default()
            };
            let marking = Marking::default();
            Arc::new(QosChange { qos, marking })
        };
        PortsQos {
            ports: Vec::new(),
            adapter: plain(PauseSettings::default()),
            // An uplink sends and obeys global pause, as `*FlowControl` says for adapters.
            uplink: plain(PauseSettings {
                global_tx: true,
                global_rx: true,
                ..PauseSettings::default()
            }),
        }
    }
}

impl PortsQos {
    /// Settings of a port, if it has any.
    #[inline]
    pub fn get(&self, port: PortId) -> Option<&Arc<QosChange>> {
        self.ports.get(usize::from(port.0))?.as_ref()
    }

    /// Settings that act at a port, configured or not.
    pub fn acting(&self, port: PortId, is_uplink: bool) -> Arc<QosChange> {
        let default = if is_uplink { &self.uplink } else { &self.adapter };
        self.get(port).unwrap_or(default).clone()
    }

    /// All configured ports.
    pub fn all(&self) -> impl Iterator<Item = (PortId, &QosChange)> {
        let ports = (0..).zip(&self.ports);
        ports.filter_map(|(i, change)| Some((PortId(i), &**change.as_ref()?)))
    }

    /// Sets the settings of a port. `None`: the default.
    pub fn set(&mut self, port: PortId, change: Option<Arc<QosChange>>) {
        let i = usize::from(port.0);
        if self.ports.len() <= i {
            self.ports.resize_with(i + 1, || None);
        }
        self.ports[i] = change;
    }
}
