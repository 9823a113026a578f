//! Threads of ours take no signals of the program's.

#![expect(unsafe_code, reason = "keeps signals from a thread of ours")]

/// Blocks all signals for this thread: they are for the program's own threads.
pub fn block_signals() {
    // SAFETY: changes nothing but which signals this thread takes; the set is filled before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
