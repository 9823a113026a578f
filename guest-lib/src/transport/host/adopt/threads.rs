//! The threads of this process. Nothing here allocates, but [`stack`].

#![expect(unsafe_code, reason = "asks the C library for a thread's stack")]

use std::mem::MaybeUninit;

use rustix::fs::{Mode, OFlags, RawDir, open};
use rustix::io::Errno;

/// Most threads whose numbers a caller can keep.
pub(super) const THREADS: usize = 4096;

/// Shows the number of each thread.
pub(super) fn each(mut show: impl FnMut(u32) -> Result<(), Errno>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = open(c"/proc/self/task", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut entries = RawDir::new(&tasks, &mut buffer);
    while let Some(found) = entries.next() {
        let found = found?;
        let name = std::str::from_utf8(found.file_name().to_bytes()).ok();
        let number = name.and_then(|n| n.parse().ok());
        if let Some(thread) = number {
            show(thread)?;
        }
    }
    Ok(())
}

/// Where this thread has its stack: first byte, and the one behind the last. All of memory if that cannot be said.
pub(super) fn stack() -> (usize, usize) {
    let (mut from, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled before they are read, and ended once.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return (0, usize::MAX);
        }
        libc::pthread_attr_getstack(&raw const attributes, &raw mut from, &raw mut len);
        libc::pthread_attr_destroy(&raw mut attributes);
    }
    (from.addr(), from.addr() + len)
}

/// The numbers of all threads of this process.
pub(super) struct Threads {
    all: [u32; THREADS],
    count: usize,
    lowest: u32,
    span: u32,
}

impl Threads {
    pub fn list() -> Result<Threads, Errno> {
        let (mut all, mut count) = ([0; THREADS], 0);
        each(|thread| {
            *all.get_mut(count).ok_or(Errno::RANGE)? = thread;
            count += 1;
            Ok(())
        })?;
        let lowest = all[..count].iter().copied().min().unwrap_or(0);
        let span = all[..count].iter().copied().max().unwrap_or(0) - lowest;
        Ok(Threads {
            all,
            count,
            lowest,
            span,
        })
    }

    /// Whether a word is the number of a thread.
    pub fn are_in(&self, words: &[u32]) -> bool {
        let near = |word: &u32| word.wrapping_sub(self.lowest) <= self.span;
        words.chunks(256).any(|some| {
            // Without an early exit the compiler does this for many words at once.
            some.iter().fold(false, |found, word| found | near(word))
                && some
                    .iter()
                    .any(|word| near(word) && self.all[..self.count].contains(word))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_where_its_variables_are() {
        let stacks = || {
            let here = 0u8;
            let at = (&raw const here).addr();
            let (from, to) = stack();
            (from <= at && at < to).then_some((from, to))
        };
        let mine = stacks().expect("a stack");
        let other = std::thread::spawn(stacks)
            .join()
            .expect("it ends")
            .expect("a stack");
        assert!(mine.1 <= other.0 || other.1 <= mine.0);
    }

    #[test]
    fn numbers_of_threads_are_found_among_others() {
        let threads = Threads::list().expect("readable");
        let me = threads.all[0];
        let other = (1..)
            .find(|n| !threads.all[..threads.count].contains(n))
            .expect("a number");
        let mut words = vec![other; 1000];
        assert!(!threads.are_in(&words));
        words[999] = me;
        assert!(threads.are_in(&words));
    }

    #[test]
    fn this_one_is_among_them() {
        let me = std::fs::read_link("/proc/thread-self").expect("a thread");
        let me = me.file_name().and_then(|n| n.to_str()?.parse().ok());
        let mut found = false;
        each(|thread| {
            found |= Some(thread) == me;
            Ok(())
        })
        .expect("readable");
        assert!(found);
        assert_eq!(each(|_| Err(Errno::RANGE)), Err(Errno::RANGE));
    }
}
