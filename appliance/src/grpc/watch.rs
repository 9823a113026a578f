//! Watch streams: a snapshot, a mark, then changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::broadcast;
use tonic::Status;
use vnic_backend::{NicEvent, NicEventKind};
use vnic_control::v1;

use super::answer::{Sender, Stream, hear, send_all, send_now, stream, too_slow};
use super::convert;
use crate::access::blocking;
use crate::control::Control;
use crate::events::Notice;
use crate::names;
use crate::stored::values::timestamp;

/// Number of unread changes at which a client's stream ends.
const UNREAD_MAX: usize = 256;

/// Source of the messages of a stream.
pub trait Watch: Send + 'static {
    /// Type of the stream's messages.
    type Message: Send + 'static;

    /// Messages of all that exists, then the mark. May block.
    fn snapshot(&mut self, only: Option<&str>) -> Vec<Self::Message>;

    /// Message of an event, if the event concerns this watch. May block.
    fn change(&mut self, event: &NicEvent) -> Option<Self::Message>;
}

/// Starts a stream of all resources, or of `only` one.
pub fn start<W: Watch>(control: &Control, only: Option<String>, watch: W) -> Stream<W::Message> {
    // Subscribed before the snapshot, so that no event is missed between the two.
    let notices = control.hub.watch();
    stream(control, UNREAD_MAX, |sender| follow(only, watch, notices, sender))
}

/// Sends the snapshot, waiting for the client, and then changes, without waiting.
async fn follow<W: Watch>(
    only: Option<String>,
    mut watch: W,
    mut notices: broadcast::Receiver<Notice>,
    sender: Sender<W::Message>,
) -> Result<(), Status> {
    let name = only.clone();
    let (snapshot, returned) = blocking(move || {
        let messages = watch.snapshot(name.as_deref());
        (messages, watch)
    })
    .await?;
    watch = returned;
    let mut there = send_all(&sender, snapshot).await;
    while there {
        let Notice::Event(event) = hear(&mut notices).await? else {
            return Err(too_slow());
        };
        if only.as_ref().is_some_and(|name| *name != event.owner) {
            continue;
        }
        let (message, returned) = blocking(move || {
            let message = watch.change(&event);
            (message, watch)
        })
        .await?;
        watch = returned;
        if let Some(message) = message {
            there = send_now(&sender, message)?;
        }
    }
    Ok(())
}

/// Attach and link state of adapters.
pub struct AdapterWatch {
    control: Arc<Control>,
    /// Adapters that the client knows, with the time of their last state.
    known: BTreeMap<String, SystemTime>,
}

impl AdapterWatch {
    /// Starts without known adapters.
    pub fn new(control: Arc<Control>) -> AdapterWatch {
        AdapterWatch {
            control,
            known: BTreeMap::new(),
        }
    }

    fn message(
        change: v1::watch_adapters_response::Change,
        adapter: Option<v1::Adapter>,
        time: SystemTime,
    ) -> v1::WatchAdaptersResponse {
        v1::WatchAdaptersResponse {
            change: change.into(),
            adapter,
            time: Some(timestamp(time)),
        }
    }
}

impl Watch for AdapterWatch {
    type Message = v1::WatchAdaptersResponse;

    fn snapshot(&mut self, only: Option<&str>) -> Vec<Self::Message> {
        use v1::watch_adapters_response::Change;
        let now = SystemTime::now();
        let mut messages = Vec::new();
        for status in self.control.nic.adapters() {
            if only.is_some_and(|name| name != status.spec.name) {
                continue;
            }
            let adapter = convert::adapter(&self.control, &status);
            messages.push(Self::message(Change::Existing, Some(adapter), now));
            self.known.insert(status.spec.name, status.since);
        }
        messages.push(Self::message(Change::Synced, None, now));
        messages
    }

    fn change(&mut self, event: &NicEvent) -> Option<Self::Message> {
        use v1::watch_adapters_response::Change;
        match &event.kind {
            NicEventKind::AdapterRemoved => {
                self.known.remove(&event.owner)?;
                let adapter = v1::Adapter {
                    name: names::of(names::ADAPTERS, &event.owner),
                    ..v1::Adapter::default()
                };
                Some(Self::message(Change::Removed, Some(adapter), event.time))
            }
            NicEventKind::AdapterAdded => {
                if self.known.contains_key(&event.owner) {
                    return None;
                }
                let status = self.control.nic.adapter(&event.owner).ok()?;
                self.known.insert(event.owner.clone(), event.time);
                let adapter = convert::adapter(&self.control, &status);
                Some(Self::message(Change::Added, Some(adapter), event.time))
            }
            NicEventKind::AdapterState(state) => {
                // A state that is older than the snapshot was in it.
                if self
                    .known
                    .get(&event.owner)
                    .is_some_and(|known| event.time < *known)
                {
                    return None;
                }
                let mut status = self.control.nic.adapter(&event.owner).ok()?;
                // The message has the event's state, not the present one, so that short states are reported.
                (status.state, status.since) = (*state, event.time);
                let known = self.known.insert(event.owner.clone(), event.time);
                let change = known.map_or(Change::Added, |_| Change::State);
                let adapter = convert::adapter(&self.control, &status);
                Some(Self::message(change, Some(adapter), event.time))
            }
            NicEventKind::AdapterChanged { .. } => {
                self.known.get(&event.owner)?;
                let status = self.control.nic.adapter(&event.owner).ok()?;
                let adapter = convert::adapter(&self.control, &status);
                Some(Self::message(Change::Updated, Some(adapter), event.time))
            }
            _ => None,
        }
    }
}

/// Link state of ports.
pub struct PortWatch {
    control: Arc<Control>,
    /// Ports that the client knows, with the time of their last state.
    known: BTreeMap<String, SystemTime>,
}

impl PortWatch {
    /// Starts without known ports.
    pub fn new(control: Arc<Control>) -> PortWatch {
        PortWatch {
            control,
            known: BTreeMap::new(),
        }
    }

    fn message(
        change: v1::watch_ports_response::Change,
        port: Option<v1::Port>,
        time: SystemTime,
    ) -> v1::WatchPortsResponse {
        v1::WatchPortsResponse {
            change: change.into(),
            port,
            time: Some(timestamp(time)),
        }
    }
}

impl Watch for PortWatch {
    type Message = v1::WatchPortsResponse;

    fn snapshot(&mut self, only: Option<&str>) -> Vec<Self::Message> {
        use v1::watch_ports_response::Change;
        let now = SystemTime::now();
        let mut messages = Vec::new();
        for status in self.control.nic.ports() {
            if only.is_some_and(|name| name != status.spec.name) {
                continue;
            }
            let port = convert::port(&self.control, &status);
            messages.push(Self::message(Change::Existing, Some(port), now));
            self.known.insert(status.spec.name, now);
        }
        messages.push(Self::message(Change::Synced, None, now));
        messages
    }

    fn change(&mut self, event: &NicEvent) -> Option<Self::Message> {
        use v1::watch_ports_response::Change;
        match &event.kind {
            NicEventKind::PortRemoved => {
                self.known.remove(&event.owner)?;
                let port = v1::Port {
                    name: names::of(names::PORTS, &event.owner),
                    ..v1::Port::default()
                };
                Some(Self::message(Change::Removed, Some(port), event.time))
            }
            NicEventKind::PortAdded => {
                if self.known.contains_key(&event.owner) {
                    return None;
                }
                let status = self.control.nic.port(&event.owner).ok()?;
                self.known.insert(event.owner.clone(), event.time);
                let port = convert::port(&self.control, &status);
                Some(Self::message(Change::Added, Some(port), event.time))
            }
            NicEventKind::PortLink { up } => {
                if self
                    .known
                    .get(&event.owner)
                    .is_some_and(|known| event.time < *known)
                {
                    return None;
                }
                let mut status = self.control.nic.port(&event.owner).ok()?;
                status.up = *up;
                let known = self.known.insert(event.owner.clone(), event.time);
                let change = known.map_or(Change::Added, |_| Change::Link);
                let port = convert::port(&self.control, &status);
                Some(Self::message(change, Some(port), event.time))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tonic::Code;

    use super::*;

    /// Watch of owners' names, with a snapshot of two messages.
    struct Names;

    impl Watch for Names {
        type Message = String;

        fn snapshot(&mut self, _only: Option<&str>) -> Vec<String> {
            vec!["existing".to_owned(), "synced".to_owned()]
        }

        fn change(&mut self, event: &NicEvent) -> Option<String> {
            Some(event.owner.clone())
        }
    }

    fn event(owner: &str) -> Notice {
        Notice::Event(Arc::new(NicEvent {
            time: SystemTime::UNIX_EPOCH,
            owner: owner.to_owned(),
            kind: NicEventKind::AdapterAdded,
        }))
    }

    #[tokio::test]
    async fn the_snapshot_comes_first_and_foreign_events_do_not_come() {
        let (events, notices) = broadcast::channel(16);
        let (sender, mut receiver) = mpsc::channel(16);
        for owner in ["other", "vf0"] {
            events.send(event(owner)).expect("a watcher");
        }
        drop(events);
        let end = follow(Some("vf0".to_owned()), Names, notices, sender).await;
        assert_eq!(end.expect_err("closed").code(), Code::Unavailable);
        for expected in ["existing", "synced", "vf0"] {
            let message = receiver.recv().await.expect("a message").expect("no error");
            assert_eq!(message, expected);
        }
        assert!(receiver.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_dropped_and_told() {
        let (events, notices) = broadcast::channel(16);
        let (sender, _receiver) = mpsc::channel(4);
        for _ in 0..3 {
            events.send(event("vf0")).expect("a watcher");
        }
        let end = follow(None, Names, notices, sender).await;
        assert_eq!(end.expect_err("full").code(), Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn lost_events_end_the_stream() {
        let (events, notices) = broadcast::channel(2);
        let (sender, _receiver) = mpsc::channel(64);
        for _ in 0..3 {
            events.send(event("vf0")).expect("a watcher");
        }
        let end = follow(None, Names, notices, sender.clone()).await;
        assert_eq!(end.expect_err("lagged").code(), Code::ResourceExhausted);

        let notices = events.subscribe();
        events.send(Notice::Gap).expect("a watcher");
        let end = follow(None, Names, notices, sender).await;
        assert_eq!(end.expect_err("gap").code(), Code::ResourceExhausted);
    }
}
