//! Counters by the names that users know: how they are read, and how they grow.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use vnic_backend::counters::names;

use super::Control;
use crate::counters::baseline::{self, Baseline};
use crate::counters::{Item, Key, Names, Owner, OwnerValues};

/// Counters.
pub struct Counters<'a>(pub &'a Control);

/// A value, and how it grew.
pub struct Shown {
    /// The value.
    pub item: Item,
    /// Growth in a second, where two samples were taken.
    pub rate: Option<f64>,
}

/// Values of an owner.
pub struct Reading {
    /// When they were read.
    pub time: SystemTime,
    /// The baseline that counts, if it is of this life of the owner.
    pub since: Option<SystemTime>,
    /// The baseline is of another life of the owner, or of the daemon: it does not count.
    pub outdated: bool,
    /// Each set with its values.
    pub sets: Vec<(Names, Vec<Shown>)>,
}

/// Growth in a second.
// Rates are shown with a few digits.
#[allow(clippy::cast_precision_loss)]
fn rate(now: u64, before: u64, elapsed: Duration) -> f64 {
    let grown = now.saturating_sub(before) as f64;
    let rate = grown / elapsed.as_secs_f64();
    if rate.is_finite() { rate } else { 0.0 }
}

impl Counters<'_> {
    /// Values of an owner as they are now; none: there is no such owner. May block.
    pub fn values(&self, owner: &Owner) -> Option<OwnerValues> {
        owner.find(self.0.nic.counter_values())
    }

    /// Sets of an owner, and where there was a sample before, how fast they grew since then.
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
        // Of an owner that is new since then, everything is new.
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
            // Both samples without the baseline, so that they have the same queues.
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

    /// A baseline of values that were read at this time.
    pub fn snapshot(&self, values: &OwnerValues, time: SystemTime) -> Vec<u8> {
        baseline::encode(values, baseline::daemon(self.0.life.started.0), time)
    }

    /// A baseline that [`Counters::snapshot`] gave; none: it is something else.
    pub fn baseline(&self, bytes: &[u8]) -> Option<Baseline> {
        baseline::decode(bytes, baseline::daemon(self.0.life.started.0))
    }
}

/// Of a counter that grows: what it is now, and what it was.
fn grown(before: &[Item], now: &Item) -> Option<(u64, u64)> {
    let names::Reading::Grown(grown) = now.reading else {
        return None;
    };
    let before = before.iter().find(|b| b.key() == now.key()).map(|b| b.reading);
    // A queue that was not there had counted nothing.
    match before {
        Some(names::Reading::Grown(before)) => Some((grown, before)),
        _ => Some((grown, 0)),
    }
}

/// What of an owner's counters is followed.
pub struct Followed {
    /// The set.
    pub names: Names,
    /// Names of counters; none: all of the set.
    pub only: Vec<String>,
    /// Only what changed is told.
    pub on_change: bool,
    /// What is subtracted.
    pub base: Option<OwnerValues>,
    known: Option<Known>,
}

/// What was told last.
struct Known {
    at: Instant,
    values: OwnerValues,
    shown: HashMap<Key, u64>,
}

/// What is told.
pub struct Told {
    /// When the sample was taken.
    pub time: SystemTime,
    /// Since the sample before.
    pub elapsed: Option<Duration>,
    /// Values.
    pub values: Vec<Shown>,
}

fn number(item: &Item) -> u64 {
    match item.reading {
        names::Reading::Value(n) | names::Reading::Grown(n) => n,
        names::Reading::NotModelled(_) | names::Reading::NotYet(_) => 0,
    }
}

impl Followed {
    /// Nothing was told yet.
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

    /// What a sample tells; nothing, when there is nothing to tell.
    pub fn next(&mut self, values: OwnerValues) -> Option<Told> {
        let (at, time) = (Instant::now(), SystemTime::now());
        // Of an owner that is new since then, everything is new.
        let before = self.known.take().filter(|k| k.values.same_life(&values));
        let items = self.items(values.clone());
        let shown = items.iter().map(|i| (i.key(), number(i))).collect();
        let elapsed = before.as_ref().map(|b| at.duration_since(b.at));
        let one = |item: Item| {
            let Some((before, elapsed)) = before.as_ref().zip(elapsed) else {
                return Some(Shown { item, rate: None });
            };
            // A queue that was not there had counted nothing.
            let before = before.shown.get(&item.key()).copied().unwrap_or_default();
            if self.on_change && before == number(&item) {
                return None;
            }
            let rate = Some(rate(number(&item), before, elapsed));
            Some(Shown { item, rate })
        };
        let changed: Vec<Shown> = items.into_iter().filter_map(one).collect();
        let quiet = self.on_change && before.is_some() && changed.is_empty();
        // The values of a quiet sample are those of the sample before: growth is over the last interval alone.
        self.known = Some(Known { at, values, shown });
        (!quiet).then_some(Told {
            time,
            elapsed,
            values: changed,
        })
    }
}
