//! The subnet of the RDMA functions: ports, the policy of paths, multicast groups, and answers to the questions of drivers.

use vnic_fabric::switch::PortId;
use vnic_wire::sa::SaMad;

use super::state::{State, not_found};
use crate::rdma::{GidRegistry, SPEED_MBPS, device_config, guid};
use crate::rehearsal::acts;
use crate::types::subnet::{self, Agent, Group, GroupError, GroupSpec};
use crate::types::{NicError, SubnetPort};

/// Ports of all RDMA functions, by the adapter's name. A port is as fast as the adapter's link.
pub(super) fn ports(state: &State) -> Vec<SubnetPort> {
    let functions = state.adapters.iter().filter(|(_, entry)| entry.rdma.is_some());
    let port = functions.filter_map(|(name, entry)| {
        let spec = entry.adapter.spec();
        let config = device_config(*spec.macs.first()?, spec.mtu, spec.rdma_memory_mib);
        let link = u32::try_from(entry.qos.rate / 1_000_000).unwrap_or(u32::MAX);
        let speed = if entry.qos.rate == 0 {
            SPEED_MBPS
        } else {
            link.min(SPEED_MBPS)
        };
        Some(SubnetPort {
            adapter: name.clone(),
            guid: guid(config.mac),
            mtu: subnet::mtu_code(config.mtu.bytes()),
            rate: subnet::rate_code(speed),
            pkeys: spec.pkeys,
        })
    });
    port.collect()
}

/// Refusal of a group as an error of the control plane.
fn refusal(name: &str, error: &GroupError) -> NicError {
    match error {
        GroupError::Exists(_) => NicError::Exists {
            kind: "multicast group",
            name: name.into(),
        },
        GroupError::Full => NicError::Limit(error.to_string()),
        _ => NicError::Invalid {
            field: error.field().unwrap_or("name"),
            problem: error.to_string(),
        },
    }
}

/// The multicast groups, by name, with their members. Adapters that are gone are in none.
pub(super) fn groups(state: &mut State) -> Vec<(String, Group)> {
    let ports = ports(state);
    let groups = &mut state.subnet.groups;
    groups.keep_members(|guid| ports.iter().any(|port| port.guid == guid));
    groups
        .iter()
        .map(|(name, group)| (name.to_owned(), group.clone()))
        .collect()
}

/// Makes a multicast group without members.
pub(super) fn create_group(state: &mut State, name: &str, spec: GroupSpec) -> Result<(), NicError> {
    let groups = &mut state.subnet.groups;
    groups.check(name, &spec).map_err(|error| refusal(name, &error))?;
    acts()?;
    groups.create(name, spec).map_err(|error| refusal(name, &error))
}

/// Removes a multicast group.
pub(super) fn remove_group(state: &mut State, name: &str) -> Result<(), NicError> {
    let groups = &mut state.subnet.groups;
    if !groups.iter().any(|(other, _)| other == name) {
        return Err(not_found("multicast group", name));
    }
    acts()?;
    groups.remove(name);
    Ok(())
}

/// The answer to a question of a driver to subnet administration, a datagram or the segments of a transfer, and the data core that
/// serves its adapter, which is who asks. `None`: the adapter is gone.
pub(super) fn answer(
    state: &mut State,
    gids: &GidRegistry,
    asker: PortId,
    question: &SaMad,
    vlan: Option<u16>,
) -> Option<(usize, Vec<SaMad>)> {
    let ports = ports(state);
    let mut adapters = state.adapters.iter();
    let (name, entry) = adapters.find(|(_, entry)| entry.adapter.id == asker)?;
    let (core, asker) = (
        entry.adapter.core,
        ports.iter().position(|port| port.adapter == *name),
    );
    let ends: Vec<_> = ports.iter().map(SubnetPort::end).collect();
    let mut agent = Agent {
        policy: state.subnet.policy.as_deref(),
        ports: &ends,
        find: &|gid| gids.resolve(gid, vlan).map(guid),
        groups: &mut state.subnet.groups,
    };
    let answer = asker.and_then(|asker| agent.answer(asker, question));
    Some((core, answer.unwrap_or_default()))
}
