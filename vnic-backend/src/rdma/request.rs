//! A command that was read, and its state between turns.

mod failure;
mod list;

use vnic_device::command::{CommandHead, Object as ObjectBody, Opcode};
use vnic_device::ring::ExtentList;
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};
use vnic_engine::rdma::Translation;
use vnic_fabric::Instant;

use super::shared_ring::SharedRing;
use super::work_queue::structure;
use crate::mem::Segs;
pub use failure::{Failure, Outcome, fail, refused};
pub use list::{Announced, List};

/// Largest number of bytes of a command's body and list: 4096 extents and a body, read in about the time of a few packets.
pub const COMMAND_MAX: u32 = (1 << 16) + 256;
/// Largest number of bytes of a reply: a driver that gives more room gets the rest with its next query.
const REPLY_MAX: usize = 1 << 16;

/// Working memory, kept so that a command allocates little.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The chain's buffers to read.
    pub readable: Segs,
    /// The chain's buffers to write.
    pub writable: Segs,
    /// Body and list of the command.
    pub bytes: Vec<u8>,
    /// The reply, behind its head.
    pub reply: Vec<u8>,
    /// A command that did not fit into its turn. Its chain waits in the virtqueue; `bytes` has what was read of it. Without
    /// this field the command starts again.
    pub begun: Option<Begun>,
}

/// A command that is not finished.
#[derive(Debug)]
pub struct Begun {
    /// Index of the command's chain.
    pub chain: u16,
    /// Head of the command.
    pub head: CommandHead,
    /// Lists of extents, as far as they were read.
    pub lists: Vec<List>,
}

/// A command, read once.
pub struct Request<'a> {
    /// Kind of the command.
    pub opcode: Opcode,
    /// The body of the command.
    pub body: &'a [u8],
    /// Rest of the list behind the body, from which announced lists are taken.
    pub list: &'a [u8],
    /// Lists of extents, as far as they were read.
    pub lists: &'a mut Vec<List>,
    /// Whether the command was begun in an earlier turn.
    pub goes_on: bool,
    /// Bytes that the reply may have behind its head.
    pub room: usize,
    /// The reply, behind its head.
    pub reply: &'a mut Vec<u8>,
    /// Time of the turn.
    pub now: Instant,
}

impl<'a> Request<'a> {
    /// Reads the body. It may be of a later minor version; its further bytes must then be zero.
    pub fn body<T: FromBytes + Default>(&self) -> Result<T, Failure> {
        let len = size_of::<T>();
        if self.body.len() < len {
            let text = format!("the body has {} bytes, {len} are needed", self.body.len());
            return fail(S::Malformed, text);
        }
        if self.body[len..].iter().any(|b| *b != 0) {
            let text = "the body has fields that this version does not know and that are not zero";
            return fail(S::NotSupported, text);
        }
        Ok(structure(self.body))
    }

    /// As [`body`](Request::body), of which the first version had only `least` bytes: what is missing is zero.
    pub fn body_since<T: FromBytes + IntoBytes + Default>(&self, least: usize) -> Result<T, Failure> {
        if (least..size_of::<T>()).contains(&self.body.len()) {
            let mut body = T::default();
            body.as_mut_bytes()[..self.body.len()].copy_from_slice(self.body);
            return Ok(body);
        }
        self.body()
    }

    /// Reads the body of a command that has no list.
    pub fn only_body<T: FromBytes + Default>(&self) -> Result<T, Failure> {
        self.no_list()?;
        self.body()
    }

    /// Refuses a body or a list.
    pub fn no_body(&self) -> Outcome {
        if self.body.iter().any(|b| *b != 0) {
            return fail(S::NotSupported, "this command has no body in this version");
        }
        self.no_list()
    }

    /// Refuses a list.
    pub fn no_list(&self) -> Outcome {
        if self.list.is_empty() {
            Ok(())
        } else {
            fail(S::Malformed, "this command has no list: len must be body_len")
        }
    }

    /// Reads the handle of a command that names one object and nothing else.
    pub fn object(&self) -> Result<u32, Failure> {
        let body: ObjectBody = self.only_body()?;
        reserved(body.reserved)?;
        Ok(body.handle)
    }

    /// Refuses a command whose reply has no room; called before anything is changed.
    pub fn room_for<T>(&self) -> Outcome {
        self.room_for_bytes(size_of::<T>())
    }

    fn room_for_bytes(&self, len: usize) -> Outcome {
        if self.room < len {
            let text = format!("the reply has {len} bytes, there is room for {}", self.room);
            return fail(S::Malformed, text);
        }
        Ok(())
    }

    /// Puts a body into the reply.
    pub fn reply<T: IntoBytes + Immutable>(&mut self, body: &T) {
        self.reply.extend_from_slice(body.as_bytes());
    }

    /// Puts the first `len` bytes of a body into the reply: the negotiated version has no more.
    pub fn reply_cut<T: IntoBytes + Immutable>(&mut self, body: &T, len: usize) -> Outcome {
        self.room_for_bytes(len)?;
        self.reply
            .extend_from_slice(&body.as_bytes()[..len.min(size_of::<T>())]);
        Ok(())
    }

    /// Puts the handle of an object into the reply.
    pub fn reply_object(&mut self, handle: u32) {
        self.reply(&ObjectBody { handle, reserved: 0 });
    }

    /// Puts records into the reply, as many whole ones as there is room for.
    pub fn reply_list<T: IntoBytes + Immutable>(&mut self, records: impl Iterator<Item = T>) -> Outcome {
        for record in records.take(self.records::<T>()?) {
            self.reply.extend_from_slice(record.as_bytes());
        }
        Ok(())
    }

    /// How many records of a list the reply has room for: at least one.
    pub fn records<T>(&self) -> Result<usize, Failure> {
        self.room_for::<T>()?;
        Ok(self.room.min(REPLY_MAX) / size_of::<T>())
    }

    /// Takes the next list that the body announces, with at most `most` extents.
    pub fn announced(&mut self, wanted: ExtentList, most: u32) -> Result<Announced<'a>, Failure> {
        Announced::take(&mut self.list, wanted, most)
    }

    /// Refuses a list that is longer than announced.
    pub fn used_up(&self) -> Outcome {
        if self.list.is_empty() {
            Ok(())
        } else {
            fail(S::Malformed, "the list is longer than announced")
        }
    }

    /// Takes the memory into which the `nth` list was read.
    pub fn memory(&mut self, nth: usize) -> Result<Translation, Failure> {
        self.lists
            .get_mut(nth)
            .map_or_else(list::other_kind, List::memory)
    }

    /// Takes the ring into which the `nth` list was read.
    pub fn ring(&mut self, nth: usize) -> Result<SharedRing, Failure> {
        self.lists.get_mut(nth).map_or_else(list::other_kind, List::ring)
    }
}

/// Refuses a reserved field that is not zero.
pub fn reserved(value: impl Into<u64>) -> Outcome {
    if value.into() == 0 {
        Ok(())
    } else {
        fail(S::NotSupported, "a reserved field is not zero")
    }
}

/// The handle of an object; `None` for the handle that names none.
pub fn optional(handle: u32) -> Option<u32> {
    (handle != vnic_device::command::NONE).then_some(handle)
}
