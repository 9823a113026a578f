//! The threads of this process. Nothing here allocates.

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

#[cfg(test)]
mod tests {
    use super::*;

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
