//! Our devices that this process can see, and the one seat at each that it may have.

#![expect(unsafe_code, reason = "devices are C structures that every thread may read")]

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use vnic_verbs::sysfs::{self, Files, NAMES_VARIABLE, Place, SYSFS_VARIABLE};
use vnic_verbs::{Context, DeviceAddress, NoFork, block_signals, now_at};

use crate::abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device, zeros};
use crate::errno::{Errno, complain};
use crate::events::{Dispatcher, Kept};
use crate::named::Named;
use crate::sync::lock;

/// A device that was found once. It is never freed: programs keep pointers to devices for longer than the list
/// that had them.
#[repr(C)]
pub struct Device {
    base: ibv_device,
    /// Address of the device.
    pub address: DeviceAddress,
    /// Which one of the devices it is.
    number: u32,
    /// The seat of this process, if the device is open.
    seat: Mutex<Weak<Seat>>,
    guid: OnceLock<u64>,
}

// SAFETY: `base` is never changed, and the pointers in it are NULL.
unsafe impl Send for Device {}
// SAFETY: as above; the rest looks after itself.
unsafe impl Sync for Device {}

/// A device that is open in this process: all contexts of the process share it, and other processes have devices of their own.
pub struct Seat {
    pub device: Context,
    /// Brings asynchronous events to the contexts.
    pub dispatcher: Dispatcher,
    /// Objects that can be imported.
    pub named: Named,
    /// The process that opened the device. A forked child has a copy of the seat, and neither its threads nor
    /// the device.
    owner: u32,
}

impl Seat {
    pub fn is_of_a_parent(&self) -> bool {
        self.owner != std::process::id()
    }
}

/// Every device that was ever found.
static KNOWN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

/// The present devices, in the order of [`vnic_verbs::Device::list`].
pub fn list() -> Vec<&'static Device> {
    let found = vnic_verbs::Device::numbered().unwrap_or_else(|e| {
        complain(&e);
        Vec::new()
    });
    let mut known = lock(&KNOWN);
    let mut here = Vec::with_capacity(found.len());
    for (number, address) in found {
        let device = known.iter().find(|d| d.address == address).copied();
        here.push(device.unwrap_or_else(|| {
            // Who had it keeps its number, whether it is there or not.
            let free = |number: &u32| known.iter().all(|d| d.number != *number);
            let number = (number..).find(free).unwrap_or(number);
            let device = Box::leak(Box::new(Device::new(address, number)));
            known.push(device);
            device
        }));
    }
    here
}

/// A device that was open is gone. If it was taken away, its files go, too, until it is back.
pub fn gone(address: &DeviceAddress, files: Files) {
    if now_at(address).as_ref() == Some(address) {
        return;
    }
    files.remove();
    let address = address.clone();
    // (Without a thread there are no files.)
    let _ = std::thread::Builder::new()
        .name("vnic-files".into())
        .spawn(move || {
            block_signals();
            await_return(&address);
        });
}

/// Waits until a device is back, perhaps as another one, and writes its files.
fn await_return(address: &DeviceAddress) {
    loop {
        {
            let _no_fork = NoFork::hold();
            let there = now_at(address);
            let device = there.and_then(|there| list().into_iter().find(|d| d.address == there));
            if let Some(device) = device
                && let Ok(seat) = device.seat()
            {
                let written = device.files().map(|mut files| files.keep(&seat.device));
                device.leave(seat);
                if !matches!(written, Some(Err(_))) {
                    return;
                }
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Time between two looks for a device that was taken away.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Our device of a program's pointer, if it is one.
pub fn find(pointer: *const ibv_device) -> Option<&'static Device> {
    let known = lock(&KNOWN);
    known
        .iter()
        .find(|d| d.pointer().cast_const() == pointer)
        .copied()
}

/// Copies a text into a field of the interface, shortened if need be, and ended by a zero.
pub fn fill(into: &mut [c_char], text: &str) {
    let room = into.len().saturating_sub(1);
    for (to, from) in into[..room].iter_mut().zip(text.bytes().filter(|b| *b != 0)) {
        *to = from.cast_signed();
    }
}

/// The name that the user wants for a device, or `vnic0` and so on.
fn name(number: u32) -> String {
    let names = std::env::var(NAMES_VARIABLE).unwrap_or_default();
    sysfs::device_name(&names.split(',').collect::<Vec<_>>(), number)
}

impl Device {
    fn new(address: DeviceAddress, number: u32) -> Device {
        // The kernel does not know the device: these names are none of the kernel's, below the directories where
        // programs look.
        let name = name(number);
        let node = sysfs::character_device(number);
        let mut base = zeros::<ibv_device>();
        base.node_type = IBV_NODE_CA as c_int;
        base.transport_type = IBV_TRANSPORT_IB as c_int;
        fill(&mut base.name, &name);
        fill(&mut base.dev_name, &node);
        fill(&mut base.dev_path, &format!("/sys/class/infiniband_verbs/{node}"));
        fill(&mut base.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        Device {
            base,
            address,
            number,
            seat: Mutex::default(),
            guid: OnceLock::new(),
        }
    }

    /// The program's pointer to the device.
    pub fn pointer(&self) -> *mut ibv_device {
        std::ptr::from_ref(&self.base).cast_mut()
    }

    /// Name of the device: `vnic0`, …
    pub fn name(&self) -> &CStr {
        // SAFETY: `fill` left a zero at the end, and nobody changes it.
        unsafe { CStr::from_ptr(self.base.name.as_ptr()) }
    }

    /// The seat at the device, which is opened unless it is open here already.
    pub fn seat(&self) -> Result<Arc<Seat>, Errno> {
        let mut seat = lock(&self.seat);
        // A user whose daemon is gone goes on with that seat; a new one gets the present device.
        if let Some(open) = seat.upgrade()
            && !open.is_of_a_parent()
            && !open.device.query_port().is_err_and(|e| e.is_gone())
        {
            return Ok(open);
        }
        let device = vnic_verbs::Device::open(&self.address).map_err(|e| {
            // The user who set the variable wants to know why it has no effect.
            eprintln!(
                "libvnic_ibverbs: {} ({}): {e}",
                self.name().to_string_lossy(),
                self.address
            );
            Errno(e.errno())
        })?;
        let new = Arc::new(Seat {
            dispatcher: Dispatcher::new(&device, self.kept())?,
            device,
            named: Named::default(),
            owner: std::process::id(),
        });
        *seat = Arc::downgrade(&new);
        Ok(new)
    }

    /// The files of the device that the program sees, if the launcher has made any.
    fn files(&self) -> Option<Files> {
        let root = std::env::var_os(SYSFS_VARIABLE).filter(|root| Path::new(root).is_dir())?;
        let place = Place {
            name: name(self.number),
            number: self.number,
            pci: match &self.address {
                DeviceAddress::Pci(address) => Some(address.clone()),
                DeviceAddress::Socket(_) => None,
            },
        };
        Some(Files::new(Path::new(&root), place))
    }

    /// The files of the device, and what becomes of them when it is gone.
    fn kept(&self) -> Option<Kept> {
        let address = self.address.clone();
        let gone = Box::new(move |files| gone(&address, files));
        Some(Kept {
            files: self.files()?,
            gone,
        })
    }

    /// Gives a seat up. A thread that opens the device meanwhile waits until it is free.
    pub fn leave(&self, seat: Arc<Seat>) {
        let _others_wait = lock(&self.seat);
        if seat.is_of_a_parent() {
            // The parent goes on with the device: the child must not talk to it, and has no threads to end.
            std::mem::forget(seat);
        } else {
            drop(seat);
        }
    }

    /// GUID of the node, in network order. 0 if it is unknown: another process drives the device, or it is gone.
    pub fn guid(&self) -> u64 {
        if let Some(known) = self.guid.get() {
            return *known;
        }
        let Ok(seat) = self.seat() else { return 0 };
        let guid = u64::from_ne_bytes(seat.device.query_device().node_guid);
        self.leave(seat);
        *self.guid.get_or_init(|| guid)
    }
}
