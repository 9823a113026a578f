//! The control interface: gRPC package `vnic.v1` on a Unix socket and, on request, over TCP with mutual TLS, with health
//! and reflection. Every request passes the gate of [`crate::access`].

mod access_lists;
mod adapters;
mod answer;
mod captures;
mod clock;
mod config;
mod congestion;
mod connections;
mod convert;
mod counters;
mod errors;
mod events;
mod faults;
mod looks;
mod mesh;
mod mirrors;
mod nvconfig;
mod oid;
mod paging;
mod ports;
mod qos;
mod queue_pairs;
mod rdma;
mod recordings;
mod registry;
mod scenarios;
mod server_info;
mod subnet;
mod switch;
mod teams;
mod verbs_faults;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tonic_reflection::pb as reflection;
use tonic_reflection::server::Builder;
use vnic_control::{FILE_DESCRIPTOR_SET, v1};

use crate::access::{self, Gate, Live, Meter, Tls};
use crate::control::Control;
use crate::events::Tell;
use crate::panics;
use answer::RESPONSE_MAX;
pub(crate) use recordings::whole;

/// Greatest request in bytes.
const REQUEST_MAX: usize = 1 << 20;
/// Greatest number of concurrent requests and streams of a connection.
const STREAMS_MAX: u32 = 128;

/// Services: the module of the generated server, the server, and what serves.
macro_rules! services {
    ($($module:ident::$server:ident: $service:expr,)+) => {
        /// Names of the services, for health.
        const SERVICES: &[&str] = &[$(v1::$module::SERVICE_NAME),+];

        /// Adds all services, with limits for their messages.
        fn add_services(routes: Routes, control: &Arc<Control>) -> Routes {
            routes$(.add_service(
                v1::$module::$server::new($service(control.clone()))
                    .max_decoding_message_size(REQUEST_MAX)
                    .max_encoding_message_size(RESPONSE_MAX),
            ))+
        }
    };
}

services! {
    access_list_service_server::AccessListServiceServer: access_lists::AccessLists,
    adapter_service_server::AdapterServiceServer: adapters::Adapters,
    capture_service_server::CaptureServiceServer: captures::Captures,
    clock_service_server::ClockServiceServer: clock::TheClock,
    config_service_server::ConfigServiceServer: config::Config,
    congestion_service_server::CongestionServiceServer: congestion::Slowing,
    counter_service_server::CounterServiceServer: counters::Counters,
    event_service_server::EventServiceServer: events::Events,
    fault_service_server::FaultServiceServer: faults::Faults,
    mirror_service_server::MirrorServiceServer: mirrors::Mirrors,
    oid_service_server::OidServiceServer: oid::Oids,
    port_service_server::PortServiceServer: ports::Ports,
    qos_service_server::QosServiceServer: qos::Quality,
    rdma_service_server::RdmaServiceServer: rdma::Rdma,
    nv_config_service_server::NvConfigServiceServer: nvconfig::NvConfig,
    registry_service_server::RegistryServiceServer: registry::Registry,
    server_service_server::ServerServiceServer: server_info::Info,
    subnet_service_server::SubnetServiceServer: subnet::Subnets,
    switch_service_server::SwitchServiceServer: switch::EmbeddedSwitch,
    team_service_server::TeamServiceServer: teams::Together,
}

/// Reporter of the daemon's state to clients of `grpc.health.v1.Health`.
pub struct Health(HealthReporter);

impl Health {
    /// Sets whether the services are `SERVING`: whether all sockets of the configuration listen.
    pub async fn set(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for service in SERVICES.iter().chain(&[""]) {
            self.0.set_service_status(*service, status).await;
        }
    }
}

/// Sink for events of the control interface.
pub fn tell(control: &Arc<Control>) -> Tell {
    let control = control.clone();
    Arc::new(move |event| control.hub.record(event))
}

/// Serves until the daemon ends; `meter` counts the requests.
pub async fn serve(
    control: &Arc<Control>,
    unix: UnixListener,
    tcp: Option<(TcpListener, Arc<Tls>)>,
    live: &Arc<Live>,
    meter: Arc<Meter>,
) -> (Vec<JoinHandle<()>>, Health) {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let health = Health(reporter);
    health.set(false).await;

    let mut routes = add_services(Routes::new(health_service), control);
    let described = || {
        [
            FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            reflection::v1::FILE_DESCRIPTOR_SET,
            reflection::v1alpha::FILE_DESCRIPTOR_SET,
        ]
        .into_iter()
        .fold(
            Builder::configure(),
            Builder::register_encoded_file_descriptor_set,
        )
    };
    // Clients in Python know the older version only.
    match (described().build_v1(), described().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => routes = routes.add_service(v1).add_service(v1alpha),
        // The build makes the descriptors, and a test decodes them.
        (Err(error), _) | (_, Err(error)) => tracing::error!("gRPC reflection is off: {error}"),
    }

    let tell = tell(control);
    let gate = Gate::new(tell.clone(), meter);
    let builder = || {
        Server::builder()
            .layer(gate.clone())
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(20)))
    };
    let done = |what: &'static str, result: Result<(), tonic::transport::Error>| {
        if let Err(error) = result {
            tracing::error!("control interface ({what}): {error}");
        }
    };
    let mut tasks = Vec::new();
    let (router, ended) = (builder().add_routes(routes.clone()), control.life.ended());
    let incoming = access::unix(unix, live.clone());
    tasks.push(panics::spawn("grpc-unix", async move {
        done("unix", router.serve_with_incoming_shutdown(incoming, ended).await);
    }));
    if let Some((listener, tls)) = tcp {
        let (router, ended) = (builder().add_routes(routes), control.life.ended());
        let incoming = access::mutual_tls(listener, tls, live.clone(), tell);
        tasks.push(panics::spawn("grpc-tcp", async move {
            done("tcp", router.serve_with_incoming_shutdown(incoming, ended).await);
        }));
    }
    (tasks, health)
}
