//! A modern virtio device over PCI: its life from reset to reset (virtio 1.3, sections 3.1.1 and 4.1).

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use vnic_device::config::{Config, MAGIC};
use vnic_device::zerocopy::FromBytes;

use super::capability::Layout;
use super::registers::Registers;
use crate::Error;
use crate::sync::lock;
use crate::transport::{Virtqueue, identity};

/// Offsets in the common configuration (section 4.1.4.3).
mod common {
    pub const DEVICE_FEATURE_SELECT: u32 = 0x00;
    pub const DEVICE_FEATURE: u32 = 0x04;
    pub const DRIVER_FEATURE_SELECT: u32 = 0x08;
    pub const DRIVER_FEATURE: u32 = 0x0c;
    pub const CONFIG_MSIX_VECTOR: u32 = 0x10;
    pub const NUM_QUEUES: u32 = 0x12;
    pub const DEVICE_STATUS: u32 = 0x14;
    pub const QUEUE_SELECT: u32 = 0x16;
    pub const QUEUE_SIZE: u32 = 0x18;
    pub const QUEUE_MSIX_VECTOR: u32 = 0x1a;
    pub const QUEUE_ENABLE: u32 = 0x1c;
    pub const QUEUE_NOTIFY_OFF: u32 = 0x1e;
    pub const QUEUE_DESC: u32 = 0x20;
    pub const QUEUE_DRIVER: u32 = 0x28;
    pub const QUEUE_DEVICE: u32 = 0x30;
}

/// Bits of the device status (section 2.1).
pub mod status {
    /// The driver has seen the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The driver knows how to drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// Features are negotiated.
    pub const FEATURES_OK: u8 = 8;
    /// The device failed, and wants a reset.
    pub const NEEDS_RESET: u8 = 0x40;
    /// The driver gave up.
    pub const FAILED: u8 = 0x80;
    /// All registers of an unplugged device read as this.
    pub const UNPLUGGED: u8 = 0xff;
}

/// `VIRTIO_F_VERSION_1`, bit 32: the first of the second word. No other feature is accepted.
const VERSION_1: u32 = 1 << 0;
/// No MSI-X vector: the device interrupts by the pin.
const NO_VECTOR: u16 = 0xffff;
/// Bit of the interrupt status: a queue has news (section 4.1.4.5).
pub const QUEUE_INTERRUPT: u8 = 1;
/// Times that a reset is asked after, and the wait between two.
const RESET_TRIES: u32 = 5000;
const RESET_WAIT: Duration = Duration::from_millis(1);

/// A device by its registers.
pub struct Device<R> {
    registers: R,
    layout: Layout,
    /// Held while a selector register is in use.
    selected: Mutex<()>,
    /// Notification address of each queue: an offset in the BAR of notifications.
    doorbells: OnceLock<Vec<u32>>,
}

impl<R: Registers> Device<R> {
    /// A device with these registers, which this does not touch.
    pub const fn new(registers: R, layout: Layout) -> Device<R> {
        Device {
            registers,
            layout,
            selected: Mutex::new(()),
            doorbells: OnceLock::new(),
        }
    }

    /// Resets the device, sets ACKNOWLEDGE and DRIVER, and reads the configuration: once, since every read is a
    /// question to the daemon, and QEMU's `vhost-user-test-device` ends the VM if it is asked when the daemon has
    /// gone.
    pub fn identify(&self) -> Result<Config, Error> {
        self.reset()?;
        self.set_status(status::ACKNOWLEDGE);
        self.set_status(status::ACKNOWLEDGE | status::DRIVER);
        let config = self.configuration();
        let checked = identity::check(&config).and_then(|()| {
            let has = self.common16(common::NUM_QUEUES);
            let wanted = identity::virtqueues(&config);
            if has < wanted {
                return Err(Error::Setup(format!(
                    "the VMM gives the device {has} virtqueues, but it needs {wanted}. With QEMU: \
                     -device vhost-user-test-device-pci,...,num_vqs={wanted}"
                )));
            }
            Ok(config)
        });
        if checked.is_err() {
            self.add_status(status::FAILED);
        }
        checked
    }

    /// The configuration; only its first four bytes if they are not the magic number.
    fn configuration(&self) -> Config {
        let place = self.layout.device;
        let mut bytes = [0_u8; size_of::<Config>()];
        for (i, word) in (0..place.len / 4).zip(bytes.chunks_exact_mut(4)) {
            let value = self.registers.read32(place.bar, place.offset + 4 * i);
            word.copy_from_slice(&value.to_le_bytes());
            if i == 0 && word != MAGIC {
                break;
            }
        }
        Config::read_from_bytes(&bytes).unwrap_or_default()
    }

    /// Most entries of a queue, a power of two; 0 if there is no such queue.
    pub fn queue_size_max(&self, queue: u16) -> u16 {
        let _selected = self.select(queue);
        let size = self.common16(common::QUEUE_SIZE);
        // A VMM may have been given any number; split virtqueues need a power of two (section 2.7).
        if size == 0 { 0 } else { 1 << size.ilog2() }
    }

    /// Negotiates features, sets the queues up, and starts the device.
    pub fn start(&self, queues: &[Virtqueue]) -> Result<(), Error> {
        let begun = self.negotiate().and_then(|()| self.set_up(queues));
        match begun {
            Ok(doorbells) => {
                let _ = self.doorbells.set(doorbells);
                self.add_status(status::DRIVER_OK);
                Ok(())
            }
            Err(e) => {
                self.add_status(status::FAILED);
                Err(e)
            }
        }
    }

    /// Steps 4 to 6 of section 3.1.1.
    fn negotiate(&self) -> Result<(), Error> {
        let _selected = self.lock();
        self.write32(common::DEVICE_FEATURE_SELECT, 1);
        if self.read32(common::DEVICE_FEATURE) & VERSION_1 == 0 {
            return Err(Error::NoDevice(
                "it does not offer VIRTIO_F_VERSION_1: with QEMU, do not give it disable-modern=on".into(),
            ));
        }
        for (select, accepted) in [(0, 0), (1, VERSION_1)] {
            self.write32(common::DRIVER_FEATURE_SELECT, select);
            self.write32(common::DRIVER_FEATURE, accepted);
        }
        self.add_status(status::FEATURES_OK);
        if self.status() & status::FEATURES_OK == 0 {
            return Err(Error::Setup(
                "the device does not take VIRTIO_F_VERSION_1 alone. With QEMU: take iommu_platform=on away from it"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Step 7 of section 3.1.1. Returns the notification address of each queue.
    fn set_up(&self, queues: &[Virtqueue]) -> Result<Vec<u32>, Error> {
        self.write16(common::CONFIG_MSIX_VECTOR, NO_VECTOR);
        (0..).zip(queues).map(|(i, q)| self.set_up_one(i, q)).collect()
    }

    fn set_up_one(&self, number: u16, queue: &Virtqueue) -> Result<u32, Error> {
        let broken = |why: String| Error::Setup(format!("virtqueue {number} cannot be set up: {why}"));
        let _selected = self.select(number);
        let max = self.common16(common::QUEUE_SIZE);
        if queue.size == 0 || !queue.size.is_power_of_two() || queue.size > max {
            return Err(broken(format!(
                "{} entries are asked for, it may have {max}",
                queue.size
            )));
        }
        if self.common16(common::QUEUE_ENABLE) != 0 {
            return Err(broken("it is in use already".into()));
        }
        let notify = self.layout.notify;
        let offset =
            u64::from(self.common16(common::QUEUE_NOTIFY_OFF)) * u64::from(self.layout.notify_multiplier);
        if offset + 2 > u64::from(notify.len) {
            return Err(broken(
                "the device names a place for notifications that it does not have".into(),
            ));
        }
        self.write16(common::QUEUE_SIZE, queue.size);
        self.write16(common::QUEUE_MSIX_VECTOR, NO_VECTOR);
        for (register, address) in [
            (common::QUEUE_DESC, queue.descriptors),
            (common::QUEUE_DRIVER, queue.available),
            (common::QUEUE_DEVICE, queue.used),
        ] {
            self.write32(register, address as u32);
            self.write32(register + 4, (address >> 32) as u32);
        }
        self.write16(common::QUEUE_ENABLE, 1);
        if self.common16(common::QUEUE_ENABLE) != 1 {
            return Err(broken("the device does not enable it".into()));
        }
        Ok(notify.offset + offset as u32)
    }

    /// Notifies a queue. Nothing happens before [`start`](Device::start), or if there is no such queue.
    pub fn notify(&self, queue: u16) {
        let doorbell = self.doorbells.get().and_then(|d| d.get(usize::from(queue)));
        if let Some(&offset) = doorbell {
            // Earlier writes to memory are there when the device hears of the notification.
            fence(Ordering::SeqCst);
            self.registers.write16(self.layout.notify.bar, offset, queue);
        }
    }

    /// Why the device interrupted; reading it clears the interrupt (section 4.1.4.5).
    pub fn interrupt_status(&self) -> u8 {
        self.registers.read8(self.layout.isr.bar, self.layout.isr.offset)
    }

    /// The device status.
    pub fn status(&self) -> u8 {
        let common = self.layout.common;
        self.registers
            .read8(common.bar, common.offset + common::DEVICE_STATUS)
    }

    /// Why the device, which was started, does not run any more.
    pub fn gone(&self) -> Option<&'static str> {
        match self.status() {
            status::UNPLUGGED => Some("it was unplugged"),
            s if s & status::NEEDS_RESET != 0 => Some("it failed, and needs to be opened again"),
            s if s & status::DRIVER_OK == 0 => Some("somebody has reset it"),
            _ => None,
        }
    }

    /// Resets the device. When this has succeeded, it touches no memory any more.
    pub fn reset(&self) -> Result<(), Error> {
        self.set_status(0);
        for _ in 0..RESET_TRIES {
            match self.status() {
                0 | status::UNPLUGGED => return Ok(()),
                _ => std::thread::sleep(RESET_WAIT),
            }
        }
        Err(Error::Gone("it does not carry out a reset".into()))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.selected)
    }

    /// Selects a queue, for as long as the result is kept.
    fn select(&self, queue: u16) -> MutexGuard<'_, ()> {
        let selected = self.lock();
        self.write16(common::QUEUE_SELECT, queue);
        selected
    }

    fn add_status(&self, bits: u8) {
        self.set_status(self.status() | bits);
    }

    fn set_status(&self, value: u8) {
        let common = self.layout.common;
        self.registers
            .write8(common.bar, common.offset + common::DEVICE_STATUS, value);
    }

    fn common16(&self, register: u32) -> u16 {
        let common = self.layout.common;
        self.registers.read16(common.bar, common.offset + register)
    }

    fn read32(&self, register: u32) -> u32 {
        let common = self.layout.common;
        self.registers.read32(common.bar, common.offset + register)
    }

    fn write16(&self, register: u32, value: u16) {
        let common = self.layout.common;
        self.registers
            .write16(common.bar, common.offset + register, value);
    }

    fn write32(&self, register: u32, value: u32) {
        let common = self.layout.common;
        self.registers
            .write32(common.bar, common.offset + register, value);
    }
}

#[cfg(test)]
mod tests;
