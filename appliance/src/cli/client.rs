//! Connection to the daemon, and text of its errors.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio_rustls::rustls::ClientConfig;
use tonic::Status;
use tonic::transport::{Endpoint, Uri};
use tonic_types::StatusExt as _;
use vnic_control::v1;

use super::Failure;
use super::rehearsal::{Channel, FEATURE};
use super::tls::{TlsArgs, connect};
use crate::access::code_name;
use crate::names;

/// Greatest response in bytes.
const RESPONSE_MAX: usize = 16 << 20;

/// Address of a daemon, and clients of its services.
pub struct Client {
    endpoint: Endpoint,
    /// Of an `https` endpoint.
    tls: Option<Arc<ClientConfig>>,
    shown: String,
    /// Whether changes are only checked.
    validates: bool,
}

impl Client {
    /// Parses `unix:PATH`, a path, or `https://ADDR:PORT`.
    pub fn new(text: &str, tls: &TlsArgs) -> Result<Client, Failure> {
        const ALLOWED: &str = "unix:PATH or https://HOST:PORT is allowed";
        let wrong = |why: &str| Failure::Usage(format!("--endpoint {text}: {why}"));
        if text.starts_with("http://") {
            return Err(wrong(
                "the daemon speaks TLS only over TCP: https://HOST:PORT with --tls-ca, --tls-cert and --tls-key",
            ));
        }
        if let Some(host) = text.strip_prefix("https://") {
            let uri: Uri = text.parse().map_err(|_| wrong(ALLOWED))?;
            // (TLS is the connector's, for tonic the stream is one without.)
            let endpoint = Endpoint::from_shared(format!("http://{host}")).map_err(|_| wrong(ALLOWED))?;
            return Ok(Client {
                endpoint: endpoint.origin(uri),
                tls: Some(tls.config()?),
                shown: text.to_owned(),
                validates: false,
            });
        }
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains("://") {
            return Err(wrong(ALLOWED));
        }
        let path = std::path::absolute(path).map_err(|e| wrong(&e.to_string()))?;
        let shown = format!("unix:{}", path.display());
        let endpoint = Endpoint::from_shared(shown.clone()).map_err(|_| wrong(ALLOWED))?;
        Ok(Client {
            endpoint,
            tls: None,
            shown,
            validates: false,
        })
    }

    /// A client whose changes are only checked. A daemon that would carry them out is refused.
    pub async fn validating(mut self) -> Result<Client, Failure> {
        let info = v1::GetServerInfoRequest {};
        let info = self.server().await?.get_server_info(info).await?.into_inner();
        self.validates = info.features.iter().any(|feature| feature == FEATURE);
        match self.validates {
            true => Ok(self),
            false => Err(Failure::Failed(format!(
                "vnicd {} does not know --validate-only, and would carry it out: nothing was asked",
                info.version
            ))),
        }
    }

    /// Connects.
    pub async fn channel(&self) -> Result<Channel, Failure> {
        let (channel, hint) = match self.tls.clone() {
            None => (self.endpoint.connect().await, "may you use its socket"),
            Some(config) => {
                let connector = tower::service_fn(move |uri| {
                    let stream = connect(config.clone(), uri);
                    async { Ok::<_, io::Error>(TokioIo::new(stream.await?)) }
                });
                let channel = self.endpoint.connect_with_connector(connector).await;
                (channel, "do the CAs know the certificates")
            }
        };
        let validates = self.validates;
        let channel = channel.map(|inner| Channel { inner, validates });
        channel.map_err(|error| {
            let cause = cause(&error);
            Failure::Failed(format!(
                "cannot reach vnicd at {}: {cause}; is it running there, and {hint}? (--endpoint or VNIC_ENDPOINT names another place)",
                self.shown
            ))
        })
    }

    /// Whether the daemon is on this machine: the endpoint is a Unix socket.
    pub fn is_local(&self) -> bool {
        self.tls.is_none()
    }

    /// Endpoint as the user wrote it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Resource name of `vf0`, `p0` or `adapters/vf0`: adapters and ports have one namespace.
    pub async fn owner(&self, name: &str) -> Result<String, Failure> {
        if name.contains('/') {
            return Ok(name.to_owned());
        }
        let request = v1::GetPortRequest {
            name: names::of(names::PORTS, name),
        };
        match self.ports().await?.get_port(request).await {
            Ok(port) => Ok(port.into_inner().name),
            // If there is no such adapter either, the next service reports it.
            Err(_) => Ok(names::of(names::ADAPTERS, name)),
        }
    }

    /// [`Client::owner`] of an adapter or port that there is.
    pub async fn present(&self, name: &str) -> Result<String, Failure> {
        let owner = self.owner(name).await?;
        if name.contains('/') || names::id(names::ADAPTERS, &owner).is_none() {
            return Ok(owner);
        }
        let request = v1::GetAdapterRequest { name: owner.clone() };
        match self.adapters().await?.get_adapter(request).await {
            Err(status) if status.code() == tonic::Code::NotFound => Err(Failure::Failed(format!(
                "there is no adapter and no port {name}: see vnicctl adapter list and vnicctl port list"
            ))),
            _ => Ok(owner),
        }
    }

    /// [`Client::owner`] for several names.
    pub async fn owners(&self, all: &[String]) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        for name in all {
            found.push(self.owner(name).await?);
        }
        Ok(found)
    }
}

/// A client of each service, on a connection of its own.
macro_rules! clients {
    ($($name:ident: $module:ident::$client:ident,)*) => {
        impl Client {
            $(pub async fn $name(&self) -> Result<v1::$module::$client<Channel>, Failure> {
                let channel = self.channel().await?;
                Ok(v1::$module::$client::new(channel).max_decoding_message_size(RESPONSE_MAX))
            })*
        }
    };
}

clients! {
    adapters: adapter_service_client::AdapterServiceClient,
    ports: port_service_client::PortServiceClient,
    teams: team_service_client::TeamServiceClient,
    subnet: subnet_service_client::SubnetServiceClient,
    switch: switch_service_client::SwitchServiceClient,
    counters: counter_service_client::CounterServiceClient,
    captures: capture_service_client::CaptureServiceClient,
    faults: fault_service_client::FaultServiceClient,
    oids: oid_service_client::OidServiceClient,
    events: event_service_client::EventServiceClient,
    qos: qos_service_client::QosServiceClient,
    clock: clock_service_client::ClockServiceClient,
    config: config_service_client::ConfigServiceClient,
    congestion: congestion_service_client::CongestionServiceClient,
    access_lists: access_list_service_client::AccessListServiceClient,
    mirrors: mirror_service_client::MirrorServiceClient,
    rdma: rdma_service_client::RdmaServiceClient,
    registry: registry_service_client::RegistryServiceClient,
    nvconfig: nv_config_service_client::NvConfigServiceClient,
    server: server_service_client::ServerServiceClient,
}

/// Resource name of an adapter or port from a name or a resource name.
pub fn resource(collection: &str, name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        names::of(collection, name)
    }
}

/// Innermost source of an error.
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Text of an error: the message, and each wrong field.
pub fn explain(status: &Status) -> String {
    let mut text = String::new();
    let details = status.get_error_details();
    let code = code_name(status.code() as usize);
    match details.bad_request() {
        Some(request) if !request.field_violations.is_empty() => {
            let _ = writeln!(text, "vnicctl: refused ({code}):");
            for violation in &request.field_violations {
                let _ = writeln!(text, "  {}: {}", violation.field, violation.description);
            }
        }
        _ => {
            let _ = writeln!(text, "vnicctl: refused ({code}): {}", status.message());
        }
    }
    text
}
