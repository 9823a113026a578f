//! Counters by the names that users know: their values and rates.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use vnic_backend::counters::names;

use super::Control;
use crate::counters::baseline::{self, Baseline};
use crate::counters::{Item, Key, Names, Owner, OwnerValues};

pub struct Counters<'a>(pub &'a Control);

/// A value and its rate.
pub struct Shown {
    /// The value.
    pub item: Item,
    /// Growth per second; `None` without two samples.
    pub rate: Option<f64>,
}

/// Counters of an owner.
pub struct Reading {
    /// Time of the sample.
    pub time: SystemTime,
    /// Time of the baseline that is subtracted; `None` without one of this life of the owner.
    pub since: Option<SystemTime>,
    /// Whether a baseline was given that is of another life of the owner or of the daemon; it is not subtracted.
    pub outdated: bool,
    /// Counter sets with their values.
    pub sets: Vec<(Names, Vec<Shown>)>,
}

/// Growth per second.
// Rates are shown with a few digits.
#[allow(clippy::cast_precision_loss)]
fn rate(now: u64, before: u64, elapsed: Duration) -> f64 {
    let grown = now.saturating_sub(before) as f64;
    let rate = grown / elapsed.as_secs_f64();
    if rate.is_finite() { rate } else { 0.0 }
}

impl Counters<'_> {
    /// Counters of an owner; `None` if there is no such owner. May block.
    pub fn values(&self, owner: &Owner) -> Option<OwnerValues> {
        owner.find(self.0.nic.counter_values())
    }

    /// Counter sets of an owner, with rates if there is a sample `first`.
    pub fn read(
        sets: Vec<Names>,
        first: Option<(OwnerValues, Instant)>,
        now: OwnerValues,
        base: Option<Baseline>,
    ) -> Reading {
        let mut reading = Reading {
            time: SystemTime::now(),
            since: None,
            outdated: false,
            sets: Vec::new(),
        };
        let elapsed = first.as_ref().map(|(_, at)| at.elapsed()).unwrap_or_default();
        // If the owner is newer than the first sample, all its values are new.
        let first = first
            .map(|(first, _)| first)
            .filter(|first| first.same_life(&now));
        let shown = match base {
            Some(Baseline::Of(base, time)) if base.same_life(&now) => {
                reading.since = SystemTime::try_from(time).ok();
                now.clone().since(&base)
            }
            other => {
                reading.outdated = other.is_some();
                now.clone()
            }
        };
        for names in sets {
            // Both samples are without the baseline, so that they have the same queues.
            let samples = first.as_ref().map(|first| (first.items(names), now.items(names)));
            let values = shown.items(names).into_iter().enumerate().map(|(i, item)| {
                let grown = samples
                    .as_ref()
                    .and_then(|(before, now)| grown(before, now.get(i)?));
                let rate = grown.map(|(now, before)| rate(now, before, elapsed));
                Shown { item, rate }
            });
            reading.sets.push((names, values.collect()));
        }
        reading
    }

    /// Encodes values that were read at `time` as a baseline.
    pub fn snapshot(&self, values: &OwnerValues, time: SystemTime) -> Vec<u8> {
        baseline::encode(values, baseline::daemon(self.0.life.started.0), time)
    }

    /// Decodes a baseline of [`Counters::snapshot`]; `None` if the bytes are none.
    pub fn baseline(&self, bytes: &[u8]) -> Option<Baseline> {
        baseline::decode(bytes, baseline::daemon(self.0.life.started.0))
    }
}

/// Present and former value of a counter that grows.
fn grown(before: &[Item], now: &Item) -> Option<(u64, u64)> {
    let names::Reading::Grown(grown) = now.reading else {
        return None;
    };
    let before = before.iter().find(|b| b.key() == now.key()).map(|b| b.reading);
    // A queue that was absent had counted nothing.
    match before {
        Some(names::Reading::Grown(before)) => Some((grown, before)),
        _ => Some((grown, 0)),
    }
}

/// A counter set of an owner that a client watches.
pub struct Followed {
    /// Counter set.
    pub names: Names,
    /// Names of counters; empty: all of the set.
    pub only: Vec<String>,
    /// Whether only changed values are sent.
    pub on_change: bool,
    /// Values to subtract.
    pub base: Option<OwnerValues>,
    known: Option<Known>,
}

/// The last sample.
struct Known {
    at: Instant,
    values: OwnerValues,
    shown: HashMap<Key, u64>,
}

/// A sample for the client.
pub struct CounterUpdate {
    /// Time of the sample.
    pub time: SystemTime,
    /// Time since the sample before.
    pub elapsed: Option<Duration>,
    /// Values with their rates.
    pub values: Vec<Shown>,
}

fn number(item: &Item) -> u64 {
    match item.reading {
        names::Reading::Value(n) | names::Reading::Grown(n) => n,
        names::Reading::NotModelled(_) | names::Reading::NotYet(_) => 0,
    }
}

impl Followed {
    /// Starts before the first sample.
    pub fn new(names: Names, only: Vec<String>, on_change: bool, base: Option<OwnerValues>) -> Followed {
        Followed {
            names,
            only,
            on_change,
            base,
            known: None,
        }
    }

    fn items(&self, values: OwnerValues) -> Vec<Item> {
        let values = match &self.base {
            Some(base) => values.since(base),
            None => values,
        };
        let mut items = values.items(self.names);
        items.retain(|i| {
            let wanted = self.only.is_empty() || self.only.iter().any(|n| n == i.pattern);
            wanted && matches!(i.reading, names::Reading::Value(_) | names::Reading::Grown(_))
        });
        items
    }

    /// Takes a sample; `None` if no value has changed and only changes are wanted.
    pub fn next(&mut self, values: OwnerValues) -> Option<CounterUpdate> {
        let (at, time) = (Instant::now(), SystemTime::now());
        // If the owner is newer than the sample before, all its values are new.
        let before = self.known.take().filter(|k| k.values.same_life(&values));
        let items = self.items(values.clone());
        let shown = items.iter().map(|i| (i.key(), number(i))).collect();
        let elapsed = before.as_ref().map(|b| at.duration_since(b.at));
        let one = |item: Item| {
            let Some((before, elapsed)) = before.as_ref().zip(elapsed) else {
                return Some(Shown { item, rate: None });
            };
            // A queue that was absent had counted nothing.
            let before = before.shown.get(&item.key()).copied().unwrap_or_default();
            if self.on_change && before == number(&item) {
                return None;
            }
            let rate = Some(rate(number(&item), before, elapsed));
            Some(Shown { item, rate })
        };
        let changed: Vec<Shown> = items.into_iter().filter_map(one).collect();
        let quiet = self.on_change && before.is_some() && changed.is_empty();
        // A sample that is not sent is kept too, so that rates are over the last interval alone.
        self.known = Some(Known { at, values, shown });
        (!quiet).then_some(CounterUpdate {
            time,
            elapsed,
            values: changed,
        })
    }
}
