//! The transport of a virtual machine: PCI, without a driver of ours in the kernel (virtio 1.3, section 4.1).
//!
//! The kernel's `uio_pci_generic` gives the interrupt to the program, sysfs the registers. The device sees
//! guest-physical addresses, so its memory is pinned ([`pages`](crate::pages)).
//!
//! QEMU's `vhost-user-test-device` does not tell the guest when the daemon has gone: the device then just stops to
//! answer, and opening it again ends the VM. So [`gone`](Transport::gone) knows of unplugged and of reset devices
//! only.
//!
//! When a program is killed, the kernel closes `/dev/uioN` and takes bus mastering from the device, by which the
//! VMM stops it, and only then frees the memory that the device knew: see `above_others` in `sysfs.rs`.

#![expect(unsafe_code, reason = "pins memory that its caller answers for")]

mod address;
mod capability;
mod registers;
pub(crate) mod sysfs;
mod virtio;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vnic_device::config::{Config, MAGIC, VIRTIO_ID, VIRTIO_ID_ALIAS};

use super::{Pinned, SharedPages, Transport, Virtqueue};
use crate::Error;
use crate::pages::{Arena, Pins, pagemap};
pub use address::PciAddress;
use registers::Bars;
use sysfs::{Function, Holder, Machine, Space};
use virtio::{Device, QUEUE_INTERRUPT};

/// RDMA functions of this machine that a program may open: those that no driver of the kernel uses.
///
/// Virtio ids 42 and 38 are taken at their word until the device is opened. Other functions are asked for the
/// first bytes of their configuration, unless a program has them.
pub fn find() -> Result<Vec<PciAddress>, Error> {
    find_in(&Machine::here())
}

fn find_in(machine: &Machine) -> Result<Vec<PciAddress>, Error> {
    let mut found = machine.virtio()?;
    found.retain(|f| {
        !matches!(f.holder(), Holder::Kernel(_)) && (has_our_id(f) || has_our_magic(f).unwrap_or(false))
    });
    Ok(found.iter().map(|f| f.address).collect())
}

/// Whether a function has one of the virtio ids of RDMA functions.
pub(crate) fn has_our_id(function: &Function) -> bool {
    [Some(VIRTIO_ID), Some(VIRTIO_ID_ALIAS)].contains(&function.virtio_id())
}

/// Whether the configuration of a function that no program has begins with the magic number.
fn has_our_magic(function: &Function) -> Result<bool, Error> {
    let space = function.open_space()?;
    let magic = space.peek(&space.layout()?);
    Ok(magic.map_err(Error::os("PCI configuration space"))? == MAGIC)
}

/// Adds the device's address to an error.
fn of_device(address: PciAddress, error: Error) -> Error {
    match error {
        Error::Setup(text) => Error::Setup(format!("{address}: {text}")),
        Error::NoDevice(text) => Error::NoDevice(format!("{address}: {text}")),
        Error::Version(text) => Error::Version(format!("{address}: {text}")),
        other => other,
    }
}

/// A device of this machine, over PCI. Dropping it resets the device.
pub struct PciTransport {
    name: String,
    config: Config,
    device: Device<Bars>,
    interrupts: File,
    /// Holds the lock: it is dropped after `interrupts`.
    space: Space,
    /// Value of the PCI command register that lets the device interrupt. The kernel disables that when an
    /// interrupt comes.
    command: u16,
    /// Whether the device was seen to be well since it was last asked whether it is gone.
    well: AtomicBool,
    pins: Arc<Pins>,
    arena: Arc<Arena>,
    running: AtomicBool,
    /// Why the device is gone, once that was found.
    gone: Mutex<Option<String>>,
}

impl PciTransport {
    /// Opens the device with this address, as in `0000:00:05.0`. Nobody else can open it then.
    pub fn open(address: &str) -> Result<PciTransport, Error> {
        PciTransport::open_in(&Machine::here(), address.parse()?)
    }

    fn open_in(machine: &Machine, address: PciAddress) -> Result<PciTransport, Error> {
        let function = machine.function(address);
        if !function.exists() {
            return Err(Error::NoDevice(format!(
                "there is no PCI function {address}; lspci -D -d 1af4: lists virtio's"
            )));
        }
        if function.virtio_id().is_none() {
            return Err(Error::NoDevice(format!(
                "{address} is not a modern virtio device"
            )));
        }
        let space = function.open_space()?;
        function.bind()?;
        let interrupts = function.open_uio()?;
        let about = |e| of_device(address, e);
        let layout = space.layout().map_err(about)?;
        let command = space
            .enable()
            .map_err(Error::os(format!("cannot enable {address}")))?;
        let device = Device::new(function.map(&layout)?, layout);
        let config = device.identify().map_err(about)?;
        // Without the record only the doctor's report is poorer.
        let _ = function.record(&config);
        let pins = Arc::new(Pins::new());
        Ok(PciTransport {
            name: address.to_string(),
            config,
            device,
            interrupts,
            space,
            command,
            well: AtomicBool::new(false),
            arena: Arena::new(Arc::clone(&pins)),
            pins,
            running: AtomicBool::new(false),
            gone: Mutex::new(None),
        })
    }

    fn has_gone(&self, why: &str) -> Error {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        Error::Gone(gone.get_or_insert_with(|| why.to_owned()).clone())
    }
}

impl Transport for PciTransport {
    fn config(&self) -> &Config {
        &self.config
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn start(&self, queues: &[Virtqueue]) -> Result<(), Error> {
        let address = self.name.parse()?;
        self.device.start(queues).map_err(|e| of_device(address, e))?;
        self.running.store(true, Ordering::Release);
        // Clears an interrupt that a predecessor has left behind.
        self.device.interrupt_status();
        self.space
            .set_command(self.command)
            .map_err(Error::os("cannot enable interrupts"))
    }

    fn queue_size_max(&self, virtqueue: u16) -> u16 {
        self.device.queue_size_max(virtqueue)
    }

    fn stop(&self) {
        self.running.store(false, Ordering::Release);
        if self.device.reset().is_err() {
            // The device might still write: its memory must never be anything else.
            self.pins.abandon();
        }
    }

    fn notify(&self, virtqueue: u16) {
        self.device.notify(virtqueue);
    }

    fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupts.as_fd()
    }

    fn acknowledge(&self) -> Result<(), Error> {
        let mut count = [0; 4];
        match (&self.interrupts).read(&mut count) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(self.has_gone("it was unplugged, or its driver was taken away")),
        }
        // In this order: if the pin were enabled first, the same interrupt would come once more.
        let why = self.device.interrupt_status();
        self.well.store(why & !QUEUE_INTERRUPT == 0, Ordering::Relaxed);
        self.space
            .set_command(self.command)
            .map_err(|_| self.has_gone("it was unplugged"))
    }

    fn gone(&self) -> Option<Error> {
        let known = self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(why) = known {
            return Some(Error::Gone(why));
        }
        // Asking the device costs an exit of the VM, so it is not done for each interrupt: an interrupt that came
        // for queues only has just told that the device is there.
        if !self.running.load(Ordering::Acquire) || self.well.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.device.gone().map(|why| self.has_gone(why))
    }

    fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        self.arena.allocate(len)
    }

    // What is pinned must be writable, whoever writes.
    // SAFETY: the caller's promise, as the trait says.
    unsafe fn pin(&self, start: NonNull<u8>, len: usize, _write: bool) -> Result<Pinned, Error> {
        let start = start.as_ptr().addr();
        if let Some((extents, keep)) = self.arena.known(start, len) {
            return Ok(Pinned {
                extents,
                owner: Box::new(keep),
            });
        }
        let pin = self.pins.pin(start, len)?;
        Ok(Pinned {
            extents: pagemap::extents(start, len)?,
            owner: Box::new(pin),
        })
    }

    fn share(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Pinned, Error> {
        let (extents, keep) = self.pins.pin_file(file, offset, len)?;
        Ok(Pinned {
            extents,
            owner: Box::new(keep),
        })
    }
}

impl Drop for PciTransport {
    fn drop(&mut self) {
        self.stop();
    }
}
