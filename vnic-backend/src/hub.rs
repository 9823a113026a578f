//! Distribution of events to subscribers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::types::{NicEvent, NicEventKind};

/// Events by which a subscriber may lag.
const BACKLOG: usize = 4096;
/// Events of guests among them.
const OF_GUESTS: usize = BACKLOG / 2;

/// Gives events to all subscribers, and disconnects those that do not read. Events that guests cause in any number are left
/// out if they would fill more than their part: they disconnect no subscriber.
#[derive(Clone, Default)]
pub struct EventHub {
    subscribers: Arc<Mutex<Vec<Sender<NicEvent>>>>,
    left_out: Arc<AtomicU64>,
}

/// Whether a guest or its VMM can cause the event as often as it likes, and no subscriber's state of the NIC depends on it.
fn of_guests(kind: &NicEventKind) -> bool {
    matches!(
        kind,
        NicEventKind::GidChanged { .. }
            | NicEventKind::GuestMoved { .. }
            | NicEventKind::GidConflict(_)
            | NicEventKind::RdmaFault { .. }
            | NicEventKind::RdmaGaveUp(_)
            | NicEventKind::BadPkey(_)
            | NicEventKind::RdmaConnections(_)
            | NicEventKind::RingFault { .. }
            | NicEventKind::SpoofedSource { .. }
            | NicEventKind::MagicPacket { .. }
            | NicEventKind::WakePattern { .. }
            | NicEventKind::SpoofedAddress(_)
            | NicEventKind::ProtocolError { .. }
            | NicEventKind::VmmRefused { .. }
            | NicEventKind::VmmUnused { .. }
            | NicEventKind::LoopSuspected { .. }
            | NicEventKind::Fault(_)
            | NicEventKind::VerbsFaultHit { .. }
    )
}

impl EventHub {
    /// Events from now on.
    pub fn subscribe(&self) -> Receiver<NicEvent> {
        let (tx, rx) = bounded(BACKLOG);
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(tx);
        rx
    }

    /// Gives an event to all subscribers.
    pub fn publish(&self, owner: &str, kind: NicEventKind) {
        let event = NicEvent {
            time: SystemTime::now(),
            owner: owner.into(),
            kind,
        };
        let mut all = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|s| {
            if s.len() >= OF_GUESTS && of_guests(&event.kind) {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            s.try_send(event.clone()).is_ok()
        });
    }

    /// How often an event was left out for a subscriber.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Ends all subscriptions.
    pub fn close(&self) {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_guests_cause_ends_no_subscription_and_hides_nothing_else() {
        let hub = EventHub::default();
        let news = hub.subscribe();
        let fault = || NicEventKind::RdmaFault { what: "x".into() };
        for _ in 0..3 * BACKLOG {
            hub.publish("loud", fault());
        }
        hub.publish("p0", NicEventKind::PortLink { up: false });
        assert_eq!(hub.left_out(), (3 * BACKLOG - OF_GUESTS) as u64);
        let heard: Vec<_> = news.try_iter().collect();
        assert_eq!(heard.len(), OF_GUESTS + 1);
        assert_eq!(heard[OF_GUESTS].owner, "p0");
        // A subscriber that has read gets all events again.
        hub.publish("loud", fault());
        assert_eq!(news.try_iter().count(), 1);
        // A subscriber that does not read at all misses important events, and is disconnected.
        for _ in 0..=BACKLOG {
            hub.publish("p0", NicEventKind::PortLink { up: true });
        }
        assert_eq!(news.iter().count(), BACKLOG);
    }
}
