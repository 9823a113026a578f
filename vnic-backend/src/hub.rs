//! News for whoever subscribed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::types::{NicEvent, NicEventKind};

/// Events a subscriber may be behind.
const BACKLOG: usize = 4096;

/// Hands every event to every subscriber; drops subscribers that do not read.
#[derive(Clone, Default)]
pub struct EventHub {
    subscribers: Arc<Mutex<Vec<Sender<NicEvent>>>>,
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

    /// Tells everybody.
    pub fn publish(&self, owner: &str, kind: NicEventKind) {
        let event = NicEvent {
            time: SystemTime::now(),
            owner: owner.into(),
            kind,
        };
        let mut all = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|s| s.try_send(event.clone()).is_ok());
    }

    /// Ends all subscriptions.
    pub fn close(&self) {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
