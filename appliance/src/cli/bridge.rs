//! `vnicctl bridge`: ports of which one is joined to the other.

use clap::Subcommand;
use vnic_control::v1;

use super::client::{Client, resource};
use super::output::Output;
use super::{Failure, paging, text};
use crate::names::{self, PORTS};

/// Verbs of bumps in the wire.
#[derive(Debug, Subcommand)]
pub enum BridgeVerb {
    /// Join two ports: each frame from one goes out of the other as it is; stored with the first
    #[command(
        visible_alias = "create",
        after_help = "Examples:\n  vnicctl bridge add p0 p1\n  vnicctl fault add kth --from p0 --to p1 --opcode RC_RDMA_WRITE_MIDDLE \
                      --skip 99 --count 1 --drop\n  vnicctl capture live p0 -w wire.pcapng\n\nNeither port is a part of the network \
                      then: adapters do not reach them. Link-local frames (LLDP, LACP, pause) pass, too."
    )]
    Add {
        /// Name of a port
        first: String,
        /// Name of the other port; it may be one that comes later
        second: String,
    },
    /// List joined ports
    #[command(after_help = "Example:\n  vnicctl bridge list")]
    List,
    /// Part two ports; they are ports of the switch again
    #[command(visible_alias = "delete", after_help = "Example:\n  vnicctl bridge remove p0")]
    Remove {
        /// Name of one of the two ports
        port: String,
    },
}

/// Runs a command.
pub async fn run(verb: BridgeVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    match verb {
        BridgeVerb::Add { first, second } => {
            let answer = set(client, resource(PORTS, &first), resource(PORTS, &second)).await?;
            out.answer("Port", answer, |port| {
                format!(
                    "{} and {} are one wire",
                    names::last(&port.name),
                    names::last(port.bridge())
                )
            })
        }
        BridgeVerb::List => {
            let mut all = ports(client).await?;
            let others = all.ports.clone();
            all.ports.retain(|p| p.bridge.is_some());
            out.message("ListPortsResponse", &all, || table(&all.ports, &others))
        }
        BridgeVerb::Remove { port } => {
            let name = resource(PORTS, &port);
            let all = ports(client).await?.ports;
            let joined = all
                .iter()
                .find(|p| p.bridge.is_some() && (p.name == name || p.bridge() == name));
            let Some(joined) = joined else {
                return Err(Failure::Usage(format!(
                    "{port} is in no bridge: see `vnicctl bridge list`"
                )));
            };
            set(client, joined.name.clone(), String::new()).await?;
            Ok(())
        }
    }
}

async fn ports(client: &Client) -> Result<v1::ListPortsResponse, Failure> {
    paging::list(&mut client.ports().await?, v1::ListPortsRequest::default()).await
}

async fn set(client: &Client, name: String, other: String) -> Result<tonic::Response<v1::Port>, Failure> {
    let request = v1::UpdatePortRequest {
        name,
        bridge: Some(other),
        ..v1::UpdatePortRequest::default()
    };
    Ok(client.ports().await?.update_port(request).await?)
}

fn table(joined: &[v1::Port], all: &[v1::Port]) -> String {
    let state = |p: &v1::Port| match all.iter().find(|other| other.name == p.bridge()) {
        None => "the other port is not there",
        Some(other) if p.up && other.up => "up",
        Some(_) => "down",
    };
    let traffic = |p: &v1::Port| p.traffic.unwrap_or_default();
    text::table! { p in joined, "no bridges";
        "PORT": names::last(&p.name),
        "PORT": names::last(p.bridge()),
        "LINK": state(p),
        ">FROM THE FIRST": text::count(traffic(p).rx_frames),
        ">TO THE FIRST": text::count(traffic(p).tx_frames),
        ">DROPS": text::count(traffic(p).drops),
    }
}
