//! Checks of a bond against the NIC's state. Each refusal names the field and what is allowed.

use vnic_fabric::Instant;
use vnic_fabric::lag::{Bond, Mode};

use crate::check;
use crate::nic::state::{MemberEntry, PortEntry, Speaker, State};
use crate::types::lag::MEMBERS_MAX;
use crate::types::*;

/// Parts of a bond that was checked.
pub(super) struct Plan {
    pub(super) core: usize,
    pub(super) members: Vec<MemberEntry>,
    /// The state machine of the bond; its links are down.
    pub(super) bond: Bond,
    pub(super) speaker: Option<Speaker>,
}

/// Checks a bond without changing anything.
pub(super) fn plan(spec: &BondSpec, state: &State) -> Result<Plan, NicError> {
    check::bond(spec)?;
    if !state.bonds.contains_key(&spec.name) {
        state.free_name("bond", &spec.name)?;
    }
    mode(spec)?;
    let (core, ports) = members(spec, state)?;
    let mut bond = Bond::new(ports.len(), spec.settings)?;
    for (i, (what, member)) in spec.affinities.iter().enumerate() {
        if spec.affinities[..i].iter().any(|(w, _)| w == what) {
            return invalid("affinities", format!("{what:?} is there twice"));
        }
        bond.set_affinity(Instant(0), *what, *member)
            .or_else(|e| invalid("affinities", format!("{what:?}: {e}")))?;
    }
    let member = |port: &&PortEntry| MemberEntry {
        id: port.id,
        up: port.up,
        aggregated: false,
        usable: false,
    };
    Ok(Plan {
        core,
        members: ports.iter().map(member).collect(),
        bond,
        speaker: Speaker::new(spec, &ports)?,
    })
}

/// Checks that LACP and the mode fit together.
fn mode(spec: &BondSpec) -> Result<(), NicError> {
    let problem = match (spec.settings.mode, spec.lacp) {
        (Mode::ActiveBackup { .. }, Some(_)) => {
            "only an aggregate speaks LACP; active-backup has one member in use"
        }
        (Mode::Aggregate { lacp: true, .. }, None) => "the mode is LACP, and nothing says how it is spoken",
        (Mode::Aggregate { lacp: false, .. }, Some(_)) => "the mode is static, so LACP is not spoken",
        _ => return Ok(()),
    };
    invalid("lacp", problem)
}

/// The member ports, and the core that serves all of them.
fn members<'a>(spec: &BondSpec, state: &'a State) -> Result<(usize, Vec<&'a PortEntry>), NicError> {
    let count = spec.members.len();
    if !(1..=MEMBERS_MAX).contains(&count) {
        return invalid("members", format!("{count}; allowed: 1 to {MEMBERS_MAX} ports"));
    }
    let mut ports: Vec<&PortEntry> = Vec::with_capacity(count);
    for (i, name) in spec.members.iter().enumerate() {
        let Some(port) = state.ports.get(name) else {
            return invalid("members", format!("no port is named {name}"));
        };
        if spec.members[..i].contains(name) {
            return invalid("members", format!("{name} is there twice"));
        }
        if let Some(other) = state.bond_of(port.id).filter(|b| *b != spec.name) {
            let problem = format!("{name} is a member of {other} already; a port is in one bond at most");
            return invalid("members", problem);
        }
        if let Some(other) = state.bridged_with(name) {
            let problem = format!("{name} is bridged with {other}");
            return invalid("members", problem);
        }
        if let Some(mirror) = state.mirrored_to(name) {
            let problem = format!("{name} is the destination of mirror {mirror}, and carries copies only");
            return invalid("members", problem);
        }
        if let Some(first) = ports.first() {
            alike(&first.spec, &port.spec)?;
        }
        ports.push(port);
    }
    Ok((ports.first().map_or(0, |p| p.core), ports))
}

/// Checks that two members have the same MTU and the same data core.
fn alike(first: &PortSpec, port: &PortSpec) -> Result<(), NicError> {
    if first.mtu != port.mtu {
        return invalid(
            "members",
            format!(
                "{} has the MTU {}, {} has {}; all members have the same",
                first.name, first.mtu, port.name, port.mtu
            ),
        );
    }
    // Every added port has a data core.
    if let (Some(a), Some(b)) = (first.data_core, port.data_core)
        && a != b
    {
        return invalid(
            "members",
            format!(
                "{} is served by the data core on CPU {a}, {} by that on CPU {b}; one data core serves all members: add \
                 both with the same one (--data-core)",
                first.name, port.name
            ),
        );
    }
    Ok(())
}
