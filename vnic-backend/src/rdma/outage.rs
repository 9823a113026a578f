//! Failures of a function on purpose: its port, the device, and what the port says of itself.

use vnic_device::event::EventKind;

use super::function::Function;
use crate::types::RdmaPort;

/// The one port of a function.
const PORT: u32 = 1;

/// What a function pretends; all seats of it pretend the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outage {
    /// What the port says.
    pub port: RdmaPort,
    /// Whether the device is gone: no driver may say HELLO.
    pub away: bool,
}

impl Function {
    /// Sets what the port says of itself. A driver hears of a port that came up or went down.
    pub fn set_port(&mut self, port: RdmaPort) {
        let before = std::mem::replace(&mut self.outage.port, port);
        if before.down != port.down && self.session.hello {
            let kind = match port.down {
                true => EventKind::PortError,
                false => EventKind::PortActive,
            };
            self.session.events.push(kind, PORT, 0);
        }
    }

    /// Fails as a whole: all objects end, and the driver hears of it. Only a reset helps.
    pub fn fail(&mut self) {
        if !self.session.hello {
            return;
        }
        self.reset();
        self.session.failed = true;
        self.session.events.push(EventKind::DeviceFatal, 0, 0);
    }

    /// Takes the device away, so that all objects end, or gives it back.
    pub fn set_away(&mut self, away: bool) {
        if away && self.session.hello {
            self.reset();
        }
        self.outage.away = away;
    }
}
