//! Teams: settings beside those of link aggregation.

use std::time::Duration;

use vnic_backend::lag::{Affinity, BondSettings, LacpMux, LacpReceive, MEMBERS_MAX, Policy, TeamType};
use vnic_backend::{LacpSpec, VlanMode};

use crate::check::{Checked, Violations, nearest};

/// Greatest number of affinities of a team.
pub const AFFINITIES_MAX: usize = 1024;

/// Settings of a team besides those that `mlx5muxtool` has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamSettings {
    /// Hash policy, which assigns flows to members.
    pub hash: Policy,
    /// LACP; `None`: the aggregation is static.
    pub lacp: Option<LacpSpec>,
    /// Delays, and number of flows in the view. Its mode is not used.
    pub bond: BondSettings,
    /// Value of `bond.patience` that is kept while that is `None`.
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
    /// Checks the settings for a team of this type. An error has the field and the problem.
    pub fn check(&self, kind: TeamType) -> Result<(), (&'static str, String)> {
        if kind == TeamType::Failover {
            if self.lacp.is_some() {
                let problem =
                    "one member of a failover team carries all frames; allowed: off, or with aggregate";
                return Err(("lacp.mode", problem.to_owned()));
            }
            // (Layer3+4 was the default once: failover teams are stored with it.)
            if ![Policy::default(), Policy::Layer34].contains(&self.hash) {
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

/// Hash policy of a name.
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
    pub name: String,
    pub kind: TeamType,
    /// `NoFailBackToPrimary`.
    pub no_failback: bool,
    pub members: Vec<String>,
    /// Member that carries frames if it can.
    pub primary: Option<String>,
    /// Member whose address the team has; `None`: the first.
    pub mac_of: Option<String>,
    pub vlan_id: u16,
    pub vlan_prio: u8,
    pub settings: TeamSettings,
}

impl TeamSpec {
    /// Checks the team as far as possible without its ports. An error has the key and the problem.
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

/// Writable settings of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Type of the team, which cannot be changed.
    pub kind: TeamType,
    /// `NoFailBackToPrimary`.
    pub no_failback: bool,
    pub vlan_id: u16,
    pub vlan_prio: u8,
    pub settings: TeamSettings,
    /// LACP of the settings; fields are written here while LACP is off.
    pub lacp: LacpSpec,
    /// Whether LACP is on.
    pub speaks: bool,
}

impl Draft {
    /// Makes a draft from the settings of a team.
    pub fn new(kind: TeamType, no_failback: bool, vlan: (u16, u8), settings: TeamSettings) -> Draft {
        Draft {
            kind,
            no_failback,
            vlan_id: vlan.0,
            vlan_prio: vlan.1,
            lacp: settings.lacp.unwrap_or_default(),
            speaks: settings.lacp.is_some(),
            settings,
        }
    }

    /// Checks whether the settings fit together.
    pub fn check(&self, wrong: &mut Violations) {
        if let Err((field, problem)) = self.settings.check(self.kind) {
            wrong.add(format!("team.{field}"), problem);
        }
    }
}

/// Affinity of a team: traffic that has a member of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// Traffic.
    pub what: Affinity,
    /// Name of the adapter whose address the affinity has, when it was set.
    pub adapter: Option<String>,
    /// Member.
    pub port: String,
}

/// Name of a state of LACP's receive machine.
pub fn receive_name(state: LacpReceive) -> &'static str {
    match state {
        LacpReceive::PortDisabled => "port_disabled",
        LacpReceive::Expired => "expired",
        LacpReceive::Defaulted => "defaulted",
        LacpReceive::Current => "current",
    }
}

/// Name of a state of LACP's mux machine.
pub fn mux_name(state: LacpMux) -> &'static str {
    match state {
        LacpMux::Detached => "detached",
        LacpMux::Waiting => "waiting",
        LacpMux::Attached => "attached",
        LacpMux::CollectingDistributing => "collecting_distributing",
    }
}

/// Text of a GUID in Windows' format.
pub fn guid_text(guid: u128) -> String {
    let (a, b, c) = (guid >> 96, guid >> 80 & 0xffff, guid >> 64 & 0xffff);
    let (d, e) = (guid >> 48 & 0xffff, guid & 0xffff_ffff_ffff);
    format!("{{{a:08X}-{b:04X}-{c:04X}-{d:04X}-{e:012X}}}")
}

/// Parses a GUID in Windows' format.
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
        let stored = TeamSettings {
            hash: Policy::Layer34,
            ..all()
        };
        assert_eq!(of(stored, TeamType::Failover), Ok(()), "a default of before");
        let mut slow = all();
        slow.bond.quiet = Duration::from_secs(2);
        assert_eq!(of(slow, TeamType::Aggregate), Err("quiet"));
        let mut none = all();
        none.bond.flows = 0;
        assert_eq!(of(none, TeamType::Aggregate), Err("flows"));
    }
}
