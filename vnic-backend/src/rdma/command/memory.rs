//! Commands about memory (`SPEC.md`, section 11).

use vnic_device::command::memory::{
    AllocDm, AllocMw, CopyDm, MrReply, MwReply, RegisterDmMr, RegisterMr, ReregisterMr,
};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{MwType, access, reregister};
use vnic_engine::rdma::{Access, Memory, MrHandle, MwHandle, PdHandle, Registration, Reregister, Span};

use super::{Failure, Outcome, Request, fail, refused, reserved};
use crate::rdma::DEVICE_MEMORY_MAX;
use crate::rdma::function::Function;
use crate::rdma::memory::FunctionMemory;
use crate::rdma::work_queue::rights;

/// Pieces of device memory that there may be.
const PIECES_MAX: usize = 1024;

/// Device memory, and the regions over it.
#[derive(Debug, Default)]
pub struct DeviceMemoryTable {
    pieces: Vec<Option<DmPiece>>,
    /// Told old handles from new ones.
    generation: u32,
}

#[derive(Debug)]
struct DmPiece {
    handle: u32,
    place: usize,
    len: u64,
    /// Regions over it.
    regions: Vec<MrHandle>,
}

impl DeviceMemoryTable {
    /// Pieces in use.
    pub fn used(&self) -> u32 {
        self.pieces.iter().flatten().count() as u32
    }

    /// Most there may be.
    pub const LIMIT: u32 = PIECES_MAX as u32;

    /// Gives all back.
    pub fn clear(&mut self, memory: &mut FunctionMemory) {
        for piece in self.pieces.drain(..).flatten() {
            memory.free(piece.place);
        }
    }

    fn find(&mut self, handle: u32) -> Result<&mut DmPiece, Failure> {
        let found = self.pieces.iter_mut().flatten().find(|p| p.handle == handle);
        found.ok_or_else(|| refused(S::NoSuchObject, "no such device memory"))
    }

    /// A region has ended.
    fn leave(&mut self, mr: MrHandle) {
        for piece in self.pieces.iter_mut().flatten() {
            piece.regions.retain(|r| *r != mr);
        }
    }
}

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
    /// Extents that may still be given.
    pub(super) fn free_extents(&self) -> u32 {
        let used = self.device.resources().mr_extents;
        used.limit
            .saturating_sub(used.used)
            .saturating_sub(self.session.ring_extents)
    }

    pub(super) fn register_mr(&mut self, mut r: Request<'_>) -> Outcome {
        let body: RegisterMr = r.body()?;
        r.room_for::<MrReply>()?;
        let list = r.announced(body.extents, self.free_extents())?;
        r.used_up()?;
        // First what costs nothing.
        let (pd, rights) = (PdHandle(body.pd), checked_rights(body.access)?);
        self.device.check_register(pd, rights)?;
        self.read_memory(&mut r, 0, &list)?;
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
            return fail(
                S::NotSupported,
                format!("there are no changes {:#x}", body.change & !reregister::ALL),
            );
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
        r.no_list()?;
        let body: AllocMw = r.body()?;
        r.room_for::<MwReply>()?;
        let kind = match MwType::from_number(body.mw_type) {
            Some(kind) => kind,
            None => {
                return fail(
                    S::NotSupported,
                    format!("there are no windows of type {}", body.mw_type),
                );
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
        r.no_list()?;
        let body: AllocDm = r.body()?;
        r.room_for::<vnic_device::command::Object>()?;
        reserved(body.reserved)?;
        if body.log_alignment > 12 {
            let text = format!("alignment 2^{}; at most 2^12", body.log_alignment);
            return fail(S::OutOfRange, text);
        }
        let free = DEVICE_MEMORY_MAX - self.memory.device_bytes();
        // (Each piece begins at a page of its own, so that any alignment is kept.)
        if body.len == 0 || body.len.div_ceil(8).saturating_mul(8) > free {
            let text = format!(
                "{} bytes of device memory; {free} of {DEVICE_MEMORY_MAX} are free",
                body.len
            );
            return fail(S::LimitReached, text);
        }
        let table = &mut self.device_memory;
        let slot = match table.pieces.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if table.pieces.len() < PIECES_MAX => {
                table.pieces.push(None);
                table.pieces.len() - 1
            }
            None => {
                return fail(
                    S::LimitReached,
                    format!("there are {PIECES_MAX} pieces of device memory already"),
                );
            }
        };
        table.generation = table.generation.wrapping_add(1) & 0xfffff;
        let handle = table.generation << 12 | slot as u32;
        table.pieces[slot] = Some(DmPiece {
            handle,
            place: self.memory.allocate(body.len),
            len: body.len,
            regions: Vec::new(),
        });
        r.reply_object(handle);
        Ok(())
    }

    pub(super) fn free_dm(&mut self, r: Request<'_>) -> Outcome {
        let handle = r.object()?;
        let piece = self.device_memory.find(handle)?;
        if !piece.regions.is_empty() {
            return fail(S::InUse, format!("{} regions are over it", piece.regions.len()));
        }
        let place = piece.place;
        for slot in &mut self.device_memory.pieces {
            slot.take_if(|p| p.handle == handle);
        }
        self.memory.free(place);
        Ok(())
    }

    /// Checks a copy; answers where it begins.
    fn dm_copy(&mut self, body: &CopyDm) -> Result<u64, Failure> {
        let piece = self.device_memory.find(body.dm)?;
        if !body.len.is_multiple_of(4) || !body.offset.is_multiple_of(4) {
            return fail(S::Invalid, "device memory is copied in multiples of 4 bytes");
        }
        inside(body.offset, body.len.into(), piece.len)?;
        Ok(FunctionMemory::device_address(piece.place, body.offset))
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
        r.no_list()?;
        let body: CopyDm = r.body()?;
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
        r.no_list()?;
        let body: RegisterDmMr = r.body()?;
        r.room_for::<MrReply>()?;
        reserved(body.reserved)?;
        let rights = checked_rights(body.access)?;
        let piece = self.device_memory.find(body.dm)?;
        if !rights.contains(Access::ZERO_BASED) {
            return fail(
                S::Invalid,
                "regions over device memory are zero-based: they have no address",
            );
        }
        if !body.len.is_multiple_of(4) || !body.offset.is_multiple_of(4) {
            return fail(S::Invalid, "device memory is registered in multiples of 4 bytes");
        }
        inside(body.offset, body.len, piece.len)?;
        let span = Span {
            at: FunctionMemory::device_address(piece.place, body.offset),
            len: body.len,
        };
        let made = self.device.register(PdHandle(body.pd), 0, rights, vec![span])?;
        if let Ok(piece) = self.device_memory.find(body.dm) {
            piece.regions.push(made.mr);
        }
        r.reply(&replied(made));
        Ok(())
    }
}

fn inside(offset: u64, len: u64, size: u64) -> Outcome {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => fail(
            S::OutOfRange,
            format!("{len} bytes at {offset}; the device memory has {size}"),
        ),
    }
}
