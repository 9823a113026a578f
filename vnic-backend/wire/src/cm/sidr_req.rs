//! SIDR_REQ: service ID resolution request (IBTA vol 1 section 12.11.1): which queue pair serves datagrams of a service?

use super::{Bytes, Private, ServiceId, put};
use crate::{be16, be32, be64};

/// Service ID resolution request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SidrReq {
    /// The sender's number of the request.
    pub request_id: u32,
    /// P_Key.
    pub pkey: u16,
    /// What is asked for.
    pub service_id: ServiceId,
    /// Private data.
    pub private: Private<216>,
}

impl SidrReq {
    pub(super) fn read(b: &Bytes) -> SidrReq {
        SidrReq {
            request_id: be32(b, 0),
            pkey: be16(b, 4),
            service_id: ServiceId(be64(b, 8)),
            private: Private::read(b),
        }
    }

    /// The message's bytes.
    pub fn emit(&self) -> Bytes {
        let mut b = [0; super::LEN];
        put(&mut b, 0, &self.request_id.to_be_bytes());
        put(&mut b, 4, &self.pkey.to_be_bytes());
        put(&mut b, 8, &self.service_id.0.to_be_bytes());
        self.private.write(&mut b);
        b
    }
}
