//! APR: alternate path response (IBTA vol 1 section 12.8.2).

use super::{Bytes, INFO_LEN, Private, put, run};
use crate::be32;

/// What became of a LAP (section 12.8.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ApStatus(pub u8);

impl ApStatus {
    /// The numbers name no connection.
    pub const INVALID_ID: ApStatus = ApStatus(1);
    /// Alternate paths are not supported.
    pub const UNSUPPORTED: ApStatus = ApStatus(2);
}

/// Alternate path response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Apr {
    /// The sender's number of the connection.
    pub local_id: u32,
    /// The receiver's number of the connection.
    pub remote_id: u32,
    /// How many bytes of `info` count; may be more than there are.
    pub info_len: u8,
    /// What became of the LAP.
    pub status: ApStatus,
    /// Additional information.
    pub info: [u8; INFO_LEN],
    /// Private data.
    pub private: Private<148>,
}

impl Default for Apr {
    fn default() -> Apr {
        Apr {
            local_id: 0,
            remote_id: 0,
            info_len: 0,
            status: ApStatus(0),
            info: [0; INFO_LEN],
            private: Private::default(),
        }
    }
}

impl Apr {
    pub(super) fn read(b: &Bytes) -> Apr {
        Apr {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            info_len: b[8],
            status: ApStatus(b[9]),
            info: run(b, 12),
            private: Private::read(b),
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        put(&mut b, 8, &[self.info_len, self.status.0]);
        put(&mut b, 12, &self.info);
        self.private.write(&mut b);
        b
    }
}
