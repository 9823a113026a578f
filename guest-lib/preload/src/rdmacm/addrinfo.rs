//! Lists of addresses that identifiers are made of (`rdma_getaddrinfo`).

#![expect(unsafe_code, reason = "reads and makes lists of the C library's interface")]

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;

use super::address::{read, storage};
use crate::abi::*;
use crate::errno::Errno;

/// Addresses of a name and a service, by the C library's resolver. The error is that of `getaddrinfo`.
///
/// # Safety
/// As `rdma_getaddrinfo`.
pub unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<Resolved, Found> {
    // SAFETY: by the caller's promise; zeros are a value, and the list is the C library's until it is freed.
    unsafe {
        let mut wanted: libc::addrinfo = std::mem::zeroed();
        let flags = hints.map_or(0, |h| h.ai_flags.cast_unsigned());
        let has = |bit| flags & bit != 0;
        wanted.ai_flags = if has(RAI_PASSIVE) { libc::AI_PASSIVE } else { 0 }
            | if has(RAI_NUMERICHOST) {
                libc::AI_NUMERICHOST
            } else {
                0
            };
        if let (Some(hints), true) = (hints, has(RAI_FAMILY)) {
            wanted.ai_family = hints.ai_family;
        }
        let datagrams = hints.is_some_and(|h| {
            h.ai_qp_type.cast_unsigned() == IBV_QPT_UD || h.ai_port_space.cast_unsigned() == RDMA_PS_UDP
        });
        wanted.ai_socktype = if datagrams {
            libc::SOCK_DGRAM
        } else {
            libc::SOCK_STREAM
        };
        if node.is_null() && service.is_null() {
            return of_hints(hints, datagrams).map(Resolved);
        }
        let mut list = std::ptr::null_mut();
        match libc::getaddrinfo(node, service, &raw const wanted, &raw mut list) {
            0 => {}
            libc::EAI_SYSTEM => return Err(Found::Failed(std::io::Error::last_os_error().into())),
            code => return Err(Found::NoAddress(code)),
        }
        let mut first: *mut rdma_addrinfo = std::ptr::null_mut();
        let mut last = &raw mut first;
        let mut one = list;
        while let Some(found) = one.as_ref() {
            if let Ok(address) = read(found.ai_addr) {
                let name = if found.ai_canonname.is_null() {
                    node
                } else {
                    found.ai_canonname
                };
                let ends = match has(RAI_PASSIVE) {
                    true => (Some(address), None),
                    false => (hints.and_then(|h| read(h.ai_src_addr).ok()), Some(address)),
                };
                *last = entry(ends, name, flags, hints, datagrams);
                last = &raw mut (**last).ai_next;
            }
            one = found.ai_next;
        }
        libc::freeaddrinfo(list);
        if first.is_null() {
            Err(Found::NoAddress(libc::EAI_NONAME))
        } else {
            Ok(Resolved(first))
        }
    }
}

/// Why no address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// `EAI_*`.
    NoAddress(c_int),
    Failed(Errno),
}

/// A list of [`find`] that no program has.
pub struct Resolved(*mut rdma_addrinfo);

impl Resolved {
    /// Gives it to the program.
    pub fn take(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Resolved {
    fn drop(&mut self) {
        // SAFETY: `find` made it, and nobody has it.
        unsafe { free(self.0) };
    }
}

/// Without a name and a service the addresses are those of the hints, as many as there are.
///
/// # Safety
/// As [`find`].
unsafe fn of_hints(hints: Option<&rdma_addrinfo>, datagrams: bool) -> Result<*mut rdma_addrinfo, Found> {
    let hints = hints.ok_or(Found::Failed(Errno::INVALID))?;
    let address = |at: *mut libc::sockaddr| match at.is_null() {
        true => Ok(None),
        // SAFETY: by the caller's promise.
        false => unsafe { read(at) }.map(Some).map_err(Found::Failed),
    };
    let ends = (address(hints.ai_src_addr)?, address(hints.ai_dst_addr)?);
    let flags = hints.ai_flags.cast_unsigned();
    // SAFETY: by the caller's promise.
    Ok(unsafe { entry(ends, std::ptr::null(), flags, Some(hints), datagrams) })
}

/// One entry of a list, of an own address and the peer's; a name is that of the own address in passive entries, else of the peer's.
///
/// # Safety
/// As [`find`]; the name is NULL or a text.
unsafe fn entry(
    (own, peer): (Option<SocketAddr>, Option<SocketAddr>),
    name: *const c_char,
    flags: u32,
    hints: Option<&rdma_addrinfo>,
    datagrams: bool,
) -> *mut rdma_addrinfo {
    let (qp_type, space) = if datagrams {
        (IBV_QPT_UD, RDMA_PS_UDP)
    } else {
        (IBV_QPT_RC, RDMA_PS_TCP)
    };
    let wanted = |asked: Option<c_int>, usual: u32| match asked {
        Some(n) if n != 0 => n,
        _ => usual.cast_signed(),
    };
    let mut new: rdma_addrinfo = zeros();
    new.ai_flags = flags.cast_signed();
    new.ai_family = match peer.or(own) {
        Some(SocketAddr::V4(_)) => libc::AF_INET,
        Some(SocketAddr::V6(_)) => libc::AF_INET6,
        None => hints.map_or(libc::AF_UNSPEC, |h| h.ai_family),
    };
    new.ai_qp_type = wanted(hints.map(|h| h.ai_qp_type), qp_type);
    new.ai_port_space = wanted(hints.map(|h| h.ai_port_space), space);
    // SAFETY: by the caller's promise.
    unsafe {
        let name = match name.is_null() {
            true => std::ptr::null_mut(),
            false => libc::strdup(name),
        };
        match flags & RAI_PASSIVE {
            0 => new.ai_dst_canonname = name,
            _ => new.ai_src_canonname = name,
        }
    }
    if let Some(own) = own {
        (new.ai_src_addr, new.ai_src_len) = copy(own);
    }
    if let Some(peer) = peer {
        (new.ai_dst_addr, new.ai_dst_len) = copy(peer);
    }
    Box::into_raw(Box::new(new))
}

fn copy(address: SocketAddr) -> (*mut libc::sockaddr, libc::socklen_t) {
    let (storage, len) = storage(address);
    (Box::into_raw(Box::new(storage)).cast(), len as libc::socklen_t)
}

/// Frees a list of [`find`].
///
/// # Safety
/// [`find`] made the list, and the program does not use it any more.
pub unsafe fn free(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: by the caller's promise: made by `entry`.
        unsafe {
            let one = Box::from_raw(next);
            for address in [one.ai_src_addr, one.ai_dst_addr] {
                if !address.is_null() {
                    drop(Box::from_raw(address.cast::<libc::sockaddr_storage>()));
                }
            }
            libc::free(one.ai_src_canonname.cast());
            libc::free(one.ai_dst_canonname.cast());
            next = one.ai_next;
        }
    }
}
