//! Commands about memory (`SPEC.md`, section 11).

use vnic_device::command::memory::{
    AllocDm, AllocMw, CopyDm, MrReply, MwReply, RegisterDmMr, RegisterMr, RegisterOnDemandMr, ReregisterMr,
    SetPages,
};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{MwType, access, pages, reregister};
use vnic_engine::rdma::{
    Access, Given, Hold, Memory, MrHandle, MwHandle, PdHandle, Registration, Reregister, Span,
};

use crate::rdma::function::Function;
use crate::rdma::request::{Failure, List, Outcome, Request, fail, reserved};
use crate::rdma::work_queue::rights;

/// Entries of a region on demand that are gone through while one piece of work is done.
const ENTRIES_AT_ONCE: i32 = 16;

fn checked_rights(bits: u32) -> Result<Access, Failure> {
    let Some(rights) = rights(bits) else {
        let unknown = bits & !(access::ALL | access::IGNORED);
        return fail(S::NotSupported, format!("there are no rights {unknown:#x}"));
    };
    Ok(rights)
}

fn replied(registration: Registration) -> MrReply {
    MrReply {
        mr: registration.mr.0,
        lkey: registration.lkey,
        rkey: registration.rkey,
        reserved: 0,
    }
}

impl Function {
    /// Extents that may still be used.
    pub(super) fn free_extents(&self) -> u32 {
        let used = self.device.resources().mr_extents;
        used.limit
            .saturating_sub(used.used)
            .saturating_sub(self.session.ring_extents)
    }

    /// Refuses a region, or makes it wait, if a rule about its size says so.
    fn judge_region(&mut self, r: &Request<'_>) -> Outcome {
        let bytes = r.lists.first().map(List::bytes);
        self.judge_command(r.opcode.number(), bytes, r.now)
    }

    pub(super) fn register_mr(&mut self, mut r: Request<'_>) -> Outcome {
        let body: RegisterMr = r.body()?;
        r.room_for::<MrReply>()?;
        let list = r.announced(body.extents, self.free_extents())?;
        r.used_up()?;
        // Cheap checks come first.
        let (pd, rights) = (PdHandle(body.pd), checked_rights(body.access)?);
        self.device.check_register(pd, rights)?;
        self.read_memory(&mut r, 0, &list)?;
        self.judge_region(&r)?;
        let made = self.device.register_memory(pd, body.iova, rights, r.memory(0)?)?;
        r.reply(&replied(made));
        Ok(())
    }

    pub(super) fn reregister_mr(&mut self, mut r: Request<'_>) -> Outcome {
        let body: ReregisterMr = r.body()?;
        r.room_for::<MrReply>()?;
        let mr = MrHandle(body.mr);
        let list = r.announced(body.register.extents, self.free_extents())?;
        r.used_up()?;
        if body.change & !reregister::ALL != 0 {
            let text = format!("there are no changes {:#x}", body.change & !reregister::ALL);
            return fail(S::NotSupported, text);
        }
        let has = |bit| body.change & bit != 0;
        if !has(reregister::TRANSLATION) && body.register.extents.count > 0 {
            return fail(S::Invalid, "extents without TRANSLATION");
        }
        let pd = has(reregister::PD).then_some(PdHandle(body.register.pd));
        let access = match has(reregister::ACCESS) {
            true => Some(checked_rights(body.register.access)?),
            false => None,
        };
        self.device.check_reregister(mr, pd, access)?;
        let translation = if has(reregister::TRANSLATION) {
            self.read_memory(&mut r, 0, &list)?;
            self.judge_region(&r)?;
            Some((body.register.iova, r.memory(0)?))
        } else {
            None
        };
        let moved = translation.is_some();
        let change = Reregister {
            translation,
            pd,
            access,
        };
        let made = self.device.reregister(mr, change)?;
        self.leave_freed();
        if moved {
            self.device_memory.leave(made.mr);
        }
        r.reply(&replied(made));
        Ok(())
    }

    pub(super) fn deregister_mr(&mut self, r: Request<'_>) -> Outcome {
        let mr = MrHandle(r.object()?);
        self.device.deregister(mr)?;
        self.leave_freed();
        self.device_memory.leave(mr);
        Ok(())
    }

    pub(super) fn alloc_mw(&mut self, mut r: Request<'_>) -> Outcome {
        let body: AllocMw = r.only_body()?;
        r.room_for::<MwReply>()?;
        let kind = match MwType::from_number(body.mw_type) {
            Some(kind) => kind,
            None => {
                let text = format!("there are no windows of type {}", body.mw_type);
                return fail(S::NotSupported, text);
            }
        };
        let (mw, rkey) = self.device.alloc_mw(PdHandle(body.pd), kind)?;
        r.reply(&MwReply { mw: mw.0, rkey });
        Ok(())
    }

    pub(super) fn dealloc_mw(&mut self, r: Request<'_>) -> Outcome {
        Ok(self.device.dealloc_mw(MwHandle(r.object()?))?)
    }

    pub(super) fn alloc_dm(&mut self, mut r: Request<'_>) -> Outcome {
        let body: AllocDm = r.only_body()?;
        r.room_for::<vnic_device::command::Object>()?;
        reserved(body.reserved)?;
        if body.log_alignment > 12 {
            let text = format!("alignment 2^{}; at most 2^12", body.log_alignment);
            return fail(S::OutOfRange, text);
        }
        let handle = self.device_memory.allocate(body.len, &mut self.memory)?;
        r.reply_object(handle);
        Ok(())
    }

    pub(super) fn free_dm(&mut self, r: Request<'_>) -> Outcome {
        self.device_memory.free(r.object()?, &mut self.memory)
    }

    /// Checks a copy. Returns its first address.
    fn dm_copy(&mut self, body: &CopyDm) -> Result<u64, Failure> {
        let piece = self.device_memory.find(body.dm)?;
        if !body.len.is_multiple_of(4) || !body.offset.is_multiple_of(4) {
            return fail(S::Invalid, "device memory is copied in multiples of 4 bytes");
        }
        piece.address(body.offset, body.len.into())
    }

    pub(super) fn copy_to_dm(&mut self, r: Request<'_>) -> Outcome {
        let body: CopyDm = r.body()?;
        if r.list.len() != body.len as usize {
            let text = format!("{} bytes are announced, the list has {}", body.len, r.list.len());
            return fail(S::Malformed, text);
        }
        let at = self.dm_copy(&body)?;
        match self.memory.write(at, r.list) {
            Ok(()) => Ok(()),
            Err(error) => fail(S::Internal, error.to_string()),
        }
    }

    pub(super) fn copy_from_dm(&mut self, r: Request<'_>) -> Outcome {
        let body: CopyDm = r.only_body()?;
        if r.room < body.len as usize {
            let text = format!("the reply has {} bytes, there is room for {}", body.len, r.room);
            return fail(S::Malformed, text);
        }
        let at = self.dm_copy(&body)?;
        r.reply.resize(body.len as usize, 0);
        match self.memory.read(at, r.reply) {
            Ok(()) => Ok(()),
            Err(error) => fail(S::Internal, error.to_string()),
        }
    }

    pub(super) fn register_dm_mr(&mut self, mut r: Request<'_>) -> Outcome {
        let body: RegisterDmMr = r.only_body()?;
        r.room_for::<MrReply>()?;
        reserved(body.reserved)?;
        let rights = checked_rights(body.access)?;
        let piece = self.device_memory.find(body.dm)?;
        if !rights.contains(Access::ZERO_BASED) {
            let text = "regions over device memory are zero-based: they have no address";
            return fail(S::Invalid, text);
        }
        if !body.len.is_multiple_of(4) || !body.offset.is_multiple_of(4) {
            return fail(S::Invalid, "device memory is registered in multiples of 4 bytes");
        }
        let span = Span {
            at: piece.address(body.offset, body.len)?,
            len: body.len,
        };
        let made = self.device.register(PdHandle(body.pd), 0, rights, vec![span])?;
        if let Ok(piece) = self.device_memory.find(body.dm) {
            piece.regions.push(made.mr);
        }
        r.reply(&replied(made));
        Ok(())
    }

    pub(super) fn register_null_mr(&mut self, mut r: Request<'_>) -> Outcome {
        let pd = PdHandle(r.object()?);
        r.room_for::<MrReply>()?;
        let made = self.device.register_null(pd)?;
        r.reply(&replied(made));
        Ok(())
    }

    pub(super) fn register_on_demand_mr(&mut self, mut r: Request<'_>) -> Outcome {
        let body: RegisterOnDemandMr = r.only_body()?;
        r.room_for::<MrReply>()?;
        let rights = checked_rights(body.access)?;
        let Some(hold) = self.memory.word(body.hold) else {
            let text = format!(
                "the word at {:#x} is not shared with the device, or not aligned",
                body.hold
            );
            return fail(S::BadAddress, text);
        };
        self.judge_command(r.opcode.number(), Some(body.len), r.now)?;
        let range = (body.iova, body.len);
        let made = self
            .device
            .register_on_demand(PdHandle(body.pd), range, rights, Hold::new(hold))?;
        r.reply(&replied(made));
        Ok(())
    }

    pub(super) fn set_pages(&mut self, mut r: Request<'_>) -> Outcome {
        let body: SetPages = r.body()?;
        let list = r.announced(body.extents, self.free_extents())?;
        r.used_up()?;
        let has = |bit| body.flags & bit != 0;
        if body.flags & !pages::ALL != 0 {
            let text = format!("there are no flags {:#x}", body.flags & !pages::ALL);
            return fail(S::NotSupported, text);
        }
        let (mr, range) = (MrHandle(body.mr), (body.start, body.len));
        let work = self
            .device
            .check_pages(mr, body.start, body.len, body.extents.count)?;
        let given = if has(pages::REFUSED) {
            Given::Refused
        } else if body.extents.count == 0 {
            Given::Taken
        } else {
            self.read_memory(&mut r, 0, &list)?;
            Given::Memory {
                memory: r.memory(0)?,
                write: has(pages::WRITE),
                prefetched: has(pages::PREFETCH),
            }
        };
        self.account
            .charge(i32::try_from(work).unwrap_or(i32::MAX) / ENTRIES_AT_ONCE);
        Ok(self.device.set_pages(mr, range, given)?)
    }
}
