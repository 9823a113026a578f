//! Where the interface begins: functions that the program calls.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::Errno;

/// Runs `body` so that a bug of ours costs the program one call, not its life.
pub fn guarded<T>(body: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno::BROKEN))
}

/// Exported functions: ours if `of` is a context of ours, otherwise those of the real library.
///
/// ```text
/// export! {
///     /// Where it is specified, and what is special here.
///     "IBVERBS_1.1" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd, of context, as pointer {
///         … a block of type Result<*mut ibv_pd, Errno>
///     }
/// }
/// ```
/// The version is that of the symbol in the real library; `as` names a function of [`errno`](crate::errno). In
/// place of a context there may be a condition (`if …`).
macro_rules! export {
    ($($(#[$doc:meta])* $version:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?,
        of $context:expr, as $convention:ident $body:block)*) => {$(
        export! {
            $(#[$doc])* $version fn $name($($arg: $type),*) $(-> $ret)?,
                if $crate::work::poll::is_ours($context), as $convention $body
        }
    )*};
    ($($(#[$doc:meta])* $version:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?,
        if $ours:expr, as $convention:ident $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments are what `infiniband/verbs.h` asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
            // SAFETY: by the promise of the caller all pointers are valid, now and here; the function of the real
            // library has the type that the header gives it.
            #[allow(unused_unsafe, unused_variables)]
            unsafe {
                if $ours {
                    return $crate::errno::$convention($crate::export::guarded(|| $body));
                }
                match real_function!($name, $version).find::<unsafe extern "C" fn($($type),*) $(-> $ret)?>() {
                    Some(real) => real($($arg),*),
                    None => $crate::errno::$convention(Err($crate::errno::Errno::MISSING)),
                }
            }
        }
    )*};
}

/// A function of the real library, by name and version.
macro_rules! real_function {
    ($name:ident, $version:literal) => {{
        static REAL: $crate::real::Symbol = $crate::real::Symbol::new(
            $crate::export::c_text(concat!(stringify!($name), "\0")),
            $crate::export::c_text(concat!($version, "\0")),
        );
        &REAL
    }};
}

/// The type of a function of the real library.
macro_rules! c_fn {
    ($($signature:tt)*) => {
        // SAFETY: a type; whoever calls one passes what the header asks for.
        unsafe extern "C" $($signature)*
    };
}

/// A C string of a text that ends with a zero.
pub const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a zero at its end, and none before"),
    }
}

/// Exported functions of what our devices do not have: EOPNOTSUPP for objects of ours.
macro_rules! lacking {
    ($($(#[$doc:meta])* $version:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?,
        of $context:expr, as $convention:ident;)*) => {
        export! {$(
            $(#[$doc])* $version fn $name($($arg: $type),*) $(-> $ret)?, of $context, as $convention {
                Err($crate::errno::Errno::UNSUPPORTED.because(concat!(stringify!($name), ": our devices have none of this")))
            }
        )*}
    };
}

/// Functions of objects that only the real library can have made.
macro_rules! real_only {
    ($($(#[$doc:meta])* $version:literal fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)?,
        as $convention:ident;)*) => {
        export! {$(
            $(#[$doc])* $version fn $name($($arg: $type),*) $(-> $ret)?, if false, as $convention {
                Err($crate::errno::Errno::MISSING)
            }
        )*}
    };
}

/// A structure of functions gets those of these names.
macro_rules! give {
    ($to:expr; $($name:ident)*) => { $($to.$name = Some($name);)* };
}

/// Exported functions that are always ours: they need nothing that only the real library knows.
macro_rules! own {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?, as $convention:ident $body:block)*) => {
        operation! {$(
            $(#[$doc])* #[unsafe(no_mangle)] fn $name($($arg: $type),*) $(-> $ret)?, as $convention $body
        )*}
    };
}

/// Functions that the program calls through pointers in our objects: always ours.
macro_rules! operation {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?, as $convention:ident $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The arguments are what `infiniband/verbs.h` asks for.
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
            // SAFETY: by the promise of the caller all pointers are valid, now and here.
            #[allow(unused_unsafe)]
            unsafe { $crate::errno::$convention($crate::export::guarded(|| $body)) }
        }
    )*};
}
