//! Counters by the names that users know.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tonic::Status;
use vnic_backend::counters::names::{Family, Instance, Kind, Name, Reading, SETS, Source};
use vnic_control::v1;

use super::super::errors::{COUNTED, form, invalid, not_found};
use crate::access::blocking;
use crate::control::{Control, Counters, Shown};
use crate::counters::baseline::Baseline;
use crate::counters::{NATIVE, Names, Owner, OwnerValues};
use crate::same::same;
use crate::stored::values;

/// Allowed time between the two samples of a rate.
const SAMPLING: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(10);

fn family(family: Family) -> v1::counter_set::Family {
    match family {
        Family::WinOf2 => v1::counter_set::Family::Winof2,
        Family::Mlx5 => v1::counter_set::Family::Mlx5,
        Family::Ethtool => v1::counter_set::Family::Ethtool,
        Family::NodeExporter => v1::counter_set::Family::NodeExporter,
    }
}

/// Family of a request; `None`: the native names.
fn wanted_family(wanted: i32) -> Result<Option<Family>, Status> {
    use v1::counter_set::Family as F;
    match F::try_from(wanted) {
        Ok(F::Unspecified | F::Native) => Ok(None),
        Ok(F::Winof2) => Ok(Some(Family::WinOf2)),
        Ok(F::Mlx5) => Ok(Some(Family::Mlx5)),
        Ok(F::Ethtool) => Ok(Some(Family::Ethtool)),
        Ok(F::NodeExporter) => Ok(Some(Family::NodeExporter)),
        Err(_) => Err(invalid("family", format!("{wanted} is not a family"))),
    }
}

same! { fn kind(Kind) -> v1::CounterKind { Counter, Gauge } }

fn definition(name: &Name) -> v1::CounterName {
    use v1::CounterAvailability as A;
    let availability = match name.source {
        Source::Is(_) | Source::Mean(..) => A::Available,
        Source::Rate(_) => A::Rate,
        Source::NotModelled(_) => A::NotModelled,
        Source::NotYet(_) => A::NotYet,
    };
    v1::CounterName {
        name: name.name.to_owned(),
        unit: name.unit.to_owned(),
        kind: kind(name.kind).into(),
        availability: availability.into(),
        source: name.text.to_owned(),
    }
}

same! { fn instance(Instance) -> v1::counter_set::Instance { Adapter, Queue, Priority, Port } }

fn message(names: Names, with_counters: bool) -> v1::CounterSet {
    let (of, instance, counters) = match names {
        Names::Native => (
            v1::counter_set::Family::Native,
            v1::counter_set::Instance::Unspecified,
            Vec::new(),
        ),
        Names::Set(set) => {
            let counters = match with_counters {
                true => set.names.iter().map(definition).collect(),
                false => Vec::new(),
            };
            (family(set.family), instance(set.instance), counters)
        }
    };
    v1::CounterSet {
        name: crate::names::of(crate::names::COUNTER_SETS, &names.id()),
        title: names.title().to_owned(),
        family: of.into(),
        instance: instance.into(),
        counters,
    }
}

/// Set of a name.
pub fn find(wanted: &str) -> Result<Names, Status> {
    Names::find(wanted).ok_or_else(|| {
        invalid(
            "counter_set",
            format!("there is no set {wanted:?}: ListCounterSets tells those that there are"),
        )
    })
}

/// Message of all sets, or of those of a request.
pub fn list(request: &v1::ListCounterSetsRequest) -> Result<v1::ListCounterSetsResponse, Status> {
    let native = v1::counter_set::Family::Native;
    let only = wanted_family(request.family)?;
    let sets: Vec<Names> = if request.counter_set.is_empty() {
        let all = [Names::Native].into_iter();
        all.chain(SETS.iter().copied().map(Names::Set)).collect()
    } else {
        vec![find(&request.counter_set)?]
    };
    let wanted = |names: &Names| match (names, only) {
        (Names::Native, None) => true,
        (Names::Native, Some(_)) => false,
        (Names::Set(set), Some(only)) => set.family == only,
        (Names::Set(_), None) => request.family != i32::from(native),
    };
    Ok(v1::ListCounterSetsResponse {
        counter_sets: sets
            .into_iter()
            .filter(wanted)
            .map(|names| message(names, request.with_counters))
            .collect(),
    })
}

/// Owner of a resource name.
pub fn owner(name: &str) -> Result<Owner, Status> {
    Owner::parse(name).ok_or_else(|| invalid("owner", form(name, COUNTED)))
}

/// Checks that the owner has counters of the set.
pub fn about(owner: &Owner, names: Names) -> Result<(), Status> {
    match names {
        Names::Set(set) if !owner.has(set) => {
            let whose = match set.instance {
                Instance::Port => "uplink ports",
                Instance::Priority => "adapters and uplink ports",
                _ => "adapters",
            };
            Err(invalid(
                "counter_set",
                format!("{:?} is about {whose}", set.title),
            ))
        }
        _ => Ok(()),
    }
}

/// Reads an owner's counters.
pub async fn values(control: &Arc<Control>, name: &str, owner: &Owner) -> Result<OwnerValues, Status> {
    let (control, wanted) = (control.clone(), owner.clone());
    let values = blocking(move || Counters(&control).values(&wanted)).await?;
    values.ok_or_else(|| not_found(format!("there is no {name}"), [("name", name.to_owned())]))
}

/// Baseline of a request; `None` without one.
pub fn baseline(control: &Control, bytes: &[u8]) -> Result<Option<Baseline>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let baseline = Counters(control).baseline(bytes);
    let wrong = || invalid("baseline", "it was not made by SnapshotCounters");
    baseline.map(Some).ok_or_else(wrong)
}

/// Checks a time span of a request.
pub fn span(
    field: &str,
    value: Option<prost_types::Duration>,
    range: &RangeInclusive<Duration>,
) -> Result<Option<Duration>, Status> {
    let Some(value) = value else { return Ok(None) };
    let span = values::span(value).filter(|span| range.contains(span));
    match span {
        Some(span) => Ok(Some(span)),
        None => Err(invalid(
            field,
            format!("{:?} to {:?} is allowed", range.start(), range.end()),
        )),
    }
}

/// Message of a value.
pub fn value(Shown { item, rate }: &Shown) -> v1::CounterValue {
    use v1::CounterAvailability as A;
    let (availability, value, why) = match item.reading {
        Reading::Value(value) => (A::Available, Some(value), ""),
        Reading::Grown(value) => (A::Rate, Some(value), ""),
        Reading::NotModelled(why) => (A::NotModelled, None, why),
        Reading::NotYet(why) => (A::NotYet, None, why),
    };
    v1::CounterValue {
        name: item.name.clone(),
        queue: item.queue.map(u32::from),
        priority: item.priority.map(u32::from),
        reason: item.reason.unwrap_or_default().to_owned(),
        unit: item.unit.to_owned(),
        kind: kind(item.kind).into(),
        availability: availability.into(),
        value,
        rate: *rate,
        why: why.to_owned(),
    }
}

/// Reads sets of one owner.
pub async fn read(
    control: &Arc<Control>,
    request: v1::ReadCounterSetsRequest,
) -> Result<v1::ReadCounterSetsResponse, Status> {
    let who = owner(&request.owner)?;
    let sets = match (request.counter_set.as_str(), wanted_family(request.family)?) {
        ("", None) => vec![Names::Native],
        ("", Some(family)) => Names::of_family(family, &who),
        (wanted, _) => vec![find(wanted)?],
    };
    sets.iter().try_for_each(|names| about(&who, *names))?;
    let sampling = span("sampling_period", request.sampling_period, &SAMPLING)?;
    let base = baseline(control, &request.baseline)?;

    let mut first = None;
    if let Some(period) = sampling {
        first = Some((values(control, &request.owner, &who).await?, Instant::now()));
        tokio::time::sleep(period).await;
    }
    let now = values(control, &request.owner, &who).await?;
    let reading = Counters::read(sets, first, now, base);
    let set = |(names, all): &(Names, Vec<Shown>)| v1::CounterSetValues {
        counter_set: crate::names::of(crate::names::COUNTER_SETS, &names.id()),
        title: names.title().to_owned(),
        owner: request.owner.clone(),
        values: all.iter().map(value).collect(),
    };
    Ok(v1::ReadCounterSetsResponse {
        sample_time: Some(values::timestamp(reading.time)),
        since: reading.since.map(values::timestamp),
        baseline_outdated: reading.outdated,
        sets: reading.sets.iter().map(set).collect(),
    })
}

/// Makes a baseline.
pub async fn snapshot(control: &Arc<Control>, name: &str) -> Result<v1::SnapshotCountersResponse, Status> {
    let who = owner(name)?;
    let now = values(control, name, &who).await?;
    let time = SystemTime::now();
    Ok(v1::SnapshotCountersResponse {
        baseline: Counters(control).snapshot(&now, time),
        time: Some(values::timestamp(time)),
    })
}

/// Default set of a stream.
pub const DEFAULT: &str = NATIVE;
