//! Failures of a function on purpose: what its port says, and whether the device is there.

use vnic_device::event::EventKind;

use super::session::Session;
use crate::types::RdmaPort;

/// The one port of a function.
pub const PORT: u32 = 1;

/// What a function pretends; all seats of it pretend the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outage {
    /// What the port says.
    pub port: RdmaPort,
    /// Whether the device is gone: no driver may say HELLO.
    pub away: bool,
}

impl Outage {
    /// Sets what the port says of itself. The driver hears of a port that came up or went down.
    pub fn set_port(&mut self, port: RdmaPort, driver: &mut Session) {
        let before = std::mem::replace(&mut self.port, port);
        if before.down != port.down && driver.hello {
            let kind = match port.down {
                true => EventKind::PortError,
                false => EventKind::PortActive,
            };
            driver.events.push(kind, PORT, 0);
        }
    }
}
