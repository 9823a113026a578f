//! From the data cores to the control plane: two queues, so that what guests can cause in any number takes no room of what
//! must be heard. A core that finds its queue full drops the news, never waits.

use std::any::Any;

use crossbeam_channel::{Receiver, Sender, bounded, select_biased};
use vnic_engine::dropless::Told;
use vnic_fabric::fault::{Path, Roce, RuleId};
use vnic_fabric::qos::StallNews;
use vnic_fabric::switch::{Claim, PortId};
use vnic_wire::MacAddr;

use crate::ring::Fault;
use crate::types::GidConflict;

/// Signals that may wait: control frames are limited at their uplink, the others are rare.
const SIGNALS: usize = 1024;
/// Other news that may wait.
const EVENTS: usize = 4096;

/// What a data core tells the control plane.
#[derive(Debug)]
pub enum CoreEvent {
    /// A ring was stopped.
    RingFault {
        /// Of this adapter.
        port: PortId,
        /// vhost-user ring index.
        ring: u16,
        /// Why.
        fault: Fault,
    },
    /// A guest used a source address that is not its own.
    Spoof {
        /// This adapter's guest.
        port: PortId,
        /// The address.
        source: MacAddr,
    },
    /// A guest claims what its adapter's `allowed_addresses` do not allow.
    SpoofedAddress {
        /// This adapter's guest.
        port: PortId,
        /// What it claims.
        claim: Claim,
    },
    /// A bug of ours hit this adapter.
    Panic {
        /// The adapter.
        port: PortId,
    },
    /// A bug of ours hit this adapter's RDMA function.
    RdmaPanic {
        /// The adapter.
        port: PortId,
    },
    /// A driver of this adapter's RDMA function broke the contract.
    RdmaFault {
        /// The adapter.
        port: PortId,
        /// How.
        what: String,
    },
    /// The GID table of this adapter changed.
    GidChanged {
        /// The adapter.
        port: PortId,
        /// Which entry.
        index: u16,
        /// The GID, in network order.
        gid: [u8; 16],
        /// It came; otherwise it went.
        added: bool,
    },
    /// This adapter claims a GID that another one claims, too.
    GidConflict {
        /// The adapter.
        port: PortId,
        /// About what.
        conflict: GidConflict,
    },
    /// What a driver of an RDMA function has left: to free it takes longer than a turn of a data core.
    Remains(Box<dyn Any + Send>),
    /// A fault rule did something.
    Fault(Box<FaultReport>),
    /// Dropless mode of an adapter was entered or left.
    Dropless {
        /// The adapter.
        port: PortId,
        /// How.
        told: Told,
    },
    /// Receive path activity monitoring of a port has something to tell.
    Stall {
        /// The port.
        port: PortId,
        /// What.
        news: StallNews,
    },
    /// A traffic class of a port is stalled: too many of its frames waited too long.
    ClassStalled {
        /// The port.
        port: PortId,
        /// The class.
        class: u8,
    },
    /// An uplink's device could not be read: it is gone.
    PortGone {
        /// The uplink.
        port: PortId,
        /// Index of the network interface that it was.
        index: u32,
    },
    /// An uplink received a frame of a slow protocol (IEEE 802.3 annex 57A): for the control plane, never for the switch.
    SlowFrame {
        /// The uplink.
        port: PortId,
        /// The frame.
        frame: Box<[u8]>,
    },
    /// Frames of an active-backup bond go by another member: neighbours want to hear where addresses are.
    BondMoved {
        /// The bond.
        port: PortId,
    },
}

impl CoreEvent {
    /// Must it be heard, however much else there is to tell?
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

/// Injections of a rule on their way to the event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultReport {
    /// The rule.
    pub rule: RuleId,
    /// Its name.
    pub name: String,
    /// The one that is reported, or so many more that are not reported one by one.
    pub what: Reported,
}

/// See [`FaultReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// One frame.
    One {
        /// Its path.
        path: Path,
        /// What the rule did.
        effect: String,
        /// Bytes of the frame.
        len: u32,
        /// What it is, if it is RoCE.
        roce: Option<Roce>,
    },
    /// So many frames.
    More(u64),
}

/// The cores' end.
#[derive(Clone)]
pub struct Reporter {
    signals: Sender<CoreEvent>,
    events: Sender<CoreEvent>,
}

/// The other end. Gives signals before other news, and ends when no core is left.
pub struct News {
    signals: Receiver<CoreEvent>,
    events: Receiver<CoreEvent>,
}

/// Two ends.
pub fn news() -> (Reporter, News) {
    let ((signals, heard), (events, told)) = (bounded(SIGNALS), bounded(EVENTS));
    let news = News {
        signals: heard,
        events: told,
    };
    (Reporter { signals, events }, news)
}

impl Reporter {
    /// Tells the control plane; false when it does not listen.
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
            // It is heard before what waits.
            assert_eq!(format!("{:?}", news.next()), format!("Some({text})"));
        }
        drop(reporter);
        assert_eq!(news.by_ref().count(), EVENTS);
        assert!(news.next().is_none());
    }
}
