//! Open devices, as a program sees them.

#![expect(
    unsafe_code,
    reason = "finds a context behind the pointer of a program in C, and takes it back"
)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};

use crate::abi::{ibv_context, verbs_context, zeros};
use crate::devices::{Device, Seat};
use crate::errno::Errno;
use crate::events::{Kind, Mailbox, Subject, Unacknowledged};
use crate::handle::{Object, Uses};
use crate::sync::lock;

/// An open device of `ibv_open_device`. A process may open a device any number of times; all of them share its
/// [`Seat`].
#[repr(C)]
pub struct Context {
    base: UnsafeCell<verbs_context>,
    pub place: &'static Device,
    /// The device, open in this process.
    pub seat: Arc<Seat>,
    /// Asynchronous events of objects that were made here.
    pub mailbox: Arc<Mailbox>,
    pub uses: Uses,
    /// The descriptor that the program finds in place of the kernel's. Nothing that is done to it does harm.
    _commands: OwnedFd,
}

/// Contexts that were closed while objects of theirs were left. A program must not touch such objects any more,
/// but some do, and then find valid memory.
static CLOSED: Mutex<Vec<Closed>> = Mutex::new(Vec::new());

struct Closed(*mut verbs_context);

// SAFETY: nobody but `sweep` uses it, one at a time.
unsafe impl Send for Closed {}

/// `__VERBS_ABI_IS_EXTENDED`: the context is the end of a [`verbs_context`].
const EXTENDED: usize = usize::MAX;

object!(Context: verbs_context);

impl Context {
    /// Opens a device. `operations`: the functions that programs call by way of the context.
    pub fn open(place: &'static Device, operations: verbs_context) -> Result<*mut ibv_context, Errno> {
        sweep();
        let commands = command_file()?;
        let seat = place.seat()?;
        let of = Opened {
            file: identity(commands.as_fd()).ok_or(Errno::BROKEN)?,
            place,
            seat: Arc::downgrade(&seat),
        };
        let mut opened = lock(&OPENED);
        opened.retain(|o| o.seat.strong_count() > 0);
        opened.push(of);
        drop(opened);
        Ok(Context::on(place, seat, (commands, Mailbox::new()?), operations))
    }

    /// One more context of the device of another one, by a copy of that one's descriptor, which the new context keeps.
    ///
    /// # Safety
    /// The descriptor is the caller's, who gives it away if this succeeds.
    pub unsafe fn import(fd: c_int, operations: verbs_context) -> Result<*mut ibv_context, Errno> {
        sweep();
        // SAFETY: the caller has the descriptor.
        let file = identity(unsafe { BorrowedFd::borrow_raw(fd) }).ok_or(Errno::INVALID)?;
        let opened = lock(&OPENED);
        let found = opened.iter().find(|o| o.file == file);
        let found = found.and_then(|o| Some((o.place, o.seat.upgrade()?)));
        drop(opened);
        match found {
            Some((place, seat)) if !seat.is_of_a_parent() => {
                let mailbox = Mailbox::new()?;
                // SAFETY: by the caller's promise.
                let commands = unsafe { OwnedFd::from_raw_fd(fd) };
                Ok(Context::on(place, seat, (commands, mailbox), operations))
            }
            other => {
                if let Some((place, seat)) = other {
                    place.leave(seat);
                }
                Err(Errno::UNSUPPORTED
                    .because("ibv_import_device: a device belongs to the process that opened it"))
            }
        }
    }

    fn on(
        place: &'static Device,
        seat: Arc<Seat>,
        (commands, mailbox): (OwnedFd, Mailbox),
        operations: verbs_context,
    ) -> *mut ibv_context {
        let mailbox = Arc::new(mailbox);
        seat.dispatcher.add(&mailbox);
        let base = verbs_context {
            context: ibv_context {
                device: place.pointer(),
                ops: operations.context.ops,
                cmd_fd: commands.as_raw_fd(),
                async_fd: mailbox.fd(),
                num_comp_vectors: COMPLETION_VECTORS,
                abi_compat: std::ptr::without_provenance_mut(EXTENDED),
                ..zeros()
            },
            ..operations
        };
        let context = crate::handle::publish(Context {
            base: UnsafeCell::new(base),
            place,
            seat,
            mailbox,
            uses: Uses::default(),
            _commands: commands,
        });
        // SAFETY: it was made just now.
        unsafe { &raw mut (*context).context }
    }

    /// Closes a context. Objects that are left keep its memory and the device.
    ///
    /// # Safety
    /// As [`of`](Context::of), and no thread uses the context any more.
    pub unsafe fn close(context: *mut ibv_context) {
        // SAFETY: by the caller's promise.
        let base = unsafe { Context::of(context) }.c();
        lock(&CLOSED).push(Closed(base));
        sweep();
    }

    /// The context of a program's pointer: the last field of the structure that we made.
    ///
    /// # Safety
    /// [`open`](Context::open) made the context, and it was not closed.
    pub unsafe fn of<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: it is the field at this offset of what `publish` made.
        unsafe {
            let base = context.byte_sub(offset_of!(verbs_context, context));
            crate::handle::the(base.cast())
        }
    }

    /// Sends events about an object of this kind and number to the mailbox from now on. `pointer`: the program's pointer to
    /// the object.
    pub fn register(&self, kind: Kind, number: u32, pointer: usize, unacknowledged: Unacknowledged) {
        let subject = Subject {
            pointer,
            unacknowledged,
        };
        self.seat
            .dispatcher
            .register(kind, number, subject, &self.mailbox);
    }

    /// Stops sending events about an object, and waits until those that the program has taken are acknowledged.
    pub fn forget(&self, kind: Kind, number: u32, pointer: usize, unacknowledged: &Unacknowledged) {
        self.seat.dispatcher.forget(kind, number, pointer);
        unacknowledged.wait();
    }

    /// The program's pointer to the context.
    pub fn pointer(&self) -> *mut ibv_context {
        // SAFETY: within the structure.
        unsafe { &raw mut (*self.c()).context }
    }
}

/// Contexts that were opened, and whose devices are open still.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

struct Opened {
    /// The file of its descriptor.
    file: (u64, u64),
    place: &'static Device,
    seat: Weak<Seat>,
}

/// What the file in the place of a kernel's descriptor is called.
const COMMANDS: &str = "vnic-commands";

/// A file of nothing that is like no other.
fn command_file() -> Result<OwnedFd, Errno> {
    let file = memfd_create(COMMANDS, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file)
}

/// Which file a descriptor is of.
fn identity(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let stat = fstat(file).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Whether a descriptor is one that a context of ours has in place of the kernel's, in this process or another one, or a copy of it.
pub fn is_command_file(fd: c_int) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|name| {
        name.as_os_str()
            .as_bytes()
            .starts_with(format!("/memfd:{COMMANDS}").as_bytes())
    })
}

/// Frees closed contexts that no object needs any more.
fn sweep() {
    let mut closed = lock(&CLOSED);
    closed.retain(|Closed(base)| {
        // SAFETY: it was open, was closed once, and only here is it taken back.
        let needed = unsafe { crate::handle::the::<Context>(*base) }
            .uses
            .none()
            .is_err();
        if !needed {
            // SAFETY: as above.
            let context = unsafe { crate::handle::take_back::<Context>(*base) };
            let Context {
                place, seat, mailbox, ..
            } = *context;
            drop(mailbox);
            place.leave(seat);
        }
        needed
    });
}

/// Number of event queues for completions.
const COMPLETION_VECTORS: c_int = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_place_of_a_descriptor_is_known() {
        let (one, other) = (command_file().expect("a file"), command_file().expect("a file"));
        let copy = one.try_clone().expect("a copy");
        assert!(is_command_file(one.as_raw_fd()) && is_command_file(copy.as_raw_fd()));
        assert_eq!(identity(one.as_fd()), identity(copy.as_fd()));
        assert_ne!(identity(one.as_fd()), identity(other.as_fd()));
        let something = std::fs::File::open("/proc/self/status").expect("a file");
        assert!(!is_command_file(something.as_raw_fd()) && !is_command_file(-1));
        assert!(rustix::io::write(&one, b"x").is_err(), "it stays empty");
    }
}
