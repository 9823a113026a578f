//! Events of the NIC and of the control plane: logged, stored for a while, and sent to watchers.

mod control;
pub mod kinds;
mod limit;
mod log;
mod record;
mod words;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::broadcast;
use vnic_backend::rehearsal::rehearses;
use vnic_backend::{Nic, NicEvent, NicEventKind};

pub(crate) use control::{ControlEvent, MigrationStep, Phase, Tell};
pub use log::{BACKLOG, EventFile, EventLog, Following, Keep, NotKept, Part};
pub use record::{Owner, Record, severity};
pub use words::{Level, Told, describe, told};

/// Magic packets that may wait for what they cause; older ones are left out.
const MAGIC: usize = 64;

/// Item of a watcher's stream.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An event.
    Event(Arc<NicEvent>),
    /// Events were lost: a watcher that keeps state must read it again.
    Gap,
}

/// Whether an event changes what watchers show. Other events, which guests can cause in any number, are not sent to them.
fn watched(kind: &NicEventKind) -> bool {
    matches!(
        kind,
        NicEventKind::AdapterAdded
            | NicEventKind::AdapterRemoved
            | NicEventKind::AdapterState(_)
            | NicEventKind::AdapterChanged { .. }
            | NicEventKind::PortAdded
            | NicEventKind::PortRemoved
            | NicEventKind::PortLink { .. }
    )
}

/// Takes events from the NIC, logs them, and sends them to watchers.
pub struct EventHub {
    sender: broadcast::Sender<Notice>,
    /// Magic packets.
    magic: broadcast::Sender<Arc<NicEvent>>,
    /// Log of events.
    pub log: Arc<EventLog>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EventHub {
    /// Opens the log in the state directory, records the start of the daemon, and starts the thread that takes the events.
    pub fn start(nic: Nic, file: EventFile, keep: Keep) -> std::io::Result<EventHub> {
        let (sender, _) = broadcast::channel(BACKLOG);
        let (magic, _) = broadcast::channel(MAGIC);
        let stop = Arc::new(AtomicBool::new(false));
        let first = nic.subscribe();
        let log = Arc::new(EventLog::start(Some(file), keep)?);
        let hub = EventHub {
            sender: sender.clone(),
            magic: magic.clone(),
            log: log.clone(),
            stop: stop.clone(),
            thread: Mutex::default(),
        };
        let thread = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || {
                let (mut events, mut left_out) = (first, 0);
                loop {
                    for event in &events {
                        if std::mem::replace(&mut left_out, nic.events_left_out()) != left_out {
                            log.append(Record::gap());
                        }
                        log.append(Record::of(&event, |name| nic.port(name).is_ok()));
                        if matches!(
                            event.kind,
                            NicEventKind::MagicPacket { .. } | NicEventKind::WakePattern { .. }
                        ) {
                            // (An error means that nobody listens.)
                            let _ = magic.send(Arc::new(event));
                        } else if watched(&event.kind) {
                            // An error means that there is no watcher.
                            let _ = sender.send(Notice::Event(Arc::new(event)));
                        }
                    }
                    // The channel is closed: the NIC shuts down, or this thread was too slow.
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    events = nic.subscribe();
                    log.append(Record::gap());
                    let _ = sender.send(Notice::Gap);
                }
            })?;
        *hub.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(hub)
    }

    /// Subscribes to events from now on.
    pub fn watch(&self) -> broadcast::Receiver<Notice> {
        self.sender.subscribe()
    }

    /// Subscribes to magic packets from now on.
    pub fn magic_packets(&self) -> broadcast::Receiver<Arc<NicEvent>> {
        self.magic.subscribe()
    }

    /// Records an event of the control plane. In a rehearsal nothing happens.
    pub fn record(&self, event: impl Into<Record>) {
        if rehearses() {
            return;
        }
        self.log.append(event.into());
    }

    /// Makes the thread end when the NIC next closes its events, instead of subscribing again.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// After [`EventHub::stop`] and the end of the NIC: takes the NIC's last events, records the end of the daemon, and stores the log.
    pub fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.close();
    }

    /// [`EventHub::finish`] for a NIC that does not end.
    pub fn close(&self) {
        self.record(ControlEvent::DaemonStopped);
        self.log.close();
    }
}
