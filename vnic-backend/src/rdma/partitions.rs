//! P_Keys of a function, and reports of packets that came with others: one a second at most.

use std::time::Duration;

use vnic_device::event::EventKind;
use vnic_engine::rdma::{Device, PkeyViolation};
use vnic_fabric::Instant;
use vnic_wire::pkey::PkeyTable;

use super::outage::PORT;
use super::session::Session;

/// Time between two reports.
const EVERY: Duration = Duration::from_secs(1);
/// First minor version of the contract that has the event of another table.
const TOLD_SINCE: u16 = 9;

/// P_Keys of a function or of a seat, and packets with others that were not reported yet.
#[derive(Debug, Default)]
pub struct Partitions {
    table: PkeyTable,
    /// Packets of seats.
    gathered: Option<PkeyViolation>,
    /// No report before this time.
    after: Instant,
}

/// Adds what a second report says to a first one, of which the packet is told.
fn add(sum: &mut Option<PkeyViolation>, more: Option<PkeyViolation>) {
    match (sum, more) {
        (Some(sum), Some(more)) => sum.packets += more.packets,
        (sum @ None, more) => *sum = more,
        _ => {}
    }
}

impl Partitions {
    /// Sets the P_Keys of a device, under traffic; its driver hears of it.
    pub fn set(&mut self, table: PkeyTable, device: &mut Device, driver: &mut Session) {
        self.table = table;
        if *device.pkeys() == table {
            return;
        }
        device.set_pkeys(table);
        if driver.hello && driver.minor >= TOLD_SINCE {
            driver.events.push(EventKind::PkeyChange, PORT, 0);
        }
    }

    /// Gives a device that nobody uses yet the P_Keys.
    pub fn begin(&self, device: &mut Device) {
        device.set_pkeys(self.table);
    }

    /// Those of a seat beside the function, or of a function in place of this one.
    pub fn table(&self) -> PkeyTable {
        self.table
    }

    /// Takes what the device of a seat has to report.
    pub fn gather(&mut self, seat: &mut Device) {
        add(&mut self.gathered, seat.take_pkey_violation());
    }

    /// Packets since the last report, when one is due.
    pub fn take(&mut self, now: Instant, device: &mut Device) -> Option<PkeyViolation> {
        if now < self.after {
            return None;
        }
        let mut all = self.gathered.take();
        add(&mut all, device.take_pkey_violation());
        if all.is_some() {
            self.after = now + EVERY;
        }
        all
    }

    /// Whether there is something to report, sooner or later.
    pub fn is_waiting(&self, device: &Device) -> bool {
        self.gathered.is_some() || device.has_pkey_violation()
    }

    /// When the report is due that waits, if one does.
    pub fn due(&self, device: &Device) -> Option<Instant> {
        self.is_waiting(device).then_some(self.after)
    }
}
