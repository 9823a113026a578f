//! What a data core may ask the kernel for (seccomp(2)): frames and signals in and out, memory, time, sleep. What is not in the
//! list is refused with EPERM: a guest that took over a data core could start no program and open no file.

use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Calls by what they are for.
const ALLOWED: [i64; 57] = [
    // Frames of TAP devices and sockets; calls and kicks.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_eventfd2,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Time and sleep.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_membarrier,
    // The thread itself, its signals (SIGBUS) and its end, by a panic too.
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The filter, for threads that are to be data cores.
pub struct Filter(BpfProgram);

impl Filter {
    pub fn new() -> io::Result<Filter> {
        let rules = ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter =
            SeccompFilter::new(rules, refused, SeccompAction::Allow, arch).map_err(io::Error::other)?;
        Ok(Filter(filter.try_into().map_err(io::Error::other)?))
    }

    /// From now on, for this thread, for ever.
    pub fn enter(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_core_opens_no_file_and_starts_no_program() {
        let filter = Filter::new().expect("a filter");
        let (file, program, heap) = std::thread::spawn(move || {
            filter.enter().expect("entered");
            (
                std::fs::File::open("/etc/passwd").err().map(|e| e.kind()),
                std::process::Command::new("/bin/true")
                    .spawn()
                    .err()
                    .map(|e| e.kind()),
                vec![1_u8; 64 << 20].len(),
            )
        })
        .join()
        .expect("the thread goes on");
        assert_eq!(file, Some(io::ErrorKind::PermissionDenied));
        assert_eq!(program, Some(io::ErrorKind::PermissionDenied));
        assert_eq!(heap, 64 << 20);
    }
}
