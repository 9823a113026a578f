//! `vnicctl gid` and `vnicctl resource`.

use vnic_control::v1;

use super::args::{GidVerb, GidVersion, ResourceVerb};
use super::client::{self, Client};
use super::output::Output;
use super::text;
use super::{Failure, paging};
use crate::names::{self, ADAPTERS};

/// Runs a command about GIDs.
pub async fn gid(verb: GidVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.rdma().await?;
    match verb {
        GidVerb::List { adapter } => {
            let parent = parent(adapter);
            let request = v1::ListGidsRequest {
                parent,
                ..Default::default()
            };
            let all = paging::list(&mut service, request).await?;
            out.message("ListGidsResponse", &all, || {
                format!("{}n_gids_found={}\n", table(&all.gids), all.gids.len())
            })
        }
        GidVerb::Set {
            adapter,
            index,
            gid,
            version,
            vlan,
        } => {
            let version = match version {
                GidVersion::V1 => v1::gid::Version::RoceV1,
                GidVersion::V2 => v1::gid::Version::RoceV2,
            };
            let request = v1::SetGidRequest {
                parent: client::resource(ADAPTERS, &adapter),
                index: index.map(u32::from),
                gid: Some(v1::Gid {
                    gid,
                    version: version.into(),
                    vlan: vlan.map_or(0, u32::from),
                    ..v1::Gid::default()
                }),
            };
            let gid = service.set_gid(request).await?;
            out.answer("Gid", gid, |gid| table(std::slice::from_ref(gid)))
        }
        GidVerb::Remove { adapter, index } => {
            // `adapter` may be a resource name.
            let adapter = client::resource(ADAPTERS, &adapter);
            let name = names::gid(names::last(&adapter), index);
            service.delete_gid(v1::DeleteGidRequest { name }).await?;
            Ok(())
        }
    }
}

/// Runs a command about objects of RDMA functions.
pub async fn resource(verb: ResourceVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let ResourceVerb::List { adapter } = verb;
    let mut service = client.rdma().await?;
    let parent = parent(adapter);
    let request = v1::ListRdmaResourcesRequest {
        parent,
        ..Default::default()
    };
    let all = paging::list(&mut service, request).await?;
    out.message("ListRdmaResourcesResponse", &all, || resources(&all.resources))
}

fn parent(adapter: Option<String>) -> String {
    adapter
        .map(|name| client::resource(ADAPTERS, &name))
        .unwrap_or_default()
}

/// GIDs in the output format of show_gids, with their sources.
pub fn table(gids: &[v1::Gid]) -> String {
    text::table! { g in gids, "no GIDs";
        let device = names::gid_parts(&g.name).map_or("", |(adapter, _)| adapter);
        "DEV": device,
        "PORT": 1,
        "INDEX": g.index,
        "GID": g.gid,
        "IPv4": g.ipv4,
        "VER": match g.version() {
            v1::gid::Version::Unspecified => "",
            v1::gid::Version::RoceV1 => "v1",
            v1::gid::Version::RoceV2 => "v2",
        },
        "DEV": if g.vlan == 0 { device.to_owned() } else { format!("{device}.{}", g.vlan) },
        "SOURCE": text::word(g.source().as_str_name(), "SOURCE_").to_lowercase(),
    }
}

fn resources(rows: &[v1::RdmaResource]) -> String {
    text::table! { r in rows, "no RDMA functions";
        "DEV": names::last(&r.adapter),
        "TYPE": r.r#type,
        ">USED": r.used,
        ">LIMIT": r.limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_look_as_show_gids_shows_them() {
        let gid =
            |index: u32, gid: &str, ipv4: &str, vlan, version: v1::gid::Version, source: v1::gid::Source| {
                v1::Gid {
                    name: format!("adapters/vf0/gids/{index}"),
                    gid: gid.to_owned(),
                    version: version.into(),
                    vlan,
                    index,
                    ipv4: ipv4.to_owned(),
                    mac: "02:00:5e:00:00:01".to_owned(),
                    source: source.into(),
                }
            };
        let (v1, v2) = (v1::gid::Version::RoceV1, v1::gid::Version::RoceV2);
        let rows = [
            gid(
                0,
                "fe80:0000:0000:0000:0000:5eff:fe00:0001",
                "",
                0,
                v1,
                v1::gid::Source::Mac,
            ),
            gid(
                13,
                "0000:0000:0000:0000:0000:ffff:0a00:0005",
                "10.0.0.5",
                7,
                v2,
                v1::gid::Source::Arp,
            ),
        ];
        let expected = "\
DEV  PORT  INDEX  GID                                      IPv4      VER  DEV    SOURCE
vf0  1     0      fe80:0000:0000:0000:0000:5eff:fe00:0001            v1   vf0    mac
vf0  1     13     0000:0000:0000:0000:0000:ffff:0a00:0005  10.0.0.5  v2   vf0.7  arp
";
        assert_eq!(table(&rows), expected);
        assert_eq!(table(&[]), "no GIDs\n");
    }
}
