//! `vnicctl support-bundle`: one archive with what somebody who helps from outside needs, without secrets.

mod archive;
mod args;
mod calls;
mod config;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use super::client::{self, Client};
use super::output::Output;
use super::rehearsal::Channel;
use super::status::{self, StatusArgs};
use super::{Failure, server, text};
use crate::logging::say;
use crate::{GIT_REVISION, VERSION};
use archive::Archive;
pub use args::SupportArgs;
use calls::Call;

/// How long one part may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long ago a warning or error is still in `status.json`.
const NEWS: Duration = Duration::from_secs(24 * 3600);
/// Time between the looks of `status.json`, at most.
const LOOKS: Duration = Duration::from_secs(1);
/// Greatest page of metrics in bytes.
const METRICS_MAX: u64 = 64 << 20;

/// End of the README.
const LEFT_OUT: &str = "
A file NAME.error is there instead of one that could not be read; it has the reason.

Left out on purpose:
  private keys, passwords, tokens, and the paths of keys: nobody needs them to help. In config.json and ports.json their values are
    \"(left out)\"; a file in which a private key was found is left out as a whole.
  comments of the configuration, which may have anything.
  frames of captures, and memory of guests: they belong to the guests. `vnicctl capture` makes what is to be given away on its own.
  the daemon's log, which systemd keeps: journalctl -u vnicd
  ports of flows of teams (vnicctl team view), OIDs (vnicctl oid), and what is the same for all daemons of a version.

In the archive are names of adapters, ports, users and machines, MAC and IP addresses, and numbers and PSNs of queue pairs, with which
who can send frames into their VLAN can disturb them as long as they live. Look at it before you give it away.
Formats: the messages of vnic/v1/*.proto as JSON; status.json as `vnicctl -o json status`; metrics.txt as Prometheus reads it.
";

type Content<'a> = Pin<Box<dyn Future<Output = Result<(String, bool), Failure>> + 'a>>;

/// Bundle that is being written.
struct Bundle {
    archive: Archive<File>,
    /// Lines of the README.
    lines: String,
    files: Vec<String>,
    errors: usize,
}

/// Writes a bundle.
pub async fn run(args: SupportArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    let channel = client.channel().await?;
    let host = fact("hostname").unwrap_or_else(|| "unknown".to_owned());
    let path = args.file.unwrap_or_else(|| default_path(&host));
    let failed = |e: io::Error| Failure::Failed(format!("{}: {e}", path.display()));
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let mut bundle = Bundle {
        archive: Archive::new(file.map_err(failed)?),
        lines: String::new(),
        files: Vec::new(),
        errors: 0,
    };
    let written = match bundle.fill(client, &channel, args.interval, &host).await {
        Ok(()) => bundle.archive.finish().and_then(|file| file.sync_all()),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        let _ = fs::remove_file(&path);
        return Err(failed(error));
    }
    let value = json!({ "file": path.to_string_lossy(), "files": bundle.files, "errors": bundle.errors });
    out.value(&value, || format!("{}\n", path.display()))
}

/// `vnic-support-HOST-TIME.tar.gz`.
fn default_path(host: &str) -> PathBuf {
    let time = stamp().replace(['-', ':'], "");
    let host: String = host.chars().map(plain).collect();
    format!("vnic-support-{host}-{time}.tar.gz").into()
}

fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '-' }
}

/// Time in UTC, to the second.
fn stamp() -> String {
    let seconds = i64::try_from(seconds()).unwrap_or(0);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}

/// Seconds since 1970.
fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What the kernel of this machine says of itself.
fn fact(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    Some(text.trim().to_owned())
}

impl Bundle {
    async fn fill(
        &mut self,
        client: &Client,
        channel: &Channel,
        interval: Duration,
        host: &str,
    ) -> io::Result<()> {
        let local = client.is_local();
        let system = system(client, host);
        self.put(
            "system.json",
            "vnicctl and the machine it ran on",
            done(Ok(system)),
        )
        .await?;
        let [first, second] = &calls::COUNTERS;
        let again = tokio::time::Instant::now() + interval;
        self.call(channel, first).await?;
        let health = async {
            let serving = server::is_serving(client).await?;
            Ok((format!("{:#}\n", json!({ "serving": serving })), false))
        };
        self.put("health.json", "whether the daemon is ready", Box::pin(health))
            .await?;
        for call in calls::CALLS {
            self.call(channel, call).await?;
        }
        let status = async {
            let args = StatusArgs {
                interval: interval.min(LOOKS),
                since: NEWS,
                check: false,
            };
            let value = status::json(&args, client).await?;
            Ok((format!("{value:#}\n"), false))
        };
        let what = "the state on one page, with what is odd, and warnings of a day";
        self.put("status.json", what, Box::pin(status)).await?;
        let info = info(client).await;
        let of_info = |read: fn(&Info) -> Result<String, String>| match &info {
            Ok(_) if !local => Err(Failure::Failed(
                "is on the daemon's machine: run vnicctl there, with its Unix socket".to_owned(),
            )),
            Ok(info) => read(info).map_err(Failure::Failed),
            Err(why) => Err(Failure::Failed(why.clone())),
        };
        let read = of_info(|info| match info.config_file.as_str() {
            "" => Err("the daemon runs from its command line".to_owned()),
            path => config::read(Path::new(path)),
        });
        self.put(
            "config.json",
            "the configuration file, without secrets",
            done(read),
        )
        .await?;
        let url = of_info(|info| match info.metrics_url.as_str() {
            "" => Err("metrics are off".to_owned()),
            url => Ok(url.to_owned()),
        });
        self.put("metrics.txt", "the page of metrics", Box::pin(metrics(url)))
            .await?;
        sleep_until(again).await;
        self.call(channel, second).await?;
        let readme = format!(
            "State of a NIC daemon, read by vnicctl {VERSION} on {host}.\n\nFILE, TIME (UTC), CONTENT:\n{}{LEFT_OUT}",
            self.lines
        );
        self.archive.add("README", readme.as_bytes(), seconds())?;
        self.files.push("README".to_owned());
        if self.errors > 0 {
            say(format_args!(
                "vnicctl: files that could not be read: {}",
                self.errors
            ));
        }
        Ok(())
    }

    async fn call(&mut self, channel: &Channel, call: &Call) -> io::Result<()> {
        let ports = call.file == "ports";
        let answer = async move {
            let (value, more) = calls::ask(channel, call).await?;
            let mut value = value;
            if ports {
                config::strip(&mut value);
            }
            Ok((format!("{value:#}\n"), more))
        };
        let file = format!("{}.json", call.file);
        self.put(&file, call.what, Box::pin(answer)).await
    }

    /// Appends a file, or one with the reason why it is not there; the content comes with whether there is more of it.
    async fn put(&mut self, file: &str, what: &str, content: Content<'_>) -> io::Result<()> {
        let content = match timeout(PATIENCE, content).await {
            Ok(content) => content,
            Err(_) => Err(Failure::Failed(format!("no answer in {} s", PATIENCE.as_secs()))),
        };
        let content = content.map_err(|failure| reason(&failure)).and_then(clean);
        let (name, text, note) = match content {
            Ok((text, more)) => (file.to_owned(), text, if more { "; there is more" } else { "" }),
            Err(why) => {
                let stem = file.split('.').next().unwrap_or(file);
                self.errors += 1;
                (
                    format!("{stem}.error"),
                    format!("{}\n", why.trim_end()),
                    "; could not be read",
                )
            }
        };
        let size = text::bytes(text.len() as u64);
        say(format_args!("vnicctl: {name} ({size})"));
        self.lines
            .push_str(&format!("  {name:<22} {}  {what}{note}\n", stamp()));
        self.archive.add(&name, text.as_bytes(), seconds())?;
        self.files.push(name);
        Ok(())
    }
}

fn done<'a>(content: Result<String, Failure>) -> Content<'a> {
    Box::pin(std::future::ready(content.map(|text| (text, false))))
}

/// Refuses a file with a private key.
fn clean((text, more): (String, bool)) -> Result<(String, bool), String> {
    match text.contains("PRIVATE KEY-----") {
        true => Err("a private key is in it: it is left out".to_owned()),
        false => Ok((text, more)),
    }
}

fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Refused(status) => client::explain(status),
        Failure::Failed(why) | Failure::Usage(why) => why.clone(),
        Failure::InOrder(method) => format!("{method} was only checked"),
        Failure::Differs => "there are differences".to_owned(),
        Failure::OutputClosed => "the other end closed the connection".to_owned(),
    }
}

type Info = vnic_control::v1::ServerInfo;

async fn info(client: &Client) -> Result<Info, String> {
    let ask = async {
        let mut service = client.server().await?;
        let request = vnic_control::v1::GetServerInfoRequest {};
        Ok(service.get_server_info(request).await?.into_inner())
    };
    match timeout(PATIENCE, ask).await {
        Ok(info) => info.map_err(|failure| reason(&failure)),
        Err(_) => Err("the daemon does not answer".to_owned()),
    }
}

/// `vnicctl` and its machine.
fn system(client: &Client, host: &str) -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let value: Value = json!({
        "vnicctl": { "version": VERSION, "git_revision": GIT_REVISION.unwrap_or_default() },
        "time": stamp(),
        "endpoint": client.shown(),
        "host": host,
        "kernel": fact("osrelease"),
        "kernel_build": fact("version"),
        "cpus": cpus,
    });
    format!("{value:#}\n")
}

/// Page behind the URL of the metrics.
async fn metrics(url: Result<String, Failure>) -> Result<(String, bool), Failure> {
    let url = url?;
    let parts = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let (address, path) = parts.ok_or_else(|| Failure::Failed(format!("{url} is no URL of metrics")))?;
    let mut stream = TcpStream::connect(address).await?;
    let question = format!("GET /{path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(METRICS_MAX).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, page) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok((page.to_owned(), answer.len() as u64 >= METRICS_MAX)),
        _ => Err(Failure::Failed(format!("{url} answers {line:?}"))),
    }
}
