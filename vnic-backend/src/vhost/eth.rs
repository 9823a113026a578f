//! The Ethernet function's vhost-user protocol (QEMU, "Vhost-user Protocol"): negotiation, memory, rings.
//!
//! What a VMM may get wrong is a protocol error and ends the connection. What only the guest behind it can get
//! wrong (ring sizes, addresses, contents) stops that ring and nothing else.

use std::fs::File;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vnic_engine::offload::Accepts;
use vnic_engine::virtio_net::{NetHdr, feature as f};

use super::budget::{Of, Share};
use super::server::{Device, Endpoint};
use super::{call, kick, map_region};
use crate::call::Call;
use crate::datapath::RingStart;
use crate::mem::{DirtyLog, Lender, MemMap, Region};
use crate::ring::{Fault, RingAddresses, SplitRing};
use crate::types::NicEventKind;

/// What the device offers. STATUS, MAC and the control queue are the VMM's; a guest that has no VMM in between
/// (User-Mode-Linux) works without them.
const OFFERED: u64 = f::CSUM
    | f::GUEST_CSUM
    | f::GUEST_TSO4
    | f::GUEST_TSO6
    | f::GUEST_ECN
    | f::GUEST_USO4
    | f::GUEST_USO6
    | f::HOST_TSO4
    | f::HOST_TSO6
    | f::HOST_ECN
    | f::HOST_USO
    | f::MRG_RXBUF
    | f::LOG_ALL
    | f::ANY_LAYOUT
    | f::RING_INDIRECT_DESC
    | f::RING_EVENT_IDX
    | f::PROTOCOL_FEATURES
    | f::VERSION_1
    | f::IN_ORDER;

/// Memory regions that a guest is offered, if its adapter's budget has as many. (A VMM may add each of them once per queue pair.)
const MEMORY_SLOTS: usize = 64;

/// One ring as the VMM configures it.
#[derive(Default)]
struct Vring {
    size: u32,
    addresses: Option<RingAddresses>,
    base: u16,
    kick: Option<Arc<File>>,
    call: Option<Arc<Call>>,
    /// A kick descriptor was set (even "none"): the ring is started (vhost-user, "Ring states").
    started: bool,
    enabled: bool,
    running: bool,
}

/// The device side of one connection.
pub struct EthDevice {
    adapter: Arc<Endpoint>,
    lender: Arc<Lender>,
    share: Share,
    features: u64,
    /// Memory, in the order in which it was added. QEMU before 8.2 adds and removes each region once per queue
    /// pair, so the same one may be there several times.
    regions: Vec<Region>,
    mem: Arc<MemMap>,
    log: Option<DirtyLog>,
    rings: Vec<Vring>,
    /// Kept because User-Mode-Linux takes its end for the end of the device.
    backend_channel: Option<Backend>,
}

impl EthDevice {
    /// For a new connection.
    pub fn new(adapter: Arc<Endpoint>, lender: Arc<Lender>) -> Self {
        let rings = (0..2 * adapter.spec.queue_pairs)
            .map(|_| Vring::default())
            .collect();
        EthDevice {
            share: adapter.share(),
            adapter,
            lender,
            features: 0,
            regions: Vec::new(),
            mem: Arc::default(),
            log: None,
            rings,
            backend_channel: None,
        }
    }

    fn offered(&self) -> u64 {
        if self.adapter.spec.queue_pairs > 1 {
            OFFERED | f::MQ
        } else {
            OFFERED
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Vring> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidOperation(
            "no such ring: the adapter has fewer queue pairs",
        ))
    }

    fn stop(&mut self, i: usize) {
        if std::mem::take(&mut self.rings[i].running)
            && let Some(base) = self.adapter.stop_ring(i as u16)
        {
            self.rings[i].base = base;
        }
    }

    /// Brings what runs in line with what is configured, and tells the rest of the NIC.
    fn update(&mut self, i: usize) {
        self.run_or_stop(i);
        self.publish_state();
    }

    fn run_or_stop(&mut self, i: usize) {
        let implicit = self.features & f::PROTOCOL_FEATURES == 0;
        let r = &self.rings[i];
        let wanted =
            r.started && (r.enabled || implicit) && r.addresses.is_some() && !self.regions.is_empty();
        if wanted && !r.running {
            if let Err(fault) = self.start(i) {
                self.adapter.event(NicEventKind::RingFault {
                    ring: i as u16,
                    what: fault.to_string(),
                });
            }
        } else if !wanted && r.running {
            self.stop(i);
        }
    }

    /// Stops everything that runs, changes something under it, starts it again.
    fn paused(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        for i in 0..self.rings.len() {
            self.stop(i);
        }
        let result = change(self);
        for i in 0..self.rings.len() {
            self.run_or_stop(i);
        }
        // Only now: the link does not flap because memory comes or goes.
        self.publish_state();
        result
    }

    fn start(&mut self, i: usize) -> std::result::Result<(), Fault> {
        let has = |bit| self.features & bit != 0;
        let log = if has(f::LOG_ALL) { self.log.clone() } else { None };
        let r = &mut self.rings[i];
        let ring = SplitRing::new(
            self.mem.clone(),
            r.size,
            r.addresses.unwrap_or_default(),
            r.base,
            has(f::RING_EVENT_IDX),
            has(f::RING_INDIRECT_DESC),
            log,
        )?;
        let start = RingStart {
            index: i as u16,
            ring,
            kick: r.kick.clone(),
            call: r.call.clone(),
            hdr_len: if has(f::VERSION_1 | f::MRG_RXBUF) {
                NetHdr::LEN
            } else {
                NetHdr::LEN_LEGACY
            },
            mergeable: has(f::MRG_RXBUF),
            asks: has(f::CSUM),
            accepts: Accepts::from_features(self.features),
            mtu: self.adapter.spec.mtu,
        };
        r.running = true;
        self.adapter.start_ring(start);
        Ok(())
    }

    /// Tells the rest of the NIC how far the guest is.
    fn publish_state(&self) {
        let pairs = self
            .rings
            .chunks(2)
            .filter(|p| p.iter().all(|r| r.running))
            .count();
        self.adapter
            .set_guest(self.features, pairs as u16, self.mem.bytes());
    }

    fn remap(&mut self) -> Result<()> {
        self.mem = Arc::new(MemMap::new(&self.regions));
        Ok(())
    }
}

impl Device for EthDevice {
    fn speaks_protocol_features(&self) -> bool {
        self.features & f::PROTOCOL_FEATURES != 0
    }

    /// Stops all rings; their places are kept.
    fn stop_all(&mut self) {
        for i in 0..self.rings.len() {
            self.stop(i);
        }
    }
}

impl VhostUserBackendReqHandlerMut for EthDevice {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        for r in &mut self.rings {
            (r.started, r.enabled, r.base) = (false, false, 0);
        }
        self.features = 0;
        self.publish_state();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.offered() != 0 {
            return Err(Error::FeatureMismatch);
        }
        if features == self.features {
            return Ok(());
        }
        self.paused(|d| {
            d.features = features;
            Ok(())
        })
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        if regions.len() != files.len() {
            return Err(Error::InvalidOperation(
                "memory regions and descriptors do not match",
            ));
        }
        self.share
            .exchange(Of::Regions, self.regions.len(), regions.len())?;
        let mapped = regions
            .iter()
            .zip(files)
            .map(|(r, f)| map_region(r, f, &self.lender))
            .collect::<Result<Vec<_>>>()?;
        self.paused(|d| {
            d.regions = mapped;
            d.remap()
        })?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(self.share.slots(MEMORY_SLOTS) as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.share.exchange(Of::Regions, 0, 1)?;
        let mapped = map_region(region, file, &self.lender)?;
        self.paused(|d| {
            d.regions.push(mapped);
            d.remap()
        })?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let gone = |r: &Region| {
            (r.gpa, r.len, r.user) == (region.guest_phys_addr, region.memory_size, region.user_addr)
        };
        let unknown = Error::InvalidOperation("a memory region is removed that was not added");
        let i = self.regions.iter().position(gone).ok_or(unknown)?;
        self.paused(|d| {
            d.regions.remove(i);
            d.remap()
        })?;
        self.share.exchange(Of::Regions, 1, 0)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.stop_for_change(index)?;
        self.ring(index)?.size = num;
        self.update(index as usize);
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let used_log = flags
            .contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG)
            .then_some(log);
        self.stop_for_change(index)?;
        self.ring(index)?.addresses = Some(RingAddresses {
            desc: descriptor,
            avail: available,
            used,
            used_log,
        });
        self.update(index as usize);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stop_for_change(index)?;
        self.ring(index)?.base = base as u16;
        self.update(index as usize);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?.started = false;
        self.update(index as usize);
        let r = self.ring(index)?;
        let (kick, call, base) = (r.kick.take(), r.call.take(), r.base);
        let had = usize::from(kick.is_some()) + usize::from(call.is_some());
        self.share.exchange(Of::Descriptors, had, 0)?;
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let (index, kick) = (u32::from(index), kick(fd)?);
        let had = self.ring(index)?.kick.is_some().into();
        self.share.exchange(Of::Descriptors, had, kick.is_some().into())?;
        self.stop_for_change(index)?;
        let r = self.ring(index)?;
        (r.kick, r.started) = (kick, true);
        self.update(index as usize);
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = call(&self.adapter, fd)?;
        let had = self.ring(u32::from(index))?.call.is_some().into();
        self.share.exchange(Of::Descriptors, had, call.is_some().into())?;
        let r = self.ring(u32::from(index))?;
        // The old one is closed here, not on the data core: closing may take its time.
        let _old = std::mem::replace(&mut r.call, call.clone());
        // VMMs change it whenever a guest masks its interrupt: that must not stop traffic.
        if r.running {
            self.adapter.set_call(index.into(), call);
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.ring(u32::from(index)).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
            // We say nothing over it, but User-Mode-Linux (6.1) has an interrupt for its rings only with it.
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_backend_req_fd(&mut self, backend: Backend) {
        self.backend_channel = Some(backend);
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(self.adapter.spec.queue_pairs))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        self.update(index as usize);
        Ok(())
    }

    fn get_config(&mut self, _offset: u32, _size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation("the configuration space is the VMM's"))
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the configuration space is the VMM's"))
    }

    refuse_what_is_not_offered!();

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        self.share.exchange(Of::Regions, self.log.is_some().into(), 1)?;
        let mapped = DirtyLog::map(file, log.mmap_size, log.mmap_offset, &self.lender);
        let mapped = mapped.map_err(Error::ReqHandlerError)?;
        self.paused(|d| {
            d.log = Some(mapped);
            Ok(())
        })
    }
}

impl EthDevice {
    /// A running ring is taken out before its parameters change.
    fn stop_for_change(&mut self, index: u32) -> Result<()> {
        self.ring(index)?;
        self.stop(index as usize);
        Ok(())
    }
}
