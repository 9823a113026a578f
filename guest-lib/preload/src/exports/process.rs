//! Functions about the process as a whole: fork, objects of other processes, files of the kernel.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use crate::abi::*;
use crate::context::{Context, is_command_file};
use crate::errno::Errno;
use crate::handle::{end, the};
use crate::objects::{Dm, Mr, Pd};

own! {
    /// `man 3 ibv_fork_init`. Our memory needs nothing: if the kernel pins it, a child gets copies of it; if it is
    /// shared, it stays shared.
    fn ibv_fork_init() -> c_int, as plain {
        Ok(real_function!(ibv_fork_init, "IBVERBS_1.1").find::<c_fn!(fn() -> c_int)>().map_or(0, |real| real()))
    }

    /// `man 3 ibv_is_fork_initialized`.
    fn ibv_is_fork_initialized() -> c_uint, as plain {
        let real = real_function!(ibv_is_fork_initialized, "IBVERBS_1.13").find::<c_fn!(fn() -> c_uint)>();
        Ok(real.map_or(IBV_FORK_UNNEEDED, |real| real()))
    }

    /// For providers.
    fn ibv_dontfork_range(base: *mut c_void, size: size_t) -> c_int, as plain {
        Ok(real_function!(ibv_dontfork_range, "IBVERBS_1.1").find::<Range>().map_or(0, |real| real(base, size)))
    }

    /// For providers.
    fn ibv_dofork_range(base: *mut c_void, size: size_t) -> c_int, as plain {
        Ok(real_function!(ibv_dofork_range, "IBVERBS_1.1").find::<Range>().map_or(0, |real| real(base, size)))
    }

    /// Directory of the kernel's files.
    fn ibv_get_sysfs_path() -> *mut c_char, as pointer {
        let real = real_function!(ibv_get_sysfs_path, "IBVERBS_1.0").find::<c_fn!(fn() -> *mut c_char)>();
        Ok(real.map_or(c"/sys".as_ptr().cast_mut(), |real| real()))
    }

    /// Reads a short file of the kernel as a text, without its newline.
    fn ibv_read_sysfs_file(dir: *const c_char, file: *const c_char, into: *mut c_char, room: size_t) -> c_int, as signed {
        let path = [CStr::from_ptr(dir).to_bytes(), CStr::from_ptr(file).to_bytes()].join(&b'/');
        let mut bytes = Vec::new();
        std::fs::File::open(OsStr::from_bytes(&path))
            .and_then(|f| f.take(room as u64).read_to_end(&mut bytes))?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if bytes.len() >= room {
            return Err(Errno::INVALID);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.cast(), bytes.len());
        into.add(bytes.len()).write(0);
        Ok(bytes.len() as c_int)
    }
}

type Range = c_fn!(fn(*mut c_void, size_t) -> c_int);

export! {
    /// `man 3 ibv_import_device`: a copy of the descriptor of a context that is open in this process. The new context closes it.
    "IBVERBS_1.10" fn ibv_import_device(fd: c_int) -> *mut ibv_context, if is_command_file(fd), as pointer {
        Context::import(fd, super::operations::operations())
    }
}

export! {
    /// `man 3 ibv_import_pd`.
    "IBVERBS_1.10" fn ibv_import_pd(context: *mut ibv_context, number: u32) -> *mut ibv_pd, of context, as pointer {
        Pd::import(Context::of(context), number)
    }

    /// `man 3 ibv_import_mr`.
    "IBVERBS_1.10" fn ibv_import_mr(pd: *mut ibv_pd, number: u32) -> *mut ibv_mr, of (*pd).context, as pointer {
        Mr::import(the(pd), number)
    }

    /// `man 3 ibv_import_dm`.
    "IBVERBS_1.13" fn ibv_import_dm(context: *mut ibv_context, number: u32) -> *mut ibv_dm, of context, as pointer {
        Dm::import(Context::of(context), number)
    }

    /// `man 3 ibv_import_pd`.
    "IBVERBS_1.10" fn ibv_unimport_pd(pd: *mut ibv_pd), of (*pd).context, as plain {
        end::<Pd>(pd)
    }

    /// `man 3 ibv_import_mr`.
    "IBVERBS_1.10" fn ibv_unimport_mr(mr: *mut ibv_mr), of (*mr).context, as plain {
        end::<Mr>(mr)
    }

    /// `man 3 ibv_import_dm`.
    "IBVERBS_1.13" fn ibv_unimport_dm(dm: *mut ibv_dm), of (*dm).context, as plain {
        end::<Dm>(dm)
    }
}

real_only! {
    /// For providers of old versions.
    "IBVERBS_1.1" fn ibv_register_driver(name: *const c_char, make: *const c_void), as plain;

    /// For librdmacm: converts the kernel's attributes of a queue pair to those of the header.
    "IBVERBS_1.0" fn ibv_copy_qp_attr_from_kern(into: *mut ibv_qp_attr, from: *const c_void), as plain;

    /// For librdmacm: converts the kernel's attributes of an address.
    "IBVERBS_1.1" fn ibv_copy_ah_attr_from_kern(into: *mut ibv_ah_attr, from: *const c_void), as plain;

    /// For librdmacm: converts the kernel's path record.
    "IBVERBS_1.0" fn ibv_copy_path_rec_from_kern(into: *mut c_void, from: *const c_void), as plain;

    /// For librdmacm: converts a path record to the kernel's.
    "IBVERBS_1.0" fn ibv_copy_path_rec_to_kern(into: *mut c_void, from: *const c_void), as plain;
}
