//! Addresses of sockets, as programs in C have them.

#![expect(
    unsafe_code,
    reason = "reads and writes structures of the C library's interface"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use vnic_verbs::Gid;

use crate::abi::size_t;
use crate::errno::Errno;

const NO_FAMILY: Errno = Errno(libc::EAFNOSUPPORT);

/// The address in a structure of the program. Of AF_INET and AF_INET6; others: EAFNOSUPPORT.
///
/// # Safety
/// NULL, or an address of the length that its family has.
pub unsafe fn read(from: *const libc::sockaddr) -> Result<SocketAddr, Errno> {
    if from.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: by the caller's promise; it need not be aligned for its family.
    unsafe {
        match i32::from(from.read_unaligned().sa_family) {
            libc::AF_INET => {
                let v4 = from.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = from.cast::<libc::sockaddr_in6>().read_unaligned();
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => Err(NO_FAMILY.because("addresses are IPv4 or IPv6")),
        }
    }
}

/// The address as a structure, and the length that its family has.
pub fn storage(of: SocketAddr) -> (libc::sockaddr_storage, size_t) {
    // SAFETY: zeros are a value: numbers.
    let mut all: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut all;
    let len = match of {
        SocketAddr::V4(v4) => {
            let sin = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: it has room for an address of any family.
            unsafe { place.cast::<libc::sockaddr_in>().write(sin) };
            size_of_val(&sin)
        }
        SocketAddr::V6(v6) => {
            let sin6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(sin6) };
            size_of_val(&sin6)
        }
    };
    (all, len)
}

/// An address as the GIDs and the wire have it: IPv4 also where a program has a mapped one.
pub fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The GID of an address.
pub fn gid(of: IpAddr) -> Gid {
    match plain(of) {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// Whether an address names no interface: a wildcard, or a loopback address, which `rdma_cm` takes for one.
pub fn is_any(ip: IpAddr) -> bool {
    let ip = plain(ip);
    ip.is_unspecified() || ip.is_loopback()
}

/// The loopback address, of the same version.
pub fn loopback_like(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// The address that names no interface, of the same version.
pub fn any_like(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["10.1.2.3:4791", "[fe80::1%3]:7", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            let (storage, len) = storage(address);
            assert!(len == 16 || len == 28);
            // SAFETY: an address, as it was written.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        }
    }

    #[test]
    fn others_are_refused() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, Err(Errno::INVALID));
        let (mut unix, _) = storage("10.1.2.3:4791".parse().expect("an address"));
        unix.ss_family = libc::AF_UNIX as libc::sa_family_t;
        // SAFETY: a whole structure.
        assert_eq!(unsafe { read((&raw const unix).cast()) }, Err(NO_FAMILY));
    }

    #[test]
    fn loopback_addresses_name_no_interface() {
        let is_any = |text: &str| is_any(text.parse().expect("an address"));
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "127.1.2.3",
            "::",
            "::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_any(text), "{text}");
        }
        assert!(!is_any("10.0.0.1") && !is_any("fe80::1"));
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert_eq!(
            plain("::ffff:10.0.0.1".parse().expect("an address")).to_string(),
            "10.0.0.1"
        );
    }
}
