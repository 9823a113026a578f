//! Commands: chains of the control virtqueue (`SPEC.md`, section 5). A command that fails has no effect.

mod connection;
mod device;
mod memory;
mod qp;
mod queues;

use vnic_device::command::{CommandHead, Opcode, ReplyHead};
use vnic_device::status::CommandStatus as S;
use vnic_device::zerocopy::IntoBytes;
use vnic_engine::rdma::QpNumber;
use vnic_fabric::Instant;

use super::account::COMMAND;
use super::config;
use super::function::Function;
use super::request::{Announced, Begun, COMMAND_MAX, Failure, List, Outcome, Request, Scratch, fail};
use super::work_queue::structure;
use crate::call::notify;
use crate::mem::{self, Writer};
use crate::ring::Fault;

/// Commands that are executed before other work gets its turn.
const COMMANDS_A_TURN: usize = 8;
/// Work to resume a command.
const GO_ON: i32 = 8;

impl Function {
    /// Executes commands of the control virtqueue. Returns their number.
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
        if self.command_waits(now) {
            return 0;
        }
        // A minimum of work, so that queues that use up every turn do not delay commands for ever.
        let lent = self.account.lend(COMMAND);
        let mut done = 0;
        while done < n && !self.account.is_over() {
            done += 1;
            // Requests that were posted before the command are read before it is executed.
            if self.scratch.begun.is_none() && !self.take_doorbells_before_command() {
                break;
            }
            match self.take_command(now) {
                Ok(true) => self.account.charge(COMMAND),
                Ok(false) => {
                    self.account.charge(GO_ON);
                    break;
                }
                Err(fault) => {
                    self.control_fault(fault);
                    break;
                }
            }
        }
        self.account.repay(lent);
        done
    }

    /// Executes the next command and returns its chain. False: it is not finished.
    fn take_command(&mut self, now: Instant) -> Result<bool, Fault> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.take_command_with(&mut scratch, now);
        scratch.readable.release();
        scratch.writable.release();
        self.scratch = scratch;
        result
    }

    fn take_command_with(&mut self, s: &mut Scratch, now: Instant) -> Result<bool, Fault> {
        let Some(ring) = self.attached.as_mut().and_then(|a| a.control.as_mut()) else {
            return Ok(true);
        };
        s.readable.clear();
        s.writable.clear();
        let chain = match &s.begun {
            Some(begun) => begun.chain,
            None => ring.head(0)?,
        };
        let (readable, writable) = ring.request(chain, &mut s.readable, &mut s.writable)?;
        let mut used = 0;
        if writable >= size_of::<ReplyHead>() as u64 {
            let room = usize::try_from(writable).unwrap_or(usize::MAX) - size_of::<ReplyHead>();
            s.reply.clear();
            let (cookie, outcome) = self.carry_out(s, chain, readable, room, now);
            let status = match outcome {
                Ok(()) => S::Ok,
                Err(Failure::Unfinished) => return Ok(false),
                Err(Failure::Refused { status, text }) => {
                    s.reply.clear();
                    s.reply.extend_from_slice(cut(&text, room).as_bytes());
                    status
                }
            };
            let head = ReplyHead {
                status: status.number(),
                len: s.reply.len() as u32,
                cookie,
            };
            let mut out = Writer::new(s.writable.as_slice());
            out.bytes(head.as_bytes());
            out.bytes(&s.reply);
            used = size_of::<ReplyHead>() + s.reply.len();
        }
        s.begun = None;
        // (RESET does not reset the virtqueues.)
        if let Some(a) = &mut self.attached
            && let Some(ring) = &mut a.control
        {
            ring.advance(1);
            ring.stage(chain, used as u32);
            if ring.publish(ring.staged()) {
                notify(a.control_call.as_deref());
            }
        }
        Ok(true)
    }

    /// Executes or resumes a command. Returns its cookie and result. The chain has `len` bytes, and `room` for a reply.
    fn carry_out(
        &mut self,
        s: &mut Scratch,
        chain: u16,
        len: u64,
        room: usize,
        now: Instant,
    ) -> (u64, Outcome) {
        const HEAD: usize = size_of::<CommandHead>();
        let (head, mut lists, goes_on) = match s.begun.take() {
            Some(begun) => (begun.head, begun.lists, true),
            None => {
                let mut head = [0; HEAD];
                if len < HEAD as u64 {
                    return (
                        0,
                        fail(S::Malformed, format!("a command of {len} bytes has no head")),
                    );
                }
                mem::gather(s.readable.as_slice(), 0, &mut head);
                let head: CommandHead = structure(&head);
                let checked = self.check(&head, len - HEAD as u64);
                if let Err(failure) = checked.and_then(|()| self.judge_command(head.opcode, None, now)) {
                    return (head.cookie, Err(failure));
                }
                s.bytes.clear();
                s.bytes.resize(head.len as usize, 0);
                mem::gather(s.readable.as_slice(), HEAD, &mut s.bytes);
                (head, Vec::new(), false)
            }
        };
        let Some(opcode) = Opcode::from_number(head.opcode) else {
            let text = format!("there is no command {}", head.opcode);
            return (head.cookie, fail(S::NotSupported, text));
        };
        let (body, list) = s.bytes.split_at(usize::from(head.body_len));
        let outcome = self.dispatch(Request {
            opcode,
            body,
            list,
            lists: &mut lists,
            goes_on,
            room,
            reply: &mut s.reply,
            now,
        });
        match &outcome {
            Ok(()) => {}
            Err(Failure::Unfinished) => s.begun = Some(Begun { chain, head, lists }),
            Err(Failure::Refused { .. }) => {
                let extents = lists.iter().map(List::read).sum();
                self.remains.leave(extents, lists);
            }
        }
        (head.cookie, outcome)
    }

    /// Checks the head of a command whose chain has `have` bytes behind it.
    fn check(&self, head: &CommandHead, have: u64) -> Outcome {
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
        if self.session.failed && opcode != Opcode::Reset {
            return fail(S::NotReady, "the device has failed: only a reset helps");
        }
        if !self.session.hello && opcode != Opcode::Hello && !self.session.failed {
            return fail(S::NotReady, "HELLO was not said");
        }
        if opcode.since() > self.session.minor {
            let text = format!(
                "{opcode:?} came with 1.{}, 1.{} is spoken",
                opcode.since(),
                self.session.minor
            );
            return fail(S::NotSupported, text);
        }
        Ok(())
    }

    /// Checks whether the driver may have one more object, with so many extents.
    fn room(&mut self, extents: u32) -> Outcome {
        if self.config.place.is_none() {
            return Ok(());
        }
        let used = config::of_objects(&self.device, self.session.ring_extents);
        self.share.room(used, extents)
    }

    fn dispatch(&mut self, request: Request<'_>) -> Outcome {
        use Opcode as O;
        match request.opcode {
            O::AllocPd
            | O::OpenXrcd
            | O::AllocMw
            | O::AllocDm
            | O::RegisterDmMr
            | O::RegisterNullMr
            | O::RegisterOnDemandMr
            | O::CreateAh
            | O::CreateQp
            | O::CreateFlow
            | O::CreateHashQp
            | O::AttachMulticast
            | O::Connect => self.room(0)?,
            // What ends an object: what it took may go to others. (A refusal has no meaning then.)
            O::DeallocPd
            | O::CloseXrcd
            | O::DeregisterMr
            | O::DeallocMw
            | O::DestroyCq
            | O::DestroySrq
            | O::DestroyAh
            | O::DestroyQp
            | O::DetachMulticast
            | O::DestroyConnection
            | O::DestroyDoorbells => {
                let outcome = self.carry(request);
                let _ = self.room(0);
                return outcome;
            }
            _ => {}
        }
        self.carry(request)
    }

    fn carry(&mut self, request: Request<'_>) -> Outcome {
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
            O::JudgePost => self.judge_post(request),
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
            O::RegisterNullMr => self.register_null_mr(request),
            O::RegisterOnDemandMr => self.register_on_demand_mr(request),
            O::SetPages => self.set_pages(request),
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
            O::CreateFlow => self.create_flow(request),
            O::DestroyFlow => self.flows.remove(request.object()?),
            O::CreateHashQp => self.create_hash_qp(request),
            O::DestroyHashQp => self.flows.remove_hash_qp(QpNumber(request.object()?)),
            O::CreateDoorbells => self.create_doorbells(request),
            O::DestroyDoorbells => self.destroy_doorbells(request),
            O::Listen
            | O::Unlisten
            | O::Connect
            | O::Accept
            | O::Reject
            | O::Disconnect
            | O::DestroyConnection
            | O::QueryConnection
            | O::TakeConnectionEvents => self.connection(request),
        }
    }

    /// Reads the memory of a region, as the `nth` list of a command.
    fn read_memory(&mut self, r: &mut Request<'_>, nth: usize, from: &Announced<'_>) -> Outcome {
        self.read(r, nth, from, || List::of_region(from.extents()))
    }

    /// Reads the memory of a ring of `len` bytes with entries of `stride` bytes, as the `nth` list of a command.
    fn read_ring(
        &mut self,
        r: &mut Request<'_>,
        nth: usize,
        from: &Announced<'_>,
        len: u64,
        stride: u32,
    ) -> Outcome {
        let map = self.memory.map().clone();
        self.read(r, nth, from, || List::of_ring(map, from.extents(), len, stride))
    }

    fn read(
        &mut self,
        r: &mut Request<'_>,
        nth: usize,
        from: &Announced<'_>,
        new: impl FnOnce() -> List,
    ) -> Outcome {
        if r.lists.len() == nth {
            self.room(u32::try_from(from.extents()).unwrap_or(u32::MAX))?;
            r.lists.push(new());
        }
        let Some(list) = r.lists.get_mut(nth) else {
            return fail(S::Internal, "a list before the first");
        };
        while list.read() < from.extents() {
            if self.account.is_over() {
                return Err(Failure::Unfinished);
            }
            let work = list.step(from, &self.memory)?;
            self.account.charge(work);
        }
        Ok(())
    }
}

/// The longest prefix of a text for which there is room, in whole characters.
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
}
