//! Messages between two tools besides the RDMA traffic: lines of text, over TCP, over standard input and output, or between two
//! threads.
//!
//! ```text
//! endpoint version=1 tool=write_bw qpn=0x11 psn=0x22 gid=fd00::1 rkey=0x33 addr=0x44 len=65536 seed=1 …
//! ready                      connected, and receives are posted
//! done sent=500              all of this side's work is complete: so many messages on each queue pair
//! checked bad=0 lost=0       what this side found in its memory
//! error TEXT                 why this side ends
//! ```
//!
//! Over TCP both sides send all lines; with several message sizes they send all of them for each size. Over standard input and
//! output (for a script that stands between the two) a side prints `endpoint` and `ready`; the server reads `done`, the client
//! prints it; there are no other lines. Unknown words are ignored, so that a peer may be another program.

pub mod carrier;

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use vnic_verbs::{Gid, MacAddress};

use crate::failure::{Failure, Result};
use carrier::Carrier;

/// Version of these lines.
pub const VERSION: u64 = 1;
/// Most bytes of a line: that of 1024 queue pairs has 20,000.
pub const LINE_MAX: usize = 64 * 1024;
/// Most queue pairs.
pub const QPS_MAX: usize = 1024;
/// Time that a peer that is there may take for its next line.
const PATIENCE: Duration = Duration::from_secs(60);

/// Side of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that waits.
    Server,
    /// The side that begins.
    Client,
}

impl Role {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
        }
    }
}

/// A queue pair of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Number of the queue pair.
    pub number: u32,
    /// PSN of its first packet.
    pub psn: u32,
}

/// Memory for peers: for each queue pair `slots` places, `step` bytes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub addr: u64,
    /// Remote key of the memory.
    pub rkey: u32,
    /// Length in bytes, for all queue pairs together.
    pub len: u64,
    /// Places for one queue pair, if the peer says so.
    pub slots: Option<u64>,
    /// Bytes from one place to the next, if the peer says so.
    pub step: Option<u64>,
}

/// The line `endpoint`, which describes a side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Settings that must be equal on both sides: tool, size, ….
    pub run: Vec<(String, String)>,
    /// Queue pairs of the side.
    pub queues: Vec<Queue>,
    /// GID of the side.
    pub gid: Gid,
    /// Ethernet address of the side.
    pub mac: Option<MacAddress>,
    /// Path MTU that the side would use, in bytes.
    pub mtu: Option<u32>,
    /// Queue key for datagrams.
    pub qkey: Option<u32>,
    /// Memory of the side.
    pub area: Option<Area>,
    /// Seed of the side's first message.
    pub seed: Option<u64>,
}

/// Words of `run`.
const RUN: &[&str] = &[
    "tool", "type", "size", "all", "iters", "duration", "qps", "both", "verify", "atomic",
];

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint version={VERSION}")?;
        for (key, value) in &self.run {
            write!(f, " {key}={value}")?;
        }
        let list = |f: &mut fmt::Formatter<'_>, key: &str, of: fn(&Queue) -> u32| {
            for (n, queue) in self.queues.iter().enumerate() {
                match n {
                    0 => write!(f, " {key}={:#x}", of(queue))?,
                    _ => write!(f, ",{:#x}", of(queue))?,
                }
            }
            Ok(())
        };
        list(f, "qpn", |q| q.number)?;
        list(f, "psn", |q| q.psn)?;
        // A mapped IPv4 address keeps its `::ffff:`.
        write!(f, " gid={}", Ipv6Addr::from(self.gid.0))?;
        if let Some(mac) = self.mac {
            write!(f, " mac={mac}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu={mtu}")?;
        }
        if let Some(qkey) = self.qkey {
            write!(f, " qkey={qkey:#x}")?;
        }
        if let Some(area) = &self.area {
            write!(f, " rkey={:#x} addr={:#x} len={}", area.rkey, area.addr, area.len)?;
            if let (Some(slots), Some(step)) = (area.slots, area.step) {
                write!(f, " slots={slots} step={step}")?;
            }
        }
        if let Some(seed) = self.seed {
            write!(f, " seed={seed}")?;
        }
        Ok(())
    }
}

/// `key=value` words, each key at most once.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Result<Words<'a>, String> {
        let mut words: Vec<(&str, &str)> = Vec::new();
        for word in text.split_whitespace() {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("the word `{}` is not key=value", shorten(word)))?;
            if words.iter().any(|(k, _)| *k == key) {
                return Err(format!("`{}` twice", shorten(key)));
            }
            words.push((key, value));
        }
        Ok(Words(words))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    fn number(&self, key: &str, max: u64) -> Result<Option<u64>, String> {
        self.text(key).map(|text| number(key, text, max)).transpose()
    }

    fn small(&self, key: &str, max: u32) -> Result<Option<u32>, String> {
        let value = self.number(key, max.into())?;
        Ok(value.map(|v| u32::try_from(v).unwrap_or(max)))
    }

    fn list(&self, key: &str, max: u64) -> Result<Option<Vec<u64>>, String> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        let parts = text.split(',').take(QPS_MAX + 1);
        let list: Vec<u64> = parts
            .map(|part| number(key, part, max))
            .collect::<Result<_, _>>()?;
        if list.len() > QPS_MAX {
            return Err(format!("`{key}` has more than {QPS_MAX} numbers"));
        }
        Ok(Some(list))
    }
}

/// A number: decimal, or hexadecimal after `0x`.
fn number(key: &str, text: &str, max: u64) -> Result<u64, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match value {
        Ok(value) if value <= max => Ok(value),
        Ok(_) => Err(format!("{key}={text} is more than {max:#x}")),
        Err(_) => Err(format!("{key}={} is no number", shorten(text))),
    }
}

/// The beginning of a peer's text, for an error message.
fn shorten(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(60)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

impl FromStr for Offer {
    type Err = String;

    fn from_str(line: &str) -> Result<Offer, String> {
        let Some(rest) = line.strip_prefix("endpoint ") else {
            return Err(format!("`{}` is no endpoint", shorten(line)));
        };
        let words = Words::of(rest)?;
        match words.number("version", u64::MAX)? {
            None | Some(VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "it speaks version {other} of the exchange, this program {VERSION}: use the same release on both sides"
                ));
            }
        }
        let numbers = words.list("qpn", 0xff_ffff)?.ok_or("it says no qpn")?;
        let psns = words
            .list("psn", 0xff_ffff)?
            .unwrap_or_else(|| vec![0; numbers.len()]);
        if numbers.len() != psns.len() {
            return Err(format!(
                "it names {} queue pairs and {} PSNs",
                numbers.len(),
                psns.len()
            ));
        }
        let gid = words.text("gid").ok_or("it says no gid")?;
        let gid = gid
            .parse()
            .map_err(|_| format!("gid={} is no GID", shorten(gid)))?;
        let mac = words.text("mac").map(|text| {
            text.parse()
                .map_err(|_| format!("mac={} is no Ethernet address", shorten(text)))
        });
        let area = match (words.number("addr", u64::MAX)?, words.small("rkey", u32::MAX)?) {
            (Some(addr), Some(rkey)) => Some(Area {
                addr,
                rkey,
                len: words.number("len", u64::MAX - addr)?.ok_or("it says no len")?,
                slots: words.number("slots", u64::MAX)?,
                step: words.number("step", u64::MAX)?,
            }),
            _ => None,
        };
        let run = RUN
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), words.text(key)?.to_owned())));
        Ok(Offer {
            run: run.collect(),
            queues: numbers
                .into_iter()
                .zip(psns)
                .map(|(number, psn)| Queue {
                    number: number as u32,
                    psn: psn as u32,
                })
                .collect(),
            gid,
            mac: mac.transpose()?,
            mtu: words.small("mtu", 4096)?,
            qkey: words.small("qkey", u32::MAX)?,
            area,
            seed: words.number("seed", u64::MAX)?,
        })
    }
}

impl Offer {
    /// Checks that both sides mean the same run. Settings that the peer does not give are not compared.
    fn fits(&self, peer: &Offer) -> Result<(), String> {
        for (key, mine) in &self.run {
            let theirs = peer.run.iter().find(|(k, _)| k == key).map(|(_, v)| v);
            if let Some(theirs) = theirs.filter(|theirs| *theirs != mine) {
                return Err(format!(
                    "the peer was started with {key}={}, this side with {key}={mine}: start both with the same options",
                    shorten(theirs)
                ));
            }
        }
        if self.queues.len() != peer.queues.len() {
            return Err(format!(
                "the peer has {} queue pairs, this side {}: start both with the same -q",
                peer.queues.len(),
                self.queues.len()
            ));
        }
        Ok(())
    }
}

/// The line `done` or `checked`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// Messages that this side sent on each queue pair, if it says so.
    pub sent: Option<Vec<u64>>,
    /// Messages with wrong data.
    pub bad: u64,
    /// Messages that did not arrive.
    pub lost: u64,
}

impl Account {
    fn parse(words: &str) -> Result<Account, String> {
        let words = Words::of(words)?;
        Ok(Account {
            sent: words.list("sent", u64::MAX)?,
            bad: words.number("bad", u64::MAX)?.unwrap_or(0),
            lost: words.number("lost", u64::MAX)?.unwrap_or(0),
        })
    }
}

/// The link to the other tool.
pub struct Link {
    carrier: Carrier,
    /// Side of this tool.
    pub role: Role,
    done: Option<Account>,
}

impl Link {
    /// A link over a carrier.
    pub fn new(carrier: Carrier, role: Role) -> Link {
        Link {
            carrier,
            role,
            done: None,
        }
    }

    /// Whether the peer reads and answers all lines, once for each size.
    pub fn is_talkative(&self) -> bool {
        !matches!(self.carrier, Carrier::Stdio(_))
    }

    /// Sends this side's line and reads the peer's.
    pub fn swap(&mut self, mine: &Offer) -> Result<Offer> {
        self.carrier.send(&mine.to_string())?;
        // A person or a script may take its time; a connected peer has no reason to.
        let patience = self.is_talkative().then_some(PATIENCE);
        let line = self.expect(patience, "its endpoint")?;
        let peer = line
            .parse::<Offer>()
            .and_then(|peer: Offer| mine.fits(&peer).map(|()| peer));
        peer.map_err(|why| {
            self.give_up(&why);
            Failure::Peer(why)
        })
    }

    /// Says that this side can receive, and waits until the peer can.
    pub fn ready(&mut self) -> Result {
        self.done = None;
        self.carrier.send("ready")?;
        if self.is_talkative() {
            self.expect_word("ready")?;
        }
        Ok(())
    }

    /// Says that this side's work is complete.
    pub fn say_done(&mut self, sent: &[u64]) -> Result {
        let mut line = "done".to_owned();
        for (n, sent) in sent.iter().enumerate() {
            let _ = write!(line, "{}{sent}", if n == 0 { " sent=" } else { "," });
        }
        match (&self.carrier, self.role) {
            (Carrier::Stdio(_), Role::Server) => Ok(()),
            _ => self.carrier.send(&line),
        }
    }

    /// Whether the peer will say when its work is complete.
    pub fn hears_done(&self) -> bool {
        self.is_talkative() || self.role == Role::Server
    }

    /// Waits for the peer to say that its work is complete, for at most `patience`. `None` if it will not say.
    pub fn done_within(&mut self, patience: Duration) -> Result<Option<Account>> {
        if self.done.is_none() && self.hears_done() {
            let Some(line) = self.line(Some(patience))? else {
                return Ok(None);
            };
            self.done = Some(self.account("done", &line)?);
        }
        Ok(self.done.clone())
    }

    /// Sends this side's result and reads the peer's. `None` if the peer sends none.
    pub fn compare(&mut self, mine: &Account) -> Result<Option<Account>> {
        if !self.is_talkative() {
            return Ok(None);
        }
        self.carrier
            .send(&format!("checked bad={} lost={}", mine.bad, mine.lost))?;
        let line = self.expect(Some(PATIENCE), "what it found")?;
        self.account("checked", &line).map(Some)
    }

    /// Tells the peer why this side ends. The peer may be gone.
    pub fn give_up(&mut self, why: &str) {
        if self.is_talkative() {
            let why: String = why
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(1000)
                .collect();
            let _ = self.carrier.send(&format!("error {why}"));
        }
    }

    fn account(&mut self, word: &str, line: &str) -> Result<Account> {
        let rest = match line.strip_prefix(word) {
            Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest,
            _ => {
                return Err(Failure::Peer(format!(
                    "the peer said `{}`, not {word}",
                    shorten(line)
                )));
            }
        };
        Account::parse(rest).map_err(|e| Failure::Peer(format!("the peer's `{word}`: {e}")))
    }

    fn expect_word(&mut self, word: &str) -> Result {
        let line = self.expect(Some(PATIENCE), word)?;
        if line.split_whitespace().next() == Some(word) {
            return Ok(());
        }
        Err(Failure::Peer(format!(
            "the peer said `{}`, not {word}",
            shorten(&line)
        )))
    }

    fn expect(&mut self, patience: Option<Duration>, what: &str) -> Result<String> {
        self.line(patience)?.ok_or_else(|| {
            Failure::Peer(format!(
                "the peer does not say {what}: it hangs, or is another program"
            ))
        })
    }

    fn line(&mut self, patience: Option<Duration>) -> Result<Option<String>> {
        let end = patience.map(|p| Instant::now() + p);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let Some(line) = self.carrier.receive(left)? else {
                return Ok(None);
            };
            let line = line.trim();
            if let Some(why) = line.strip_prefix("error ") {
                let why: String = why.chars().take(1000).filter(|c| !c.is_control()).collect();
                return Err(Failure::GaveUp(why));
            }
            if !line.is_empty() {
                return Ok(Some(line.to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
