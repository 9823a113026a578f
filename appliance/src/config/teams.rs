//! `[[team]]` tables of the configuration file.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::LacpSpec;
use vnic_backend::lag::{LagError, NewTeam, TeamType, Teams};

use super::diagnostics::Sink;
use super::vlan::{VlanTable, vlan};
use crate::check::{Checked, fault};
use crate::teams::{TeamSettings, TeamSpec, hash};

/// `[[team]]`.
// Wide: the keys of the table in the file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TeamTable {
    name: Option<Spanned<String>>,
    r#type: Option<Spanned<String>>,
    members: Option<Vec<Spanned<String>>>,
    primary: Option<String>,
    team_mac_of: Option<String>,
    no_failback: Option<Spanned<bool>>,
    vlan_id: Option<Spanned<i64>>,
    vlan_prio: Option<Spanned<i64>>,
    vlan: Option<Spanned<VlanTable>>,
    hash: Option<Spanned<String>>,
    lacp: Option<Spanned<String>>,
    lacp_slow: bool,
    lacp_priority: Option<Spanned<i64>>,
    lacp_key: Option<Spanned<i64>>,
    failback_delay: Option<Spanned<String>>,
    quiet: Option<Spanned<String>>,
    patience: Option<Spanned<String>>,
    view_flows: Option<Spanned<i64>>,
}

/// Reads the tables `[[team]]`. Their members are of `ports`.
pub(super) fn teams(sink: &Sink<'_>, tables: Vec<Spanned<TeamTable>>, ports: &[String]) -> Vec<TeamSpec> {
    let mut reader = Reader {
        sink,
        ports,
        names: BTreeMap::new(),
        members: BTreeMap::new(),
        teams: Teams::default(),
    };
    let teams = tables.into_iter().filter_map(|table| {
        let (at, table) = (table.span(), table.into_inner());
        reader.team(&at, table)
    });
    teams.collect()
}

struct Reader<'s, 'a> {
    sink: &'s Sink<'a>,
    ports: &'s [String],
    /// Names in lower case, with their lines.
    names: BTreeMap<String, usize>,
    /// Team and line of each member.
    members: BTreeMap<String, (String, usize)>,
    /// Teams for the check of names.
    teams: Teams,
}

impl Reader<'_, '_> {
    fn team(&mut self, at: &Range<usize>, mut table: TeamTable) -> Option<TeamSpec> {
        let sink = self.sink;
        let kind = sink.text(sink.required(at, "type", table.r#type.take()), |t| {
            t.parse().map_err(team_type)
        });
        let name = sink
            .required(at, "name", table.name.take())
            .and_then(|name| self.name(name));
        let members = sink.required(at, "members", table.members.take());
        let named = members.as_ref().map(Vec::len);
        let members = self.members(members.unwrap_or_default(), name.as_deref().unwrap_or_default());
        let vlan_id = sink.check(table.vlan_id.take(), |v| {
            within(v, 0, 4094).map_err(|e| format!("{e} (0: none)"))
        });
        let vlan_prio = sink.check(table.vlan_prio.take(), |v| within(v, 0, 7));
        let settings = settings(sink, &mut table);
        let kind: TeamType = kind?;
        let no_failback = table.no_failback.as_ref().is_some_and(|at| *at.get_ref());
        if no_failback && kind != TeamType::Failover {
            let problem = "an aggregate team has no primary to go back to; allowed: with type \"failover\"";
            sink.wrong_key(at, "no_failback", problem);
            return None;
        }
        let spec = TeamSpec {
            name: name?,
            kind,
            no_failback,
            members,
            primary: table.primary,
            mac_of: table.team_mac_of,
            vlan_id: vlan_id.unwrap_or(0),
            vlan_prio: vlan_prio.unwrap_or(0).try_into().ok()?,
            settings,
        };
        // Refused members are a known problem already.
        if let Err((key, problem)) = spec.check()
            && Some(spec.members.len()) == named
        {
            let key = if key == "flows" { "view_flows" } else { key };
            sink.wrong_key(at, key, problem);
        }
        Some(spec)
    }

    fn name(&mut self, name: Spanned<String>) -> Option<String> {
        let line = self.sink.line(&name.span());
        let lower = name.get_ref().to_lowercase();
        let name = self.sink.check(Some(name), |name| {
            if let Some(first) = self.names.get(&lower) {
                return Err(format!(
                    "the name {name:?} is taken by line {first}; names of teams differ by more than case"
                ));
            }
            let made = self.teams.create(NewTeam {
                name: name.clone(),
                guid: line as u128,
                kind: TeamType::Aggregate,
                no_failback: false,
                ipoib: false,
            });
            made.map(|_| name).map_err(|error| error.problem)
        })?;
        self.names.insert(lower, line);
        Some(name)
    }

    fn members(&mut self, members: Vec<Spanned<String>>, team: &str) -> Vec<String> {
        let member = |member: Spanned<String>| {
            let line = self.sink.line(&member.span());
            self.sink.check(Some(member), |port| {
                if !self.ports.contains(&port) {
                    return Err(format!("no port of this file is named {port}"));
                }
                if let Some((other, line)) = self.members.get(&port) {
                    return Err(format!(
                        "{port} is in team {other:?} (line {line}); a port is in one team at most"
                    ));
                }
                self.members.insert(port.clone(), (team.to_owned(), line));
                Ok(port)
            })
        };
        members.into_iter().filter_map(member).collect()
    }
}

fn settings(sink: &Sink<'_>, table: &mut TeamTable) -> TeamSettings {
    let mut settings = TeamSettings::default();
    settings.hash = sink.text(table.hash.take(), hash).unwrap_or(settings.hash);
    settings.lacp = lacp(sink, table);
    let bond = &mut settings.bond;
    bond.failback_delay = sink
        .text(table.failback_delay.take(), fault::span)
        .unwrap_or(bond.failback_delay);
    bond.quiet = sink.text(table.quiet.take(), fault::span).unwrap_or(bond.quiet);
    let patience = sink.text(table.patience.take(), |text| match text {
        "never" => Ok(None),
        _ => fault::span(text)
            .map(Some)
            .map_err(|e| format!("{e}, or \"never\"")),
    });
    bond.patience = patience.unwrap_or(Some(settings.patience));
    let flows = sink.check(table.view_flows.take(), |v| {
        let flows = usize::try_from(v).ok().filter(|v| (1..=65_536).contains(v));
        flows.ok_or_else(|| format!("{v} is out of range: 1 to 65536"))
    });
    bond.flows = flows.unwrap_or(bond.flows);
    settings.patience = bond.patience.unwrap_or(settings.patience);
    settings.vlan = vlan(sink, table.vlan.take());
    settings
}

fn lacp(sink: &Sink<'_>, table: &mut TeamTable) -> Option<LacpSpec> {
    let active = sink.text(table.lacp.take(), |text| match text {
        "off" => Ok(None),
        "active" => Ok(Some(true)),
        "passive" => Ok(Some(false)),
        _ => Err(format!("{text:?}: \"off\", \"active\" or \"passive\" is allowed")),
    });
    let number = |number, default| sink.check(number, |v| within(v, 1, u16::MAX)).unwrap_or(default);
    let default = LacpSpec::default();
    let system_priority = number(table.lacp_priority.take(), default.system_priority);
    let key = number(table.lacp_key.take(), default.key);
    active.flatten().map(|active| LacpSpec {
        active,
        short_timeout: !table.lacp_slow,
        system_priority,
        key,
    })
}

fn team_type(_: LagError) -> String {
    "\"aggregate\" or \"failover\" is allowed".to_owned()
}

fn within(value: i64, least: u16, most: u16) -> Checked<u16> {
    u16::try_from(value)
        .ok()
        .filter(|v| (least..=most).contains(v))
        .ok_or_else(|| format!("{value} is out of range: {least} to {most}"))
}
