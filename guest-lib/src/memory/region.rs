//! Memory regions.

#![expect(unsafe_code, reason = "registers memory that its caller answers for")]

use std::ops::RangeBounds;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use vnic_device::command::memory::{MrReply, RegisterMr, ReregisterMr};
use vnic_device::command::{Object, Opcode};
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::verbs::reregister;

use super::{DeviceMemory, Sge, SharedBuffer, accessors, bounds, dmabuf};
use crate::driver::Core;
use crate::extents::part_of;
use crate::shared::Memory;
use crate::{Access, Error, ProtectionDomain};

/// Registered memory: local work requests name it by [`lkey`](MemoryRegion::lkey), peers by
/// [`rkey`](MemoryRegion::rkey). Dropping a region deregisters it; put it into an [`Arc`] to share it.
///
/// See the [module](crate::memory) about what may be done with the memory.
pub struct MemoryRegion {
    pd: ProtectionDomain,
    handle: u32,
    lkey: u32,
    rkey: u32,
    iova: u64,
    len: u64,
    access: Access,
    /// The region's memory in this process: of no bytes for device memory and dma-bufs.
    memory: Memory,
    buffer: Option<SharedBuffer>,
    _device_memory: Option<DeviceMemory>,
    /// Whether the device has deregistered the region.
    ended: bool,
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("number", &self.handle)
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len)
            .field("lkey", &format_args!("{:#x}", self.lkey))
            .field("rkey", &format_args!("{:#x}", self.rkey))
            .field("access", &self.access)
            .finish()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if !self.ended {
            let pd = &self.pd.0;
            pd.core.end(
                pd.epoch,
                Opcode::DeregisterMr,
                self.handle,
                Box::new(self.memory.clone()),
            );
        }
    }
}

/// What [`MemoryRegion::reregister`] changes. A field that is `None` stays as it is.
#[derive(Debug, Default)]
pub struct Reregister<'a> {
    /// Another buffer, the offset and the length in it, and the address of its first byte (`None`: its address in
    /// this process).
    pub translation: Option<(&'a SharedBuffer, usize, usize, Option<u64>)>,
    /// Another protection domain.
    pub pd: Option<&'a ProtectionDomain>,
    /// Other rights.
    pub access: Option<Access>,
}

impl ProtectionDomain {
    /// Allocates memory of zeros and registers it, which is what most programs want. Work requests and peers use
    /// its address in this process.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::Access;
    ///
    /// let region = pd.allocate(4096, Access::REMOTE_ALL)?;
    /// region.write_at(0, b"hello");
    /// println!("peers reach it at {:#x} with key {:#x}", region.addr(), region.rkey());
    /// # Ok(())
    /// # }
    /// ```
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        let buffer = SharedBuffer::new(&self.0.core, len)?;
        self.register(&buffer, .., access)
    }

    /// Registers a part of a buffer. The same bytes may be registered any number of times.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context, pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::Access;
    ///
    /// let buffer = device.allocate(8192)?;
    /// let first = pd.register(&buffer, ..4096, Access::LOCAL_WRITE)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the range is not within the buffer.
    #[track_caller]
    pub fn register(
        &self,
        buffer: &SharedBuffer,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let (offset, len) = bounds(range, buffer.len());
        self.register_at(
            buffer,
            offset..offset + len,
            buffer.addr() + offset as u64,
            access,
        )
    }

    /// Registers a part of a buffer so that work requests and peers see its first byte at the address `iova`.
    ///
    /// # Panics
    /// If the range is not within the buffer.
    #[track_caller]
    pub fn register_at(
        &self,
        buffer: &SharedBuffer,
        range: impl RangeBounds<usize>,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let (offset, len) = bounds(range, buffer.len());
        let (memory, extents) = self.part(buffer, offset, len)?;
        self.register_extents(memory, &extents, iova, access, Some(buffer.clone()))
    }

    /// Registers memory of the program's own. `iova`: the address at which work requests and peers see its first
    /// byte.
    ///
    /// In a process on the host its pages move into memory that the daemon sees, at the same address;
    /// `transport/host/adopt.rs` of this crate says how, and where that ends. Not all memory can be registered;
    /// the error says why, and what to do instead. Memory that may only be read can be registered without rights
    /// to write.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
    /// use std::ptr::NonNull;
    /// use vnic_verbs::Access;
    ///
    /// let bytes: &'static mut [u8] = vec![0; 4096].leak();
    /// let start = NonNull::from(&mut bytes[0]);
    /// let iova = start.addr().get() as u64;
    /// // SAFETY: the memory is never freed, and there are no references to it from here on.
    /// let region = unsafe { pd.register_raw(start, 4096, iova, Access::LOCAL_WRITE) }?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// The memory stays mapped, readable and (with rights to write) writable, until the region is dropped; if
    /// windows are still bound to the region then, or the device is gone, until the last object of the device is
    /// dropped. Until then the device may write into it at any time: the program makes no references to it
    /// meanwhile.
    pub unsafe fn register_raw(
        &self,
        start: NonNull<u8>,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller's promise, for as long as the region lives.
        let (memory, extents) = unsafe { self.raw(start, len, access) }?;
        self.register_extents(memory, &extents, iova, access, None)
    }

    /// Pins memory of the program's own.
    ///
    /// # Safety
    /// As [`register_raw`](ProtectionDomain::register_raw), for as long as the returned memory lives.
    unsafe fn raw(
        &self,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<(Memory, Vec<Extent>), Error> {
        if len == 0 {
            return Err(Error::Invalid("a region of 0 bytes".into()));
        }
        if start.as_ptr().addr().checked_add(len).is_none() {
            return Err(Error::Invalid(format!(
                "{len} bytes at {start:p} go beyond the end of memory"
            )));
        }
        // SAFETY: the caller keeps the memory mapped.
        let pinned = unsafe { self.0.core.transport.pin(start, len, writes(access)) }?;
        let extents = part_of(&pinned.extents, 0, len as u64);
        // SAFETY: the caller keeps the memory mapped, and has no references to it.
        let memory = unsafe { Memory::foreign(start, len, Arc::new(pinned)) };
        Ok((memory, extents))
    }

    /// Registers a part of device memory, of any length from any offset on; addresses count from 0.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context, pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::Access;
    ///
    /// let memory = device.alloc_dm(61, 0)?;
    /// let region = pd.register_dm(&memory, 0, 61, Access::REMOTE_ALL | Access::ZERO_BASED)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_dm(
        &self,
        dm: &DeviceMemory,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.same_device(&dm.mapped().0.core)?;
        let at = dm.inside(offset, len)?;
        let (memory, extents) = self.part(dm.mapped(), at, len as usize)?;
        let mut region = self.register_extents(memory, &extents, 0, access | Access::ZERO_BASED, None)?;
        region._device_memory = Some(dm.clone());
        Ok(region)
    }

    /// Registers all addresses and no memory (`ibv_alloc_null_mr`): what work requests write there is thrown away, and what
    /// they read is zeros. Peers cannot use it.
    pub fn register_null(&self) -> Result<MemoryRegion, Error> {
        let pd = Object {
            handle: self.number(),
            reserved: 0,
        };
        let reply = self.0.core.call(self.0.epoch, Opcode::RegisterNullMr, &pd)?;
        Ok(self.without_memory(&reply, u64::MAX, Access::LOCAL_WRITE | Access::ZERO_BASED))
    }

    /// Registers a part of a dma-buf (`ibv_reg_dmabuf_mr`): peers and work requests see its first byte at `iova`. The device
    /// gets the file itself, so that the program need not map it, and may close it.
    ///
    /// The exporter must let its memory be mapped, as udmabuf does; the memory of most GPUs cannot be. An anonymous file
    /// (`memfd_create`) is taken, too. The region has no bytes in this process: [`len`](MemoryRegion::len) is 0.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::os::fd::AsFd;
    /// use vnic_verbs::Access;
    ///
    /// let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/shm/frames")?;
    /// let region = pd.register_dmabuf(file.as_fd(), 4096, 8192, 0, Access::REMOTE_ALL)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_dmabuf(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let exporter = dmabuf::check(file, offset, len as u64, iova)?;
        let pinned = self.0.core.transport.share(file, offset, len);
        let pinned = pinned.map_err(|e| exporter.refused(e))?;
        let extents = part_of(&pinned.extents, 0, len as u64);
        let memory = Memory::unseen(Arc::new(pinned));
        let mut region = self.register_extents(memory, &extents, iova, access, None)?;
        region.len = len as u64;
        Ok(region)
    }

    /// Registers memory of the program's own whose pages the device gets when somebody uses them (on-demand paging): nothing is
    /// copied or pinned now, and the program may unmap what it likes, map anew and move, before the region ends; who reaches what is
    /// there then. The first use of a page takes some 0.1 to 2 ms: peers are told to wait by RNR NAKs. Queue pairs are RC or XRC.
    ///
    /// `iova`: the address at which work requests and peers see the first byte. A `start` of 0 with the length `usize::MAX` is all
    /// memory that the program has and will have; `iova` must be 0 then.
    ///
    /// Error: EOPNOTSUPP, if this is no process of the host, the device is older, or the kernel does not tell when pages are
    /// unmapped (userfaultfd(2) with events for shared memory: Linux 5.19).
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::Access;
    ///
    /// // SAFETY: there are no references to the memory that peers may write.
    /// let all = unsafe { pd.register_on_demand(0, usize::MAX, 0, Access::REMOTE_ALL) }?;
    /// println!("peers reach all of this process with key {:#x}", all.rkey());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// The device may write into the memory that the program has there, at any time, as far as the rights and what the program may
    /// do itself allow: the program makes no references to such memory meanwhile.
    pub unsafe fn register_on_demand(
        &self,
        start: usize,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let core = &self.0.core;
        core.can_page()?;
        let len = match (start, len) {
            (0, usize::MAX) => u64::MAX,
            _ if len == 0 => return Err(Error::Invalid("a region of 0 bytes".into())),
            _ => len as u64,
        };
        let rights = (self.number(), access.bits());
        let (reply, pages) =
            core.register_on_demand(self.0.epoch, rights, (start, len, iova), writes(access))?;
        let mut region = self.without_memory(&reply, len, access);
        // What was lent stays until the device has ended the region.
        region.memory = Memory::unseen(pages);
        region.iova = iova;
        Ok(region)
    }

    /// Gives the device pages of regions on demand before somebody asks for them (`ibv_advise_mr`). `write`: to be written. `wait`:
    /// they are there when this returns; otherwise soon, if they can be.
    ///
    /// Errors: EFAULT for a key of no region on demand, for bytes that are not in it, that nothing is mapped at, or that may not be
    /// written; EPERM for a region of another protection domain.
    pub fn prefetch(&self, what: &[Sge], write: bool, wait: bool) -> Result<(), Error> {
        self.0.core.can_page()?;
        self.0.core.prefetch(self.number(), what, write, wait)
    }

    fn without_memory(&self, reply: &MrReply, len: u64, access: Access) -> MemoryRegion {
        MemoryRegion {
            pd: self.clone(),
            handle: reply.mr,
            lkey: reply.lkey,
            rkey: reply.rkey,
            iova: 0,
            len,
            access,
            memory: Memory::none(),
            buffer: None,
            _device_memory: None,
            ended: false,
        }
    }

    fn same_device(&self, core: &Arc<Core>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.0.core, core) {
            return Ok(());
        }
        Err(Error::Invalid(
            "memory and protection domain are of different devices".into(),
        ))
    }

    fn part(&self, buffer: &SharedBuffer, offset: usize, len: usize) -> Result<(Memory, Vec<Extent>), Error> {
        self.same_device(&buffer.0.core)?;
        let extents = part_of(&buffer.0.extents, offset as u64, len as u64);
        Ok((buffer.0.memory.part(offset, len), extents))
    }

    fn register_extents(
        &self,
        memory: Memory,
        extents: &[Extent],
        iova: u64,
        access: Access,
        buffer: Option<SharedBuffer>,
    ) -> Result<MemoryRegion, Error> {
        let body = |lists: &[ExtentList]| RegisterMr {
            pd: self.number(),
            access: access.bits(),
            iova,
            extents: lists[0],
        };
        let Self(pd) = self;
        let reply: Result<MrReply, Error> =
            pd.core
                .call_with_extents(pd.epoch, Opcode::RegisterMr, &[extents], body);
        let reply = reply.inspect_err(|e| pd.core.bury_if_unknown(e, &memory))?;
        Ok(MemoryRegion {
            pd: self.clone(),
            handle: reply.mr,
            lkey: reply.lkey,
            rkey: reply.rkey,
            iova,
            len: memory.len() as u64,
            access,
            memory,
            buffer,
            _device_memory: None,
            ended: false,
        })
    }
}

/// Whether the device may write. A window may allow what its region does not.
fn writes(access: Access) -> bool {
    access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND)
}

accessors!(MemoryRegion, MemoryRegion::memory);

impl MemoryRegion {
    fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Number of the region.
    pub fn number(&self) -> u32 {
        self.handle
    }

    /// The key by which local work requests name the region.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which peers name the region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Address of the region's first byte, for work requests and peers: 0 if it is ZERO_BASED.
    pub fn addr(&self) -> u64 {
        if self.access.contains(Access::ZERO_BASED) {
            0
        } else {
            self.iova
        }
    }

    /// Length for work requests and peers, in bytes. [`len`](MemoryRegion::len) is the length in this process: 0
    /// for device memory.
    pub fn length(&self) -> u64 {
        self.len
    }

    /// Rights of the region.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Protection domain of the region.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The buffer that the region is a part of, if it was made from one.
    pub fn buffer(&self) -> Option<&SharedBuffer> {
        self.buffer.as_ref()
    }

    /// A scatter/gather element that names a part of the region.
    ///
    /// ```no_run
    /// # fn example(region: &vnic_verbs::MemoryRegion) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::RecvWr;
    ///
    /// let into = RecvWr::new(region.slice(..64));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the range is not within the region, or has more than 2^32 − 1 bytes.
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Sge {
        let (offset, len) = bounds(range, usize::try_from(self.len).unwrap_or(usize::MAX));
        let Ok(len) = u32::try_from(len) else {
            panic!("an element of a work request has less than 2^32 bytes, not {len}");
        };
        Sge {
            addr: self.addr().wrapping_add(offset as u64),
            len,
            lkey: self.lkey,
        }
    }

    /// Changes the memory, the protection domain or the rights. The keys stay, unless they were invalidated or the
    /// memory was lost; work requests under way find the old region or the new one.
    ///
    /// After an error nothing has changed.
    ///
    /// ```no_run
    /// # fn example(region: &mut vnic_verbs::MemoryRegion) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::{Access, Reregister};
    ///
    /// region.reregister(Reregister { access: Some(Access::LOCAL_WRITE), ..Reregister::default() })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the new range is not within the new buffer.
    pub fn reregister(&mut self, change: Reregister<'_>) -> Result<(), Error> {
        let pd = change.pd.unwrap_or(&self.pd).clone();
        let mut new = None;
        if let Some((buffer, offset, len, at)) = change.translation {
            let (memory, extents) = pd.part(buffer, offset, len)?;
            let iova = at.unwrap_or_else(|| memory.addr());
            new = Some((memory, extents, iova, Some(buffer.clone())));
        } else {
            self.check_writable(change.access)?;
        }
        self.change(change.pd, change.access, new)
    }

    /// As [`reregister`](MemoryRegion::reregister), with other memory of the program's own: its first byte, its
    /// length, and the address at which work requests and peers see the first byte.
    ///
    /// # Safety
    /// As [`register_raw`](ProtectionDomain::register_raw). The promise about the old memory ends when this
    /// returns without an error.
    pub unsafe fn reregister_raw(
        &mut self,
        (start, len, iova): (NonNull<u8>, usize, u64),
        pd: Option<&ProtectionDomain>,
        access: Option<Access>,
    ) -> Result<(), Error> {
        let rights = access.unwrap_or(self.access);
        // SAFETY: the caller's promise, for as long as the region lives.
        let (memory, extents) = unsafe { pd.unwrap_or(&self.pd).raw(start, len, rights) }?;
        self.change(pd, access, Some((memory, extents, iova, None)))
    }

    /// Checks that memory can be written which was registered to be read only.
    fn check_writable(&self, access: Option<Access>) -> Result<(), Error> {
        let asked = access.is_some_and(writes) && !writes(self.access);
        let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut(self.memory.addr() as usize))
        else {
            return Ok(());
        };
        if asked && self.buffer.is_none() && self.memory.len() > 0 {
            // SAFETY: it is registered, so it is mapped.
            unsafe { self.pd.0.core.transport.pin(start, self.memory.len(), true) }?;
        }
        Ok(())
    }

    /// Deregisters the region now. Unlike a drop, it gives the region back if windows are bound to it.
    pub fn deregister(mut self) -> Result<(), MemoryRegion> {
        let pd = &self.pd.0;
        let memory = Box::new(self.memory.clone());
        let ended = pd
            .core
            .end_unless_in_use(pd.epoch, Opcode::DeregisterMr, self.handle, memory);
        if !ended {
            return Err(self);
        }
        self.ended = true;
        Ok(())
    }

    fn change(
        &mut self,
        new_pd: Option<&ProtectionDomain>,
        new_access: Option<Access>,
        new: Option<(Memory, Vec<Extent>, u64, Option<SharedBuffer>)>,
    ) -> Result<(), Error> {
        let core = Arc::clone(&self.pd.0.core);
        let pd = new_pd.unwrap_or(&self.pd).clone();
        pd.same_device(&core)?;
        let access = new_access.unwrap_or(self.access);
        let mut bits = 0;
        let (mut iova, mut extents) = (self.iova, &[][..]);
        if let Some((_, list, at, _)) = &new {
            bits |= reregister::TRANSLATION;
            (iova, extents) = (*at, list);
        }
        if new_pd.is_some() {
            bits |= reregister::PD;
        }
        if new_access.is_some() {
            bits |= reregister::ACCESS;
        }
        let body = |lists: &[ExtentList]| ReregisterMr {
            mr: self.handle,
            change: bits,
            register: RegisterMr {
                pd: pd.number(),
                access: access.bits(),
                iova,
                extents: lists[0],
            },
        };
        let reply: MrReply = core
            .call_with_extents(self.pd.0.epoch, Opcode::ReregisterMr, &[extents], body)
            .inspect_err(|e| {
                if let Some((memory, ..)) = &new {
                    core.bury_if_unknown(e, memory);
                }
            })?;
        (self.lkey, self.rkey, self.iova, self.access) = (reply.lkey, reply.rkey, iova, access);
        self.pd = pd;
        if let Some((memory, _, _, buffer)) = new {
            self.len = memory.len() as u64;
            self.memory = memory;
            self.buffer = buffer;
            self._device_memory = None;
        }
        Ok(())
    }
}
