//! The control plane's handle on the running NIC.

use crossbeam_channel::Receiver;

use crate::types::*;

/// A running NIC. Cheap to clone; the data cores stop when [`Nic::shutdown`] is called.
#[derive(Clone)]
pub struct Nic;

/// A running capture; dropping it ends the capture.
pub struct Capture {
    /// The frames, in order of capture.
    pub frames: Receiver<CapturedFrame>,
}

impl Nic {
    /// Starts one pinned poll loop for each data core.
    pub fn start(_config: NicConfig) -> Result<Nic, NicError> {
        Ok(Nic)
    }

    /// Adds an adapter and opens its socket. When this returns, the socket listens.
    pub fn add_adapter(&self, _spec: AdapterSpec) -> Result<AdapterStatus, NicError> {
        Err(NicError::ShuttingDown)
    }

    /// Detaches the adapter's guest and removes it and its socket.
    pub fn remove_adapter(&self, _name: &str) -> Result<(), NicError> {
        Err(NicError::ShuttingDown)
    }

    /// Closes the connection to the adapter's guest, so that its link goes down and comes back when its VMM
    /// reconnects.
    pub fn restart_adapter(&self, _name: &str) -> Result<AdapterStatus, NicError> {
        Err(NicError::ShuttingDown)
    }

    /// One adapter.
    pub fn adapter(&self, _name: &str) -> Result<AdapterStatus, NicError> {
        Err(NicError::ShuttingDown)
    }

    /// All adapters, by name.
    pub fn adapters(&self) -> Vec<AdapterStatus> {
        Vec::new()
    }

    /// Adds an uplink port.
    pub fn add_port(&self, _spec: PortSpec) -> Result<PortStatus, NicError> {
        Err(NicError::ShuttingDown)
    }

    /// Removes an uplink port.
    pub fn remove_port(&self, _name: &str) -> Result<(), NicError> {
        Err(NicError::ShuttingDown)
    }

    /// One uplink port.
    pub fn port(&self, _name: &str) -> Result<PortStatus, NicError> {
        Err(NicError::ShuttingDown)
    }

    /// All uplink ports, by name.
    pub fn ports(&self) -> Vec<PortStatus> {
        Vec::new()
    }

    /// The switch's address table.
    pub fn fdb(&self) -> Vec<FdbEntry> {
        Vec::new()
    }

    /// The name behind a switch port, while it exists.
    pub fn port_name(&self, _port: PortId) -> Option<String> {
        None
    }

    /// Every counter of the NIC, read without stopping the data path.
    pub fn counters(&self) -> Vec<Sample> {
        Vec::new()
    }

    /// Events from now on. A subscriber that falls more than 1024 events behind is disconnected.
    pub fn subscribe(&self) -> Receiver<NicEvent> {
        crossbeam_channel::bounded(1).1
    }

    /// Starts a capture. A reader that falls behind loses frames; the loss is counted.
    pub fn capture(&self, _spec: CaptureSpec) -> Result<Capture, NicError> {
        Err(NicError::ShuttingDown)
    }

    /// Are all data cores turning? (Each answers within the given time, or not.)
    pub fn responsive(&self, _within: std::time::Duration) -> bool {
        true
    }

    /// Closes all connections, stops the data cores, removes the sockets.
    pub fn shutdown(&self) {}
}
