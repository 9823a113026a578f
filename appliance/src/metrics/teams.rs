//! Metrics of teams: load of the members, and its evenness.

use std::collections::BTreeMap;
use std::fmt::Display;

use vnic_backend::BondStatus;
use vnic_backend::lag::View;

use super::page::Page;
use super::render::since_1970;
use crate::control::{Control, Teams};

/// State of a team.
#[derive(Debug, Clone)]
pub struct TeamReading {
    /// Name of the team.
    pub name: String,
    /// `aggregate` or `failover`.
    pub kind: String,
    /// Bond of the team; `None` without members.
    pub bond: Option<BondStatus>,
    /// Spread of the team's load.
    pub view: Option<View>,
}

/// Reads all teams. May block.
pub fn take(control: &Control) -> Vec<TeamReading> {
    let (teams, _) = Teams(control).list();
    let read = teams.into_iter().map(|now| TeamReading {
        kind: now.team.kind.name().to_lowercase(),
        view: (now.view).or_else(|| control.nic.bond_view(&now.more.made?.name).ok()),
        name: now.team.name,
        bond: now.bond,
    });
    read.collect()
}

/// Adds a value for each member of each team.
fn members<V: Display>(
    page: &mut Page,
    teams: &[TeamReading],
    value: impl Fn(&TeamReading, usize) -> Option<V>,
) {
    for team in teams {
        let bond = team.bond.iter();
        for (i, port) in bond.flat_map(|b| &b.spec.members).enumerate() {
            if let Some(value) = value(team, i) {
                page.value(&[("team", &team.name), ("port", port)], value);
            }
        }
    }
}

/// Metrics of teams. Labels are names of teams and ports, of which there are few; flows are no labels.
pub fn render(page: &mut Page, teams: &[TeamReading]) {
    page.gauge("vnic_team_info", "Settings of the team: always 1.");
    for team in teams {
        let bond = team.bond.as_ref().map_or("", |b| b.spec.name.as_str());
        page.value(&[("team", &team.name), ("type", &team.kind), ("bond", &bond)], 1);
    }
    page.gauge("vnic_team_up", "1 when some member of the team may carry frames.");
    for team in teams {
        let up = team.bond.as_ref().is_some_and(|b| b.up);
        page.value(&[("team", &team.name)], u8::from(up));
    }
    /// Metrics with a value for each member.
    macro_rules! of_members {
        ($team:ident, $i:ident => $($kind:ident $name:literal, $help:literal: $value:expr;)+) => {
            $(page.$kind($name, $help);
            members(page, teams, |$team, $i| Some($value));)+
        };
    }
    of_members! { t, i =>
        gauge "vnic_team_member_up", "1 when the link of the member is up.": u8::from(t.bond.as_ref()?.members.get(i)?.up);
        gauge "vnic_team_member_usable", "1 when the member may send: its link is up, and LACP lets it.":
            u8::from(t.view.as_ref()?.members.get(i)?.usable);
        gauge "vnic_team_member_active", "1 for the member of a failover team that carries its frames.": {
            let view = t.view.as_ref().filter(|_| t.kind == "failover")?;
            u8::from(view.active.is_some_and(|a| usize::from(a.0) == i))
        };
        counter "vnic_team_member_tx_frames_total",
            "Frames that the team sent by the member; begins anew when members or settings change.":
            t.view.as_ref()?.members.get(i)?.packets;
        counter "vnic_team_member_tx_bytes_total", "Bytes of these frames.": t.view.as_ref()?.members.get(i)?.bytes;
        gauge "vnic_team_member_flows",
            "Flows that were on the member in the last 30 s; those of queue pairs are among them.":
            t.view.as_ref()?.members.get(i)?.flows;
        gauge "vnic_team_member_queue_pairs", "Flows of queue pairs that were on the member in the last 30 s.":
            t.view.as_ref()?.members.get(i)?.qps;
        counter "vnic_team_member_lacp_received_total", "LACPDUs that the member received.":
            t.bond.as_ref()?.members.get(i)?.lacp.as_ref()?.received;
    }
    page.gauge(
        "vnic_team_largest_share",
        "Part of the member that has most, 0 to 1: of flows, queue pairs, bytes of flows.",
    );
    spread(page, teams);
    page.counter(
        "vnic_team_failovers_total",
        "How often a member was lost; begins anew when members change.",
    );
    for team in teams {
        if let Some(bond) = &team.bond {
            page.value(&[("team", &team.name)], bond.failovers);
        }
    }
    page.gauge(
        "vnic_team_last_failover_time_seconds",
        "When a member was lost last, in seconds since 1970.",
    );
    for (team, last) in failovers(teams) {
        page.value(&[("team", &team.name), ("port", &last.port)], since_1970(last.at));
    }
    page.gauge(
        "vnic_team_last_failover_duration_seconds",
        "From noticing that until its flows were on other members.",
    );
    for (team, last) in failovers(teams) {
        page.value(
            &[("team", &team.name), ("port", &last.port)],
            last.took.as_secs_f64(),
        );
    }
}

fn failovers(teams: &[TeamReading]) -> impl Iterator<Item = (&TeamReading, &vnic_backend::Failover)> {
    teams
        .iter()
        .filter_map(|t| Some((t, t.bond.as_ref()?.last_failover.as_ref()?)))
}

fn spread(page: &mut Page, teams: &[TeamReading]) {
    for team in teams {
        let Some(view) = &team.view else { continue };
        let of = BTreeMap::from([
            ("bytes", view.by_bytes),
            ("flows", view.by_flows),
            ("queue_pairs", view.by_qps),
        ]);
        for (of, evenness) in of {
            if let Some(evenness) = evenness {
                page.value(&[("team", &team.name), ("of", &of)], evenness.largest);
            }
        }
    }
}
