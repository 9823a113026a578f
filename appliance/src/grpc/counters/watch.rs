//! Streams of counters. The daemon samples an owner's counters at each interval and sends the growth since the message
//! before: a slow client makes the intervals longer, and loses no growth.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tonic::Status;
use vnic_control::v1;

use super::super::answer::{Sender, Stream, stream};
use super::super::errors::invalid;
use super::sets;
use crate::control::{Control, CounterUpdate, Followed};
use crate::counters::Owner;
use crate::counters::baseline::Baseline;
use crate::stored::values;

/// Allowed time between two samples.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// A parsed request.
pub struct Wish {
    name: String,
    owner: Owner,
    interval: Duration,
    followed: Followed,
}

impl Wish {
    /// Parses a request.
    pub fn new(control: &Control, request: v1::WatchCountersRequest) -> Result<Wish, Status> {
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
        let base = match sets::baseline(control, &request.baseline)? {
            Some(Baseline::Of(values, _)) => Some(values),
            _ => None,
        };
        Ok(Wish {
            name: request.owner,
            owner,
            interval: sets::span("interval", request.interval, &INTERVAL)?.unwrap_or(INTERVAL_DEFAULT),
            followed: Followed::new(names, request.counter_names, request.on_change, base),
        })
    }
}

fn message(told: &CounterUpdate) -> v1::WatchCountersResponse {
    v1::WatchCountersResponse {
        sample_time: Some(values::timestamp(told.time)),
        elapsed: told.elapsed.map(values::duration),
        values: told.values.iter().map(sets::value).collect(),
    }
}

pub async fn start(control: Arc<Control>, wish: Wish) -> Result<Stream<v1::WatchCountersResponse>, Status> {
    // An unknown owner is an error of the call.
    sets::values(&control, &wish.name, &wish.owner).await?;
    let followed = control.clone();
    Ok(stream(&control, 1, |sender| follow(followed, wish, sender)))
}

/// Sends samples until the owner is gone.
async fn follow(
    control: Arc<Control>,
    mut wish: Wish,
    sender: Sender<v1::WatchCountersResponse>,
) -> Result<(), Status> {
    let mut ticks = tokio::time::interval(wish.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The sample is taken when there is room for it: a slow client gets no stale one.
        let Ok(room) = sender.reserve().await else {
            return Ok(());
        };
        let values = sets::values(&control, &wish.name, &wish.owner).await?;
        if let Some(told) = wish.followed.next(values) {
            room.send(Ok(message(&told)));
        }
    }
}
