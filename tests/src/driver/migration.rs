//! Dirty logging, as a VMM does for migration.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use anyhow::Result;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::{VhostBackend, VhostUserDirtyLogRegion};

use super::{Guest, feature};

/// The dirty bitmap: one bit for each 4 KiB page.
pub struct Log {
    file: File,
    len: u64,
}

impl Log {
    /// Gives the device a bitmap for all memory and turns logging on.
    pub fn start(guest: &mut Guest) -> Result<Log> {
        let top = guest
            .mem()
            .regions()
            .iter()
            .map(|r| r.guest_phys_addr + r.memory_size)
            .max()
            .unwrap_or(0);
        let len = (top / 4096 / 8 + 1).next_multiple_of(4096);
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, len)?;
        let handle = file.as_raw_fd();
        let region = VhostUserDirtyLogRegion {
            mmap_size: len,
            mmap_offset: 0,
            mmap_handle: handle,
        };
        let features = guest.options.features | feature::LOG_ALL;
        let rings = 2 * usize::from(guest.options.pairs);
        guest.frontend()?.set_log_base(0, Some(region))?;
        guest.frontend()?.set_features(features)?;
        for i in 0..rings {
            let config = guest.ring(i).config(true);
            guest.frontend()?.set_vring_addr(i, &config)?;
        }
        Ok(Log { file, len })
    }

    /// Takes the memory of the bitmap away from under the device.
    pub fn cut_short(&self) -> Result<()> {
        Ok(ftruncate(&self.file, 0)?)
    }

    /// The pages marked since the last call, by number.
    pub fn take(&self) -> Result<BTreeSet<u64>> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        let mut pages = BTreeSet::new();
        for (i, b) in bytes.iter().enumerate().filter(|(_, b)| **b != 0) {
            pages.extend(
                (0..8)
                    .filter(|bit| b >> bit & 1 != 0)
                    .map(|bit| 8 * i as u64 + bit),
            );
            self.file.write_all_at(&[0], i as u64)?;
        }
        Ok(pages)
    }
}
