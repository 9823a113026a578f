//! Teams: what the daemon knows of them besides what the NIC knows. A team is a bond of the NIC, made of those of its members
//! that there are.
//!
//! ```text
//!  request ─▶ change of a copy of the book ─▶ the NIC's bond ─▶ store ─▶ the copy is the book
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use vnic_backend::lag::{
    Affinity, BondSettings, LacpMux, LacpReceive, MEMBERS_MAX, Member, Mode, Policy, Team, TeamType, Teams,
};
use vnic_backend::{BondSpec, LacpSpec, VlanMode};

use crate::check::Checked;
use crate::config::nearest;

/// Affinities that a team may have.
pub const AFFINITIES_MAX: usize = 1024;

/// Settings of a team besides those that `mlx5muxtool` has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamSettings {
    /// Which flow goes by which member.
    pub hash: Policy,
    /// Link aggregation control; none: static.
    pub lacp: Option<LacpSpec>,
    /// Delays, and how many flows the view has room for. The mode in it says nothing.
    pub bond: BondSettings,
    /// `patience` of a bond that has none, so that it is not forgotten.
    pub patience: Duration,
    /// VLAN membership of the team's port of the switch.
    pub vlan: VlanMode,
}

impl Default for TeamSettings {
    fn default() -> TeamSettings {
        let bond = BondSettings::default();
        TeamSettings {
            hash: Policy::default(),
            lacp: None,
            bond,
            patience: bond.patience.unwrap_or_default(),
            vlan: VlanMode::default(),
        }
    }
}

impl TeamSettings {
    /// Are they possible for a team of this type? An error is the field and what is wrong.
    pub fn check(&self, kind: TeamType) -> Result<(), (&'static str, String)> {
        if kind == TeamType::Failover {
            if self.lacp.is_some() {
                let problem =
                    "one member of a failover team carries all frames; allowed: off, or with aggregate";
                return Err(("lacp.mode", problem.to_owned()));
            }
            if self.hash != Policy::default() {
                let problem = "one member of a failover team carries all frames; allowed: with aggregate";
                return Err(("hash_policy", problem.to_owned()));
            }
        }
        let bond = BondSettings {
            patience: self.bond.patience.or(Some(self.patience)),
            ..self.bond
        };
        bond.check(1).map_err(|e| (e.field, e.problem))?;
        if self.bond.flows == 0 {
            return Err(("flows", "0; allowed: 1 to 65536".to_owned()));
        }
        Ok(())
    }
}

/// A hash policy by its name.
pub fn hash(text: &str) -> Checked<Policy> {
    let names = Policy::ALL.map(Policy::name);
    text.parse().map_err(|e: vnic_backend::lag::LagError| {
        let meant = nearest(text, &names).map_or_else(String::new, |n| format!("; did you mean {n:?}?"));
        format!("{}{meant}", e.problem)
    })
}

/// A team of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamSpec {
    /// Its name.
    pub name: String,
    /// What its members do.
    pub kind: TeamType,
    /// `NoFailBackToPrimary`.
    pub no_failback: bool,
    /// Its ports.
    pub members: Vec<String>,
    /// The one that carries frames if it can.
    pub primary: Option<String>,
    /// The one whose address it has; none: the first.
    pub mac_of: Option<String>,
    /// `VlanID`.
    pub vlan_id: u16,
    /// `VlanPrio`.
    pub vlan_prio: u8,
    /// The others.
    pub settings: TeamSettings,
}

impl TeamSpec {
    /// What is wrong with it, as far as it can be told without its ports: the key, and what.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !(1..=MEMBERS_MAX).contains(&self.members.len()) {
            let n = self.members.len();
            return Err(("members", format!("{n}; allowed: 1 to {MEMBERS_MAX}")));
        }
        for (key, port) in [("primary", &self.primary), ("team_mac_of", &self.mac_of)] {
            if let Some(port) = port.as_ref().filter(|p| !self.members.contains(p)) {
                return Err((key, format!("{port} is none of its members")));
            }
        }
        if self.primary.is_some() && self.kind != TeamType::Failover {
            let problem = "all members of an aggregate team carry frames; allowed: with failover";
            return Err(("primary", problem.to_owned()));
        }
        let key = |(field, problem): (&'static str, String)| {
            let key = match field {
                "hash_policy" => "hash",
                "lacp.mode" => "lacp",
                other => other,
            };
            (key, problem)
        };
        self.settings.check(self.kind).map_err(key)
    }
}

/// What goes by a member of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// What.
    pub what: Affinity,
    /// The adapter whose address it is about, as it was called then.
    pub adapter: Option<String>,
    /// The member.
    pub port: String,
}

/// What belongs to a team besides [`Team`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct More {
    /// Its settings.
    pub settings: TeamSettings,
    /// Name of its bond.
    pub bond: String,
    /// What goes by a member of its own.
    pub affinities: Vec<Direction>,
    /// It is of the configuration: changes are not stored.
    pub configured: bool,
    /// The bond that the NIC has for it.
    pub made: Option<BondSpec>,
    /// Why the NIC has not the bond that it should have.
    pub problem: Option<String>,
}

/// All teams.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// What `mlx5muxtool` knows.
    pub teams: Teams,
    /// The rest, by GUID.
    pub more: BTreeMap<u128, More>,
    /// Stored teams that did not come back: they stay stored.
    pub shadowed: Vec<vnic_control::v1::Team>,
}

impl Book {
    /// A team with the rest of it.
    pub fn get(&self, guid: u128) -> Option<(&Team, &More)> {
        let team = self.teams.iter().find(|t| t.guid == guid)?;
        Some((team, self.more.get(&guid)?))
    }

    /// All of them, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (&Team, &More)> {
        self.teams
            .iter()
            .filter_map(|t| Some((t, self.more.get(&t.guid)?)))
    }

    /// The bond that a team should have, with these ports; none without members among them.
    pub fn spec(&self, guid: u128, ports: &BTreeSet<String>) -> Option<BondSpec> {
        let (team, more) = self.get(guid)?;
        let mut here = team.clone();
        here.members.retain(|m| ports.contains(&m.adapter));
        if here.members.is_empty() {
            return None;
        }
        let mut settings = here.bond(more.settings.hash, more.settings.bond);
        let lacp = more.settings.lacp;
        if let Mode::Aggregate { lacp: spoken, .. } = &mut settings.mode {
            *spoken = lacp.is_some();
        }
        let members: Vec<String> = here.members.iter().map(|m| m.adapter.clone()).collect();
        let member = |port: &String| {
            let at = members.iter().position(|m| m == port)?;
            u8::try_from(at).ok().map(Member)
        };
        let affinities = more.affinities.iter();
        let affinities = affinities.filter_map(|d| Some((d.what, member(&d.port)?)));
        Some(BondSpec {
            name: more.bond.clone(),
            affinities: affinities.collect(),
            settings,
            lacp,
            mac: team.mac,
            tag: (team.vlan_id != 0).then_some((team.vlan_id, team.vlan_prio)),
            vlan: more.settings.vlan.clone(),
            members,
        })
    }

    /// A name for the bond of a team of this name, which is none of `taken`: as like it as names of adapters can be.
    pub fn bond_name(team: &str, taken: &BTreeSet<String>) -> String {
        let plain = |c: char| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '_') => c,
            _ => '-',
        };
        let name: String = team.chars().map(plain).collect();
        let name = name.trim_matches(['-', '_']);
        let name = if name.is_empty() { "team" } else { name };
        let cut = |len: usize| name.get(..len.min(name.len())).unwrap_or(name);
        let first = cut(15).to_owned();
        let others = (1..).map(|n| format!("{}-{n}", cut(10)));
        let mut all = std::iter::once(first).chain(others);
        all.find(|n| !taken.contains(n)).unwrap_or_default()
    }
}

/// The name of a state of LACP's receive machine.
pub fn receive_name(state: LacpReceive) -> &'static str {
    match state {
        LacpReceive::PortDisabled => "port_disabled",
        LacpReceive::Expired => "expired",
        LacpReceive::Defaulted => "defaulted",
        LacpReceive::Current => "current",
    }
}

/// The name of a state of LACP's mux machine.
pub fn mux_name(state: LacpMux) -> &'static str {
    match state {
        LacpMux::Detached => "detached",
        LacpMux::Waiting => "waiting",
        LacpMux::Attached => "attached",
        LacpMux::CollectingDistributing => "collecting_distributing",
    }
}

/// A GUID as Windows writes it.
pub fn guid_text(guid: u128) -> String {
    let (a, b, c) = (guid >> 96, guid >> 80 & 0xffff, guid >> 64 & 0xffff);
    let (d, e) = (guid >> 48 & 0xffff, guid & 0xffff_ffff_ffff);
    format!("{{{a:08X}-{b:04X}-{c:04X}-{d:04X}-{e:012X}}}")
}

/// Reads one.
pub fn guid_of(text: &str) -> Option<u128> {
    let text = text.strip_prefix('{')?.strip_suffix('}')?;
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    let digits = text.replace('-', "");
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    (parts == [8, 4, 4, 4, 12] && plain)
        .then(|| u128::from_str_radix(&digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bonds_have_names_like_their_teams() {
        let taken: BTreeSet<String> = ["p0", "team-1", "team"].map(str::to_owned).into();
        for (team, bond) in [
            ("MyTeam", "myteam"),
            ("Team 0", "team-0"),
            ("P0", "p0-1"),
            ("Team", "team-2"),
            ("Überall & länger als fünfzehn", "berall---l-nger"),
            ("???", "team-2"),
        ] {
            let name = Book::bond_name(team, &taken);
            assert_eq!(name, bond, "{team}");
            assert!(crate::check::name(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn guids() {
        let guid = 0xFED1_925F_F88F_4970_B4C3_38AA_0308_74DF;
        let text = "{FED1925F-F88F-4970-B4C3-38AA030874DF}";
        assert_eq!(guid_text(guid), text);
        assert_eq!(guid_of(text), Some(guid));
        assert_eq!(guid_of(&text.to_lowercase()), Some(guid));
        for bad in [
            "",
            "{}",
            "FED1925F-F88F-4970-B4C3-38AA030874DF",
            "{FED1925FF88F4970B4C338AA030874DF}",
        ] {
            assert_eq!(guid_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let of = |settings: TeamSettings, kind| settings.check(kind).map_err(|e| e.0);
        let all = TeamSettings::default;
        assert_eq!(of(all(), TeamType::Failover), Ok(()));
        let lacp = TeamSettings {
            lacp: Some(LacpSpec::default()),
            ..all()
        };
        assert_eq!(of(lacp.clone(), TeamType::Aggregate), Ok(()));
        assert_eq!(of(lacp, TeamType::Failover), Err("lacp.mode"));
        let hash = TeamSettings {
            hash: Policy::Layer2,
            ..all()
        };
        assert_eq!(of(hash, TeamType::Failover), Err("hash_policy"));
        let mut slow = all();
        slow.bond.quiet = Duration::from_secs(2);
        assert_eq!(of(slow, TeamType::Aggregate), Err("quiet"));
        let mut none = all();
        none.bond.flows = 0;
        assert_eq!(of(none, TeamType::Aggregate), Err("flows"));
    }
}
