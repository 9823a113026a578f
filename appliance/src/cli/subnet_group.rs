//! `vnicctl subnet group`.

use clap::{Args, Subcommand};
use vnic_control::v1;
use vnic_control::v1::subnet_service_client::SubnetServiceClient;

use super::Failure;
use super::client::resource;
use super::output::Output;
use super::paging;
use super::rehearsal::Channel;
use super::subnet::pkey;
use super::text::{self, Facts};
use crate::check;
use crate::names::{self, SUBNET_GROUPS};

/// Verbs of multicast groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// Make a multicast group, which adapters of its partition may join; it is stored, and comes back when the daemon restarts
    #[command(
        visible_alias = "add",
        after_help = "Examples:\n  vnicctl subnet group create all --partition 0xffff\n  vnicctl subnet group create blue --partition \
                      0x8001 --mtu 4096 --rate 40G --sl 3\n\nPrograms join by an MCMemberRecord to queue pair 1 of their adapter. \
                      Without --mgid the group is IPoIB's broadcast group in the partition."
    )]
    Create(GroupCreate),
    /// List all groups
    #[command(
        after_help = "Example:\n  vnicctl -o json subnet group list | jq '.groups[] | select(.pkey == 0x8001) | .name'"
    )]
    List,
    /// Show one group with its members
    #[command(after_help = "Example:\n  vnicctl subnet group show all")]
    Show {
        /// Name of the group
        name: String,
    },
    /// Remove groups; their members are told nothing
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl subnet group remove all"
    )]
    Remove {
        /// Names of the groups
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// Options of `subnet group create`.
#[derive(Debug, Args)]
pub struct GroupCreate {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    #[arg(value_parser = check::name)]
    name: String,
    /// P_Key of its partition; with bit 15 (0x8000) limited members may join, too
    #[arg(long, value_name = "P_KEY", value_parser = check::pkey)]
    partition: u16,
    /// Its GID, an IPv6 multicast address, such as ff12:601b:8001::1
    #[arg(long, value_name = "GID")]
    mgid: Option<std::net::Ipv6Addr>,
    /// Queue key of its datagrams; without it 0xb1b
    #[arg(long, value_name = "NUMBER", value_parser = super::subnet::small)]
    qkey: Option<u32>,
    /// Greatest payload of a datagram in bytes: 256, 512, 1024, 2048 or 4096. Adapters whose RDMA function has less cannot join
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    mtu: u32,
    /// Least rate of its members, one that PathRecord has a code for: 2.5G, 5G, 10G, 14G, 20G, 25G, 40G, 100G, …
    #[arg(long, value_name = "RATE", default_value = "10G", value_parser = check::qos::rate)]
    rate: u64,
    /// Packet lifetime: log2 of 4.096 us, 0 to 63; without it 18
    #[arg(long, value_name = "NUMBER")]
    lifetime: Option<u32>,
    /// Service level, 0 to 15
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    sl: u32,
}

/// Runs a command.
pub async fn run(
    verb: GroupVerb,
    service: &mut SubnetServiceClient<Channel>,
    out: &Output,
) -> Result<(), Failure> {
    match verb {
        GroupVerb::List => {
            let all = paging::list(service, v1::ListSubnetGroupsRequest::default()).await?;
            out.message("ListSubnetGroupsResponse", &all, || table(&all.groups))
        }
        GroupVerb::Show { name } => {
            let name = resource(SUBNET_GROUPS, &name);
            let answer = service
                .get_subnet_group(v1::GetSubnetGroupRequest { name })
                .await?;
            out.answer("SubnetGroup", answer, facts)
        }
        GroupVerb::Create(create) => {
            let request = v1::CreateSubnetGroupRequest {
                subnet_group_id: create.name,
                subnet_group: Some(v1::SubnetGroup {
                    mgid: create.mgid.map(|gid| gid.to_string()).unwrap_or_default(),
                    pkey: create.partition.into(),
                    qkey: create.qkey,
                    mtu_bytes: create.mtu,
                    rate_mbps: u32::try_from(create.rate / 1_000_000).unwrap_or(u32::MAX),
                    packet_lifetime: create.lifetime,
                    service_level: create.sl,
                    ..v1::SubnetGroup::default()
                }),
            };
            out.answer("SubnetGroup", service.create_subnet_group(request).await?, facts)
        }
        GroupVerb::Remove { names } => {
            for name in names {
                let name = resource(SUBNET_GROUPS, &name);
                service
                    .delete_subnet_group(v1::DeleteSubnetGroupRequest { name })
                    .await?;
            }
            Ok(())
        }
    }
}

fn table(groups: &[v1::SubnetGroup]) -> String {
    text::table! { g in groups, "no multicast groups";
        "NAME": names::last(&g.name),
        "MGID": g.mgid.clone(),
        "P_KEY": format!("{:#06x}", g.pkey),
        ">SL": g.service_level,
        ">MTU": g.mtu_bytes,
        ">MBIT/S": g.rate_mbps,
        ">MEMBERS": g.members.len(),
    }
}

/// The words for bits of JoinState.
fn joined(state: u32) -> String {
    let words = [(1, "full"), (2, "non-member"), (4, "send-only")];
    let words: Vec<_> = words
        .iter()
        .filter(|(bit, _)| state & bit != 0)
        .map(|(_, word)| *word)
        .collect();
    words.join(", ")
}

fn facts(g: &v1::SubnetGroup) -> String {
    let mut facts = Facts::default();
    facts
        .add("name", names::last(&g.name))
        .add("mgid", g.mgid.clone())
        .add("partition", pkey(g.pkey))
        .add("qkey", format!("{:#x}", g.qkey()))
        .add("sl", g.service_level.to_string())
        .add("mtu", format!("{} bytes", g.mtu_bytes))
        .add("rate", format!("{} Mbit/s", g.rate_mbps))
        .add("lifetime", format!("2^{} x 4.096 us", g.packet_lifetime()))
        .add("mlid", format!("{:#x}", g.mlid));
    for member in &g.members {
        let name = names::last(&member.adapter);
        facts.add(
            "member",
            format!("{name} by {} ({})", member.gid, joined(member.join_state)),
        );
    }
    facts.finish()
}
