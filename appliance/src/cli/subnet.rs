//! `vnicctl subnet`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use prost_types::FieldMask;
use vnic_control::v1;

use super::Failure;
use super::client::{Client, resource};
use super::output::Output;
use super::subnet_group::{self, GroupVerb};
use super::text;
use crate::check;
use crate::names::{self, ADAPTERS};

/// Verbs of quality of service by path.
#[derive(Debug, Subcommand)]
pub enum SubnetVerb {
    /// Policy files, in the language of OpenSM's QoS manager
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Partitions of adapters: who may speak with whom
    #[command(subcommand)]
    Partition(PartitionVerb),
    /// Multicast groups that adapters join, such as IPoIB's broadcast groups
    #[command(subcommand)]
    Group(GroupVerb),
    /// Ask for the path between two adapters, as a PathRecord answers: service level, MTU, rate, lifetime, partition
    #[command(
        after_help = "Examples:\n  vnicctl subnet path --from vf0 --to vf1\n  vnicctl subnet path --from vf0,vf1 --to vf2 --service-id \
                      0x1064e51\n  vnicctl -o json subnet path --from vf0 --to vf1 --qos-class 7 | jq .paths[0].service_level\n\nService-IDs: \
                      SDP 0x1PPPP, TCP ports of RDMA CM 0x106PPPP (RDS 0x10648ca, iSER 0x1060cbc, NFS over RDMA 0x1064e51). \
                      LIFETIME is log2 of 4.096 us."
    )]
    Path(PathArgs),
}

/// Verbs of partitions.
#[derive(Debug, Subcommand)]
pub enum PartitionVerb {
    /// Show the P_Keys of all adapters with an RDMA function, by index
    #[command(after_help = "Example:\n  vnicctl subnet partition list")]
    List,
    /// Set the P_Keys of an adapter, which act at once and are stored with it
    #[command(
        after_help = "Examples:\n  vnicctl subnet partition set vf0 0xffff 0x8001\n  vnicctl subnet partition set vf1 0x0001\n\n\
                      The lower 15 bits are the partition. With bit 15 (0x8000) the adapter is a full member, which speaks with all \
                      members; without it a limited one, which speaks with full ones only. The first P_Key is the one that programs \
                      use that choose none. Its default is 0xffff: adapter set NAME --default pkeys."
    )]
    Set {
        /// Name of the adapter
        adapter: String,
        /// P_Keys, by index: 1 to 16
        #[arg(required = true, value_name = "P_KEY", value_parser = check::pkey)]
        pkeys: Vec<u16>,
    },
}

/// Verbs of policy files.
#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Read a file, and say what is wrong with it and what of it would have no effect; nothing is changed
    #[command(after_help = "Example:\n  vnicctl subnet policy check /etc/opensm/qos-policy.conf")]
    Check {
        /// The file; -: standard input
        file: PathBuf,
    },
    /// Let a file answer, at once, and store it. One that is wrong changes nothing
    #[command(after_help = "Example:\n  vnicctl subnet policy load /etc/opensm/qos-policy.conf")]
    Load {
        /// The file; -: standard input
        file: PathBuf,
    },
    /// Show the policy that answers, what of it has no effect, and the ports of the subnet
    #[command(after_help = "Example:\n  vnicctl -o json subnet policy show | jq -r .text")]
    Show,
    /// Take the policy away
    #[command(after_help = "Example:\n  vnicctl subnet policy remove")]
    #[command(visible_alias = "delete")]
    Remove,
}

/// Options of `subnet path`.
#[derive(Debug, Args)]
pub struct PathArgs {
    /// Adapters where paths begin
    #[arg(long, value_name = "ADAPTER", required = true, value_delimiter = ',')]
    from: Vec<String>,
    /// Adapters where they end
    #[arg(long, value_name = "ADAPTER", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Service-ID of the query
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    service_id: Option<u64>,
    /// QoS class of the query, 0 to 4095
    #[arg(long, value_name = "NUMBER", value_parser = small)]
    qos_class: Option<u32>,
    /// P_Key of the query, such as 0xffff
    #[arg(long, value_name = "NUMBER", value_parser = small)]
    pkey: Option<u32>,
    /// Service level that the path has to have, 0 to 15
    #[arg(long, value_name = "NUMBER", value_parser = small)]
    sl: Option<u32>,
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x");
    let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    number.map_err(|_| format!("{text:?} is no number of 64 bits, decimal or 0x…"))
}

pub(super) fn small(text: &str) -> Result<u32, String> {
    u32::try_from(number(text)?).map_err(|_| format!("{text} is too large"))
}

/// The text of a file, or of standard input.
fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let done = match file == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|read| text = read),
    };
    done.map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))?;
    Ok(text)
}

/// Runs a command.
pub async fn run(verb: SubnetVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.subnet().await?;
    let policy = match verb {
        SubnetVerb::Path(args) => {
            let adapters = |names: Vec<String>| names.iter().map(|name| resource(ADAPTERS, name)).collect();
            let request = v1::ResolvePathsRequest {
                sources: adapters(args.from),
                destinations: adapters(args.to),
                service_id: args.service_id,
                qos_class: args.qos_class,
                pkey: args.pkey,
                service_level: args.sl,
            };
            return out.answer(
                "ResolvePathsResponse",
                service.resolve_paths(request).await?,
                paths,
            );
        }
        SubnetVerb::Group(verb) => return subnet_group::run(verb, &mut service, out).await,
        SubnetVerb::Partition(PartitionVerb::List) => {
            let request = v1::GetSubnetPolicyRequest::default();
            let policy = service.get_subnet_policy(request).await?;
            return out.answer("SubnetPolicy", policy, |policy| {
                text::table! { p in &policy.ports, "no RDMA functions";
                    "ADAPTER": names::last(&p.adapter),
                    "P_KEYS": pkeys(&p.pkeys),
                }
            });
        }
        SubnetVerb::Partition(PartitionVerb::Set {
            adapter,
            pkeys: wanted,
        }) => {
            let request = v1::UpdateAdapterRequest {
                adapter: Some(v1::Adapter {
                    name: resource(ADAPTERS, &adapter),
                    pkeys: wanted.into_iter().map(u32::from).collect(),
                    ..v1::Adapter::default()
                }),
                update_mask: Some(FieldMask {
                    paths: vec!["pkeys".to_owned()],
                }),
            };
            let changed = client.adapters().await?.update_adapter(request).await?;
            return out.answer("Adapter", changed, |a| {
                format!("{}: {}\n", names::last(&a.name), pkeys(&a.pkeys))
            });
        }
        SubnetVerb::Policy(PolicyVerb::Check { file }) => {
            let text = read(&file)?;
            let answer = service
                .check_subnet_policy(v1::CheckSubnetPolicyRequest { text })
                .await?;
            return out.answer("CheckSubnetPolicyResponse", answer, |checked| {
                notes(&checked.notes)
            });
        }
        SubnetVerb::Policy(PolicyVerb::Show) => {
            let request = v1::GetSubnetPolicyRequest::default();
            service.get_subnet_policy(request).await?
        }
        SubnetVerb::Policy(PolicyVerb::Load { file }) => {
            let text = read(&file)?;
            if text.is_empty() {
                return Err(Failure::Usage(
                    "the file is empty: `subnet policy remove` takes the policy away".to_owned(),
                ));
            }
            service.set_subnet_policy(wanted(text)).await?
        }
        SubnetVerb::Policy(PolicyVerb::Remove) => service.set_subnet_policy(wanted(String::new())).await?,
    };
    out.answer("SubnetPolicy", policy, shown)
}

fn wanted(text: String) -> v1::SetSubnetPolicyRequest {
    let policy = Some(v1::SubnetPolicy {
        text,
        ..v1::SubnetPolicy::default()
    });
    v1::SetSubnetPolicyRequest { policy }
}

fn notes(notes: &[v1::SubnetPolicyNote]) -> String {
    text::table! { n in notes, "everything in it has an effect";
        ">LINE": n.line,
        "NOTE": n.text,
    }
}

pub(super) fn pkey(key: u32) -> String {
    let member = if key & 0x8000 == 0 { "limited" } else { "full" };
    format!("{key:#06x} ({member})")
}

/// P_Keys of a table, by index.
pub(super) fn pkeys(table: &[u32]) -> String {
    table.iter().map(|key| pkey(*key)).collect::<Vec<_>>().join(", ")
}

fn shown(policy: &v1::SubnetPolicy) -> String {
    let ports = text::table! { p in &policy.ports, "no RDMA functions";
        "PORT": format!("{}/P1", names::last(&p.adapter)),
        "GUID": format!("{:#018x}", p.guid),
        ">MTU": p.mtu_bytes,
        ">MBIT/S": p.rate_mbps,
        "P_KEYS": pkeys(&p.pkeys),
    };
    if policy.text.is_empty() {
        return format!("no policy: all paths have service level 0\n\n{ports}");
    }
    let from = if policy.configured {
        "of the configuration file"
    } else {
        "stored"
    };
    let end = if policy.text.ends_with('\n') { "" } else { "\n" };
    format!(
        "# {from}\n{}{end}\n{}\n{ports}",
        policy.text,
        notes(&policy.notes)
    )
}

fn paths(found: &v1::ResolvePathsResponse) -> String {
    text::table! { p in &found.paths, "no paths";
        let show = |text: String| if p.refusal.is_empty() { text } else { "-".to_owned() };
        "FROM": names::last(&p.source),
        "TO": names::last(&p.destination),
        ">SL": show(p.service_level.to_string()),
        ">MTU": show(p.mtu_bytes.to_string()),
        ">MBIT/S": show(p.rate_mbps.to_string()),
        ">LIFETIME": show(p.packet_lifetime.to_string()),
        "P_KEY": show(pkey(p.pkey)),
        "WHY": why(p),
    }
}

/// What named the level, or why there is no path.
fn why(path: &v1::SubnetPath) -> String {
    match path {
        p if !p.refusal.is_empty() => p.refusal.clone(),
        p if p.level.is_empty() => "no policy".to_owned(),
        p if p.rule_line == 0 => format!("level {}, the default", p.level),
        p if p.rule.is_empty() => format!("level {}, line {}", p.level, p.rule_line),
        p => format!("level {}, line {}: {}", p.level, p.rule_line, p.rule),
    }
}
