//! `vnic.v1.PortService`.

use std::sync::Arc;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use vnic_backend::PortStatus;
use vnic_control::v1;

use super::errors::{Violations, blocking, from_nic, invalid};
use super::{convert, paging::Page, qos, teams, watch};
use crate::daemon::Context;
use crate::names;

/// The service.
pub struct Ports(pub Arc<Context>);

/// The id in a resource name of a request.
fn id(name: &str) -> Result<String, Status> {
    names::id(names::PORTS, name)
        .map(str::to_owned)
        .ok_or_else(|| invalid("name", format!("{name:?} is not of the form ports/{{port}}")))
}

/// The path in a request of a field of [`vnic_backend::PortSpec`].
fn field(kind: &str, name: &str) -> String {
    match name {
        "name" => "port_id".to_owned(),
        "kind" | "ifname" => format!("port.{kind}.ifname"),
        "queues" => format!("port.{kind}.queues"),
        other => format!("port.{other}"),
    }
}

fn same(name: &str) -> String {
    name.to_owned()
}

/// A port with its traffic. May block.
fn with_traffic(context: &Context, status: &PortStatus) -> v1::Port {
    let samples = context.nic.counters();
    v1::Port {
        traffic: Some(
            convert::port_traffic(&samples)
                .remove(status.spec.name.as_str())
                .unwrap_or_default(),
        ),
        ..with_statistics(context, status)
    }
}

/// A port with what is counted at its device.
fn with_statistics(context: &Context, status: &PortStatus) -> v1::Port {
    let mut port = convert::port(context, status);
    if let Some(device) = &mut port.device {
        device.statistics = convert::port_statistics(status);
    }
    port
}

#[tonic::async_trait]
impl v1::port_service_server::PortService for Ports {
    async fn list_ports(
        &self,
        request: Request<v1::ListPortsRequest>,
    ) -> Result<Response<v1::ListPortsResponse>, Status> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token, 100, 1000)?;
        let context = self.0.clone();
        let (all, samples) = blocking(move || (context.nic.ports(), context.nic.counters())).await?;
        let (statuses, next_page_token) = page.cut(all, |p| p.spec.name.clone());
        let mut traffic = convert::port_traffic(&samples);
        let ports = statuses
            .iter()
            .map(|status| v1::Port {
                traffic: Some(traffic.remove(status.spec.name.as_str()).unwrap_or_default()),
                ..with_statistics(&self.0, status)
            })
            .collect();
        Ok(Response::new(v1::ListPortsResponse {
            ports,
            next_page_token,
        }))
    }

    async fn get_port(&self, request: Request<v1::GetPortRequest>) -> Result<Response<v1::Port>, Status> {
        let id = id(&request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            let status = context.nic.port(&id).map_err(|e| from_nic(e, same))?;
            Ok(Response::new(with_traffic(&context, &status)))
        })
        .await?
    }

    async fn create_port(
        &self,
        request: Request<v1::CreatePortRequest>,
    ) -> Result<Response<v1::Port>, Status> {
        let request = request.into_inner();
        let context = self.0.clone();
        blocking(move || {
            let mut wrong = Violations::default();
            let port = request.port.unwrap_or_default();
            let spec = convert::port_spec(&context, &request.port_id, &port, &mut wrong);
            let mesh = match &port.uplink {
                Some(v1::port::Uplink::Mesh(mesh)) => super::mesh::mesh_spec(mesh, &mut wrong).map(Some),
                _ => Some(None),
            };
            let (spec, mesh) = wrong.finish(spec.zip(mesh))?;
            let kind = spec.kind.name();
            let added = super::mesh::add_port(&context, spec, mesh);
            let status = added.map_err(|e| from_nic(e, |name| field(kind, name)))?;
            qos::bring_back(&context, &status.spec.name);
            teams::port_made(&context, &status.spec.name);
            Ok(Response::new(with_traffic(&context, &status)))
        })
        .await?
    }

    async fn update_port(
        &self,
        request: Request<v1::UpdatePortRequest>,
    ) -> Result<Response<v1::Port>, Status> {
        let request = request.into_inner();
        let id = id(&request.name)?;
        let context = self.0.clone();
        blocking(move || {
            context.nic.port(&id).map_err(|e| from_nic(e, same))?;
            let mut wrong = Violations::default();
            let speed = match request.speed_mbps {
                None => {
                    wrong.add("speed_mbps", "required: there is nothing else to be changed");
                    None
                }
                Some(0) => Some(None),
                some => convert::speed(some, "speed_mbps", &mut wrong),
            };
            let speed = wrong.finish(speed)?;
            let status = context
                .nic
                .set_port_speed(&id, speed)
                .map_err(|e| from_nic(e, same))?;
            Ok(Response::new(with_traffic(&context, &status)))
        })
        .await?
    }

    async fn delete_port(
        &self,
        request: Request<v1::DeletePortRequest>,
    ) -> Result<Response<v1::DeletePortResponse>, Status> {
        let id = id(&request.into_inner().name)?;
        let context = self.0.clone();
        blocking(move || {
            context.nic.port(&id).map_err(|e| from_nic(e, same))?;
            teams::remove_port(&context, &id, || {
                qos::forget_port(&context, &id)?;
                let remove = || context.nic.remove_port(&id).map_err(|e| from_nic(e, same));
                context.meshes.remove(&id, remove)
            })?;
            context.forget_configured(&id);
            Ok(Response::new(v1::DeletePortResponse {}))
        })
        .await?
    }

    type WatchPortsStream = ReceiverStream<Result<v1::WatchPortsResponse, Status>>;

    async fn watch_ports(
        &self,
        request: Request<v1::WatchPortsRequest>,
    ) -> Result<Response<Self::WatchPortsStream>, Status> {
        let name = request.into_inner().name;
        let only = if name.is_empty() { None } else { Some(id(&name)?) };
        if let Some(id) = only.clone() {
            let context = self.0.clone();
            blocking(move || context.nic.port(&id).map_err(|e| from_nic(e, same))).await??;
        }
        Ok(Response::new(watch::start(
            &self.0,
            only,
            watch::PortWatch::new(self.0.clone()),
        )))
    }
}
