//! The book of teams.

use std::collections::{BTreeMap, BTreeSet};

use vnic_backend::BondSpec;
use vnic_backend::lag::{Member, Mode, Team, Teams};

use crate::stored;
use crate::teams::{Direction, TeamSettings};

/// Parts of a team that [`Team`] has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct More {
    /// Place among the teams, in the order in which they were made.
    pub number: u64,
    pub settings: TeamSettings,
    /// Name of its bond.
    pub bond: String,
    /// Affinities: traffic that has a member of its own.
    pub affinities: Vec<Direction>,
    /// Whether the team is of the configuration, so that changes are not stored.
    pub configured: bool,
    /// The bond that the NIC has for the team.
    pub made: Option<BondSpec>,
    /// Why the NIC does not have the bond that it should have.
    pub problem: Option<String>,
}

/// All teams.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// Teams as `mlx5muxtool` has them.
    pub teams: Teams,
    /// Other parts, by GUID of the team.
    pub more: BTreeMap<u128, More>,
    /// Stored teams that could not be made again; they stay stored.
    pub shadowed: Vec<stored::teams::Row>,
}

impl Book {
    /// A team with its other parts.
    pub fn get(&self, guid: u128) -> Option<(&Team, &More)> {
        let team = self.teams.iter().find(|t| t.guid == guid)?;
        Some((team, self.more.get(&guid)?))
    }

    /// All teams, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (&Team, &More)> {
        self.teams
            .iter()
            .filter_map(|t| Some((t, self.more.get(&t.guid)?)))
    }

    /// The bond that a team should have over these ports; `None` if none of them is a member.
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

    /// Name for the bond of a team: the team's name in the alphabet of adapter names, and none of `taken`.
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
}
