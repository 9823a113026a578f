//! Watch streams: a snapshot, a mark, then changes. A client that reads too slowly is told so and dropped; it
//! never holds up the daemon or the other clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use vnic_backend::{NicEvent, NicEventKind};
use vnic_control::v1;

use super::convert;
use super::errors::{blocking, shutting_down, status};
use crate::daemon::Context;
use crate::events::Notice;
use crate::names;

/// Changes that a client may have unread before it is dropped.
const UNREAD_MAX: usize = 256;

/// What is watched.
pub trait Watch: Send + 'static {
    /// The messages of the stream.
    type Message: Send + 'static;

    /// Everything that exists, then the mark. May block.
    fn snapshot(&mut self, context: &Context, only: Option<&str>) -> Vec<Self::Message>;

    /// The message for an event, if it concerns this watch. May block.
    fn change(&mut self, context: &Context, event: &NicEvent) -> Option<Self::Message>;
}

/// Starts a stream of everything, or of `only` one.
pub fn start<W: Watch>(
    context: Arc<Context>,
    only: Option<String>,
    watch: W,
) -> ReceiverStream<Result<W::Message, Status>> {
    let (sender, receiver) = mpsc::channel(UNREAD_MAX);
    // Before the snapshot, so that nothing is missed between the two.
    let notices = context.hub.watch();
    tokio::spawn(async move {
        let ended = context.ended();
        let closed = sender.clone();
        tokio::select! {
            result = follow(context, only, watch, notices, &sender) => {
                if let Err(status) = result {
                    finish(&sender, status).await;
                }
            }
            () = ended => finish(&sender, shutting_down()).await,
            () = closed.closed() => {}
        }
    });
    ReceiverStream::new(receiver)
}

/// The last word of a stream. A client that never reads does not get it, and holds nothing but this task.
async fn finish<M>(sender: &mpsc::Sender<Result<M, Status>>, status: Status) {
    let _ = sender.send(Err(status)).await;
}

fn too_slow() -> Status {
    status(
        Code::ResourceExhausted,
        "WATCH_TOO_SLOW",
        "the client reads more slowly than things happen and has missed some: watch again",
        [],
    )
}

async fn follow<W: Watch>(
    context: Arc<Context>,
    only: Option<String>,
    mut watch: W,
    mut notices: broadcast::Receiver<Notice>,
    sender: &mpsc::Sender<Result<W::Message, Status>>,
) -> Result<(), Status> {
    let (shared, name) = (context.clone(), only.clone());
    let (snapshot, returned) = blocking(move || {
        let messages = watch.snapshot(&shared, name.as_deref());
        (messages, watch)
    })
    .await?;
    watch = returned;
    for message in snapshot {
        if sender.send(Ok(message)).await.is_err() {
            return Ok(());
        }
    }
    loop {
        let event = match notices.recv().await {
            Ok(Notice::Event(event)) => event,
            Ok(Notice::Gap) | Err(broadcast::error::RecvError::Lagged(_)) => return Err(too_slow()),
            Err(broadcast::error::RecvError::Closed) => return Err(shutting_down()),
        };
        if only.as_ref().is_some_and(|name| *name != event.owner) {
            continue;
        }
        let shared = context.clone();
        let (message, returned) = blocking(move || {
            let message = watch.change(&shared, &event);
            (message, watch)
        })
        .await?;
        watch = returned;
        if let Some(message) = message {
            match sender.try_send(Ok(message)) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(_)) => return Err(too_slow()),
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
            }
        }
    }
}

/// Attach and link state of adapters.
#[derive(Default)]
pub struct AdapterWatch {
    /// Adapters the client knows, with the time of the state it knows.
    known: BTreeMap<String, SystemTime>,
}

impl AdapterWatch {
    fn message(
        change: v1::watch_adapters_response::Change,
        adapter: Option<v1::Adapter>,
        time: SystemTime,
    ) -> v1::WatchAdaptersResponse {
        v1::WatchAdaptersResponse {
            change: change.into(),
            adapter,
            time: Some(convert::timestamp(time)),
        }
    }
}

impl Watch for AdapterWatch {
    type Message = v1::WatchAdaptersResponse;

    fn snapshot(&mut self, context: &Context, only: Option<&str>) -> Vec<Self::Message> {
        use v1::watch_adapters_response::Change;
        let now = SystemTime::now();
        let mut messages = Vec::new();
        for status in context.nic.adapters() {
            if only.is_some_and(|name| name != status.spec.name) {
                continue;
            }
            let adapter = convert::adapter(context, &status);
            messages.push(Self::message(Change::Existing, Some(adapter), now));
            self.known.insert(status.spec.name, status.since);
        }
        messages.push(Self::message(Change::Synced, None, now));
        messages
    }

    fn change(&mut self, context: &Context, event: &NicEvent) -> Option<Self::Message> {
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
                let status = context.nic.adapter(&event.owner).ok()?;
                self.known.insert(event.owner.clone(), event.time);
                let adapter = convert::adapter(context, &status);
                Some(Self::message(Change::Added, Some(adapter), event.time))
            }
            NicEventKind::AdapterState(state) => {
                // One that is older than the snapshot was in it.
                if self
                    .known
                    .get(&event.owner)
                    .is_some_and(|known| event.time < *known)
                {
                    return None;
                }
                let mut status = context.nic.adapter(&event.owner).ok()?;
                // The state of the event, so that short states are seen, too.
                (status.state, status.since) = (*state, event.time);
                let known = self.known.insert(event.owner.clone(), event.time);
                let change = known.map_or(Change::Added, |_| Change::State);
                let adapter = convert::adapter(context, &status);
                Some(Self::message(change, Some(adapter), event.time))
            }
            _ => None,
        }
    }
}

/// Link state of ports.
#[derive(Default)]
pub struct PortWatch {
    /// Ports the client knows, with the time of what it knows.
    known: BTreeMap<String, SystemTime>,
}

impl PortWatch {
    fn message(
        change: v1::watch_ports_response::Change,
        port: Option<v1::Port>,
        time: SystemTime,
    ) -> v1::WatchPortsResponse {
        v1::WatchPortsResponse {
            change: change.into(),
            port,
            time: Some(convert::timestamp(time)),
        }
    }
}

impl Watch for PortWatch {
    type Message = v1::WatchPortsResponse;

    fn snapshot(&mut self, context: &Context, only: Option<&str>) -> Vec<Self::Message> {
        use v1::watch_ports_response::Change;
        let now = SystemTime::now();
        let mut messages = Vec::new();
        for status in context.nic.ports() {
            if only.is_some_and(|name| name != status.spec.name) {
                continue;
            }
            let port = convert::port(context, &status);
            messages.push(Self::message(Change::Existing, Some(port), now));
            self.known.insert(status.spec.name, now);
        }
        messages.push(Self::message(Change::Synced, None, now));
        messages
    }

    fn change(&mut self, context: &Context, event: &NicEvent) -> Option<Self::Message> {
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
                let status = context.nic.port(&event.owner).ok()?;
                self.known.insert(event.owner.clone(), event.time);
                let port = convert::port(context, &status);
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
                let mut status = context.nic.port(&event.owner).ok()?;
                status.up = *up;
                let known = self.known.insert(event.owner.clone(), event.time);
                let change = known.map_or(Change::Added, |_| Change::Link);
                let port = convert::port(context, &status);
                Some(Self::message(change, Some(port), event.time))
            }
            _ => None,
        }
    }
}
