//! `vnicctl dcbx`, and the options of `vnicctl port` for data center bridging exchange.

use clap::{Args, Subcommand};
use vnic_backend::{ApplicationRow, DcbxMode};
use vnic_control::v1;

use super::client::{Client, resource};
use super::output::Output;
use super::text;
use super::{Failure, paging};
use crate::check;
use crate::names::{self, PORTS};
use crate::stored::ports::{application, dcbx_mode};

/// Verbs of data center bridging exchange.
#[derive(Debug, Subcommand)]
pub enum DcbxVerb {
    /// Show what the operator wants of a port, what its peer says, and what acts
    #[command(
        after_help = "Examples:\n  vnicctl dcbx show\n  vnicctl -o json dcbx show p0 | jq .dcbx_state.operational.pfc_priorities\n\n\
                      ADMINISTRATIVE is what `qos set` and `port set` gave, OPERATIONAL what acts, OF whose that is. By IEEE classes are taken as \
                      the peer recommends them, flow control as it has it: of two willing ends, the one with the lower MAC address yields. By \
                      CEE all is taken as a peer has it that is not willing."
    )]
    Show {
        /// Name of the port; all when absent
        port: Option<String>,
    },
}

/// Options of a port.
#[derive(Debug, Args)]
pub struct DcbxArgs {
    /// Data center bridging exchange: off, ieee, cee (from before), or auto (the peer's of both, IEEE first); it acts while link layer
    /// discovery is rx-and-tx
    #[arg(long = "dcbx", value_name = "VERSION", value_parser = check::dcbx)]
    mode: Option<DcbxMode>,
    /// What is taken from the peer: ets, pfc, applications, or none [default: all]
    #[arg(long = "dcbx-willing", value_name = "LIST", value_parser = attributes)]
    willing: Option<Attributes>,
    /// Priority of an application, of which the port tells, such as udp:4791=3; several times for several; none: of no application.
    /// Selectors are ethertype, tcp, udp, port (of any of these) and dscp
    #[arg(long = "dcbx-application", value_name = "ROW", value_parser = row)]
    applications: Vec<Row>,
}

/// Names of attributes.
#[derive(Debug, Clone)]
struct Attributes(Vec<&'static str>);

fn attributes(text: &str) -> Result<Attributes, String> {
    match text {
        "none" => Ok(Attributes(Vec::new())),
        _ => Ok(Attributes(
            text.split(',').map(check::attribute).collect::<Result<_, _>>()?,
        )),
    }
}

/// A row of the table of applications; `None`: no rows.
#[derive(Debug, Clone)]
struct Row(Option<ApplicationRow>);

fn row(text: &str) -> Result<Row, String> {
    match text {
        "none" => Ok(Row(None)),
        _ => Ok(Row(Some(check::application(text)?))),
    }
}

impl DcbxArgs {
    /// Whether no option is there.
    pub fn is_empty(&self) -> bool {
        self.mode.is_none() && self.willing.is_none() && self.applications.is_empty()
    }

    /// Settings with what the options change; `None`: nothing.
    pub fn changed(&self, before: &v1::DcbxSettings) -> Option<v1::DcbxSettings> {
        if self.is_empty() {
            return None;
        }
        let mut new = before.clone();
        if let Some(mode) = self.mode {
            new.mode = dcbx_mode(mode).into();
        }
        if let Some(Attributes(names)) = &self.willing {
            let bits = check::willing(names.iter().copied());
            new.ets_willing = Some(bits.ets);
            new.pfc_willing = Some(bits.pfc);
            new.applications_willing = Some(bits.applications);
        }
        if !self.applications.is_empty() {
            let rows = self.applications.iter().filter_map(|row| row.0.as_ref());
            new.applications = rows.map(|row| application(&row.0)).collect();
        }
        Some(new)
    }
}

/// Runs a command.
pub async fn run(verb: DcbxVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let DcbxVerb::Show { port } = verb;
    let mut service = client.ports().await?;
    match port {
        Some(name) => {
            let name = resource(PORTS, &name);
            let answer = service.get_port(v1::GetPortRequest { name }).await?;
            out.answer("Port", answer, show)
        }
        None => {
            let all: v1::ListPortsResponse =
                paging::list(&mut service, v1::ListPortsRequest::default()).await?;
            let text = || match &all.ports[..] {
                [] => "no ports\n".to_owned(),
                ports => ports.iter().map(show).collect::<Vec<_>>().join("\n"),
            };
            out.message("ListPortsResponse", &all, text)
        }
    }
}

/// Whether data center bridging exchange acts on a port, in words.
pub fn state(port: &v1::Port) -> String {
    let wanted = port.dcbx.clone().unwrap_or_default();
    let own = match wanted.mode() {
        v1::DcbxMode::Unspecified | v1::DcbxMode::Off => None,
        v1::DcbxMode::Ieee => Some("ieee"),
        v1::DcbxMode::Cee => Some("cee"),
        v1::DcbxMode::Auto => Some("auto"),
    };
    match (&port.dcbx_state, own) {
        (None, None) => "off".to_owned(),
        (None, Some(own)) => {
            format!("{own}, and does not act: that needs lldp rx-and-tx, and quality of service")
        }
        (Some(state), own) => {
            let speaks = match state.version() {
                v1::DcbxMode::Cee => "cee",
                _ => "ieee",
            };
            let version = match own {
                None => format!("{speaks}, as the NV configuration has it"),
                Some("auto") => format!("{speaks} (auto)"),
                Some(_) => speaks.to_owned(),
            };
            let peers = match state.peers {
                0 => "no peer".to_owned(),
                1 => "1 peer".to_owned(),
                several => format!("{several} peers, of which none counts"),
            };
            let (sent, received, changes) = (state.sent, state.received, state.changes);
            let errors = match state.errors {
                0 => String::new(),
                n => format!("; attributes that cannot be read: {n}"),
            };
            format!(
                "{version}, {peers}; messages: {sent} sent, {received} received; changes: {changes}{errors}"
            )
        }
    }
}

/// Data center bridging exchange of a port: a row for each attribute.
fn show(port: &v1::Port) -> String {
    let name = names::last(&port.name);
    let head = format!("{name}: DCBX {}\n", state(port));
    let Some(state) = &port.dcbx_state else {
        return head;
    };
    let wanted = port.dcbx.clone().unwrap_or_default();
    let none = v1::DcbxExchange::default();
    let side = |side: &Option<v1::DcbxExchange>| side.clone().unwrap_or(none.clone());
    let (own, acts, peer) = (
        side(&state.administrative),
        side(&state.operational),
        side(&state.peer),
    );
    let plain = |said: &v1::DcbxExchange| v1::DcbxExchange {
        ets_willing: false,
        pfc_willing: false,
        ..said.clone()
    };
    let (own, acts) = (plain(&own), plain(&acts));
    let rows = [
        (
            "pfc",
            wanted.pfc_willing(),
            state.pfc_from_peer,
            [pfc(&own), pfc(&acts), pfc(&peer)],
        ),
        (
            "ets",
            wanted.ets_willing(),
            state.ets_from_peer,
            [ets(&own), ets(&acts), ets(&peer)],
        ),
        (
            "recommended",
            false,
            false,
            [String::new(), String::new(), recommended(&peer)],
        ),
        (
            "applications",
            wanted.applications_willing(),
            state.applications_from_peer,
            [&own, &acts, &peer].map(|said| applications(&said.applications)),
        ),
    ];
    let table = text::table! { (attribute, willing, of_peer, [own, acts, peer]) in rows, "";
        "ATTRIBUTE": attribute,
        "WILLING": match (attribute, willing) {
            ("recommended", _) => "",
            (_, true) => "yes",
            (_, false) => "no",
        },
        "ADMINISTRATIVE": own,
        "OPERATIONAL": acts,
        "OF": match (attribute, of_peer) {
            ("recommended", _) => "",
            (_, true) => "peer",
            (_, false) => "own",
        },
        "PEER": peer,
    };
    let problem = match &state.problem[..] {
        "" => String::new(),
        why => format!("{why}\n"),
    };
    head + &table + &problem
}

fn list(all: &[u32]) -> String {
    all.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn willing(yes: bool) -> &'static str {
    if yes { ", willing" } else { "" }
}

/// Flow control, in words; empty: nothing is said of it.
pub fn pfc(said: &v1::DcbxExchange) -> String {
    if !said.has_pfc {
        return String::new();
    }
    let of = match &said.pfc_priorities[..] {
        [] => "no priority".to_owned(),
        some => format!("priorities {}", list(some)),
    };
    format!("{of}{}", willing(said.pfc_willing))
}

/// Classes, in words; empty: nothing is said of them.
pub fn ets(said: &v1::DcbxExchange) -> String {
    match &said.ets {
        None => String::new(),
        Some(ets) => format!("{}{}", classes(ets), willing(said.ets_willing)),
    }
}

fn recommended(said: &v1::DcbxExchange) -> String {
    said.recommendation.as_ref().map(classes).unwrap_or_default()
}

/// Classes that have priorities, and how each is served, in words.
pub fn classes(c: &v1::dcbx_exchange::Classes) -> String {
    let (mut of, rest) = (Vec::new(), c.class_share.iter().zip(&c.class_algorithm));
    for ((class, (share, algorithm)), n) in rest.enumerate().zip(0..) {
        let has: Vec<u32> = (0..)
            .zip(&c.priority_class)
            .filter(|(_, of)| **of == n)
            .map(|(p, _)| p)
            .collect();
        let share = if algorithm == "ets" {
            format!(" {share} %")
        } else {
            String::new()
        };
        if !has.is_empty() {
            of.push(format!("class {class} ({algorithm}{share}): {}", list(&has)));
        }
    }
    of.join("; ")
}

/// Priorities of applications, in words.
pub fn applications(rows: &[v1::dcbx_exchange::Application]) -> String {
    let rows = rows.iter().map(|a| {
        let what = match a.selector {
            1 => format!("EtherType {:#06x}", a.protocol),
            2 => format!("TCP or SCTP port {}", a.protocol),
            3 => format!("UDP or DCCP port {}", a.protocol),
            4 => format!("port {}", a.protocol),
            5 => format!("DSCP {}", a.protocol),
            other => format!("selector {other}, {}", a.protocol),
        };
        format!("{what}: {}", a.priority)
    });
    rows.collect::<Vec<_>>().join("; ")
}
