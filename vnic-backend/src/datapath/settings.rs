//! Settings of adapters on their data core.

use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::PortId;

use super::worker::Worker;

impl Worker {
    /// Settings act from now on, also on queues that are started later: those find them at the adapter.
    pub(super) fn configure(&mut self, id: PortId, settings: &AdapterSettings) {
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        adapter.settings.clone_from(settings);
    }
}
