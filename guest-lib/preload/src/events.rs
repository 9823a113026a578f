//! Asynchronous events and completion events, and that objects wait for their acknowledgement.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use crate::devices::Seat;
use crate::errno::Errno;

/// Events that the program took and did not acknowledge yet. Whoever destroys the object waits until there are none.
#[derive(Debug, Default)]
pub struct Unacknowledged {}

/// Where asynchronous events of one context wait.
#[derive(Debug)]
pub struct Mailbox {
    ready: OwnedFd,
}

impl Mailbox {
    /// The mailbox of a new context.
    pub fn open(_seat: &Arc<Seat>) -> Result<Arc<Mailbox>, Errno> {
        let ready = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .map_err(|e| Errno(e.raw_os_error()))?;
        Ok(Arc::new(Mailbox { ready }))
    }

    /// Readable while events wait.
    pub fn fd(&self) -> c_int {
        self.ready.as_raw_fd()
    }
}

/// Brings the events of a device to the contexts that they concern.
#[derive(Debug)]
pub struct Dispatcher {}

impl Dispatcher {
    /// The dispatcher of a device.
    pub fn new(_device: &vnic_verbs::Context) -> Result<Dispatcher, Errno> {
        Ok(Dispatcher {})
    }
}
