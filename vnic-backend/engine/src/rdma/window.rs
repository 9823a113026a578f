//! Memory windows (IBTA 10.6.7): a part of a region under a key of its own, given out and taken back by work requests.
//!
//! A verb binds type 1, for all QPs of the protection domain. A work request binds type 2; this is type 2B: the QP that
//! bound it and the protection domain both count.

use vnic_wire::aeth::NakCode;

use super::region::{Entry, Region, Regions, inside, next_variant};
use super::types::{
    Access, MrHandle, MwBind, MwHandle, MwType, Object, PdHandle, QpNumber, Status, VerbsError,
};

/// A memory window.
#[derive(Debug)]
pub(super) struct Window {
    pub key: u32,
    pub pd: PdHandle,
    pub mw_type: MwType,
    binding: Option<Binding>,
}

/// The part of a region that a window shows.
#[derive(Debug, Clone, Copy)]
struct Binding {
    region: MrHandle,
    /// Offset of its first byte in the region.
    offset: u64,
    /// Address of its first byte: 0 if zero-based.
    base: u64,
    len: u64,
    access: Access,
    /// The only QP that the window obeys.
    qp: Option<QpNumber>,
}

impl Window {
    /// The region of `len` bytes at `addr`, and their offset in it, if the key allows it.
    #[inline]
    pub fn offset(
        &self,
        pd: PdHandle,
        qp: QpNumber,
        rkey: u32,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Option<(MrHandle, u64)> {
        let binding = self.binding.as_ref()?;
        let allowed = self.key == rkey
            && self.pd == pd
            && binding.qp.is_none_or(|bound_on| bound_on == qp)
            && binding.access.contains(need);
        let offset = inside(binding.base, binding.len, addr, len).filter(|_| allowed)?;
        Some((binding.region, binding.offset + offset))
    }
}

impl Regions {
    /// Makes a window that shows nothing yet, with its first key.
    pub fn alloc_mw(&mut self, pd: PdHandle, mw_type: MwType) -> Result<(MwHandle, u32), VerbsError> {
        self.room(Object::Mw, self.windows)?;
        let window = Window {
            key: 0,
            pd,
            mw_type,
            binding: None,
        };
        let mw = MwHandle(self.insert(Entry::Window(window))?);
        self.windows.used += 1;
        let key = self.window_mut(mw)?.key;
        Ok((mw, key))
    }

    /// Ends a window, bound or not.
    pub fn dealloc_mw(&mut self, mw: MwHandle) -> Result<(), VerbsError> {
        let window = self.window_mut(mw)?;
        let binding = window.binding.take();
        self.unbound(binding);
        self.keys.remove(mw.0);
        self.windows.used -= 1;
        Ok(())
    }

    /// Protection domain and kind of a window.
    pub fn window_domain(&self, mw: MwHandle) -> Result<(PdHandle, MwType), VerbsError> {
        let window = self.window(mw).ok_or(VerbsError::NoSuch(Object::Mw))?;
        Ok((window.pd, window.mw_type))
    }

    fn window(&self, mw: MwHandle) -> Option<&Window> {
        match self.keys.get(mw.0)? {
            Entry::Window(window) => Some(window),
            Entry::Region(_) => None,
        }
    }

    /// Binds a window on a QP and returns its new key; `MwBindError` (nothing is changed) if the standard forbids it
    /// (IBTA 10.6.7.2.2 and 10.6.7.2.3, 11.4.1):
    ///
    /// * QP, window and region are of one protection domain; the region has `MW_BIND`, the range is inside it, and
    ///   peers may only change what the own QPs may change in the region.
    /// * Type 1: the new binding replaces the old one; length 0 unbinds; the device chooses the new key; not zero-based.
    /// * Type 2: the window is not bound, since only an invalidation unbinds it; the length is not 0; the key is the
    ///   window's with any low 8 bits.
    ///
    /// A window on a zero-based region is refused, as `ibv_bind_mw` does.
    pub fn bind(&mut self, pd: PdHandle, qp: QpNumber, b: &MwBind) -> Result<u32, Status> {
        let (key, old) = self.check_bind(pd, b).ok_or(Status::MwBindError)?;
        let binding = (b.len > 0).then_some(()).and_then(|()| self.binding(pd, qp, b));
        if b.len > 0 && binding.is_none() {
            return Err(Status::MwBindError);
        }
        self.unbound(old);
        if binding.is_some() {
            let region = self.region_mut(b.mr).map_err(|_| Status::MwBindError)?;
            region.windows += 1;
        }
        let window = self.window_mut(b.mw).map_err(|_| Status::MwBindError)?;
        window.binding = binding;
        window.key = key;
        Ok(key)
    }

    /// Checks the window: its new key, and its present binding.
    fn check_bind(&self, pd: PdHandle, b: &MwBind) -> Option<(u32, Option<Binding>)> {
        let window = self.window(b.mw).filter(|window| window.pd == pd)?;
        match window.mw_type {
            MwType::Type1 => {
                let based = !b.access.contains(Access::ZERO_BASED);
                based.then_some((next_variant(window.key), window.binding))
            }
            MwType::Type2 => {
                let free = window.binding.is_none() && b.len > 0 && b.rkey >> 8 == b.mw.0;
                free.then_some((b.rkey, None))
            }
        }
    }

    /// Checks the region: the new binding.
    fn binding(&self, pd: PdHandle, qp: QpNumber, b: &MwBind) -> Option<Binding> {
        let region = self.region(b.mr).ok()?;
        let mw_type = self.window(b.mw)?.mw_type;
        let changes = b.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let allowed = region.valid
            && region.pd == pd
            && region.access.contains(Access::MW_BIND)
            && !region.access.contains(Access::ZERO_BASED)
            && (!changes || region.access.contains(Access::LOCAL_WRITE));
        let offset = inside(region.base, region.len, b.addr, b.len).filter(|_| allowed)?;
        let zero_based = b.access.contains(Access::ZERO_BASED);
        Some(Binding {
            region: b.mr,
            offset,
            base: if zero_based { 0 } else { b.addr },
            len: b.len,
            access: b.access & Access::REMOTE,
            qp: (mw_type == MwType::Type2).then_some(qp),
        })
    }

    /// Invalidates a key by a work request of the own side (IBTA 10.6.5): that of a type 2 window, which must be free or
    /// bound on this QP, or of a region that was registered with `INVALIDATE` and has no windows. Invalidating an
    /// invalid key is no error. Ordinary regions and type 1 windows end with their verbs only: `MwBindError`, which is
    /// the status of all memory management operations (IBTA 11.6.2).
    pub fn invalidate_local(&mut self, pd: PdHandle, qp: QpNumber, key: u32) -> Result<(), Status> {
        let done = self.invalidate(pd, key, |window| {
            window.binding.is_none_or(|binding| binding.qp == Some(qp))
        });
        done.ok_or(Status::MwBindError)
    }

    /// Invalidates a key for a peer that asked for it in a SEND (IBTA 9.4.1.1.3). The rules are the same, but a window
    /// must be bound on this QP and a region must be valid: another peer's keys are none of its business.
    pub fn invalidate_remote(&mut self, pd: PdHandle, qp: QpNumber, rkey: u32) -> Result<(), NakCode> {
        let done = match self.keys.get(rkey >> 8) {
            Some(Entry::Region(region)) if !region.valid => None,
            _ => self.invalidate(pd, rkey, |window| {
                window.binding.is_some_and(|binding| binding.qp == Some(qp))
            }),
        };
        done.ok_or(NakCode::RemoteAccess)
    }

    fn invalidate(&mut self, pd: PdHandle, key: u32, window_allows: impl Fn(&Window) -> bool) -> Option<()> {
        let binding = match self.keys.get_mut(key >> 8)? {
            Entry::Region(region) => {
                let allowed = region.key == key && region.pd == pd && invalidable(region);
                region.valid &= !allowed;
                return allowed.then_some(());
            }
            Entry::Window(window) => {
                let allowed = window.key == key
                    && window.pd == pd
                    && window.mw_type == MwType::Type2
                    && window_allows(window);
                allowed.then(|| window.binding.take())?
            }
        };
        self.unbound(binding);
        Some(())
    }

    /// Unbinds a window from its region.
    fn unbound(&mut self, binding: Option<Binding>) {
        if let Some(binding) = binding
            && let Ok(region) = self.region_mut(binding.region)
        {
            region.windows -= 1;
        }
    }
}

fn invalidable(region: &Region) -> bool {
    region.access.contains(Access::INVALIDATE) && region.windows == 0
}
