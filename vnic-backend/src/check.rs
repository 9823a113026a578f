//! Checks of the control plane's requests. Each refusal names the field and what is allowed.

use std::fmt::Display;
use std::ops::RangeInclusive;

use vnic_engine::settings::{AdapterSettings, Burst, RecvCompletion, SendCompletion};
use vnic_fabric::fault::{Rule, RuleError};
use vnic_wire::MacAddr;

use crate::types::*;

/// Checks the list of CPUs.
pub fn cores(cores: &[usize]) -> Result<(), NicError> {
    if cores.is_empty() {
        return invalid("data_cores", "at least one CPU is needed");
    }
    for (i, c) in cores.iter().enumerate() {
        if cores[..i].contains(c) {
            return invalid("data_cores", format!("CPU {c} is named twice"));
        }
    }
    Ok(())
}

/// Checks an adapter on its own.
pub fn adapter(spec: &AdapterSpec, nic: &NicConfig) -> Result<(), NicError> {
    name(&spec.name)?;
    within("mtu", spec.mtu, MTU_RANGE)?;
    vlan(&spec.vlan)?;
    core(spec.data_core, nic)?;
    within("queue_pairs", spec.queue_pairs, QUEUE_PAIRS_RANGE)?;
    if !RDMA_MEMORY_RANGE.contains(&spec.rdma_memory_mib) {
        let (lo, hi) = (RDMA_MEMORY_RANGE.start(), RDMA_MEMORY_RANGE.end());
        let problem = format!("{}; allowed are {lo} to {hi} MiB", spec.rdma_memory_mib);
        return invalid("rdma_memory_mib", problem);
    }
    within("vmm_regions", spec.vmm.regions, VMM_REGIONS_RANGE)?;
    within("vmm_descriptors", spec.vmm.descriptors, VMM_DESCRIPTORS_RANGE)?;
    if spec.macs.is_empty() {
        return invalid("macs", "an adapter needs at least one address");
    }
    for (i, mac) in spec.macs.iter().enumerate() {
        new_mac("macs", mac, &spec.macs[..i])?;
    }
    socket("eth_socket", &spec.eth_socket)?;
    if let Some(path) = &spec.rdma_socket {
        socket("rdma_socket", path)?;
        if *path == spec.eth_socket {
            let problem = format!("{} is the socket of the Ethernet function", path.display());
            return invalid("rdma_socket", problem);
        }
    }
    Ok(())
}

/// Refuses a value that is out of its range.
fn within<T: PartialOrd + Display>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), NicError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (lo, hi) = (range.start(), range.end());
    invalid(field, format!("{value}; allowed are {lo} to {hi}"))
}

/// Refuses an address that is no unicast address, or is among the earlier ones.
fn new_mac(field: &'static str, mac: &MacAddr, before: &[MacAddr]) -> Result<(), NicError> {
    unicast(field, mac)?;
    if before.contains(mac) {
        return invalid(field, format!("{mac} is named twice"));
    }
    Ok(())
}

fn unicast(field: &'static str, mac: &MacAddr) -> Result<(), NicError> {
    if mac.is_multicast() || *mac == MacAddr::default() {
        return invalid(field, format!("{mac} is no unicast address"));
    }
    Ok(())
}

/// Checks the path of a Unix socket (`sun_path` holds 108 bytes with the terminating zero).
fn socket(field: &'static str, path: &std::path::Path) -> Result<(), NicError> {
    if path.as_os_str().len() < 108 {
        return Ok(());
    }
    invalid(field, format!("{} is longer than 107 bytes", path.display()))
}

/// Refuses addresses that another adapter has; `others` are the other adapters' names and addresses.
pub fn free_macs<M: Iterator<Item = MacAddr>>(
    field: &'static str,
    macs: &[MacAddr],
    others: impl Iterator<Item = (String, M)>,
) -> Result<(), NicError> {
    for (other, mut theirs) in others {
        if let Some(mac) = theirs.find(|m| macs.contains(m)) {
            return invalid(field, format!("{mac} belongs to adapter {other}"));
        }
    }
    Ok(())
}

/// Checks settings of an adapter, each on its own and together. The fields are the names of their keys.
pub fn settings(s: &AdapterSettings, spec: &AdapterSpec) -> Result<(), NicError> {
    within("TxMaxPostSendsCoalescing", s.tx_coalescing, TX_COALESCING_RANGE)?;
    if s.send_completion == SendCompletion::NdisPoll && s.tx_coalescing > TX_COALESCING_POLL_MAX {
        return invalid(
            "TxMaxPostSendsCoalescing",
            format!(
                "{}; while SendCompletionMethod is 2 (NDIS poll), at most {TX_COALESCING_POLL_MAX} are allowed",
                s.tx_coalescing
            ),
        );
    }
    if s.recv_completion == RecvCompletion::NdisPoll && s.burst != Burst::Off {
        return invalid(
            "RecvCompletionMethod",
            "4 (NDIS poll) and AsyncReceiveIndicate exclude each other: set AsyncReceiveIndicate to 0 first",
        );
    }
    within("VlanPrio", s.vlan_prio, 0..=7)?;
    vlan_id(s.vlan_id, &spec.vlan)?;
    if s.macs.len() > MORE_MACS_MAX {
        let problem = format!("{} addresses; at most {MORE_MACS_MAX} are allowed", s.macs.len());
        return invalid("mac-address-list", problem);
    }
    for (i, mac) in s.macs.iter().enumerate() {
        new_mac("mac-address-list", mac, &s.macs[..i])?;
        if spec.macs.contains(mac) {
            let problem = format!("{mac} is the adapter's own address already");
            return invalid("mac-address-list", problem);
        }
    }
    Ok(())
}

/// Checks `VlanID`, which selects one of the VLANs that the configuration gives the adapter.
fn vlan_id(vlan: u16, mode: &VlanMode) -> Result<(), NicError> {
    let allowed = match mode {
        _ if vlan == 0 => return Ok(()),
        _ if !(1..=4094).contains(&vlan) => {
            return invalid("VlanID", format!("{vlan}; allowed are 0 to 4094"));
        }
        VlanMode::Access(own) if vlan == *own => return Ok(()),
        VlanMode::Access(own) => format!("0 and {own}"),
        VlanMode::Trunk { allowed: None, .. } => return Ok(()),
        VlanMode::Trunk { native, .. } if vlan == *native => return Ok(()),
        VlanMode::Trunk {
            native,
            allowed: Some(set),
        } => {
            if set.contains(&vlan) {
                return Ok(());
            }
            let mut all = vec![0, *native];
            all.extend(set);
            all.sort_unstable();
            all.dedup();
            let all: Vec<String> = all.iter().map(u16::to_string).collect();
            all.join(", ")
        }
    };
    invalid(
        "VlanID",
        format!("{vlan}; the adapter's VLAN membership allows {allowed}"),
    )
}

/// Checks a port on its own.
pub fn port(spec: &PortSpec, nic: &NicConfig) -> Result<(), NicError> {
    name(&spec.name)?;
    within("mtu", spec.mtu, MTU_RANGE)?;
    vlan(&spec.vlan)?;
    core(spec.data_core, nic)?;
    speed(spec.speed_mbps)?;
    storm(spec.storm)?;
    dcbx(&spec.dcbx)?;
    if spec.bridge.as_ref() == Some(&spec.name) {
        return invalid("bridge", format!("{} is the port itself", spec.name));
    }
    if let PortKind::Tap { queues, .. } = spec.kind
        && !(1..=TAP_QUEUES_MAX).contains(&queues)
    {
        let problem = format!("{queues} is out of range: 1 to {TAP_QUEUES_MAX}");
        return invalid("queues", problem);
    }
    if matches!(spec.kind, PortKind::Mesh { .. }) {
        return Ok(());
    }
    let ifname = spec.kind.ifname();
    let legal = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    if ifname.is_empty() || ifname.len() > 15 || !ifname.bytes().all(legal) || ifname == "." || ifname == ".."
    {
        let problem = format!("{ifname:?} is no interface name (1 to 15 bytes, no blank, '/' or ':')");
        return invalid("ifname", problem);
    }
    Ok(())
}

/// Checks the speed of a port.
pub fn speed(mbps: Option<u32>) -> Result<(), NicError> {
    match mbps {
        Some(mbps) if !SPEED_RANGE.contains(&mbps) => invalid(
            "speed_mbps",
            format!(
                "{mbps} is out of range: {} to {} Mbit/s",
                SPEED_RANGE.start(),
                SPEED_RANGE.end()
            ),
        ),
        _ => Ok(()),
    }
}

/// Checks the limits of storm control.
pub fn storm(limits: StormControl) -> Result<(), NicError> {
    let all = [
        ("storm_broadcast_pps", limits.broadcast_pps),
        ("storm_unknown_unicast_pps", limits.unknown_unicast_pps),
    ];
    for (field, limit) in all {
        if let Some(pps) = limit.filter(|pps| !STORM_RANGE.contains(pps)) {
            let (least, most) = (STORM_RANGE.start(), STORM_RANGE.end());
            let problem = format!("{pps} is out of range: {least} to {most} frames a second");
            return invalid(field, problem);
        }
    }
    Ok(())
}

/// Checks what the operator wants of data center bridging exchange on a port.
pub fn dcbx(wanted: &DcbxSpec) -> Result<(), NicError> {
    const FIELD: &str = "dcbx_applications";
    let rows = &wanted.applications;
    if rows.len() > APPLICATIONS_MAX {
        let n = rows.len();
        return invalid(FIELD, format!("{n} rows; a port has at most {APPLICATIONS_MAX}"));
    }
    for (i, row) in rows.iter().enumerate() {
        let text = ApplicationRow(*row);
        let most = if row.selector == 5 { 63 } else { u16::MAX };
        if !(1..=5).contains(&row.selector) || row.protocol > most || row.priority > 7 {
            let problem =
                format!("{text} is out of range: selector 1 to 5, protocol 0 to {most}, priority 0 to 7");
            return invalid(FIELD, problem);
        }
        let before = rows.get(..i).unwrap_or_default();
        let same =
            |other: &&dcbx::Application| (other.selector, other.protocol) == (row.selector, row.protocol);
        if let Some(other) = before.iter().find(same) {
            let problem = format!(
                "{text}: the protocol has a row already, {}",
                ApplicationRow(*other)
            );
            return invalid(FIELD, problem);
        }
    }
    Ok(())
}

/// Checks a bond on its own, without its members.
pub fn bond(spec: &BondSpec) -> Result<(), NicError> {
    name(&spec.name)?;
    vlan(&spec.vlan)?;
    if let Some((vid, priority)) = spec.tag {
        if !(1..=4094).contains(&vid) {
            return invalid("tag", format!("VLAN {vid}; allowed are 1 to 4094"));
        }
        if priority > 7 {
            return invalid("tag", format!("priority {priority}; allowed are 0 to 7"));
        }
    }
    spec.mac.map_or(Ok(()), |mac| unicast("mac", &mac))
}

/// Checks a fault rule on its own, by the rule that it becomes.
pub fn fault(spec: &FaultSpec, rule: &Rule) -> Result<(), NicError> {
    // A '_' begins names that no operator can give.
    name(spec.name.strip_prefix('_').unwrap_or(&spec.name))?;
    rule.check().or_else(|error| {
        let field = match error {
            RuleError::Probability(_) => "probability",
            RuleError::Qp(_) => "destination_qp",
            RuleError::Psn(_) => "psn",
            RuleError::Opcodes => "opcodes",
            RuleError::Delay(_) => "delay",
            RuleError::Reorder(_) => "reorder.by",
            RuleError::AtMost(_) => "reorder.at_most",
            RuleError::Copies(_) => "duplicate.copies",
            RuleError::Bits(_) => "corrupt.bits",
        };
        invalid(field, error.to_string())
    })
}

/// Checks an access list.
pub fn access_list(rules: &acl::Rules) -> Result<(), NicError> {
    let count = rules.rules.len();
    if count > acl::RULES_MAX {
        let problem = format!("{count} rules; at most {} are allowed", acl::RULES_MAX);
        return invalid("rules", problem);
    }
    Ok(())
}

/// Checks a mirror session.
pub fn mirror(spec: &MirrorSpec) -> Result<(), NicError> {
    name(&spec.name)?;
    if spec.source == spec.destination {
        return invalid(
            "destination",
            "the source cannot be the destination: copies are not copied",
        );
    }
    Ok(())
}

fn name(name: &str) -> Result<(), NicError> {
    let first = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest = |b: u8| first(&b) || b == b'-' || b == b'_';
    if name.as_bytes().first().is_some_and(first) && name.len() <= 15 && name.bytes().all(rest) {
        return Ok(());
    }
    invalid(
        "name",
        format!("{name:?}; allowed are 1 to 15 of a-z, 0-9, '-' and '_', the first a letter or digit"),
    )
}

fn vlan(mode: &VlanMode) -> Result<(), NicError> {
    let legal = |v: &u16| (1..=4094).contains(v);
    let bad = match mode {
        VlanMode::Access(v) => Some(*v).filter(|v| !legal(v)),
        VlanMode::Trunk { native, allowed } => std::iter::once(native)
            .chain(allowed.iter().flatten())
            .find(|v| !legal(v))
            .copied(),
    };
    match bad {
        Some(v) => invalid("vlan", format!("{v}; allowed are 1 to 4094")),
        None => Ok(()),
    }
}

fn core(wanted: Option<usize>, nic: &NicConfig) -> Result<(), NicError> {
    match wanted {
        Some(cpu) if !nic.data_cores.contains(&cpu) => invalid(
            "data_core",
            format!("CPU {cpu} is none of the data cores {:?}", nic.data_cores),
        ),
        _ => Ok(()),
    }
}
