//! Settings of the C library's heap that keep it small.

#![expect(unsafe_code, reason = "mallopt(3), for which no safe crate has a name")]

/// Lets threads share one arena, and returns large blocks to the kernel at once. This suits a process of many threads that
/// seldom allocate: by default each thread has an arena of its own (glibc: eight for each CPU), whose free memory other
/// threads do not get; and the first large block that is freed makes all blocks of its size come from arenas, where they
/// leave holes. Called before threads start; without glibc it does nothing.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        // The default at start; a set value does not adapt any more.
        (libc::M_MMAP_THRESHOLD, LARGE),
    ] {
        // SAFETY: `mallopt` takes two numbers, and locks what it changes. A refusal changes nothing.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Bytes from which on an allocation is a mapping of its own (`mallopt(3)`).
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 * 1024;
