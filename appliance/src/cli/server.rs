//! `vnicctl server` and `vnicctl health`.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use vnic_control::v1;

use super::args::ServerVerb;
use super::client::Client;
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, config};

/// Runs a command.
pub async fn run(verb: ServerVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut server = client.server().await?;
    let level = match verb {
        ServerVerb::Info => {
            let info = server.get_server_info(v1::GetServerInfoRequest {}).await?;
            return out.answer("ServerInfo", info, facts);
        }
        ServerVerb::Reload => return config::reload(client, out).await,
        ServerVerb::LogLevel { filter: None } => server.get_log_level(v1::GetLogLevelRequest {}).await?,
        ServerVerb::LogLevel { filter: Some(filter) } => {
            server.set_log_level(v1::SetLogLevelRequest { filter }).await?
        }
    };
    out.answer("LogLevel", level, |level| format!("{}\n", level.filter))
}

fn facts(info: &v1::ServerInfo) -> String {
    let version = match info.git_revision.as_str() {
        "" => info.version.clone(),
        git => format!("{} ({git})", info.version),
    };
    let cores: Vec<String> = info.data_cores.iter().map(ToString::to_string).collect();
    let answer = if info.responsive {
        ""
    } else {
        " (not all of them answer!)"
    };
    let mut facts = Facts::default();
    facts
        .add("version", version)
        .add("pid", info.pid.to_string())
        .add("started", text::time(info.start_time))
        .add("uptime", text::span(info.uptime))
        .add("data cores", format!("{}{answer}", cores.join(" ")))
        .add("idle spin", text::span(info.idle_spin))
        .add("adapters", format!("{} of {}", info.adapters, info.adapters_max))
        .add("ports", format!("{} of {}", info.ports, info.ports_max))
        .add("sockets", info.socket_dir.clone())
        .add("state", info.state_dir.clone())
        .add("control", info.control_endpoints.join(" "))
        .add("metrics", info.metrics_url.clone())
        .add("configuration", info.config_file.clone())
        .add("features", info.features.join(" "));
    facts.finish()
}

/// Overall health.
async fn serving(client: &Client) -> Result<ServingStatus, Failure> {
    let mut service = HealthClient::new(client.channel().await?);
    let request = HealthCheckRequest {
        service: String::new(),
    };
    Ok(service.check(request).await?.into_inner().status())
}

/// Whether the overall health is SERVING.
pub async fn is_serving(client: &Client) -> Result<bool, Failure> {
    Ok(serving(client).await? == ServingStatus::Serving)
}

/// Prints the overall health; each status but SERVING is a failure.
pub async fn health(client: &Client, out: &Output) -> Result<(), Failure> {
    let status = serving(client).await?;
    let word = match status {
        ServingStatus::Serving => "serving",
        ServingStatus::NotServing => "not serving",
        ServingStatus::Unknown | ServingStatus::ServiceUnknown => "unknown",
    };
    out.value(&serde_json::json!({ "status": status.as_str_name() }), || {
        format!("{word}\n")
    })?;
    if status == ServingStatus::Serving {
        Ok(())
    } else {
        Err(Failure::Failed(format!("the daemon is {word}")))
    }
}
