//! Registers of a device: the only place that touches its BARs.

#![expect(unsafe_code, reason = "registers of a PCI device, mapped")]

use std::fs::File;

use memmap2::MmapRaw;

use super::capability::BARS;

/// Registers of a function, by BAR and offset. A register that is not there reads as ones, and takes writes, as on
/// a PCI bus.
pub trait Registers: Send + Sync {
    /// Reads one byte.
    fn read8(&self, bar: u8, offset: u32) -> u8;
    /// Reads two bytes; little-endian, as all others. The offset is a multiple of 2.
    fn read16(&self, bar: u8, offset: u32) -> u16;
    /// Reads four bytes. The offset is a multiple of 4.
    fn read32(&self, bar: u8, offset: u32) -> u32;
    /// Writes one byte.
    fn write8(&self, bar: u8, offset: u32, value: u8);
    /// Writes two bytes.
    fn write16(&self, bar: u8, offset: u32, value: u16);
    /// Writes four bytes.
    fn write32(&self, bar: u8, offset: u32, value: u32);
}

/// BARs of a function, mapped.
#[derive(Debug, Default)]
pub struct Bars {
    bars: [Option<MmapRaw>; BARS],
}

impl Bars {
    /// Maps a BAR by its file `resourceN` of sysfs.
    pub fn map(&mut self, bar: u8, file: &File) -> std::io::Result<()> {
        let place = self
            .bars
            .get_mut(usize::from(bar))
            .ok_or_else(|| std::io::Error::other("there is no such BAR"))?;
        *place = Some(MmapRaw::map_raw(file)?);
        Ok(())
    }

    /// Bytes of a BAR; 0 if it is not mapped.
    pub fn len(&self, bar: u8) -> u64 {
        let bar = self.bars.get(usize::from(bar)).and_then(Option::as_ref);
        bar.map_or(0, |b| b.len() as u64)
    }

    /// Address of a register, if it is there and aligned.
    fn at<T>(&self, bar: u8, offset: u32) -> Option<*mut T> {
        let bar = self.bars.get(usize::from(bar))?.as_ref()?;
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(size_of::<T>())?;
        if end > bar.len() || offset % size_of::<T>() != 0 {
            return None;
        }
        // SAFETY: `offset` + the register's size <= the mapping's length.
        Some(unsafe { bar.as_mut_ptr().add(offset) }.cast())
    }
}

/// A load and a store of one width.
macro_rules! accesses {
    ($($read:ident $write:ident $type:ty),*) => { $(
        fn $read(&self, bar: u8, offset: u32) -> $type {
            match self.at::<$type>(bar, offset) {
                // SAFETY: the address is inside a mapping that lives as long as `self`, and aligned.
                Some(at) => <$type>::from_le(unsafe { at.read_volatile() }),
                None => <$type>::MAX,
            }
        }

        fn $write(&self, bar: u8, offset: u32, value: $type) {
            if let Some(at) = self.at::<$type>(bar, offset) {
                // SAFETY: as above, and the mapping is writable.
                unsafe { at.write_volatile(value.to_le()) }
            }
        }
    )* };
}

impl Registers for Bars {
    accesses!(read8 write8 u8, read16 write16 u16, read32 write32 u32);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn registers_are_the_bytes_of_the_file() {
        let file = tempfile::tempfile().expect("temporary file");
        file.write_all_at(&[0x11; 4096], 0).expect("written");
        let mut bars = Bars::default();
        assert!(bars.map(6, &file).is_err());
        bars.map(2, &file).expect("mapped");
        assert_eq!((bars.len(2), bars.len(1), bars.len(9)), (4096, 0, 0));
        bars.write32(2, 4, 0x1234_5678);
        bars.write16(2, 8, 0xabcd);
        bars.write8(2, 4095, 7);
        assert_eq!(bars.read8(2, 5), 0x56);
        assert_eq!(bars.read16(2, 6), 0x1234);
        assert_eq!(bars.read32(2, 8), 0x1111_abcd);
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes[4..11], [0x78, 0x56, 0x34, 0x12, 0xcd, 0xab, 0x11]);
        assert_eq!(bytes[4095], 7);
    }

    #[test]
    fn what_is_not_there_reads_as_ones() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(4096).expect("room");
        let mut bars = Bars::default();
        bars.map(0, &file).expect("mapped");
        for (bar, offset) in [(1, 0), (0, 4096), (0, 4094), (0, 2), (0, u32::MAX), (200, 0)] {
            bars.write32(bar, offset, 5);
            assert_eq!(bars.read32(bar, offset), u32::MAX, "{bar} {offset}");
        }
        assert_eq!(bars.read32(0, 4092), 0);
    }
}
