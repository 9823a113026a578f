//! What happens in the NIC: logged here, kept for a while, and handed on to watchers.

mod log;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use vnic_backend::{Nic, NicEvent};

pub use log::{EventLog, Following, KEPT, Owner, Record};
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
                        write(&event);
                        log.append(Record::of(&event, |name| nic.port(name).is_ok()));
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
                    tracing::debug!("subscribed to the events again; some may be missing above");
                    log.append(Record::gap());
                    let _ = sender.send(Notice::Gap);
                }
            })?;
        Ok(hub)
    }

    /// Events from now on.
    pub fn watch(&self) -> broadcast::Receiver<Notice> {
        self.sender.subscribe()
    }

    /// The next time that the NIC ends the events, stop instead of asking again.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn write(event: &NicEvent) {
    // What is about no adapter or port has no such field.
    let owner = Some(event.owner.as_str()).filter(|o| !o.is_empty());
    let (level, message) = describe(event);
    match level {
        Level::Info => tracing::info!(owner, "{message}"),
        Level::Warn => tracing::warn!(owner, "{message}"),
        Level::Error => tracing::error!(owner, "{message}"),
    }
}
