//! A daemon in this process, with clients.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt as _;
use vnic_appliance::config::Settings;
use vnic_appliance::daemon::Daemon;
use vnic_control::v1;
use vnic_control::v1::event_service_client::EventServiceClient;
use vnic_control::v1::fault_service_client::FaultServiceClient;

const VNICCTL: &str = env!("CARGO_BIN_EXE_vnicctl");

/// A daemon in this process.
pub struct Lab {
    pub daemon: Daemon,
    pub channel: Channel,
    pub dir: tempfile::TempDir,
}

impl Lab {
    pub async fn start(adapters: usize) -> Lab {
        let dir = tempfile::tempdir().expect("a directory");
        Lab::with(dir, |dir| super::settings(dir, adapters)).await
    }

    pub async fn with(dir: tempfile::TempDir, settings: impl FnOnce(&Path) -> Settings) -> Lab {
        let daemon = Daemon::start(settings(dir.path()))
            .await
            .expect("the daemon starts");
        let socket = dir.path().join("control.sock");
        let channel = Endpoint::from_shared(format!("unix:{}", socket.display()))
            .expect("an address")
            // Only so that a request that hangs does not hang the tests.
            .timeout(Duration::from_secs(60))
            .connect()
            .await
            .expect("a connection");
        Lab { daemon, channel, dir }
    }

    /// Ends the daemon and starts one in the same directory, with so many adapters.
    pub async fn restart(self, adapters: usize) -> Lab {
        let Lab { daemon, channel, dir } = self;
        drop(channel);
        daemon.shutdown().await;
        Lab::with(dir, |dir| super::settings(dir, adapters)).await
    }

    pub fn faults(&self) -> FaultServiceClient<Channel> {
        FaultServiceClient::new(self.channel.clone())
    }

    pub fn events(&self) -> EventServiceClient<Channel> {
        EventServiceClient::new(self.channel.clone())
    }

    pub async fn list(&self) -> Vec<v1::Fault> {
        let request = v1::ListFaultsRequest::default();
        let list = self.faults().list_faults(request).await;
        list.expect("a list").into_inner().faults
    }

    /// Runs `vnicctl`.
    pub async fn ctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(VNICCTL);
        let socket = self.dir.path().join("control.sock");
        command
            .env("VNIC_ENDPOINT", format!("unix:{}", socket.display()))
            .env("XDG_STATE_HOME", self.dir.path().join("home"))
            .args(arguments);
        tokio::task::spawn_blocking(move || command.output().expect("vnicctl"))
            .await
            .expect("vnicctl")
    }

    /// Standard output of a command that works.
    pub async fn said(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Standard error of a command that ends with this code.
    pub async fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.ctl(arguments).await;
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stderr)
    }

    pub async fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let all = [&["-o", "json"], arguments].concat();
        serde_json::from_str(&self.said(&all).await).expect("JSON")
    }

    pub async fn end(self) {
        drop(self.channel);
        self.daemon.shutdown().await;
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn fields(status: &Status) -> Vec<String> {
    let violations = status.get_details_bad_request().map(|d| d.field_violations);
    violations.into_iter().flatten().map(|v| v.field).collect()
}
