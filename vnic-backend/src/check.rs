//! Is what the control plane asks for possible? Every refusal names the field and what is allowed.

use vnic_engine::settings::{AdapterSettings, Burst, RecvCompletion, SendCompletion};
use vnic_fabric::fault::{Rule, RuleError};
use vnic_wire::MacAddr;

use crate::types::*;

fn invalid<T>(field: &'static str, problem: String) -> Result<T, NicError> {
    Err(NicError::Invalid { field, problem })
}

/// The list of CPUs.
pub fn cores(cores: &[usize]) -> Result<(), NicError> {
    if cores.is_empty() {
        return invalid("data_cores", "at least one CPU is needed".into());
    }
    for (i, c) in cores.iter().enumerate() {
        if cores[..i].contains(c) {
            return invalid("data_cores", format!("CPU {c} is named twice"));
        }
    }
    Ok(())
}

/// An adapter on its own.
pub fn adapter(spec: &AdapterSpec, nic: &NicConfig) -> Result<(), NicError> {
    name(&spec.name)?;
    mtu(spec.mtu)?;
    vlan(&spec.vlan)?;
    core(spec.data_core, nic)?;
    if !QUEUE_PAIRS_RANGE.contains(&spec.queue_pairs) {
        let (lo, hi) = (QUEUE_PAIRS_RANGE.start(), QUEUE_PAIRS_RANGE.end());
        return invalid(
            "queue_pairs",
            format!("{}; allowed are {lo} to {hi}", spec.queue_pairs),
        );
    }
    if !RDMA_MEMORY_RANGE.contains(&spec.rdma_memory_mib) {
        let (lo, hi) = (RDMA_MEMORY_RANGE.start(), RDMA_MEMORY_RANGE.end());
        return invalid(
            "rdma_memory_mib",
            format!("{}; allowed are {lo} to {hi} MiB", spec.rdma_memory_mib),
        );
    }
    for (field, value, range) in [
        ("vmm_regions", spec.vmm.regions, VMM_REGIONS_RANGE),
        ("vmm_descriptors", spec.vmm.descriptors, VMM_DESCRIPTORS_RANGE),
    ] {
        if !range.contains(&value) {
            let (lo, hi) = (range.start(), range.end());
            return invalid(field, format!("{value}; allowed are {lo} to {hi}"));
        }
    }
    if spec.macs.is_empty() {
        return invalid("macs", "an adapter needs at least one address".into());
    }
    for (i, mac) in spec.macs.iter().enumerate() {
        if mac.is_multicast() || *mac == MacAddr::default() {
            return invalid("macs", format!("{mac} is no unicast address"));
        }
        if spec.macs[..i].contains(mac) {
            return invalid("macs", format!("{mac} is named twice"));
        }
    }
    socket("eth_socket", &spec.eth_socket)?;
    if let Some(path) = &spec.rdma_socket {
        socket("rdma_socket", path)?;
        if *path == spec.eth_socket {
            return invalid(
                "rdma_socket",
                format!("{} is the socket of the Ethernet function", path.display()),
            );
        }
    }
    Ok(())
}

/// The path of a Unix socket (`sun_path` holds 108 bytes with the terminating zero).
fn socket(field: &'static str, path: &std::path::Path) -> Result<(), NicError> {
    if path.as_os_str().len() < 108 {
        return Ok(());
    }
    invalid(field, format!("{} is longer than 107 bytes", path.display()))
}

/// No two adapters share an address; `others` are their names and addresses.
pub fn free_macs<'a, M: Iterator<Item = MacAddr>>(
    field: &'static str,
    macs: &[MacAddr],
    others: impl Iterator<Item = (&'a str, M)>,
) -> Result<(), NicError> {
    for (other, mut theirs) in others {
        if let Some(mac) = theirs.find(|m| macs.contains(m)) {
            return invalid(field, format!("{mac} belongs to adapter {other}"));
        }
    }
    Ok(())
}

/// Settings of an adapter, each on its own and together. The fields are the names of their keys.
pub fn settings(s: &AdapterSettings, spec: &AdapterSpec) -> Result<(), NicError> {
    if !TX_COALESCING_RANGE.contains(&s.tx_coalescing) {
        let (lo, hi) = (TX_COALESCING_RANGE.start(), TX_COALESCING_RANGE.end());
        return invalid(
            "TxMaxPostSendsCoalescing",
            format!("{}; allowed are {lo} to {hi}", s.tx_coalescing),
        );
    }
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
            "4 (NDIS poll) and AsyncReceiveIndicate exclude each other: set AsyncReceiveIndicate to 0 first"
                .into(),
        );
    }
    if s.vlan_prio > 7 {
        return invalid("VlanPrio", format!("{}; allowed are 0 to 7", s.vlan_prio));
    }
    vlan_id(s.vlan_id, &spec.vlan)?;
    if s.macs.len() > MORE_MACS_MAX {
        return invalid(
            "mac-address-list",
            format!("{} addresses; at most {MORE_MACS_MAX} are allowed", s.macs.len()),
        );
    }
    for (i, mac) in s.macs.iter().enumerate() {
        if mac.is_multicast() || *mac == MacAddr::default() {
            return invalid("mac-address-list", format!("{mac} is no unicast address"));
        }
        if s.macs[..i].contains(mac) {
            return invalid("mac-address-list", format!("{mac} is named twice"));
        }
        if spec.macs.contains(mac) {
            return invalid(
                "mac-address-list",
                format!("{mac} is the adapter's own address already"),
            );
        }
    }
    Ok(())
}

/// The configuration says of which VLANs an adapter is; `VlanID` chooses one of them.
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

/// A port on its own.
pub fn port(spec: &PortSpec, nic: &NicConfig) -> Result<(), NicError> {
    name(&spec.name)?;
    mtu(spec.mtu)?;
    vlan(&spec.vlan)?;
    core(spec.data_core, nic)?;
    speed(spec.speed_mbps)?;
    if let PortKind::Tap { queues, .. } = spec.kind
        && !(1..=TAP_QUEUES_MAX).contains(&queues)
    {
        return invalid(
            "queues",
            format!("{queues} is out of range: 1 to {TAP_QUEUES_MAX}"),
        );
    }
    if matches!(spec.kind, PortKind::Mesh { .. }) {
        return Ok(());
    }
    let ifname = spec.kind.ifname();
    let legal = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    if ifname.is_empty() || ifname.len() > 15 || !ifname.bytes().all(legal) || ifname == "." || ifname == ".."
    {
        return invalid(
            "ifname",
            format!("{ifname:?} is no interface name (1 to 15 bytes, no blank, '/' or ':')"),
        );
    }
    Ok(())
}

/// The speed of a port.
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

/// A bond on its own, as far as it says nothing of its members.
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
    match spec.mac {
        Some(mac) if mac.is_multicast() || mac == MacAddr::default() => {
            invalid("mac", format!("{mac} is no unicast address"))
        }
        _ => Ok(()),
    }
}

/// A fault rule on its own. The rule that it becomes says what is wrong with it.
pub fn fault(spec: &FaultSpec, rule: &Rule) -> Result<(), NicError> {
    name(&spec.name)?;
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

fn mtu(mtu: u16) -> Result<(), NicError> {
    if MTU_RANGE.contains(&mtu) {
        return Ok(());
    }
    invalid(
        "mtu",
        format!("{mtu}; allowed are {} to {}", MTU_RANGE.start(), MTU_RANGE.end()),
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
