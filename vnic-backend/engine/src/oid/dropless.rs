//! The OID of dropless mode (WinOF-2 Ethernet Network, Dropless Mode): `UINT32 signature; UINT8 dropless_mode`.
//!
//! The document shows the structure and does not say how it is packed. Packed it has 5 bytes, with the padding of a C
//! compiler 8: both are taken. Off is 2 when set and 0 when queried, as documented. The document also speaks of a timeout in
//! this buffer; there is no field for it.

use alloc::vec::Vec;

use super::{Act, Answer, Failure, Status};

/// What the first four bytes must be, little endian.
pub const SIGNATURE: u32 = 0x000C_1EA2;
/// Mode in a set that switches it on.
pub const SET_ENABLE: u8 = 1;
/// Mode in a set that switches it off.
pub const SET_DISABLE: u8 = 2;

const PACKED: usize = 5;
const PADDED: usize = 8;

/// Takes a buffer apart: signature and mode. The padding is not looked at.
pub fn parse(data: &[u8]) -> Option<(u32, u8)> {
    if data.len() != PACKED && data.len() != PADDED {
        return None;
    }
    let (signature, rest) = data.split_first_chunk()?;
    Some((u32::from_le_bytes(*signature), *rest.first()?))
}

/// What a set asks for.
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

/// The answer to a query, in the packed form where there is no room for the padding.
pub fn query(on: bool, room: usize) -> Answer {
    let mut data: Vec<u8> = SIGNATURE.to_le_bytes().to_vec();
    data.push(u8::from(on));
    if room >= PADDED {
        data.resize(PADDED, 0);
    }
    Answer::of(data, room)
}
