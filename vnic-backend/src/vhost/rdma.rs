//! The RDMA function's vhost-user protocol (`proto/device/SPEC.md`, section 2; QEMU, "Vhost-user Protocol"). One driver
//! owns the function: it runs when all virtqueues are set up, and ends with the control queue.

use std::fs::File;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vnic_device::config::{ABI_MAJOR, ABI_MINOR, CONFIG_LEN, Config, MAGIC};
use vnic_device::zerocopy::IntoBytes;
use vnic_engine::virtio_net::feature as f;

use super::budget::{Of, Share};
use super::server::{Device, Endpoint};
use super::{call, kick, map_region};
use crate::call::Call;
use crate::mem::{Lender, MemMap, Region};
use crate::rdma::{Attachment, EVENT_QUEUES, EventQueue, RdmaRings, VIRTQUEUES, WAKE_QUEUES};
use crate::ring::{RingAddresses, SplitRing};
use crate::types::NicEventKind;

/// Virtqueues with buffers: commands and events.
const WITH_BUFFERS: usize = 1 + EVENT_QUEUES as usize;

const OFFERED: u64 =
    f::RING_INDIRECT_DESC | f::RING_EVENT_IDX | f::PROTOCOL_FEATURES | f::VERSION_1 | f::IN_ORDER;

/// Memory regions that a driver is offered, if its adapter's budget has as many. A process shares its memory piece by piece.
const MEMORY_SLOTS: usize = 509;

/// One virtqueue as the VMM configures it.
#[derive(Default)]
struct Vring {
    size: u32,
    addresses: Option<RingAddresses>,
    base: u16,
    kick: Option<Arc<File>>,
    call: Option<Arc<Call>>,
    started: bool,
    enabled: bool,
}

/// The device side of one connection.
pub struct RdmaDevice {
    endpoint: Arc<Endpoint>,
    lender: Arc<Lender>,
    share: Share,
    features: u64,
    regions: Vec<Region>,
    mem: Arc<MemMap>,
    rings: Vec<Vring>,
    running: bool,
    /// Kept because some VMMs take its end for the end of the device.
    backend_channel: Option<Backend>,
}

impl RdmaDevice {
    /// For a new connection.
    pub fn new(endpoint: Arc<Endpoint>, lender: Arc<Lender>) -> Self {
        RdmaDevice {
            share: endpoint.share(),
            endpoint,
            lender,
            features: 0,
            regions: Vec::new(),
            mem: Arc::default(),
            rings: (0..VIRTQUEUES).map(|_| Vring::default()).collect(),
            running: false,
            backend_channel: None,
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Vring> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidOperation(
            "no such virtqueue: an RDMA function has three (num_vqs=3)",
        ))
    }

    fn config(&self) -> Config {
        Config {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            config_len: CONFIG_LEN,
            event_queues: EVENT_QUEUES,
            wake_queues: WAKE_QUEUES,
            mac: self.endpoint.spec.macs.first().map_or([0; 6], |m| m.0),
            ..Config::default()
        }
    }

    /// Brings what runs in line with what is configured, and tells the rest of the NIC.
    fn update(&mut self) {
        let implicit = self.features & f::PROTOCOL_FEATURES == 0;
        let ready = |(i, r): (usize, &Vring)| {
            r.started && (r.enabled || implicit) && (r.addresses.is_some() || i >= WITH_BUFFERS)
        };
        let wanted = !self.regions.is_empty() && self.rings.iter().enumerate().all(ready);
        if wanted && !self.running {
            self.start();
        } else if !wanted {
            self.stop();
        }
        self.publish_state();
    }

    fn publish_state(&self) {
        let pairs = u16::from(self.running);
        self.endpoint.set_guest(self.features, pairs, self.mem.bytes());
    }

    /// A virtqueue in the present memory.
    fn split_ring(&self, i: usize) -> Option<SplitRing> {
        let has = |bit| self.features & bit != 0;
        let r = &self.rings[i];
        let made = SplitRing::new(
            self.mem.clone(),
            r.size,
            r.addresses?,
            r.base,
            has(f::RING_EVENT_IDX),
            has(f::RING_INDIRECT_DESC),
            None,
        );
        match made {
            Ok(ring) => Some(ring),
            Err(fault) => {
                let what = format!("virtqueue {i} cannot be used: {fault}");
                self.endpoint.event(NicEventKind::RdmaFault { what });
                None
            }
        }
    }

    fn start(&mut self) {
        let attachment = Attachment {
            control: self.split_ring(0),
            control_call: self.rings[0].call.clone(),
            events: (1..WITH_BUFFERS)
                .map(|i| EventQueue {
                    ring: self.split_ring(i),
                    call: self.rings[i].call.clone(),
                })
                .collect(),
            kicks: self.rings.iter().filter_map(|r| r.kick.clone()).collect(),
            map: self.mem.clone(),
        };
        self.running = true;
        self.endpoint.attach_driver(attachment);
    }

    fn stop(&mut self) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        let bases = self.endpoint.detach_driver();
        for (ring, base) in self.rings.iter_mut().zip(bases) {
            ring.base = base;
        }
    }

    /// The memory has changed. Objects live on.
    fn remap(&mut self, regions: Vec<Region>) {
        self.regions = regions;
        self.mem = Arc::new(MemMap::new(&self.regions));
        if self.running && !self.regions.is_empty() {
            self.endpoint.remap_driver(RdmaRings {
                control: self.split_ring(0),
                events: (1..WITH_BUFFERS).map(|i| self.split_ring(i)).collect(),
                map: self.mem.clone(),
            });
        }
        self.update();
    }

    /// A virtqueue that is set up anew ends what runs.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<()> {
        self.ring(index)?;
        self.stop();
        change(self.ring(index)?);
        self.update();
        Ok(())
    }
}

impl Device for RdmaDevice {
    fn speaks_protocol_features(&self) -> bool {
        self.features & f::PROTOCOL_FEATURES != 0
    }

    fn stop_all(&mut self) {
        self.stop();
    }
}

impl VhostUserBackendReqHandlerMut for RdmaDevice {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop();
        for r in &mut self.rings {
            (r.started, r.enabled, r.base) = (false, false, 0);
        }
        self.features = 0;
        self.publish_state();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(OFFERED)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !OFFERED != 0 {
            return Err(Error::FeatureMismatch);
        }
        if features != self.features {
            self.stop();
            self.features = features;
            self.update();
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
        self.share
            .exchange(Of::Regions, self.regions.len(), regions.len())?;
        let mapped = regions
            .iter()
            .zip(files)
            .map(|(r, f)| map_region(r, f, &self.lender));
        let mapped = mapped.collect::<Result<Vec<_>>>()?;
        self.remap(mapped);
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
        let mut regions = self.regions.clone();
        regions.push(map_region(region, file, &self.lender)?);
        self.remap(regions);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let gone = |r: &Region| {
            (r.gpa, r.len, r.user) == (region.guest_phys_addr, region.memory_size, region.user_addr)
        };
        let unknown = Error::InvalidOperation("a memory region is removed that was not added");
        let i = self.regions.iter().position(gone).ok_or(unknown)?;
        let mut regions = self.regions.clone();
        regions.remove(i);
        self.remap(regions);
        self.share.exchange(Of::Regions, 1, 0)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.change(index, |r| r.size = num)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.change(index, |r| {
            r.addresses = Some(RingAddresses {
                desc: descriptor,
                avail: available,
                used,
                used_log: None,
            });
        })
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.change(index, |r| r.base = base as u16)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?.started = false;
        self.update();
        let r = self.ring(index)?;
        let (kick, call, base) = (r.kick.take(), r.call.take(), r.base);
        let had = usize::from(kick.is_some()) + usize::from(call.is_some());
        self.share.exchange(Of::Descriptors, had, 0)?;
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let kick = kick(fd)?;
        let had = self.ring(index.into())?.kick.is_some().into();
        self.share.exchange(Of::Descriptors, had, kick.is_some().into())?;
        self.change(index.into(), |r| (r.kick, r.started) = (kick, true))
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = call(&self.endpoint, fd)?;
        let had = self.ring(index.into())?.call.is_some().into();
        self.share.exchange(Of::Descriptors, had, call.is_some().into())?;
        // The old one is closed here, not on the data core: closing may take its time.
        let _old = std::mem::replace(&mut self.ring(index.into())?.call, call.clone());
        // VMMs change it whenever a guest masks its interrupt: that must not end anything.
        if self.running {
            self.endpoint.set_driver_call(index.into(), call);
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
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_backend_req_fd(&mut self, backend: Backend) {
        self.backend_channel = Some(backend);
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(VIRTQUEUES.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        self.update();
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let config = self.config();
        let mut bytes = config.as_bytes().to_vec();
        let end = (offset as usize).saturating_add(size as usize);
        // A VMM may show its guest a larger space than there is: the rest is zeros.
        bytes.resize(bytes.len().max(end.min(4096)), 0);
        match bytes.get(offset as usize..end) {
            Some(part) => Ok(part.to_vec()),
            None => Err(Error::InvalidOperation("beyond the configuration space")),
        }
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        // Read-only; a guest that writes there hurts nobody.
        Ok(())
    }

    refuse_what_is_not_offered!();

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation(
            "migration of RDMA functions is not offered",
        ))
    }
}
