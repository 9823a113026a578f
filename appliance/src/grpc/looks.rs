//! Watches that look again and again: what there is, a mark, then what has changed at each look.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tokio::time::MissedTickBehavior;
use tonic::{Response, Status};
use vnic_control::v1;

use super::answer::{Answer, Sender, Stream, send_all, stream};
use super::counters::span;
use super::errors::not_found;
use crate::access::blocking;
use crate::control::Control;
use crate::stored::values::timestamp;

/// Allowed time between two looks of a stream.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Messages that wait for a client.
const UNREAD: usize = 16;

/// Starts a stream of looks. `look` gives the messages of a look, the first with the mark; an error of the first look is that of the
/// call. May block.
pub async fn start<M: Send + 'static>(
    control: &Control,
    interval: Option<prost_types::Duration>,
    mut look: impl FnMut(bool) -> Result<Vec<M>, Status> + Send + 'static,
) -> Answer<Stream<M>> {
    let interval = span("interval", interval, &INTERVAL)?.unwrap_or(INTERVAL_DEFAULT);
    let (first, look) = blocking(move || look(true).map(|messages| (messages, look))).await??;
    let follow = |sender| follow(look, first, interval, sender);
    Ok(Response::new(stream(control, UNREAD, follow)))
}

/// Sends the first look, and then changes; waits for the client before it looks again.
async fn follow<M: Send + 'static>(
    mut look: impl FnMut(bool) -> Result<Vec<M>, Status> + Send + 'static,
    first: Vec<M>,
    interval: Duration,
    sender: Sender<M>,
) -> Result<(), Status> {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut messages = first;
    // (The first tick comes at once.)
    ticks.tick().await;
    while send_all(&sender, messages).await {
        ticks.tick().await;
        (messages, look) = blocking(move || look(false).map(|messages| (messages, look))).await??;
    }
    Ok(())
}

/// Resource of a watch.
pub trait Resource: Clone + PartialEq + Default + Send + 'static {
    /// Message of the stream.
    type Message: Send + 'static;

    /// All resources, without what traffic changes. May block.
    fn all(control: &Arc<Control>) -> Vec<Self>;
    /// The resource's name.
    fn name(&mut self) -> &mut String;
    /// Message of a change.
    fn message(change: v1::Change, resource: Option<Self>, time: Timestamp) -> Self::Message;
}

/// Resources of the last look.
struct Seen<R> {
    only: Option<String>,
    known: BTreeMap<String, R>,
}

impl<R: Resource> Seen<R> {
    /// Messages of what has changed since the last look.
    fn look(&mut self, first: bool, mut now: Vec<R>) -> Vec<R::Message> {
        let time = timestamp(SystemTime::now());
        let message = |change, resource| R::message(change, resource, time);
        now.retain_mut(|r| self.only.as_ref().is_none_or(|only| only == r.name()));
        let mut gone = std::mem::take(&mut self.known);
        let mut messages = Vec::new();
        for mut resource in now {
            let name = resource.name().clone();
            let change = match gone.remove(&name) {
                Some(before) if before == resource => None,
                Some(_) => Some(v1::Change::Updated),
                None if first => Some(v1::Change::Existing),
                None => Some(v1::Change::Added),
            };
            messages.extend(change.map(|change| message(change, Some(resource.clone()))));
            self.known.insert(name, resource);
        }
        for name in gone.into_keys() {
            let mut resource = R::default();
            *resource.name() = name;
            messages.push(message(v1::Change::Removed, Some(resource)));
        }
        if first {
            messages.push(message(v1::Change::Synced, None));
        }
        messages
    }
}

/// Starts a stream of all resources of a type, or of one. `is_name`: whether a text has the form of their names.
pub async fn watch<R: Resource>(
    control: &Arc<Control>,
    request: v1::WatchRequest,
    named: impl FnOnce(&str) -> Result<(), Status>,
) -> Answer<Stream<R::Message>> {
    let only = (!request.name.is_empty()).then_some(request.name);
    if let Some(name) = &only {
        named(name)?;
    }
    let mut seen = Seen::<R> {
        only: only.clone(),
        known: BTreeMap::new(),
    };
    let looked = control.clone();
    let look = move |first| {
        let messages = seen.look(first, R::all(&looked));
        match &only {
            Some(name) if first && !seen.known.contains_key(name) => {
                Err(not_found(format!("there is no {name}"), [("name", name.clone())]))
            }
            _ => Ok(messages),
        }
    };
    start(control, request.interval, look).await
}

/// Implements [`Resource`]: the resource, its message with its field, and what there is.
macro_rules! resource {
    ($resource:ident, $message:ident { $field:ident }: |$control:ident| $all:expr) => {
        impl $crate::grpc::looks::Resource for v1::$resource {
            type Message = v1::$message;

            fn all($control: &Arc<Control>) -> Vec<v1::$resource> {
                $all
            }

            fn name(&mut self) -> &mut String {
                &mut self.name
            }

            fn message(
                change: v1::Change,
                $field: Option<v1::$resource>,
                time: prost_types::Timestamp,
            ) -> v1::$message {
                let (change, time) = (change.into(), Some(time));
                v1::$message {
                    change,
                    $field,
                    time,
                }
            }
        }
    };
}
pub(super) use resource;
