//! Pages of a file that the program need not have mapped.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use memmap2::{MmapOptions, MmapRaw};
use vnic_device::ring::Extent;

use super::pagemap;
use super::pin::{Pin, Pins};
use crate::Error;

impl Pins {
    /// Maps bytes of a file, pins them, and says where the device sees them. They stay there while the result lives.
    pub fn pin_file(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<(Vec<Extent>, (Pin, MmapRaw)), Error> {
        let skip = offset % rustix::param::page_size() as u64;
        let all = len.checked_add(skip as usize);
        let map = MmapOptions::new()
            .offset(offset - skip)
            .len(all.ok_or_else(|| Error::Invalid(format!("{len} bytes of a file")))?)
            .map_raw(file.as_raw_fd())
            .map_err(Error::os("mapping a file"))?;
        let start = map.as_ptr().addr() + skip as usize;
        let pin = self.pin(start, len)?;
        Ok((pagemap::extents(start, len)?, (pin, map)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::super::pin;
    use super::*;

    #[test]
    fn pages_of_a_file_are_those_of_every_mapping_of_it() {
        if let Err(e) = pin::check() {
            eprintln!("SKIP pins of files: {e}");
            return;
        }
        let page = rustix::param::page_size();
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 4 * page as u64).expect("a size");
        let mine = MmapOptions::new()
            .len(4 * page)
            .map_raw(&file)
            .expect("a mapping");
        rustix::io::pwrite(&file, &[7], 5000).expect("room");
        let pinned = Pins::new().pin_file(file.as_fd(), page as u64 + 100, page);
        match pinned {
            Err(e) if e.to_string().contains("CAP_SYS_ADMIN") => eprintln!("SKIP pins of files: {e}"),
            Err(e) => panic!("{e}"),
            Ok((extents, (_pin, map))) => {
                assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), page as u64);
                assert_eq!(extents[0].gpa % page as u64, 100);
                // Another mapping of the same pages, once they are in it.
                let other = Pins::new().pin(mine.as_ptr().addr(), 4 * page).expect("pinned");
                let here = pagemap::extents(mine.as_ptr().addr() + page + 100, page).expect("in memory");
                assert_eq!(here, extents);
                drop((other, map));
            }
        }
    }
}
