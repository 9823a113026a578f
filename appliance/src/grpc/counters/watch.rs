//! Streams of values. The daemon looks at an owner's counters at each interval and tells the growth since the message
//! before: a client that is slow makes the intervals longer, and loses nothing.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use vnic_backend::counters::names::Reading;
use vnic_control::v1;

use super::super::convert;
use super::super::errors::{invalid, shutting_down};
use super::super::watch::finish;
use super::sets;
use crate::counters::baseline::Baseline;
use crate::counters::{Item, Key, Names, Owner, OwnerValues};
use crate::daemon::Context;

/// Time between two samples.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// What is watched.
pub struct Wish {
    name: String,
    owner: Owner,
    names: Names,
    only: Vec<String>,
    interval: Duration,
    on_change: bool,
    base: Option<OwnerValues>,
}

impl Wish {
    /// From a request.
    pub fn new(context: &Context, request: v1::WatchCountersRequest) -> Result<Wish, Status> {
        let owner = sets::owner(&request.owner)?;
        let wanted = match request.counter_set.as_str() {
            "" => sets::DEFAULT,
            wanted => wanted,
        };
        let names = sets::find(wanted)?;
        sets::about(&owner, names)?;
        let known = names.known();
        if let Some(unknown) = request.counter_names.iter().find(|n| !known.contains(n.as_str())) {
            return Err(invalid(
                "counter_names",
                format!("{:?} has no counter {unknown:?}", names.title()),
            ));
        }
        let base = match sets::baseline(context, &request.baseline)? {
            Some(Baseline::Of(values, _)) => Some(values),
            _ => None,
        };
        Ok(Wish {
            name: request.owner,
            owner,
            names,
            only: request.counter_names,
            interval: sets::span("interval", request.interval, &INTERVAL)?.unwrap_or(INTERVAL_DEFAULT),
            on_change: request.on_change,
            base,
        })
    }

    fn items(&self, values: OwnerValues) -> Vec<Item> {
        let values = match &self.base {
            Some(base) => values.since(base),
            None => values,
        };
        let mut items = values.items(self.names);
        items.retain(|i| {
            let wanted = self.only.is_empty() || self.only.iter().any(|n| n == i.pattern);
            wanted && matches!(i.reading, Reading::Value(_) | Reading::Grown(_))
        });
        items
    }
}

/// What the client knows.
struct Known {
    at: Instant,
    values: OwnerValues,
    shown: HashMap<Key, u64>,
}

fn number(item: &Item) -> u64 {
    match item.reading {
        Reading::Value(n) | Reading::Grown(n) => n,
        Reading::NotModelled(_) | Reading::NotYet(_) => 0,
    }
}

/// The next message, or nothing when there is nothing to tell.
fn next(wish: &Wish, known: &mut Option<Known>, values: OwnerValues) -> Option<v1::WatchCountersResponse> {
    let (at, time) = (Instant::now(), SystemTime::now());
    // Of an owner that is new since then, everything is new.
    let before = known.take().filter(|k| k.values.same_life(&values));
    let items = wish.items(values.clone());
    let shown = items.iter().map(|i| (i.key(), number(i))).collect();
    let elapsed = before.as_ref().map(|b| at.duration_since(b.at));
    let message = |(item, elapsed): (&Item, Option<Duration>)| {
        let mut value = sets::value(item);
        if let (Some(before), Some(elapsed)) = (&before, elapsed) {
            // A queue that was not there had counted nothing.
            let before = before.shown.get(&item.key()).copied().unwrap_or_default();
            if wish.on_change && before == number(item) {
                return None;
            }
            value.rate = Some(sets::rate(number(item), before, elapsed));
        }
        Some(value)
    };
    let changed: Vec<_> = items.iter().map(|i| (i, elapsed)).filter_map(message).collect();
    let quiet = wish.on_change && before.is_some() && changed.is_empty();
    // The values of a quiet sample are those of the message before: growth is over the last interval alone.
    *known = Some(Known { at, values, shown });
    (!quiet).then(|| v1::WatchCountersResponse {
        sample_time: Some(convert::timestamp(time)),
        elapsed: elapsed.map(convert::duration),
        values: changed,
    })
}

/// Starts a stream.
pub async fn start(
    context: Arc<Context>,
    wish: Wish,
) -> Result<ReceiverStream<Result<v1::WatchCountersResponse, Status>>, Status> {
    // Whoever watches nothing is told at once.
    sets::values(&context, &wish.name, &wish.owner).await?;
    let (sender, receiver) = mpsc::channel(1);
    let ended = context.ended();
    tokio::spawn(async move {
        tokio::select! {
            status = follow(&context, &wish, &sender) => finish(&sender, status).await,
            () = ended => finish(&sender, shutting_down()).await,
            () = sender.closed() => {}
        }
    });
    Ok(ReceiverStream::new(receiver))
}

/// Samples until the owner is gone.
async fn follow(
    context: &Arc<Context>,
    wish: &Wish,
    sender: &mpsc::Sender<Result<v1::WatchCountersResponse, Status>>,
) -> Status {
    let mut ticks = tokio::time::interval(wish.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    loop {
        ticks.tick().await;
        // First the room, then the sample: what a slow client gets is never stale.
        let Ok(room) = sender.reserve().await else {
            return shutting_down();
        };
        let values = match sets::values(context, &wish.name, &wish.owner).await {
            Ok(values) => values,
            Err(status) => return status,
        };
        if let Some(message) = next(wish, &mut known, values) {
            room.send(Ok(message));
        }
    }
}
