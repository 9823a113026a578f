//! Room for what waits at a port, by source and priority: when a source is told to wait (XOFF) and to go on (XON), and what
//! is dropped (IEEE 802.1Q clause 36 and annex N).

use super::PortQos;
use crate::DropReason;

/// A source is told something else than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Port it is told to.
    pub source: u16,
    /// Priorities that shall wait, a bit each; all others may go.
    pub xoff: u8,
}

/// See the module.
#[derive(Debug)]
pub struct Buffers {}

impl Buffers {
    /// Empty.
    pub fn new(_qos: &PortQos) -> Buffers {
        todo!()
    }

    /// Another configuration; what waits stays. May bring changes.
    pub fn configure(&mut self, _qos: &PortQos) {
        todo!()
    }

    /// Something of so many bytes wants in: it is in, or it is dropped for this reason.
    pub fn admit(&mut self, _source: u16, _priority: u8, _bytes: u32) -> Result<(), DropReason> {
        todo!()
    }

    /// It is out.
    pub fn release(&mut self, _source: u16, _priority: u8, _bytes: u32) {
        todo!()
    }

    /// Nobody is told to wait any more (storm prevention), or everybody may be again.
    pub fn set_silent(&mut self, _silent: bool) {
        todo!()
    }

    /// What a source is told, whenever it changes.
    pub fn poll_change(&mut self) -> Option<Change> {
        todo!()
    }

    /// Priorities of which any source is told to wait, a bit each.
    pub fn pausing(&self) -> u8 {
        todo!()
    }

    /// Bytes in use, all together.
    pub fn used(&self) -> u64 {
        todo!()
    }
}
