//! Receive ring of a packet socket: memory that the kernel fills and the daemon reads (TPACKET_V2,
//! `Documentation/networking/packet_mmap.rst` of the kernel).

#![expect(
    unsafe_code,
    reason = "the ring of a packet socket is memory that the kernel fills"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use vnic_engine::virtio_net::NetHdr;

use crate::uplink::sys;

/// Length of a VLAN tag.
pub const TAG: usize = 4;
/// Length of the addresses of a frame, behind which the tag goes.
pub const ADDRESSES: usize = 12;
/// Length of the virtio header before each frame.
pub const VNET: usize = NetHdr::LEN_LEGACY;
/// Bytes of a block, which the kernel allocates at once.
const BLOCK: u32 = 1 << 18;
/// Offsets in `struct tpacket2_hdr`; the status is first.
const SNAPLEN: usize = 8;
const MAC: usize = 12;
/// Seconds, and behind them nanoseconds.
const TIME: usize = 16;
const TCI: usize = 24;
const TPID: usize = 26;

/// The receive ring. A slot is the daemon's from the status that says so until the daemon writes the status back.
pub struct Ring {
    memory: NonNull<u8>,
    len: usize,
    slot: usize,
    count: usize,
    /// Index of the next slot.
    at: usize,
    /// Number of slots before it that are still the daemon's.
    taken: usize,
    /// The slot that was taken last, if it is still the daemon's.
    held: Option<OpenSlot>,
}

struct OpenSlot {
    base: NonNull<u8>,
    status: u32,
    from: usize,
    len: usize,
}

/// A filled slot.
pub struct Slot {
    /// Whether the slot has the whole frame.
    pub whole: bool,
    /// Whether the kernel has dropped frames.
    pub lossy: bool,
    /// When the frame arrived, in ns since 1970.
    pub stamp: u64,
    /// Whether the device's hardware says so, by its own clock; else the kernel does, by the system's.
    pub by_hardware: bool,
}

// SAFETY: the memory is a mapping of this ring alone, and moves to another thread with it.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring and maps it. `slot`: bytes, a power of two.
    pub fn new(fd: BorrowedFd<'_>, slot: u32, count: u32) -> io::Result<Ring> {
        let block = BLOCK.max(slot);
        let per_block = block / slot;
        let blocks = count.div_ceil(per_block);
        let request = libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: blocks,
            tp_frame_size: slot,
            tp_frame_nr: per_block * blocks,
        };
        // Room before the virtio header, where a VLAN tag is put back that the kernel takes out.
        let reserve = TAG as u32;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RESERVE, &reserve)?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let len = block as usize * blocks as usize;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel puts it.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                rights,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring {
            memory,
            len,
            slot: slot as usize,
            count: (per_block * blocks) as usize,
            at: 0,
            taken: 0,
            held: None,
        })
    }

    /// Gives all slots back that were taken; with `but_last`, all but the last one.
    #[inline]
    pub fn release(&mut self, but_last: bool) {
        let keep = usize::from(but_last).min(self.taken);
        while self.taken > keep {
            let i = (self.at + self.count - self.taken) % self.count;
            // SAFETY: the status of the daemon's slot, aligned, in the mapping: `i` is below `count`.
            let status = unsafe { self.memory.add(i * self.slot).cast::<AtomicU32>().as_ref() };
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.taken -= 1;
        }
        if keep == 0 {
            self.held = None;
        }
    }

    /// Takes the next slot if it is filled.
    #[inline]
    pub fn next(&mut self) -> Option<Slot> {
        if self.taken == self.count {
            return None;
        }
        // SAFETY: `at` is below `count`, and `count` slots are in the mapping.
        let base = unsafe { self.memory.add(self.at * self.slot) };
        // SAFETY: each slot begins with its status, aligned; kernel and daemon write it at any time.
        let status = unsafe { base.cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.at = if self.at + 1 == self.count { 0 } else { self.at + 1 };
        self.taken += 1;
        // SAFETY: the header of a slot, which the kernel has written before the status and leaves alone now.
        let (full, len, mac, [seconds, nanos]) = unsafe {
            (
                base.add(4).cast::<u32>().read(),
                base.add(SNAPLEN).cast::<u32>().read(),
                base.add(MAC).cast::<u16>().read(),
                base.add(TIME).cast::<[u32; 2]>().read(),
            )
        };
        let (len, mac) = (len as usize, usize::from(mac));
        // The kernel's numbers must be inside the slot, with the bytes before the frame.
        let fits = mac >= TPID + 2 + TAG + VNET && mac + len <= self.slot && len >= ADDRESSES;
        self.held = Some(OpenSlot {
            base,
            status,
            from: if fits { mac - VNET - TAG } else { 0 },
            len: if fits { len + VNET + TAG } else { 0 },
        });
        Some(Slot {
            whole: fits && len == full as usize && status & libc::TP_STATUS_COPY == 0,
            lossy: status & libc::TP_STATUS_LOSING != 0,
            stamp: u64::from(seconds) * 1_000_000_000 + u64::from(nanos),
            by_hardware: status & libc::TP_STATUS_TS_RAW_HARDWARE != 0,
        })
    }

    /// Bytes of the slot that [`Ring::next`] took: room for a tag, virtio header, frame.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        match &self.held {
            // SAFETY: inside the slot (checked), and the slot is the daemon's while it is held, as long as `self` is
            // borrowed.
            Some(held) => unsafe {
                std::slice::from_raw_parts_mut(held.base.add(held.from).as_ptr(), held.len)
            },
            None => &mut [],
        }
    }

    /// Whether the whole frame is queued beside the ring.
    pub fn copied(&self) -> bool {
        self.held
            .as_ref()
            .is_some_and(|h| h.status & libc::TP_STATUS_COPY != 0)
    }

    /// The VLAN tag that the kernel has taken out of the frame.
    #[inline]
    pub fn tag(&self) -> Option<[u8; TAG]> {
        let held = self.held.as_ref()?;
        if held.status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        // SAFETY: the header of a slot that is the daemon's.
        let (tci, tpid) = unsafe {
            (
                held.base.add(TCI).cast::<u16>().read(),
                held.base.add(TPID).cast::<u16>().read(),
            )
        };
        let tpid = if held.status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
            tpid
        } else {
            0x8100
        };
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
        Some([a, b, c, d])
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is the ring's own, and no reference into it outlives the ring.
        unsafe {
            libc::munmap(self.memory.as_ptr().cast(), self.len);
        }
    }
}
