//! RTU: ready to use (IBTA vol 1 section 12.6.9).

use super::{Bytes, Private, put};
use crate::be32;

/// Ready to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rtu {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// The receiver's number of the connection.
    pub remote_id: u32,
    /// Private data.
    pub private: Private<224>,
}

impl Rtu {
    pub(super) fn read(b: &Bytes) -> Rtu {
        Rtu {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            private: Private::read(b),
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        self.private.write(&mut b);
        b
    }
}
