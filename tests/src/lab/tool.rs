//! Tools of `vnic-guest`, in a guest or in a process of this machine, with the case between them: it hands the
//! endpoint of each to the other (`--exchange stdio`), for there need not be a network that joins the two.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::process::Process;
use super::{Guest, Lab};

/// The longest that a tool may take from one line to the next.
const PATIENCE: Duration = Duration::from_secs(300);
/// Where a tool in a guest leaves its errors.
const ERRORS: &str = "/tmp/tool.err";
/// The program.
pub const PROGRAM: &str = "vnic-guest";

/// What one side tells the other: `key=value` words behind `endpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Vec<(String, String)>);

impl Endpoint {
    /// One that is not a tool's.
    pub fn of(words: &[(&str, &dyn fmt::Display)]) -> Endpoint {
        Endpoint(
            words
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.to_string()))
                .collect(),
        )
    }

    /// The value of a key.
    pub fn text(&self, key: &str) -> Result<&str> {
        let word = self.0.iter().find(|(k, _)| k == key);
        let (_, value) = word.with_context(|| format!("no {key} in `{self}`"))?;
        Ok(value)
    }

    /// The value of a key as a number, decimal or hexadecimal after `0x`.
    pub fn number(&self, key: &str) -> Result<u64> {
        let text = self.text(key)?;
        let value = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        value.with_context(|| format!("{key} is not a number in `{self}`"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("endpoint")?;
        self.0
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

impl FromStr for Endpoint {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Endpoint> {
        let mut words = line.split_whitespace();
        ensure!(words.next() == Some("endpoint"), "not an endpoint: {line:?}");
        let word = |word: &str| -> Result<(String, String)> {
            let (key, value) = word
                .split_once('=')
                .with_context(|| format!("`{word}` in {line:?}"))?;
            Ok((key.to_owned(), value.to_owned()))
        };
        words.map(word).collect::<Result<_>>().map(Endpoint)
    }
}

/// Where a tool runs.
#[derive(Debug)]
enum Seat<'a> {
    Guest(&'a mut Guest),
    Host(Process),
}

/// A tool that runs. Its guest takes no other command meanwhile.
#[derive(Debug)]
pub struct Tool<'a> {
    seat: Seat<'a>,
    command: String,
    output: String,
}

/// What a tool left.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code; -1 if a signal ended it.
    pub exit: i32,
    /// All it printed.
    pub output: String,
}

impl Outcome {
    /// Its report (`--json`), if it was content.
    pub fn report(&self) -> Result<Value> {
        ensure!(self.exit == 0, "ended with {}:\n{}", self.exit, self.output);
        let line = self.output.lines().rev().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("no JSON in:\n{}", self.output))?;
        serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))
    }
}

impl<'a> Tool<'a> {
    /// `vnic-guest ARGUMENTS` in a guest.
    pub fn in_guest(guest: &'a mut Guest, arguments: &str) -> Result<Tool<'a>> {
        let command = format!("{PROGRAM} {arguments}");
        // It reads from the agent's terminal, in the agent's place.
        // (On a terminal it would show its progress: its errors go elsewhere.)
        guest.send(&format!("exec {command} </dev/ttyS1 2>{ERRORS}"))?;
        Ok(Tool {
            seat: Seat::Guest(guest),
            command,
            output: String::new(),
        })
    }

    /// `vnic-guest ARGUMENTS` on this machine, as the driver behind a socket.
    pub fn on_host(lab: &Lab, socket: &Path, arguments: &str) -> Result<Tool<'a>> {
        let mut command = vec!["env".to_owned(), format!("VNIC_SOCKET={}", socket.display())];
        command.push(lab.program(PROGRAM).display().to_string());
        command.extend(arguments.split_whitespace().map(str::to_owned));
        let log = lab.log("host-tool.log");
        Ok(Tool {
            seat: Seat::Host(Process::start(PROGRAM, &command, &log, &log)?),
            command: format!("{PROGRAM} {arguments} (host)"),
            output: String::new(),
        })
    }

    /// Gives it a line.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        match &mut self.seat {
            Seat::Guest(guest) => guest.send(line),
            Seat::Host(process) => process.send(line),
        }
    }

    /// The next line it prints.
    fn line(&mut self) -> Result<String> {
        let end = Instant::now() + PATIENCE;
        let line = match &mut self.seat {
            Seat::Guest(guest) => guest.line(end),
            Seat::Host(process) => process.line(end),
        };
        let line = line.with_context(|| format!("`{}`, after:\n{}", self.command, self.output))?;
        if line.starts_with("@@exit=") {
            if let Seat::Guest(guest) = &mut self.seat {
                self.output.push_str(&guest.ok(&format!("cat {ERRORS}"))?);
            }
            bail!(
                "`{}` has ended ({line}) too early:\n{}",
                self.command,
                self.output
            );
        }
        self.output.push_str(&line);
        self.output.push('\n');
        Ok(line)
    }

    /// Waits for a line that begins with `start`.
    pub fn wait_for(&mut self, start: &str) -> Result<String> {
        loop {
            let line = self.line()?;
            if line.starts_with(start) {
                return Ok(line);
            }
        }
    }

    /// Waits for its endpoint.
    pub fn endpoint(&mut self) -> Result<Endpoint> {
        self.wait_for("endpoint ")?.parse()
    }

    /// Tells it the other side's endpoint, and waits until it is connected and can receive.
    pub fn connect(&mut self, peer: &Endpoint) -> Result<()> {
        self.tell(&peer.to_string())?;
        self.wait_for("ready").map(|_| ())
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<Outcome> {
        let exit = match &mut self.seat {
            Seat::Guest(guest) => {
                let (exit, rest) = guest.finish(&self.command)?;
                self.output.push_str(&rest);
                self.output.push_str(&guest.ok(&format!("cat {ERRORS}"))?);
                exit
            }
            Seat::Host(process) => {
                // Its lines first: they end when it does.
                let end = Instant::now() + PATIENCE;
                while let Ok(line) = process.line(end) {
                    self.output.push_str(&line);
                    self.output.push('\n');
                }
                process.wait(PATIENCE)?.code().unwrap_or(-1)
            }
        };
        Ok(Outcome {
            exit,
            output: self.output,
        })
    }

    /// Kills it without warning, as `kill -9` would (a process of this machine only).
    pub fn kill(self) -> Result<()> {
        match self.seat {
            Seat::Host(process) => process.signal(rustix::process::Signal::KILL),
            Seat::Guest(_) => bail!("a tool in a guest is killed by a command there"),
        }
    }
}

/// Joins a server and a client, and waits until both have ended well; their reports.
pub fn run(mut server: Tool<'_>, mut client: Tool<'_>) -> Result<[Value; 2]> {
    join(&mut server, &mut client)?;
    let what = [server.command.clone(), client.command.clone()];
    let done = client.wait_for("done")?;
    server.tell(&done)?;
    let outcomes = [server.finish()?, client.finish()?];
    let mut reports = outcomes
        .iter()
        .zip(&what)
        .map(|(outcome, what)| outcome.report().context(what.clone()));
    match (reports.next(), reports.next()) {
        (Some(server), Some(client)) => Ok([server?, client?]),
        _ => bail!("two reports"),
    }
}

/// Hands each the other's endpoint; the server is ready when the client begins.
pub fn join(server: &mut Tool<'_>, client: &mut Tool<'_>) -> Result<()> {
    let (theirs, ours) = (server.endpoint()?, client.endpoint()?);
    server.connect(&ours)?;
    client.connect(&theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let line = "endpoint qpn=0x11 psn=7 gid=::ffff:10.0.0.1";
        let endpoint: Endpoint = line.parse().expect("an endpoint");
        assert_eq!(endpoint.number("qpn").expect("qpn"), 17);
        assert_eq!(endpoint.number("psn").expect("psn"), 7);
        assert_eq!(endpoint.text("gid").expect("gid"), "::ffff:10.0.0.1");
        assert!(endpoint.number("gid").is_err() && endpoint.text("rkey").is_err());
        assert_eq!(endpoint.to_string(), line);
        assert!("ready".parse::<Endpoint>().is_err());
        assert!("endpoint qpn".parse::<Endpoint>().is_err());
        assert_eq!(Endpoint::of(&[("qpn", &17)]).to_string(), "endpoint qpn=17");
    }

    #[test]
    fn reports() {
        let outcome = Outcome {
            exit: 0,
            output: "endpoint qpn=1\nready\n{\"ok\":true}\ndone\n".to_owned(),
        };
        assert_eq!(outcome.report().expect("a report")["ok"], true);
        let outcome = Outcome { exit: 1, ..outcome };
        assert!(outcome.report().is_err());
    }
}
