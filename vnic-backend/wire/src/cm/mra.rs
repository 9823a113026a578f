//! MRA: message receipt acknowledgment (IBTA vol 1 section 12.6.6): a message came, and the answer takes longer.

use super::{About, Bytes, Private, put};
use crate::be32;

/// Message receipt acknowledgment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mra {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// The receiver's number of the connection.
    pub remote_id: u32,
    /// The message that came.
    pub about: About,
    /// How long the answer may take: 4.096 µs · 2^n, 5 bits.
    pub service_timeout: u8,
    /// Private data.
    pub private: Private<222>,
}

impl Mra {
    pub(super) fn read(b: &Bytes) -> Mra {
        Mra {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            about: About::from_top(b[8]),
            service_timeout: b[9] >> 3,
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        put(&mut b, 8, &[(self.about as u8) << 6, self.service_timeout << 3]);
        self.private.write(&mut b);
        b
    }
}
