//! Regions on demand (`SPEC.md`, section 11.6): gives pages when the device asks for them, and takes them back when the program
//! unmaps them.
//!
//! *Order.* A region is locked while pages of it are given, from the look at the program's memory to the device's answer; and
//! while they are taken. So pages that are unmapped just then are taken right after, before the device may use any.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;

use rustix::io::Errno;
use vnic_device::command::memory::SetPages;
use vnic_device::ring::Extent;
use vnic_device::verbs::pages;

use crate::Error;
use crate::extents::part_of;
use crate::sync::lock;
use crate::transport::Pinned;

/// Bytes of what page faults are told in.
const PAGE: u64 = 4096;
/// Bytes that are given at once where the program has them: whoever touches one page will touch its neighbours.
const AT_ONCE: usize = 256 << 10;

/// The regions on demand of a device.
#[derive(Default)]
pub(super) struct Paging {
    regions: Mutex<HashMap<u32, Weak<OnDemand>>>,
    service: OnceLock<Service>,
}

/// The thread that gives pages.
struct Service {
    /// Where a device finds the word that holds pages back.
    hold: u64,
    work: Mutex<Option<Sender<Work>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread that gives pages has to do.
pub(super) enum Work {
    /// The device asks for pages of a region: the first one, how many, whether to write.
    Fault(u32, (u64, u64, bool)),
    /// The program does, by addresses.
    Prefetch(Arc<OnDemand>, Range<usize>, bool),
}

/// What a region needs of its device.
pub(crate) trait Pager {
    /// Makes memory known to the device, as [`Lender::lend`](crate::transport::Lender::lend).
    fn lend(&self, start: usize, len: usize, write: bool) -> Result<Pinned, Error>;

    /// Sends SET_PAGES, with this memory.
    fn set_pages(&self, epoch: u32, pages: SetPages, memory: &[Extent]) -> Result<(), Error>;
}

/// A region whose pages are given on demand.
pub(crate) struct OnDemand {
    pub epoch: u32,
    /// The region's number, key and domain.
    pub mr: u32,
    pub lkey: u32,
    pub pd: u32,
    /// Address of the first byte in work requests.
    pub iova: u64,
    /// Address of the first byte here, and length.
    pub start: usize,
    pub len: u64,
    /// Whether the region has rights to write.
    pub write: bool,
    /// What was given: first address, the one behind the last, and what keeps it there.
    pub given: Mutex<BTreeMap<usize, (usize, Arc<Pinned>)>>,
}

impl Paging {
    /// Where a device finds the word that holds pages back. With the first region `begin` says that, and starts the thread that
    /// gives pages.
    pub fn hold(
        &self,
        begin: impl FnOnce(Receiver<Work>) -> Result<(u64, JoinHandle<()>), Error>,
    ) -> Result<u64, Error> {
        // One at a time.
        let _regions = lock(&self.regions);
        if let Some(service) = self.service.get() {
            return Ok(service.hold);
        }
        let (work, to_do) = channel();
        let (hold, thread) = begin(to_do)?;
        let service = || Service {
            hold,
            work: Mutex::new(Some(work)),
            thread: Mutex::new(Some(thread)),
        };
        Ok(self.service.get_or_init(service).hold)
    }

    /// Adds a region, for as long as there are references to it.
    pub fn add(&self, region: &Arc<OnDemand>) {
        let mut regions = lock(&self.regions);
        regions.retain(|_, region| region.strong_count() > 0);
        regions.insert(region.mr, Arc::downgrade(region));
    }

    /// All regions.
    pub fn regions(&self) -> Vec<Arc<OnDemand>> {
        lock(&self.regions).values().filter_map(Weak::upgrade).collect()
    }

    /// The device asks for pages.
    pub fn fault(&self, mr: u32, what: (u64, u64, bool)) {
        self.send(Work::Fault(mr, what));
    }

    pub fn send(&self, work: Work) {
        if let Some(service) = self.service.get()
            && let Some(to) = &*lock(&service.work)
        {
            let _ = to.send(work);
        }
    }

    pub fn region(&self, mr: u32) -> Option<Arc<OnDemand>> {
        lock(&self.regions).get(&mr).and_then(Weak::upgrade)
    }

    /// Ends the thread that gives pages.
    pub fn stop(&self) {
        let Some(service) = self.service.get() else {
            return;
        };
        drop(lock(&service.work).take());
        let thread = lock(&service.thread).take();
        let _ = thread.map(JoinHandle::join);
    }
}

impl OnDemand {
    /// Addresses of the region.
    fn range(&self) -> Range<usize> {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        self.start..self.start.saturating_add(len)
    }

    /// Gives the device what it asks for, or refuses it.
    pub fn answer(&self, device: &dyn Pager, first: u64, count: u64, write: bool) {
        let at = |page: u64| usize::try_from(page.saturating_mul(PAGE)).unwrap_or(usize::MAX);
        let all = self.range();
        let from = self.start.saturating_add(at(first)).min(all.end);
        let to = from.saturating_add(at(count)).min(all.end);
        if let Err(e) = self.give(device, from..to, write, 0) {
            if std::env::var_os("VNIC_IBVERBS_DEBUG").is_some_and(|v| v == "1") {
                eprintln!("vnic: {} bytes at {from:#x} are refused: {e}", to - from);
            }
            // It has ended, if this fails.
            let _ = self.set(device, from..to, &[], pages::REFUSED);
        }
    }

    /// Addresses here of bytes that a work request names, to be read or written.
    pub fn place(&self, pd: u32, (addr, len): (u64, u32), write: bool) -> Result<Range<usize>, Error> {
        if self.pd != pd {
            return Err(Error::os("the region is of another protection domain")(
                Errno::PERM,
            ));
        }
        let offset = addr.wrapping_sub(self.iova);
        if offset.checked_add(len.into()).is_none_or(|end| end > self.len) {
            return Err(bad_address("they are not in the region"));
        }
        if write && !self.write {
            return Err(bad_address("the region has no rights to write"));
        }
        // Within the region, so within memory.
        let start = self.start + offset as usize;
        Ok(start..start + len as usize)
    }

    /// Gives the device pages of the program's: some more than asked for if they are there. `write`: to be written.
    pub fn give(
        &self,
        device: &dyn Pager,
        range: Range<usize>,
        write: bool,
        flags: u32,
    ) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let mut given = lock(&self.given);
        let (all, page) = (self.range(), rustix::param::page_size());
        let more = range.start / AT_ONCE * AT_ONCE..range.end.saturating_add(AT_ONCE - 1) / AT_ONCE * AT_ONCE;
        let more = more.start.max(all.start)..more.end.max(range.end).min(all.end);
        let ways = [
            (&more, self.write),
            (&range, self.write),
            (&more, false),
            (&range, false),
        ];
        let mut refused = bad_address("nothing is mapped there");
        for (wanted, writable) in ways {
            if write && !writable {
                continue;
            }
            match device.lend(wanted.start, wanted.end - wanted.start, writable) {
                Ok(pinned) => {
                    let flags = flags | if writable { pages::WRITE } else { 0 };
                    self.set(device, wanted.clone(), &pinned.extents, flags)?;
                    let whole = wanted.start / page * page..wanted.end.next_multiple_of(page);
                    cut(&mut given, &whole);
                    given.insert(whole.start, (whole.end, Arc::new(pinned)));
                    return Ok(());
                }
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    /// Takes what the program has unmapped.
    pub fn take(&self, device: &dyn Pager, gone: Range<usize>) {
        let mut given = lock(&self.given);
        let all = self.range();
        let gone = gone.start.max(all.start)..gone.end.min(all.end);
        let touched = given
            .range(..gone.end)
            .next_back()
            .is_some_and(|(_, (to, _))| *to > gone.start);
        if gone.is_empty() || !touched {
            return;
        }
        // If this fails the region has ended, or the device has.
        let _ = self.set(device, gone.clone(), &[], 0);
        cut(&mut given, &gone);
    }

    fn set(
        &self,
        device: &dyn Pager,
        range: Range<usize>,
        memory: &[Extent],
        flags: u32,
    ) -> Result<(), Error> {
        let len = (range.end - range.start) as u64;
        let pages = SetPages {
            mr: self.mr,
            flags,
            start: (range.start - self.start) as u64,
            len,
            ..SetPages::default()
        };
        device.set_pages(self.epoch, pages, &part_of(memory, 0, len))
    }
}

/// The error for pages that cannot be given.
pub(super) fn bad_address(why: &str) -> Error {
    Error::os(format!("pages cannot be given: {why}"))(Errno::FAULT)
}

/// Takes a range out of ranges.
fn cut(ranges: &mut BTreeMap<usize, (usize, Arc<Pinned>)>, out: &Range<usize>) {
    let before = ranges.range(..out.start).next_back().map(|(from, _)| *from);
    let touched: Vec<usize> = ranges
        .range(before.unwrap_or(out.start)..out.end)
        .map(|(from, _)| *from)
        .collect();
    for from in touched {
        let Some((to, keep)) = ranges.remove(&from) else {
            continue;
        };
        if from < out.start {
            ranges.insert(from, (to.min(out.start), Arc::clone(&keep)));
        }
        if to > out.end {
            ranges.insert(from.max(out.end), (to, keep));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut() {
        let pinned = || {
            Arc::new(Pinned {
                extents: Vec::new(),
                owner: Box::new(()),
            })
        };
        let mut ranges = BTreeMap::from([(0, (10, pinned())), (10, (20, pinned())), (30, (40, pinned()))]);
        let mut after = |out: Range<usize>| {
            cut(&mut ranges, &out);
            ranges
                .iter()
                .map(|(from, (to, _))| (*from, *to))
                .collect::<Vec<_>>()
        };
        assert_eq!(after(20..30), [(0, 10), (10, 20), (30, 40)]);
        assert_eq!(after(5..12), [(0, 5), (12, 20), (30, 40)]);
        assert_eq!(after(14..16), [(0, 5), (12, 14), (16, 20), (30, 40)]);
        assert_eq!(after(3..35), [(0, 3), (35, 40)]);
        assert_eq!(after(0..usize::MAX), []);
    }
}
