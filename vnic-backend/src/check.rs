//! Is what the control plane asks for possible? Every refusal names the field and what is allowed.

use vnic_fabric::fault::{Rule, RuleError};
use vnic_wire::MacAddr;

use crate::nic::socket_path_fits;
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

fn socket(field: &'static str, path: &std::path::Path) -> Result<(), NicError> {
    if socket_path_fits(path) {
        return Ok(());
    }
    invalid(field, format!("{} is longer than 107 bytes", path.display()))
}

/// No two adapters share an address.
pub fn unique_macs<'a>(
    spec: &AdapterSpec,
    mut others: impl Iterator<Item = &'a AdapterSpec>,
) -> Result<(), NicError> {
    match others.find_map(|o| Some((o, spec.macs.iter().find(|m| o.macs.contains(m))?))) {
        Some((other, mac)) => invalid("macs", format!("{mac} belongs to adapter {}", other.name)),
        None => Ok(()),
    }
}

/// A port on its own.
pub fn port(spec: &PortSpec, nic: &NicConfig) -> Result<(), NicError> {
    name(&spec.name)?;
    mtu(spec.mtu)?;
    vlan(&spec.vlan)?;
    core(spec.data_core, nic)?;
    let PortKind::Tap { ifname } = &spec.kind;
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
