//! Subnet administration (IBTA vol 1 chapter 15): questions about paths and multicast groups in
//! [management datagrams](crate::mad), one file for each attribute.
//!
//! ```text
//!  0        24       36      44               46        48              56        256
//!  │ header │ RMPP   │ SM_Key │ AttributeOffset │ reserved │ ComponentMask │ 200 bytes │
//! ```
//!
//! A component is a field of an attribute; the bit of a ComponentMask says that a question names its value. Reserved bits are sent as 0
//! and ignored.

mod bound;
mod class_port_info;
mod mcmember_record;
mod multi_path_record;
mod path_record;
mod rmpp;

pub use bound::{Bound, Selector};
pub use class_port_info::ClassPortInfo;
pub use mcmember_record::McMemberRecord;
pub use multi_path_record::MultiPathRecord;
pub use path_record::PathRecord;
pub use rmpp::{Rmpp, RmppType, rmpp_status};

use alloc::vec;
use alloc::vec::Vec;

use crate::mad::{self, Header};
use crate::{Error, be16, be64};

/// Management class of subnet administration, SubnAdm (section 13.4.4).
pub const CLASS: u8 = 0x03;
/// Version of the class (section 15.2.1).
pub const CLASS_VERSION: u8 = 2;
/// Bytes of the data of a datagram.
pub const DATA_LEN: usize = 200;
/// Where the data begin.
const DATA_AT: usize = mad::LEN - DATA_LEN;
/// Bytes of the header behind that of RMPP, which PayloadLength counts: SM_Key, AttributeOffset, ComponentMask.
const SA_LEN: usize = 20;

/// Methods (section 15.2.2).
pub mod method {
    /// Bit of a response.
    pub const RESPONSE: u8 = 0x80;
    /// SubnAdmGet: one record.
    pub const GET: u8 = 0x01;
    /// SubnAdmSet: join a group, among others.
    pub const SET: u8 = 0x02;
    /// SubnAdmGetTable: all records.
    pub const GET_TABLE: u8 = 0x12;
    /// SubnAdmGetMulti: paths of a MultiPathRecord.
    pub const GET_MULTI: u8 = 0x14;
    /// SubnAdmDelete: leave a group, among others.
    pub const DELETE: u8 = 0x15;

    /// The method of the response. That to Set is SubnAdmGetResp, as to Get.
    pub const fn response(method: u8) -> u8 {
        match method {
            SET => GET | RESPONSE,
            other => other | RESPONSE,
        }
    }
}

/// Attributes (section 15.2.5).
pub mod attribute {
    /// ClassPortInfo.
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// PathRecord.
    pub const PATH_RECORD: u16 = 0x0035;
    /// MCMemberRecord.
    pub const MCMEMBER_RECORD: u16 = 0x0038;
    /// MultiPathRecord.
    pub const MULTI_PATH_RECORD: u16 = 0x003a;
}

/// Status of a response: the bits that all classes have (section 13.4.7), and above them those of the class (section 15.2.2, table
/// "SA MAD status encodings").
pub mod status {
    /// The answer is there.
    pub const OK: u16 = 0;
    /// The version of the class is not supported.
    pub const BAD_VERSION: u16 = 0x0004;
    /// The method is not supported.
    pub const BAD_METHOD: u16 = 0x0008;
    /// The method is not one of the attribute.
    pub const BAD_METHOD_FOR_ATTRIBUTE: u16 = 0x000c;
    /// ERR_NO_RESOURCES: the answer is larger than what can be sent.
    pub const NO_RESOURCES: u16 = 0x0100;
    /// ERR_REQ_INVALID: a component has a value, or a combination, that is not allowed.
    pub const REQ_INVALID: u16 = 0x0200;
    /// ERR_NO_RECORDS: no record has what the components say.
    pub const NO_RECORDS: u16 = 0x0300;
    /// ERR_TOO_MANY_RECORDS: several records have it, where one is asked for.
    pub const TOO_MANY_RECORDS: u16 = 0x0400;
    /// ERR_REQ_INVALID_GID: a GID is of no port.
    pub const REQ_INVALID_GID: u16 = 0x0500;
    /// ERR_REQ_INSUFFICIENT_COMPONENTS: a component is needed and not named.
    pub const INSUFFICIENT_COMPONENTS: u16 = 0x0600;
    /// ERR_REQ_DENIED: it is not for the one who asks.
    pub const REQ_DENIED: u16 = 0x0700;
}

/// A datagram of subnet administration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaMad {
    /// Method.
    pub method: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Status.
    pub status: u16,
    /// Transaction.
    pub transaction: u64,
    /// Attribute.
    pub attribute: u16,
    /// Modifier of the attribute.
    pub modifier: u32,
    /// The reliable multi-packet protocol's header.
    pub rmpp: Rmpp,
    /// Key of a manager; 0: the sender is none.
    pub sm_key: u64,
    /// Distance of the records of a table, in units of 8 bytes.
    pub attribute_offset: u16,
    /// Components that the sender names, by bit.
    pub component_mask: u64,
    /// The attribute, or records of a table.
    pub data: [u8; DATA_LEN],
}

impl SaMad {
    /// A question without components.
    pub const fn new(method: u8, attribute: u16, transaction: u64) -> SaMad {
        SaMad {
            method,
            class_version: CLASS_VERSION,
            status: status::OK,
            transaction,
            attribute,
            modifier: 0,
            rmpp: Rmpp::NONE,
            sm_key: 0,
            attribute_offset: 0,
            component_mask: 0,
            data: [0; DATA_LEN],
        }
    }

    /// Reads a datagram from the front of `bytes`. Its class version may be any: that is answered.
    ///
    /// # Errors
    /// [`Error::Truncated`]: fewer bytes than a datagram has. [`Error::Kind`]: another base version or class.
    pub fn parse(bytes: &[u8]) -> Result<SaMad, Error> {
        let b: &[u8; mad::LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let header = Header::parse(b)?;
        if (header.base_version, header.class) != (1, CLASS) {
            return Err(Error::Kind);
        }
        Ok(SaMad {
            method: header.method,
            class_version: header.class_version,
            status: header.status,
            transaction: header.transaction,
            attribute: header.attribute,
            modifier: header.modifier,
            rmpp: Rmpp::read(b),
            sm_key: be64(b, 36),
            attribute_offset: be16(b, 44),
            component_mask: be64(b, 48),
            data: run(b, DATA_AT),
        })
    }

    /// The datagram's bytes.
    pub fn emit(&self) -> [u8; mad::LEN] {
        let mut b = [0; mad::LEN];
        let header = Header {
            base_version: 1,
            class: CLASS,
            class_version: self.class_version,
            method: self.method,
            status: self.status,
            class_specific: 0,
            transaction: self.transaction,
            attribute: self.attribute,
            modifier: self.modifier,
        };
        put(&mut b, 0, &header.emit());
        self.rmpp.write(&mut b);
        put(&mut b, 36, &self.sm_key.to_be_bytes());
        put(&mut b, 44, &self.attribute_offset.to_be_bytes());
        put(&mut b, 48, &self.component_mask.to_be_bytes());
        put(&mut b, DATA_AT, &self.data);
        b
    }

    /// The response to this question with a status and no data.
    #[must_use]
    pub fn response(&self, status: u16) -> SaMad {
        SaMad {
            method: method::response(self.method),
            class_version: CLASS_VERSION,
            status,
            rmpp: Rmpp::NONE,
            sm_key: 0,
            attribute_offset: 0,
            data: [0; DATA_LEN],
            ..*self
        }
    }

    /// Whether the question names a component.
    pub const fn names(&self, component: u64) -> bool {
        self.component_mask & component != 0
    }

    /// Puts a record at the front of the data.
    #[must_use]
    pub fn with<const N: usize>(mut self, record: [u8; N]) -> SaMad {
        put(&mut self.data, 0, &record);
        self
    }

    /// This response with a table of records: the segments of an RMPP transfer, in order. (Records go on in the next segment; each
    /// segment has all headers.)
    #[must_use]
    pub fn segments<const N: usize>(self, records: &[[u8; N]]) -> Vec<SaMad> {
        let distance = N.next_multiple_of(8);
        let mut all = vec![0; distance * records.len()];
        for (slot, record) in all.chunks_exact_mut(distance.max(1)).zip(records) {
            put(slot, 0, record);
        }
        let mut response = self;
        response.attribute_offset = (distance / 8) as u16;
        let count = all.len().div_ceil(DATA_LEN).max(1);
        let mut segments = vec![response; count];
        for (segment, data) in segments.iter_mut().zip(all.chunks(DATA_LEN)) {
            put(&mut segment.data, 0, data);
        }
        for (segment, number) in segments.iter_mut().zip(1..) {
            segment.rmpp = Rmpp::data(number, count as u32);
        }
        // The last one's counts where there is one segment.
        if let Some(first) = segments.first_mut() {
            first.rmpp.payload_len = (SA_LEN * count + all.len()) as u32;
        }
        if let Some(last) = segments.last_mut() {
            last.rmpp.payload_len = (SA_LEN + all.len() - DATA_LEN * (count - 1)) as u32;
        }
        segments
    }

    /// Bytes of a table that this segment has: those of the last one as far as PayloadLength says.
    pub fn payload(&self) -> &[u8] {
        let len = match self.rmpp.flags & Rmpp::LAST {
            0 => DATA_LEN,
            _ => (self.rmpp.payload_len as usize).saturating_sub(SA_LEN),
        };
        &self.data[..len.min(DATA_LEN)]
    }

    /// Records of a table of this datagram, as far as it has them; `N` bytes of each.
    pub fn table<const N: usize>(&self) -> impl Iterator<Item = &[u8; N]> {
        self.records(self.payload())
    }

    /// Records of a table, of whose segments this is one, in the payload of all; `N` bytes of each.
    pub fn records<'a, const N: usize>(&self, payload: &'a [u8]) -> impl Iterator<Item = &'a [u8; N]> {
        let distance = usize::from(self.attribute_offset) * 8;
        let records = (distance >= N).then(|| payload.chunks(distance.max(1)));
        records
            .into_iter()
            .flatten()
            .filter_map(|record| record.first_chunk())
    }
}

/// Writes bytes at a place of a slice; what is beyond its end is left out.
fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in b.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// Bytes from a place of a header of known length on.
const fn run<const M: usize, const N: usize>(b: &[u8; M], at: usize) -> [u8; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        out[i] = b[at + i];
        i += 1;
    }
    out
}
