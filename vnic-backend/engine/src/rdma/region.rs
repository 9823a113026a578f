//! Memory regions, and the keys of regions and windows (IBTA 10.6).
//!
//! A key is 24 bits that the device chooses, which find the region or window, and 8 bits below them, the variant. The whole key
//! must be right. The 24 bits are the object's handle. Regions have one key for both uses: L_Key = R_Key.
//!
//! All accesses are checked here, to the byte: [`Regions::local`] for work requests, [`Regions::remote`] for peers. Both return
//! the pieces of memory in the order of the bytes.

mod one;
mod translation;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;

use vnic_wire::aeth::NakCode;

use super::handle::Table;
use super::limits::{Limits, Place, Usage, in_range};
use super::memory::NULL_MEMORY;
use super::on_demand::{Hold, Missing, PIECES_MAX, Pages};
use super::packet::SpanList;
use super::types::{Access, MrHandle, MwHandle, Object, PdHandle, QpNumber, Sge, Span, Status, VerbsError};
use super::window::Window;

pub(super) use one::OneRegion;
pub use translation::{Extents, Translation};

/// A region that was registered (IBTA 11.2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Handle of the region.
    pub mr: MrHandle,
    /// Key for work requests.
    pub lkey: u32,
    /// Key for peers; the same number.
    pub rkey: u32,
}

/// Changes of a re-registration (`ibv_rereg_mr`). A field that is `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reregister {
    /// First address, and the memory.
    pub translation: Option<(u64, Translation)>,
    /// Protection domain.
    pub pd: Option<PdHandle>,
    /// Rights.
    pub access: Option<Access>,
}

/// Whether an access with these rights writes.
fn writes(need: Access) -> bool {
    need.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
}

/// A memory region.
#[derive(Debug)]
pub(super) struct Region {
    pub key: u32,
    pub pd: PdHandle,
    pub access: Access,
    /// Whether its keys are valid: false after an invalidation, and while memory is lost.
    pub valid: bool,
    /// Whether some of its memory went away; its keys are valid again only with other memory.
    lost: bool,
    /// Address of its first byte: 0 if zero-based.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    extents: Extents,
    /// Windows that are bound to it.
    pub windows: u32,
}

/// Position of a walk over all memory of all regions ([`Device::lose_memory_in_turns`](super::Device::lose_memory_in_turns)).
#[derive(Debug, Default)]
pub struct MemoryWalk {
    at: usize,
    /// Pieces that were looked at of the region there (of one on demand: bytes), and its key.
    piece: usize,
    key: u32,
    over: bool,
}

impl MemoryWalk {
    /// Whether the walk has come to the end.
    pub fn is_over(&self) -> bool {
        self.over
    }
}

/// The object of a key.
#[derive(Debug)]
pub(super) enum Entry {
    Region(Region),
    Window(Window),
}

/// Offset of `addr` in `base..base+len`, if `n` bytes from there are inside.
#[inline]
pub(super) fn inside(base: u64, len: u64, addr: u64, n: u64) -> Option<u64> {
    let offset = addr.checked_sub(base)?;
    (offset <= len && n <= len - offset).then_some(offset)
}

impl Region {
    /// The region's memory, from a piece on.
    fn spans(&self, from: usize) -> impl Iterator<Item = Span> {
        let one = match &self.extents {
            Extents::One(at) if from == 0 => Some(Span {
                at: *at,
                len: self.len,
            }),
            _ => None,
        };
        let many: &[(u64, u64)] = match &self.extents {
            Extents::One(_) | Extents::OnDemand(_) => &[],
            Extents::Many(extents) => extents.get(from..).unwrap_or_default(),
        };
        let ends = many.iter().skip(1).map(|(start, _)| *start).chain([self.len]);
        let pieces = many.iter().zip(ends).map(|((start, at), end)| Span {
            at: *at,
            len: end - start,
        });
        one.into_iter().chain(pieces)
    }

    /// Adds the memory of `len` bytes from `offset`, which are inside. Pieces but the first are counted. `Err`: a page of them
    /// is missing.
    #[inline]
    fn collect(
        &self,
        offset: u64,
        len: u64,
        need: Access,
        out: &mut SpanList,
        pieces: &Cell<u32>,
    ) -> Result<(), Missing> {
        if let Extents::One(at) = &self.extents {
            out.push(Span { at: at + offset, len });
            return Ok(());
        }
        let before = out.len() + 1;
        let found = self.collect_several(offset, len, need, out);
        pieces.set(
            pieces
                .get()
                .saturating_add(out.len().saturating_sub(before) as u32),
        );
        found
    }

    fn collect_several(
        &self,
        offset: u64,
        len: u64,
        need: Access,
        out: &mut SpanList,
    ) -> Result<(), Missing> {
        match &self.extents {
            Extents::One(_) => {}
            Extents::Many(extents) => self.collect_many(extents, offset, len, out),
            Extents::OnDemand(pages) => {
                let (end, write, before) = (offset + len, writes(need), out.len());
                let found = pages.collect(offset, end, write, |span| out.push(span));
                found.map_err(|found| {
                    out.truncate(before);
                    self.missing(found, end, write)
                })?;
            }
        }
        Ok(())
    }

    /// Whether `len` bytes from `offset` are there, as far as the first pieces say.
    #[inline]
    fn is_there(&self, offset: u64, len: u64, need: Access) -> Result<(), Missing> {
        match &self.extents {
            Extents::OnDemand(pages) => self.look_ahead(pages, offset, len, need),
            Extents::One(_) | Extents::Many(_) => Ok(()),
        }
    }

    /// The first page of `len` bytes from `offset` that is missing, as far as the first pieces say.
    #[cold]
    fn look_ahead(&self, pages: &Pages, offset: u64, len: u64, need: Access) -> Result<(), Missing> {
        let (end, write) = (offset + len, writes(need));
        let found = pages.look_ahead(offset, end, write);
        found.map_err(|found| self.missing(found, end, write))
    }

    fn missing(&self, (start, held): (u64, bool), end: u64, write: bool) -> Missing {
        Missing {
            mr: MrHandle(self.key >> 8),
            start,
            end,
            write,
            held,
        }
    }

    /// The place of `len` bytes from `offset`, which are inside, to be written if `write`. `None`: they are in several pieces, or a
    /// page of them is missing.
    #[inline]
    fn piece(&self, offset: u64, len: u64, write: bool) -> Option<u64> {
        match &self.extents {
            Extents::One(at) => Some(at + offset),
            Extents::Many(extents) => {
                let next = extents.partition_point(|(start, _)| *start <= offset);
                let (start, at) = extents.get(next.checked_sub(1)?)?;
                let stop = extents.get(next).map_or(self.len, |(start, _)| *start);
                (len <= stop - offset).then(|| behind(*at, offset - start))
            }
            Extents::OnDemand(pages) => pages.place(offset, offset + len, write),
        }
    }

    fn collect_many(&self, extents: &[(u64, u64)], offset: u64, len: u64, out: &mut SpanList) {
        let mut offset = offset;
        let end = offset + len;
        let mut next = extents.partition_point(|(start, _)| *start <= offset);
        while offset < end {
            let Some((start, at)) = next.checked_sub(1).and_then(|i| extents.get(i)) else {
                return;
            };
            let stop = extents.get(next).map_or(self.len, |(start, _)| *start).min(end);
            out.push(Span {
                at: behind(*at, offset - start),
                len: stop - offset,
            });
            offset = stop;
            next += 1;
        }
    }
}

/// So many bytes behind the beginning of a piece.
fn behind(at: u64, bytes: u64) -> u64 {
    match at {
        NULL_MEMORY => NULL_MEMORY,
        _ => at + bytes,
    }
}

/// Checks the rights of a key: peers may only change what the own QPs may change (IBTA 10.6.3.1).
fn check_access(access: Access) -> Result<(), VerbsError> {
    let changes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if changes && !access.contains(Access::LOCAL_WRITE) {
        return Err(VerbsError::Invalid("remote write and atomics need local write"));
    }
    Ok(())
}

/// Address of the first byte, if the last one has an address, too.
fn base(iova: u64, len: u64, access: Access) -> Result<u64, VerbsError> {
    let base = if access.contains(Access::ZERO_BASED) {
        0
    } else {
        iova
    };
    match base.checked_add(len.saturating_sub(1)) {
        Some(_) => Ok(base),
        None => Err(VerbsError::Invalid("addresses of a region beyond 2^64")),
    }
}

/// The regions and windows of a device.
#[derive(Debug)]
pub struct Regions {
    pub(super) keys: Table<Entry>,
    pub(super) windows: Usage,
    regions: Usage,
    extents: Usage,
    max_size: u64,
    /// Pieces of memory, except the first of each access, that were collected and not taken yet.
    pieces: Cell<u32>,
    /// The page for which the last access that was refused was refused.
    missing: Cell<Option<Missing>>,
    /// Whether there ever was a region on demand.
    on_demand: bool,
}

impl Regions {
    /// No regions yet.
    pub fn new(limits: &Limits) -> Regions {
        Regions::at(limits, None)
    }

    /// No regions yet of the device at this place of a function.
    pub fn at(limits: &Limits, place: Option<Place>) -> Regions {
        let both = limits.max_mr.saturating_add(limits.max_mw);
        let usage = |limit| Usage { used: 0, limit };
        Regions {
            // No key is 0: memory that was never written must not be a key.
            keys: super::limits::table(Object::Mr, both, place).with_first_index(1),
            windows: usage(limits.max_mw),
            regions: usage(limits.max_mr),
            extents: usage(limits.max_mr_extents),
            max_size: limits.max_mr_size,
            pieces: Cell::new(0),
            missing: Cell::new(None),
            on_demand: false,
        }
    }

    /// Makes keys begin anywhere, as `Table::scattered` says.
    #[must_use]
    pub fn scattered(self, seed: u64) -> Regions {
        Regions {
            keys: self.keys.scattered(seed, true),
            ..self
        }
    }

    /// Registers memory. `iova` is the address of its first byte in work requests and for peers, unless `access` says
    /// `ZERO_BASED`. Spans that continue each other are joined.
    pub fn register(
        &mut self,
        pd: PdHandle,
        iova: u64,
        access: Access,
        spans: Vec<Span>,
    ) -> Result<Registration, VerbsError> {
        self.register_memory(pd, iova, access, spans.into())
    }

    /// As [`register`](Regions::register), with spans that were given one by one.
    pub fn register_memory(
        &mut self,
        pd: PdHandle,
        iova: u64,
        access: Access,
        memory: Translation,
    ) -> Result<Registration, VerbsError> {
        self.check_register(access)?;
        let (len, extents) = memory.finish(self.max_size)?;
        let base = base(iova, len, access)?;
        self.add(pd, access, (base, len), extents)
    }

    /// Registers all addresses and no memory, for work requests to write what nobody wants, and to read zeros.
    pub fn register_null(&mut self, pd: PdHandle) -> Result<Registration, VerbsError> {
        self.check_register(Access::LOCAL_WRITE)?;
        self.add(
            pd,
            Access::LOCAL_WRITE,
            (0, u64::MAX),
            Extents::Many([(0, NULL_MEMORY)].into()),
        )
    }

    /// Registers addresses whose pages are given on demand.
    pub fn register_on_demand(
        &mut self,
        pd: PdHandle,
        (iova, len): (u64, u64),
        access: Access,
        hold: Hold,
    ) -> Result<Registration, VerbsError> {
        self.check_register(access)?;
        let base = base(iova, len, access)?;
        let pages = Extents::OnDemand(Box::new(Pages::new(hold)));
        let made = self.add(pd, access, (base, len), pages)?;
        self.on_demand = true;
        Ok(made)
    }

    /// Checks whether so many pieces of memory could be given to `len` bytes from `start` of a region. Returns its entries of the
    /// translation table.
    pub fn check_pages(&self, mr: MrHandle, start: u64, len: u64, pieces: u32) -> Result<u32, VerbsError> {
        let region = self.region(mr)?;
        let Extents::OnDemand(pages) = &region.extents else {
            return Err(VerbsError::Invalid("the region has all its memory"));
        };
        inside(0, region.len, start, len).ok_or(VerbsError::Invalid("pages beyond the region"))?;
        let count = pages.count_with(pieces);
        if count > PIECES_MAX {
            return Err(VerbsError::LimitReached {
                object: Object::Mr,
                limit: PIECES_MAX,
            });
        }
        self.charge(pages.count(), count)?;
        Ok(pages.count())
    }

    /// Replaces the memory of `len` bytes from `start` of a region, by nothing or by `memory` of so many bytes.
    pub fn set_pages(
        &mut self,
        mr: MrHandle,
        (start, len): (u64, u64),
        memory: Translation,
        write: bool,
    ) -> Result<(), VerbsError> {
        self.check_pages(mr, start, len, memory.extents.len() as u32)?;
        if memory.endless || ![0, len].contains(&memory.len) {
            return Err(VerbsError::Invalid("memory of another length than the pages"));
        }
        let Extents::OnDemand(pages) = &mut self.region_mut(mr)?.extents else {
            return Ok(());
        };
        let before = pages.count();
        pages.replace(start, start + len, memory.spans(), write);
        let after = pages.count();
        self.extents.used = self.extents.used - before + after;
        Ok(())
    }

    /// The page for which the last access was refused, if that was why. Whoever is refused has to ask.
    pub(super) fn take_missing(&self) -> Option<Missing> {
        self.missing.take()
    }

    /// The first page that is missing of where a request's answer is to land. What else is wrong with it shows when it lands.
    pub(super) fn missing_of(&self, pd: PdHandle, sges: &[Sge], len: u64) -> Option<Missing> {
        if !self.on_demand {
            return None;
        }
        let mut left = len;
        for sge in sges {
            let n = left.min(sge.len.into());
            left -= n;
            let Some(Entry::Region(region)) = self.keys.get(sge.lkey >> 8) else {
                continue;
            };
            if let Extents::OnDemand(pages) = &region.extents
                && region.key == sge.lkey
                && region.pd == pd
                && n > 0
                && let Some(offset) = inside(region.base, region.len, sge.addr, n)
                && let Err(missing) = region.look_ahead(pages, offset, n, Access::LOCAL_WRITE)
            {
                return Some(missing);
            }
        }
        None
    }

    fn add(
        &mut self,
        pd: PdHandle,
        access: Access,
        (base, len): (u64, u64),
        extents: Extents,
    ) -> Result<Registration, VerbsError> {
        let region = Region {
            key: 0,
            pd,
            access,
            valid: true,
            lost: false,
            base,
            len,
            extents,
            windows: 0,
        };
        let extents = self.charge(0, region.extents.count())?;
        let handle = self.insert(Entry::Region(region))?;
        self.extents.used = extents;
        self.regions.used += 1;
        Ok(self.registration(MrHandle(handle)))
    }

    /// Checks whether a region with these rights could be registered, of any memory.
    pub fn check_register(&self, access: Access) -> Result<(), VerbsError> {
        self.room(Object::Mr, self.regions)?;
        check_access(access)
    }

    /// Checks whether a region could be changed, to any memory.
    pub fn check_reregister(&self, mr: MrHandle, access: Option<Access>) -> Result<(), VerbsError> {
        let old = self.region(mr)?;
        not_bound(old)?;
        check_access(access.unwrap_or(old.access))
    }

    /// Changes a region in place. A valid key stays as it is, as with other devices (`ibv_rereg_mr`); one that was taken back is
    /// followed by another, so that who has the old one stays without. Refused while windows are bound to it (IBTA 11.2.8.4).
    pub fn reregister(
        &mut self,
        mr: MrHandle,
        change: Reregister,
    ) -> Result<(Registration, Option<Extents>), VerbsError> {
        self.check_reregister(mr, change.access)?;
        let old = self.region(mr)?;
        let access = change.access.unwrap_or(old.access);
        let pd = change.pd.unwrap_or(old.pd);
        let (old_base, old_len, old_extents) = (old.base, old.len, old.extents.count());
        let translation = match change.translation {
            Some((iova, memory)) => {
                let (len, extents) = memory.finish(self.max_size)?;
                Some((base(iova, len, access)?, len, extents))
            }
            None => None,
        };
        let used = match &translation {
            Some((.., extents)) => self.charge(old_extents, extents.count())?,
            None => self.extents.used,
        };
        let kept = base(old_base, old_len, access)?;
        let region = self.region_mut(mr)?;
        let before = match translation {
            Some((base, len, extents)) => {
                (region.base, region.len, region.lost) = (base, len, false);
                Some(core::mem::replace(&mut region.extents, extents))
            }
            None => {
                region.base = kept;
                None
            }
        };
        if !region.valid {
            region.key = next_variant(region.key);
        }
        region.valid = !region.lost;
        region.access = access;
        region.pd = pd;
        self.extents.used = used;
        Ok((self.registration(mr), before))
    }

    /// Ends a region, and returns its memory. Refused while windows are bound to it (IBTA 11.2.8.5).
    pub fn deregister(&mut self, mr: MrHandle) -> Result<Option<Extents>, VerbsError> {
        let region = self.region(mr)?;
        not_bound(region)?;
        let Some(Entry::Region(region)) = self.keys.remove(mr.0) else {
            return Ok(None);
        };
        self.extents.used -= region.extents.count();
        self.regions.used -= 1;
        Ok(Some(region.extents))
    }

    /// Takes memory away: regions with a piece that `is_there` denies lose their keys, and with them the windows that are bound
    /// to them, until they are registered again with other memory. Returns the regions that were not lost before, and the
    /// number of places and pieces that were looked at, which is about `most`. Neighbouring spans of a region are asked for as
    /// one.
    pub fn lose(
        &mut self,
        walk: &mut MemoryWalk,
        most: u32,
        is_there: &dyn Fn(Span) -> bool,
    ) -> (Vec<MrHandle>, u32) {
        let (mut lost, mut looked) = (Vec::new(), 0);
        while looked < most {
            let Some(object) = self.keys.place(walk.at) else {
                walk.over = true;
                break;
            };
            looked += 1;
            let mut rest = false;
            if let Some((handle, Entry::Region(region))) = object
                && !region.lost
            {
                // If the region is another one since the walk was here, it is looked at from its beginning.
                let from = if region.key == walk.key { walk.piece } else { 0 };
                if let Extents::OnDemand(pages) = &mut region.extents {
                    let before = pages.count();
                    let room = most.saturating_sub(looked).max(1) as usize;
                    let (count, next) = pages.lose(from as u64, room, is_there);
                    self.extents.used -= before - pages.count();
                    looked += count as u32;
                    match next {
                        Some(next) => (walk.piece, walk.key) = (next as usize, region.key),
                        None => (walk.at, walk.piece, walk.key) = (walk.at + 1, 0, 0),
                    }
                    continue;
                }
                let mut asked = 0;
                let mut spans = region.spans(from);
                let there = |span| {
                    asked += 1;
                    is_there(span)
                };
                let whole = spans
                    .by_ref()
                    .take(most.saturating_sub(looked).max(1) as usize)
                    .all(there);
                rest = whole && spans.next().is_some();
                drop(spans);
                (walk.piece, walk.key) = (from + asked, region.key);
                looked += asked as u32;
                if !whole {
                    region.lost = true;
                    region.valid = false;
                    lost.push(MrHandle(handle));
                }
            }
            if !rest {
                (walk.at, walk.piece, walk.key) = (walk.at + 1, 0, 0);
            }
        }
        (lost, looked)
    }

    /// Appends to `out` the memory of the bytes `offset..offset+len` of a scatter/gather list. `need` is `LOCAL_WRITE` to write
    /// there, or empty: reading needs no right. Only elements with bytes in that range are looked at, and only these bytes of
    /// them; without bytes, no key is. On an error `out` is as before.
    ///
    /// Errors: `LocalProtectionError` (no such key, a window's, of another PD, without the right, beyond the region),
    /// `LocalLengthError` (the list ends before).
    #[inline(always)]
    pub fn local(
        &self,
        pd: PdHandle,
        sges: &[Sge],
        offset: u64,
        len: u64,
        need: Access,
        out: &mut SpanList,
    ) -> Result<(), Status> {
        let before = out.len();
        let found = self.gather(pd, sges, offset, len, need, out);
        if found.is_err() {
            out.truncate(before);
        }
        found
    }

    fn gather(
        &self,
        pd: PdHandle,
        sges: &[Sge],
        offset: u64,
        len: u64,
        need: Access,
        out: &mut SpanList,
    ) -> Result<(), Status> {
        let (mut skip, mut left) = (offset, len);
        for sge in sges {
            if left == 0 {
                return Ok(());
            }
            let there = u64::from(sge.len);
            if skip >= there {
                skip -= there;
                continue;
            }
            let n = (there - skip).min(left);
            self.element(pd, sge, skip, n, need, out)?;
            skip = 0;
            left -= n;
            if left > 0 {
                self.pieces.set(self.pieces.get().saturating_add(1));
            }
        }
        if left > 0 {
            Err(Status::LocalLengthError)
        } else {
            Ok(())
        }
    }

    /// Appends the memory of `n` bytes of an element, from its byte `skip`.
    #[inline]
    fn element(
        &self,
        pd: PdHandle,
        sge: &Sge,
        skip: u64,
        n: u64,
        need: Access,
        out: &mut SpanList,
    ) -> Result<(), Status> {
        let Some(Entry::Region(region)) = self.keys.get(sge.lkey >> 8) else {
            return Err(Status::LocalProtectionError);
        };
        let allowed =
            region.key == sge.lkey && region.valid && region.pd == pd && region.access.contains(need);
        let addr = sge.addr.checked_add(skip);
        match addr.and_then(|addr| inside(region.base, region.len, addr, n)) {
            Some(offset) if allowed => {
                region
                    .collect(offset, n, need, out, &self.pieces)
                    .map_err(|missing| {
                        // The rest of the element is wanted next.
                        let rest = u64::from(sge.len) - skip;
                        let end = offset.saturating_add(rest).min(region.len);
                        self.missing.set(Some(Missing { end, ..missing }));
                        Status::LocalProtectionError
                    })
            }
            _ => Err(Status::LocalProtectionError),
        }
    }

    /// Appends to `out` the memory of `len` bytes at a peer's address, if `rkey` gives the right `need` to a QP of this
    /// protection domain (for XRC: the QP's). Type 2 windows obey only the QP on which they were bound. Without bytes, no key
    /// is looked at (IBTA 9.7.4). On an error `out` is as before.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "that is what a remote access is judged by"
    )]
    pub fn remote(
        &self,
        pd: PdHandle,
        qp: QpNumber,
        rkey: u32,
        addr: u64,
        len: u64,
        need: Access,
        out: &mut SpanList,
    ) -> Result<(), NakCode> {
        if len == 0 {
            return Ok(());
        }
        let found = self.find(pd, qp, rkey, addr, len, need);
        let (region, offset) = found.ok_or(NakCode::RemoteAccess)?;
        region
            .collect(offset, len, need, out, &self.pieces)
            .map_err(|missing| {
                self.missing.set(Some(missing));
                NakCode::RemoteAccess
            })
    }

    /// Checks what [`remote`](Regions::remote) checks, and collects nothing.
    #[inline]
    pub fn allows(
        &self,
        pd: PdHandle,
        qp: QpNumber,
        rkey: u32,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Result<(), NakCode> {
        if len == 0 {
            return Ok(());
        }
        let found = self.find(pd, qp, rkey, addr, len, need);
        let (region, offset) = found.ok_or(NakCode::RemoteAccess)?;
        region.is_there(offset, len, need).map_err(|missing| {
            self.missing.set(Some(missing));
            NakCode::RemoteAccess
        })
    }

    /// The region of a peer's access, and the offset in it.
    #[inline(always)]
    fn find(
        &self,
        pd: PdHandle,
        qp: QpNumber,
        rkey: u32,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Option<(&Region, u64)> {
        match self.keys.get(rkey >> 8)? {
            Entry::Region(region) => {
                let allowed =
                    region.key == rkey && region.valid && region.pd == pd && region.access.contains(need);
                let offset = inside(region.base, region.len, addr, len).filter(|_| allowed)?;
                Some((region, offset))
            }
            Entry::Window(window) => {
                let (mr, offset) = window.offset(pd, qp, rkey, addr, len, need)?;
                let region = self.region(mr).ok().filter(|region| region.valid)?;
                Some((region, offset))
            }
        }
    }

    /// Whether [`take_pieces`](Regions::take_pieces) has any.
    #[inline]
    pub fn has_pieces(&self) -> bool {
        self.pieces.get() != 0
    }

    /// Pieces of memory of all accesses since the last call, except the first of each.
    #[inline]
    pub fn take_pieces(&self) -> u32 {
        self.pieces.take()
    }

    /// A region's keys.
    fn registration(&self, mr: MrHandle) -> Registration {
        let key = self.region(mr).map_or(0, |region| region.key);
        Registration {
            mr,
            lkey: key,
            rkey: key,
        }
    }

    /// Protection domain of a region.
    pub fn domain(&self, mr: MrHandle) -> Result<PdHandle, VerbsError> {
        Ok(self.region(mr)?.pd)
    }

    /// Regions in use.
    pub fn region_usage(&self) -> Usage {
        self.regions
    }

    /// Windows in use.
    pub fn window_usage(&self) -> Usage {
        self.windows
    }

    /// Entries of the translation table in use.
    pub fn extent_usage(&self) -> Usage {
        self.extents
    }

    pub(super) fn region(&self, mr: MrHandle) -> Result<&Region, VerbsError> {
        match self.keys.get(mr.0) {
            Some(Entry::Region(region)) => Ok(region),
            _ => Err(VerbsError::NoSuch(Object::Mr)),
        }
    }

    pub(super) fn region_mut(&mut self, mr: MrHandle) -> Result<&mut Region, VerbsError> {
        match self.keys.get_mut(mr.0) {
            Some(Entry::Region(region)) => Ok(region),
            _ => Err(VerbsError::NoSuch(Object::Mr)),
        }
    }

    pub(super) fn window_mut(&mut self, mw: MwHandle) -> Result<&mut Window, VerbsError> {
        match self.keys.get_mut(mw.0) {
            Some(Entry::Window(window)) => Ok(window),
            _ => Err(VerbsError::NoSuch(Object::Mw)),
        }
    }

    /// Checks that there is room for one more object.
    pub(super) fn room(&self, object: Object, usage: Usage) -> Result<(), VerbsError> {
        if usage.used < usage.limit {
            return Ok(());
        }
        Err(VerbsError::LimitReached {
            object,
            limit: usage.limit,
        })
    }

    /// Takes an object in and returns its key.
    pub(super) fn insert(&mut self, entry: Entry) -> Result<u32, VerbsError> {
        let handle = self.keys.insert(entry)?;
        // When the generations of a slot are through, the next round differs in the variant: 4096 keys before one
        // comes back.
        let new = handle << 8 | self.keys.rounds(handle) & 0xff;
        match self.keys.get_mut(handle) {
            Some(Entry::Region(region)) => region.key = new,
            Some(Entry::Window(window)) => window.key = new,
            None => {}
        }
        Ok(handle)
    }

    /// Extents in use when `old` of them become `new`.
    fn charge(&self, old: u32, new: u32) -> Result<u32, VerbsError> {
        let room = self.extents.limit - (self.extents.used - old);
        in_range("extents of a region", new, 0, room)?;
        Ok(self.extents.used - old + new)
    }
}

/// The same key with the next variant.
pub(super) fn next_variant(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

fn not_bound(region: &Region) -> Result<(), VerbsError> {
    match region.windows {
        0 => Ok(()),
        users => Err(VerbsError::InUse {
            object: Object::Mr,
            users,
        }),
    }
}
