//! `vnic.v1.QosService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::{QOS_RATE_RANGE, QpRate};
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{form, id, invalid};
use super::looks::{self, resource};
use super::paging::page;
use crate::access::{self, blocking};
use crate::check::Violations;
use crate::control::{Control, Qos, QosNow, Refused};
use crate::events::Owner;
use crate::names::{self, ADAPTERS};
use crate::stored::qos as form;

/// The service.
pub struct Quality(pub Arc<Control>);

/// Owner of a resource name in a request.
fn owner(field: &str, name: &str) -> Result<Owner, Status> {
    let of = name.strip_suffix("/qos").unwrap_or_default();
    let adapter = names::id(ADAPTERS, of).map(|id| Owner::Adapter(id.to_owned()));
    let owner = adapter.or_else(|| names::id(names::PORTS, of).map(|id| Owner::Port(id.to_owned())));
    owner.ok_or_else(|| invalid(field, form(name, "adapters/{adapter}/qos or ports/{port}/qos")))
}

fn message(owner: &Owner, now: &QosNow) -> v1::Qos {
    let resource = match owner {
        Owner::Adapter(name) => names::of(ADAPTERS, name),
        Owner::Port(name) => names::of(names::PORTS, name),
        Owner::Nic => String::new(),
    };
    v1::Qos {
        name: names::qos(&resource),
        etag: now.etag.clone(),
        state: Some(form::state(&now.status)),
        warnings: now.warnings.clone(),
        ..form::message(&now.status.spec, &now.status.keys)
    }
}

impl Quality {
    /// Does `work` on the quality of service of an owner; responds with the state after that.
    async fn answer(
        &self,
        owner: Owner,
        work: impl FnOnce(&Qos<'_>, &Owner) -> Result<QosNow, Refused> + Send + 'static,
    ) -> Answer<v1::Qos> {
        answer(&self.0, move |control| {
            let now = work(&Qos(control), &owner)?;
            Ok(message(&owner, &now))
        })
        .await
    }
}

/// Quality of service of all owners. May block.
fn all(control: &Control) -> Vec<v1::Qos> {
    let all = Qos(control).list();
    all.iter().map(|(owner, now)| message(owner, now)).collect()
}

resource!(Qos, WatchQosResponse { qos }: |control| {
    let quiet = |qos| v1::Qos { state: None, ..qos };
    all(control).into_iter().map(quiet).collect()
});

#[tonic::async_trait]
impl v1::qos_service_server::QosService for Quality {
    async fn get_qos(&self, request: Request<v1::GetQosRequest>) -> Answer<v1::Qos> {
        let owner = owner("name", &request.into_inner().name)?;
        self.answer(owner, |qos, owner| qos.get(owner)).await
    }

    async fn list_qos(&self, request: Request<v1::ListQosRequest>) -> Answer<v1::ListQosResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListQos", [1000, 10_000])?;
        let control = self.0.clone();
        let messages = blocking(move || all(&control)).await?;
        let (qos, next_page_token) = page.cut(messages, |q: &v1::Qos| q.name.clone());
        Ok(Response::new(v1::ListQosResponse { qos, next_page_token }))
    }

    async fn update_qos(&self, request: Request<v1::UpdateQosRequest>) -> Answer<v1::Qos> {
        let by = access::who(&request);
        let request = request.into_inner();
        let asked = request.qos.unwrap_or_default();
        let fields = request.update_mask.unwrap_or_default().paths;
        let owner = owner("qos.name", &asked.name)?;
        self.answer(owner, move |qos, owner| {
            qos.update(&by, owner, (&asked.etag, &fields), |fields, spec, keys| {
                let mut wrong = Violations::default();
                form::take(fields, &asked, (spec, keys), &mut wrong);
                wrong.finish(Some(()))
            })
        })
        .await
    }

    async fn reset_qos(&self, request: Request<v1::ResetQosRequest>) -> Answer<v1::Qos> {
        let by = access::who(&request);
        let owner = owner("name", &request.into_inner().name)?;
        self.answer(owner, move |qos, owner| qos.reset(&by, owner)).await
    }

    async fn set_queue_pair_rate(
        &self,
        request: Request<v1::SetQueuePairRateRequest>,
    ) -> Answer<v1::SetQueuePairRateResponse> {
        let request = request.into_inner();
        let adapter = id(ADAPTERS, "adapter", &request.adapter)?;
        let mut wrong = Violations::default();
        if request.queue_pair > 0xff_ffff {
            let problem = format!("{} is out of range: 0 to 16777215", request.queue_pair);
            wrong.add("queue_pair", problem);
        }
        let (rate, range) = (request.rate_bps, QOS_RATE_RANGE);
        if rate != 0 && (!range.contains(&rate) || rate % 1000 != 0) {
            let (lo, hi) = (range.start(), range.end());
            let problem =
                format!("{rate} is out of range: 0 (no limit), or {lo} to {hi} bit/s in steps of 1000");
            wrong.add("rate_bps", problem);
        }
        // The conversion cannot fail: the range was checked.
        let kbps = wrong.finish(u32::try_from(rate / 1000).ok())?;
        answer(&self.0, move |control| {
            Qos(control).set_queue_pair_rate(&adapter, request.queue_pair, kbps)?;
            Ok(v1::SetQueuePairRateResponse {})
        })
        .await
    }

    async fn list_queue_pair_rates(
        &self,
        request: Request<v1::ListQueuePairRatesRequest>,
    ) -> Answer<v1::ListQueuePairRatesResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListQueuePairRates", [1000, 10_000])?;
        let adapter = id(ADAPTERS, "adapter", &request.adapter)?;
        let control = self.0.clone();
        let rates = blocking(move || Qos(&control).queue_pair_rates(&adapter)).await??;
        let rate = |r: &QpRate| v1::QueuePairRate {
            queue_pair: r.qp,
            rate_bps: u64::from(r.ceiling_kbps) * 1000,
            driver_rate_bps: u64::from(r.rate_kbps) * 1000,
        };
        // Numbers of queue pairs have 24 bits.
        let key = |r: &v1::QueuePairRate| format!("{:08}", r.queue_pair);
        let (rates, next_page_token) = page.cut(rates.iter().map(rate).collect(), key);
        Ok(Response::new(v1::ListQueuePairRatesResponse {
            rates,
            next_page_token,
        }))
    }

    type WatchQosStream = Stream<v1::WatchQosResponse>;

    async fn watch_qos(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchQosStream> {
        looks::watch::<v1::Qos>(&self.0, request.into_inner(), |name| {
            owner("name", name).map(drop)
        })
        .await
    }
}
