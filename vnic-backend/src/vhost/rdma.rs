//! The RDMA function (`proto/device/SPEC.md`, section 2). It belongs to one driver, or each process that shares it has a part of its
//! own: that runs when all virtqueues are set up, and ends with the control queue.

use std::sync::Arc;

use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Error, Result};
use vnic_device::config::{ABI_MAJOR, ABI_MINOR, CONFIG_LEN, Config, MAGIC};
use vnic_device::zerocopy::IntoBytes;
use vnic_engine::rdma::Place;
use vnic_engine::virtio_net::feature as f;

use super::connection::{Function, Setup, part_of_space};
use super::endpoint::{Endpoint, Has};
use crate::call::Call;
use crate::rdma::{Attachment, EVENT_QUEUES, EventQueue, RdmaRings, VIRTQUEUES, WAKE_QUEUES};
use crate::ring::SplitRing;
use crate::types::NicEventKind;

/// Virtqueues with buffers: commands and events.
const WITH_BUFFERS: usize = 1 + EVENT_QUEUES as usize;

const OFFERED: u64 =
    f::RING_INDIRECT_DESC | f::RING_EVENT_IDX | f::PROTOCOL_FEATURES | f::VERSION_1 | f::IN_ORDER;

/// The RDMA function of a connection.
#[derive(Default)]
pub struct Rdma {
    running: bool,
    /// Place of a process that shares the function.
    place: Option<Place>,
}

/// A virtqueue in the current memory.
fn virtqueue(setup: &Setup, i: usize) -> Option<SplitRing> {
    setup.rings[i].addresses?;
    match setup.split_ring(i) {
        Ok(ring) => Some(ring),
        Err(fault) => {
            let what = format!("virtqueue {i} cannot be used: {fault}");
            setup.endpoint.event(NicEventKind::RdmaFault { what });
            None
        }
    }
}

impl Function for Rdma {
    // A process shares its memory in pieces.
    const MEMORY_SLOTS: usize = 509;
    const NO_SUCH_RING: &str = "no such virtqueue: an RDMA function has three (num_vqs=3)";

    fn claim(&mut self, setup: &mut Setup, shares: bool) -> Result<()> {
        let first = setup.endpoint.has(setup.peer) == Has::Nothing;
        match setup.endpoint.claim(setup.peer, shares) {
            None => Err(Error::InvalidOperation(
                "a guest has the function, or processes have it",
            )),
            Some(Has::Place(place)) if first => {
                self.place = Some(place);
                setup.share.of_process();
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    fn protocol(_endpoint: &Endpoint) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
    }

    fn rings(_endpoint: &Endpoint) -> usize {
        VIRTQUEUES.into()
    }

    fn queues(_endpoint: &Endpoint) -> u64 {
        VIRTQUEUES.into()
    }

    fn offered(_endpoint: &Endpoint) -> u64 {
        OFFERED
    }

    /// Stops the function: a virtqueue that is set up again ends everything that runs.
    fn stop(&mut self, setup: &mut Setup, _ring: usize) {
        self.stop_all(setup);
    }

    fn stop_all(&mut self, setup: &mut Setup) {
        if std::mem::take(&mut self.running) {
            let bases = setup.endpoint.detach_driver(self.place);
            for (ring, base) in setup.rings.iter_mut().zip(bases) {
                ring.base = base;
            }
        }
    }

    fn update(&mut self, setup: &mut Setup, _ring: Option<usize>) {
        let ready = |i: usize| setup.is_ready(i) && (setup.rings[i].addresses.is_some() || i >= WITH_BUFFERS);
        let wanted = setup.has_memory() && (0..setup.rings.len()).all(ready);
        if !wanted {
            self.stop_all(setup);
        } else if !self.running {
            self.running = true;
            setup.endpoint.attach_driver(
                self.place,
                Attachment {
                    control: virtqueue(setup, 0),
                    control_call: setup.rings[0].call.clone(),
                    events: (1..WITH_BUFFERS)
                        .map(|i| EventQueue {
                            ring: virtqueue(setup, i),
                            call: setup.rings[i].call.clone(),
                        })
                        .collect(),
                    kicks: setup.rings.iter().filter_map(|r| r.kick.clone()).collect(),
                    map: setup.mem.clone(),
                    owner: setup.endpoint.owners().at(self.place),
                    program: setup.endpoint.program(setup.peer),
                },
            );
        }
        setup.publish(self.running.into());
    }

    /// Replaces the memory; objects stay.
    fn remap(&mut self, setup: &mut Setup, change: impl FnOnce(&mut Setup)) {
        change(setup);
        if self.running && setup.has_memory() {
            setup.endpoint.remap_driver(
                self.place,
                RdmaRings {
                    control: virtqueue(setup, 0),
                    events: (1..WITH_BUFFERS).map(|i| virtqueue(setup, i)).collect(),
                    map: setup.mem.clone(),
                },
            );
        }
        self.update(setup, None);
    }

    fn set_call(&mut self, setup: &Setup, i: usize, call: Option<Arc<Call>>) {
        if self.running {
            setup.endpoint.set_driver_call(self.place, i as u16, call);
        }
    }

    fn config(&self, setup: &Setup, offset: usize, size: usize) -> Result<Vec<u8>> {
        let config = Config {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            config_len: CONFIG_LEN,
            event_queues: EVENT_QUEUES,
            wake_queues: WAKE_QUEUES,
            mac: setup.endpoint.spec().macs.first().map_or([0; 6], |m| m.0),
            ..Config::default()
        };
        part_of_space(config.as_bytes(), offset, size)
    }

    fn set_config(&mut self, _setup: &Setup) -> Result<()> {
        // The space is read-only; a write has no effect.
        Ok(())
    }
}
