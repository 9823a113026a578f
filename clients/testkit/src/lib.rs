//! Failures on demand for tests of RDMA programs: a NIC of its own for a test, rules and scenarios, and a report of what really
//! happened to each work request.
//!
//! ```no_run
//! let nic = vnic_testkit::Setup::default().start()?;
//! let recorder = nic.record()?;
//! let scenario = nic.play("port-flap", &[("nic", "vf0")])?;
//! assert!(nic.command(&["vf0", "vf1"], "./my-program").status()?.success());
//! scenario.wait()?;
//! let report = recorder.stop()?;
//! assert!(report.lies().is_empty(), "{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Setup::start`] starts `vnicd` in a directory of its own, no root rights needed; [`Setup::connect`] takes one that runs. Calls block.
//! What a test has made (rules, scenarios, a recording, a daemon) ends with the value that stands for it, also when the test panics.
#![forbid(unsafe_code)]

mod daemon;
mod report;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
pub use vnic_control::v1;
use vnic_control::v1::fault_service_client::FaultServiceClient;

use daemon::Daemon;
pub use report::Report;

/// Where packages put scenarios.
const SCENARIOS: &str = "/usr/share/vnic/scenarios/verbs";
/// How often a scenario is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(20);
/// Outcomes of a page.
const PAGE: i32 = 1000;
/// Greatest response in bytes.
const RESPONSE_MAX: usize = 16 << 20;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon refused.
    #[error("{}", .0.message())]
    Refused(#[from] Box<Status>),
    /// A file or a program.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// What this crate answers.
pub type Result<T> = std::result::Result<T, Error>;

/// A NIC for tests, before it is there.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Number of adapters of a daemon that is started: `vf0`, `vf1`, ….
    pub adapters: u16,
    /// Where `vnicd` and `vnic-verbs` are; `None`: `$VNIC_PROGRAMS`, or else the PATH.
    pub programs: Option<PathBuf>,
    /// Where the scenarios are that are played by name; `None`: `$VNIC_SCENARIOS`, or else those of a package.
    pub scenarios: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Setup {
        let of = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Setup {
            adapters: 2,
            programs: of("VNIC_PROGRAMS"),
            scenarios: of("VNIC_SCENARIOS"),
        }
    }
}

impl Setup {
    /// Starts a daemon in a directory of its own; it ends with the answer.
    pub fn start(self) -> Result<Vnic> {
        let daemon = Daemon::start(self.adapters, &self.program("vnicd"))?;
        let place = daemon.place().to_owned();
        self.open(place, Some(daemon))
    }

    /// Takes the daemon that runs with its sockets in this directory, such as `/run/vnic`.
    pub fn connect(self, sockets: impl Into<PathBuf>) -> Result<Vnic> {
        self.open(sockets.into(), None)
    }

    fn open(self, place: PathBuf, daemon: Option<Daemon>) -> Result<Vnic> {
        let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| failed(&e))?;
        let endpoint = format!("unix:{}", place.join("control.sock").display());
        let endpoint = Endpoint::from_shared(endpoint).map_err(|e| failed(&e))?;
        let channel = runtime.block_on(endpoint.connect()).map_err(|e| failed(&e))?;
        Ok(Vnic {
            faults: FaultServiceClient::new(channel).max_decoding_message_size(RESPONSE_MAX),
            runtime,
            place,
            setup: self,
            _daemon: daemon,
        })
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs
            .as_ref()
            .map_or_else(|| name.into(), |folder| folder.join(name))
    }
}

/// A NIC for tests.
pub struct Vnic {
    faults: FaultServiceClient<Channel>,
    runtime: Runtime,
    place: PathBuf,
    setup: Setup,
    _daemon: Option<Daemon>,
}

impl Vnic {
    /// Directory of its sockets, for `VNIC_ENDPOINT=unix:DIR/control.sock` and `vnic-verbs run --socket-dir DIR`.
    pub fn sockets(&self) -> &Path {
        &self.place
    }

    /// A command that runs a program with the RDMA functions of these adapters as its devices, under `vnic-verbs run`.
    pub fn command(&self, adapters: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.setup.program("vnic-verbs"));
        command.arg("run").arg("--socket-dir").arg(&self.place);
        command
            .args(["--adapters", &adapters.join(","), "--"])
            .arg(program);
        command
    }

    /// Makes a rule for frames.
    pub fn fault(&self, name: &str, fault: v1::Fault) -> Result<Rule<'_>> {
        let request = v1::CreateFaultRequest {
            fault_id: name.to_owned(),
            fault: Some(fault),
        };
        self.ask(async |mut faults| faults.create_fault(request).await)?;
        Ok(self.rule(format!("faults/{name}"), false))
    }

    /// Makes a rule for completions or commands.
    pub fn verbs_fault(&self, name: &str, fault: v1::VerbsFault) -> Result<Rule<'_>> {
        let request = v1::CreateVerbsFaultRequest {
            verbs_fault_id: name.to_owned(),
            verbs_fault: Some(fault),
        };
        let made = self.ask(async |mut faults| faults.create_verbs_fault(request).await)?;
        Ok(self.rule(made.name, true))
    }

    fn rule(&self, name: String, verbs: bool) -> Rule<'_> {
        Rule {
            nic: self,
            name,
            verbs,
            there: true,
        }
    }

    /// Begins to play a scenario: a file, or the name of one that is shipped. `adapters`: which play its parts.
    pub fn play(&self, scenario: &str, adapters: &[(&str, &str)]) -> Result<Playing<'_>> {
        let folder = self.setup.scenarios.as_deref().unwrap_or(Path::new(SCENARIOS));
        let shipped = folder.join(scenario).with_extension("toml");
        let file = match scenario.contains(['/', '.']) {
            true => PathBuf::from(scenario),
            false => shipped,
        };
        let content = std::fs::read_to_string(&file).map_err(|e| Error::Io(file.display().to_string(), e))?;
        let adapters = adapters
            .iter()
            .map(|(part, name)| ((*part).to_owned(), (*name).to_owned()));
        let request = v1::PlayScenarioRequest {
            content,
            adapters: adapters.collect::<HashMap<String, String>>(),
        };
        let begun = self.ask(async |mut faults| faults.play_scenario(request).await)?;
        Ok(Playing {
            nic: self,
            name: begun.name,
            over: false,
        })
    }

    /// Begins to record what becomes of all work requests.
    pub fn record(&self) -> Result<Recorder<'_>> {
        let request = v1::StartRecordingRequest::default();
        self.ask(async |mut faults| faults.start_recording(request).await)?;
        Ok(Recorder {
            nic: self,
            runs: true,
        })
    }

    fn ask<T>(
        &self,
        call: impl AsyncFnOnce(FaultServiceClient<Channel>) -> std::result::Result<Response<T>, Status>,
    ) -> Result<T> {
        let answer = self.runtime.block_on(call(self.faults.clone()));
        Ok(answer.map_err(Box::new)?.into_inner())
    }
}

/// A rule; it is removed with this.
pub struct Rule<'a> {
    nic: &'a Vnic,
    name: String,
    verbs: bool,
    there: bool,
}

impl Rule<'_> {
    /// Removes it. Returns how often it matched, and how often it did something.
    pub fn remove(mut self) -> Result<(u64, u64)> {
        self.end()
    }

    fn end(&mut self) -> Result<(u64, u64)> {
        self.there = false;
        let name = self.name.clone();
        if self.verbs {
            let request = v1::DeleteVerbsFaultRequest { name };
            let last = self
                .nic
                .ask(async |mut faults| faults.delete_verbs_fault(request).await)?;
            return Ok((last.matched, last.injected));
        }
        let request = v1::DeleteFaultRequest { name };
        let last = self
            .nic
            .ask(async |mut faults| faults.delete_fault(request).await)?;
        Ok((last.matched, last.injected))
    }
}

impl Drop for Rule<'_> {
    fn drop(&mut self) {
        if self.there {
            let _ = self.end();
        }
    }
}

/// A scenario that is played; it is stopped, and all put back, with this.
pub struct Playing<'a> {
    nic: &'a Vnic,
    name: String,
    over: bool,
}

impl Playing<'_> {
    /// What it has done so far, a line each.
    pub fn log(&self) -> Result<Vec<String>> {
        Ok(self.now()?.log)
    }

    /// Waits until it is over. Returns its log; a step that failed is an error.
    pub fn wait(mut self) -> Result<Vec<String>> {
        self.ends()
    }

    /// Stops it, and waits until all is put back. Returns its log.
    pub fn stop(mut self) -> Result<Vec<String>> {
        self.stopped()
    }

    fn now(&self) -> Result<v1::Scenario> {
        let name = self.name.clone();
        let request = v1::GetScenarioRequest { name };
        self.nic
            .ask(async |mut faults| faults.get_scenario(request).await)
    }

    fn stopped(&mut self) -> Result<Vec<String>> {
        let name = self.name.clone();
        let request = v1::StopScenarioRequest { name };
        self.nic
            .ask(async |mut faults| faults.stop_scenario(request).await)?;
        self.ends()
    }

    fn ends(&mut self) -> Result<Vec<String>> {
        self.over = true;
        loop {
            let now = self.now()?;
            match now.state() {
                v1::scenario::State::Playing => std::thread::sleep(LOOK),
                v1::scenario::State::Failed => return Err(Error::Failed(now.problem)),
                _ => return Ok(now.log),
            }
        }
    }
}

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.stopped();
        }
    }
}

/// A recording that runs; it ends with this.
pub struct Recorder<'a> {
    nic: &'a Vnic,
    runs: bool,
}

impl Recorder<'_> {
    /// Ends it. Returns what became of each request.
    pub fn stop(mut self) -> Result<Report> {
        self.end()?;
        let mut page_token = String::new();
        let mut outcomes = Vec::new();
        loop {
            let request = v1::ListOutcomesRequest {
                page_size: PAGE,
                page_token,
                filter: v1::list_outcomes_request::Filter::Unspecified.into(),
            };
            let page = self
                .nic
                .ask(async |mut faults| faults.list_outcomes(request).await)?;
            outcomes.extend(page.outcomes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                let recording = page.recording.unwrap_or_default();
                return Ok(Report::new(outcomes, page.verdicts, &recording));
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        self.runs = false;
        let request = v1::StopRecordingRequest {};
        self.nic
            .ask(async |mut faults| faults.stop_recording(request).await)?;
        Ok(())
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if self.runs {
            let _ = self.end();
        }
    }
}
