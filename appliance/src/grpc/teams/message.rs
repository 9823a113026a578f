//! Teams as messages.

use std::collections::{BTreeMap, BTreeSet};

use vnic_backend::lag::{Evenness, LacpView, Team, TeamType, View};
use vnic_backend::{BondStatus, PortStatus};
use vnic_control::v1;

use super::super::convert;
use super::fields;
use crate::daemon::Context;
use crate::names::{self, PORTS, TEAMS};
use crate::teams::{More, guid_text, mux_name, receive_name};

/// What a team was told to be: this is stored.
pub fn asked(team: &Team, more: &More) -> v1::Team {
    let mut message = v1::Team {
        name: names::of(TEAMS, &team.name),
        r#type: match team.kind {
            TeamType::Aggregate => v1::team::Type::Aggregate,
            TeamType::Failover => v1::team::Type::Failover,
        }
        .into(),
        no_failback_to_primary: team.no_failback,
        vlan_id: u32::from(team.vlan_id),
        vlan_prio: u32::from(team.vlan_prio),
        guid: guid_text(team.guid),
        mac: team.mac.map(|m| m.to_string()).unwrap_or_default(),
        bond: more.bond.clone(),
        ..v1::Team::default()
    };
    fields::write(&mut message, &more.settings);
    message.members = team
        .members
        .iter()
        .map(|m| v1::TeamMember {
            port: names::of(PORTS, &m.adapter),
            mac: m.mac.to_string(),
            primary: m.primary,
            ..v1::TeamMember::default()
        })
        .collect();
    message.affinities = more
        .affinities
        .iter()
        .map(|d| fields::affinity_message(d.what, d.adapter.as_deref(), &d.port))
        .collect();
    message
}

/// What the NIC knows of ports.
pub fn ports(context: &Context) -> BTreeMap<String, PortStatus> {
    let all = context.nic.ports().into_iter();
    all.map(|p| (p.spec.name.clone(), p)).collect()
}

/// A team as it is now. May block.
pub fn message(
    context: &Context,
    team: &Team,
    more: &More,
    ports: &BTreeMap<String, PortStatus>,
) -> v1::Team {
    let made = more.made.as_ref();
    let bond = made.and_then(|spec| context.nic.bond(&spec.name).ok());
    let active = match team.kind {
        TeamType::Failover => made.and_then(|spec| {
            let view = context.nic.bond_view(&spec.name).ok()?;
            spec.members.get(usize::from(view.active?.0)).cloned()
        }),
        TeamType::Aggregate => None,
    };
    let mut message = asked(team, more);
    for member in &mut message.members {
        let name = names::last(&member.port).to_owned();
        let port = ports.get(&name);
        let in_bond = bond.iter().flat_map(|b| &b.members).find(|m| m.port == name);
        member.missing = port.is_none();
        member.up = in_bond.map_or_else(|| port.is_some_and(|p| p.up), |m| m.up);
        member.active = active.as_ref() == Some(&name);
        member.lacp = in_bond.and_then(|m| m.lacp.as_ref()).map(lacp);
    }
    let missing: BTreeSet<&str> = message
        .members
        .iter()
        .filter(|m| m.missing)
        .map(|m| names::last(&m.port))
        .collect();
    message.problem = more.problem.clone().unwrap_or_default();
    if message.problem.is_empty() && !missing.is_empty() {
        let missing: Vec<&str> = missing.into_iter().collect();
        message.problem = format!(
            "there is no port {}: it joins when it is made",
            missing.join(", ")
        );
    }
    message.switch_port = bond.as_ref().map(|b| u32::from(b.port.0));
    message.up = bond.as_ref().is_some_and(|b| b.up);
    message.last_failover = bond.as_ref().and_then(failover);
    message.set_lifetime(if more.configured {
        v1::Lifetime::Configured
    } else {
        v1::Lifetime::Stored
    });
    message
}

fn failover(bond: &BondStatus) -> Option<v1::TeamFailover> {
    let last = bond.last_failover.as_ref()?;
    Some(v1::TeamFailover {
        port: names::of(PORTS, &last.port),
        time: Some(convert::timestamp(last.at)),
        took: Some(convert::duration(last.took)),
        dropped: last.dropped,
    })
}

fn lacp(view: &LacpView) -> v1::TeamLacpPort {
    macro_rules! participant {
        ($of:expr) => {{
            let (of, none) = ($of, "none");
            let state = of.state.to_string();
            v1::TeamLacpParticipant {
                system: of.system.address.to_string(),
                system_priority: u32::from(of.system.priority),
                key: u32::from(of.key),
                port: u32::from(of.port.number),
                port_priority: u32::from(of.port.priority),
                state: state
                    .split(' ')
                    .filter(|s| *s != none)
                    .map(str::to_owned)
                    .collect(),
            }
        }};
    }
    v1::TeamLacpPort {
        receive: receive_name(view.receive).to_owned(),
        mux: mux_name(view.mux).to_owned(),
        selected: view.selected,
        actor: Some(participant!(&view.actor)),
        partner: Some(participant!(&view.partner)),
        sent: view.sent,
        received: view.received,
        markers: view.markers,
    }
}

fn evenness(of: Option<Evenness>) -> Option<v1::TeamEvenness> {
    of.map(|e| v1::TeamEvenness {
        largest: e.largest,
        jain: e.jain,
    })
}

/// How the load of a team is spread over these ports, by the numbers of its bond.
pub fn view(context: &Context, team: &Team, more: &More, view: &View) -> v1::TeamView {
    let members = more.made.iter().flat_map(|m| &m.members);
    let members: Vec<String> = members.map(|p| names::of(PORTS, p)).collect();
    let port = |i: u8| members.get(usize::from(i)).cloned().unwrap_or_default();
    let mut bytes: BTreeMap<u8, u64> = BTreeMap::new();
    for flow in &view.flows {
        *bytes.entry(flow.member.0).or_default() += flow.bytes;
    }
    let mut adapters = BTreeMap::new();
    for adapter in context.nic.adapters() {
        for mac in &adapter.spec.macs {
            adapters.insert(*mac, adapter.spec.name.clone());
        }
    }
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    v1::TeamView {
        name: names::of(TEAMS, &team.name),
        members: view
            .members
            .iter()
            .map(|m| v1::TeamMemberView {
                port: port(m.member.0),
                up: m.link,
                usable: m.usable,
                collecting: m.collecting,
                distributing: m.distributing,
                active: view.active == Some(m.member),
                ready_in: m.ready_in.map(convert::duration),
                buckets: small(m.buckets),
                leaving: small(m.leaving),
                flows: small(m.flows),
                queue_pairs: small(m.qps),
                tx_frames: m.packets,
                tx_bytes: m.bytes,
                flow_bytes: bytes.get(&m.member.0).copied().unwrap_or(0),
            })
            .collect(),
        flows: view
            .flows
            .iter()
            .map(|seen| {
                let flow = &seen.flow;
                v1::TeamFlow {
                    port: port(seen.member.0),
                    text: flow.to_string(),
                    source_mac: flow.source.to_string(),
                    destination_mac: flow.destination.to_string(),
                    ethertype: u32::from(flow.ethertype.0),
                    packet: flow.innermost().map(fields::five_tuple),
                    destination_qp: flow.qp,
                    source_qp: flow.local_qp,
                    adapter: adapters
                        .get(&flow.source)
                        .map_or_else(String::new, |a| names::of(names::ADAPTERS, a)),
                    frames: seen.packets,
                    bytes: seen.bytes,
                }
            })
            .collect(),
        unseen: view.unseen,
        affinities: view
            .affinities
            .iter()
            .map(|a| {
                let known = more.affinities.iter().find(|d| d.what == a.what);
                let adapter = known.and_then(|d| d.adapter.as_deref());
                let named = port(a.member.0);
                let affinity = fields::affinity_message(a.what, adapter, names::last(&named));
                v1::TeamAffinityView {
                    affinity: Some(affinity),
                    current: a.current.map(|m| port(m.0)).unwrap_or_default(),
                    leaves: a.leaves,
                }
            })
            .collect(),
        by_flows: evenness(view.by_flows),
        by_queue_pairs: evenness(view.by_qps),
        by_bytes: evenness(view.by_bytes),
    }
}
