//! The driver's half of a split virtqueue (virtio 1.3 section 2.7), written by hand and with every part open:
//! hostile tests write what no driver would.

#![expect(
    unsafe_code,
    reason = "the test driver's half of a ring is shared with the device under test"
)]

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering, fence};
use std::time::Duration;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost::VringConfigData;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::memory::GuestMem;
use super::packed::Packed;

/// Descriptor flag: goes on at `next`.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes here.
pub const WRITE: u16 = 2;
/// Descriptor flag: a table of descriptors.
pub const INDIRECT: u16 = 4;

/// A descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Desc {
    /// Guest physical address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// Next descriptor of the chain.
    pub next: u16,
}

impl Desc {
    /// As it stands in memory.
    pub fn bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.addr.to_le_bytes());
        b[8..12].copy_from_slice(&self.len.to_le_bytes());
        b[12..14].copy_from_slice(&self.flags.to_le_bytes());
        b[14..].copy_from_slice(&self.next.to_le_bytes());
        b
    }
}

/// One ring in guest memory.
pub struct Ring {
    mem: GuestMem,
    desc: *mut u8,
    avail: *mut u8,
    used: *mut u8,
    /// Guest physical address of the descriptor table.
    pub desc_gpa: u64,
    /// Guest physical address of the available ring.
    pub avail_gpa: u64,
    /// Guest physical address of the used ring.
    pub used_gpa: u64,
    size: u16,
    /// Whether EVENT_IDX was negotiated.
    pub event_idx: bool,
    /// The driver's half, if the ring is packed.
    pub packed: Option<Packed>,
    /// `avail.idx` as the driver will write it next.
    pub avail_idx: u16,
    /// Used entries taken so far.
    pub taken: u16,
    kicked: u16,
    /// Kicks given.
    pub kicks: u64,
    /// Tells the device of available buffers.
    pub kick: EventFd,
    /// The device tells of used buffers.
    pub call: EventFd,
}

// SAFETY: the pointers lead into `mem`, which the ring holds; one thread at a time uses it.
unsafe impl Send for Ring {}

impl Ring {
    /// Bytes of memory for a ring of `size` entries; each part begins on a page.
    pub fn footprint(size: u16) -> u64 {
        let n = u64::from(size);
        [16 * n, 6 + 2 * n, 6 + 8 * n]
            .iter()
            .map(|b| b.next_multiple_of(4096))
            .sum()
    }

    /// A ring of zeros at `gpa`.
    pub fn new(mem: &GuestMem, gpa: u64, size: u16) -> Result<Ring> {
        let n = u64::from(size);
        let avail_gpa = gpa + (16 * n).next_multiple_of(4096);
        let used_gpa = avail_gpa + (6 + 2 * n).next_multiple_of(4096);
        Ok(Ring {
            desc: mem.host(gpa, 16 * n)?,
            avail: mem.host(avail_gpa, 6 + 2 * n)?,
            used: mem.host(used_gpa, 6 + 8 * n)?,
            mem: mem.clone(),
            desc_gpa: gpa,
            avail_gpa,
            used_gpa,
            size,
            event_idx: false,
            packed: None,
            avail_idx: 0,
            taken: 0,
            kicked: 0,
            kicks: 0,
            kick: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            call: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
        })
    }

    /// Makes it a packed ring, of zeros.
    pub fn pack(&mut self) {
        self.packed = Some(Packed::new(self.desc, self.avail, self.used, self.size));
    }

    /// Back to zeros, as a driver does after a reset.
    pub fn reset(&mut self) -> Result<()> {
        let n = usize::from(self.size);
        if self.packed.is_some() {
            self.mem.write(self.desc_gpa, &vec![0; 16 * n])?;
            self.pack();
        }
        self.mem.write(self.avail_gpa, &vec![0; 6 + 2 * n])?;
        self.mem.write(self.used_gpa, &vec![0; 6 + 8 * n])?;
        (self.avail_idx, self.taken, self.kicked) = (0, 0, 0);
        Ok(())
    }

    /// Begins with all indices at `idx` instead of 0.
    pub fn start_at(&mut self, idx: u16) {
        if let Some(packed) = &mut self.packed {
            return packed.start_at(idx);
        }
        (self.avail_idx, self.taken, self.kicked) = (idx, idx, idx);
        self.set_avail_idx(idx);
        self.set_used_idx(idx);
    }

    /// Where a VMM starts it: where `used.idx` stands. There is none in a packed ring: where it was when the VMM last knew.
    pub fn base(&self) -> u16 {
        match &self.packed {
            Some(packed) => packed.base.get(),
            None => self.used_idx(),
        }
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Where it is, in the frontend's addresses, for SET_VRING_ADDR.
    pub fn config(&self, log: bool) -> VringConfigData {
        VringConfigData {
            queue_max_size: self.size,
            queue_size: self.size,
            flags: u32::from(log),
            desc_table_addr: self.desc as u64,
            used_ring_addr: self.used as u64,
            avail_ring_addr: self.avail as u64,
            log_addr: log.then_some(self.used_gpa),
        }
    }

    /// Writes a descriptor.
    #[inline]
    pub fn set_desc(&self, i: u16, d: Desc) {
        assert!(i < self.size);
        if let Some(packed) = &self.packed {
            return packed.set_desc(i, d);
        }
        // SAFETY: `i < size`, and the table was checked in `new`. The device reads it concurrently only when it
        // was made available, which hostile tests do on purpose.
        unsafe {
            self.desc
                .add(16 * usize::from(i))
                .cast::<[u8; 16]>()
                .write_volatile(d.bytes())
        };
    }

    fn cell(base: *mut u8, offset: usize) -> &'static AtomicU16 {
        // SAFETY: callers give offsets inside the ring parts that `new` checked; they are 2-aligned. `'static` is
        // for this file only: no reference outlives an expression.
        unsafe { AtomicU16::from_ptr(base.add(offset).cast()) }
    }

    /// Writes an entry of the available ring.
    #[inline]
    pub fn set_avail(&self, slot: u16, head: u16) {
        Self::cell(self.avail, 4 + 2 * usize::from(slot % self.size)).store(head, Ordering::Relaxed);
    }

    /// Writes `avail.idx`.
    #[inline]
    pub fn set_avail_idx(&self, idx: u16) {
        Self::cell(self.avail, 2).store(idx, Ordering::Release);
    }

    /// Writes `avail.flags`.
    pub fn set_avail_flags(&self, flags: u16) {
        Self::cell(self.avail, 0).store(flags, Ordering::Relaxed);
    }

    /// Writes `used_event`.
    #[inline]
    pub fn set_used_event(&self, idx: u16) {
        Self::cell(self.avail, 4 + 2 * usize::from(self.size)).store(idx, Ordering::Relaxed);
    }

    /// Reads `used.idx`.
    #[inline]
    pub fn used_idx(&self) -> u16 {
        Self::cell(self.used, 2).load(Ordering::Acquire)
    }

    /// Writes `used.idx`, which no driver does.
    pub fn set_used_idx(&self, idx: u16) {
        Self::cell(self.used, 2).store(idx, Ordering::Release);
    }

    /// Reads `used.flags`.
    pub fn used_flags(&self) -> u16 {
        Self::cell(self.used, 0).load(Ordering::Relaxed)
    }

    /// Reads `avail_event`.
    pub fn avail_event(&self) -> u16 {
        Self::cell(self.used, 4 + 8 * usize::from(self.size)).load(Ordering::Relaxed)
    }

    /// Reads an entry of the used ring: head and length.
    #[inline]
    pub fn used_entry(&self, slot: u16) -> (u32, u32) {
        let at = 4 + 8 * usize::from(slot % self.size);
        // SAFETY: the entry is inside the used ring.
        let v = unsafe { self.used.add(at).cast::<[u8; 8]>().read_volatile() };
        (
            u32::from_le_bytes([v[0], v[1], v[2], v[3]]),
            u32::from_le_bytes([v[4], v[5], v[6], v[7]]),
        )
    }

    /// Makes a buffer available; the device sees it after [`Ring::publish`].
    #[inline]
    pub fn offer(&mut self, head: u16) {
        match &mut self.packed {
            Some(packed) => packed.offer(head),
            None => self.set_avail(self.avail_idx, head),
        }
        self.avail_idx = self.avail_idx.wrapping_add(1);
    }

    /// Lets the device see what was offered, and kicks it if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        let old = std::mem::replace(&mut self.kicked, self.avail_idx);
        if old == self.avail_idx {
            return;
        }
        if let Some(packed) = &mut self.packed {
            let first = packed.publish();
            fence(Ordering::SeqCst);
            if first.is_some_and(|first| packed.wants_kick(first, self.event_idx)) {
                self.kick();
            }
            return;
        }
        self.set_avail_idx(self.avail_idx);
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            self.avail_idx.wrapping_sub(self.avail_event()).wrapping_sub(1) < self.avail_idx.wrapping_sub(old)
        } else {
            self.used_flags() & 1 == 0
        };
        if wanted {
            self.kick();
        }
    }

    /// Kicks the device.
    pub fn kick(&mut self) {
        self.kicks += 1;
        // A full counter says all there is to say.
        let _ = self.kick.write(1);
    }

    /// The next used entry, if there is one: head and length.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, u32)> {
        if let Some(packed) = &mut self.packed {
            let entry = packed.take()?;
            self.taken = self.taken.wrapping_add(1);
            return Some(entry);
        }
        if self.used_idx() == self.taken {
            return None;
        }
        let entry = self.used_entry(self.taken);
        self.taken = self.taken.wrapping_add(1);
        Some(entry)
    }

    /// Asks for interrupts from the next used entry on, or for none.
    pub fn want_calls(&self, want: bool) {
        if let Some(packed) = &self.packed {
            return packed.want_calls(want, self.event_idx);
        }
        if self.event_idx {
            self.set_used_event(if want {
                self.taken
            } else {
                self.taken.wrapping_sub(1)
            });
        } else {
            self.set_avail_flags(u16::from(!want));
        }
    }

    /// Sleeps until the device interrupts, or has been silent for so long; says whether it interrupted.
    pub fn wait_for_call(&self, at_most: Duration) -> bool {
        // SAFETY: the descriptor is open as long as `self.call`, which outlives this function.
        let call = unsafe { BorrowedFd::borrow_raw(self.call.as_raw_fd()) };
        let at_most = Timespec {
            tv_sec: at_most.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&call, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&at_most)), Ok(1))
    }

    /// Interrupts since the last call of this function.
    pub fn calls(&self) -> u64 {
        self.call.read().unwrap_or(0)
    }
}
