//! `modify`: how a QP gets its attributes and its states (IBTA 10.3.1, 11.2.5.2), and the way to its peer.

use vnic_wire::EtherType;
use vnic_wire::ethernet;
use vnic_wire::roce::{Network, Path};
use vnic_wire::time::Instant;
use vnic_wire::vlan::{self, Tci};

use super::super::attributes::check_values;
use super::super::gid::GidKind;
use super::super::marks::Mark;
use super::super::shared::Shared;
use super::super::types::{
    AddressVector, AttributeMask, QpAttributes, QpNumber, QpState, QpType, RateLimit, SOURCE_PORT_FIRST,
    VerbsError,
};
use super::{Qp, dynamic, state};

/// Bits in which they differ.
const SOURCE_PORT_BITS: u32 = 14;

/// UDP source port of a connection between two ports of a connection manager (seed WinOF-2: source XOR destination, OR
/// 0xC000). All packets of a connection take one way through the network, and connections spread.
pub const fn udp_source_port(source: u16, destination: u16) -> u16 {
    (source ^ destination) | SOURCE_PORT_FIRST
}

/// Flow label between two numbers of queue pairs, or two ports: their product, folded to 20 bits, as Linux's drivers make it
/// (`rdma_calc_flow_label`). Both ends have the same.
pub const fn flow_label(one: u32, other: u32) -> u32 {
    let product = one as u64 * other as u64;
    let folded = product ^ product >> 20;
    ((folded ^ folded >> 40) & 0xf_ffff) as u32
}

/// UDP source port of a flow label: its upper bits are folded into the lower ones (`rdma_flow_label_to_udp_sport` of Linux).
pub const fn flow_label_port(label: u32) -> u16 {
    ((label ^ label >> SOURCE_PORT_BITS) as u16) | SOURCE_PORT_FIRST
}

/// UDP source port that the program decides about: one was set, or the address has a flow label; or the operator has pinned it.
fn chosen_port(shared: &Shared, attributes: &QpAttributes, label: u32) -> Option<u16> {
    if shared.pin_source_port {
        return Some(SOURCE_PORT_FIRST);
    }
    let of_label = || (label != 0).then(|| flow_label_port(label));
    attributes.udp_source_port.or_else(of_label)
}

/// UDP source port of a QP that nobody has chosen one for: it comes from the QP's own number. Not from both ends' numbers:
/// two hosts that make as many QPs in a row give them numbers that go in parallel, and what is then the same of all pairs
/// (their XOR, say) would send all of them one way; of products of low numbers the second bit is the same. Numbers in a row give
/// ports in a row, which policies such as Linux's layer3+4 spread as evenly as can be.
fn own_port(from: QpNumber) -> u16 {
    (from.0 ^ from.0 >> SOURCE_PORT_BITS) as u16 | SOURCE_PORT_FIRST
}

/// UDP source port of a connected QP.
fn source_port(shared: &Shared, attributes: &QpAttributes, from: QpNumber) -> u16 {
    let label = attributes.address.as_ref().map_or(0, |a| a.flow_label);
    chosen_port(shared, attributes, label).unwrap_or_else(|| own_port(from))
}

/// The same for a datagram: those of a QP to many others spread, too.
pub(super) fn datagram_port(
    shared: &Shared,
    attributes: &QpAttributes,
    from: QpNumber,
    to: QpNumber,
    label: u32,
) -> u16 {
    // The multiplier is Knuth's (TAOCP 3, 6.4), the high bits are the good ones.
    let spread = || own_port(from) ^ (to.0.wrapping_mul(0x9e37_79b1) >> 16) as u16 | SOURCE_PORT_FIRST;
    chosen_port(shared, attributes, label).unwrap_or_else(spread)
}

/// The way along an address vector, and the priority of what goes there.
pub(in super::super) fn path(
    shared: &Shared,
    address: &AddressVector,
    source_port: u16,
) -> Result<(Path, u8), VerbsError> {
    path_of(shared, address, source_port, 0)
}

/// The same for a queue pair whose connection is for a port, or (0) for none.
fn path_of(
    shared: &Shared,
    address: &AddressVector,
    source_port: u16,
    service_port: u16,
) -> Result<(Path, u8), VerbsError> {
    let own = shared.gids.get(address.sgid_index)?;
    let mut network = match own.kind {
        GidKind::RoceV1 => Network::v1(own.gid, address.dgid),
        GidKind::RoceV2 => {
            if own.gid.to_ipv4().is_some() != address.dgid.to_ipv4().is_some() {
                return Err(VerbsError::Invalid(
                    "source and destination GID are of different IP versions",
                ));
            }
            Network::v2(own.gid, address.dgid)
        }
    };
    network.set_flow_label(address.flow_label);
    if address.hop_limit > 0 {
        network.set_hop_limit(address.hop_limit);
    }
    let mut path = Path {
        eth: ethernet::Header {
            destination: address.dmac,
            source: own.mac,
            ethertype: EtherType::VLAN,
        },
        vlan: own.vlan.map(|vid| vlan::Header {
            tci: Tci::new(0, false, vid),
            ethertype: EtherType::IPV4,
        }),
        network,
        source_port,
    };
    let priority = shared
        .marking
        .apply(&mut path, address, service_port, shared.congestion.reaction);
    Ok((path, priority))
}

impl Qp {
    /// Sets attributes and goes to another state. Refused as a whole or done as a whole.
    pub fn modify(
        &mut self,
        shared: &mut Shared,
        wanted: &QpAttributes,
        mask: AttributeMask,
        now: Instant,
    ) -> Result<(), VerbsError> {
        let from = self.state();
        let to = if mask.contains(AttributeMask::STATE) {
            wanted.state
        } else {
            from
        };
        if mask.contains(AttributeMask::CURRENT_STATE) && wanted.current_state != from {
            return Err(VerbsError::State(from));
        }
        state::transition(self.init.qp_type, from, to, mask)?;
        let wanted = &self.with_a_peer(wanted, shared);
        check_values(
            wanted,
            mask,
            &shared.limits,
            &shared.gids,
            &shared.partitions.table,
        )?;
        let leaving_sqd = from == QpState::Sqd && to == QpState::Sqd;
        if leaving_sqd && !self.drained() {
            return Err(VerbsError::Invalid("the send queue has not drained yet"));
        }
        let mut next = self.attributes;
        copy(&mut next, wanted, mask);
        next.state = to;
        let (mut way, mut priority) = (self.path, self.priority);
        let connected = self.init.qp_type != QpType::Ud;
        if connected && let Some(address) = &next.address {
            let port = source_port(shared, &next, self.number);
            let (path, its) = path_of(shared, address, port, self.service_port)?;
            (way, priority) = (Some(path), its);
        }
        if mask.contains(AttributeMask::PATH_MTU) && next.path_mtu > shared.mtu {
            return Err(VerbsError::OutOfRange {
                what: "path MTU",
                value: next.path_mtu.bytes().into(),
                min: 256,
                max: shared.mtu.bytes().into(),
            });
        }
        self.attributes = next;
        self.look_up_pkey(shared);
        self.path = way;
        self.set_priority(shared, priority);
        if mask.contains(AttributeMask::RQ_PSN) {
            self.responder.start(next.rq_psn);
        }
        if mask.contains(AttributeMask::SQ_PSN) {
            self.requester.start(next.sq_psn, shared.window);
            if let Some(observed) = &mut shared.observed {
                observed.starts(self.number, self.whereabouts());
            }
        }
        if mask.contains(AttributeMask::TIMEOUT) {
            self.set_ack_timer(shared);
        }
        if mask.contains(AttributeMask::RETRY_COUNT) {
            self.requester.retries_left = next.retry_count;
        }
        if mask.contains(AttributeMask::RNR_RETRY) {
            self.requester.rnr_retries_left = next.rnr_retry;
        }
        self.attributes.state = from;
        self.move_to(shared, to, now);
        Ok(())
    }

    /// Address vectors of the ends of dynamic connections say how they send, and need not say to whom: `mlx5` does not look at the
    /// destination, and here it is the own address then.
    fn with_a_peer(&self, wanted: &QpAttributes, shared: &Shared) -> QpAttributes {
        let mut wanted = *wanted;
        if self.dynamic.is_some()
            && let Some(address) = &mut wanted.address
            && let Ok(own) = shared.gids.get(address.sgid_index)
        {
            (address.dgid, address.dmac) = (own.gid, own.mac);
        }
        wanted
    }

    fn move_to(&mut self, shared: &mut Shared, to: QpState, now: Instant) {
        match to {
            QpState::Reset => {
                if self.requester.queued() > 0 || self.responder.queued() > 0 {
                    shared.marks.hit(Mark::DestroyedBusy);
                }
                self.forget(shared, now);
            }
            QpState::Err => {
                self.responder.silence();
                self.enter(shared, QpState::Err);
            }
            _ => {
                self.enter(shared, to);
                self.begin_flow(shared, now);
                self.check_drained(shared);
                self.schedule(shared);
                self.check_deadlines(shared, now);
            }
        }
    }

    /// Back to as it was created, without completions (IBTA 10.3.1.1).
    fn forget(&mut self, shared: &mut Shared, now: Instant) {
        while self.requester.take(&mut shared.sends, |_| true).is_some() {}
        while self.responder.take_any(shared, &self.init).is_some() {}
        let fresh = Qp::new(self.number, self.init);
        dynamic::end(self, shared);
        self.end_flow(shared);
        self.set_rate(shared, RateLimit::default(), now);
        // What the device knows of this QP stays: its turn, its timers, and what the operator allows it.
        *self = Qp {
            scheduled: self.scheduled,
            timer: self.timer,
            priority: self.priority,
            pace: self.pace.take(),
            dynamic: self.dynamic.take(),
            ..fresh
        };
    }
}

fn copy(to: &mut QpAttributes, from: &QpAttributes, mask: AttributeMask) {
    macro_rules! fields {
        ($($bit:ident $field:ident),* $(,)?) => {$(
            if mask.contains(AttributeMask::$bit) {
                to.$field = from.$field;
            }
        )*};
    }
    fields! {
        PATH_MTU path_mtu, QKEY qkey, RQ_PSN rq_psn, SQ_PSN sq_psn, DESTINATION_QP destination_qp,
        ACCESS access, ADDRESS address, PKEY_INDEX pkey_index, DRAINED_EVENT drained_event,
        MAX_RD_ATOMIC max_rd_atomic, MAX_DEST_RD_ATOMIC max_dest_rd_atomic,
        MIN_RNR_TIMER min_rnr_timer, PORT port, TIMEOUT timeout, RETRY_COUNT retry_count,
        RNR_RETRY rnr_retry, UDP_SOURCE_PORT udp_source_port,
    }
}
