//! `vnicctl rdma connection`: connections of RDMA functions.

use clap::Subcommand;
use vnic_control::v1;
use vnic_control::v1::rdma_connection::Type;

use super::client::{Client, resource};
use super::output::Output;
use super::{Failure, paging, qp, text};
use crate::names::{self, ADAPTERS};

#[derive(Debug, Subcommand)]
pub enum RdmaVerb {
    /// Connections that programs make by the device's communication management (rdma_cm), and their listeners
    #[command(subcommand)]
    Connection(ConnectionVerb),
}

#[derive(Debug, Subcommand)]
pub enum ConnectionVerb {
    /// List connections and listeners, as rdma resource show cm_id does
    #[command(
        visible_alias = "show",
        after_help = "Examples:\n  vnicctl rdma connection list\n  vnicctl -o json rdma connection list vf0 | jq '.connections[] | \
                      select(.state == \"STATE_ESTABLISHED\") | .peer.gid'\n\nSIDE: active, this end has asked; passive, the \
                      peer has. SERVICE: port space and port of RDMA CM, or the service ID. ECE: vendor and options of enhanced \
                      connection establishment that both ends have. COMMAND: the process that has the connection, a VMM or the \
                      program itself. Connections that are over stay until their program destroys them."
    )]
    List {
        /// Name of the adapter; all when absent
        adapter: Option<String>,
    },
}

/// Runs a command about RDMA functions.
pub async fn run(verb: RdmaVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let RdmaVerb::Connection(ConnectionVerb::List { adapter }) = verb;
    let all = all(
        client,
        adapter.map_or_else(String::new, |name| resource(ADAPTERS, &name)),
    )
    .await?;
    out.message("ListRdmaConnectionsResponse", &all, || table(&all.connections))
}

/// All connections of an adapter (`parent`), or of all.
pub async fn all(client: &Client, parent: String) -> Result<v1::ListRdmaConnectionsResponse, Failure> {
    let mut service = client.rdma().await?;
    let request = v1::ListRdmaConnectionsRequest {
        parent,
        ..Default::default()
    };
    paging::list(&mut service, request).await
}

/// Vendor and options of enhanced connection establishment.
pub fn ece(connection: &v1::RdmaConnection) -> String {
    let shown = |ece: &v1::rdma_connection::Ece| format!("{:#08x}:{:#010x}", ece.vendor, ece.options);
    connection.ece.as_ref().map_or_else(|| "-".to_owned(), shown)
}

fn kind(connection: &v1::RdmaConnection) -> &'static str {
    match connection.r#type() {
        Type::Unspecified => "-",
        Type::Rc => "RC",
        Type::Uc => "UC",
        Type::Ud => "UD",
        Type::Xrc => "XRC",
    }
}

pub fn service(connection: &v1::RdmaConnection) -> String {
    match connection.port_space.as_str() {
        "" => format!("{:#018x}", connection.service),
        space => format!("{space}:{}", connection.port),
    }
}

fn table(connections: &[v1::RdmaConnection]) -> String {
    let none = || "-".to_owned();
    let number = |n: u32| if n == 0 { none() } else { n.to_string() };
    text::table! { c in connections, "no connections";
        let peer = c.peer.as_ref();
        let owner = c.owner.as_ref();
        "DEV": names::last(&c.adapter),
        ">NUMBER": c.number,
        "STATE": text::word(c.state().as_str_name(), "STATE_"),
        "TYPE": kind(c),
        "SIDE": if c.passive { "passive" } else { "active" },
        "SERVICE": service(c),
        "PEER": peer.map_or("-", qp::address),
        ">QPN": number(c.queue_pair),
        ">PEER QPN": number(peer.map_or(0, |peer| peer.queue_pair)),
        "ECE": ece(c),
        ">PID": owner.map_or_else(none, |o| o.pid.to_string()),
        "COMMAND": owner.map_or("", |o| &o.command),
    }
}

#[cfg(test)]
mod tests {
    use v1::rdma_connection::{Ece, State};

    use super::*;

    #[test]
    fn a_row_says_who_is_connected_to_whom_for_what() {
        let established = v1::RdmaConnection {
            adapter: "adapters/vf0".to_owned(),
            number: 17,
            state: State::Established.into(),
            r#type: Type::Rc.into(),
            passive: true,
            service: 0x0106_01bd,
            port_space: "TCP".to_owned(),
            port: 445,
            peer: Some(v1::QueuePairPeer {
                gid: "0000:0000:0000:0000:0000:ffff:0a00:0005".to_owned(),
                ipv4: "10.0.0.5".to_owned(),
                queue_pair: 18,
                ..v1::QueuePairPeer::default()
            }),
            peer_number: 5,
            queue_pair: 19,
            ece: Some(Ece {
                vendor: 0x15b3,
                options: 0x3000_0002,
            }),
            owner: Some(v1::Process {
                pid: 4711,
                uid: Some(1000),
                command: "rping".to_owned(),
            }),
        };
        let asked = v1::RdmaConnection {
            adapter: "adapters/vf0".to_owned(),
            number: 20,
            state: State::ReqSent.into(),
            r#type: Type::Xrc.into(),
            service: 7,
            peer: Some(v1::QueuePairPeer {
                gid: "fe80::1".to_owned(),
                ..v1::QueuePairPeer::default()
            }),
            ..v1::RdmaConnection::default()
        };
        let listens = v1::RdmaConnection {
            adapter: "adapters/vf1".to_owned(),
            number: 3,
            state: State::Listen.into(),
            passive: true,
            port_space: "TCP".to_owned(),
            port: 7174,
            ..v1::RdmaConnection::default()
        };
        let expected = "\
DEV  NUMBER  STATE        TYPE  SIDE     SERVICE             PEER      QPN  PEER QPN  ECE                   PID  COMMAND
vf0      17  ESTABLISHED  RC    passive  TCP:445             10.0.0.5   19        18  0x0015b3:0x30000002  4711  rping
vf0      20  REQ_SENT     XRC   active   0x0000000000000007  fe80::1     -         -  -                       -
vf1       3  LISTEN       -     passive  TCP:7174            -           -         -  -                       -
";
        assert_eq!(table(&[established, asked, listens]), expected);
        assert_eq!(table(&[]), "no connections\n");
    }
}
