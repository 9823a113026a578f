//! Memory windows.

use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vnic_device::command::Opcode;
use vnic_device::command::memory::{AllocMw, MwReply};
use vnic_device::queue::Bind;

pub use vnic_device::verbs::MwType;

use super::{MemoryRegion, bounds};
use crate::wr::SendWr;
use crate::{Access, Error, ProtectionDomain};

/// A memory window: a key of its own for a part of a region, bound and invalidated by work requests (IBTA 10.6.7;
/// `SPEC.md`, section 11.2). Dropping it deallocates it.
pub struct MemoryWindow {
    pd: ProtectionDomain,
    handle: u32,
    kind: MwType,
    rkey: AtomicU32,
}

impl std::fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "MemoryWindow({}, {:?}, rkey {:#x})",
            self.handle,
            self.kind,
            self.rkey()
        )
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let pd = &self.pd.0;
        pd.core
            .end(pd.epoch, Opcode::DeallocMw, self.handle, Box::new(()));
    }
}

impl ProtectionDomain {
    /// Makes a window.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::MwType;
    ///
    /// let window = pd.alloc_mw(MwType::Type2)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn alloc_mw(&self, kind: MwType) -> Result<MemoryWindow, Error> {
        let body = AllocMw {
            pd: self.number(),
            mw_type: kind.number(),
        };
        let reply: MwReply = self.0.core.call(self.0.epoch, Opcode::AllocMw, &body)?;
        Ok(MemoryWindow {
            pd: self.clone(),
            handle: reply.mw,
            kind,
            rkey: AtomicU32::new(reply.rkey),
        })
    }
}

/// The key with its low 8 bits incremented.
fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

impl MemoryWindow {
    /// Number of the window.
    pub fn number(&self) -> u32 {
        self.handle
    }

    /// Type of the window.
    pub fn kind(&self) -> MwType {
        self.kind
    }

    /// The key that peers use after the last [`bind`](MemoryWindow::bind) has completed.
    pub fn rkey(&self) -> u32 {
        self.rkey.load(Relaxed)
    }

    /// A work request that binds the window to a part of a region, to be posted at once:
    /// [`rkey`](MemoryWindow::rkey) is from now on the key that the window will have. A range of no bytes unbinds
    /// a window of type 1. [`SendWr::local_invalidate`] unbinds one of type 2, which must be unbound before it is
    /// bound again.
    ///
    /// If the request is not posted, or fails, give the key that [`rkey`](MemoryWindow::rkey) returned before to
    /// [`set_key`](MemoryWindow::set_key).
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain, region: &vnic_verbs::MemoryRegion, qp: &vnic_verbs::QueuePair<vnic_verbs::Rc>) -> Result<(), Box<dyn std::error::Error>> {
    /// use vnic_verbs::{Access, MwType};
    ///
    /// let window = pd.alloc_mw(MwType::Type2)?;
    /// qp.post_send(&[window.bind(region, ..64, Access::REMOTE_READ).signaled()])?;
    /// println!("peers READ with key {:#x}", window.rkey());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the range is not within the region.
    #[track_caller]
    pub fn bind(
        &self,
        region: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> SendWr<'static> {
        let (offset, len) = bounds(range, usize::try_from(region.length()).unwrap_or(usize::MAX));
        let new = self.next_rkey();
        self.rkey.store(new, Relaxed);
        let addr = region.addr().wrapping_add(offset as u64);
        self.bind_raw(new, Some(region), addr, len as u64, access)
    }

    /// The key that follows [`rkey`](MemoryWindow::rkey).
    pub fn next_rkey(&self) -> u32 {
        next_key(self.rkey())
    }

    /// As [`bind`](MemoryWindow::bind), by numbers as `ibv_mw_bind_info` has them, which only the device checks.
    /// `rkey` is the new key of a window of type 2; a window of type 1 will have
    /// [`next_rkey`](MemoryWindow::next_rkey). [`rkey`](MemoryWindow::rkey) does not change. Only a bind of 0
    /// bytes, which unbinds, needs no region.
    pub fn bind_raw(
        &self,
        rkey: u32,
        region: Option<&MemoryRegion>,
        addr: u64,
        len: u64,
        access: Access,
    ) -> SendWr<'static> {
        SendWr::bind(Bind {
            mw: self.handle,
            rkey: match self.kind {
                MwType::Type1 => 0,
                MwType::Type2 => rkey,
            },
            mr: region.map_or(0, MemoryRegion::number),
            access: access.bits(),
            addr,
            len,
        })
    }

    /// Sets the window's key: after a bind by [`bind_raw`](MemoryWindow::bind_raw) was posted, or back to the one before
    /// because a bind was not carried out.
    pub fn set_key(&self, key: u32) {
        self.rkey.store(key, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::next_key;

    #[test]
    fn only_the_low_bits_of_a_key_count() {
        assert_eq!(next_key(0x12_3400), 0x12_3401);
        assert_eq!(next_key(0x12_34ff), 0x12_3400);
        assert_eq!(next_key(u32::MAX), 0xffff_ff00);
    }
}
