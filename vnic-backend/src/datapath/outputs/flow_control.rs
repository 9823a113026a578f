//! Flow control on the wire: pause frames that an uplink sends and obeys.
//!
//! ```text
//!  wire ─▶ MAC control? ─ yes ─▶ PauseRx ─▶ closed priorities of the uplink's queues
//!              │ no: switch
//!              ▼
//!  wire ◀─ PauseTx ◀─ Pauses: pause states that receivers of all cores signal to the uplink
//!              ▲
//!              └───── a frame of this wire waits for a receive buffer (dropless mode): no further one is read
//! ```

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::Instant;
use vnic_fabric::qos::{PauseRx, PauseSettings, PauseTx};
use vnic_wire::pause::DESTINATION;
use vnic_wire::{EtherType, MacAddr};

use super::super::counters::LinkCounters;
use super::super::qos::PauseSpans;

/// Flow control of an uplink.
pub struct Link {
    pub(super) rx: PauseRx,
    pub(super) tx: PauseTx,
    pub(super) mac: MacAddr,
    /// Settings that act, by priority and by code point.
    pub(super) pause: (PauseSettings, PauseSettings),
    /// Priorities that the peer has paused, a bit each.
    pub(super) stopped: u8,
    /// Priorities that the peer is told to pause, a bit each.
    pub(super) pausing: u8,
    /// Priority of a frame from the wire that waits for its receiver, a bit.
    pub(super) held: u8,
    waits: PauseSpans,
    tells: PauseSpans,
}

impl Link {
    /// No priority is paused; `mac` is the source of pause frames.
    pub fn new(mac: MacAddr) -> Link {
        Link {
            rx: PauseRx::default(),
            tx: PauseTx::default(),
            mac,
            pause: Default::default(),
            stopped: 0,
            pausing: 0,
            held: 0,
            waits: PauseSpans::default(),
            tells: PauseSpans::default(),
        }
    }

    /// Priorities that the peer has paused, a bit each.
    pub fn paused(&self) -> u8 {
        self.stopped
    }

    /// Priorities that the peer is told to pause, a bit each.
    pub fn pausing(&self) -> u8 {
        self.pausing
    }

    /// Whether the link has to be served each round.
    pub(super) fn is_busy(&self) -> bool {
        self.stopped | self.pausing != 0 || self.next_time().is_some()
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        let times = [self.rx.next_time(), self.tx.next_time()];
        times.into_iter().flatten().min()
    }

    pub(super) fn count_waits(&mut self, now: Instant, mask: u8, pfc: u8, link: &LinkCounters) {
        self.waits.set(now, mask, |p, us, end| match pfc {
            0 if p == 0 => {
                link.link.add(L::RxPauseUs as usize, us);
                link.link.add(L::RxPauseTransitions as usize, end.into());
            }
            0 => {}
            _ => {
                link.priorities[p].add(P::RxPauseUs as usize, us);
                link.priorities[p].add(P::RxPauseTransitions as usize, end.into());
            }
        });
    }

    pub(super) fn count_tells(&mut self, now: Instant, mask: u8, pfc: u8, link: &LinkCounters) {
        self.tells.set(now, mask, |p, us, _| match pfc {
            0 if p == 0 => link.link.add(L::TxPauseUs as usize, us),
            0 => {}
            _ => link.priorities[p].add(P::TxPauseUs as usize, us),
        });
    }
}

/// Whether the frame is MAC control: by its destination, which no bridge forwards, or by its EtherType (IEEE 802.3 clause
/// 31).
#[inline]
pub fn is_control(head: &[u8]) -> bool {
    head.starts_with(&DESTINATION.0) || head.get(12..14) == Some(&EtherType::MAC_CONTROL.0.to_be_bytes())
}
