//! Surroundings of a tool: its device, its peer, its options; and the printing of its report.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use vnic_verbs::{Context, Device, DeviceAddress};

use crate::exchange::carrier::Carrier;
use crate::exchange::{Link, Role};
use crate::failure::{Failure, Result};
use crate::options::{Exchange, PeerOptions};
use crate::report::Report;

/// Surroundings of a tool.
pub struct Seat<'a> {
    /// Device of the tool.
    pub context: Context,
    /// Link to the peer.
    pub link: Link,
    /// Options of the tool.
    pub options: &'a PeerOptions,
    /// Whether progress is shown.
    pub watched: bool,
}

impl Seat<'_> {
    /// Side of the tool.
    pub fn role(&self) -> Role {
        self.link.role
    }

    /// Seed of the data that this side sends.
    pub fn seed(&self) -> u64 {
        let own = match self.role() {
            Role::Server => 1 << 48,
            Role::Client => 1,
        };
        self.options.seed.unwrap_or(own)
    }
}

/// Opens a device, or the default one.
pub fn open(address: Option<&DeviceAddress>) -> Result<Context> {
    match address {
        Some(address) => Device::open(address).map_err(|e| Failure::from(e).on(&address.to_string())),
        None => Device::open_default().map_err(|e| Failure::from(e).on("no device")),
    }
}

/// Runs one side of a tool, or with `--loopback` both, and prints its report. `check` checks the options.
pub fn run(
    tool: &str,
    options: &PeerOptions,
    check: Result,
    body: impl Fn(&mut Seat<'_>) -> Result<Report> + Sync,
) -> ExitCode {
    let report = check.and_then(|()| match &options.loopback {
        Some(other) => both_sides(options, other, &body),
        None => one_side(options, &body),
    });
    finish(tool, options.device.json, report)
}

/// Prints a report, or why there is none.
pub fn finish(tool: &str, json: bool, report: Result<Report>) -> ExitCode {
    let printed = report.and_then(|report| report.print(json));
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            // The reader of the output may be gone, too; the exit code remains.
            let _ = writeln!(std::io::stderr(), "{tool}: {failure}");
            if json {
                let _ = writeln!(std::io::stdout(), "{}", failure.json(tool));
            }
            failure.exit_code()
        }
    }
}

fn side(
    context: Context,
    link: Link,
    options: &PeerOptions,
    watched: bool,
    body: impl Fn(&mut Seat<'_>) -> Result<Report>,
) -> Result<Report> {
    let name = context.name().to_owned();
    let mut seat = Seat {
        context,
        link,
        options,
        watched,
    };
    body(&mut seat).map_err(|failure| {
        let failure = failure.on(&name);
        seat.link.give_up(&failure.to_string());
        failure
    })
}

fn one_side(options: &PeerOptions, body: impl Fn(&mut Seat<'_>) -> Result<Report>) -> Result<Report> {
    // The device first: without it there is no need to wait for a peer.
    let context = open(options.device.device.as_ref())?;
    let link = match (options.exchange, &options.host) {
        (Exchange::Stdio, Some(_)) => {
            return Err(Failure::Usage(
                "with --exchange stdio there is no host; the side that begins has --client".into(),
            ));
        }
        (Exchange::Stdio, None) => {
            let role = if options.client {
                Role::Client
            } else {
                Role::Server
            };
            Link::new(Carrier::stdio(), role)
        }
        (Exchange::Tcp, _) if options.client => {
            return Err(Failure::Usage(
                "--client is for --exchange stdio: name the server's host instead".into(),
            ));
        }
        (Exchange::Tcp, Some(host)) => Link::new(Carrier::connect(host, options.port)?, Role::Client),
        (Exchange::Tcp, None) => {
            let carrier = Carrier::listen(options.port, |port| {
                // Not part of the report: a script that reads JSON need not see it.
                let _ = writeln!(std::io::stderr(), "waiting for a client on TCP port {port}");
            })?;
            Link::new(carrier, Role::Server)
        }
    };
    side(context, link, options, std::io::stderr().is_terminal(), body)
}

fn both_sides(
    options: &PeerOptions,
    other: &DeviceAddress,
    body: &(impl Fn(&mut Seat<'_>) -> Result<Report> + Sync),
) -> Result<Report> {
    let client = open(options.device.device.as_ref())?;
    let server = if client.name() == other.to_string() {
        client.clone()
    } else {
        open(Some(other))?
    };
    let [here, there] = Carrier::pair();
    let terminal = std::io::stderr().is_terminal();
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| side(server, Link::new(there, Role::Server), options, false, body));
        let client = side(client, Link::new(here, Role::Client), options, terminal, body);
        (client, server.join())
    });
    let server = server.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    match (client, server) {
        // If this side only noticed the peer's failure, that failure is the cause.
        (Err(Failure::Peer(_) | Failure::GaveUp(_)), Err(cause)) => Err(cause),
        (Err(cause), _) | (Ok(_), Err(cause)) => Err(cause),
        (Ok(report), Ok(_)) => Ok(report),
    }
}

/// Shows on standard error how far a long run is.
pub struct Progress {
    shown: bool,
    next: Option<Instant>,
}

/// Time between two updates.
const TICK: Duration = Duration::from_millis(250);

impl Progress {
    /// Progress that is shown only if `wanted`.
    pub fn new(wanted: bool) -> Progress {
        Progress {
            shown: false,
            next: wanted.then(|| Instant::now() + 4 * TICK),
        }
    }

    /// Updates the progress.
    #[inline]
    pub fn at(&mut self, done: u64, what: impl Fn() -> String) {
        // The clock need not be read for every message.
        if self.next.is_some() && done.is_multiple_of(16) {
            self.show(&what());
        }
    }

    fn show(&mut self, what: &str) {
        let now = Instant::now();
        if let Some(next) = &mut self.next
            && now >= *next
        {
            *next = now + TICK;
            self.shown = true;
            let _ = write!(std::io::stderr(), "\r\x1b[K{what}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
