//! The Ethernet function: each ring runs as soon as it can.
//!
//! Errors that only the guest behind a VMM can make (ring sizes, addresses, contents) stop that ring and nothing else.

use std::sync::Arc;

use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Error, Result};
use vnic_engine::offload::Accepts;
use vnic_engine::virtio_net::{NetHdr, feature as f};

use super::connection::{Function, Setup};
use super::endpoint::Endpoint;
use crate::call::Call;
use crate::datapath::RingStart;
use crate::ring::Fault;
use crate::types::NicEventKind;

/// Features that the device offers. STATUS, MAC and the control queue are the VMM's; a guest without a VMM in between
/// (User-Mode-Linux) works without them. GUEST_ANNOUNCE needs both: see `Setup::offered`.
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

/// The Ethernet function of a connection.
#[derive(Default)]
pub struct Ethernet {
    /// Whether each ring runs.
    running: Vec<bool>,
}

impl Ethernet {
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
        let r = &setup.rings[i];
        let start = RingStart {
            index: i as u16,
            ring: setup.split_ring(i)?,
            kick: r.kick.clone(),
            call: r.call.clone(),
            hdr_len: if setup.has(f::VERSION_1 | f::MRG_RXBUF) {
                NetHdr::LEN
            } else {
                NetHdr::LEN_LEGACY
            },
            mergeable: setup.has(f::MRG_RXBUF),
            asks: setup.has(f::CSUM),
            accepts: Accepts::from_features(setup.features),
            mtu: setup.endpoint.spec().mtu,
        };
        if !self.running.contains(&true) {
            setup.endpoint.guest_runs(true);
        }
        self.running.resize(setup.rings.len(), false);
        self.running[i] = true;
        setup.endpoint.start_ring(start);
        Ok(())
    }
}

impl Function for Ethernet {
    const PROTOCOL: VhostUserProtocolFeatures =
        VhostUserProtocolFeatures::LOG_SHMFD.union(VhostUserProtocolFeatures::RARP);
    // A VMM may add each region once per queue pair.
    const MEMORY_SLOTS: usize = 64;
    const NO_SUCH_RING: &str = "no such ring: the adapter has fewer queue pairs";

    /// An Ethernet function is a guest's; its socket takes one connection at a time.
    fn claim(&mut self, _setup: &mut Setup, _shares: bool) -> Result<()> {
        Ok(())
    }

    fn rings(endpoint: &Endpoint) -> usize {
        2 * usize::from(endpoint.spec().queue_pairs)
    }

    fn queues(endpoint: &Endpoint) -> u64 {
        endpoint.spec().queue_pairs.into()
    }

    fn offered(endpoint: &Endpoint) -> u64 {
        if endpoint.spec().queue_pairs > 1 {
            OFFERED | f::MQ
        } else {
            OFFERED
        }
    }

    fn stop(&mut self, setup: &mut Setup, i: usize) {
        if self.runs(i) {
            self.running[i] = false;
            if let Some(base) = setup.endpoint.stop_ring(i as u16) {
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
        if !self.running.contains(&true) {
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
        if self.runs(i) {
            setup.endpoint.set_call(i as u16, call);
        }
    }

    fn config(&self, _setup: &Setup, _offset: usize, _size: usize) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation("the configuration space is the VMM's"))
    }

    fn set_config(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("the configuration space is the VMM's"))
    }
}
