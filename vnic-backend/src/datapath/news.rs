//! Events from the data cores to the control plane, in two queues, so that events that guests can cause in any number take no
//! room of those that must be heard. A core whose queue is full drops the event and never waits.

use std::any::Any;

use crossbeam_channel::{Receiver, Sender, bounded, select_biased};
use vnic_engine::congestion::Faults;
use vnic_engine::dropless::ModeChange;
use vnic_engine::rdma::{PkeyViolation, Place, Question};
use vnic_fabric::fault::{Path, Roce, RuleId};
use vnic_fabric::qos::StallNews;
use vnic_fabric::switch::{Claim, Loop, PortId};
use vnic_wire::MacAddr;

use crate::ring::Fault;
use crate::types::{ConnectionReport, GidConflict, RdmaGaveUp};

/// Largest number of waiting signals: control frames are limited at their uplink, the others are rare.
const SIGNALS: usize = 1024;
/// Largest number of other waiting events.
const EVENTS: usize = 4096;

/// An event that a data core reports to the control plane.
#[derive(Debug)]
pub enum CoreEvent {
    /// A ring was stopped.
    RingFault {
        /// The adapter.
        port: PortId,
        /// vhost-user ring index.
        ring: u16,
        /// Reason of the stop.
        fault: Fault,
    },
    /// A guest used a source address that is not its own.
    Spoof {
        /// The guest's adapter.
        port: PortId,
        /// The address.
        source: MacAddr,
    },
    /// A magic packet, or a frame with a pattern, came for an adapter whose guest does not run.
    Wake {
        /// The adapter.
        port: PortId,
        /// The station that sent it.
        source: MacAddr,
        /// The adapter or uplink by which it came.
        by: PortId,
        /// The pattern, by its number; `None`: it is a magic packet.
        pattern: Option<usize>,
    },
    /// A guest claims an address that its adapter's `allowed_addresses` do not contain.
    SpoofedAddress {
        /// The guest's adapter.
        port: PortId,
        /// The claim.
        claim: Claim,
    },
    /// A bug of the daemon ended this adapter's work.
    Panic {
        /// The adapter.
        port: PortId,
    },
    /// A bug of the daemon ended the work of this adapter's RDMA function.
    RdmaPanic {
        /// The adapter.
        port: PortId,
    },
    /// A rule for verbs hit something of this adapter for the first time.
    VerbsFaultHit {
        /// The adapter.
        port: PortId,
        /// Number of the rule.
        id: u32,
        /// Name of the rule.
        name: String,
    },
    /// A driver of this adapter's RDMA function violated the device's specification.
    RdmaFault {
        /// The adapter.
        port: PortId,
        /// The violation.
        what: String,
    },
    /// Requests of this adapter's RDMA function were given up.
    RdmaGaveUp {
        /// The adapter.
        port: PortId,
        /// The requests, and the adapter's drops.
        report: RdmaGaveUp,
    },
    /// The program of congestion control of this adapter's RDMA function has failed.
    ProgramFault {
        /// The adapter.
        port: PortId,
        /// The failures.
        faults: Faults,
    },
    /// Connections of this adapter's RDMA function have begun or ended.
    RdmaConnections {
        /// The adapter.
        port: PortId,
        /// What has become of them.
        report: ConnectionReport,
    },
    /// The GID table of this adapter changed.
    GidChanged {
        /// The adapter.
        port: PortId,
        /// Index of the entry.
        index: u16,
        /// The GID, in network order.
        gid: [u8; 16],
        /// Whether the GID was added; otherwise it was removed.
        added: bool,
    },
    /// This adapter claims a GID that another one claims, too.
    GidConflict {
        /// The adapter.
        port: PortId,
        /// The conflict.
        conflict: GidConflict,
    },
    /// Packets came for this adapter's RDMA function with a P_Key that was not that of their queue pair.
    BadPkey {
        /// The adapter.
        port: PortId,
        /// The packets.
        violation: PkeyViolation,
    },
    /// A driver of this adapter's RDMA function asks subnet administration.
    SubnetQuestion {
        /// The adapter.
        port: PortId,
        /// The driver's place at the function.
        place: Place,
        /// The question.
        question: Question,
        /// VLAN of the switch in which it was asked; `None`: none of the adapter's.
        vlan: Option<u16>,
    },
    /// Objects that a driver of an RDMA function has left: to free them takes longer than a turn of a data core.
    Remains(Box<dyn Any + Send>),
    /// A fault rule acted.
    Fault(Box<FaultReport>),
    /// Dropless mode of an adapter was entered or left.
    Dropless {
        /// The adapter.
        port: PortId,
        /// The change.
        told: ModeChange,
    },
    /// Receive path activity monitoring of a port reports something.
    Stall {
        /// The port.
        port: PortId,
        /// The report.
        news: StallNews,
    },
    /// A traffic class of a port is stalled: too many of its frames waited too long.
    ClassStalled {
        /// The port.
        port: PortId,
        /// The class.
        class: u8,
    },
    /// Addresses move between two ports again and again.
    Loop(Loop),
    /// An uplink's device is gone: it could not be read.
    PortGone {
        /// The uplink.
        port: PortId,
        /// Index of the lost network interface.
        index: u32,
    },
    /// An uplink received a frame of a slow protocol (IEEE 802.3 annex 57A), or of link layer discovery: for the control plane, never
    /// for the switch.
    SlowFrame {
        /// The uplink.
        port: PortId,
        /// The frame.
        frame: Box<[u8]>,
    },
    /// An active-backup bond moved to another member: neighbours have to learn the new place of addresses.
    BondMoved {
        /// The bond.
        port: PortId,
    },
}

impl CoreEvent {
    /// Whether the event must be heard, however many others there are.
    pub fn is_signal(&self) -> bool {
        matches!(
            self,
            CoreEvent::Panic { .. }
                | CoreEvent::RdmaPanic { .. }
                | CoreEvent::PortGone { .. }
                | CoreEvent::SlowFrame { .. }
                | CoreEvent::BondMoved { .. }
        )
    }
}

/// Injections of a fault rule for the event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultReport {
    /// The rule.
    pub rule: RuleId,
    /// Name of the rule.
    pub name: String,
    /// One injection, or the number of those that are not reported one by one.
    pub what: Reported,
}

/// Injections of a [`FaultReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// One frame.
    One {
        /// Path of the frame.
        path: Path,
        /// Effect of the rule.
        effect: String,
        /// Bytes of the frame.
        len: u32,
        /// RoCE headers, if the frame is RoCE.
        roce: Option<Roce>,
    },
    /// Number of frames.
    More(u64),
}

/// The cores' end of the queues.
#[derive(Clone)]
pub struct Reporter {
    signals: Sender<CoreEvent>,
    events: Sender<CoreEvent>,
}

/// The control plane's end of the queues. It gives signals first, and ends when no core is left.
pub struct News {
    signals: Receiver<CoreEvent>,
    events: Receiver<CoreEvent>,
}

/// Both ends of the queues.
pub fn news() -> (Reporter, News) {
    let ((signals, heard), (events, told)) = (bounded(SIGNALS), bounded(EVENTS));
    let news = News {
        signals: heard,
        events: told,
    };
    (Reporter { signals, events }, news)
}

impl Reporter {
    /// Reports an event to the control plane. False: its queue is full.
    pub fn report(&self, event: CoreEvent) -> bool {
        let queue = if event.is_signal() {
            &self.signals
        } else {
            &self.events
        };
        queue.try_send(event).is_ok()
    }
}

impl Iterator for News {
    type Item = CoreEvent;

    fn next(&mut self) -> Option<CoreEvent> {
        select_biased! {
            recv(self.signals) -> event => event.ok().or_else(|| self.events.recv().ok()),
            recv(self.events) -> event => event.ok().or_else(|| self.signals.recv().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_fabric::switch::PortId;
    use vnic_wire::MacAddr;

    #[test]
    fn what_guests_cause_takes_no_room_of_signals() {
        let (reporter, mut news) = news();
        let spoof = || CoreEvent::Spoof {
            port: PortId(1),
            source: MacAddr([2; 6]),
        };
        while reporter.report(spoof()) {}
        let port = PortId(2);
        let frame = Box::default();
        for signal in [
            CoreEvent::Panic { port },
            CoreEvent::RdmaPanic { port },
            CoreEvent::PortGone { port, index: 7 },
            CoreEvent::SlowFrame { port, frame },
            CoreEvent::BondMoved { port },
        ] {
            let text = format!("{signal:?}");
            assert!(reporter.report(signal), "{text} is lost");
            // The signal is heard before the waiting events.
            assert_eq!(format!("{:?}", news.next()), format!("Some({text})"));
        }
        drop(reporter);
        assert_eq!(news.by_ref().count(), EVENTS);
        assert!(news.next().is_none());
    }
}
