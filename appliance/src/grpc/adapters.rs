//! `vnic.v1.AdapterService`.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response};
use vnic_backend::{AdapterStatus, MORE_MACS_MAX, MacAddr};
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{id, id_or_all};
use super::paging::page;
use super::{convert, watch};
use crate::access::{self, blocking};
use crate::check::{self, Violations};
use crate::control::{self, Control, Edit, Refused};
use crate::names::{self, ADAPTERS};
use crate::stored;

/// The service.
pub struct Adapters(pub Arc<Control>);

/// An adapter with its traffic and its RDMA function. May block.
fn in_full(control: &Control, status: &AdapterStatus, traffic: Option<v1::AdapterTraffic>) -> v1::Adapter {
    let name = status.spec.name.as_str();
    // An adapter that was removed meanwhile has no function.
    let rdma = control.nic.rdma(name).ok().flatten();
    v1::Adapter {
        traffic: Some(traffic.unwrap_or_default()),
        rdma: rdma.map(|r| convert::rdma_function(name, &r)),
        ..convert::adapter(control, status)
    }
}

/// [`in_full`] with the present traffic, and with what the driver has set.
fn now(control: &Control, status: &AdapterStatus) -> v1::Adapter {
    let samples = control.nic.counters();
    let traffic = convert::adapter_traffic(&samples).remove(status.spec.name.as_str());
    let driver = control.nic.ethernet_driver(&status.spec.name).ok().flatten();
    v1::Adapter {
        driver: driver.map(|driver| convert::ethernet_driver(&driver)),
        ..in_full(control, status, traffic)
    }
}

impl Adapters {
    async fn edit_macs(&self, name: &str, macs: &[String], edit: Edit, by: String) -> Answer<v1::Adapter> {
        let (id, macs) = (id(ADAPTERS, "name", name)?, addresses(macs)?);
        self.answer(move |adapters| adapters.edit_macs(&by, &id, &macs, edit))
            .await
    }

    /// Does `work` on an adapter; responds with its status after that.
    async fn answer(
        &self,
        work: impl FnOnce(control::Adapters<'_>) -> Result<AdapterStatus, Refused> + Send + 'static,
    ) -> Answer<v1::Adapter> {
        answer(&self.0, move |control| {
            let status = work(control::Adapters(control))?;
            Ok(now(control, &status))
        })
        .await
    }
}

/// Addresses of a request: each must be one that an adapter can have, and none may occur twice.
fn addresses(texts: &[String]) -> Result<Vec<MacAddr>, Violations> {
    let mut wrong = Violations::default();
    if texts.is_empty() || texts.len() > MORE_MACS_MAX {
        let n = texts.len();
        wrong.add("macs", format!("{n} addresses; allowed are 1 to {MORE_MACS_MAX}"));
    }
    let mut macs = Vec::new();
    // A request with too many addresses is refused as a whole; the others are not checked.
    for (i, text) in texts.iter().enumerate().take(MORE_MACS_MAX) {
        let field = format!("macs[{i}]");
        match wrong.check(field.clone(), check::mac(text)) {
            Some(mac) if macs.contains(&mac) => wrong.add(field, format!("{mac} is named twice")),
            Some(mac) => macs.push(mac),
            None => {}
        }
    }
    wrong.finish(Some(macs))
}

#[tonic::async_trait]
impl v1::adapter_service_server::AdapterService for Adapters {
    async fn list_adapters(
        &self,
        request: Request<v1::ListAdaptersRequest>,
    ) -> Answer<v1::ListAdaptersResponse> {
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let page = page!(request, "ListAdapters", [100, 1000])?;
            let (statuses, next) = page.cut(control.nic.adapters(), |a| a.spec.name.clone());
            let samples = control.nic.counters();
            let mut traffic = convert::adapter_traffic(&samples);
            let of = |s: &AdapterStatus| in_full(control, s, traffic.remove(s.spec.name.as_str()));
            let cut = (statuses.iter().map(of).collect(), next);
            let name = |adapter: &v1::Adapter| names::last(&adapter.name).to_owned();
            let (adapters, next_page_token) = page.fit(cut, name, v1::Adapter::encoded_len);
            Ok(v1::ListAdaptersResponse {
                adapters,
                next_page_token,
            })
        })
        .await
    }

    async fn get_adapter(&self, request: Request<v1::GetAdapterRequest>) -> Answer<v1::Adapter> {
        let id = id(ADAPTERS, "name", &request.into_inner().name)?;
        self.answer(move |adapters| adapters.get(&id)).await
    }

    async fn create_adapter(&self, request: Request<v1::CreateAdapterRequest>) -> Answer<v1::Adapter> {
        let request = request.into_inner();
        self.answer(move |adapters| {
            let mut wrong = Violations::default();
            let cores = &adapters.0.settings.nic.data_cores;
            let new = stored::adapters::read(&request.adapter.unwrap_or_default(), cores, &mut wrong);
            adapters.create(&request.adapter_id, &new, wrong)
        })
        .await
    }

    async fn update_adapter(&self, request: Request<v1::UpdateAdapterRequest>) -> Answer<v1::Adapter> {
        let request = request.into_inner();
        let asked = request.adapter.unwrap_or_default();
        let id = id(ADAPTERS, "adapter.name", &asked.name)?;
        self.answer(move |adapters| {
            let mut wrong = Violations::default();
            let cores = &adapters.0.settings.nic.data_cores;
            let new = stored::adapters::read(&asked, cores, &mut wrong);
            let fields = match request.update_mask.unwrap_or_default().paths {
                none if none.is_empty() => stored::adapters::set_in(&asked),
                named => named,
            };
            adapters.update(&id, (&asked.etag, &fields), &new, wrong)
        })
        .await
    }

    async fn delete_adapter(
        &self,
        request: Request<v1::DeleteAdapterRequest>,
    ) -> Answer<v1::DeleteAdapterResponse> {
        let request = request.into_inner();
        let id = id(ADAPTERS, "name", &request.name)?;
        answer(&self.0, move |control| {
            let adapters = control::Adapters(control);
            let last = now(control, &adapters.get(&id)?);
            adapters.remove(&id, &request.etag)?;
            Ok(v1::DeleteAdapterResponse { adapter: Some(last) })
        })
        .await
    }

    async fn restart_adapter(&self, request: Request<v1::RestartAdapterRequest>) -> Answer<v1::Adapter> {
        let by = access::who(&request);
        let id = id(ADAPTERS, "name", &request.into_inner().name)?;
        self.answer(move |adapters| adapters.restart(&by, &id)).await
    }

    async fn add_mac_addresses(&self, request: Request<v1::AddMacAddressesRequest>) -> Answer<v1::Adapter> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.edit_macs(&request.name, &request.macs, Edit::Add, by).await
    }

    async fn remove_mac_addresses(
        &self,
        request: Request<v1::RemoveMacAddressesRequest>,
    ) -> Answer<v1::Adapter> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.edit_macs(&request.name, &request.macs, Edit::Remove, by)
            .await
    }

    async fn begin_migration(
        &self,
        request: Request<v1::BeginMigrationRequest>,
    ) -> Answer<v1::MigrationDocument> {
        let by = access::who(&request);
        let id = id(ADAPTERS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let document = control::Moves(control).begin(&by, &id)?;
            Ok(stored::moves::message(&document))
        })
        .await
    }

    async fn prepare_migration(&self, request: Request<v1::PrepareMigrationRequest>) -> Answer<v1::Adapter> {
        use v1::prepare_migration_request::From;
        let by = access::who(&request);
        let request = request.into_inner();
        let target = id(ADAPTERS, "name", &request.name)?;
        let from = match request.from {
            Some(From::Source(source)) => control::From::Here(id(ADAPTERS, "source", &source)?),
            Some(From::Document(document)) => {
                control::From::Elsewhere(stored::moves::read(&document)?.into())
            }
            None => {
                let problem = "required, or a document: the adapter whose guest will move";
                return Err(Violations::one("source", problem).into());
            }
        };
        self.answer(move |adapters| control::Moves(adapters.0).prepare(&by, &target, from))
            .await
    }

    async fn hand_over(&self, request: Request<v1::HandOverRequest>) -> Answer<v1::Adapter> {
        let by = access::who(&request);
        let id = id(ADAPTERS, "name", &request.into_inner().name)?;
        self.answer(move |adapters| control::Moves(adapters.0).hand_over(&by, &id))
            .await
    }

    async fn cancel_migration(&self, request: Request<v1::CancelMigrationRequest>) -> Answer<v1::Adapter> {
        let by = access::who(&request);
        let id = id(ADAPTERS, "name", &request.into_inner().name)?;
        self.answer(move |adapters| control::Moves(adapters.0).cancel(&by, &id))
            .await
    }

    type WatchAdaptersStream = Stream<v1::WatchAdaptersResponse>;

    async fn watch_adapters(
        &self,
        request: Request<v1::WatchAdaptersRequest>,
    ) -> Answer<Self::WatchAdaptersStream> {
        let only = id_or_all(ADAPTERS, "name", &request.into_inner().name)?;
        if let Some(id) = only.clone() {
            let control = self.0.clone();
            blocking(move || control::Adapters(&control).get(&id).map(drop)).await??;
        }
        Ok(Response::new(watch::start(
            &self.0,
            only,
            watch::AdapterWatch::new(self.0.clone()),
        )))
    }
}
