//! DREQ: request to disconnect (IBTA vol 1 section 12.6.10).

use super::{Bytes, Private, be24, put, put24};
use crate::be32;

/// Request to disconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dreq {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// The receiver's number of the connection.
    pub remote_id: u32,
    /// The receiver's queue pair, 24 bits.
    pub remote_qp: u32,
    /// Private data.
    pub private: Private<220>,
}

impl Dreq {
    pub(super) fn read(b: &Bytes) -> Dreq {
        Dreq {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            remote_qp: be24(b, 8),
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        put24(&mut b, 8, self.remote_qp);
        self.private.write(&mut b);
        b
    }
}
