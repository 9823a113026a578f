//! OIDs of NDIS: queries and sets of an adapter.

use vnic_backend::counters::Scope;
use vnic_backend::oid::{self, Act, Answer, Facts, Link, Statistics};
use vnic_backend::{AdapterStatus, AttachState, DropReason, LINE_RATE_MBPS, NicError, Sample};

use super::Control;
use super::refused::Refused;
use crate::events::{ControlEvent, Owner};

/// Vendor description of an adapter.
const DESCRIPTION: &str = "vnic virtual RoCE adapter";
/// Timeout of dropless mode when its OID enables it, in 100 us (WinOF-2 Ethernet Network, Dropless Mode:
/// Enabling/Disabling the Feature).
const DROPLESS_DEFAULT: u8 = 50;

pub struct Oids<'a>(pub &'a Control);

/// The answer to a query.
pub struct Queried {
    /// Answer as a driver would get it.
    pub answer: Answer,
    /// The answer in words; may be empty.
    pub text: String,
}

fn refused(error: NicError) -> Refused {
    Refused::nic(str::to_owned)(error)
}

impl Oids<'_> {
    /// Queries an OID of an adapter with a buffer of `room` bytes. May block.
    pub fn query(&self, adapter: &str, code: u32, room: usize) -> Result<Queried, Refused> {
        let status = self.0.nic.adapter(adapter).map_err(refused)?;
        let dropless = self.0.nic.dropless(adapter).map_err(refused)?;
        let samples = self.0.nic.counters();
        let answer: Answer = oid::query(code, &facts(&status, &samples, dropless.on), room);
        let text = match oid::oid(code) {
            Some(def) if answer.status == oid::Status::SUCCESS => oid::describe(def, &answer.data),
            _ => String::new(),
        };
        Ok(Queried { answer, text })
    }

    /// Sets an OID of an adapter. Returns the number of bytes read, or the failure that NDIS would report. May block.
    pub fn set(
        &self,
        by: &str,
        adapter: &str,
        code: u32,
        data: &[u8],
    ) -> Result<Result<usize, oid::Failure>, Refused> {
        self.0.nic.adapter(adapter).map_err(refused)?;
        match oid::set(code, data) {
            Ok(Act::Dropless(on)) => {
                let timeout = if on { DROPLESS_DEFAULT } else { 0 };
                self.0.nic.set_dropless(adapter, timeout).map_err(refused)?;
                Ok(Ok(data.len()))
            }
            Err(failure) => {
                self.0.hub.record(ControlEvent::SettingsRefused {
                    owner: Owner::Adapter(adapter.to_owned()),
                    store: "oid",
                    what: format!("OID 0x{code:08X}: {}", failure.status),
                    by: by.to_owned(),
                });
                Ok(Err(failure))
            }
        }
    }
}

/// NDIS statistic that counts a dropped frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drop {
    /// Sent with an error.
    OutError,
    /// Sent without an error.
    OutDiscard,
    /// Received with an error.
    InError,
    /// Received without an error.
    InDiscard,
    /// Received without an error, but without a receive buffer.
    NoBuffer,
    /// Not for the driver, which says so: no statistic has it.
    Unwanted,
}

/// Statistic of a drop reason. The reason decides whether the drop counts for the sender or for the receiver;
/// `receiver_down` counts for the sender, because almost always the switch finds it.
const fn drop_of(reason: DropReason) -> Drop {
    match reason {
        DropReason::Runt
        | DropReason::MtuExceeded
        | DropReason::MalformedOffload
        | DropReason::InvalidSource
        | DropReason::SpoofedSource
        | DropReason::SpoofedAddress
        | DropReason::MacControl => Drop::OutError,
        DropReason::VlanNotAllowed
        | DropReason::Hairpin
        | DropReason::OwnAddress
        | DropReason::NoDestination
        | DropReason::ReceiverDown
        | DropReason::CoreExchangeFull
        | DropReason::MirrorDestination
        | DropReason::AccessList
        | DropReason::SendQueueFull => Drop::OutDiscard,
        DropReason::ReceiverMtu => Drop::InError,
        DropReason::NoRxBuffer => Drop::NoBuffer,
        DropReason::Filtered => Drop::Unwanted,
        DropReason::RxBufferTooSmall
        | DropReason::RxRingBroken
        | DropReason::PortTransmit
        | DropReason::FaultInjected
        | DropReason::EgressFull
        | DropReason::LosslessOverflow
        | DropReason::HeadOfQueue
        | DropReason::ClassStalled
        | DropReason::CongestionHint
        | DropReason::Wred
        | DropReason::PortReceive
        | DropReason::BondInactive
        | DropReason::StormControl => Drop::InDiscard,
    }
}

/// Statistics of an adapter and its RDMA function, which NDIS counts together.
fn statistics(samples: &[Sample], adapter: &str) -> Statistics {
    let own = |scope: Scope| {
        samples
            .iter()
            .filter(move |s| s.owner == adapter && s.def.scope == scope)
    };
    let total = |scope: Scope, name: &str| -> Option<u64> {
        let values = own(scope).filter(|s| s.def.name == name).map(|s| s.value);
        values.fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    };
    let ethernet = |name: &str| total(Scope::AdapterQueue, name);
    // An adapter without an RDMA function has no such counters.
    let rdma = |name: &str| total(Scope::Rdma, name).unwrap_or(0);
    let dropped = |what: &[Drop]| -> u64 {
        let reasons = DropReason::ALL
            .into_iter()
            .filter(|r| what.contains(&drop_of(*r)));
        let names: Vec<&str> = reasons.map(DropReason::name).collect();
        let matching = own(Scope::AdapterDrop).filter(|s| s.reason.is_some_and(|r| names.contains(&r)));
        matching.map(|s| s.value).sum()
    };
    // Counters of the data path: all frames, of these the ones to groups, and of these the broadcasts. They are read one
    // after the other, so that a part may be ahead of the whole.
    let direction = |way: &str, what: &str, rdma_what: &str| {
        let suffix = if what == "bytes" { "_bytes" } else { "" };
        let all = ethernet(&format!("{way}_{what}"));
        let group = ethernet(&format!("{way}_multicast{suffix}"));
        let broadcast = ethernet(&format!("{way}_broadcast{suffix}"));
        let unicast_rdma = rdma(&format!("{way}_vport_rdma_unicast_{rdma_what}"));
        let multicast_rdma = rdma(&format!("{way}_vport_rdma_multicast_{rdma_what}"));
        let unicast = all
            .zip(group)
            .map(|(all, group)| all.saturating_sub(group) + unicast_rdma);
        let multicast = group
            .zip(broadcast)
            .map(|(group, broadcast)| group.saturating_sub(broadcast) + multicast_rdma);
        (
            all.map(|all| all + unicast_rdma + multicast_rdma),
            unicast,
            multicast,
            broadcast,
        )
    };
    let (_, in_ucast_pkts, in_multicast_pkts, in_broadcast_pkts) = direction("rx", "frames", "packets");
    let (_, out_ucast_pkts, out_multicast_pkts, out_broadcast_pkts) = direction("tx", "frames", "packets");
    let (in_octets, in_ucast_octets, in_multicast_octets, in_broadcast_octets) =
        direction("rx", "bytes", "bytes");
    let (out_octets, out_ucast_octets, out_multicast_octets, out_broadcast_octets) =
        direction("tx", "bytes", "bytes");
    Statistics {
        in_discards: Some(dropped(&[Drop::InDiscard, Drop::NoBuffer])),
        in_errors: Some(dropped(&[Drop::InError])),
        in_octets,
        in_ucast_pkts,
        in_multicast_pkts,
        in_broadcast_pkts,
        out_octets,
        out_ucast_pkts,
        out_multicast_pkts,
        out_broadcast_pkts,
        out_errors: Some(dropped(&[Drop::OutError])),
        out_discards: Some(dropped(&[Drop::OutDiscard])),
        in_ucast_octets,
        in_multicast_octets,
        in_broadcast_octets,
        out_ucast_octets,
        out_multicast_octets,
        out_broadcast_octets,
        no_buffer: dropped(&[Drop::NoBuffer]),
    }
}

/// Major and minor number of a version.
fn version(text: &str) -> (u16, u16) {
    let mut numbers = text.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn facts(adapter: &AdapterStatus, samples: &[Sample], dropless: bool) -> Facts<'static> {
    Facts {
        address: adapter.spec.macs.first().copied().unwrap_or_default(),
        mtu: adapter.spec.mtu,
        link: Link {
            up: adapter.state == AttachState::Up,
            speed: u64::from(LINE_RATE_MBPS) * 1_000_000,
        },
        failed: adapter.state == AttachState::Failed,
        description: DESCRIPTION,
        version: version(crate::VERSION),
        dropless,
        statistics: statistics(samples, &adapter.spec.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::counters;

    fn sample(scope: Scope, name: &str, reason: Option<&'static str>, value: u64) -> Sample {
        let mut rows = counters::all().filter(|def| def.scope == scope && def.name == name);
        Sample {
            def: rows
                .next()
                .unwrap_or_else(|| panic!("there is no counter {name}")),
            owner: "vf0".to_owned(),
            queue: None,
            priority: None,
            reason,
            value,
        }
    }

    #[test]
    fn statistics_add_up() {
        let mut samples = Vec::new();
        // The numbers below are counted twice: there are two queues.
        for _ in 0..2 {
            for (name, value) in [
                ("rx_frames", 1000),
                ("rx_multicast", 300),
                ("rx_broadcast", 100),
                ("rx_bytes", 10_000),
                ("rx_multicast_bytes", 3_000),
                ("rx_broadcast_bytes", 1_000),
                ("tx_frames", 500),
                ("tx_multicast", 50),
                ("tx_broadcast", 20),
                ("tx_bytes", 5_000),
                ("tx_multicast_bytes", 500),
                ("tx_broadcast_bytes", 200),
            ] {
                samples.push(sample(Scope::AdapterQueue, name, None, value));
            }
        }
        for (name, value) in [
            ("rx_vport_rdma_unicast_packets", 7),
            ("rx_vport_rdma_unicast_bytes", 70),
            ("rx_vport_rdma_multicast_packets", 3),
            ("rx_vport_rdma_multicast_bytes", 30),
            ("tx_vport_rdma_unicast_packets", 9),
            ("tx_vport_rdma_unicast_bytes", 90),
            ("tx_vport_rdma_multicast_packets", 1),
            ("tx_vport_rdma_multicast_bytes", 10),
        ] {
            samples.push(sample(Scope::Rdma, name, None, value));
        }
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            samples.push(sample(Scope::AdapterDrop, "drops", Some(reason.name()), 1 << i));
        }
        let mut other = sample(Scope::AdapterQueue, "rx_frames", None, 1_000_000);
        other.owner = "vf1".to_owned();
        samples.push(other);
        let got = statistics(&samples, "vf0");
        assert_eq!(
            (got.in_ucast_pkts, got.in_multicast_pkts, got.in_broadcast_pkts),
            (Some(1400 + 7), Some(400 + 3), Some(200))
        );
        assert_eq!(
            (
                got.in_octets,
                got.in_ucast_octets,
                got.in_multicast_octets,
                got.in_broadcast_octets
            ),
            (Some(20_100), Some(14_070), Some(4_030), Some(2_000))
        );
        assert_eq!(
            (got.out_ucast_pkts, got.out_multicast_pkts, got.out_broadcast_pkts),
            (Some(900 + 9), Some(60 + 1), Some(40))
        );
        assert_eq!(
            (
                got.out_octets,
                got.out_ucast_octets,
                got.out_multicast_octets,
                got.out_broadcast_octets
            ),
            (Some(10_100), Some(9_090), Some(610), Some(400))
        );
        let dropped = [got.in_errors, got.in_discards, got.out_errors, got.out_discards];
        // Each reason counts in exactly one statistic, but what a guest's driver does not want in none.
        assert_eq!(
            dropped.into_iter().flatten().sum::<u64>(),
            (1 << DropReason::ALL.len()) - 1 - (1 << DropReason::Filtered as usize)
        );
        assert_eq!(got.no_buffer, 1 << DropReason::NoRxBuffer as usize);
        assert_eq!(statistics(&[], "vf0").in_octets, None);
    }

    #[test]
    fn versions_are_taken_apart() {
        assert_eq!(version("3.12.1"), (3, 12));
        assert_eq!(version("0.1.0-rc"), (0, 1));
        assert_eq!(version(""), (0, 0));
    }
}
