//! Guest memory: memfd regions with canaries around them.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::VhostUserMemoryRegionInfo;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};
use vm_memory::{GuestUsize, MmapRegion};

/// Bytes of each file before and behind its region. The device is not told of them: nobody may write there.
pub const CANARY: u64 = 64 << 10;
const PATTERN: u8 = 0xc5;

/// The memory of one guest, shared with the device. Cheap to clone: clones show the same bytes.
#[derive(Clone, Default)]
pub struct GuestMem {
    map: GuestMemoryMmap,
}

impl GuestMem {
    /// No memory yet.
    pub fn new() -> GuestMem {
        GuestMem::default()
    }

    /// Adds a region of zeros at a guest physical address; both in units of 4096 bytes.
    pub fn add(&mut self, gpa: u64, len: u64) -> Result<()> {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, len + 2 * CANARY)?;
        let pattern = vec![PATTERN; CANARY as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &pattern, 0)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &pattern, CANARY + len)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, CANARY), len as usize)?;
        let region = GuestRegionMmap::new(mapping, GuestAddress(gpa)).context("wraps around")?;
        self.map = self.map.insert_region(region.into())?;
        Ok(())
    }

    /// Takes the region away that begins at `gpa`.
    pub fn remove(&mut self, gpa: u64) -> Result<()> {
        let region = self
            .map
            .find_region(GuestAddress(gpa))
            .context("no region there")?;
        let (base, len): (_, GuestUsize) = (region.start_addr(), region.len());
        self.map = self.map.remove_region(base, len)?.0;
        Ok(())
    }

    /// The memory as rust-vmm's crates want it.
    pub fn map(&self) -> &GuestMemoryMmap {
        &self.map
    }

    /// The regions as the frontend describes them.
    pub fn regions(&self) -> Vec<VhostUserMemoryRegionInfo> {
        self.map.iter().map(describe).collect()
    }

    /// One region as the frontend describes it.
    pub fn region(&self, gpa: u64) -> Result<VhostUserMemoryRegionInfo> {
        Ok(describe(
            self.map
                .find_region(GuestAddress(gpa))
                .context("no region there")?,
        ))
    }

    /// Where in this process guest physical `gpa` is; `len` bytes from there lie in one region.
    pub fn host(&self, gpa: u64, len: u64) -> Result<*mut u8> {
        let region = self
            .map
            .find_region(GuestAddress(gpa))
            .with_context(|| format!("no memory at {gpa:#x}"))?;
        let offset = gpa - region.start_addr().0;
        ensure!(
            len <= region.len() - offset,
            "{gpa:#x} + {len:#x} leaves its region"
        );
        Ok(region.as_ptr().wrapping_add(offset as usize))
    }

    /// Copies bytes into guest memory.
    pub fn write(&self, gpa: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.map.write_slice(bytes, GuestAddress(gpa))?)
    }

    /// Copies bytes out of guest memory.
    pub fn read(&self, gpa: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.map.read_slice(bytes, GuestAddress(gpa))?)
    }

    /// Fails when somebody wrote beside the regions.
    pub fn check_canaries(&self) -> Result<()> {
        for region in self.map.iter() {
            let file = region.file_offset().context("a region without file")?.file();
            for at in [0, CANARY + region.len()] {
                let mut bytes = vec![0; CANARY as usize];
                std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, at)?;
                ensure!(
                    bytes.iter().all(|b| *b == PATTERN),
                    "somebody wrote outside guest memory"
                );
            }
        }
        Ok(())
    }
}

fn describe(region: &GuestRegionMmap) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: region.start_addr().0,
        memory_size: region.len(),
        userspace_addr: region.as_ptr() as u64,
        mmap_offset: region.file_offset().map_or(0, FileOffset::start),
        mmap_handle: region.file_offset().map_or(-1, |f| f.file().as_raw_fd()),
    }
}
