//! SIDR_REP: service ID resolution response (IBTA vol 1 section 12.11.2).

use super::{Bytes, INFO_LEN, Private, ServiceId, be24, put, put24, run};
use crate::{be32, be64};

/// What became of a SIDR_REQ (section 12.11.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair and its key are given.
    pub const VALID: SidrStatus = SidrStatus(0);
    /// Nobody serves the service ID.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// Who serves it refuses.
    pub const REJECTED: SidrStatus = SidrStatus(2);
    /// There is no queue pair for it.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// Another port serves it; the additional information says which.
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    /// The version of the class is not supported.
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

/// Service ID resolution response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrRep {
    /// The receiver's number of the request.
    pub request_id: u32,
    /// What became of it.
    pub status: SidrStatus,
    /// How many bytes of `info` count; may be more than there are.
    pub info_len: u8,
    /// The queue pair that serves it, 24 bits.
    pub qp: u32,
    /// What was asked for.
    pub service_id: ServiceId,
    /// Queue key of the queue pair.
    pub qkey: u32,
    /// Additional information.
    pub info: [u8; INFO_LEN],
    /// Private data.
    pub private: Private<136>,
}

impl Default for SidrRep {
    fn default() -> SidrRep {
        SidrRep {
            request_id: 0,
            status: SidrStatus::VALID,
            info_len: 0,
            qp: 0,
            service_id: ServiceId(0),
            qkey: 0,
            info: [0; INFO_LEN],
            private: Private::default(),
        }
    }
}

impl SidrRep {
    pub(super) fn read(b: &Bytes) -> SidrRep {
        SidrRep {
            request_id: be32(b, 0),
            status: SidrStatus(b[4]),
            info_len: b[5],
            qp: be24(b, 8),
            service_id: ServiceId(be64(b, 12)),
            qkey: be32(b, 20),
            info: run(b, 24),
            private: Private::read(b),
        }
    }

    /// The message's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.request_id.to_be_bytes());
        put(&mut b, 4, &[self.status.0, self.info_len]);
        put24(&mut b, 8, self.qp);
        put(&mut b, 12, &self.service_id.0.to_be_bytes());
        put(&mut b, 20, &self.qkey.to_be_bytes());
        put(&mut b, 24, &self.info);
        self.private.write(&mut b);
        b
    }
}
