//! Commands: chains of the control virtqueue (`SPEC.md`, section 5). A command that fails has changed nothing.

mod device;
mod memory;
mod qp;
mod queues;

pub use memory::DeviceMemoryTable;

use vnic_device::command::{CommandHead, Object as ObjectBody, Opcode, ReplyHead};
use vnic_device::ring::{EXTENTS_MAX, Extent, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};
use vnic_engine::rdma::{Memory, VerbsError};
use vnic_fabric::Instant;

use super::feed::COMMAND;
use super::function::Function;
use super::memory::FunctionMemory;
use super::work_queue::structure;
use crate::datapath::notify;
use crate::mem::{self, Seg, Writer};
use crate::ring::Fault;

/// Bytes of body and list that a command may have: 64 Ki extents, and some.
pub const COMMAND_MAX: u32 = 1 << 20;
/// Commands carried out before other work gets its turn.
const COMMANDS_A_TURN: usize = 8;
/// Bytes of a reply that are made at most: a driver that gives more room gets the rest with its next question.
const REPLY_MAX: usize = 1 << 16;

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    status: S,
    text: String,
}

/// What a command ends with.
type Outcome = Result<(), Failure>;

fn fail<T>(status: S, text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure {
        status,
        text: text.into(),
    })
}

impl From<VerbsError> for Failure {
    fn from(error: VerbsError) -> Failure {
        use VerbsError as E;
        let status = match error {
            E::NoSuch(_) => S::NoSuchObject,
            E::LimitReached { .. } => S::LimitReached,
            E::InUse { .. } => S::InUse,
            E::OutOfRange { .. } => S::OutOfRange,
            E::State(_) | E::Transition { .. } => S::WrongState,
            E::OtherDomain(_) | E::QueueFull | E::Attributes { .. } | E::Invalid(_) => S::Invalid,
        };
        Failure {
            status,
            text: error.to_string(),
        }
    }
}

/// Room for working, kept so that a command allocates little.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    readable: Vec<Seg>,
    writable: Vec<Seg>,
    bytes: Vec<u8>,
    reply: Vec<u8>,
}

/// A command, read once.
struct Request<'a> {
    opcode: Opcode,
    body: &'a [u8],
    list: &'a [u8],
    /// Bytes that the reply may have behind its head.
    room: usize,
    reply: &'a mut Vec<u8>,
    now: Instant,
}

impl Request<'_> {
    /// The body, which may be of a later minor version: then the rest must be zero.
    fn body<T: FromBytes + Default>(&self) -> Result<T, Failure> {
        let len = size_of::<T>();
        if self.body.len() < len {
            let text = format!("the body has {} bytes, {len} are needed", self.body.len());
            return fail(S::Malformed, text);
        }
        if self.body[len..].iter().any(|b| *b != 0) {
            return fail(
                S::NotSupported,
                "the body has fields that this version does not know and that are not zero",
            );
        }
        Ok(structure(self.body))
    }

    /// For a command without a body.
    fn no_body(&self) -> Outcome {
        if self.body.iter().any(|b| *b != 0) {
            return fail(S::NotSupported, "this command has no body in this version");
        }
        self.no_list()
    }

    fn no_list(&self) -> Outcome {
        if self.list.is_empty() {
            Ok(())
        } else {
            fail(S::Malformed, "this command has no list: len must be body_len")
        }
    }

    /// The handle of a command that names one object and nothing else.
    fn object(&self) -> Result<u32, Failure> {
        self.no_list()?;
        let body: ObjectBody = self.body()?;
        reserved(body.reserved)?;
        Ok(body.handle)
    }

    /// Is there room for this reply? Asked before anything is changed.
    fn room_for<T>(&self) -> Outcome {
        let len = size_of::<T>();
        if self.room < len {
            return fail(
                S::Malformed,
                format!("the reply has {len} bytes, there is room for {}", self.room),
            );
        }
        Ok(())
    }

    fn reply<T: IntoBytes + Immutable>(&mut self, body: &T) {
        self.reply.extend_from_slice(body.as_bytes());
    }

    /// A reply that had only its first `len` bytes in the version that is spoken.
    fn reply_cut<T: IntoBytes + Immutable>(&mut self, body: &T, len: usize) -> Outcome {
        if self.room < len {
            return fail(
                S::Malformed,
                format!("the reply has {len} bytes, there is room for {}", self.room),
            );
        }
        self.reply
            .extend_from_slice(&body.as_bytes()[..len.min(size_of::<T>())]);
        Ok(())
    }

    fn reply_object(&mut self, handle: u32) {
        self.reply(&ObjectBody { handle, reserved: 0 });
    }

    /// Replies with records from index `first` on, as many whole ones as there is room for.
    fn reply_list<T: IntoBytes + Immutable>(&mut self, records: impl Iterator<Item = T>) -> Outcome {
        self.room_for::<T>()?;
        let most = self.room.min(REPLY_MAX) / size_of::<T>();
        for record in records.take(most) {
            self.reply.extend_from_slice(record.as_bytes());
        }
        Ok(())
    }
}

fn reserved(value: impl Into<u64>) -> Outcome {
    if value.into() == 0 {
        Ok(())
    } else {
        fail(S::NotSupported, "a reserved field is not zero")
    }
}

/// An object that may be missing.
fn optional(handle: u32) -> Option<u32> {
    (handle != vnic_device::command::NONE).then_some(handle)
}

/// Reads the extents that a body's list names. `list` is advanced behind them. Not more than `most`.
fn extents(
    wanted: ExtentList,
    list: &mut &[u8],
    most: u32,
    memory: &FunctionMemory,
) -> Result<Vec<Extent>, Failure> {
    const LEN: usize = size_of::<Extent>();
    let following = wanted.following() as usize;
    let Some((own, rest)) = following
        .checked_mul(LEN)
        .and_then(|bytes| list.split_at_checked(bytes))
    else {
        return fail(
            S::Malformed,
            format!(
                "{following} extents are announced, the list has {} bytes",
                list.len()
            ),
        );
    };
    *list = rest;
    if wanted.count > EXTENTS_MAX {
        // The core works on nothing else meanwhile.
        return fail(
            S::LimitReached,
            format!("{} extents; one command has at most {EXTENTS_MAX}", wanted.count),
        );
    }
    if wanted.count > most {
        return fail(
            S::LimitReached,
            format!("{} extents; the device has room for {most} more", wanted.count),
        );
    }
    let given: Vec<Extent> = own.chunks_exact(LEN).map(structure).collect();
    if wanted.chunks == 0 {
        return Ok(given);
    }
    let mut bytes = vec![0; wanted.count as usize * LEN];
    let mut rest = &mut bytes[..];
    for chunk in given {
        if !chunk.gpa.is_multiple_of(16) || !chunk.len.is_multiple_of(16) {
            return fail(S::BadAddress, "a chunk of the list is not aligned to 16 bytes");
        }
        let take = usize::try_from(chunk.len).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at_mut(take);
        if !memory.is_shared(chunk.gpa, take as u64) || memory.read(chunk.gpa, now).is_err() {
            return fail(S::BadAddress, format!("no memory is shared at {:#x}", chunk.gpa));
        }
        rest = later;
    }
    if !rest.is_empty() {
        return fail(S::BadAddress, "the chunks hold fewer extents than announced");
    }
    Ok(bytes.chunks_exact(LEN).map(structure).collect())
}

/// All of a list must have been used.
fn used_up(list: &[u8]) -> Outcome {
    if list.is_empty() {
        Ok(())
    } else {
        fail(S::Malformed, "the list is longer than announced")
    }
}

impl Function {
    /// Carries out what waits in the control virtqueue. Answers how many.
    #[inline]
    pub(super) fn take_commands(&mut self, now: Instant) -> usize {
        let Some(ring) = self.attached.as_mut().and_then(|a| a.control.as_mut()) else {
            return 0;
        };
        match ring.ready() {
            Ok(0) => 0,
            Ok(n) => self.take_some_commands(usize::from(n).min(COMMANDS_A_TURN), now),
            Err(fault) => {
                self.control_fault(fault);
                1
            }
        }
    }

    #[cold]
    fn take_some_commands(&mut self, n: usize, now: Instant) -> usize {
        // Queues that fill every turn do not keep commands waiting for ever.
        self.left = self.left.max(COMMAND);
        for done in 0..n {
            // What was posted before the command is known before it is carried out.
            if self.left <= 0 || !self.take_doorbells_before_command() {
                return done + 1;
            }
            self.left -= COMMAND;
            if let Err(fault) = self.take_command(now) {
                self.control_fault(fault);
                return done + 1;
            }
        }
        n
    }

    /// Carries out the next command and gives its chain back.
    fn take_command(&mut self, now: Instant) -> Result<(), Fault> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.take_command_with(&mut scratch, now);
        self.scratch = scratch;
        result
    }

    fn take_command_with(&mut self, s: &mut Scratch, now: Instant) -> Result<(), Fault> {
        let Some(ring) = self.attached.as_mut().and_then(|a| a.control.as_mut()) else {
            return Ok(());
        };
        s.readable.clear();
        s.writable.clear();
        let head = ring.head(0)?;
        let (readable, writable) = ring.request(head, &mut s.readable, &mut s.writable)?;
        ring.advance(1);
        let mut used = 0;
        if writable >= size_of::<ReplyHead>() as u64 {
            let room = usize::try_from(writable).unwrap_or(usize::MAX) - size_of::<ReplyHead>();
            s.reply.clear();
            let mut bytes = std::mem::take(&mut s.bytes);
            let (cookie, outcome) =
                self.carry_out(&s.readable, readable, &mut bytes, room, &mut s.reply, now);
            s.bytes = bytes;
            let status = match outcome {
                Ok(()) => S::Ok,
                Err(failure) => {
                    s.reply.clear();
                    s.reply.extend_from_slice(cut(&failure.text, room).as_bytes());
                    failure.status
                }
            };
            let head = ReplyHead {
                status: status.number(),
                len: s.reply.len() as u32,
                cookie,
            };
            let mut out = Writer::new(&s.writable);
            out.bytes(head.as_bytes());
            out.bytes(&s.reply);
            used = size_of::<ReplyHead>() + s.reply.len();
        }
        // (RESET leaves the virtqueues as they are.)
        if let Some(a) = &mut self.attached
            && let Some(ring) = &mut a.control
        {
            ring.stage(head, used as u32);
            if ring.publish(ring.staged()) {
                notify(a.control_call.as_deref());
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        readable: &[Seg],
        len: u64,
        bytes: &mut Vec<u8>,
        room: usize,
        reply: &mut Vec<u8>,
        now: Instant,
    ) -> (u64, Outcome) {
        const HEAD: usize = size_of::<CommandHead>();
        let mut head = [0; HEAD];
        if len < HEAD as u64 {
            return (
                0,
                fail(S::Malformed, format!("a command of {len} bytes has no head")),
            );
        }
        mem::gather(readable, 0, &mut head);
        let head: CommandHead = structure(&head);
        let outcome = self.carry_out_body(&head, readable, len - HEAD as u64, bytes, room, reply, now);
        (head.cookie, outcome)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "parts of one chain, read and written once"
    )]
    fn carry_out_body(
        &mut self,
        head: &CommandHead,
        readable: &[Seg],
        have: u64,
        bytes: &mut Vec<u8>,
        room: usize,
        reply: &mut Vec<u8>,
        now: Instant,
    ) -> Outcome {
        if u64::from(head.len) > have {
            let text = format!("len is {}, the chain has {have} bytes behind the head", head.len);
            return fail(S::Malformed, text);
        }
        if head.len > COMMAND_MAX {
            let text = format!(
                "the command has {} bytes, at most {COMMAND_MAX} are read",
                head.len
            );
            return fail(S::LimitReached, text);
        }
        if u32::from(head.body_len) > head.len || !head.body_len.is_multiple_of(8) {
            let text = format!(
                "body_len is {}; it is a multiple of 8 and at most len, {}",
                head.body_len, head.len
            );
            return fail(S::Malformed, text);
        }
        let Some(opcode) = Opcode::from_number(head.opcode) else {
            return fail(S::NotSupported, format!("there is no command {}", head.opcode));
        };
        if !self.hello && opcode != Opcode::Hello {
            return fail(S::NotReady, "HELLO was not said");
        }
        if opcode.since() > self.minor {
            let text = format!(
                "{opcode:?} came with 1.{}, 1.{} is spoken",
                opcode.since(),
                self.minor
            );
            return fail(S::NotSupported, text);
        }
        bytes.clear();
        bytes.resize(head.len as usize, 0);
        mem::gather(readable, size_of::<CommandHead>(), bytes);
        let (body, list) = bytes.split_at(usize::from(head.body_len));
        let request = Request {
            opcode,
            body,
            list,
            room,
            reply,
            now,
        };
        self.dispatch(request)
    }

    fn dispatch(&mut self, request: Request<'_>) -> Outcome {
        use Opcode as O;
        match request.opcode {
            O::Hello => self.hello(request),
            O::QueryDevice => self.query_device(request),
            O::QueryPort => self.query_port(request),
            O::QueryGids => self.query_gids(request),
            O::SetGid => self.set_gid_by_driver(request),
            O::QueryCounters => self.query_counters(request),
            O::QueryResources => self.query_resources(request),
            O::QueryClock => self.query_clock(request),
            O::Reset => self.reset_by_driver(request),
            O::AllocPd | O::DeallocPd | O::OpenXrcd | O::CloseXrcd => self.domain(request),
            O::RegisterMr => self.register_mr(request),
            O::ReregisterMr => self.reregister_mr(request),
            O::DeregisterMr => self.deregister_mr(request),
            O::AllocMw => self.alloc_mw(request),
            O::DeallocMw => self.dealloc_mw(request),
            O::AllocDm => self.alloc_dm(request),
            O::FreeDm => self.free_dm(request),
            O::CopyToDm => self.copy_to_dm(request),
            O::CopyFromDm => self.copy_from_dm(request),
            O::RegisterDmMr => self.register_dm_mr(request),
            O::CreateCq => self.create_cq(request),
            O::ResizeCq => self.resize_cq(request),
            O::DestroyCq => self.destroy_cq(request),
            O::CreateSrq => self.create_srq(request),
            O::ModifySrq => self.modify_srq(request),
            O::QuerySrq => self.query_srq(request),
            O::DestroySrq => self.destroy_srq(request),
            O::CreateAh => self.create_ah(request),
            O::QueryAh => self.query_ah(request),
            O::DestroyAh => self.destroy_ah(request),
            O::CreateQp => self.create_qp(request),
            O::ModifyQp => self.modify_qp(request),
            O::QueryQp => self.query_qp(request),
            O::DestroyQp => self.destroy_qp(request),
            O::ModifyQpRate => self.modify_qp_rate(request),
            O::QueryQpRate => self.query_qp_rate(request),
            O::AttachMulticast | O::DetachMulticast => self.multicast(request),
            O::CreateDoorbells => self.create_doorbells(request),
            O::DestroyDoorbells => self.destroy_doorbells(request),
        }
    }
}

/// As much of a text as there is room for, in whole characters.
fn cut(text: &str, room: usize) -> &str {
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("größer", 3), "gr");
        assert_eq!(cut("größer", 4), "grö");
        assert_eq!(cut("a", 0), "");
        assert_eq!(cut("abc", 10), "abc");
    }

    #[test]
    fn lists_of_extents_are_as_long_as_announced() {
        let memory = FunctionMemory::default();
        let bytes = [0u8; 32];
        let count = |count, chunks| ExtentList { count, chunks };
        let mut list = &bytes[..];
        assert_eq!(
            extents(count(2, 0), &mut list, 2, &memory).map(|e| e.len()),
            Ok(2)
        );
        assert!(list.is_empty());
        let refused = |wanted, most| {
            let mut list = &bytes[..];
            extents(wanted, &mut list, most, &memory)
                .map_err(|f| f.status)
                .err()
        };
        assert_eq!(refused(count(3, 0), 9), Some(S::Malformed));
        assert_eq!(refused(count(2, 0), 1), Some(S::LimitReached));
        assert_eq!(refused(count(u32::MAX, 0), u32::MAX), Some(S::Malformed));
        assert_eq!(refused(count(4, 2), 9), Some(S::BadAddress));
    }
}
