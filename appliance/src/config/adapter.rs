//! `[[adapter]]` tables.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::{AdapterSpec, MacAddr, RDMA_MEMORY_DEFAULT, SocketAccess, SocketRole, VmmLimits};

use super::command_line;
use super::diagnostics::Sink;
use super::taken::Taken;
use super::vlan::{VlanTable, vlan};
use crate::access::{group_id, user_id};
use crate::check;

/// `[[adapter]]`.
// Wide: the keys of the table in the file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdapterTable {
    name: Option<Spanned<String>>,
    mac: Option<Spanned<String>>,
    macs: Vec<Spanned<String>>,
    mtu: Option<Spanned<i64>>,
    queue_pairs: Option<Spanned<i64>>,
    vlan: Option<Spanned<VlanTable>>,
    control_queue: Option<bool>,
    anti_spoofing: Option<bool>,
    allowed_addresses: Option<Spanned<Vec<Spanned<String>>>>,
    data_core: Option<Spanned<i64>>,
    socket: Option<Spanned<String>>,
    socket_role: Option<Spanned<String>>,
    socket_owner: Option<Spanned<String>>,
    socket_group: Option<Spanned<String>>,
    socket_mode: Option<Spanned<String>>,
    socket_users: Vec<Spanned<String>>,
    rdma: Option<bool>,
    rdma_socket: Option<Spanned<String>>,
    rdma_memory_mib: Option<Spanned<i64>>,
    rdma_flows: Option<bool>,
    pkeys: Option<Spanned<Vec<Spanned<String>>>>,
    vmm_regions: Option<Spanned<i64>>,
    vmm_descriptors: Option<Spanned<i64>>,
    wake: Option<Spanned<String>>,
    wake_patterns: Option<Spanned<Vec<Spanned<String>>>>,
}

pub(super) fn adapter(
    sink: &Sink<'_>,
    table: Spanned<AdapterTable>,
    socket_dir: &Path,
    cores: &[usize],
    taken: &mut Taken,
) -> AdapterSpec {
    let (at, table) = (table.span(), table.into_inner());
    let name = taken.name(sink, &at, table.name);
    let shown = name.clone().unwrap_or_else(|| "without a name".to_owned());
    let default = |of: fn(&Path, &str) -> PathBuf| name.as_deref().map(|name| of(socket_dir, name));
    let mut socket = |key, text, default| socket(sink, &at, (key, text), default, &shown, taken);
    let eth_socket = socket("socket", table.socket, default(command_line::eth_socket));
    let rdma_socket = match table.rdma {
        Some(false) if table.rdma_socket.is_some() => {
            let problem = "an adapter with rdma = false has no such socket: leave out one of the two";
            sink.wrong_key(&at, "rdma_socket", problem);
            None
        }
        Some(false) => None,
        _ => socket(
            "rdma_socket",
            table.rdma_socket,
            default(command_line::rdma_socket),
        ),
    };
    let allowed = sink.check(table.allowed_addresses, |list| {
        check::allowed_addresses(list.len()).map(|()| list)
    });
    let pkeys = sink.check(table.pkeys, |list| {
        let keys = list.iter().map(|text| check::pkey(text.as_ref()));
        check::pkeys(&keys.collect::<Result<Vec<_>, _>>()?)
    });
    let wake_patterns = sink.check(table.wake_patterns, |list| {
        check::wake_patterns(list.iter().map(|text| text.as_ref().as_str()))
    });
    let socket_role = sink.text(table.socket_role, |text| match text {
        "listen" => Ok(SocketRole::Listen),
        "connect" => Ok(SocketRole::Connect),
        _ => Err(format!("{text:?}: \"listen\" or \"connect\" is allowed")),
    });
    let vmm = VmmLimits::default();
    AdapterSpec {
        macs: macs(sink, table.mac.into_iter().chain(table.macs), &shown, taken),
        name: name.unwrap_or_default(),
        mtu: sink.check(table.mtu, check::mtu).unwrap_or(check::MTU_DEFAULT),
        queue_pairs: sink
            .check(table.queue_pairs, check::queue_pairs)
            .unwrap_or(check::QUEUE_PAIRS_DEFAULT),
        vlan: vlan(sink, table.vlan),
        control_queue: table.control_queue.unwrap_or(false),
        anti_spoofing: table.anti_spoofing.unwrap_or(true),
        allowed_addresses: sink.texts(allowed.unwrap_or_default(), check::allowed_address),
        data_core: sink.check(table.data_core, |v| check::data_core(v, cores)),
        eth_socket: eth_socket.unwrap_or_default(),
        rdma_socket,
        socket_role: socket_role.unwrap_or(SocketRole::Listen),
        socket_access: SocketAccess {
            owner: sink.text(table.socket_owner, user_id),
            group: sink.text(table.socket_group, group_id),
            mode: sink
                .text(table.socket_mode, check::socket_mode)
                .unwrap_or(SocketAccess::default().mode),
            users: sink.texts(table.socket_users, user_id),
        },
        rdma_memory_mib: sink
            .check(table.rdma_memory_mib, check::rdma_memory)
            .unwrap_or(RDMA_MEMORY_DEFAULT),
        rdma_flows: table.rdma_flows.unwrap_or(true),
        pkeys: pkeys.unwrap_or_default(),
        vmm: VmmLimits {
            regions: sink
                .check(table.vmm_regions, check::vmm_regions)
                .unwrap_or(vmm.regions),
            descriptors: sink
                .check(table.vmm_descriptors, check::vmm_descriptors)
                .unwrap_or(vmm.descriptors),
        },
        wake: sink.text(table.wake, check::wake),
        wake_patterns: wake_patterns.unwrap_or_default(),
        moving: None,
    }
}

fn macs(
    sink: &Sink<'_>,
    texts: impl Iterator<Item = Spanned<String>>,
    owner: &str,
    taken: &mut Taken,
) -> Vec<MacAddr> {
    let mut macs = Vec::new();
    for (i, text) in texts.enumerate() {
        let span = text.span();
        if i == check::MACS_MAX {
            sink.wrong(
                &span,
                format!("an adapter has at most {} addresses", check::MACS_MAX),
            );
        }
        let Some(mac) = sink.text(Some(text), check::mac) else {
            continue;
        };
        if let Some((other, line)) = taken.macs.get(&mac) {
            let problem = format!(
                "{mac} belongs to adapter {other} (line {line}); each address belongs to one adapter"
            );
            sink.wrong(&span, problem);
            continue;
        }
        taken.macs.insert(mac, (owner.to_owned(), sink.line(&span)));
        macs.push(mac);
    }
    macs
}

/// Path of an adapter's socket; `default` if the key is absent.
fn socket(
    sink: &Sink<'_>,
    at: &Range<usize>,
    (key, text): (&str, Option<Spanned<String>>),
    default: Option<PathBuf>,
    adapter: &str,
    taken: &mut Taken,
) -> Option<PathBuf> {
    let path = text.map_or(default, |text| Some(text.into_inner().into()))?;
    // A socket directory that could not be read was reported already.
    let checked = match path.parent() == Some(Path::new("")) && sink.place(at, key).is_none() {
        true => Ok(path),
        false => check::socket_path(&path),
    };
    match checked {
        Err(problem) => sink.wrong_key(at, key, problem),
        Ok(path) => match taken.sockets.get(&path) {
            Some(other) => {
                sink.wrong_key(
                    at,
                    key,
                    format!("{} is the socket of adapter {other}", path.display()),
                );
            }
            None => {
                taken.sockets.insert(path.clone(), adapter.to_owned());
                return Some(path);
            }
        },
    }
    None
}
