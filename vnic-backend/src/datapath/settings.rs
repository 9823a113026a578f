//! Settings of adapters on their data core.

use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::PortId;

use super::calls::Caller as _;
use super::rings::watch;
use super::worker::Worker;

impl Worker {
    /// Settings act from now on, also on queues that are started later: those find them at the adapter.
    pub(super) fn configure(&mut self, id: PortId, settings: &AdapterSettings) {
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        let before = std::mem::replace(&mut adapter.settings, settings.clone());
        if (before.roce_mode, before.network_direct) != (settings.roce_mode, settings.network_direct) {
            self.set_roce(id, settings);
        }
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        if before.recv_completion != settings.recv_completion {
            for rx in adapter.queues.iter_mut().flatten() {
                rx.set_method(settings.recv_completion.into());
            }
        }
        for tx in self.txs.iter_mut().flatten().filter(|tx| tx.path.port == id) {
            tx.path.batch = settings.tx_coalescing;
            if before.send_completion != settings.send_completion {
                tx.set_method(settings.send_completion.into());
            }
        }
        if (before.burst, before.reserve) != (settings.burst, settings.reserve) {
            if let Some(adapter) = self.core.adapter(id) {
                for rx in adapter.queues.iter().flatten() {
                    watch(settings.burst, rx, id, &self.sleeper, &self.dpc, self.index);
                }
            }
            self.core.reserve_changed(id);
        }
    }
}
