//! Teams as `mlx5muxtool` knows them (WinOF-2 Ethernet Network, NIC Teaming): several adapters that are one to the guest.
//!
//! | `mlx5muxtool` | here |
//! |---|---|
//! | `create team <Type> <Name> [NoFailBackToPrimary] [IPoIB]` | [`Teams::create`] |
//! | `attach team <Name> {GUID} [primary] [SetTeamMacAddress]` | [`Teams::attach`] |
//! | `detach team <Name> {GUID}` | [`Teams::detach`] |
//! | `removeteam <Name>` | [`Teams::remove`] |
//! | `queryteam <Name>` | [`Teams::query`] |
//! | `showlist` | [`Teams::iter`]; adapters that are in no team are the caller's |
//! | registry keys `VlanID`, `VlanPrio` of the team | [`Teams::set_vlan`] |
//!
//! The documents leave some points open, which are so here. Names differ by more than case, as Windows compares them. A team
//! has the address of the member that was attached with `SetTeamMacAddress`, otherwise of the first one; it keeps the address
//! when that member goes, as long as there are others, because neighbours know it. A setting without effect is refused: a
//! primary, and `NoFailBackToPrimary`, of an aggregate team. IPoIB is refused: all ports are Ethernet.
//!
//! A call that ends in an error has changed nothing.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use vnic_wire::MacAddr;

use super::{BondSettings, LagError, MEMBERS_MAX, Member, Mode, Policy, refuse};

/// Most characters of a team's name.
pub const NAME_MAX: usize = 64;
/// Most teams.
pub const TEAMS_MAX: usize = 256;
/// Largest `VlanID`; 0: frames get no tag.
pub const VLAN_ID_MAX: u16 = 4094;
/// Largest `VlanPrio`.
pub const VLAN_PRIO_MAX: u8 = 7;

/// Why `NoFailBackToPrimary` is refused.
const NO_PRIMARY: &str = "an aggregate team has no primary to go back to; allowed: with Failover";

vnic_wire::named! {
    /// Kind of a team.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum TeamType {
        /// All members carry frames (static link aggregation).
        Aggregate => "Aggregate",
        /// One member carries frames, the others stand by.
        Failover => "Failover",
    }
}

impl core::str::FromStr for TeamType {
    type Err = LagError;

    /// Upper and lower case are equal, as the tool's own examples have both.
    fn from_str(s: &str) -> Result<TeamType, LagError> {
        let mut all = TeamType::ALL.into_iter();
        all.find(|t| t.name().eq_ignore_ascii_case(s))
            .ok_or_else(|| LagError::new("type", format!("\"{s}\"; allowed: Aggregate, Failover")))
    }
}

/// Arguments of `create team`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTeam {
    /// Name of the team.
    pub name: String,
    /// Identifier, which the caller makes up.
    pub guid: u128,
    /// Kind of the team.
    pub kind: TeamType,
    /// `NoFailBackToPrimary`.
    pub no_failback: bool,
    /// `IPoIB`.
    pub ipoib: bool,
}

/// Arguments of `attach team`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// Name or GUID of the adapter, as the caller knows it; compared byte by byte.
    pub adapter: String,
    /// Ethernet address of the adapter.
    pub mac: MacAddr,
    /// `primary`.
    pub primary: bool,
    /// `SetTeamMacAddress`.
    pub set_team_mac: bool,
}

/// A member of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamMember {
    /// The adapter.
    pub adapter: String,
    /// Ethernet address of the adapter.
    pub mac: MacAddr,
    /// Whether it is the member that carries frames if it can.
    pub primary: bool,
}

/// A team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// Name of the team, as it was given.
    pub name: String,
    /// Identifier of the team.
    pub guid: u128,
    /// Kind of the team.
    pub kind: TeamType,
    /// Whether the primary does not take over again from the member that stands in for it.
    pub no_failback: bool,
    /// Members, in the order in which they were attached, which is that of the bond.
    pub members: Vec<TeamMember>,
    /// Ethernet address of the team; `None` without members.
    pub mac: Option<MacAddr>,
    /// VLAN of all frames that it sends; 0: none.
    pub vlan_id: u16,
    /// Priority in their tags.
    pub vlan_prio: u8,
}

impl Team {
    /// The settings of the bond that carries the team, on top of its other settings. An aggregate is static.
    pub fn bond(&self, policy: Policy, others: BondSettings) -> BondSettings {
        let primary = self.members.iter().position(|m| m.primary);
        let mode = match self.kind {
            TeamType::Aggregate => Mode::Aggregate { policy, lacp: false },
            TeamType::Failover => Mode::ActiveBackup {
                primary: primary.map(|i| Member(i as u8)),
                failback: !self.no_failback,
            },
        };
        BondSettings { mode, ..others }
    }

    /// TCI of the tag that the team's frames get, if any.
    pub fn tci(&self) -> Option<vnic_wire::vlan::Tci> {
        let tci = vnic_wire::vlan::Tci::new(self.vlan_prio, false, self.vlan_id);
        (self.vlan_id != 0).then_some(tci)
    }
}

/// All teams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Teams {
    teams: Vec<Team>,
}

impl Teams {
    /// The teams, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Team> {
        self.teams.iter()
    }

    fn index(&self, name: &str) -> Result<usize, LagError> {
        let is = |t: &Team| same(&t.name, name);
        let found = self.teams.iter().position(is);
        found.ok_or_else(|| LagError::new("team", format!("there is none of the name \"{name}\"")))
    }

    /// A team by its name.
    pub fn query(&self, name: &str) -> Result<&Team, LagError> {
        Ok(&self.teams[self.index(name)?])
    }

    /// The team of an adapter.
    pub fn team_of(&self, adapter: &str) -> Option<&Team> {
        let has = |t: &&Team| t.members.iter().any(|m| m.adapter == adapter);
        self.teams.iter().find(has)
    }

    /// Makes a team without members.
    pub fn create(&mut self, new: NewTeam) -> Result<&Team, LagError> {
        let name = &new.name;
        let len = name.chars().count();
        if !(1..=NAME_MAX).contains(&len) {
            let problem = format!("{len} characters; allowed: 1 to {NAME_MAX}");
            return refuse("name", problem);
        }
        if name.trim() != name || name.chars().any(char::is_control) {
            let problem = format!("{name:?}; allowed: no control characters, no space at its ends");
            return refuse("name", problem);
        }
        if let Ok(team) = self.query(name) {
            return refuse("name", format!("there is a team \"{}\"", team.name));
        }
        if self.teams.iter().any(|t| t.guid == new.guid) {
            return refuse("guid", "another team has it");
        }
        if new.ipoib {
            return refuse("ipoib", "all ports are Ethernet; allowed: no IPoIB");
        }
        if new.no_failback && new.kind != TeamType::Failover {
            return refuse("no_failback_to_primary", NO_PRIMARY);
        }
        if self.teams.len() >= TEAMS_MAX {
            let problem = format!("there are {TEAMS_MAX}; allowed: no more");
            return refuse("team", problem);
        }
        self.teams.push(Team {
            name: new.name,
            guid: new.guid,
            kind: new.kind,
            no_failback: new.no_failback,
            members: Vec::new(),
            mac: None,
            vlan_id: 0,
            vlan_prio: 0,
        });
        Ok(&self.teams[self.teams.len() - 1])
    }

    /// Makes a team as it was once: with its members, their order, and an address that may be that of a member that has gone.
    pub fn restore(&mut self, team: Team) -> Result<&Team, LagError> {
        let mut next = self.clone();
        next.create(NewTeam {
            name: team.name.clone(),
            guid: team.guid,
            kind: team.kind,
            no_failback: team.no_failback,
            ipoib: false,
        })?;
        for member in &team.members {
            let new = NewMember {
                adapter: member.adapter.clone(),
                mac: member.mac,
                primary: member.primary,
                set_team_mac: false,
            };
            next.attach(&team.name, new)?;
        }
        next.set_vlan(&team.name, team.vlan_id, team.vlan_prio)?;
        let i = next.index(&team.name)?;
        let made = &mut next.teams[i];
        made.mac = made.mac.and(team.mac.or(made.mac));
        *self = next;
        Ok(&self.teams[i])
    }

    /// Takes an adapter into a team.
    pub fn attach(&mut self, name: &str, new: NewMember) -> Result<&Team, LagError> {
        let i = self.index(name)?;
        if new.adapter.is_empty() {
            return refuse("adapter", "it has no name");
        }
        if let Some(team) = self.team_of(&new.adapter) {
            let problem = format!("{} is in team \"{}\" already", new.adapter, team.name);
            return refuse("adapter", problem);
        }
        if new.mac == MacAddr::default() || new.mac.is_multicast() {
            let problem = format!(
                "{} has {}; allowed: the address of one station",
                new.adapter, new.mac
            );
            return refuse("adapter", problem);
        }
        let team = &mut self.teams[i];
        if team.members.len() >= MEMBERS_MAX {
            let problem = format!("\"{name}\" has {MEMBERS_MAX}; allowed: 1 to {MEMBERS_MAX}");
            return refuse("members", problem);
        }
        if new.primary {
            if team.kind != TeamType::Failover {
                let problem = "all members of an aggregate team carry frames; allowed: with Failover";
                return refuse("primary", problem);
            }
            if let Some(primary) = team.members.iter().find(|m| m.primary) {
                let problem = format!("{} is the primary; allowed: one", primary.adapter);
                return refuse("primary", problem);
            }
        }
        if new.set_team_mac || team.mac.is_none() {
            team.mac = Some(new.mac);
        }
        team.members.push(TeamMember {
            adapter: new.adapter,
            mac: new.mac,
            primary: new.primary,
        });
        Ok(team)
    }

    /// Takes an adapter out of its team. A team without members loses its address, and stays.
    pub fn detach(&mut self, name: &str, adapter: &str) -> Result<&Team, LagError> {
        let i = self.index(name)?;
        let team = &mut self.teams[i];
        let Some(at) = team.members.iter().position(|m| m.adapter == adapter) else {
            let problem = format!("{adapter} is not in team \"{}\"", team.name);
            return refuse("adapter", problem);
        };
        team.members.remove(at);
        if team.members.is_empty() {
            team.mac = None;
        }
        Ok(team)
    }

    /// Removes a team; its members are adapters of their own again.
    pub fn remove(&mut self, name: &str) -> Result<Team, LagError> {
        let i = self.index(name)?;
        Ok(self.teams.remove(i))
    }

    /// Sets `NoFailBackToPrimary` of a team.
    pub fn set_no_failback(&mut self, name: &str, no_failback: bool) -> Result<&Team, LagError> {
        let i = self.index(name)?;
        let team = &mut self.teams[i];
        if no_failback && team.kind != TeamType::Failover {
            return refuse("no_failback_to_primary", NO_PRIMARY);
        }
        team.no_failback = no_failback;
        Ok(team)
    }

    /// Sets `VlanID` and `VlanPrio` of a team.
    pub fn set_vlan(&mut self, name: &str, id: u16, prio: u8) -> Result<&Team, LagError> {
        let i = self.index(name)?;
        if id > VLAN_ID_MAX {
            let problem = format!("{id}; allowed: 0 (none) to {VLAN_ID_MAX}");
            return refuse("VlanID", problem);
        }
        if prio > VLAN_PRIO_MAX {
            let problem = format!("{prio}; allowed: 0 to {VLAN_PRIO_MAX}");
            return refuse("VlanPrio", problem);
        }
        let team = &mut self.teams[i];
        (team.vlan_id, team.vlan_prio) = (id, prio);
        Ok(team)
    }
}

/// Whether two names are equal but for case.
fn same(a: &str, b: &str) -> bool {
    let lower = char::to_lowercase;
    a.chars().flat_map(lower).eq(b.chars().flat_map(lower))
}

#[cfg(test)]
mod tests;
