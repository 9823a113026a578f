//! Regions on demand of a device: what programs do with them, what the device and the program's own unmapping ask.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use vnic_device::command::Opcode;
use vnic_device::command::device::capabilities;
use vnic_device::command::memory::{MrReply, RegisterOnDemandMr, SetPages};
use vnic_device::ring::Extent;
use vnic_device::verbs::pages;

use super::core::Core;
use super::fork::NoFork;
use super::paging::{OnDemand, Pager, Work, bad_address};
use super::shared::Shared;
use super::signals::block_signals;
use crate::Error;
use crate::memory::Sge;
use crate::transport::{Listener, Pinned};

impl Core {
    /// Whether pages can be given on demand.
    pub fn can_page(&self) -> Result<(), Error> {
        if self.device().capabilities & capabilities::ON_DEMAND == 0 {
            return Err(Error::os("the device has no regions on demand")(Errno::OPNOTSUPP));
        }
        self.transport.lender()?.check()
    }

    /// Registers `len` bytes from `start` on demand.
    pub fn register_on_demand(
        &self,
        epoch: u32,
        (pd, access): (u32, u32),
        (start, len, iova): (usize, u64, u64),
        write: bool,
    ) -> Result<(MrReply, Arc<OnDemand>), Error> {
        let hold = self.paging.hold(|to_do| begin(self.shared(), to_do))?;
        let body = RegisterOnDemandMr {
            pd,
            access,
            iova,
            len,
            hold,
        };
        let reply: MrReply = self.call(epoch, Opcode::RegisterOnDemandMr, &body)?;
        let region = Arc::new(OnDemand {
            epoch,
            mr: reply.mr,
            lkey: reply.lkey,
            pd,
            iova,
            start,
            len,
            write,
            given: Mutex::default(),
        });
        self.paging.add(&region);
        Ok((reply, region))
    }

    /// Gives pages before the device asks for them: at once, or (without `wait`) soon.
    pub fn prefetch(&self, pd: u32, what: &[Sge], write: bool, wait: bool) -> Result<(), Error> {
        let regions = self.paging.regions();
        let place = |sge: &Sge| {
            let region = regions.iter().find(|region| region.lkey == sge.lkey);
            let region = region.ok_or_else(|| bad_address("the key is of no region on demand"))?;
            Ok((Arc::clone(region), region.place(pd, (sge.addr, sge.len), write)?))
        };
        let places: Vec<_> = what.iter().map(place).collect::<Result<_, Error>>()?;
        for (region, range) in places {
            if wait {
                region.give(&**self, range, write, pages::PREFETCH)?;
            } else {
                self.paging.send(Work::Prefetch(region, range, write));
            }
        }
        Ok(())
    }
}

impl Listener for Shared {
    fn gone(&self, start: usize, end: usize) {
        if self.is_parents() {
            return;
        }
        for region in self.paging.regions() {
            region.take(self, start..end);
        }
    }
}

impl Pager for Shared {
    fn lend(&self, start: usize, len: usize, write: bool) -> Result<Pinned, Error> {
        self.transport.lender()?.lend(start, len, write)
    }

    fn set_pages(&self, epoch: u32, pages: SetPages, memory: &[Extent]) -> Result<(), Error> {
        self.call_with_extents(epoch, Opcode::SetPages, &[memory], |lists| SetPages {
            extents: lists[0],
            ..pages
        })
    }
}

/// Hears of unmapped memory from now on, and starts the thread that gives pages. Returns where the word is that holds them back.
fn begin(shared: &Arc<Shared>, to_do: Receiver<Work>) -> Result<(u64, JoinHandle<()>), Error> {
    let listener: Weak<dyn Listener> = Arc::downgrade(shared) as _;
    let hold = shared.transport.lender()?.begin(listener)?;
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new()
        .name("vnic-pages".into())
        .spawn(move || run(&shared, &to_do))
        .map_err(Error::os("starting a thread"))?;
    Ok((hold, thread))
}

/// Gives pages until nobody can ask any more.
fn run(shared: &Shared, to_do: &Receiver<Work>) {
    block_signals();
    for work in to_do {
        let _no_fork = NoFork::hold();
        match work {
            Work::Fault(mr, (first, pages, write)) => {
                if let Some(region) = shared.paging.region(mr) {
                    region.answer(shared, first, pages, write);
                }
            }
            // Nobody waits for it.
            Work::Prefetch(region, range, write) => {
                let _ = region.give(shared, range, write, pages::PREFETCH);
            }
        }
    }
}
