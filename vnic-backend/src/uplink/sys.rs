//! System calls without a safe crate: socket options of AF_PACKET, and ethtool's queries.

#![expect(unsafe_code, reason = "system calls for which no safe crate has a name")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use vnic_engine::offload::Accepts;

use crate::mem::Lasting;

/// Constants of `linux/ethtool.h`.
const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETH_SS_STATS: u32 = 1;
const ETH_GSTRING_LEN: usize = 32;
/// Length of `struct ethtool_cmd`, length of `struct ethtool_drvinfo`, and the offset of its `n_stats`.
const SETTINGS_LEN: usize = 44;
const DRIVER_LEN: usize = 196;
const DRIVER_STATS: usize = 180;
/// Place of the `driver` field of `struct ethtool_drvinfo`.
const DRIVER_NAME: std::ops::Range<usize> = 4..36;
/// Length of `struct ethtool_channels`, and the offsets of its `rx_count` and `combined_count`.
const CHANNELS_LEN: usize = 36;
const CHANNELS_COUNTED: [usize; 2] = [20, 32];
/// Length of `struct ethtool_ts_info`, and the offsets of its `phc_index` and `rx_filters`.
const STAMPS_LEN: usize = 44;
const STAMPS_CLOCK: usize = 8;
const STAMPS_FILTERS: usize = 28;
/// Upper limit of a driver's number of statistics.
const STATISTICS_MAX: usize = 8192;

/// Sets a socket option.
pub fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is `len` readable bytes for the time of the call; the kernel keeps no pointer to them.
    answered(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), len) })
}

/// Reads a socket option of `N` numbers.
pub fn numbers<const N: usize>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<[u32; N]> {
    let mut value = [0u32; N];
    let mut len = size_of_val(&value) as libc::socklen_t;
    let to = value.as_mut_ptr().cast();
    // SAFETY: `value` is `len` writable bytes, and any bits are numbers.
    answered(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, to, &raw mut len) })?;
    Ok(value)
}

/// Binds a packet socket to all protocols of an interface.
pub fn bind_packet(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is `len` readable bytes for the time of the call.
    answered(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Receives the frames of all addresses of an interface for as long as this packet socket is open.
pub fn receive_all(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let all = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)
}

/// Receive queues of a device, if its driver reports them.
pub fn receive_queues(ifname: &str) -> Option<u32> {
    let channels = ethtool(ifname, &[ETHTOOL_GCHANNELS], CHANNELS_LEN).ok()?;
    let queues = CHANNELS_COUNTED.map(|at| word(&channels, at)).iter().sum();
    (queues > 0).then_some(queues)
}

/// Whether the device takes VLAN tags out of received frames.
pub fn takes_tags(ifname: &str) -> bool {
    let flags = ethtool(ifname, &[ETHTOOL_GFLAGS], 8);
    flags.is_ok_and(|flags| word(&flags, 4) & ETH_FLAG_RXVLAN != 0)
}

/// Name of a device's driver.
pub fn driver(ifname: &str) -> Option<String> {
    let driver = ethtool(ifname, &[ETHTOOL_GDRVINFO], DRIVER_LEN).ok()?;
    let name = driver[DRIVER_NAME].split(|b| *b == 0).next()?;
    String::from_utf8(name.to_vec()).ok()
}

/// That a frame which a device has returned lasts, and whether the device has verified its checksum.
#[inline]
pub fn lasting(verified: bool) -> Lasting {
    // SAFETY: who says so of a frame gives its memory back, or reads into it, in `RxHalf::release` or later, which the data
    // core calls behind the end of its burst.
    unsafe { Lasting::new(verified) }
}

/// Offloads that the kernel accepts, and finishes if a device cannot: all, UDP segments since Linux 6.2.
pub fn accepts() -> Accepts {
    static ACCEPTS: OnceLock<Accepts> = OnceLock::new();
    *ACCEPTS.get_or_init(|| {
        // (By a system call: a data core opens no files.)
        let uso = since(&rustix::system::uname().release().to_string_lossy(), (6, 2));
        Accepts {
            csum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            uso4: uso,
            uso6: uso,
            rsc_ext: false,
        }
    })
}

/// Whether this release of Linux is at least `version`.
fn since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= version,
        _ => false,
    }
}

/// Speed of a link in Mbit/s, if the device knows one.
pub fn speed_mbps(ifname: &str) -> Option<u32> {
    let settings = ethtool(ifname, &[ETHTOOL_GSET], SETTINGS_LEN).ok()?;
    // `speed` at 12, `speed_hi` at 28.
    let half = |at: usize| u32::from(u16::from_ne_bytes([settings[at], settings[at + 1]]));
    let speed = half(28) << 16 | half(12);
    // Unknown is all ones, with some drivers in 16 bits.
    (speed != 0 && speed != u32::MAX && speed != 0xffff).then_some(speed)
}

/// Statistics of the driver (`ethtool -S`), by its names; empty without any.
pub fn device_statistics(ifname: &str) -> Vec<(String, u64)> {
    driver_statistics(ifname).unwrap_or_default()
}

fn driver_statistics(ifname: &str) -> io::Result<Vec<(String, u64)>> {
    let driver = ethtool(ifname, &[ETHTOOL_GDRVINFO], DRIVER_LEN)?;
    let n = word(&driver, DRIVER_STATS) as usize;
    if n == 0 || n > STATISTICS_MAX {
        return Ok(Vec::new());
    }
    // The device may have more of them by now, and the kernel writes all: the buffer has room to spare.
    let room = n + 64;
    let strings = [ETHTOOL_GSTRINGS, ETH_SS_STATS, n as u32];
    let names = ethtool(ifname, &strings, 12 + room * ETH_GSTRING_LEN)?;
    let values = ethtool(ifname, &[ETHTOOL_GSTATS, n as u32], 8 + room * 8)?;
    let names = names[12..].chunks_exact(ETH_GSTRING_LEN).map(|name| {
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).trim().to_owned()
    });
    let values = values[8..]
        .chunks_exact(8)
        .map(|v| v.try_into().map_or(0, u64::from_ne_bytes));
    Ok(names.zip(values).take(n).collect())
}

/// Index of the clock that a device's timestamps are of (`/dev/ptpN`), if it has one, and the filters for received frames that it has
/// (bits by number, `linux/net_tstamp.h`).
pub fn hardware_stamps(ifname: &str) -> Option<(u32, u32)> {
    let info = ethtool(ifname, &[ETHTOOL_GET_TS_INFO], STAMPS_LEN).ok()?;
    let clock = word(&info, STAMPS_CLOCK);
    (clock.cast_signed() >= 0).then(|| (clock, word(&info, STAMPS_FILTERS)))
}

/// What a device's hardware stamps: flags, kind of sent and filter of received frames (`struct hwtstamp_config`).
pub fn hwtstamp(ifname: &str) -> io::Result<[u32; 3]> {
    hwtstamp_by(ifname, libc::SIOCGHWTSTAMP, [0; 3])
}

/// Sets what a device's hardware stamps, which may be more than was asked for.
pub fn set_hwtstamp(ifname: &str, what: [u32; 3]) -> io::Result<()> {
    hwtstamp_by(ifname, libc::SIOCSHWTSTAMP, what).map(drop)
}

fn hwtstamp_by(ifname: &str, control: libc::c_ulong, what: [u32; 3]) -> io::Result<[u32; 3]> {
    let mut data: Vec<u8> = what.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // (Both controls read and write a `struct hwtstamp_config`, which has these 12 bytes.)
    of_device(ifname, control, &mut data)?;
    Ok([0, 4, 8].map(|at| word(&data, at)))
}

/// Tells the kernel which offloads the daemon accepts from a TAP device, and the length of the header before each frame (a
/// persistent device keeps both when its program ends).
pub fn tap_offload(fd: BorrowedFd<'_>, header: usize) -> io::Result<()> {
    let control = |name: libc::Ioctl, value: libc::c_ulong| {
        // SAFETY: this control takes a number, not an address.
        answered(unsafe { libc::ioctl(fd.as_raw_fd(), name, value) })
    };
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // A kernel before Linux 6.2 does not know UDP segments, and cuts them itself.
    control(libc::TUNSETOFFLOAD, (tcp | udp).into()).or_else(|_| control(libc::TUNSETOFFLOAD, tcp.into()))?;
    let header = header as c_int;
    // SAFETY: this control reads one int, for the time of the call.
    answered(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header) })
}

/// Whether each frame of a TAP device has a virtio header. If another program has a queue of the device, its choice counts,
/// whatever this one asked for.
pub fn tap_has_header(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
    };
    // SAFETY: this control writes one `ifreq`, for the time of the call.
    answered(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    // SAFETY: the kernel has written flags there; before, they were zero.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(c_int::from(flags) & libc::IFF_VNET_HDR != 0)
}

fn answered(answer: c_int) -> io::Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Sends a query to a network device's driver; the answer overwrites the query. It has at most `len` bytes.
fn ethtool(ifname: &str, question: &[u32], len: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; len];
    for (to, word) in data.chunks_exact_mut(4).zip(question) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    of_device(ifname, libc::SIOCETHTOOL, &mut data)?;
    Ok(data)
}

/// A control of a network device, which reads and writes `data`: that has room for what the kernel writes, as each caller knows.
fn of_device(ifname: &str, control: libc::c_ulong, data: &mut [u8]) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    if ifname.len() >= name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in name.iter_mut().zip(ifname.bytes()) {
        *to = from.cast_signed();
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: data.as_mut_ptr().cast(),
        },
    };
    // Any socket will do.
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the request is that of the control, and `data` has room for the answer: each caller's query has a length of its
    // own or says how much room there is.
    answered(unsafe { libc::ioctl(socket.as_raw_fd(), control, &raw mut request) })
}

#[cfg(test)]
mod tests {
    use super::since;

    #[test]
    fn releases_of_linux() {
        for (release, later) in [
            ("6.2.0\n", true),
            ("6.18.44-fc-v595\n", true),
            ("10.0", true),
            ("6.1.0-21-amd64", false),
            ("5.15.0", false),
            ("", false),
            ("six", false),
        ] {
            assert_eq!(since(release, (6, 2)), later, "{release}");
        }
    }
}
