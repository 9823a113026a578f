//! `vnicctl port`.

use vnic_control::v1;

use super::adapter::{kept, lifetime};
use super::args::{PortAdd, PortVerb};
use super::client::{Client, resource};
use super::output::Output;
use super::text::{self, Facts};
use super::{Failure, dcbx, mesh, paging, vlan};
use crate::names::{self, PORTS};
use crate::stored::ports::lldp_message;

/// Runs a command.
pub async fn run(verb: PortVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.ports().await?;
    match verb {
        PortVerb::List => {
            let all = list(client).await?;
            out.message("ListPortsResponse", &all, || table(&all.ports))
        }
        PortVerb::Show { name } => {
            let name = resource(PORTS, &name);
            out.answer(
                "Port",
                service.get_port(v1::GetPortRequest { name }).await?,
                facts,
            )
        }
        PortVerb::Add(add) => {
            let request = v1::CreatePortRequest {
                port_id: add.name.clone(),
                port: Some(v1::Port {
                    uplink: uplink_of(&add),
                    mtu: add.mtu.unwrap_or(0),
                    vlan: add.vlan.message()?,
                    data_core: add.data_core,
                    speed_mbps: add.speed,
                    storm_broadcast_pps: add.storm.broadcast.filter(|pps| *pps > 0),
                    storm_unknown_unicast_pps: add.storm.unknown_unicast.filter(|pps| *pps > 0),
                    lldp: add.lldp.map_or(0, |mode| lldp_message(mode).into()),
                    dcbx: add.dcbx.changed(&v1::DcbxSettings::default()),
                    ..v1::Port::default()
                }),
            };
            out.answer("Port", service.create_port(request).await?, facts)
        }
        PortVerb::Set {
            name,
            speed,
            lldp,
            dcbx,
            storm,
        } => {
            let name = resource(PORTS, &name);
            let (dcbx, etag) = match dcbx.is_empty() {
                true => (None, String::new()),
                false => {
                    let port = v1::GetPortRequest { name: name.clone() };
                    let port = service.get_port(port).await?.into_inner();
                    (dcbx.changed(&port.dcbx.unwrap_or_default()), port.etag)
                }
            };
            let request = v1::UpdatePortRequest {
                name,
                speed_mbps: speed,
                storm_broadcast_pps: storm.broadcast,
                storm_unknown_unicast_pps: storm.unknown_unicast,
                bridge: None,
                lldp: lldp.map(|mode| lldp_message(mode).into()),
                dcbx,
                etag,
            };
            out.answer("Port", service.update_port(request).await?, facts)
        }
        PortVerb::Neighbors { name } => {
            let all = match name {
                None => list(client).await?,
                Some(name) => {
                    let name = resource(PORTS, &name);
                    let port = service.get_port(v1::GetPortRequest { name }).await?.into_inner();
                    v1::ListPortsResponse {
                        ports: vec![port],
                        ..v1::ListPortsResponse::default()
                    }
                }
            };
            out.message("ListPortsResponse", &all, || neighbors_in_full(&all.ports))
        }
        PortVerb::Remove { name } => {
            let name = resource(PORTS, &name);
            service
                .delete_port(v1::DeletePortRequest {
                    name,
                    etag: String::new(),
                })
                .await?;
            Ok(())
        }
        PortVerb::Watch { name } => {
            let name = name.map(|n| resource(PORTS, &n)).unwrap_or_default();
            let stream = service.watch_ports(v1::WatchPortsRequest { name }).await?;
            out.follow("WatchPortsResponse", stream.into_inner(), line).await
        }
    }
}

/// All ports, page by page.
pub async fn list(client: &Client) -> Result<v1::ListPortsResponse, Failure> {
    let mut service = client.ports().await?;
    paging::list(&mut service, v1::ListPortsRequest::default()).await
}

fn link(port: &v1::Port) -> &'static str {
    if port.up { "up" } else { "down" }
}

pub fn uplink(port: &v1::Port) -> String {
    match &port.uplink {
        None => String::new(),
        Some(v1::port::Uplink::Tap(tap)) if tap.queues > 1 => {
            format!("tap {}, {} queues", tap.ifname, tap.queues)
        }
        Some(v1::port::Uplink::Tap(tap)) => format!("tap {}", tap.ifname),
        Some(v1::port::Uplink::Packet(packet)) => format!("packet {}", packet.ifname),
        Some(v1::port::Uplink::Xdp(xdp)) => format!("xdp {}", xdp.ifname),
        Some(v1::port::Uplink::Mesh(mesh)) => format!("mesh {}", mesh::address(mesh)),
    }
}

fn uplink_of(add: &PortAdd) -> Option<v1::port::Uplink> {
    let args = &add.uplink;
    if let Some(listen) = &args.mesh {
        return Some(v1::port::Uplink::Mesh(mesh::uplink(listen, &add.mesh)));
    }
    let queues = add.queues.unwrap_or(0);
    let tap = args.tap.clone().map(|ifname| v1::TapUplink { ifname, queues });
    let packet = args.packet.clone().map(|ifname| v1::PacketUplink { ifname });
    let xdp = args.xdp.clone().map(|ifname| v1::XdpUplink { ifname });
    tap.map(v1::port::Uplink::Tap)
        .or(packet.map(v1::port::Uplink::Packet))
        .or(xdp.map(v1::port::Uplink::Xdp))
}

fn speed(port: &v1::Port) -> String {
    let device = port.device.as_ref().and_then(|d| d.speed_mbps);
    match (port.speed_mbps, device) {
        (Some(mbps), _) => format!("{mbps} Mbit/s, as set"),
        (None, Some(mbps)) => format!("{mbps} Mbit/s"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Limits of storm control.
fn storm(port: &v1::Port) -> String {
    let limits = [
        (port.storm_broadcast_pps, "broadcast"),
        (port.storm_unknown_unicast_pps, "unknown unicast"),
    ];
    let limits = limits
        .into_iter()
        .filter_map(|(limit, what)| Some(format!("{} {what}", text::count(limit?.into()))));
    match limits.collect::<Vec<_>>() {
        none if none.is_empty() => "off".to_owned(),
        some => format!("{} frames a second", some.join(", ")),
    }
}

fn table(ports: &[v1::Port]) -> String {
    text::table! { p in ports, "no ports";
        let traffic = p.traffic.unwrap_or_default();
        "NAME": names::last(&p.name),
        "LINK": link(p),
        "UPLINK": uplink(p),
        ">MTU": p.mtu,
        "VLAN": vlan::words(p.vlan.as_ref()),
        ">CORE": p.data_core.map(|c| c.to_string()).unwrap_or_default(),
        ">RX FRAMES": text::count(traffic.rx_frames),
        ">TX FRAMES": text::count(traffic.tx_frames),
        ">DROPS": text::count(traffic.drops),
        "KEPT": kept(p.lifetime()),
    }
}

/// Link layer discovery of a port, in words.
fn lldp(p: &v1::Port) -> String {
    let mode = match p.lldp() {
        v1::LldpMode::Unspecified | v1::LldpMode::Disabled if p.lldp_counters.is_none() => {
            return "disabled".to_owned();
        }
        v1::LldpMode::Unspecified | v1::LldpMode::Disabled => "as the NV configuration has it",
        v1::LldpMode::TxOnly => "tx-only",
        v1::LldpMode::RxOnly => "rx-only",
        v1::LldpMode::RxAndTx => "rx-and-tx",
    };
    let c = p.lldp_counters.unwrap_or_default();
    let n = p.lldp_neighbors.len();
    format!(
        "{mode}; neighbors: {n}; messages: {} sent, {} received, {} of them bad",
        c.sent, c.received, c.errors
    )
}

/// What a station says of priorities, a line each.
fn priorities(said: &v1::DcbxExchange) -> Facts {
    let mut facts = Facts::default();
    facts
        .add("pfc", dcbx::pfc(said))
        .add("ets", dcbx::ets(said))
        .add(
            "recommends",
            said.recommendation
                .as_ref()
                .map(dcbx::classes)
                .unwrap_or_default(),
        )
        .add("applications", dcbx::applications(&said.applications));
    facts
}

/// Neighbors, and what each says of priorities.
fn neighbors_in_full(ports: &[v1::Port]) -> String {
    let mut text = neighbors(ports);
    for n in ports.iter().flat_map(|p| &p.lldp_neighbors) {
        if let Some(said) = &n.dcbx {
            text += &format!(
                "\n{} of {} says (DCBX):\n{}",
                n.port,
                n.chassis,
                priorities(said).finish()
            );
        }
    }
    text
}

fn neighbors(ports: &[v1::Port]) -> String {
    let all = ports
        .iter()
        .flat_map(|p| p.lldp_neighbors.iter().map(move |n| (p, n)));
    let all: Vec<_> = all.collect();
    let silent = match ports
        .iter()
        .any(|p| matches!(p.lldp(), v1::LldpMode::RxOnly | v1::LldpMode::RxAndTx))
    {
        true => "no neighbors: nobody is heard yet; stations speak every 30 s",
        false => "no port listens: vnicctl port set PORT --lldp rx-and-tx",
    };
    text::table! { (p, n) in &all, silent;
        "PORT": names::last(&p.name),
        "SYSTEM": n.system_name.clone(),
        "CHASSIS": n.chassis.clone(),
        "ITS PORT": n.port.clone(),
        "DESCRIPTION": n.port_description.clone(),
        "DOES": n.capabilities.join(", "),
        "MANAGEMENT": n.management_address.clone(),
        "SINCE": text::time(n.since),
    }
}

fn facts(p: &v1::Port) -> String {
    let traffic = p.traffic.unwrap_or_default();
    let flow = |frames, bytes| format!("{frames} frames, {}", text::bytes(bytes));
    let mut facts = Facts::default();
    facts
        .add("name", names::last(&p.name))
        .add("link", link(p))
        .add("uplink", uplink(p))
        .add("mode", p.mode.clone())
        .add("speed", speed(p))
        .add("storm control", storm(p))
        .add("bridge", names::last(p.bridge()))
        .add("lldp", lldp(p))
        .add("lldp problem", p.lldp_problem.clone())
        .add("dcbx", dcbx::state(p))
        .add("mtu", p.mtu.to_string())
        .add("vlan", vlan::words(p.vlan.as_ref()))
        .add(
            "data core",
            p.data_core.map(|c| c.to_string()).unwrap_or_default(),
        )
        .add("from the wire", flow(traffic.rx_frames, traffic.rx_bytes))
        .add("to the wire", flow(traffic.tx_frames, traffic.tx_bytes))
        .add("dropped", format!("{} frames", traffic.drops))
        .add("switch port", p.switch_port.to_string())
        .add("lifetime", lifetime(p.lifetime()))
        .add("problem", p.problem.clone());
    let Some(v1::port::Uplink::Mesh(mesh)) = &p.uplink else {
        return facts.finish();
    };
    mesh::facts(mesh, &mut facts);
    format!("{}\n{}", facts.finish(), mesh::peers(mesh))
}

fn line(message: &v1::WatchPortsResponse) -> String {
    use v1::watch_ports_response::Change;
    let port = message.port.clone().unwrap_or_default();
    let what = match message.change() {
        Change::Unspecified => return String::new(),
        Change::Synced => return "-- changes from here on --\n".to_owned(),
        Change::Removed => "removed".to_owned(),
        Change::Added => format!("added, link {}", link(&port)),
        Change::Existing | Change::Link => format!("link {}", link(&port)),
    };
    format!(
        "{}  {:<15}  {what}\n",
        text::time(message.time),
        names::last(&port.name)
    )
}
