//! Messages of teams.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use prost::Message as _;
use vnic_backend::BondStatus;
use vnic_backend::lag::{Evenness, LacpView};
use vnic_control::v1;

use crate::control::{Control, TeamNow, Teams};
use crate::grpc::paging;
use crate::names::{self, PORTS, TEAMS};
use crate::stored::{teams, values};
use crate::teams::{mux_name, receive_name};

pub fn message(now: &TeamNow) -> v1::Team {
    let more = &now.more;
    let mut message = teams::message(&now.team, &more.bond, &more.settings, &more.affinities);
    for (member, now) in message.members.iter_mut().zip(&now.members) {
        member.missing = now.missing;
        member.up = now.up;
        member.active = now.active;
        member.lacp = now.lacp.as_ref().map(lacp);
    }
    message.problem.clone_from(&now.problem);
    message.etag = Teams::etag(&now.team, more);
    message.switch_port = now.bond.as_ref().map(|b| u32::from(b.port.0));
    message.up = now.bond.as_ref().is_some_and(|b| b.up);
    message.last_failover = now.bond.as_ref().and_then(failover);
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
        time: Some(values::timestamp(last.at)),
        took: Some(values::duration(last.took)),
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

/// The largest flows, as many as go into an answer, and the number of frames of the others.
fn fitting(flows: Vec<v1::TeamFlow>) -> (Vec<v1::TeamFlow>, u64) {
    let mut placed: Vec<_> = flows.into_iter().enumerate().collect();
    placed.sort_by_key(|(_, flow)| Reverse(flow.bytes));
    let fit = paging::fitting(placed.iter().map(|(_, flow)| flow.encoded_len()));
    let others = placed.split_off(fit);
    placed.sort_by_key(|(place, _)| *place);
    let flows = placed.into_iter().map(|(_, flow)| flow);
    (flows.collect(), others.iter().map(|(_, flow)| flow.frames).sum())
}

/// Message of the spread of a team's load over its ports, with the numbers of its bond.
pub fn view(control: &Control, now: &TeamNow) -> v1::TeamView {
    let more = &now.more;
    let Some(view) = &now.view else {
        return v1::TeamView {
            name: names::of(TEAMS, &now.team.name),
            ..v1::TeamView::default()
        };
    };
    let members = more.made.iter().flat_map(|m| &m.members);
    let members: Vec<String> = members.map(|p| names::of(PORTS, p)).collect();
    let port = |i: u8| members.get(usize::from(i)).cloned().unwrap_or_default();
    let mut bytes: BTreeMap<u8, u64> = BTreeMap::new();
    for flow in &view.flows {
        *bytes.entry(flow.member.0).or_default() += flow.bytes;
    }
    let mut adapters = BTreeMap::new();
    for adapter in control.nic.adapters() {
        for mac in &adapter.spec.macs {
            adapters.insert(*mac, adapter.spec.name.clone());
        }
    }
    let flows = view.flows.iter().map(|seen| {
        let flow = &seen.flow;
        v1::TeamFlow {
            port: port(seen.member.0),
            text: flow.to_string(),
            source_mac: flow.source.to_string(),
            destination_mac: flow.destination.to_string(),
            ethertype: u32::from(flow.ethertype.0),
            packet: flow.innermost().map(teams::five_tuple),
            destination_qp: flow.qp,
            source_qp: flow.local_qp,
            adapter: adapters
                .get(&flow.source)
                .map_or_else(String::new, |a| names::of(names::ADAPTERS, a)),
            frames: seen.packets,
            bytes: seen.bytes,
        }
    });
    let (flows, left_out) = fitting(flows.collect());
    v1::TeamView {
        name: names::of(TEAMS, &now.team.name),
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
                ready_in: m.ready_in.map(values::duration),
                buckets: values::count(m.buckets),
                leaving: values::count(m.leaving),
                flows: values::count(m.flows),
                queue_pairs: values::count(m.qps),
                tx_frames: m.packets,
                tx_bytes: m.bytes,
                flow_bytes: bytes.get(&m.member.0).copied().unwrap_or(0),
            })
            .collect(),
        flows,
        unseen: view.unseen + left_out,
        affinities: view
            .affinities
            .iter()
            .map(|a| {
                let known = more.affinities.iter().find(|d| d.what == a.what);
                let adapter = known.and_then(|d| d.adapter.as_deref());
                let named = port(a.member.0);
                let affinity = teams::affinity_message(a.what, adapter, names::last(&named));
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
