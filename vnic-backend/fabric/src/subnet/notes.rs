//! What of a policy has no effect, or not the one that it looks like.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::path::Port;
use super::policy::{Policy, Rule, same};
use super::ranges::Ranges;

/// Most that is said about one policy.
const NOTES_MAX: usize = 100;

/// What a reader of the file should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Line that it is about.
    pub line: u32,
    /// What it is.
    pub text: String,
}

/// Notes about a policy with these ports, by line; at most 100.
pub fn notes(policy: &Policy, ports: &[Port<'_>]) -> Vec<Note> {
    let mut notes = names(policy);
    reach(policy, &mut notes);
    members(policy, ports, &mut notes);
    let setup = &policy.setup;
    let scopes = setup
        .arbitration
        .iter()
        .map(|s| s.line)
        .chain(setup.lanes.iter().map(|s| s.line));
    if let Some(line) = scopes.min() {
        let text = "qos-setup is read and has no effect, as in OpenSM: each port has tables of its own (vnicctl qos set)";
        notes.push(Note {
            line,
            text: text.into(),
        });
    }
    notes.sort_by_key(|note| note.line);
    notes.truncate(NOTES_MAX);
    notes
}

/// Names that are there twice, and what no port here can have.
fn names(policy: &Policy) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |line, text| notes.push(Note { line, text });
    for (at, level) in policy
        .levels
        .iter()
        .enumerate()
        .filter(|(_, level)| level.line > 0)
    {
        let before = policy
            .levels
            .iter()
            .take(at)
            .find(|l| l.line > 0 && same(&l.name, &level.name));
        if let Some(before) = before {
            note(
                level.line,
                format!(
                    "the QoS level {:?} is never used: line {} has this name, too",
                    level.name, before.line
                ),
            );
        }
        if level.path_bits {
            note(
                level.line,
                format!(
                    "path-bits of the QoS level {:?} have no effect, as in OpenSM",
                    level.name
                ),
            );
        }
    }
    for (at, group) in policy
        .groups
        .iter()
        .enumerate()
        .filter(|(_, group)| !group.name.is_empty())
    {
        let before = policy.groups.iter().take(at).find(|g| same(&g.name, &group.name));
        if let Some(before) = before {
            note(
                group.line,
                format!(
                    "the port group {:?} is never used: line {} has this name, too",
                    group.name, before.line
                ),
            );
        }
        for name in group.partitions.iter().filter(|name| !same(name, "Default")) {
            note(
                group.line,
                format!(
                    "there is no partition {name:?}: partitions but Default have no names here, `pkey` says which"
                ),
            );
        }
    }
    notes
}

/// Rules behind one that matches all.
fn reach(policy: &Policy, notes: &mut Vec<Note>) {
    let Some(at) = policy.rules.iter().position(Rule::unconditional) else {
        return;
    };
    let first = policy.rules.get(at).map_or(0, |rule| rule.line);
    for rule in policy.rules.iter().skip(at + 1) {
        let text = format!("the rule is never used: that of line {first} matches all paths");
        notes.push(Note {
            line: rule.line,
            text,
        });
    }
}

/// Groups without a port, and partitions without members.
fn members(policy: &Policy, ports: &[Port<'_>], notes: &mut Vec<Note>) {
    for group in &policy.groups {
        if !ports.iter().any(|port| port.is_in(group)) {
            let text = match group.name.as_str() {
                "" => "no port here has one of these GUIDs".into(),
                name => format!("no port here is in the port group {name:?}"),
            };
            notes.push(Note {
                line: group.line,
                text,
            });
        }
    }
    let members = |keys: &Ranges, full: bool| {
        let is = |key: &u16| keys.contains((key & 0x7fff).into()) && (!full || key & 0x8000 != 0);
        ports.iter().filter(|port| port.pkeys.iter().any(is)).count()
    };
    for rule in policy.rules.iter().filter(|rule| !rule.pkeys.is_empty()) {
        let text = match rule.ipoib {
            true if members(&rule.pkeys, true) < 2 => {
                "IPoIB needs two full members of the partition: OpenSM refuses the file until there are"
            }
            false if members(&rule.pkeys, false) == 0 => "no port here is a member of these partitions",
            _ => continue,
        };
        notes.push(Note {
            line: rule.line,
            text: text.into(),
        });
    }
    for level in policy.levels.iter().filter(|level| !level.pkeys.is_empty()) {
        if members(&level.pkeys, false) < 2 {
            let text = format!(
                "no two ports here are members of a partition that the QoS level {:?} has",
                level.name
            );
            notes.push(Note {
                line: level.line,
                text,
            });
        }
    }
}
