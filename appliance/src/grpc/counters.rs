//! `vnic.v1.CounterService`: each counter of the data path's table, and counters by the names that users know.

mod sets;
mod watch;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::Sample;
use vnic_backend::counters::{HistogramSample, Scope, all};
use vnic_control::v1;

use super::answer::{Answer, Stream};
use super::errors::{COUNTED, form, invalid};
use super::paging::page;
use crate::access::blocking;
use crate::control::Control;
use crate::metrics::naming;
use crate::names;
use crate::same::same;

pub(super) use sets::span;

/// The service.
pub struct Counters(pub Arc<Control>);

same! { fn scope(Scope) -> v1::counter::Scope {
    AdapterQueue, AdapterDrop, Port, PortDrop, Mesh, Rdma, Core, AdapterPriority, PortPriority, AdapterLink, PortLink
} }

fn collection(scope: Scope) -> &'static str {
    match naming::owner(scope) {
        "adapter" => names::ADAPTERS,
        "port" => names::PORTS,
        _ => names::CORES,
    }
}

/// Message of a counter.
fn counter(sample: &Sample) -> v1::Counter {
    v1::Counter {
        name: sample.def.name.to_owned(),
        owner: names::of(collection(sample.def.scope), &sample.owner),
        scope: scope(sample.def.scope).into(),
        labels: naming::labels(sample)
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        metric: naming::metric(sample.def),
        help: sample.def.help.to_owned(),
        value: sample.value,
    }
}

/// Message of a histogram.
fn histogram(sample: HistogramSample) -> v1::Histogram {
    let HistogramSample { def, owner, values } = sample;
    v1::Histogram {
        name: def.name.to_owned(),
        owner: names::of(collection(def.scope), &owner),
        metric: naming::histogram(def),
        help: def.help.to_owned(),
        unit: def.unit.to_owned(),
        bounds: def.bounds(values.buckets.len()).collect(),
        counts: values.buckets,
        sum: values.sum,
    }
}

/// Checks the owner that a list is limited to, which may be empty.
fn owner_form(owner: &str) -> Result<(), Status> {
    let collections = [names::ADAPTERS, names::PORTS, names::CORES];
    match owner.is_empty() || collections.iter().any(|c| names::id(c, owner).is_some()) {
        true => Ok(()),
        false => Err(invalid("owner", form(owner, COUNTED))),
    }
}

#[tonic::async_trait]
impl v1::counter_service_server::CounterService for Counters {
    async fn list_counters(
        &self,
        request: Request<v1::ListCountersRequest>,
    ) -> Answer<v1::ListCountersResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListCounters", [1000, 5000])?;
        let owner = request.owner.as_str();
        owner_form(owner)?;
        let wanted = request.counter_name.as_str();
        if !wanted.is_empty() && all().all(|def| def.name != wanted) {
            let problem = format!("no counter has the name {wanted:?}; without a name all are listed");
            return Err(invalid("counter_name", problem));
        }
        let control = self.0.clone();
        let mut samples = blocking(move || control.nic.counters()).await?;
        let owner_id = names::last(owner);
        samples.retain(|s| {
            (owner.is_empty() || (s.owner == owner_id && owner.starts_with(collection(s.def.scope))))
                && (request.counter_name.is_empty() || s.def.name == request.counter_name)
                && !(request.nonzero && s.value == 0)
        });
        let (samples, next_page_token) = page.cut(samples, |s| {
            format!(
                "{}/{} {} {}{:05} {}",
                collection(s.def.scope),
                s.owner,
                s.def.name,
                if s.priority.is_some() { "priority" } else { "" },
                s.queue.or(s.priority.map(u16::from)).unwrap_or_default(),
                s.reason.unwrap_or_default()
            )
        });
        Ok(Response::new(v1::ListCountersResponse {
            counters: samples.iter().map(counter).collect(),
            next_page_token,
        }))
    }

    async fn list_histograms(
        &self,
        request: Request<v1::ListHistogramsRequest>,
    ) -> Answer<v1::ListHistogramsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListHistograms", [1000, 5000])?;
        owner_form(&request.owner)?;
        let control = self.0.clone();
        let samples = blocking(move || control.nic.histograms()).await?;
        let mut histograms: Vec<_> = samples.into_iter().map(histogram).collect();
        histograms.retain(|h| request.owner.is_empty() || h.owner == request.owner);
        let (histograms, next_page_token) = page.cut(histograms, |h| format!("{} {}", h.owner, h.name));
        Ok(Response::new(v1::ListHistogramsResponse {
            histograms,
            next_page_token,
        }))
    }

    async fn list_counter_sets(
        &self,
        request: Request<v1::ListCounterSetsRequest>,
    ) -> Answer<v1::ListCounterSetsResponse> {
        sets::list(&request.into_inner()).map(Response::new)
    }

    async fn read_counter_sets(
        &self,
        request: Request<v1::ReadCounterSetsRequest>,
    ) -> Answer<v1::ReadCounterSetsResponse> {
        let answer = sets::read(&self.0, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn snapshot_counters(
        &self,
        request: Request<v1::SnapshotCountersRequest>,
    ) -> Answer<v1::SnapshotCountersResponse> {
        let answer = sets::snapshot(&self.0, &request.into_inner().owner).await?;
        Ok(Response::new(answer))
    }

    type WatchCountersStream = Stream<v1::WatchCountersResponse>;

    async fn watch_counters(
        &self,
        request: Request<v1::WatchCountersRequest>,
    ) -> Answer<Self::WatchCountersStream> {
        let wish = watch::Wish::new(&self.0, request.into_inner())?;
        let stream = watch::start(self.0.clone(), wish).await?;
        Ok(Response::new(stream))
    }
}
