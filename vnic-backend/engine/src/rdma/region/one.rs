//! Many accesses with one key.

use super::super::types::{Access, PdHandle, Sge};
use super::{Entry, Region, Regions, inside};

/// The region of the last key that was looked at. While it lives, no region changes: many looks at one key find it once. It
/// knows no windows, and no bytes that are in several pieces or missing.
#[derive(Debug, Default)]
pub struct OneRegion<'a> {
    last: Option<(u32, &'a Region)>,
}

impl<'a> OneRegion<'a> {
    /// The region of a valid key that gives the right `need` in this domain.
    #[inline]
    fn of(&mut self, regions: &'a Regions, pd: PdHandle, key: u32, need: Access) -> Option<&'a Region> {
        if let Some((last, region)) = self.last
            && last == key
        {
            return Some(region);
        }
        let Some(Entry::Region(region)) = regions.keys.get(key >> 8) else {
            return None;
        };
        let allowed = region.key == key && region.valid && region.pd == pd && region.access.contains(need);
        if !allowed {
            return None;
        }
        self.last = Some((key, region));
        Some(region)
    }

    /// The place of `n` bytes of an element, from its byte `skip`, to be read, as [`Regions::local`] finds them.
    #[inline]
    pub fn local(&mut self, regions: &'a Regions, pd: PdHandle, sge: &Sge, skip: u32, n: u32) -> Option<u64> {
        let region = self.of(regions, pd, sge.lkey, Access::empty())?;
        let addr = sge.addr.checked_add(skip.into())?;
        region.piece(inside(region.base, region.len, addr, n.into())?, n.into(), false)
    }

    /// Whether a peer may write `n` bytes at an address, as [`Regions::allows`] finds out.
    #[inline]
    pub fn allows_write(&mut self, regions: &'a Regions, pd: PdHandle, rkey: u32, addr: u64, n: u32) -> bool {
        let need = Access::REMOTE_WRITE;
        let region = self.of(regions, pd, rkey, need);
        region.is_some_and(|region| {
            inside(region.base, region.len, addr, n.into())
                .is_some_and(|offset| region.is_there(offset, n.into(), need).is_ok())
        })
    }

    /// The place of `n` bytes that a peer writes, as [`Regions::remote`] finds them.
    #[inline]
    pub fn remote(
        &mut self,
        regions: &'a Regions,
        pd: PdHandle,
        rkey: u32,
        addr: u64,
        n: u32,
    ) -> Option<u64> {
        let region = self.of(regions, pd, rkey, Access::REMOTE_WRITE)?;
        region.piece(inside(region.base, region.len, addr, n.into())?, n.into(), true)
    }
}
