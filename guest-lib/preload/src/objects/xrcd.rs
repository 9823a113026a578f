//! XRC domains.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header; looks at a descriptor of the program's"
)]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::fstat;
use vnic_verbs::{QueuePair, XrcDomain, XrcTarget};

use crate::abi::*;
use crate::context::Context;
use crate::devices::Seat;
use crate::errno::Errno;
use crate::handle::{Use, Uses, publish};
use crate::sync::lock;

/// An XRC domain.
#[repr(C)]
pub struct Xrcd {
    base: UnsafeCell<ibv_xrcd>,
    shared: Arc<Shared>,
    pub uses: Uses,
    _needs: Use,
}

/// State that all who opened a domain by the same file share.
struct Shared {
    domain: XrcDomain,
    /// Queue pairs of the domain, by number: those who open one share it.
    targets: Mutex<HashMap<u32, Weak<QueuePair<XrcTarget>>>>,
}

/// A domain that was opened by a file.
struct ByFile {
    seat: Weak<Seat>,
    /// Device and inode of the file.
    file: (u64, u64),
    shared: Weak<Shared>,
}

/// Domains of this process that were opened by a file. Another process has other domains: each has its own
/// device.
static BY_FILE: Mutex<Vec<ByFile>> = Mutex::new(Vec::new());
object!(Xrcd: ibv_xrcd);

impl Xrcd {
    /// Opens a new domain, or that of a file.
    pub fn open(context: &Context, attributes: &ibv_xrcd_init_attr) -> Result<*mut ibv_xrcd, Errno> {
        if attributes.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
            return Err(Errno::INVALID);
        }
        let shared = match attributes.fd {
            -1 => Shared::new(context)?,
            // SAFETY: it is looked at, and only now: if it is not open, that is an error.
            fd if fd >= 0 => Shared::by_file(context, unsafe { BorrowedFd::borrow_raw(fd) }, attributes)?,
            _ => return Err(Errno(libc::EBADF)),
        };
        Ok(publish(Xrcd {
            base: UnsafeCell::new(ibv_xrcd {
                context: context.pointer(),
            }),
            shared,
            uses: Uses::default(),
            _needs: context.uses.one(),
        }))
    }

    /// The domain.
    pub fn domain(&self) -> &XrcDomain {
        &self.shared.domain
    }

    /// Adds a queue pair that was made in the domain.
    pub fn add(&self, target: QueuePair<XrcTarget>) -> Arc<QueuePair<XrcTarget>> {
        let mut targets = lock(&self.shared.targets);
        targets.retain(|_, target| target.strong_count() > 0);
        let target = Arc::new(target);
        targets.insert(target.number(), Arc::downgrade(&target));
        target
    }

    /// Finds a queue pair that was made in the domain.
    pub fn find(&self, number: u32) -> Result<Arc<QueuePair<XrcTarget>>, Errno> {
        let targets = lock(&self.shared.targets);
        targets.get(&number).and_then(Weak::upgrade).ok_or(Errno::INVALID)
    }
}

impl Shared {
    fn new(context: &Context) -> Result<Arc<Shared>, Errno> {
        Ok(Arc::new(Shared {
            domain: context.seat.device.open_xrcd()?,
            targets: Mutex::default(),
        }))
    }

    fn by_file(
        context: &Context,
        fd: BorrowedFd<'_>,
        attributes: &ibv_xrcd_init_attr,
    ) -> Result<Arc<Shared>, Errno> {
        let status = fstat(fd)?;
        let file = (status.st_dev, status.st_ino);
        let mut all = lock(&BY_FILE);
        all.retain(|one| one.shared.strong_count() > 0);
        let mut same = all
            .iter()
            .filter(|one| one.file == file && one.seat.as_ptr() == Arc::as_ptr(&context.seat));
        match same.next().and_then(|one| one.shared.upgrade()) {
            // As the kernel does.
            Some(_) if attributes.oflags & libc::O_EXCL != 0 => Err(Errno::INVALID),
            Some(shared) => Ok(shared),
            None if attributes.oflags & libc::O_CREAT == 0 => Err(Errno::AGAIN),
            None => {
                let shared = Shared::new(context)?;
                all.push(ByFile {
                    seat: Arc::downgrade(&context.seat),
                    file,
                    shared: Arc::downgrade(&shared),
                });
                Ok(shared)
            }
        }
    }
}
