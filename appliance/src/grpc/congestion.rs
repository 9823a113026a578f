//! `vnic.v1.CongestionService`.

pub(super) mod fields;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use vnic_backend::{CongestionAlgorithm, Preset};
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{form, id_or_all, invalid};
use super::looks::{self, resource};
use super::paging::page;
use crate::access::{self, blocking};
use crate::control::{Congestion, CongestionNow, Control, Refused, Wish};
use crate::names::{self, ADAPTERS};

/// The service.
pub struct Slowing(pub Arc<Control>);

/// Adapter of a resource name in a request.
fn adapter(name: &str) -> Result<String, Status> {
    let of = name.strip_suffix("/congestion").unwrap_or_default();
    let id = names::id(ADAPTERS, of).map(str::to_owned);
    id.ok_or_else(|| invalid("name", form(name, "adapters/{adapter}/congestion")))
}

impl Slowing {
    /// Does `work` on congestion control of an adapter; responds with the state after that.
    async fn answer(
        &self,
        adapter: String,
        work: impl FnOnce(&Congestion<'_>, &str) -> Result<CongestionNow, Refused> + Send + 'static,
    ) -> Answer<v1::Congestion> {
        answer(&self.0, move |control| {
            let now = work(&Congestion(control), &adapter)?;
            Ok(fields::message(&adapter, &now))
        })
        .await
    }
}

/// Congestion control of all adapters. May block.
fn all(control: &Control) -> Vec<v1::Congestion> {
    let all = Congestion(control).list();
    all.iter()
        .map(|(adapter, now)| fields::message(adapter, now))
        .collect()
}

resource!(Congestion, WatchCongestionResponse { congestion }: |control| all(control));

#[tonic::async_trait]
impl v1::congestion_service_server::CongestionService for Slowing {
    async fn get_congestion(&self, request: Request<v1::GetCongestionRequest>) -> Answer<v1::Congestion> {
        let adapter = adapter(&request.into_inner().name)?;
        self.answer(adapter, |congestion, adapter| congestion.get(adapter))
            .await
    }

    async fn list_congestion(
        &self,
        request: Request<v1::ListCongestionRequest>,
    ) -> Answer<v1::ListCongestionResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListCongestion", [1000, 10_000])?;
        let control = self.0.clone();
        let all = blocking(move || all(&control)).await?;
        let (congestion, next_page_token) = page.cut(all, |c| c.name.clone());
        Ok(Response::new(v1::ListCongestionResponse {
            congestion,
            next_page_token,
        }))
    }

    async fn set_congestion(&self, request: Request<v1::SetCongestionRequest>) -> Answer<v1::Congestion> {
        let by = access::who(&request);
        let request = request.into_inner();
        let wish = Wish {
            algorithm: request.algorithm,
            preset: request.preset,
            program: request.program,
            parameters: request.parameters.into_iter().collect(),
            enable: (request.enable_reaction, request.enable_notification),
            disable: (request.disable_reaction, request.disable_notification),
        };
        let (adapter, etag) = (adapter(&request.name)?, request.etag);
        self.answer(adapter, move |congestion, adapter| {
            congestion.set(&by, adapter, &etag, &wish)
        })
        .await
    }

    async fn reset_congestion(&self, request: Request<v1::ResetCongestionRequest>) -> Answer<v1::Congestion> {
        let by = access::who(&request);
        let adapter = adapter(&request.into_inner().name)?;
        self.answer(adapter, move |congestion, adapter| congestion.reset(&by, adapter))
            .await
    }

    async fn list_congestion_presets(
        &self,
        _request: Request<v1::ListCongestionPresetsRequest>,
    ) -> Answer<v1::ListCongestionPresetsResponse> {
        let algorithm = |a: CongestionAlgorithm| v1::CongestionAlgorithm {
            name: a.name().to_owned(),
            help: a.help().to_owned(),
        };
        let preset = |p: Preset| v1::CongestionPreset {
            name: p.name().to_owned(),
            help: p.help().to_owned(),
            parameters: fields::of_preset(p),
        };
        Ok(Response::new(v1::ListCongestionPresetsResponse {
            algorithms: CongestionAlgorithm::ALL.map(algorithm).to_vec(),
            presets: Preset::ALL.map(preset).to_vec(),
        }))
    }

    async fn list_flows(&self, request: Request<v1::ListFlowsRequest>) -> Answer<v1::ListFlowsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListFlows", [1000, 10_000])?;
        let only = id_or_all(ADAPTERS, "adapter", &request.adapter)?;
        let control = self.0.clone();
        let all = blocking(move || Congestion(&control).flows(only.as_deref())).await??;
        let messages = all.iter().flat_map(|(adapter, own, of_guest)| {
            let own = own.iter().map(|flow| fields::flow(adapter, flow));
            own.chain(of_guest.iter().map(|flow| fields::guest_flow(adapter, flow)))
        });
        // Numbers of queue pairs have 24 bits.
        let key =
            |flow: &v1::CongestionFlow| format!("{}/{}/{:08}", flow.adapter, flow.peer, flow.queue_pair);
        let mut messages: Vec<_> = messages.collect();
        messages.sort_by_cached_key(key);
        let (flows, next_page_token) = page.cut(messages, key);
        Ok(Response::new(v1::ListFlowsResponse {
            flows,
            next_page_token,
        }))
    }

    type WatchCongestionStream = Stream<v1::WatchCongestionResponse>;

    async fn watch_congestion(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Answer<Self::WatchCongestionStream> {
        looks::watch::<v1::Congestion>(&self.0, request.into_inner(), |name| adapter(name).map(drop)).await
    }
}
