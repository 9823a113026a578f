//! The vhost-user protocol (QEMU, "Vhost-user Protocol") of both functions of an adapter: negotiation, memory, rings.
//!
//! An error of the VMM is a protocol error and ends the connection.

use std::fs::File;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vnic_device::config::PROTOCOL_SHARES;
use vnic_engine::virtio_net::feature as f;

use super::budget::{Of, Share};
use super::endpoint::Endpoint;
use crate::call::{Call, is_eventfd};
use crate::mem::{DirtyLog, Lender, MemMap, Region};
use crate::ring::{Fault, PackedRing, Ring, RingAddresses, SplitRing};

/// Protocol feature of a process that shares an RDMA function (`proto/device/SPEC.md`, section 2.4).
const SHARES: u64 = 1 << PROTOCOL_SHARES;

/// A ring as the VMM configures it.
#[derive(Default)]
pub struct Vring {
    size: u32,
    /// Addresses of the ring, if they were set.
    pub addresses: Option<RingAddresses>,
    /// Index at which the ring resumes.
    pub base: u16,
    /// Kick eventfd of the guest.
    pub kick: Option<Arc<File>>,
    /// Call eventfd of the guest.
    pub call: Option<Arc<Call>>,
    /// Whether a kick descriptor was set (even "none"): the ring is then started (vhost-user, "Ring states").
    started: bool,
    enabled: bool,
}

/// State that a VMM has set up.
pub struct Setup {
    /// The socket of the adapter.
    pub endpoint: Arc<Endpoint>,
    /// Number of the connection at the socket.
    pub peer: u64,
    lender: Arc<Lender>,
    /// Its share of the adapter's budgets.
    pub share: Share,
    /// Acknowledged features.
    pub features: u64,
    /// Memory regions, in the order in which they were added. QEMU before 8.2 adds and removes each region once per queue
    /// pair, so a region may be there several times.
    regions: Vec<Region>,
    /// Map of the memory regions.
    pub mem: Arc<MemMap>,
    log: Option<DirtyLog>,
    /// Whether the VMM knows VHOST_USER_PROTOCOL_F_RARP: it migrates guests.
    migrates: bool,
    /// The rings, by index.
    pub rings: Vec<Vring>,
}

impl Setup {
    /// Whether a feature was acknowledged.
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Whether there is any memory.
    pub fn has_memory(&self) -> bool {
        !self.regions.is_empty()
    }

    /// Whether a ring is started and enabled.
    pub fn is_ready(&self, i: usize) -> bool {
        let r = &self.rings[i];
        r.started && (r.enabled || !self.has(f::PROTOCOL_FEATURES))
    }

    /// A ring in the current memory.
    pub fn split_ring(&self, i: usize) -> std::result::Result<SplitRing, Fault> {
        let r = &self.rings[i];
        SplitRing::new(
            self.mem.clone(),
            r.size,
            r.addresses.unwrap_or_default(),
            r.base,
            self.has(f::RING_EVENT_IDX),
            self.has(f::RING_INDIRECT_DESC),
            self.log.clone().filter(|_| self.has(f::LOG_ALL)),
        )
    }

    /// A ring in the current memory, of the format that the driver has negotiated.
    pub fn virtqueue(&self, i: usize) -> std::result::Result<Ring, Fault> {
        if !self.has(f::RING_PACKED) {
            return self.split_ring(i).map(Ring::Split);
        }
        let r = &self.rings[i];
        let ring = PackedRing::new(
            self.mem.clone(),
            r.size,
            r.addresses.unwrap_or_default(),
            r.base,
            self.features,
            self.log.clone().filter(|_| self.has(f::LOG_ALL)),
        );
        ring.map(Ring::Packed)
    }

    /// Features that the VMM is offered. A guest that was moved may announce itself (GUEST_ANNOUNCE) if its VMM migrates guests:
    /// such a VMM has the control queue that this needs, and asks for the features again after those of the protocol.
    fn offered<F: Function>(&self) -> u64 {
        let announce = if self.migrates { f::GUEST_ANNOUNCE } else { 0 };
        F::offered(&self.endpoint) | announce
    }

    /// Reports to the rest of the NIC what the guest has set up.
    pub fn publish(&self, pairs: u16) {
        self.endpoint
            .set_guest(self.peer, self.features, pairs, self.mem.bytes());
    }

    fn ring<F: Function>(&mut self, index: u32) -> Result<&mut Vring> {
        let ring = self.rings.get_mut(index as usize);
        ring.ok_or(Error::InvalidOperation(F::NO_SUCH_RING))
    }

    /// Maps memory as the VMM describes it. All messages about memory lead here; the `vhost` crate does not check all of
    /// them.
    fn map(&self, region: &VhostUserMemoryRegion, file: File) -> Result<Region> {
        Region::map(
            region.guest_phys_addr,
            region.memory_size,
            region.user_addr,
            (file, region.mmap_offset),
            &self.lender,
            self.endpoint.settings().gpu_direct,
        )
        .map_err(Error::ReqHandlerError)
    }
}

/// A function of an adapter, on the device side of a connection.
pub trait Function {
    /// Memory regions that the function offers, if its adapter's budget has as many.
    const MEMORY_SLOTS: usize;
    /// Error text for a ring that the function does not have.
    const NO_SUCH_RING: &'static str;

    /// Takes the function, or a place in it, for a connection that has said whether it shares; the first call counts. Refused when
    /// others have it.
    fn claim(&mut self, setup: &mut Setup, shares: bool) -> Result<()>;

    /// Protocol features that the function offers.
    fn protocol(endpoint: &Endpoint) -> VhostUserProtocolFeatures;

    /// Number of rings.
    fn rings(endpoint: &Endpoint) -> usize;

    /// Number of queues, as the VMM counts them.
    fn queues(endpoint: &Endpoint) -> u64;

    /// Features that the function offers.
    fn offered(endpoint: &Endpoint) -> u64;

    /// Stops a ring that is about to be changed; on return it does not run, and its index is kept.
    fn stop(&mut self, setup: &mut Setup, ring: usize);

    /// Stops all rings; on return none runs, and their indexes are kept.
    fn stop_all(&mut self, setup: &mut Setup);

    /// Starts or stops a ring, or all of them, as their setup needs, and reports to the rest of the NIC.
    fn update(&mut self, setup: &mut Setup, ring: Option<usize>);

    /// Replaces the memory: `change` puts the new one in place.
    fn remap(&mut self, setup: &mut Setup, change: impl FnOnce(&mut Setup));

    /// Sets the call eventfd of a ring that may run.
    fn set_call(&mut self, setup: &Setup, ring: usize, call: Option<Arc<Call>>);

    /// Reads the configuration space.
    fn config(&self, setup: &Setup, offset: usize, size: usize) -> Result<Vec<u8>>;

    /// Writes the configuration space.
    fn set_config(&mut self, setup: &Setup) -> Result<()>;
}

/// Part of a configuration space. A VMM may show its guest a larger one: the rest is zeros.
pub fn part_of_space(space: &[u8], offset: usize, size: usize) -> Result<Vec<u8>> {
    let end = offset.saturating_add(size);
    let mut bytes = space.to_vec();
    bytes.resize(bytes.len().max(end.min(4096)), 0);
    let part = bytes.get(offset..end);
    part.map(<[u8]>::to_vec)
        .ok_or(Error::InvalidOperation("beyond the configuration space"))
}

/// The device side of one connection.
pub struct Connection<F> {
    setup: Setup,
    function: F,
}

impl<F: Function> Connection<F> {
    /// A new connection.
    pub fn new(endpoint: Arc<Endpoint>, peer: u64, lender: Arc<Lender>, function: F) -> Self {
        let rings = (0..F::rings(&endpoint)).map(|_| Vring::default());
        Connection {
            setup: Setup {
                share: endpoint.share(),
                rings: rings.collect(),
                endpoint,
                peer,
                lender,
                features: 0,
                regions: Vec::new(),
                mem: Arc::default(),
                log: None,
                migrates: false,
            },
            function,
        }
    }

    /// Whether the VMM has acknowledged VHOST_USER_F_PROTOCOL_FEATURES.
    pub fn speaks_protocol_features(&self) -> bool {
        self.setup.has(f::PROTOCOL_FEATURES)
    }

    /// Whether the VMM has acknowledged VHOST_USER_PROTOCOL_F_RARP.
    pub fn migrates(&self) -> bool {
        self.setup.migrates
    }

    /// Stops all rings; on return none runs.
    pub fn stop_all(&mut self) {
        self.function.stop_all(&mut self.setup);
    }

    /// Changes a ring. A running ring is stopped before.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<()> {
        self.setup.ring::<F>(index)?;
        self.function.stop(&mut self.setup, index as usize);
        change(self.setup.ring::<F>(index)?);
        self.update(index);
        Ok(())
    }

    fn update(&mut self, index: u32) {
        self.function.update(&mut self.setup, Some(index as usize));
    }

    fn remap(&mut self, regions: Vec<Region>) {
        self.function.remap(&mut self.setup, |setup| {
            setup.mem = Arc::new(MemMap::new(&regions));
            setup.regions = regions;
        });
    }
}

impl<F: Function> VhostUserBackendReqHandlerMut for Connection<F> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        for r in &mut self.setup.rings {
            (r.started, r.enabled, r.base) = (false, false, 0);
        }
        self.setup.features = 0;
        self.setup.publish(0);
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.setup.offered::<F>())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.setup.offered::<F>() != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.function.claim(&mut self.setup, false)?;
        if features != self.setup.features {
            self.stop_all();
            self.setup.features = features;
            self.function.update(&mut self.setup, None);
        }
        Ok(())
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
        self.function.claim(&mut self.setup, false)?;
        let setup = &mut self.setup;
        setup
            .share
            .exchange(Of::Regions, setup.regions.len(), regions.len())?;
        let mapped = regions.iter().zip(files).map(|(r, f)| setup.map(r, f));
        let mapped = mapped.collect::<Result<_>>()?;
        self.remap(mapped);
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(self.setup.share.slots(F::MEMORY_SLOTS) as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.function.claim(&mut self.setup, false)?;
        self.setup.share.exchange(Of::Regions, 0, 1)?;
        let mut regions = self.setup.regions.clone();
        regions.push(self.setup.map(region, file)?);
        self.remap(regions);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let gone = |r: &Region| {
            (r.gpa, r.len, r.user) == (region.guest_phys_addr, region.memory_size, region.user_addr)
        };
        let unknown = Error::InvalidOperation("a memory region is removed that was not added");
        let mut regions = self.setup.regions.clone();
        regions.remove(regions.iter().position(gone).ok_or(unknown)?);
        self.remap(regions);
        self.setup.share.exchange(Of::Regions, 1, 0)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.change(index, |r| r.size = num)
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
        let logs = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        self.change(index, |r| {
            r.addresses = Some(RingAddresses {
                desc: descriptor,
                avail: available,
                used,
                used_log: logs.then_some(log),
            });
        })
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        // Of a packed ring: where the device took buffers. (Above it is where it used them, which is the same here.)
        self.change(index, |r| r.base = base as u16)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.setup.ring::<F>(index)?.started = false;
        self.update(index);
        let r = self.setup.ring::<F>(index)?;
        let (kick, call, base) = (r.kick.take(), r.call.take(), u32::from(r.base));
        let had = usize::from(kick.is_some()) + usize::from(call.is_some());
        self.setup.share.exchange(Of::Descriptors, had, 0)?;
        // A packed ring has two places (vhost-user, "VHOST_USER_GET_VRING_BASE"); all taken buffers are used.
        let used = if self.setup.has(f::RING_PACKED) {
            base << 16
        } else {
            0
        };
        Ok(VhostUserVringState::new(index, base | used))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        // Data cores wait for it: with another kind of file the VMM could decide how long a look takes.
        if let Some(file) = &fd
            && !is_eventfd(file).map_err(Error::ReqHandlerError)?
        {
            return Err(Error::InvalidOperation("a kick descriptor is no eventfd"));
        }
        let kick = fd.map(Arc::new);
        let had = self.setup.ring::<F>(index.into())?.kick.is_some().into();
        let share = &mut self.setup.share;
        share.exchange(Of::Descriptors, had, kick.is_some().into())?;
        self.change(index.into(), |r| (r.kick, r.started) = (kick, true))
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let signals = || self.setup.endpoint.signals();
        let call = fd.map(|file| Call::new(file, signals())).transpose();
        let call = call.map_err(Error::ReqHandlerError)?.map(Arc::new);
        let had = self.setup.ring::<F>(index.into())?.call.is_some().into();
        let share = &mut self.setup.share;
        share.exchange(Of::Descriptors, had, call.is_some().into())?;
        // The old one is closed here, not on the data core: to close it may take long.
        let _old = std::mem::replace(&mut self.setup.ring::<F>(index.into())?.call, call.clone());
        // VMMs change the eventfd whenever a guest masks its interrupt: that must not stop the ring.
        self.function.set_call(&self.setup, index.into(), call);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.setup.ring::<F>(index.into()).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(F::protocol(&self.setup.endpoint)
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
            // For news of the configuration space; User-Mode-Linux (6.1) has an interrupt for its rings only with it.
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let known =
            VhostUserProtocolFeatures::from_bits_truncate(features) & F::protocol(&self.setup.endpoint);
        self.setup.migrates = known.contains(VhostUserProtocolFeatures::RARP);
        self.function.claim(&mut self.setup, features & SHARES != 0)
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(F::queues(&self.setup.endpoint))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.setup.ring::<F>(index)?.enabled = enable;
        self.update(index);
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        self.function.config(&self.setup, offset as usize, size as usize)
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        self.function.set_config(&self.setup)
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        if F::offered(&self.setup.endpoint) & f::LOG_ALL == 0 {
            return Err(Error::InvalidOperation(
                "migration of RDMA functions is not offered",
            ));
        }
        let had = self.setup.log.is_some().into();
        self.setup.share.exchange(Of::Regions, had, 1)?;
        let mapped = DirtyLog::map(file, log.mmap_size, log.mmap_offset, &self.setup.lender);
        let mapped = mapped.map_err(Error::ReqHandlerError)?;
        self.stop_all();
        self.setup.log = Some(mapped);
        self.function.update(&mut self.setup, None);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is no graphics device"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("shared objects are not offered"))
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation(NO_INFLIGHT))
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        Err(Error::InvalidOperation(NO_INFLIGHT))
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation(NO_STATE))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation(NO_STATE))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("shared memory regions are not offered"))
    }
}

/// Error texts of requests that no function offers.
const NO_INFLIGHT: &str = "in-flight tracking is not offered: completion is in order";
const NO_STATE: &str = "device state transfer is not offered";
