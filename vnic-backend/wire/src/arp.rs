//! ARP for IPv4 over Ethernet (RFC 826), and the reverse ARP frame (RFC 903) that tells the network where a
//! guest has moved to.

use crate::ethernet::{self, FRAME_MIN};
use crate::{Error, EtherType, MacAddr, be16};

/// Bytes of the packet for IPv4 over Ethernet.
pub const HEADER_LEN: usize = 28;

/// ARP: who has this address?
pub const REQUEST: u16 = 1;
/// ARP: I have.
pub const REPLY: u16 = 2;
/// Reverse ARP: which address do I have?
pub const REVERSE_REQUEST: u16 = 3;

const ETHERNET: u16 = 1;

/// An ARP or reverse ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// [`REQUEST`], [`REPLY`], [`REVERSE_REQUEST`], …
    pub operation: u16,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender.
    pub sender_ip: [u8; 4],
    /// Hardware address of the target.
    pub target_mac: MacAddr,
    /// Protocol address of the target.
    pub target_ip: [u8; 4],
}

impl Header {
    /// Reads the packet behind the Ethernet header; only IPv4 over Ethernet is known.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if be16(b, 0) != ETHERNET || EtherType(be16(b, 2)) != EtherType::IPV4 || b[4..6] != [6, 4] {
            return Err(Error::Kind);
        }
        Ok(Header {
            operation: be16(b, 6),
            sender_mac: MacAddr([b[8], b[9], b[10], b[11], b[12], b[13]]),
            sender_ip: [b[14], b[15], b[16], b[17]],
            target_mac: MacAddr([b[18], b[19], b[20], b[21], b[22], b[23]]),
            target_ip: [b[24], b[25], b[26], b[27]],
        })
    }

    /// The packet's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..2].copy_from_slice(&ETHERNET.to_be_bytes());
        b[2..4].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        b[4..6].copy_from_slice(&[6, 4]);
        b[6..8].copy_from_slice(&self.operation.to_be_bytes());
        b[8..14].copy_from_slice(&self.sender_mac.0);
        b[14..18].copy_from_slice(&self.sender_ip);
        b[18..24].copy_from_slice(&self.target_mac.0);
        b[24..].copy_from_slice(&self.target_ip);
        b
    }
}

/// The broadcast frame that announces the place of `mac`: a reverse ARP request of the guest for itself,
/// padded to the shortest frame. It changes only the tables of the switches on its way (hypervisors send it
/// after live migration).
pub fn rarp_announce(mac: MacAddr) -> [u8; FRAME_MIN] {
    let mut frame = [0; FRAME_MIN];
    let ethernet = ethernet::Header {
        destination: MacAddr::BROADCAST,
        source: mac,
        ethertype: EtherType::RARP,
    };
    let packet = Header {
        operation: REVERSE_REQUEST,
        sender_mac: mac,
        sender_ip: [0; 4],
        target_mac: mac,
        target_ip: [0; 4],
    };
    frame[..ethernet::HEADER_LEN].copy_from_slice(&ethernet.emit());
    frame[ethernet::HEADER_LEN..ethernet::HEADER_LEN + HEADER_LEN].copy_from_slice(&packet.emit());
    frame
}
