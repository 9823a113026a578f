//! The daemon: starts the NIC, gRPC, metrics and events, and ends them in order.

pub mod args;
mod control_socket;
mod descriptors;
mod placement;
mod sandbox;
mod state_dir;

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use vnic_backend::{Nic, NicError};

use crate::access::{Live, Meter, Tls};
use crate::capture::CaptureFiles;
use crate::config::Settings;
use crate::control::{
    Adapters, Control, Endpoints, Kept, Mirrors, Ports, Reload, Subnet, SubnetGroups, Teams, policy_file,
};
use crate::events::{ControlEvent, EventHub, EventLog};
use crate::panics::{self, Notice};
use crate::pulse::Pulse;
use crate::store::{self, OnDamage, Store, StoreError};
use crate::traces::Tracer;
use crate::{grpc, mesh, metrics, wake};

pub use args::{Args, ExitCode, run};
use control_socket::ControlSocket;
use state_dir::StateDir;

/// Time limit of the NIC's shutdown.
const NIC_SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// Error of the daemon's start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another daemon uses the state directory.
    #[error(
        "the state directory {} is used by another vnicd{}; stop that one, or give this one a directory of \
         its own with --state-dir and --socket-dir",
        dir.display(),
        pid.as_ref().map(|p| format!(" (pid {p})")).unwrap_or_default()
    )]
    InUse {
        /// Path of the state directory.
        dir: PathBuf,
        /// Process ID of the other daemon, if its lock file has it.
        pid: Option<u32>,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// Attempted action.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The stored state cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The certificates of the control interface cannot be used; the file and the cause.
    #[error("{0}")]
    Certificates(String),
    /// The policy of quality of service by path cannot be used; the file and the cause.
    #[error("subnet.policy_file: {0}")]
    Policy(String),
    /// The NIC refused something.
    #[error("{what}: {source}")]
    Nic {
        /// Attempted action.
        what: String,
        /// Error of the NIC.
        source: NicError,
    },
}

/// Turns an I/O error into a [`StartError`] with the attempted action.
fn os(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Os { what, source }
}

/// Reads the certificates of the control interface, if it listens on TCP.
fn load_tls(settings: &Settings) -> Result<Option<Arc<Tls>>, StartError> {
    let files = settings.control.tls.as_ref();
    let files = files.filter(|_| settings.control.tcp.is_some());
    let tls = files.map(|files| Tls::load(files).map(Arc::new));
    tls.transpose().map_err(StartError::Certificates)
}

/// Reads the files that the settings name, as the start does; returns the error of each that cannot be used.
fn check_files(settings: &Settings) -> Vec<StartError> {
    let meshes = settings.meshes.iter().map(|(port, spec)| {
        mesh::check_files(spec).map_err(|source| StartError::Nic {
            what: format!("cannot add port {port}"),
            source,
        })
    });
    let policy = settings
        .policy_file
        .iter()
        .map(|path| policy_file(path).map(drop));
    let policy = policy.map(|read| read.map_err(StartError::Policy));
    let all = std::iter::once(load_tls(settings).map(drop))
        .chain(policy)
        .chain(meshes);
    all.filter_map(Result::err).collect()
}

/// A running daemon.
pub struct Daemon {
    control: Arc<Control>,
    grpc: Vec<JoinHandle<()>>,
    health: grpc::Health,
    metrics: Option<JoinHandle<()>>,
    /// What sends traces, and its task.
    traces: Option<(Arc<Tracer>, JoinHandle<()>)>,
    /// Task that checks the certificates of connections at intervals.
    watch: JoinHandle<()>,
    wake: JoinHandle<()>,
    // Fields are dropped in this order: the lock is released last.
    _socket: ControlSocket,
    _state: StateDir,
}

impl Daemon {
    /// Starts the daemon; when this returns, all sockets listen. Must be called in a tokio runtime.
    pub async fn start(settings: Settings) -> Result<Daemon, StartError> {
        let tls = load_tls(&settings)?;
        std::fs::create_dir_all(&settings.socket_dir)
            .map_err(os(format!("cannot make {}", settings.socket_dir.display())))?;
        let state = StateDir::lock(&settings.state_dir)?;
        let on_damage = match settings.given.overrides.reset_damaged_state {
            true => OnDamage::Reset,
            false => OnDamage::Refuse,
        };
        // Each of the two waits for the disk several times, so they run at the same time.
        let dir = settings.state_dir.clone();
        let events = std::thread::spawn(move || EventLog::file(&dir));
        let store = Store::open(&settings.state_dir, store::STATE, store::STATE_SCHEMA, on_damage);
        let events = events.join();
        let events = events.map_err(|_| os("cannot open the event log")(io::Error::other("it panicked")))?;
        let (store, reset) = store?;

        let (socket, listener) = control_socket::bind(&settings.control)?;
        let tcp = match settings.control.tcp {
            None => None,
            Some(addr) => Some(
                tokio::net::TcpListener::bind(addr)
                    .await
                    .map_err(os(format!("cannot listen on tcp:{addr} (control)")))?,
            ),
        };
        let web = match settings.metrics {
            None => None,
            Some(addr) => Some(tokio::net::TcpListener::bind(addr).await.map_err(os(format!(
                "cannot listen on {addr} (metrics; give --metrics ADDR:PORT or --metrics off)"
            )))?),
        };
        let endpoints = endpoints(&settings, tcp.as_ref(), web.as_ref())?;
        state.publish(&endpoints)?;

        let nic = Nic::start(settings.nic.clone()).map_err(|source| StartError::Nic {
            what: "cannot start the NIC".to_owned(),
            source,
        })?;
        let kept = Kept::read(&nic, store)?;
        let hub =
            EventHub::start(nic.clone(), events, settings.events).map_err(os("cannot start a thread"))?;
        if let Some(reset) = reset {
            let kept_as = reset.kept.map_or_else(String::new, |p| p.display().to_string());
            hub.record(ControlEvent::StateReset {
                what: format!(
                    "{} (registry, NV configuration, adapters): {}",
                    store::STATE,
                    reset.problem
                ),
                kept_as,
                by: String::new(),
            });
        }
        let captures = CaptureFiles::new(settings.state_dir.join("captures"));
        let pulse = Pulse::start(nic.clone()).map_err(os("cannot start a thread"))?;
        let control = Control::new(nic, settings, endpoints, hub, captures, kept, pulse);
        let control = Arc::new(control);

        let traces = control.settings.control.traces.clone().map(Tracer::start);
        let tracer = traces.as_ref().map(|(tracer, _)| tracer.clone());
        let meter = Arc::new(Meter::tracing(tracer));
        let metrics = web.map(|listener| {
            let pages = metrics::serve(listener, control.clone(), meter.clone());
            panics::spawn("metrics", pages)
        });
        let live = Live::new(control.settings.access.clone(), grpc::tell(&control));
        let doors = (live.clone(), tls.clone());
        let _ = control.doors.set(Box::new(move |settings| {
            let (live, tls) = (&doors.0, doors.1.as_deref());
            let read = tls.map_or(Ok(()), Tls::reload);
            live.changed(settings.map(|s| s.access.clone()), tls);
            read
        }));
        let (grpc, health) = grpc::serve(&control, listener, tcp.zip(tls), &live, meter).await;
        let watch = panics::spawn("expiry", live.watch());
        let packets = control.hub.magic_packets();
        let wake = panics::spawn("wake", wake::serve(control.clone(), packets));
        let daemon = Daemon {
            control,
            grpc,
            health,
            metrics,
            traces,
            watch,
            wake,
            _socket: socket,
            _state: state,
        };
        if let Err(error) = daemon.populate().await {
            daemon.shutdown().await;
            return Err(error);
        }
        daemon.control.life.set_ready();
        daemon.health.set(true).await;
        Ok(daemon)
    }

    /// Makes the ports, teams, adapters, multicast groups and fault rules of the configuration, and what is stored.
    async fn populate(&self) -> Result<(), StartError> {
        let control = self.control.clone();
        let work = move || {
            for spec in &control.settings.ports {
                let name = spec.name.clone();
                let mesh = control.settings.meshes.get(&name).cloned();
                let added = Ports(&control).add(spec.clone(), mesh);
                added.map_err(|source| StartError::Nic {
                    what: format!("cannot add port {name}"),
                    source,
                })?;
            }
            Ports(&control).bring_back()?;
            let teams = Teams(&control);
            teams.configure().map_err(|(name, source)| StartError::Nic {
                what: format!("cannot add team {name}"),
                source,
            })?;
            teams.bring_back()?;
            let adapters = Adapters(&control);
            for spec in &control.settings.adapters {
                let (name, mac) = (spec.name.clone(), spec.macs.first().map(ToString::to_string));
                let socket = spec.eth_socket.display().to_string();
                adapters
                    .add_again(spec.clone())
                    .map_err(|source| StartError::Nic {
                        what: format!("cannot add adapter {name}"),
                        source,
                    })?;
                tracing::debug!(owner = name, mac, socket, "adapter of the configuration added");
            }
            adapters.bring_back()?;
            Mirrors(&control).bring_back()?;
            Subnet(&control).bring_back()?.map_err(StartError::Policy)?;
            SubnetGroups(&control).bring_back()?;
            let faults = control.settings.faults.clone();
            let names: Vec<String> = faults.iter().map(|f| f.name.clone()).collect();
            control
                .nic
                .add_faults(faults)
                .map_err(|(i, source)| StartError::Nic {
                    what: format!("cannot add fault {}", names.get(i).map_or("", String::as_str)),
                    source,
                })?;
            for spec in &control.settings.verbs_faults {
                let added = control.nic.add_verbs_fault(spec.clone());
                added.map_err(|source| StartError::Nic {
                    what: format!("cannot add verbs fault {}", spec.name),
                    source,
                })?;
            }
            Ok(())
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(panic) => Err(StartError::Os {
                what: "adding ports and adapters".to_owned(),
                source: io::Error::other(panic.to_string()),
            }),
        }
    }

    /// State that the parts of the daemon share.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Reads the configuration file, certificates and roles again. Connections that are no longer valid end.
    pub async fn reload(&self) {
        let control = self.control.clone();
        // What was refused is an event.
        let work = move || drop(Reload(&control).run(""));
        if let Err(panic) = tokio::task::spawn_blocking(work).await {
            tracing::error!("reload: {panic}");
        }
    }

    /// Records a panic as an event. If a thread or task that the daemon needs has ended, its services are no longer `SERVING`.
    pub async fn heed(&self, notice: Notice) {
        let event = match notice {
            Notice::Panicked {
                thread,
                place,
                message,
            } => ControlEvent::Panicked {
                thread,
                place,
                message,
            },
            Notice::Ended(thread) => {
                self.health.set(false).await;
                ControlEvent::ThreadEnded { thread }
            }
        };
        self.control.hub.record(event);
    }

    /// Line on standard output that tells scripts that all sockets listen.
    pub fn ready_line(&self) -> String {
        let settings = &self.control.settings;
        let endpoints = &self.control.endpoints;
        let mut line = format!(
            "vnicd ready: {} in {}, control {}",
            count(settings.adapters.len(), "adapter"),
            settings.socket_dir.display(),
            endpoints.control.join(" "),
        );
        if !settings.ports.is_empty() {
            let _ = write!(line, ", {}", count(settings.ports.len(), "port"));
        }
        if !settings.teams.is_empty() {
            let _ = write!(line, ", {}", count(settings.teams.len(), "team"));
        }
        if let faults @ 1.. = settings.faults.len() + settings.verbs_faults.len() {
            let _ = write!(line, ", {}", count(faults, "fault"));
        }
        let metrics = endpoints.metrics_url.as_deref().unwrap_or("off");
        let _ = write!(line, ", metrics {metrics}, pid {}", std::process::id());
        line
    }

    /// Ends streams and connections, stops the NIC and removes the sockets.
    pub async fn shutdown(self) {
        self.health.set(false).await;
        self.control.life.begin_shutdown();
        self.watch.abort();
        self.wake.abort();
        // Streams end by themselves now; a client that keeps its connection open does not delay the shutdown.
        for mut task in self.grpc {
            if tokio::time::timeout(Duration::from_secs(2), &mut task)
                .await
                .is_err()
            {
                task.abort();
            }
        }
        let control = self.control.clone();
        // Both databases wait for the disk, and the data cores for the kernel: at the same time, because guests wait for the next daemon.
        let work = move || {
            std::thread::scope(|scope| {
                scope.spawn(|| control.store.close());
                control.captures.stop_all();
                control.meshes.end();
                control.hub.stop();
                control.pulse.end();
                control.nic.shutdown();
                control.hub.finish();
            });
        };
        match tokio::time::timeout(NIC_SHUTDOWN_MAX, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => tracing::error!("shutdown: {panic}"),
            Err(_) => {
                tracing::error!("the NIC does not end by itself: ending without it");
                self.control.hub.close();
            }
        }
        if let Some(task) = self.metrics {
            task.abort();
        }
        if let Some((tracer, task)) = self.traces {
            tracer.end();
            // A collector that does not answer holds up nothing.
            let _ = tokio::time::timeout(Duration::from_secs(2), task).await;
        }
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn endpoints(
    settings: &Settings,
    tcp: Option<&tokio::net::TcpListener>,
    web: Option<&tokio::net::TcpListener>,
) -> Result<Endpoints, StartError> {
    let local = |l: &tokio::net::TcpListener| l.local_addr().map_err(os("cannot read a socket's address"));
    let mut control = vec![format!("unix:{}", settings.control.unix.display())];
    if let Some(listener) = tcp {
        control.push(format!("https://{}", local(listener)?));
    }
    let metrics_url = match web {
        None => None,
        Some(listener) => Some(format!("http://{}/metrics", local(listener)?)),
    };
    Ok(Endpoints { control, metrics_url })
}
