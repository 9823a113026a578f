//! The OID of dropless mode (WinOF-2 Ethernet Network, Dropless Mode): `UINT32 signature; UINT8 dropless_mode`.
//!
//! The document shows the structure without its packing. Packed it has 5 bytes, with the padding of a C compiler 8: both
//! are accepted. Off is 2 in a set and 0 in a query, as documented. The document also mentions a timeout in this buffer;
//! there is no field for it.

use alloc::vec::Vec;

use super::{Act, Answer, Failure, Status};

/// Value of the first four bytes, little-endian.
pub const SIGNATURE: u32 = 0x000C_1EA2;
/// Mode of a set that enables dropless mode.
pub const SET_ENABLE: u8 = 1;
/// Mode of a set that disables dropless mode.
pub const SET_DISABLE: u8 = 2;

const PACKED: usize = 5;
const PADDED: usize = 8;

/// Parses a buffer: signature and mode. The padding is ignored.
pub fn parse(data: &[u8]) -> Option<(u32, u8)> {
    if data.len() != PACKED && data.len() != PADDED {
        return None;
    }
    let (signature, rest) = data.split_first_chunk()?;
    Some((u32::from_le_bytes(*signature), *rest.first()?))
}

/// Change that a set asks for.
pub fn set(data: &[u8]) -> Result<Act, Failure> {
    match parse(data) {
        Some((SIGNATURE, SET_ENABLE)) => Ok(Act::Dropless(true)),
        Some((SIGNATURE, SET_DISABLE)) => Ok(Act::Dropless(false)),
        Some(_) => Err(Failure {
            status: Status::INVALID_DATA,
            needed: 0,
        }),
        None => Err(Failure {
            status: Status::INVALID_LENGTH,
            needed: PACKED,
        }),
    }
}

/// Answer to a query, packed if there is no room for the padding.
pub fn query(on: bool, room: usize) -> Answer {
    let mut data: Vec<u8> = SIGNATURE.to_le_bytes().to_vec();
    data.push(u8::from(on));
    if room >= PADDED {
        data.resize(PADDED, 0);
    }
    Answer::of(data, room)
}
