//! The Ethernet function: each ring runs as soon as it can. With `AdapterSpec::control_queue` it is a whole virtio-net device, with its
//! own configuration space and control queue.
//!
//! Errors that only the guest behind a VMM can make (ring sizes, addresses, contents) stop that ring and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Error, Result};
use vnic_engine::offload::Accepts;
use vnic_engine::virtio_net::config::{ANNOUNCE, Config, LINK_UP};
use vnic_engine::virtio_net::{NetHdr, feature as f};
use vnic_wire::MacAddr;

use super::connection::{Function, Setup, part_of_space};
use super::endpoint::Endpoint;
use crate::call::Call;
use crate::datapath::{ControlStart, RingStart};
use crate::rdma::SPEED_MBPS;
use crate::ring::Fault;
use crate::types::NicEventKind;

/// Features that the device offers. STATUS, MAC and the control queue are the VMM's; a guest without a VMM in between
/// (User-Mode-Linux) works without them. GUEST_ANNOUNCE needs STATUS and the control queue: see `Setup::offered`.
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
    | f::RING_PACKED
    | f::IN_ORDER;

const NOT_OURS: &str = "the configuration space is the VMM's (an adapter with control_queue has its own)";

/// Features beside [`OFFERED`] of a function with its own control queue.
const WITH_CONTROL: u64 = f::MAC
    | f::MTU
    | f::STATUS
    | f::GUEST_ANNOUNCE
    | f::SPEED_DUPLEX
    | f::CTRL_VQ
    | f::CTRL_RX
    | f::CTRL_RX_EXTRA
    | f::CTRL_VLAN
    | f::CTRL_MAC_ADDR
    | f::CTRL_GUEST_OFFLOADS
    | f::MQ
    | f::RSS
    | f::HASH_REPORT
    | f::NOTF_COAL
    | f::VQ_NOTF_COAL
    | f::RSC_EXT
    | f::DEVICE_STATS
    | f::HASH_TUNNEL;

/// Queue pairs that a driver is told of: of a function with its own control queue those that `*NumRSSQueues` allows.
fn pairs(endpoint: &Endpoint) -> u16 {
    let spec = endpoint.spec();
    match spec.control_queue {
        true => spec
            .queue_pairs
            .min(endpoint.settings().offloads.rss_queues.into()),
        false => spec.queue_pairs,
    }
}

/// The control queue among the rings of a driver with these features (virtio 1.3 section 5.1.2): behind all pairs, or behind the first.
fn control_ring(endpoint: &Endpoint, features: u64) -> Option<usize> {
    let spec = endpoint.spec();
    let pairs = match features & (f::MQ | f::RSS) {
        0 => 1,
        _ => usize::from(pairs(endpoint)),
    };
    (spec.control_queue && features & f::CTRL_VQ != 0).then_some(2 * pairs)
}

/// The Ethernet function of a connection.
#[derive(Default)]
pub struct Ethernet {
    /// Whether each ring runs.
    running: Vec<bool>,
}

impl Ethernet {
    /// Starts the control queue.
    fn start_control(&mut self, setup: &Setup, i: usize) -> std::result::Result<(), Fault> {
        let (r, spec) = (&setup.rings[i], setup.endpoint.spec());
        let own = || [&spec.macs[..], &setup.endpoint.settings().macs].concat();
        setup.endpoint.start_control(ControlStart {
            index: i as u16,
            ring: setup.virtqueue(i)?,
            kick: r.kick.clone(),
            call: r.call.clone(),
            features: setup.features,
            pairs: pairs(&setup.endpoint),
            mac: spec.macs.first().copied().unwrap_or(MacAddr([0; 6])),
            tunnels: setup.endpoint.settings().offloads.tunnels.tunnels().types,
            addresses: spec.anti_spoofing.then(own),
            announcing: setup.endpoint.announcing.clone(),
        });
        self.running.resize(setup.rings.len(), false);
        self.running[i] = true;
        Ok(())
    }

    /// Whether a ring is the control queue.
    fn is_control(setup: &Setup, i: usize) -> bool {
        control_ring(&setup.endpoint, setup.features) == Some(i)
    }

    /// Whether a ring of frames runs.
    fn any_runs(&self, setup: &Setup) -> bool {
        let rings = self.running.iter().enumerate();
        rings
            .filter(|(_, runs)| **runs)
            .any(|(i, _)| !Self::is_control(setup, i))
    }

    fn run_or_stop(&mut self, setup: &mut Setup, i: usize) {
        let wanted = setup.is_ready(i) && setup.rings[i].addresses.is_some() && setup.has_memory();
        if !wanted {
            self.stop(setup, i);
        } else if !self.runs(i)
            && let Err(fault) = self.start(setup, i)
        {
            let (ring, what) = (i as u16, fault.to_string());
            setup.endpoint.event(NicEventKind::RingFault { ring, what });
        }
    }

    fn runs(&self, i: usize) -> bool {
        self.running.get(i) == Some(&true)
    }

    fn start(&mut self, setup: &Setup, i: usize) -> std::result::Result<(), Fault> {
        if Self::is_control(setup, i) {
            return self.start_control(setup, i);
        }
        if !self.any_runs(setup) && control_ring(&setup.endpoint, setup.features).is_none() {
            setup.endpoint.forget_driver();
        }
        let r = &setup.rings[i];
        let start = RingStart {
            index: i as u16,
            ring: setup.virtqueue(i)?,
            kick: r.kick.clone(),
            call: r.call.clone(),
            hdr_len: if setup.has(f::HASH_REPORT) {
                NetHdr::LEN_HASH
            } else if setup.has(f::VERSION_1 | f::MRG_RXBUF) {
                NetHdr::LEN
            } else {
                NetHdr::LEN_LEGACY
            },
            mergeable: setup.has(f::MRG_RXBUF),
            asks: setup.has(f::CSUM),
            accepts: Accepts::from_features(setup.features),
            mtu: setup.endpoint.spec().mtu,
        };
        if !self.any_runs(setup) {
            setup.endpoint.guest_runs(true);
        }
        self.running.resize(setup.rings.len(), false);
        self.running[i] = true;
        setup.endpoint.start_ring(start);
        Ok(())
    }
}

impl Function for Ethernet {
    // A VMM may add each region once per queue pair.
    const MEMORY_SLOTS: usize = 64;
    const NO_SUCH_RING: &str = "no such ring: the adapter has fewer queue pairs";

    /// An Ethernet function is a guest's; its socket takes one connection at a time.
    fn claim(&mut self, _setup: &mut Setup, _shares: bool) -> Result<()> {
        Ok(())
    }

    fn protocol(endpoint: &Endpoint) -> VhostUserProtocolFeatures {
        let all = VhostUserProtocolFeatures::LOG_SHMFD | VhostUserProtocolFeatures::RARP;
        // A VMM that has the space itself must not be offered another: QEMU complains of it.
        match endpoint.spec().control_queue {
            true => all | VhostUserProtocolFeatures::CONFIG,
            false => all,
        }
    }

    fn rings(endpoint: &Endpoint) -> usize {
        let spec = endpoint.spec();
        2 * usize::from(pairs(endpoint)) + usize::from(spec.control_queue)
    }

    /// A VMM with the control queue counts pairs, one without it virtqueues.
    fn queues(endpoint: &Endpoint) -> u64 {
        match endpoint.spec().control_queue {
            true => Self::rings(endpoint) as u64,
            false => endpoint.spec().queue_pairs.into(),
        }
    }

    fn offered(endpoint: &Endpoint) -> u64 {
        let spec = endpoint.spec();
        let all = match (spec.control_queue, spec.queue_pairs) {
            (true, _) => OFFERED | WITH_CONTROL,
            (false, 1) => OFFERED,
            (false, _) => OFFERED | f::MQ,
        };
        all & !endpoint.settings().offloads.withheld()
    }

    fn stop(&mut self, setup: &mut Setup, i: usize) {
        if self.runs(i) {
            self.running[i] = false;
            let base = match Self::is_control(setup, i) {
                true => setup.endpoint.stop_control(),
                false => setup.endpoint.stop_ring(i as u16),
            };
            if let Some(base) = base {
                setup.rings[i].base = base;
            }
        }
    }

    fn stop_all(&mut self, setup: &mut Setup) {
        for i in 0..setup.rings.len() {
            self.stop(setup, i);
        }
    }

    fn update(&mut self, setup: &mut Setup, ring: Option<usize>) {
        let all = ring.map_or(0..setup.rings.len(), |i| i..i + 1);
        for i in all {
            self.run_or_stop(setup, i);
        }
        if !self.any_runs(setup) {
            setup.endpoint.guest_runs(false);
        }
        // Published last, so that the link does not flap while memory changes.
        let pairs = self.running.chunks(2).filter(|pair| **pair == [true; 2]);
        setup.publish(pairs.count() as u16);
    }

    fn remap(&mut self, setup: &mut Setup, change: impl FnOnce(&mut Setup)) {
        self.stop_all(setup);
        change(setup);
        self.update(setup, None);
    }

    fn set_call(&mut self, setup: &Setup, i: usize, call: Option<Arc<Call>>) {
        match self.runs(i) {
            true if Self::is_control(setup, i) => setup.endpoint.set_control_call(call),
            true => setup.endpoint.set_call(i as u16, call),
            false => {}
        }
    }

    fn config(&self, setup: &Setup, offset: usize, size: usize) -> Result<Vec<u8>> {
        let spec = setup.endpoint.spec();
        if !spec.control_queue {
            return Err(Error::InvalidOperation(NOT_OURS));
        }
        let port = setup.endpoint.port();
        let announces = setup.has(f::GUEST_ANNOUNCE) && setup.endpoint.announcing.load(Ordering::Relaxed);
        let config = Config {
            mac: spec.macs.first().copied().unwrap_or(MacAddr([0; 6])),
            status: if port.down { 0 } else { LINK_UP } | if announces { ANNOUNCE } else { 0 },
            pairs: pairs(&setup.endpoint),
            mtu: spec.mtu,
            speed: port.speed.unwrap_or(SPEED_MBPS),
            tunnels: setup.endpoint.settings().offloads.tunnels.tunnels().types,
        };
        part_of_space(&config.emit(), offset, size)
    }

    fn set_config(&mut self, setup: &Setup) -> Result<()> {
        match setup.endpoint.spec().control_queue {
            // A driver with the control queue sets its address there; a write has no effect.
            true => Ok(()),
            false => Err(Error::InvalidOperation(NOT_OURS)),
        }
    }
}
