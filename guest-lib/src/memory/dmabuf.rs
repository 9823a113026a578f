//! Memory by its file, which need not be mapped here: dma-bufs, and anonymous files.

use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs};
use rustix::io::Errno;

use crate::Error;

/// `DMA_BUF_MAGIC` of Linux (`linux/magic.h`).
const DMA_BUF: u64 = 0x444d_4142;

/// Who made a file.
pub(super) enum Exporter {
    /// The driver of this name, of a dma-buf.
    Driver(String),
    /// This process, or another one: the file is anonymous.
    Program,
}

impl Exporter {
    /// The error for memory that cannot be shared.
    pub fn refused(&self, e: Error) -> Error {
        match self {
            Exporter::Program => e,
            Exporter::Driver(_) if e.is_gone() => e,
            Exporter::Driver(name) => Error::os(format!(
                "a dma-buf of {name} cannot be shared with the daemon ({e}): its exporter must let it be mapped, as udmabuf does, \
                 where the memory of most GPUs cannot be; it has 4 GiB at most; and the adapter's key EnableGpuDirect is 1 \
                 (vnicctl registry set ADAPTER EnableGpuDirect 1, and a restart of the adapter)"
            ))(Errno::OPNOTSUPP),
        }
    }
}

/// Checks what the kernel checks of `ibv_reg_dmabuf_mr`.
pub(super) fn check(file: BorrowedFd<'_>, offset: u64, len: u64, iova: u64) -> Result<Exporter, Error> {
    let flags = fcntl_getfl(file).map_err(Error::os("looking at a descriptor"))?;
    let os = |e: Errno| Error::os("looking at a file")(e);
    let exporter = if fstatfs(file).map_err(os)?.f_type as u64 == DMA_BUF {
        Exporter::Driver(exporter(file))
    } else if fcntl_get_seals(file).is_ok() {
        Exporter::Program
    } else {
        return Err(Error::Invalid(
            "the descriptor is neither a dma-buf nor an anonymous file (memfd_create)".into(),
        ));
    };
    if !flags.contains(OFlags::RDWR) {
        return Err(Error::os("the descriptor is not open for reading and writing")(
            Errno::ACCESS,
        ));
    }
    let size = fstat(file).map_err(os)?.st_size.cast_unsigned();
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(Error::Invalid(format!(
            "a file of {size:#x} bytes does not have {len:#x} bytes at {offset:#x}"
        )));
    }
    let page = rustix::param::page_size() as u64;
    if offset % page != iova % page {
        return Err(Error::Invalid(format!(
            "offset {offset:#x} and address {iova:#x} are not at the same place of a page"
        )));
    }
    Ok(exporter)
}

/// The exporter of a dma-buf, as the kernel calls it (Documentation/driver-api/dma-buf.rst).
fn exporter(file: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd as _;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("exp_name:"));
    name.map_or("an unknown exporter", str::trim).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, OwnedFd};

    use rustix::fs::{MemfdFlags, Mode, ftruncate, memfd_create, open};

    use super::*;

    fn errno(file: &OwnedFd, offset: u64, len: u64) -> i32 {
        check(file.as_fd(), offset, len, offset).map_or_else(|e| e.errno(), |_| 0)
    }

    #[test]
    fn files_are_checked_as_the_kernel_does() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 8192).expect("a size");
        for (offset, len) in [(0, 8192), (8191, 1), (4096, 4096)] {
            assert_eq!(errno(&file, offset, len), 0);
        }
        for (offset, len) in [(0, 0), (0, 8193), (8192, 1), (u64::MAX, 2)] {
            assert_eq!(errno(&file, offset, len), libc::EINVAL);
        }
        let elsewhere = check(file.as_fd(), 4096, 4096, 1);
        assert!(elsewhere.is_err_and(|e| e.errno() == libc::EINVAL));
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let reader = open(path, OFlags::RDONLY, Mode::empty()).expect("once more");
        assert_eq!(errno(&reader, 0, 4096), libc::EACCES);
        let nothing = open("/dev/zero", OFlags::RDWR, Mode::empty()).expect("a device");
        assert_eq!(errno(&nothing, 0, 4096), libc::EINVAL);
    }

    #[test]
    fn exporters_that_cannot_be_mapped_are_named() {
        let driver = Exporter::Driver("amdgpu".into());
        let refused = driver.refused(Error::os("mapping a file")(Errno::INVAL));
        assert_eq!(refused.errno(), libc::EOPNOTSUPP);
        assert!(refused.to_string().contains("amdgpu"), "{refused}");
        assert!(driver.refused(Error::Gone("it ended".into())).is_gone());
        let program = Exporter::Program.refused(Error::os("mapping a file")(Errno::NOMEM));
        assert_eq!(program.errno(), libc::ENOMEM);
    }
}
