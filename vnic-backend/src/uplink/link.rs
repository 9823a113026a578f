//! State of a network device by rtnetlink (rtnetlink(7)): in the daemon's network namespace, whatever `/sys` shows.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::types::MacAddr;

/// Constants of `linux/netlink.h`, `linux/rtnetlink.h`, `linux/if_link.h`, `linux/if.h` and `linux/if_arp.h`.
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_STATS64: u16 = 23;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const ARPHRD_ETHER: u16 = 1;
/// Multicast group of new, changed and removed links.
const RTMGRP_LINK: u32 = 1;
/// Lengths of `nlmsghdr` and `ifinfomsg`.
const HEADER: usize = 16;
const INFO: usize = 16;

/// Names of the fields of `rtnl_link_stats64`, in its order, as in `/sys/class/net/*/statistics`.
const STATISTICS: [&str; 24] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
];

/// State of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Index of the device: another device of the same name has another one.
    pub index: u32,
    /// Whether the device is switched on and has a carrier.
    pub up: bool,
    /// Whether the device carries Ethernet frames.
    pub ethernet: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Ethernet address.
    pub mac: Option<MacAddr>,
    /// Statistics of the kernel.
    pub statistics: Vec<(&'static str, u64)>,
}

/// A socket for queries to the kernel.
pub struct Links {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Links {
    /// Opens the socket.
    pub fn open() -> io::Result<Links> {
        Ok(Links {
            socket: netlink(0, SocketFlags::CLOEXEC)?,
            buffer: vec![0; 32 * 1024],
        })
    }

    /// The device of this name, if there is one.
    pub fn find(&mut self, ifname: &str) -> io::Result<Option<Facts>> {
        let name = [ifname.as_bytes(), &[0]].concat();
        self.ask(0, IFLA_IFNAME, &name)
    }

    /// Whether the device with this index is up; `None`: there is none. Cheaper than [`Links::find`].
    pub fn is_up(&mut self, index: u32) -> io::Result<Option<bool>> {
        let facts = self.ask(index, IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes())?;
        Ok(facts.map(|f| f.up))
    }

    fn ask(&mut self, index: u32, attribute: u16, value: &[u8]) -> io::Result<Option<Facts>> {
        let len = HEADER + INFO + 4 + value.len().next_multiple_of(4);
        let mut message = Vec::with_capacity(len);
        message.extend((len as u32).to_ne_bytes());
        message.extend(RTM_GETLINK.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        // Sequence, port; family, type; index; flags and their mask.
        message.extend([0; 12]);
        message.extend(index.to_ne_bytes());
        message.extend([0; 8]);
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(attribute.to_ne_bytes());
        message.extend(value);
        message.resize(len, 0);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        let (n, _) = rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
        parse(&self.buffer[..n.min(self.buffer.len())])
    }
}

/// A socket that gets a message at each change of a link.
pub fn changes() -> io::Result<OwnedFd> {
    netlink(RTMGRP_LINK, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

fn netlink(groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    // Without a protocol it is NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Devices in messages of the kernel: the index of each, and whether it is up; `None`: it is gone. Messages about ports of a
/// bridge have the same form (`AF_BRIDGE`) and are left out.
pub fn news(mut told: &[u8]) -> Vec<(u32, Option<bool>)> {
    let mut all = Vec::new();
    while let Some(len) = word(told, 0).filter(|len| *len as usize >= HEADER + INFO) {
        let Some(message) = told.get(..len as usize) else {
            break;
        };
        if let (Some(kind), Some(index), Some(flags), Some(0)) = (
            short(message, 4),
            word(message, HEADER + 4),
            word(message, HEADER + 8),
            message.get(HEADER),
        ) {
            match kind {
                RTM_NEWLINK => all.push((index, Some(is_up(flags)))),
                RTM_DELLINK => all.push((index, None)),
                _ => {}
            }
        }
        told = told.get((len as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn is_up(flags: u32) -> bool {
    flags & IFF_UP != 0 && flags & IFF_LOWER_UP != 0
}

fn parse(answer: &[u8]) -> io::Result<Option<Facts>> {
    let cut = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = short(answer, 4).ok_or_else(cut)?;
    match kind {
        NLMSG_ERROR => {
            let error = word(answer, HEADER).ok_or_else(cut)?.cast_signed();
            let error = io::Error::from_raw_os_error(error.wrapping_neg());
            let gone = error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error());
            if gone { Ok(None) } else { Err(error) }
        }
        RTM_NEWLINK => {
            let flags = word(answer, HEADER + 8).ok_or_else(cut)?;
            let mut facts = Facts {
                index: word(answer, HEADER + 4).ok_or_else(cut)?,
                up: is_up(flags),
                ethernet: short(answer, HEADER + 2) == Some(ARPHRD_ETHER),
                mtu: 0,
                mac: None,
                statistics: Vec::new(),
            };
            let mut rest = answer.get(HEADER + INFO..).unwrap_or_default();
            while let (Some(len), Some(kind)) = (short(rest, 0), short(rest, 2)) {
                let len = usize::from(len);
                let Some(value) = rest.get(4..len) else { break };
                match kind {
                    IFLA_ADDRESS => facts.mac = value.try_into().ok().map(MacAddr),
                    IFLA_MTU => facts.mtu = word(value, 0).ok_or_else(cut)?,
                    IFLA_STATS64 => facts.statistics = statistics(value),
                    _ => {}
                }
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            }
            Ok(Some(facts))
        }
        _ => Err(cut()),
    }
}

fn statistics(values: &[u8]) -> Vec<(&'static str, u64)> {
    let values = values
        .chunks_exact(8)
        .map(|v| v.try_into().map_or(0, u64::from_ne_bytes));
    STATISTICS.into_iter().zip(values).collect()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_there_and_is_no_ethernet_of_ours() {
        let mut links = Links::open().expect("netlink");
        let lo = links.find("lo").expect("an answer").expect("lo");
        assert_eq!(lo.index, 1);
        assert!(lo.mtu >= 1500);
        assert!(!lo.ethernet);
        assert_eq!(lo.mac, Some(MacAddr::default()));
        assert_eq!(lo.statistics.len(), STATISTICS.len());
        assert_eq!(links.find("no-such-device").expect("an answer"), None);
        assert_eq!(links.find("lo").expect("an answer").map(|f| f.index), Some(1));
    }

    #[test]
    fn a_device_is_asked_for_by_its_index() {
        let mut links = Links::open().expect("netlink");
        let lo = links.find("lo").expect("an answer").expect("lo");
        assert_eq!(links.is_up(1).expect("an answer"), Some(lo.up));
        assert_eq!(links.is_up(0x7fff_fff0).expect("an answer"), None);
    }

    #[test]
    fn news_of_several_devices() {
        let message = |kind: u16, family: u8, index: u32, flags: u32| {
            let mut m = vec![0; HEADER + INFO];
            m[..4].copy_from_slice(&((HEADER + INFO) as u32).to_ne_bytes());
            m[4..6].copy_from_slice(&kind.to_ne_bytes());
            m[HEADER] = family;
            m[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
            m[HEADER + 8..HEADER + 12].copy_from_slice(&flags.to_ne_bytes());
            m
        };
        let told = [
            message(RTM_NEWLINK, 0, 7, IFF_UP | IFF_LOWER_UP),
            message(RTM_NEWLINK, 0, 8, IFF_UP),
            message(RTM_DELLINK, 7, 9, 0),
            message(RTM_DELLINK, 0, 10, 0),
        ]
        .concat();
        let want = [(7, Some(true)), (8, Some(false)), (10, None)];
        assert_eq!(news(&told), want);
        // Cut anywhere: the whole messages are returned.
        for n in 0..told.len() {
            assert!(want.starts_with(&news(&told[..n])), "{n}");
        }
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        assert!(parse(&[]).is_err());
        let mut answer = vec![0; HEADER + INFO];
        answer[4] = RTM_NEWLINK as u8;
        assert!(parse(&answer).is_ok());
        for n in 0..HEADER + 12 {
            assert!(parse(&answer[..n]).is_err(), "{n}");
        }
        // An attribute that says it is longer than the message.
        answer.extend([200, 0, IFLA_MTU as u8, 0]);
        assert_eq!(parse(&answer).expect("parsed").expect("facts").mtu, 0);
    }
}
