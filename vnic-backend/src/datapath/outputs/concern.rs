//! Classification of frames by an adapter's RDMA function.

use std::collections::VecDeque;

use vnic_engine::gids::may_ask;
use vnic_engine::rdma::QpNumber;
use vnic_engine::rdma::steering::LOOKED_AT;
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::frame::OutFrame;
use crate::rdma::AdapterFlows;

/// Frames that may wait for RDMA functions; further ones are lost, as on a wire.
pub const INBOUND_MAX: usize = 1024;
/// Bytes of a frame from which a guest's addresses are learned: DHCP options begin at 282.
pub const LEARN_MAX: usize = 512;

/// A frame that concerns the RDMA function of an adapter.
#[derive(Debug)]
pub enum Inbound {
    /// RoCE, for the function.
    Roce(Box<[u8]>),
    /// A frame for a raw packet queue pair, and when it arrived, where that is known.
    Frame(QpNumber, Option<Instant>, Box<[u8]>),
    /// The front of a frame that the guest has sent and that may contain its addresses.
    Sent(Box<[u8]>),
    /// The front of a frame for the guest that may contain its addresses.
    Received(Box<[u8]>),
    /// The front of a frame that may ask for the Ethernet address of an IP address, for a guest without an Ethernet driver.
    Asked(Box<[u8]>),
}

/// Kind of a frame that concerns an RDMA function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    Roce,
    Dhcp,
}

/// RoCEv1 by its EtherType, RoCEv2 by its UDP port (IBTA annexes A16, A17), DHCP to a client by its UDP port (RFC 2131).
#[inline(always)]
pub(super) fn concerns_rdma(head: &[u8]) -> Option<Concern> {
    let tagged = matches!(head.get(12..14)?, [0x81, 0x00] | [0x88, 0xa8]);
    let at = if tagged { 16 } else { 12 };
    let ports = match head.get(at..at + 2)? {
        [0x89, 0x15] => return Some(Concern::Roce),
        // IPv4 without options, as all RoCE is; the protocol is UDP.
        [0x08, 0x00] if head.get(at + 2) == Some(&0x45) && head.get(at + 11) == Some(&17) => at + 22,
        [0x86, 0xdd] if head.get(at + 8) == Some(&17) => at + 42,
        _ => return None,
    };
    match head.get(ports + 2..ports + 4)? {
        [0x12, 0xb7] => Some(Concern::Roce),
        [0, 68] => Some(Concern::Dhcp),
        _ => None,
    }
}

/// Gives a frame to the adapter's RDMA function if the frame concerns it. True: the guest's Ethernet driver must not get it.
#[inline]
pub(super) fn diverted(
    takes_roce: bool,
    port: PortId,
    f: &OutFrame<'_>,
    inbound: &mut VecDeque<(PortId, Inbound)>,
) -> bool {
    match concerns_rdma(f.head) {
        None => false,
        Some(concern) => divert(concern, takes_roce, port, f, inbound),
    }
}

#[inline(never)]
pub(super) fn divert(
    concern: Concern,
    takes_roce: bool,
    port: PortId,
    f: &OutFrame<'_>,
    inbound: &mut VecDeque<(PortId, Inbound)>,
) -> bool {
    let roce = concern == Concern::Roce;
    if roce && !takes_roce {
        return false;
    }
    let len = if roce { f.len() } else { f.len().min(LEARN_MAX) };
    if inbound.len() < INBOUND_MAX {
        let mut bytes = vec![0; len].into_boxed_slice();
        f.peek(&mut bytes);
        let what = if roce {
            Inbound::Roce(bytes)
        } else {
            Inbound::Received(bytes)
        };
        inbound.push_back((port, what));
    }
    roce
}

/// Gives the adapter's RDMA function a frame that may ask for an address of it. False: the frame asks for nothing.
#[cold]
pub(super) fn asked(port: PortId, f: &OutFrame<'_>, inbound: &mut VecDeque<(PortId, Inbound)>) -> bool {
    if !may_ask(f.head) {
        return false;
    }
    if inbound.len() < INBOUND_MAX {
        let mut bytes = vec![0; f.len().min(LEARN_MAX)].into_boxed_slice();
        f.peek(&mut bytes);
        inbound.push_back((port, Inbound::Asked(bytes)));
    }
    true
}

/// Gives a frame to the raw packet queue pairs whose flows want it. `None`: the adapter's Ethernet function has the frame, too;
/// otherwise whether there was room for it.
#[cold]
pub(super) fn steered(
    flows: &AdapterFlows,
    port: PortId,
    (f, arrived): (&OutFrame<'_>, Option<Instant>),
    inbound: &mut VecDeque<(PortId, Inbound)>,
) -> Option<Result<(), DropReason>> {
    let mut head = [0; LOOKED_AT];
    let n = f.peek(&mut head);
    let taken = flows.find(&head[..n]);
    let mut room = true;
    for &qp in taken.copies.iter().chain(&taken.by) {
        room = inbound.len() < INBOUND_MAX;
        if room {
            let mut bytes = vec![0; f.len()].into_boxed_slice();
            f.peek(&mut bytes);
            inbound.push_back((port, Inbound::Frame(qp, arrived, bytes)));
        }
    }
    taken.by.map(|_| match room {
        true => Ok(()),
        false => Err(DropReason::NoRxBuffer),
    })
}

/// Whether a flow wants a frame with this head.
#[cold]
pub(super) fn wanted(flows: &AdapterFlows, head: &[u8]) -> bool {
    !flows.find(head).is_nobody()
}

/// Whether the frame is RoCE.
pub fn is_roce(head: &[u8]) -> bool {
    concerns_rdma(head) == Some(Concern::Roce)
}
