//! The C library's heap, told to stay small.

#![expect(unsafe_code, reason = "mallopt(3), for which no safe crate has a name")]

/// Threads share one arena, and what is large goes back to the kernel at once. For a process of many threads that seldom
/// allocate: by default each of them has an arena of its own (glibc: eight for each CPU), and what a thread has freed serves
/// nobody else; and whoever frees something large for the first time makes all that is as large come from arenas from then on,
/// where it leaves holes. To be called before threads start; where the C library knows no such thing nothing happens.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        // As it is at first; once set it stays.
        (libc::M_MMAP_THRESHOLD, LARGE),
    ] {
        // SAFETY: `mallopt` takes two numbers, and locks what it changes. A refusal changes nothing.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Bytes from which on an allocation is a mapping of its own (`mallopt(3)`).
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 * 1024;
