//! A transport without a device, for tests of the driver half: memory in pages of a chosen size that are never neighbours
//! for the device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};
use vnic_device::config::{ABI_MAJOR, Config, MAGIC};
use vnic_device::ring::Extent;

use crate::Error;
use crate::shared::Memory;
use crate::transport::{Pinned, SharedPages, Transport, Virtqueue};

pub(crate) struct Fake {
    config: Config,
    page: usize,
    interrupt: OwnedFd,
    memory: Mutex<Vec<(u64, Memory)>>,
    /// Virtqueues that were set up.
    pub queues: Mutex<Vec<Virtqueue>>,
    /// Notifications so far.
    pub notified: AtomicUsize,
    /// Is it gone?
    pub gone: Mutex<Option<String>>,
}

impl Fake {
    /// Pages of so many bytes.
    pub fn new(page: usize) -> Fake {
        Fake {
            config: Config {
                magic: MAGIC,
                abi_major: ABI_MAJOR,
                config_len: 20,
                event_queues: 1,
                wake_queues: 1,
                ..Config::default()
            },
            page,
            interrupt: eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"),
            memory: Mutex::new(Vec::new()),
            queues: Mutex::new(Vec::new()),
            notified: AtomicUsize::new(0),
            gone: Mutex::new(None),
        }
    }

    /// The memory that the device sees at an address, up to the end of its page.
    pub fn seen(&self, gpa: u64) -> Memory {
        let memory = self.memory.lock().expect("not poisoned");
        let (at, page) = memory
            .iter()
            .find(|(at, m)| (*at..at + m.len() as u64).contains(&gpa))
            .expect("memory that was given out");
        let offset = (gpa - at) as usize;
        page.part(offset, page.len() - offset)
    }

    pub fn u64(&self, gpa: u64) -> u64 {
        let mut bytes = [0; 8];
        self.seen(gpa).read(0, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub fn set_u64(&self, gpa: u64, value: u64) {
        self.seen(gpa).write(0, &value.to_le_bytes());
    }

    pub fn set_u16(&self, gpa: u64, value: u16) {
        self.seen(gpa).u16(0).store(value, SeqCst);
    }

    /// Interrupts.
    pub fn interrupt_now(&self) {
        rustix::io::write(&self.interrupt, &1u64.to_ne_bytes()).expect("an eventfd takes it");
    }
}

impl Transport for Fake {
    fn config(&self) -> &Config {
        &self.config
    }

    fn name(&self) -> &str {
        "a fake"
    }

    fn start(&self, queues: &[Virtqueue]) -> Result<(), Error> {
        *self.queues.lock().expect("not poisoned") = queues.to_vec();
        Ok(())
    }

    fn stop(&self) {}

    fn queue_size_max(&self, _virtqueue: u16) -> u16 {
        128
    }

    fn notify(&self, _virtqueue: u16) {
        self.notified.fetch_add(1, SeqCst);
    }

    fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }

    fn acknowledge(&self) -> Result<(), Error> {
        let _ = rustix::io::read(&self.interrupt, &mut [0u8; 8]);
        Ok(())
    }

    fn gone(&self) -> Option<Error> {
        self.gone.lock().expect("not poisoned").clone().map(Error::Gone)
    }

    fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        let len = len.next_multiple_of(self.page);
        let memory = crate::shared::tests::memory(len + 4096);
        let skip = memory.addr().wrapping_neg() as usize % 4096;
        let memory = memory.part(skip, len);
        let mut all = self.memory.lock().expect("not poisoned");
        // Backwards and with gaps: what is contiguous here is not for the device.
        let base = 0x1_0000_0000 * (all.len() as u64 + 1);
        let mut extents = Vec::new();
        for i in 0..len / self.page {
            let gpa = base - ((i * 2 + 2) * self.page) as u64;
            all.push((gpa, memory.part(i * self.page, self.page)));
            extents.push(Extent {
                gpa,
                len: self.page as u64,
            });
        }
        let start = NonNull::new(memory.addr() as *mut u8).expect("not null");
        Ok(SharedPages {
            start,
            len,
            extents,
            owner: Box::new(memory),
        })
    }

    // SAFETY: nothing is ever pinned.
    unsafe fn pin(&self, _start: NonNull<u8>, _len: usize) -> Result<Pinned, Error> {
        Err(Error::Setup("a fake pins nothing".into()))
    }
}
