//! `[[team]]` tables of the configuration file.

use std::collections::BTreeMap;
use std::time::Duration;

use vnic_backend::lag::{NewTeam, TeamType, Teams};
use vnic_backend::{LacpSpec, VlanMode};

use super::diagnostics::Sink;
use super::reader::{At, Section};
use crate::check::{Checked, fault};
use crate::teams::{TeamSettings, TeamSpec, hash};

/// Names with the line where.
type Lines = BTreeMap<String, usize>;

/// The tables `[[team]]`, of these `ports`; `vlan` reads the VLAN membership of a port of the switch.
pub(super) fn tables<'a>(
    root: &Section<'a>,
    sink: &Sink<'_>,
    ports: &[String],
    vlan: impl Fn(&Section<'a>) -> Option<VlanMode>,
) -> Option<Vec<TeamSpec>> {
    let mut reader = Reader {
        sink,
        ports,
        names: Lines::new(),
        members: BTreeMap::new(),
        teams: Teams::default(),
    };
    let teams: Vec<Option<TeamSpec>> = root
        .tables("team")
        .into_iter()
        .map(|section| {
            let vlan = vlan(&section);
            let team = reader.team(&section, vlan);
            section.finish();
            team
        })
        .collect();
    teams.into_iter().collect()
}

struct Reader<'s, 'a> {
    sink: &'s Sink<'a>,
    ports: &'s [String],
    names: Lines,
    /// The team of a port, and the line where.
    members: BTreeMap<String, (String, usize)>,
    /// Judges names.
    teams: Teams,
}

impl Reader<'_, '_> {
    fn optional<V, T>(
        &self,
        at: Option<At<V>>,
        default: T,
        check: impl FnOnce(V) -> Checked<T>,
    ) -> Option<T> {
        match at {
            None => Some(default),
            Some(at) => at.check(self.sink, check).map(|at| at.value),
        }
    }

    fn team(&mut self, section: &Section<'_>, vlan: Option<VlanMode>) -> Option<TeamSpec> {
        let kind = section.required_string("type");
        let kind = kind.and_then(|at| at.check(self.sink, |t| t.parse().map_err(team_type)));
        let name = self.name(section);
        let members = self.members(section, name.as_deref().unwrap_or_default());
        let primary = section.string("primary").map(|at| at.value.to_owned());
        let mac_of = section.string("team_mac_of").map(|at| at.value.to_owned());
        let no_failback = section.boolean("no_failback").is_some_and(|at| at.value);
        let vlan_id = self.optional(section.integer("vlan_id"), 0, |v| {
            within(v, 0, 4094).map_err(|e| format!("{e} (0: none)"))
        });
        let vlan_prio = self.optional(section.integer("vlan_prio"), 0, |v| within(v, 0, 7));
        let settings = self.settings(section, vlan);
        let kind: TeamType = kind?.value;
        if no_failback && kind != TeamType::Failover {
            let problem = "an aggregate team has no primary to go back to; allowed: with type \"failover\"";
            let key = section.path("no_failback");
            self.sink.error(section.place("no_failback"), key, problem);
            return None;
        }
        let spec = TeamSpec {
            name: name?,
            kind,
            no_failback,
            members: members?,
            primary,
            mac_of,
            vlan_id: vlan_id?,
            vlan_prio: u8::try_from(vlan_prio?).ok()?,
            settings: settings?,
        };
        if let Err((key, problem)) = spec.check() {
            let key = match key {
                "flows" => "view_flows",
                other => other,
            };
            self.sink.error(section.place(key), section.path(key), problem);
            return None;
        }
        Some(spec)
    }

    fn name(&mut self, section: &Section<'_>) -> Option<String> {
        let at = section.required_string("name")?;
        let line = self.sink.line(at.span.start);
        let lower = at.value.to_lowercase();
        if let Some(first) = self.names.get(&lower) {
            let problem = format!(
                "the name {:?} is taken by line {first}; names of teams differ by more than case",
                at.value
            );
            self.sink.error(at.span, at.key, problem);
            return None;
        }
        let made = self.teams.create(NewTeam {
            name: at.value.to_owned(),
            guid: line as u128,
            kind: TeamType::Aggregate,
            no_failback: false,
            ipoib: false,
        });
        if let Err(error) = made {
            self.sink.error(at.span, at.key, error.problem);
            return None;
        }
        self.names.insert(lower, line);
        Some(at.value.to_owned())
    }

    fn members(&mut self, section: &Section<'_>, team: &str) -> Option<Vec<String>> {
        if !section.has("members") {
            let problem = "this key is required";
            let place = section.place("members");
            self.sink.error(place, section.path("members"), problem);
            return None;
        }
        let mut members = Vec::new();
        let mut wrong = false;
        for at in section.strings("members")?.value {
            let line = self.sink.line(at.span.start);
            let problem = if !self.ports.iter().any(|p| p == at.value) {
                format!("no port of this file is named {}", at.value)
            } else if let Some((other, line)) = self.members.get(at.value) {
                format!(
                    "{} is in team {other:?} (line {line}); a port is in one team at most",
                    at.value
                )
            } else {
                self.members.insert(at.value.to_owned(), (team.to_owned(), line));
                members.push(at.value.to_owned());
                continue;
            };
            self.sink.error(at.span, at.key, problem);
            wrong = true;
        }
        (!wrong).then_some(members)
    }

    fn settings(&self, section: &Section<'_>, vlan: Option<VlanMode>) -> Option<TeamSettings> {
        let mut settings = TeamSettings::default();
        let policy = self.optional(section.string("hash"), settings.hash, hash);
        let lacp = self.lacp(section);
        let bond = &settings.bond;
        let delay = self.optional(section.string("failback_delay"), bond.failback_delay, fault::span);
        let quiet = self.optional(section.string("quiet"), bond.quiet, fault::span);
        let patience = self.optional(section.string("patience"), Some(settings.patience), |text| {
            if text == "never" {
                return Ok(None);
            }
            fault::span(text)
                .map(Some)
                .map_err(|e| format!("{e}, or \"never\""))
        });
        let flows = self.optional(section.integer("view_flows"), bond.flows, |v| {
            usize::try_from(v)
                .ok()
                .filter(|v| (1..=65_536).contains(v))
                .ok_or_else(|| format!("{v} is out of range: 1 to 65536"))
        });
        settings.hash = policy?;
        settings.lacp = lacp?;
        settings.bond.failback_delay = delay?;
        settings.bond.quiet = quiet?;
        let patience: Option<Duration> = patience?;
        settings.bond.patience = patience;
        settings.patience = patience.unwrap_or(settings.patience);
        settings.bond.flows = flows?;
        settings.vlan = vlan?;
        Some(settings)
    }

    fn lacp(&self, section: &Section<'_>) -> Option<Option<LacpSpec>> {
        let default = LacpSpec::default();
        let active = self.optional(section.string("lacp"), None, |text| match text {
            "off" => Ok(None),
            "active" => Ok(Some(true)),
            "passive" => Ok(Some(false)),
            _ => Err(format!("{text:?}: \"off\", \"active\" or \"passive\" is allowed")),
        });
        let slow = section.boolean("lacp_slow").is_some_and(|at| at.value);
        let number = |key: &'static str, default: u16| {
            self.optional(section.integer(key), default, |v| within(v, 1, u16::MAX))
        };
        let system_priority = number("lacp_priority", default.system_priority);
        let key = number("lacp_key", default.key);
        let spec = LacpSpec {
            active: true,
            short_timeout: !slow,
            system_priority: system_priority?,
            key: key?,
        };
        Some(active?.map(|active| LacpSpec { active, ..spec }))
    }
}

fn team_type(_: vnic_backend::lag::LagError) -> String {
    "\"aggregate\" or \"failover\" is allowed".to_owned()
}

fn within(value: i64, least: u16, most: u16) -> Checked<u16> {
    u16::try_from(value)
        .ok()
        .filter(|v| (least..=most).contains(v))
        .ok_or_else(|| format!("{value} is out of range: {least} to {most}"))
}
