//! The distribution's library, for devices that are not ours.
//!
//! If our library is loaded before it (`LD_PRELOAD`), the loader finds the real one behind ours. In its place (as
//! `libibverbs.so.1`), or in a program that is not linked with it, ours loads it by its path, and for itself alone.

#![expect(
    unsafe_code,
    reason = "asks the loader for the real library and its functions"
)]

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::errno::complain;

/// One of the distribution's libraries.
struct Real {
    /// Name of the library.
    name: &'static str,
    /// Environment variable with its file; empty: there is none.
    variable: &'static str,
    /// A function that every version has: it identifies such a library, and our own.
    probe: &'static CStr,
    /// That function of our own.
    here: fn() -> *const (),
    /// The library, which is loaded when it is first needed.
    library: OnceLock<Option<Library>>,
}

static VERBS: Real = Real {
    name: "libibverbs.so.1",
    variable: "VNIC_REAL_LIBIBVERBS",
    probe: c"ibv_get_device_list",
    here: || crate::exports::PROBE_HERE,
    library: OnceLock::new(),
};
static CONNECTIONS: Real = Real {
    name: "librdmacm.so.1",
    variable: "VNIC_REAL_LIBRDMACM",
    probe: c"rdma_create_event_channel",
    here: || crate::exports::CM_PROBE_HERE,
    library: OnceLock::new(),
};
static MLX5: Real = Real {
    name: "libmlx5.so.1",
    variable: "VNIC_REAL_LIBMLX5",
    probe: c"mlx5dv_is_supported",
    here: || crate::exports::MLX5_PROBE_HERE,
    library: OnceLock::new(),
};
/// Directories where distributions have it. (Ours may be first on the loader's own way.)
const DIRECTORIES: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/lib64",
    "/lib",
];

/// A function of the real library.
pub struct Symbol {
    name: &'static CStr,
    version: &'static CStr,
    found: OnceLock<usize>,
}

impl Symbol {
    /// A function by name and version.
    pub const fn new(name: &'static CStr, version: &'static CStr) -> Symbol {
        Symbol {
            name,
            version,
            found: OnceLock::new(),
        }
    }

    /// The function, if the real library has it.
    ///
    /// # Safety
    /// `F` is a pointer to a function, of the type that the header gives it.
    pub unsafe fn find<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let found = *self
            .found
            .get_or_init(|| look_up(self.name, Some(self.version)).addr());
        // SAFETY: not null, and of this type by the caller's promise.
        (found != 0).then(|| unsafe { std::mem::transmute_copy(&found) })
    }
}

/// A symbol of the real library, of that version or else of its default one; NULL if there is none. The version says which library.
pub fn look_up(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    let real = match version.map_or(&[][..], CStr::to_bytes) {
        [b'R', b'D', b'M', b'A', b'C', b'M', ..] => &CONNECTIONS,
        [b'M', b'L', b'X', b'5', ..] => &MLX5,
        _ => &VERBS,
    };
    let Some(Library(handle)) = *real.library() else {
        return std::ptr::null_mut();
    };
    if let Some(version) = version {
        // SAFETY: both are texts that end with a zero, and the library stays.
        let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    symbol(handle, name)
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a text that ends with a zero, and the library stays.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// A library, as the loader knows it.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: the loader looks after itself.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Real {
    fn library(&'static self) -> &'static Option<Library> {
        self.library
            .get_or_init(|| match std::env::var_os(self.variable) {
                Some(path) if path.is_empty() => None,
                Some(path) => self.open(&path).or_else(|| {
                    complain(&format_args!(
                        "{} names no {}: {}",
                        self.variable,
                        self.name,
                        path.display()
                    ));
                    None
                }),
                None => self
                    .behind_us()
                    .or_else(|| self.open(OsStr::new(self.name)))
                    .or_else(|| candidates(self.name).find_map(|path| self.open(path.as_os_str()))),
            })
    }

    /// The next library on the loader's way.
    fn behind_us(&self) -> Option<Library> {
        self.is_real(libc::RTLD_NEXT).then_some(Library(libc::RTLD_NEXT))
    }

    /// A library by its name or path, if it is not ours.
    fn open(&self, path: &OsStr) -> Option<Library> {
        let path = CString::new(path.to_owned().into_vec()).ok()?;
        // SAFETY: a text that ends with a zero. What the library does when it is loaded is its own affair.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        (!handle.is_null() && self.is_real(handle)).then_some(Library(handle))
    }

    fn is_real(&self, handle: *mut c_void) -> bool {
        let found = symbol(handle, self.probe);
        !found.is_null() && found.addr() != (self.here)().addr()
    }
}

/// Files that may be the real library. Ours may be among them, by any of its names.
fn candidates(name: &'static str) -> impl Iterator<Item = PathBuf> {
    let same = |path: &Path| Some(std::fs::metadata(path).ok()?).map(|m| (m.dev(), m.ino()));
    let here = our_file().and_then(|path| same(&path));
    DIRECTORIES
        .iter()
        .map(move |dir| Path::new(dir).join(name))
        .filter(move |path| same(path).is_some_and(|found| Some(found) != here))
}

/// The file that this code was loaded from.
fn our_file() -> Option<PathBuf> {
    // SAFETY: zeros are a valid value: numbers and pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address of ours, and a place for the answer.
    let found = unsafe { libc::dladdr(crate::exports::PROBE_HERE.cast(), &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text of the loader, which stays as long as we do.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
