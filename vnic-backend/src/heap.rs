//! The C library's heap, kept small.

#![expect(
    unsafe_code,
    reason = "mallopt(3) and malloc_trim(3), for which no safe crate has a name"
)]

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

/// Returns free memory to the kernel, also what lies between blocks in use. Called after work that had many small blocks, such as
/// a capture's frames; it takes milliseconds for a hundred MiB, in which no thread gets a small block. Without glibc it does
/// nothing.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes a number and locks what it changes; blocks in use stay where they are.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes from which on an allocation is a mapping of its own (`mallopt(3)`).
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 * 1024;

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    /// MiB of this process in memory.
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
        let pages: usize = text
            .split(' ')
            .nth(1)
            .expect("a column")
            .parse()
            .expect("a number");
        (pages * rustix::param::page_size()) >> 20
    }

    #[test]
    fn small_blocks_that_are_free_go_back_though_others_lie_between() {
        let mut all: Vec<_> = (0..200_000)
            .map(|_| Some(vec![1u8; 1000].into_boxed_slice()))
            .collect();
        let full = resident();
        for (i, block) in all.iter_mut().enumerate() {
            if i % 100 != 0 {
                *block = None;
            }
        }
        super::give_back();
        let left = resident();
        assert!(left + 100 < full, "{left} MiB of {full}");
        assert_eq!(all.iter().flatten().count(), 2000);
    }
}
