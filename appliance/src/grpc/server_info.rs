//! `vnic.v1.ServerService`.

use std::sync::Arc;

use tonic::{Request, Response};
use vnic_backend::{ADAPTERS_MAX, PORTS_MAX};
use vnic_control::v1;

use super::answer::{Answer, answer};
use crate::access::who;
use crate::control::{Control, LogLevel};
use crate::stored::values::{self, count};

/// The service.
pub struct Info(pub Arc<Control>);

#[tonic::async_trait]
impl v1::server_service_server::ServerService for Info {
    async fn get_server_info(&self, _request: Request<v1::GetServerInfoRequest>) -> Answer<v1::ServerInfo> {
        let responsive = self.0.pulse.beats().await.is_ok();
        answer(&self.0, move |control| {
            let settings = &control.settings;
            let (start_time, start) = control.life.started;
            Ok(v1::ServerInfo {
                version: crate::VERSION.to_owned(),
                git_revision: crate::GIT_REVISION.unwrap_or_default().to_owned(),
                pid: std::process::id(),
                start_time: Some(values::timestamp(start_time)),
                uptime: Some(values::duration(start.elapsed())),
                features: crate::FEATURES.iter().map(ToString::to_string).collect(),
                data_cores: settings.nic.data_cores.iter().map(|c| count(*c)).collect(),
                idle_spin: Some(values::duration(settings.nic.idle_spin)),
                responsive,
                socket_dir: settings.socket_dir.display().to_string(),
                state_dir: settings.state_dir.display().to_string(),
                control_endpoints: control.endpoints.control.clone(),
                metrics_url: control.endpoints.metrics_url.clone().unwrap_or_default(),
                config_file: settings
                    .config_file
                    .as_ref()
                    .map(|f| f.display().to_string())
                    .unwrap_or_default(),
                adapters: count(control.nic.adapters().len()),
                adapters_max: count(ADAPTERS_MAX),
                ports: count(control.nic.ports().len()),
                ports_max: count(PORTS_MAX),
            })
        })
        .await
    }

    async fn get_log_level(&self, _request: Request<v1::GetLogLevelRequest>) -> Answer<v1::LogLevel> {
        let filter = LogLevel(&self.0).get();
        Ok(Response::new(v1::LogLevel { filter }))
    }

    async fn set_log_level(&self, request: Request<v1::SetLogLevelRequest>) -> Answer<v1::LogLevel> {
        let by = who(&request);
        let filter = request.into_inner().filter;
        answer(&self.0, move |control| {
            let filter = LogLevel(control).set(&by, &filter)?;
            Ok(v1::LogLevel { filter })
        })
        .await
    }
}
