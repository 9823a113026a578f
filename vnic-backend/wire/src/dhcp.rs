//! DHCP for IPv4 (RFC 2131 section 2; the BOOTP message of RFC 951), from behind the UDP header: what a client learns
//! of its address.

use crate::{Error, MacAddr, be32};

/// Bytes that are read: up to the end of the client's hardware address.
pub const HEADER_LEN: usize = 44;
/// UDP port of servers and relays.
pub const SERVER_PORT: u16 = 67;
/// UDP port of clients.
pub const CLIENT_PORT: u16 = 68;

/// Operation: to a server.
pub const REQUEST: u8 = 1;
/// Operation: to a client.
pub const REPLY: u8 = 2;

/// Message type: the server offers an address (RFC 2132 section 9.6).
pub const OFFER: u8 = 2;
/// Message type: the client gets the address.
pub const ACK: u8 = 5;

/// Offset of the magic cookie, with the options behind it (RFC 2131 section 3): behind names of server and file.
const COOKIE: usize = 236;
const COOKIE_VALUE: u32 = 0x6382_5363;
const OPTION_PAD: u8 = 0;
const OPTION_END: u8 = 255;
const OPTION_MESSAGE_TYPE: u8 = 53;

/// The fixed part of a message, without names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// [`REQUEST`] or [`REPLY`].
    pub operation: u8,
    /// Transaction.
    pub transaction: u32,
    /// The client's address, if it has one.
    pub client_ip: [u8; 4],
    /// The address that the client is given.
    pub your_ip: [u8; 4],
    /// The client's Ethernet address.
    pub client_mac: MacAddr,
}

impl Header {
    /// Reads the front of a message; only clients on Ethernet are known.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        // Hardware type Ethernet, six bytes of address.
        if !matches!(b[0], REQUEST | REPLY) || b[1..3] != [1, 6] {
            return Err(Error::Kind);
        }
        Ok(Header {
            operation: b[0],
            transaction: be32(b, 4),
            client_ip: [b[12], b[13], b[14], b[15]],
            your_ip: [b[16], b[17], b[18], b[19]],
            client_mac: MacAddr([b[28], b[29], b[30], b[31], b[32], b[33]]),
        })
    }

    /// The front of the message's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..3].copy_from_slice(&[self.operation, 1, 6]);
        b[4..8].copy_from_slice(&self.transaction.to_be_bytes());
        b[12..16].copy_from_slice(&self.client_ip);
        b[16..20].copy_from_slice(&self.your_ip);
        b[28..34].copy_from_slice(&self.client_mac.0);
        b
    }
}

/// The message type ([`OFFER`], [`ACK`], …), if the options are there and name one.
pub fn message_type(bytes: &[u8]) -> Result<u8, Error> {
    let cookie = bytes
        .get(COOKIE..)
        .and_then(<[u8]>::first_chunk)
        .ok_or(Error::Truncated)?;
    if u32::from_be_bytes(*cookie) != COOKIE_VALUE {
        return Err(Error::Kind);
    }
    let mut rest = bytes.get(COOKIE + 4..).unwrap_or(&[]);
    loop {
        match rest {
            [OPTION_PAD, after @ ..] => rest = after,
            [OPTION_END, ..] => return Err(Error::Kind),
            [OPTION_MESSAGE_TYPE, 1, value, ..] => return Ok(*value),
            [_, len, after @ ..] => rest = after.get(usize::from(*len)..).ok_or(Error::Truncated)?,
            _ => return Err(Error::Truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn message(options: &[u8]) -> Vec<u8> {
        let mut b = [0; COOKIE].to_vec();
        b.extend(COOKIE_VALUE.to_be_bytes());
        b.extend(options);
        b
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(
            operation in 1u8..=2, transaction: u32, client_ip: [u8; 4], your_ip: [u8; 4], mac: [u8; 6]
        ) {
            let h = Header { operation, transaction, client_ip, your_ip, client_mac: MacAddr(mac) };
            prop_assert_eq!(Header::parse(&h.emit()), Ok(h));
            for len in 0..HEADER_LEN {
                prop_assert_eq!(Header::parse(&h.emit()[..len]), Err(Error::Truncated));
            }
        }

        #[test]
        fn any_options_end(options in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = message_type(&message(&options));
        }
    }

    #[test]
    fn the_type_is_found_behind_other_options() {
        assert_eq!(message_type(&message(&[53, 1, ACK, 255])), Ok(ACK));
        assert_eq!(
            message_type(&message(&[0, 0, 1, 4, 255, 255, 255, 0, 53, 1, OFFER])),
            Ok(OFFER)
        );
        assert_eq!(message_type(&message(&[255, 53, 1, ACK])), Err(Error::Kind));
        for cut in [&[][..], &[53], &[53, 1], &[1, 200, 0], &[53, 2, 0]] {
            assert_eq!(message_type(&message(cut)), Err(Error::Truncated), "{cut:?}");
        }
        assert_eq!(message_type(&[0; COOKIE + 4]), Err(Error::Kind));
        assert_eq!(message_type(&[0; COOKIE + 3]), Err(Error::Truncated));
    }
}
