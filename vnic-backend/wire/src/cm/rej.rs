//! REJ: reject (IBTA vol 1 section 12.6.7).

use super::{About, Bytes, INFO_LEN, Private, Reason, put, run};
use crate::{be16, be32};

/// Reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rej {
    /// The sender's number of the connection; 0: it has none.
    pub local_id: u32,
    /// The receiver's number of the connection; 0: the sender never heard it.
    pub remote_id: u32,
    /// The message that is rejected.
    pub about: About,
    /// How many bytes of `info` count, 7 bits; may be more than there are.
    pub info_len: u8,
    /// Why.
    pub reason: Reason,
    /// Additional reject information: what would have been accepted.
    pub info: [u8; INFO_LEN],
    /// Private data.
    pub private: Private<148>,
}

impl Default for Rej {
    fn default() -> Rej {
        Rej {
            local_id: 0,
            remote_id: 0,
            about: About::Req,
            info_len: 0,
            reason: Reason::default(),
            info: [0; INFO_LEN],
            private: Private::default(),
        }
    }
}

impl Rej {
    pub(super) fn read(b: &Bytes) -> Rej {
        Rej {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            about: About::from_top(b[8]),
            info_len: b[9] >> 1,
            reason: Reason(be16(b, 10)),
            info: run(b, 12),
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.local_id.to_be_bytes());
        put(&mut b, 4, &self.remote_id.to_be_bytes());
        put(&mut b, 8, &[(self.about as u8) << 6, self.info_len << 1]);
        put(&mut b, 10, &self.reason.0.to_be_bytes());
        put(&mut b, 12, &self.info);
        self.private.write(&mut b);
        b
    }
}
