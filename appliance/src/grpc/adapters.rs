//! `vnic.v1.AdapterService`.

use std::sync::Arc;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use vnic_backend::AdapterStatus;
use vnic_control::v1;

use super::errors::{Violations, blocking, from_nic, invalid};
use super::{adapter_macs, adapter_macs::Edit, convert, paging::Page, stored_adapters, watch};
use crate::access;
use crate::daemon::Context;
use crate::events::ControlEvent;
use crate::names;

/// The service.
pub struct Adapters(pub Arc<Context>);

/// The id in a resource name of a request.
fn id(name: &str) -> Result<String, Status> {
    names::id(names::ADAPTERS, name)
        .map(str::to_owned)
        .ok_or_else(|| {
            invalid(
                "name",
                format!("{name:?} is not of the form adapters/{{adapter}}"),
            )
        })
}

/// The path in a request of a field of [`vnic_backend::AdapterSpec`].
fn field(name: &str) -> String {
    match name {
        "name" => "adapter_id".to_owned(),
        "mac" => "adapter.macs".to_owned(),
        other => format!("adapter.{other}"),
    }
}

fn same(name: &str) -> String {
    name.to_owned()
}

/// An adapter with its traffic and its RDMA function. May block.
fn in_full(context: &Context, status: &AdapterStatus, traffic: Option<v1::AdapterTraffic>) -> v1::Adapter {
    let name = status.spec.name.as_str();
    // One that has been removed meanwhile has no function any more.
    let rdma = context.nic.rdma(name).ok().flatten();
    v1::Adapter {
        traffic: Some(traffic.unwrap_or_default()),
        rdma: rdma.map(|r| convert::rdma_function(name, &r)),
        ..convert::adapter(context, status)
    }
}

/// As [`in_full`], with the traffic as it is now.
fn now(context: &Context, status: &AdapterStatus) -> v1::Adapter {
    let samples = context.nic.counters();
    let traffic = convert::adapter_traffic(&samples).remove(status.spec.name.as_str());
    in_full(context, status, traffic)
}

impl Adapters {
    async fn edit_macs(
        &self,
        name: &str,
        macs: &[String],
        edit: Edit,
        by: String,
    ) -> Result<Response<v1::Adapter>, Status> {
        let (id, macs) = (id(name)?, adapter_macs::parse(macs)?);
        let context = self.0.clone();
        blocking(move || {
            context.nic.adapter(&id).map_err(|e| from_nic(e, same))?;
            adapter_macs::edit(&context, &id, &macs, edit, &by)?;
            let status = context.nic.adapter(&id).map_err(|e| from_nic(e, same))?;
            Ok(Response::new(now(&context, &status)))
        })
        .await?
    }
}

#[tonic::async_trait]
impl v1::adapter_service_server::AdapterService for Adapters {
    async fn list_adapters(
        &self,
        request: Request<v1::ListAdaptersRequest>,
    ) -> Result<Response<v1::ListAdaptersResponse>, Status> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token, 100, 1000)?;
        let context = self.0.clone();
        let all = blocking(move || context.nic.adapters()).await?;
        let (statuses, next_page_token) = page.cut(all, |a| a.spec.name.clone());
        let context = self.0.clone();
        let adapters = blocking(move || {
            let samples = context.nic.counters();
            let mut traffic = convert::adapter_traffic(&samples);
            let of = |s: &AdapterStatus| in_full(&context, s, traffic.remove(s.spec.name.as_str()));
            statuses.iter().map(of).collect()
        })
        .await?;
        Ok(Response::new(v1::ListAdaptersResponse {
            adapters,
            next_page_token,
        }))
    }

    async fn get_adapter(
        &self,
        request: Request<v1::GetAdapterRequest>,
    ) -> Result<Response<v1::Adapter>, Status> {
        let id = id(&request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let status = context.nic.adapter(&id).map_err(|e| from_nic(e, same))?;
            Ok(Response::new(now(&context, &status)))
        })
        .await?
    }

    async fn create_adapter(
        &self,
        request: Request<v1::CreateAdapterRequest>,
    ) -> Result<Response<v1::Adapter>, Status> {
        let request = request.into_inner();
        let context = self.0.clone();
        blocking(move || {
            let mut wrong = Violations::default();
            let adapter = request.adapter.unwrap_or_default();
            let spec = convert::adapter_spec(
                &context,
                &request.adapter_id,
                &adapter,
                &context.nic.adapters(),
                &mut wrong,
            );
            let spec = wrong.finish(spec)?;
            let status = stored_adapters::add(&context, spec).map_err(|e| from_nic(e, field))?;
            let name = &status.spec.name;
            if let Err(refused) = stored_adapters::keep(&context, name, &adapter) {
                // What cannot be stored is not there.
                let _ = context.nic.remove_adapter(name);
                context.registry.adapter_taken_back(name);
                return Err(refused);
            }
            Ok(Response::new(now(&context, &status)))
        })
        .await?
    }

    async fn delete_adapter(
        &self,
        request: Request<v1::DeleteAdapterRequest>,
    ) -> Result<Response<v1::DeleteAdapterResponse>, Status> {
        let id = id(&request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            context.nic.adapter(&id).map_err(|e| from_nic(e, same))?;
            stored_adapters::forget(&context, &id)?;
            context.nic.remove_adapter(&id).map_err(|e| from_nic(e, same))?;
            context.forget_configured(&id);
            Ok(Response::new(v1::DeleteAdapterResponse {}))
        })
        .await?
    }

    async fn restart_adapter(
        &self,
        request: Request<v1::RestartAdapterRequest>,
    ) -> Result<Response<v1::Adapter>, Status> {
        let by = access::who(&request);
        let id = id(&request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let status = context.registry.restart(&id).map_err(|e| from_nic(e, same))?;
            context
                .hub
                .record(ControlEvent::AdapterRestarted { adapter: id, by });
            Ok(Response::new(now(&context, &status)))
        })
        .await?
    }

    async fn add_mac_addresses(
        &self,
        request: Request<v1::AddMacAddressesRequest>,
    ) -> Result<Response<v1::Adapter>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.edit_macs(&request.name, &request.macs, Edit::Add, by).await
    }

    async fn remove_mac_addresses(
        &self,
        request: Request<v1::RemoveMacAddressesRequest>,
    ) -> Result<Response<v1::Adapter>, Status> {
        let by = access::who(&request);
        let request = request.into_inner();
        self.edit_macs(&request.name, &request.macs, Edit::Remove, by)
            .await
    }

    type WatchAdaptersStream = ReceiverStream<Result<v1::WatchAdaptersResponse, Status>>;

    async fn watch_adapters(
        &self,
        request: Request<v1::WatchAdaptersRequest>,
    ) -> Result<Response<Self::WatchAdaptersStream>, Status> {
        let name = request.into_inner().name;
        let only = if name.is_empty() { None } else { Some(id(&name)?) };
        if let Some(id) = only.clone() {
            let context = self.0.clone();
            blocking(move || context.nic.adapter(&id).map_err(|e| from_nic(e, same))).await??;
        }
        Ok(Response::new(watch::start(
            &self.0,
            only,
            watch::AdapterWatch::new(self.0.clone()),
        )))
    }
}
