//! `vnic.v1.PortService`.

use std::sync::Arc;

use tonic::{Request, Response};
use vnic_backend::{PortSpec, PortStatus, StormControl};
use vnic_control::v1;

use super::answer::{Answer, Stream, answer};
use super::errors::{id, id_or_all};
use super::{convert, paging::page, watch};
use crate::access::blocking;
use crate::check::Violations;
use crate::control::{self, Control};
use crate::names::PORTS;
use crate::stored;

/// The service.
pub struct Ports(pub Arc<Control>);

/// Message of a port with its traffic. May block.
fn with_traffic(control: &Control, status: &PortStatus) -> v1::Port {
    let samples = control.nic.counters();
    v1::Port {
        traffic: Some(
            convert::port_traffic(&samples)
                .remove(status.spec.name.as_str())
                .unwrap_or_default(),
        ),
        ..with_statistics(control, status)
    }
}

/// Message of a port with the statistics of its device.
fn with_statistics(control: &Control, status: &PortStatus) -> v1::Port {
    let mut port = convert::port(control, status);
    if let Some(device) = &mut port.device {
        device.statistics = convert::port_statistics(status);
    }
    if let Some(lldp) = &status.lldp {
        let c = lldp.counters;
        port.lldp_neighbors = lldp.neighbours.iter().map(convert::lldp_neighbor).collect();
        port.lldp_problem = lldp.problem.clone().unwrap_or_default();
        port.lldp_counters = Some(v1::LldpCounters {
            sent: c.sent,
            received: c.received,
            errors: c.errors,
            discarded: c.discarded,
            ageouts: c.ageouts,
        });
        port.dcbx_state = lldp.dcbx.as_ref().map(convert::dcbx_state);
    }
    port
}

#[tonic::async_trait]
impl v1::port_service_server::PortService for Ports {
    async fn list_ports(&self, request: Request<v1::ListPortsRequest>) -> Answer<v1::ListPortsResponse> {
        let request = request.into_inner();
        let page = page!(request, "ListPorts", [100, 1000])?;
        let control = self.0.clone();
        let (all, samples) = blocking(move || (control.nic.ports(), control.nic.counters())).await?;
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

    async fn get_port(&self, request: Request<v1::GetPortRequest>) -> Answer<v1::Port> {
        let id = id(PORTS, "name", &request.into_inner().name)?;
        answer(&self.0, move |control| {
            let status = control::Ports(control).get(&id)?;
            Ok(with_traffic(control, &status))
        })
        .await
    }

    async fn create_port(&self, request: Request<v1::CreatePortRequest>) -> Answer<v1::Port> {
        let request = request.into_inner();
        answer(&self.0, move |control| {
            let mut wrong = Violations::default();
            let port = request.port.unwrap_or_default();
            let cores = &control.settings.nic.data_cores;
            let new = stored::ports::read(&request.port_id, &port, cores, &mut wrong);
            let (spec, mesh) = wrong.finish(new)?;
            let status = control::Ports(control).create(spec, mesh, true)?;
            Ok(with_traffic(control, &status))
        })
        .await
    }

    async fn update_port(&self, request: Request<v1::UpdatePortRequest>) -> Answer<v1::Port> {
        let request = request.into_inner();
        let id = id(PORTS, "name", &request.name)?;
        answer(&self.0, move |control| {
            let ports = control::Ports(control);
            let spec = ports.get(&id)?.spec;
            let mut wrong = Violations::default();
            let asked = (
                request.speed_mbps,
                request.storm_broadcast_pps,
                request.storm_unknown_unicast_pps,
            );
            if asked == (None, None, None)
                && request.bridge.is_none()
                && request.lldp.is_none()
                && request.dcbx.is_none()
            {
                let fields =
                    "one of speed_mbps, storm_broadcast_pps, storm_unknown_unicast_pps, bridge, lldp, dcbx";
                wrong.add("speed_mbps", format!("required: {fields}"));
            }
            // Absent: as it is; 0: no limit.
            let mut value = |asked, is, field, check: fn(_, &str, &mut Violations) -> _| match asked {
                None => Some(is),
                Some(0) => Some(None),
                some => check(some, field, &mut wrong),
            };
            let speed = value(asked.0, spec.speed_mbps, "speed_mbps", stored::ports::speed);
            let check = stored::ports::storm;
            let broadcast = value(asked.1, spec.storm.broadcast_pps, "storm_broadcast_pps", check);
            let unknown = value(
                asked.2,
                spec.storm.unknown_unicast_pps,
                "storm_unknown_unicast_pps",
                check,
            );
            let bridge = match request.bridge.as_deref() {
                None => Some(spec.bridge.clone()),
                some => stored::ports::bridge(some, "bridge", &mut wrong),
            };
            let lldp = match request.lldp {
                None => Some(spec.lldp),
                Some(mode) => stored::ports::lldp(mode, "lldp", &mut wrong),
            };
            let dcbx = match &request.dcbx {
                None => Some(spec.dcbx.clone()),
                Some(wanted) => stored::ports::dcbx(wanted, "dcbx", &mut wrong),
            };
            let all = speed.zip(bridge).zip(lldp.zip(dcbx)).zip(broadcast.zip(unknown));
            let (((speed_mbps, bridge), (lldp, dcbx)), (broadcast_pps, unknown_unicast_pps)) =
                wrong.finish(all)?;
            let storm = StormControl {
                broadcast_pps,
                unknown_unicast_pps,
            };
            let wanted = PortSpec {
                speed_mbps,
                storm,
                bridge,
                lldp,
                dcbx,
                ..spec
            };
            let status = ports.set(&request.etag, wanted)?;
            Ok(with_traffic(control, &status))
        })
        .await
    }

    async fn delete_port(&self, request: Request<v1::DeletePortRequest>) -> Answer<v1::DeletePortResponse> {
        let request = request.into_inner();
        let id = id(PORTS, "name", &request.name)?;
        answer(&self.0, move |control| {
            let ports = control::Ports(control);
            let port = ports.get(&id).ok().map(|last| with_traffic(control, &last));
            ports.remove(&id, &request.etag)?;
            Ok(v1::DeletePortResponse { port })
        })
        .await
    }

    type WatchPortsStream = Stream<v1::WatchPortsResponse>;

    async fn watch_ports(&self, request: Request<v1::WatchPortsRequest>) -> Answer<Self::WatchPortsStream> {
        let only = id_or_all(PORTS, "name", &request.into_inner().name)?;
        if let Some(id) = only.clone() {
            let control = self.0.clone();
            blocking(move || control::Ports(&control).get(&id).map(drop)).await??;
        }
        Ok(Response::new(watch::start(
            &self.0,
            only,
            watch::PortWatch::new(self.0.clone()),
        )))
    }
}
