//! Sockets of netlink's RDMA family, for iproute2's `rdma` alone: it finds our devices there, which the kernel does not know.
//!
//! ```text
//!  rdma ──socket(NETLINK_RDMA)──▶ a socket of user programs (NETLINK_USERSOCK)
//!       ──sendto──▶ netlink::answers ──sendto its port──▶ rdma receives them as from the kernel
//! ```
//!
//! Other programs get what they ask the kernel for: libibverbs itself looks for real devices in this way.

#![expect(
    unsafe_code,
    reason = "two functions of the C library, which pass on what is not meant for us"
)]

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::netlink;

/// The program that is answered.
const PROGRAM: &[u8] = b"rdma\n";

/// The newest socket of the program's that is ours to answer: it has one at a time.
static ASKS: AtomicI32 = AtomicI32::new(-1);
/// The socket that answers.
static ANSWERS: OnceLock<OwnedFd> = OnceLock::new();

/// Whether this process is that program.
fn is_meant() -> bool {
    static MEANT: OnceLock<bool> = OnceLock::new();
    *MEANT.get_or_init(|| std::fs::read("/proc/self/comm").is_ok_and(|name| name == PROGRAM))
}

/// A socket of user programs.
fn user_socket() -> rustix::io::Result<OwnedFd> {
    net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(net::netlink::USERSOCK),
    )
}

/// Answers a question of the program's on its socket.
fn answer(asks: c_int, question: &[u8]) -> Option<()> {
    // SAFETY: the program has just named it, and closes it in no other thread.
    let asks = unsafe { BorrowedFd::borrow_raw(asks) };
    let port = SocketAddrNetlink::try_from(net::getsockname(asks).ok()?)
        .ok()?
        .pid();
    let from = match ANSWERS.get() {
        Some(from) => from,
        None => {
            let made = user_socket().ok()?;
            ANSWERS.get_or_init(|| made)
        }
    };
    for message in netlink::answers(question, port) {
        net::sendto(
            from,
            &message,
            SendFlags::empty(),
            &SocketAddrNetlink::new(port, 0),
        )
        .ok()?;
    }
    Some(())
}

/// socket(2).
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == libc::NETLINK_RDMA && is_meant() {
        let made = user_socket().map_or(-1, OwnedFd::into_raw_fd);
        ASKS.store(made, Ordering::Relaxed);
        return made;
    }
    // SAFETY: numbers only, as the caller gave them; errno is set as by the C library.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// sendto(2), as the C library has it.
type SendTo =
    unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const libc::sockaddr, libc::socklen_t) -> isize;

/// sendto(2).
///
/// # Safety
/// The arguments are what the manual page asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
) -> isize {
    if fd < 0 || fd != ASKS.load(Ordering::Relaxed) {
        static NEXT: OnceLock<Option<SendTo>> = OnceLock::new();
        // SAFETY: the function of the C library has this type.
        let next = NEXT.get_or_init(|| unsafe {
            std::mem::transmute::<*mut c_void, Option<SendTo>>(libc::dlsym(
                libc::RTLD_NEXT,
                c"sendto".as_ptr(),
            ))
        });
        // SAFETY: by the promise of the caller.
        return next.map_or(-1, |next| unsafe { next(fd, bytes, len, flags, to, to_len) });
    }
    // SAFETY: so many bytes are there, by the promise of the caller.
    let question = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    // (Without an answer the program waits, as for a kernel that is silent.)
    let _ = crate::export::guarded(|| Ok(answer(fd, question)));
    len.cast_signed()
}
