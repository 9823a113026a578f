//! Quality of service on a data core.
//!
//! ```text
//!  guest ring ─▶ tx ─▶ sender: classify, limits, pause obeyed ─▶ switch ─▶ receiver's queues ─▶ guest or wire
//!                        ▲ waits in the ring, or in a send                      │ no room
//!                        │ queue of its priority                                ▼
//!                        └───────────────── Pauses ◀─────────────── XOFF by source and priority
//! ```
//!
//! Where nothing is configured for a port there is none of this: one look at an `Option` a frame.

mod pauses;
mod spans;

use std::sync::Arc;

use vnic_engine::rdma::Marking;
use vnic_fabric::qos::{PauseSettings, PortQos};
use vnic_fabric::switch::PortId;

pub use pauses::{PauseState, Pauses};
pub use spans::PauseSpans;

/// What the control plane tells all cores about a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosChange {
    /// What acts.
    pub qos: PortQos,
    /// How RDMA packets of the adapter are marked.
    pub marking: Marking,
}

/// What a core knows of the ports, its own and those of others.
pub struct PortsQos {
    /// By [`PortId`]; those that nobody has configured have the default.
    ports: Vec<Option<Arc<QosChange>>>,
    /// An adapter and an uplink where nobody has said anything.
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
            // It sends and obeys global pause, as *FlowControl says for adapters.
            uplink: plain(PauseSettings {
                global_tx: true,
                global_rx: true,
                pfc: 0,
            }),
        }
    }
}

impl PortsQos {
    /// Of one port, if it differs from the default.
    #[inline]
    pub fn get(&self, port: PortId) -> Option<&Arc<QosChange>> {
        self.ports.get(usize::from(port.0))?.as_ref()
    }

    /// What acts at a port, configured or not, that is an uplink or is none.
    pub fn acting(&self, port: PortId, is_uplink: bool) -> Arc<QosChange> {
        let default = if is_uplink { &self.uplink } else { &self.adapter };
        self.get(port).unwrap_or(default).clone()
    }

    /// All that are configured.
    pub fn all(&self) -> impl Iterator<Item = (PortId, &QosChange)> {
        let ports = (0..).zip(&self.ports);
        ports.filter_map(|(i, change)| Some((PortId(i), &**change.as_ref()?)))
    }

    /// Of one port from now on; nothing: the default.
    pub fn set(&mut self, port: PortId, change: Option<Arc<QosChange>>) {
        let i = usize::from(port.0);
        if self.ports.len() <= i {
            self.ports.resize_with(i + 1, || None);
        }
        self.ports[i] = change;
    }
}
