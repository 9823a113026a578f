//! `vnicctl`, the command-line client of the daemon's gRPC interface.

mod acl;
mod adapter;
mod adapter_mac;
mod args;
mod bridge;
mod capture;
mod client;
mod clock;
mod config;
mod congestion;
mod connection;
mod counter;
mod dcbx;
mod docs;
mod event;
mod failure;
mod fault;
mod look;
mod mesh;
mod mirror;
mod mlx5cmd;
mod mlx5muxtool;
mod nvconfig;
mod oid;
mod output;
mod paging;
mod port;
mod qos;
mod qp;
mod rdma;
mod recording;
mod registry;
mod rehearsal;
mod scenario;
mod screen;
mod server;
mod status;
mod subnet;
mod subnet_group;
mod support;
mod switch;
mod team;
mod text;
mod tls;
mod top;
mod trace;
mod verbs_fault;
mod vlan;

use std::pin::Pin;
use std::process;

use clap::Parser as _;

use args::{Args, Noun};
use client::Client;
use failure::Failure;
use output::Output;

use crate::logging::say;

pub(crate) use recording::comparable;

/// Exit codes of `vnicctl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Success.
    Ok = 0,
    /// The daemon refused or could not be reached; of `diff`: there are differences.
    Refused = 1,
    /// The command line is wrong.
    Usage = 2,
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> process::ExitCode {
        process::ExitCode::from(code as u8)
    }
}

/// Runs `vnicctl`, from its command line to its exit code.
pub fn run() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(format_args!("vnicctl: {error}"));
            return ExitCode::Refused;
        }
    };
    // (The runtime polls a future in several places, and each would have a copy of all commands: of an object there is one.)
    let command: Pin<Box<dyn Future<Output = Result<(), Failure>>>> = Box::pin(dispatch(args));
    match runtime.block_on(command) {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::Ok,
        Err(Failure::Differs) => ExitCode::Refused,
        Err(Failure::InOrder(method)) => {
            say(format_args!("vnicctl: {method} is in order; nothing was changed"));
            ExitCode::Ok
        }
        Err(Failure::Refused(status)) => {
            say(client::explain(&status).trim_end());
            ExitCode::Refused
        }
        Err(Failure::Failed(message)) => {
            say(format_args!("vnicctl: {message}"));
            ExitCode::Refused
        }
        Err(Failure::Usage(message)) => {
            say(format_args!("vnicctl: {message}"));
            ExitCode::Usage
        }
    }
}

async fn dispatch(args: Args) -> Result<(), Failure> {
    let out = Output::new(args.output);
    let mut client = Client::new(&args.endpoint, &args.tls)?;
    if args.validate_only {
        client = client.validating().await?;
    }
    match args.noun {
        Noun::Adapter(verb) => adapter::run(verb, &client, &out).await,
        Noun::Mlx5cmd { words } => mlx5cmd::run(&words, &client, &out).await,
        Noun::Mlx5muxtool { words } => mlx5muxtool::run(&words, &client, &out).await,
        Noun::Gid(verb) => rdma::gid(verb, &client, &out).await,
        Noun::Resource(verb) => rdma::resource(verb, &client, &out).await,
        Noun::Qp(verb) => qp::run(verb, &client, &out).await,
        Noun::Rdma(verb) => connection::run(verb, &client, &out).await,
        Noun::Port(verb) => port::run(verb, &client, &out).await,
        Noun::Team(verb) => team::run(verb, &client, &out).await,
        Noun::Dcbx(verb) => dcbx::run(verb, &client, &out).await,
        Noun::Qos(verb) => qos::run(verb, &client, &out).await,
        Noun::Cc(verb) => congestion::run(verb, &client, &out).await,
        Noun::Subnet(verb) => subnet::run(verb, &client, &out).await,
        Noun::Switch(verb) => switch::run(verb, &client, &out).await,
        Noun::Counter(verb) => counter::run(verb, &client, &out).await,
        Noun::Capture(verb) => capture::run(verb, &client, &out).await,
        Noun::Fault(verb) => fault::run(verb, &client, &out).await,
        Noun::Acl(verb) => acl::run(verb, &client, &out).await,
        Noun::Bridge(verb) => bridge::run(verb, &client, &out).await,
        Noun::Clock(verb) => clock::run(verb, &client, &out).await,
        Noun::Mirror(verb) => mirror::run(verb, &client, &out).await,
        Noun::Oid(verb) => oid::run(verb, &client, &out).await,
        Noun::Registry(verb) => registry::run(verb, &client, &out).await,
        Noun::Nvconfig(verb) => nvconfig::run(verb, &client, &out).await,
        Noun::Event(verb) => event::run(verb, &client, &out).await,
        Noun::Server(verb) => server::run(verb, &client, &out).await,
        Noun::Status(args) => status::run(args, &client, &out).await,
        Noun::Top(args) => top::run(args, &client, &out).await,
        Noun::Trace(args) => trace::run(args, &client, &out).await,
        Noun::SupportBundle(args) => support::run(args, &client, &out).await,
        Noun::Export => config::export(&client, &out).await,
        Noun::Diff(args) => config::diff(args, &client, &out).await,
        Noun::Apply(args) => config::apply(args, &client, &out).await,
        Noun::Backup(args) => config::backup(args, &client, &out).await,
        Noun::Health => server::health(&client, &out).await,
        Noun::Completions { shell } => docs::completions(shell),
        Noun::Man { dir } => docs::man(&dir),
    }
}
