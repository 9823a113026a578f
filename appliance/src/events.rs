//! What happens in the NIC: logged here, kept for a while, and handed on to watchers.

mod control;
pub mod kinds;
mod log;
mod record;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use vnic_backend::{Nic, NicEvent};

pub use control::ControlEvent;
pub use log::{EventLog, Following, KEPT};
pub use record::{Owner, Record, severity};
pub use words::{Level, describe};

/// Events that a watcher may be behind before its stream is ended.
pub const BACKLOG: usize = 4096;

/// What watchers get.
#[derive(Debug, Clone)]
pub enum Notice {
    /// Something happened.
    Event(Arc<NicEvent>),
    /// Events were lost before they came here: whoever keeps a picture must look again.
    Gap,
}

/// Takes events from the NIC, logs them and hands them on.
pub struct EventHub {
    sender: broadcast::Sender<Notice>,
    /// The last events.
    pub log: Arc<EventLog>,
    stop: Arc<AtomicBool>,
}

impl EventHub {
    /// Starts the thread that takes the events.
    pub fn start(nic: Nic) -> std::io::Result<EventHub> {
        let (sender, _) = broadcast::channel(BACKLOG);
        let stop = Arc::new(AtomicBool::new(false));
        let log = Arc::new(EventLog::new());
        let hub = EventHub {
            sender: sender.clone(),
            log: log.clone(),
            stop: stop.clone(),
        };
        let first = nic.subscribe();
        std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || {
                let mut events = first;
                loop {
                    for event in &events {
                        add(&log, Record::of(&event, |name| nic.port(name).is_ok()));
                        // Nobody watches: that is fine.
                        let _ = sender.send(Notice::Event(Arc::new(event)));
                    }
                    // Disconnected: the NIC shuts down, or we were too slow.
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    events = nic.subscribe();
                    add(&log, Record::gap());
                    let _ = sender.send(Notice::Gap);
                }
            })?;
        Ok(hub)
    }

    /// Events from now on.
    pub fn watch(&self) -> broadcast::Receiver<Notice> {
        self.sender.subscribe()
    }

    /// Notes what happens in the control plane.
    pub fn record(&self, event: impl Into<Record>) {
        add(&self.log, event.into());
    }

    /// The next time that the NIC ends the events, stop instead of asking again.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Logs an event and keeps it.
fn add(log: &EventLog, record: Record) {
    // What is about no adapter or port has no such field.
    let (owner, message) = (record.owner_name(), &record.message);
    match record.level {
        Level::Info => tracing::info!(owner, "{message}"),
        Level::Warn => tracing::warn!(owner, "{message}"),
        Level::Error => tracing::error!(owner, "{message}"),
    }
    log.append(record);
}
