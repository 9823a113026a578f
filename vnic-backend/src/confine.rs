//! System calls that threads may make (seccomp(2)). A data core and the thread of an adapter's socket, which handle input of
//! guests and VMMs, have a list of allowed calls each; all others fail with EPERM: an attacker in such a thread could start
//! no program, open no file and make no memory executable. The process has a list of forbidden calls, which the control plane
//! gives.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::types::SocketRole;

/// Calls of any thread.
const ALL: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_poll,
    libc::SYS_ppoll,
    // Memory. (See `NOT_EXECUTABLE` for more.)
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    // Time and sleep.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // The thread itself, its signals (SIGBUS), and its end, by a panic too.
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit_group,
];
/// Calls of any thread, for memory that is not executable.
const NOT_EXECUTABLE: &[i64] = &[libc::SYS_mmap, libc::SYS_mprotect];
/// Calls of a data core: frames of TAP devices and sockets, kicks and interrupts.
const DATA_CORE: &[i64] = &[
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_setsockopt,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_dup,
    libc::SYS_eventfd2,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_membarrier,
    libc::SYS_uname,
];
/// Calls of a socket's thread: connections of VMMs, and types of files behind their descriptors.
const SOCKET: &[i64] = &[libc::SYS_accept4, libc::SYS_fstatfs, libc::SYS_readlink];

/// A filter of system calls, for threads.
pub struct Filter(BpfProgram);

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Rules for a call whose argument (by its index) equals `value` in the bits of the mask.
fn with(argument: u8, mask: u64, value: u64) -> io::Result<Vec<SeccompRule>> {
    let condition = SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(mask),
        value,
    );
    let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
    Ok(vec![rule.map_err(io::Error::other)?])
}

impl Filter {
    /// Filter of data cores.
    pub(crate) fn data_core() -> io::Result<Filter> {
        Filter::only(DATA_CORE, Rules::new())
    }

    /// Filter of the thread of an adapter's socket.
    pub(crate) fn socket(role: SocketRole) -> io::Result<Filter> {
        const ANY: u64 = u32::MAX as u64;
        let mut more = Rules::from([
            (libc::SYS_ioctl, with(1, ANY, libc::FIONBIO)?),
            (libc::SYS_setsockopt, with(2, ANY, libc::SO_RCVTIMEO as u64)?),
        ]);
        if role == SocketRole::Connect {
            more.insert(libc::SYS_socket, with(0, ANY, libc::AF_UNIX as u64)?);
            more.insert(libc::SYS_connect, Vec::new());
        }
        Filter::only(SOCKET, more)
    }

    /// Filter that allows `calls`, those of `rules` and those of any thread.
    fn only(calls: &[i64], mut rules: Rules) -> io::Result<Filter> {
        for call in NOT_EXECUTABLE {
            rules.insert(*call, with(2, libc::PROT_EXEC as u64, 0)?);
        }
        let listed = ALL.iter().chain(calls);
        rules.extend(listed.map(|call| (*call, Vec::new())));
        Filter::new(
            rules,
            SeccompAction::Errno(libc::EPERM as u32),
            SeccompAction::Allow,
        )
    }

    /// Filter that allows all calls but `calls`.
    pub fn without(calls: &[i64]) -> io::Result<Filter> {
        let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
        Filter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
        )
    }

    fn new(rules: Rules, others: SeccompAction, listed: SeccompAction) -> io::Result<Filter> {
        // rustix once asks the kernel for values that all threads use, by a call that no filtered thread may make (auxv(3)).
        let _ = rustix::param::page_size();
        let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let filter = SeccompFilter::new(rules, others, listed, arch).map_err(io::Error::other)?;
        Ok(Filter(filter.try_into().map_err(io::Error::other)?))
    }

    /// Installs the filter for this thread and those that it starts, until they end.
    pub fn enter(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::process::Command;

    use super::*;
    use crate::mem::executable;

    const REFUSED: Option<io::ErrorKind> = Some(io::ErrorKind::PermissionDenied);

    fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
        result.err().map(|e| e.kind())
    }

    /// Checks what no thread with a list of allowed calls may do, and that it can allocate memory.
    fn is_confined() {
        assert_eq!(kind(File::open("/etc/passwd")), REFUSED);
        assert_eq!(kind(Command::new("/bin/true").spawn()), REFUSED);
        assert_eq!(kind(UdpSocket::bind("127.0.0.1:0")), REFUSED);
        assert_eq!(kind(std::fs::remove_file("/nothing")), REFUSED);
        assert_eq!(kind(executable()), REFUSED);
        assert_eq!(vec![1_u8; 64 << 20].len(), 64 << 20);
    }

    /// Runs a test on a thread of its own, because a filter stays.
    fn inside(filter: io::Result<Filter>, test: impl FnOnce() + Send + 'static) {
        let filter = filter.expect("a filter");
        let thread = std::thread::spawn(move || {
            filter.enter().expect("entered");
            test();
        });
        thread.join().expect("the thread goes on");
    }

    #[test]
    fn a_data_core_opens_no_file_and_starts_no_program() {
        inside(Filter::data_core(), || {
            is_confined();
            assert_eq!(kind(UnixStream::connect("/nothing")), REFUSED);
        });
    }

    #[test]
    fn a_thread_of_a_socket_opens_no_file_and_starts_no_program() {
        let name = format!("vnic-confine-{}", std::process::id());
        let name = SocketAddr::from_abstract_name(name).expect("a name");
        let listener = UnixListener::bind_addr(&name).expect("a socket");
        let to = name.clone();
        inside(Filter::socket(SocketRole::Listen), move || {
            is_confined();
            assert_eq!(kind(UnixStream::connect_addr(&to)), REFUSED);
        });
        // A thread that connects may make Unix sockets, and no others.
        inside(Filter::socket(SocketRole::Connect), move || {
            is_confined();
            UnixStream::connect_addr(&name).expect("connected");
        });
        inside(Filter::socket(SocketRole::Listen), move || {
            let (accepted, _) = listener.accept().expect("the one that connected");
            accepted.set_nonblocking(true).expect("the ioctl that it may");
        });
    }

    #[test]
    fn what_is_forbidden_is_refused_and_nothing_else() {
        inside(Filter::without(&[libc::SYS_socket]), || {
            assert_eq!(kind(UdpSocket::bind("127.0.0.1:0")), REFUSED);
            File::open("/etc/passwd").expect("opened");
        });
    }
}
