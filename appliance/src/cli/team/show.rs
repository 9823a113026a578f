//! Text of teams.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use vnic_control::v1;
use vnic_control::v1::team_affinity::What;
use vnic_control::v1::team_lacp::Mode;

use super::super::adapter::lifetime;
use super::super::text::{self, Facts, Table};
use super::super::vlan;
use crate::names;

/// Width of a bar in characters.
const BAR: usize = 24;

/// Name of a team, without its collection.
pub fn name(team: &v1::Team) -> &str {
    team.name.split_once('/').map_or(&team.name, |(_, name)| name)
}

/// Name of a team's type.
pub fn kind(team: &v1::Team) -> &'static str {
    match team.r#type() {
        v1::team::Type::Failover => "failover",
        _ => "aggregate",
    }
}

fn yes(on: bool) -> &'static str {
    if on { "yes" } else { "no" }
}

fn lacp(team: &v1::Team) -> String {
    let lacp = team.lacp.unwrap_or_default();
    let mode = match lacp.mode() {
        Mode::Unspecified | Mode::Off => return "off".to_owned(),
        Mode::Active => "active",
        Mode::Passive => "passive",
    };
    let pace = if lacp.slow { "slow" } else { "fast" };
    format!(
        "{mode}, {pace}, priority {}, key {}",
        lacp.system_priority, lacp.key
    )
}

fn link(member: &v1::TeamMember) -> &'static str {
    match (member.missing, member.up) {
        (true, _) => "missing",
        (_, true) => "up",
        (_, false) => "down",
    }
}

/// Traffic of an affinity in words.
pub fn affinity(affinity: &v1::TeamAffinity) -> String {
    match &affinity.what {
        None => String::new(),
        Some(What::QueuePair(pair)) => format!("QP {} of {}", pair.qp, names::last(&pair.adapter)),
        Some(What::UdpSourcePort(port)) => format!("RoCEv2 from UDP port {port}"),
        Some(What::Flow(flow)) => five_tuple(flow),
    }
}

fn five_tuple(flow: &v1::TeamFiveTuple) -> String {
    let end = |address: &str, port: Option<u32>| match port {
        None => address.to_owned(),
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    };
    let protocol = match flow.protocol {
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        other => format!("protocol {other}"),
    };
    let from = end(&flow.source, flow.source_port);
    format!(
        "{from} > {} {protocol}",
        end(&flow.destination, flow.destination_port)
    )
}

/// Table of teams, and ports that are in none.
pub fn list(all: &v1::ListTeamsResponse) -> String {
    let member = |m: &v1::TeamMember| {
        let name = names::last(&m.port);
        match (m.missing, m.up, m.primary) {
            (true, ..) => format!("{name} (missing)"),
            (_, false, _) => format!("{name} (down)"),
            (.., true) => format!("{name} (primary)"),
            _ => name.to_owned(),
        }
    };
    let mut text = text::table! { team in &all.teams, "no teams";
        let members = team.members.iter().map(member).collect::<Vec<_>>().join(", ");
        let aggregate = team.r#type() == v1::team::Type::Aggregate;
        "TEAM": name(team),
        "TYPE": kind(team),
        "LINK": if team.up { "up" } else { "down" },
        "MEMBERS": if members.is_empty() { "none" } else { &members },
        "HASH": if aggregate { &team.hash_policy } else { "" },
        "LACP": lacp(team).split(',').next().unwrap_or_default(),
        "BOND": team.bond,
        "PROBLEM": team.problem,
    };
    let free: Vec<&str> = all.free_ports.iter().map(|p| names::last(p)).collect();
    if !free.is_empty() {
        let _ = writeln!(text, "\nports in no team: {}", free.join(", "));
    }
    text
}

/// Text of one team.
pub fn team(team: &v1::Team) -> String {
    let failover = team.r#type() == v1::team::Type::Failover;
    let mut facts = Facts::default();
    facts
        .add("name", name(team))
        .add("guid", team.guid.clone())
        .add("type", kind(team))
        .add("link", if team.up { "up" } else { "down" })
        .add("mac", team.mac.clone())
        .add("bond", team.bond.clone())
        .add(
            "switch port",
            team.switch_port.map(|p| p.to_string()).unwrap_or_default(),
        );
    if failover {
        facts.add("fails back", yes(!team.no_failback_to_primary));
    } else {
        facts
            .add("hash", team.hash_policy.clone())
            .add("lacp", lacp(team));
    }
    let patience = match team.never_hold {
        true => "never holds a flow".to_owned(),
        false => text::span(team.patience),
    };
    let tag = match team.vlan_id {
        0 => "none".to_owned(),
        id => format!("{id}, priority {}", team.vlan_prio),
    };
    facts
        .add("failback delay", text::span(team.failback_delay))
        .add("quiet", text::span(team.quiet))
        .add("patience", patience)
        .add("view", format!("{} flows", team.flows))
        .add("vlan tag", tag)
        .add("vlan", vlan::words(team.vlan.as_ref()))
        .add("lifetime", lifetime(team.lifetime()))
        .add("problem", team.problem.clone());
    if let Some(last) = &team.last_failover {
        let took = last.took.and_then(|d| std::time::Duration::try_from(d).ok());
        let took = took.map(|d| format!("{:.3} ms", d.as_secs_f64() * 1e3));
        let text = format!(
            "{} at {}, flows moved in {}, {} frames dropped",
            names::last(&last.port),
            text::time(last.time),
            took.unwrap_or_default(),
            last.dropped
        );
        facts.add("last failover", text);
    }
    let mut text = facts.finish();
    text.push('\n');
    text += &members(team);
    if !team.affinities.is_empty() {
        text.push('\n');
        text += &text::table! { a in &team.affinities, ""; "PORT": names::last(&a.port), "AFFINITY": affinity(a), };
    }
    text
}

fn members(team: &v1::Team) -> String {
    let spoken = team.members.iter().any(|m| m.lacp.is_some());
    let mut headings = vec!["PORT", "LINK", "MAC", "ROLE"];
    if spoken {
        headings.extend(["LACP", "PARTNER", "PARTNER'S STATE"]);
    }
    let mut table = Table::new(&headings);
    for m in &team.members {
        let role = match (team.r#type(), m.primary, m.active) {
            (v1::team::Type::Failover, true, true) => "primary, active",
            (v1::team::Type::Failover, true, false) => "primary",
            (v1::team::Type::Failover, false, true) => "active",
            (v1::team::Type::Failover, false, false) => "standby",
            _ => "member",
        };
        let mut row = vec![
            names::last(&m.port).to_owned(),
            link(m).to_owned(),
            m.mac.clone(),
            role.to_owned(),
        ];
        if spoken {
            let lacp = m.lacp.clone().unwrap_or_default();
            let partner = lacp.partner.unwrap_or_default();
            row.push(format!("{}, {}", lacp.receive, lacp.mux));
            row.push(match partner.system.as_str() {
                "" | "00:00:00:00:00:00" => "none".to_owned(),
                system => format!("{system} port {} key {}", partner.port, partner.key),
            });
            row.push(partner.state.join(" "));
        }
        table.row(row);
    }
    table.finish("no members")
}

/// Share as a bar, full at 100 %.
fn bar(part: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let eighths = (part.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if let Some(part) = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8) {
        bar += part;
    }
    let blank = BAR.saturating_sub(bar.chars().count());
    bar + &"·".repeat(blank)
}

fn share(part: u64, of: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let share = part as f64 / of.max(1) as f64;
    share
}

/// Spread of a team's load; of each member the `most` largest flows, 0: all.
pub fn view(view: &v1::TeamView, most: usize) -> String {
    if view.members.is_empty() {
        return "no members: nothing is spread\n".to_owned();
    }
    let pairs: u64 = view.members.iter().map(|m| u64::from(m.queue_pairs)).sum();
    let flows: u64 = view.members.iter().map(|m| u64::from(m.flows)).sum();
    let bytes: u64 = view.members.iter().map(|m| m.flow_bytes).sum();
    let by_pairs = pairs > 0;
    let headings = [
        "PORT",
        "STATE",
        if by_pairs {
            "SHARE OF QPS"
        } else {
            "SHARE OF FLOWS"
        },
        ">",
        ">QPS",
        ">FLOWS",
        ">BYTES",
        ">TX FRAMES",
        ">TX BYTES",
    ];
    let mut table = Table::new(&headings);
    for m in &view.members {
        let part = match by_pairs {
            true => share(u64::from(m.queue_pairs), pairs),
            false => share(u64::from(m.flows), flows),
        };
        let state = match (m.up, m.usable, m.active, m.ready_in) {
            (false, ..) => "down".to_owned(),
            (_, false, ..) => "up, not in use".to_owned(),
            (.., Some(d)) => format!("back, ready in {}", text::span(Some(d))),
            (_, _, true, _) => "active".to_owned(),
            _ => "up".to_owned(),
        };
        table.row([
            names::last(&m.port).to_owned(),
            state,
            bar(part),
            format!("{:.1} %", part * 100.0),
            m.queue_pairs.to_string(),
            m.flows.to_string(),
            format!("{:.1} %", share(m.flow_bytes, bytes) * 100.0),
            text::count(m.tx_frames),
            text::bytes(m.tx_bytes),
        ]);
    }
    let mut text = table.finish("");
    text.push('\n');
    let mut facts = Facts::default();
    let mut even = |name, of: Option<&v1::TeamEvenness>| {
        if let Some(e) = of {
            let percent = e.largest * 100.0;
            facts.add(
                name,
                format!("largest share {percent:.1} %, Jain's index {:.3}", e.jain),
            );
        }
    };
    even("queue pairs", view.by_queue_pairs.as_ref());
    even("flows", view.by_flows.as_ref());
    even("bytes", view.by_bytes.as_ref());
    if view.unseen > 0 {
        let unseen = format!("{} frames of flows that found no room in the view", view.unseen);
        facts.add("unseen", unseen);
    }
    text += &facts.finish();
    if let Some(hint) = one_port(view) {
        let _ = writeln!(text, "\n{hint}");
    }
    text += &affinities(view);
    text + &flow_table(view, most)
}

/// Hint that the flows of all queue pairs are on one of several members because no hash can tell them apart.
fn one_port(view: &v1::TeamView) -> Option<String> {
    let usable = view.members.iter().filter(|m| m.usable).count();
    let largest = view.by_queue_pairs.as_ref()?.largest;
    let ours = view.flows.iter().filter(|f| f.destination_qp.is_some());
    let ports: Vec<Option<u32>> = ours
        .map(|f| f.packet.as_ref().and_then(|p| p.source_port))
        .collect();
    let different: BTreeSet<&Option<u32>> = ports.iter().collect();
    if usable < 2 || ports.len() < 4 || largest < 1.0 || different.len() > 1 {
        return None;
    }
    let n = ports.len();
    let which = match ports.first().copied().flatten() {
        Some(port) => format!("All {n} flows of queue pairs have the UDP source port {port}"),
        None => format!("None of the {n} flows of queue pairs has a UDP source port (RoCEv1)"),
    };
    Some(format!(
        "{which}: no hash can tell them apart, and one port carries all.\nCure: a source port for each queue pair \
         (RoCEv2; vnicctl cc set ADAPTER roce_pin_source_port=0), or affinities: vnicctl team affinity TEAM set PORT --qp \
         ADAPTER:QP"
    ))
}

fn affinities(view: &v1::TeamView) -> String {
    if view.affinities.is_empty() {
        return String::new();
    }
    let table = text::table! { a in &view.affinities, "";
        let of = a.affinity.clone().unwrap_or_default();
        "AFFINITY": affinity(&of),
        "PORT": names::last(&of.port),
        "NOW BY": match (a.leaves, a.current.as_str()) {
            (true, _) => "leaves",
            (_, "") => "nothing",
            (_, port) => names::last(port),
        },
    };
    format!("\n{table}")
}

fn flow_table(view: &v1::TeamView, most: usize) -> String {
    let mut table = Table::new(&["PORT", "FLOW", "ADAPTER", ">FRAMES", ">BYTES"]);
    let mut hidden = 0;
    let mut before = ("", 0);
    for flow in &view.flows {
        before = match before {
            (port, n) if port == flow.port => (port, n + 1),
            _ => (flow.port.as_str(), 1),
        };
        if most != 0 && before.1 > most {
            hidden += 1;
            continue;
        }
        table.row([
            names::last(&flow.port).to_owned(),
            flow.text.clone(),
            names::last(&flow.adapter).to_owned(),
            text::count(flow.frames),
            text::bytes(flow.bytes),
        ]);
    }
    let mut text = format!("\n{}", table.finish("no flows in the last 30 s"));
    if hidden > 0 {
        let _ = writeln!(text, "and {hidden} more (--flows 0 shows all)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: &str, source_port: u32, qp: u32) -> v1::TeamFlow {
        v1::TeamFlow {
            port: format!("ports/{port}"),
            text: format!("10.0.0.1:{source_port} > 10.0.0.2:4791 udp to QP {qp:#x}"),
            packet: Some(v1::TeamFiveTuple {
                source_port: Some(source_port),
                ..v1::TeamFiveTuple::default()
            }),
            destination_qp: Some(qp),
            bytes: 1000,
            ..v1::TeamFlow::default()
        }
    }

    fn member(port: &str, queue_pairs: u32) -> v1::TeamMemberView {
        v1::TeamMemberView {
            port: format!("ports/{port}"),
            up: true,
            usable: true,
            queue_pairs,
            flows: queue_pairs,
            flow_bytes: u64::from(queue_pairs) * 1000,
            ..v1::TeamMemberView::default()
        }
    }

    fn spread(a: u32, b: u32, flows: Vec<v1::TeamFlow>) -> v1::TeamView {
        let largest = f64::from(a.max(b)) / f64::from(a + b);
        v1::TeamView {
            members: vec![member("p0", a), member("p1", b)],
            by_queue_pairs: Some(v1::TeamEvenness { largest, jain: 1.0 }),
            flows,
            ..v1::TeamView::default()
        }
    }

    #[test]
    fn bars() {
        assert_eq!(bar(0.0), "·".repeat(BAR));
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.5), "█".repeat(12) + &"·".repeat(12));
        assert_eq!(bar(0.01).chars().count(), BAR);
        assert!(bar(0.01).starts_with('▎'));
    }

    #[test]
    fn one_source_port_is_seen() {
        let flows: Vec<_> = (0..8).map(|qp| flow("p1", 49152, qp)).collect();
        let all = view(&spread(0, 8, flows.clone()), 3);
        assert!(
            all.contains("All 8 flows of queue pairs have the UDP source port 49152"),
            "{all}"
        );
        assert!(all.contains("100.0 %"), "{all}");
        assert!(all.contains("and 5 more"), "{all}");
        let mixed = (0..8).map(|qp| flow(if qp < 4 { "p0" } else { "p1" }, 49152 + qp, qp));
        let text = view(&spread(4, 4, mixed.collect()), 0);
        assert!(!text.contains("no hash can tell"), "{text}");
        assert!(
            text.contains(&bar(0.5)) && text.contains("largest share 50.0 %"),
            "{text}"
        );
        assert!(!text.contains("more (--flows"), "{text}");
        // With one usable member there is no choice.
        let mut alone = spread(0, 8, flows);
        alone.members[0].usable = false;
        assert!(!view(&alone, 0).contains("no hash can tell"));
    }
}
