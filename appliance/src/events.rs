//! What happens in the NIC: logged here, and handed on to watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use vnic_backend::{AttachState, FaultInjection, Injected, Nic, NicEvent, NicEventKind};

/// Events that a watcher may be behind before its stream is ended.
pub const BACKLOG: usize = 4096;

/// How much an event matters to the person who runs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Normal life.
    Info,
    /// Someone should look: a guest or a VMM misbehaves.
    Warn,
    /// A bug of the daemon.
    Error,
}

/// The level and the words of an event: the only place where they are decided.
pub fn describe(event: &NicEvent) -> (Level, String) {
    match &event.kind {
        NicEventKind::AdapterAdded => (Level::Info, "adapter added".to_owned()),
        NicEventKind::AdapterRemoved => (Level::Info, "adapter removed".to_owned()),
        NicEventKind::AdapterState(AttachState::Failed) => (
            Level::Error,
            "a bug took the adapter down; the other adapters run on. `vnicctl adapter restart` brings it back; \
             please report the log lines before this one"
                .to_owned(),
        ),
        NicEventKind::AdapterState(AttachState::Detached) => {
            (Level::Info, "detached: nobody is connected to the socket".to_owned())
        }
        NicEventKind::AdapterState(AttachState::Attached) => {
            (Level::Info, "attached: a VMM is connected, no driver runs".to_owned())
        }
        NicEventKind::AdapterState(AttachState::Up) => {
            (Level::Info, "up: the guest's driver runs".to_owned())
        }
        NicEventKind::RingFault { ring, what } => (
            Level::Warn,
            format!(
                "ring {ring} stopped: the guest wrote something illegal into it ({what}); it starts again when \
                 the guest resets the device"
            ),
        ),
        NicEventKind::SpoofedSource { source } => (
            Level::Warn,
            format!(
                "frames from {source} are dropped: it is not an address of this adapter. Give the VM the \
                 adapter's own address (mac= of its network device; `vnicctl adapter show` tells it), or set \
                 anti_spoofing = false"
            ),
        ),
        NicEventKind::ProtocolError { what } => (Level::Warn, format!("refused the VMM: {what}")),
        NicEventKind::PortAdded => (Level::Info, "port added".to_owned()),
        NicEventKind::PortRemoved => (Level::Info, "port removed".to_owned()),
        NicEventKind::PortLink { up: true } => (Level::Info, "link up".to_owned()),
        NicEventKind::PortLink { up: false } => (Level::Warn, "link down".to_owned()),
        NicEventKind::FaultAdded { id, name, action } => (
            Level::Warn,
            format!(
                "fault {id} \"{name}\" added: frames suffer on purpose ({action}) until `vnicctl fault remove {name}`"
            ),
        ),
        NicEventKind::FaultRemoved { id, name, injected } => (
            Level::Info,
            format!("fault {id} \"{name}\" removed; it hit {injected} frames"),
        ),
        NicEventKind::Fault(FaultInjection { id, name, what }) => {
            (Level::Info, format!("fault {id} \"{name}\": {}", injected(what)))
        }
    }
}

/// What a fault rule did, in words.
fn injected(what: &Injected) -> String {
    match what {
        Injected::More(1) => "one more frame".to_owned(),
        Injected::More(n) => format!("{n} more frames"),
        Injected::One {
            from,
            to,
            effect,
            len,
            roce,
        } => {
            let roce = roce.map_or_else(String::new, |(opcode, qp, psn)| {
                format!(", opcode {opcode:#04x}, QP {qp:#x}, PSN {psn}")
            });
            format!("{effect}, frame from {from} to {to} of {len} bytes{roce}")
        }
    }
}

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
    stop: Arc<AtomicBool>,
}

impl EventHub {
    /// Starts the thread that takes the events.
    pub fn start(nic: Nic) -> std::io::Result<EventHub> {
        let (sender, _) = broadcast::channel(BACKLOG);
        let stop = Arc::new(AtomicBool::new(false));
        let hub = EventHub {
            sender: sender.clone(),
            stop: stop.clone(),
        };
        let first = nic.subscribe();
        std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || {
                let mut events = first;
                loop {
                    for event in &events {
                        log(&event);
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

fn log(event: &NicEvent) {
    let owner = event.owner.as_str();
    let (level, message) = describe(event);
    match level {
        Level::Info => tracing::info!(owner, "{message}"),
        Level::Warn => tracing::warn!(owner, "{message}"),
        Level::Error => tracing::error!(owner, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_backend::MacAddr;

    fn described(kind: NicEventKind) -> (Level, String) {
        describe(&NicEvent {
            time: std::time::SystemTime::UNIX_EPOCH,
            owner: "vf0".to_owned(),
            kind,
        })
    }

    #[test]
    fn a_spoofed_source_tells_the_cure() {
        let (level, text) = described(NicEventKind::SpoofedSource {
            source: MacAddr([2, 0, 0, 0, 0, 1]),
        });
        assert_eq!(level, Level::Warn);
        for part in [
            "02:00:00:00:00:01",
            "mac=",
            "vnicctl adapter show",
            "anti_spoofing = false",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn only_bugs_of_ours_are_errors() {
        assert_eq!(
            described(NicEventKind::AdapterState(AttachState::Failed)).0,
            Level::Error
        );
        assert_eq!(
            described(NicEventKind::RingFault {
                ring: 1,
                what: "loop".to_owned()
            })
            .0,
            Level::Warn
        );
    }
}
