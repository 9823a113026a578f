//! Open devices, as a program sees them.

#![expect(
    unsafe_code,
    reason = "finds a context behind the pointer of a program in C, and takes it back"
)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::{Arc, Mutex};

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
    nothing: File,
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
        let nothing = File::options().read(true).write(true).open(NOTHING)?;
        let seat = place.seat()?;
        let mailbox = Arc::new(Mailbox::new()?);
        seat.dispatcher.add(&mailbox);
        let base = verbs_context {
            context: ibv_context {
                device: place.pointer(),
                ops: operations.context.ops,
                cmd_fd: nothing.as_raw_fd(),
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
            nothing,
        });
        // SAFETY: it was made just now.
        Ok(unsafe { &raw mut (*context).context })
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

/// The file that the program finds in place of the kernel's descriptor.
const NOTHING: &str = "/dev/null";

/// Whether a descriptor is the one that our contexts have in place of the kernel's, or a copy of it.
pub fn is_nothing(fd: c_int) -> bool {
    let device = |path: &str| {
        let metadata = std::fs::metadata(path).ok()?;
        metadata.file_type().is_char_device().then(|| metadata.rdev())
    };
    let here = device(&format!("/proc/self/fd/{fd}"));
    here.is_some() && here == device(NOTHING)
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
        let nothing = File::open(NOTHING).expect("it is everywhere");
        let copy = nothing.try_clone().expect("a copy");
        assert!(is_nothing(nothing.as_raw_fd()) && is_nothing(copy.as_raw_fd()));
        let something = File::open("/proc/self/status").expect("a file");
        assert!(!is_nothing(something.as_raw_fd()) && !is_nothing(-1));
    }
}
