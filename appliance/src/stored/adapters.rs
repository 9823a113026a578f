//! Adapters as `vnic.v1.Adapter`: the values of a request, without those that the daemon fills in.

use std::path::PathBuf;

use prost::Message as _;
use vnic_backend::{
    AdapterSpec, MacAddr, PkeyTable, Prefix, SocketAccess, SocketRole, VlanMode, WakeAction, WakePattern,
};
use vnic_control::v1;

use super::values;
use crate::check::{self, Violations};
use crate::json;

/// Values of a request for an adapter. A value that is `None` is chosen when the adapter is made, by the daemon's directories and cores.
// Wide: what a request for an adapter can say, a field each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewAdapter {
    /// Addresses of the adapter; empty: one is derived from its name.
    pub macs: Vec<MacAddr>,
    /// MTU.
    pub mtu: Option<u16>,
    /// Queue pairs that are offered to the guest.
    pub queue_pairs: Option<u16>,
    /// VLAN membership.
    pub vlan: VlanMode,
    /// Whether the Ethernet function has its own configuration space and control queue.
    pub control_queue: Option<bool>,
    /// Whether only the adapter's addresses are accepted as source.
    pub anti_spoofing: Option<bool>,
    /// IP addresses that the guest may use; empty: any.
    pub allowed_addresses: Vec<Prefix>,
    /// CPU of the adapter's data core.
    pub data_core: Option<usize>,
    /// Socket of the Ethernet function.
    pub eth_socket: Option<PathBuf>,
    /// Whether the adapter has an RDMA function.
    pub rdma_enabled: Option<bool>,
    /// Socket of the RDMA function.
    pub rdma_socket: Option<PathBuf>,
    /// Whether the daemon listens on the sockets or connects to them.
    pub socket_role: Option<SocketRole>,
    /// Owner, group and mode of the sockets, and users that may use them.
    pub socket_access: SocketAccess,
    /// Memory that the RDMA function may have in the daemon, in MiB.
    pub rdma_memory_mib: Option<u32>,
    /// Whether programs may take frames by flows.
    pub rdma_flows: Option<bool>,
    /// P_Keys of the port of the RDMA function.
    pub pkeys: PkeyTable,
    /// Memory regions that a VMM may have.
    pub vmm_regions: Option<u32>,
    /// File descriptors that a VMM may have.
    pub vmm_descriptors: Option<u32>,
    /// What a magic packet does.
    pub wake: Option<WakeAction>,
    /// Patterns of frames that do it, too.
    pub wake_patterns: Vec<WakePattern>,
}

impl From<&AdapterSpec> for NewAdapter {
    /// A request for an adapter that is there: nothing is chosen by the daemon.
    fn from(spec: &AdapterSpec) -> NewAdapter {
        NewAdapter {
            macs: spec.macs.clone(),
            mtu: Some(spec.mtu),
            queue_pairs: Some(spec.queue_pairs),
            vlan: spec.vlan.clone(),
            control_queue: Some(spec.control_queue),
            anti_spoofing: Some(spec.anti_spoofing),
            allowed_addresses: spec.allowed_addresses.clone(),
            data_core: spec.data_core,
            eth_socket: Some(spec.eth_socket.clone()),
            rdma_enabled: Some(spec.rdma_socket.is_some()),
            rdma_socket: spec.rdma_socket.clone(),
            socket_role: Some(spec.socket_role),
            socket_access: spec.socket_access.clone(),
            rdma_memory_mib: Some(spec.rdma_memory_mib),
            rdma_flows: Some(spec.rdma_flows),
            pkeys: spec.pkeys,
            vmm_regions: Some(spec.vmm.regions),
            vmm_descriptors: Some(spec.vmm.descriptors),
            wake: spec.wake.clone(),
            wake_patterns: spec.wake_patterns.clone(),
        }
    }
}

macro_rules! fields {
    ($($name:literal => $($field:ident).+;)*) => {
        /// Fields of `vnic.v1.Adapter` that a request can set.
        pub const FIELDS: &[&str] = &[$($name),*];

        impl NewAdapter {
            /// Takes a field of [`FIELDS`] over from another request.
            pub fn take(&mut self, field: &str, from: &NewAdapter) {
                match field {
                    $($name => self.$($field).+.clone_from(&from.$($field).+),)*
                    _ => {}
                }
            }
        }
    };
}

fields! {
    "macs" => macs;
    "mtu" => mtu;
    "queue_pairs" => queue_pairs;
    "vlan" => vlan;
    "control_queue" => control_queue;
    "anti_spoofing" => anti_spoofing;
    "allowed_addresses" => allowed_addresses;
    "data_core" => data_core;
    "eth_socket" => eth_socket;
    "rdma_enabled" => rdma_enabled;
    "rdma_socket" => rdma_socket;
    "socket_role" => socket_role;
    "socket_owner" => socket_access.owner;
    "socket_group" => socket_access.group;
    "socket_mode" => socket_access.mode;
    "socket_users" => socket_access.users;
    "rdma_memory_mib" => rdma_memory_mib;
    "rdma_flows" => rdma_flows;
    "pkeys" => pkeys;
    "vmm_regions" => vmm_regions;
    "vmm_descriptors" => vmm_descriptors;
    "wake" => wake;
    "wake_patterns" => wake_patterns;
}

impl NewAdapter {
    /// Fields that differ from another request's.
    pub fn differs(&self, other: &NewAdapter) -> Vec<&'static str> {
        let differs = |field: &&&str| {
            let mut changed = other.clone();
            changed.take(field, self);
            changed != *other
        };
        FIELDS.iter().filter(differs).copied().collect()
    }
}

/// Fields that are set in a message.
pub fn set_in(message: &v1::Adapter) -> Vec<String> {
    let values = json::of("Adapter", message).unwrap_or_default();
    let nothing = json::of("Adapter", &v1::Adapter::default()).unwrap_or_default();
    let set = FIELDS.iter().filter(|field| values[**field] != nothing[**field]);
    set.map(ToString::to_string).collect()
}

/// Checks a number of a message; 0 means that it is absent.
fn number<T>(
    value: u32,
    check: impl FnOnce(i64) -> check::Checked<T>,
    wrong: &mut Violations,
    field: &str,
) -> Option<T> {
    match value {
        0 => None,
        n => wrong.check(format!("adapter.{field}"), check(i64::from(n))),
    }
}

/// Reads a message, for a daemon with these data cores; a wrong value is noted and left out.
pub fn read(adapter: &v1::Adapter, data_cores: &[usize], wrong: &mut Violations) -> NewAdapter {
    if adapter.macs.len() > check::MACS_MAX {
        wrong.add(
            "adapter.macs",
            format!("an adapter has at most {} addresses", check::MACS_MAX),
        );
    }
    let mut macs = Vec::new();
    for (i, text) in adapter.macs.iter().enumerate() {
        let field = format!("adapter.macs[{i}]");
        match wrong.check(field.clone(), check::mac(text)) {
            Some(mac) if macs.contains(&mac) => wrong.add(field, format!("{mac} is named twice")),
            Some(mac) => macs.push(mac),
            None => {}
        }
    }
    let mtu = number(adapter.mtu, check::mtu, wrong, "mtu");
    let rdma_memory_mib = number(
        adapter.rdma_memory_mib,
        check::rdma_memory,
        wrong,
        "rdma_memory_mib",
    );
    let vmm_regions = number(adapter.vmm_regions, check::vmm_regions, wrong, "vmm_regions");
    let vmm_descriptors = number(
        adapter.vmm_descriptors,
        check::vmm_descriptors,
        wrong,
        "vmm_descriptors",
    );
    let queue_pairs = number(adapter.queue_pairs, check::queue_pairs, wrong, "queue_pairs");
    let vlan = values::vlan_mode(adapter.vlan.as_ref(), "adapter.vlan", wrong);
    wrong.check(
        "adapter.allowed_addresses",
        check::allowed_addresses(adapter.allowed_addresses.len()),
    );
    let mut allowed_addresses = Vec::new();
    for (i, text) in adapter.allowed_addresses.iter().enumerate() {
        let field = format!("adapter.allowed_addresses[{i}]");
        allowed_addresses.extend(wrong.check(field, check::allowed_address(text)));
    }
    let data_core = adapter.data_core.and_then(|core| {
        let checked = check::data_core(i64::from(core), data_cores);
        wrong.check("adapter.data_core", checked)
    });
    let socket_role = match v1::adapter::SocketRole::try_from(adapter.socket_role) {
        Ok(v1::adapter::SocketRole::Unspecified) => None,
        Ok(v1::adapter::SocketRole::Listen) => Some(SocketRole::Listen),
        Ok(v1::adapter::SocketRole::Connect) => Some(SocketRole::Connect),
        Err(_) => {
            wrong.add(
                "adapter.socket_role",
                format!(
                    "{} is unknown: SOCKET_ROLE_LISTEN or SOCKET_ROLE_CONNECT",
                    adapter.socket_role
                ),
            );
            None
        }
    };
    let mut account = |field: &str, number: Option<u32>| {
        number.and_then(|n| wrong.check(format!("adapter.{field}"), check::account(n)))
    };
    let owner = account("socket_owner", adapter.socket_owner);
    let group = account("socket_group", adapter.socket_group);
    let mode = match adapter.socket_mode.as_str() {
        "" => None,
        text => wrong.check("adapter.socket_mode", check::socket_mode(text)),
    };
    let wake = match adapter.wake.as_str() {
        "" => None,
        text => wrong.check("adapter.wake", check::wake(text)),
    };
    let patterns = check::wake_patterns(adapter.wake_patterns.iter().map(String::as_str));
    let wake_patterns = wrong.check("adapter.wake_patterns", patterns).unwrap_or_default();
    // What has more than 16 bits is none, as 0 is none.
    let pkeys = adapter.pkeys.iter().map(|key| u16::try_from(*key).unwrap_or(0));
    let pkeys = wrong.check("adapter.pkeys", check::pkeys(&pkeys.collect::<Vec<_>>()));
    let mut socket = |field: &str, path: &str| match path {
        "" => None,
        path => wrong.check(format!("adapter.{field}"), check::socket_path(path.as_ref())),
    };
    NewAdapter {
        macs,
        mtu,
        queue_pairs,
        vlan: vlan.unwrap_or_default(),
        control_queue: adapter.control_queue,
        anti_spoofing: adapter.anti_spoofing,
        allowed_addresses,
        data_core,
        eth_socket: socket("eth_socket", &adapter.eth_socket),
        rdma_enabled: adapter.rdma_enabled,
        rdma_socket: socket("rdma_socket", &adapter.rdma_socket),
        socket_role,
        socket_access: SocketAccess {
            owner,
            group,
            mode: mode.unwrap_or(SocketAccess::default().mode),
            users: adapter.socket_users.clone(),
        },
        rdma_memory_mib,
        rdma_flows: adapter.rdma_flows,
        pkeys: pkeys.unwrap_or_default(),
        vmm_regions,
        vmm_descriptors,
        wake,
        wake_patterns,
    }
}

/// The message of a request.
pub fn message(new: &NewAdapter) -> v1::Adapter {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string()).unwrap_or_default();
    let role = new.socket_role.map(|role| match role {
        SocketRole::Listen => v1::adapter::SocketRole::Listen,
        SocketRole::Connect => v1::adapter::SocketRole::Connect,
    });
    v1::Adapter {
        macs: new.macs.iter().map(ToString::to_string).collect(),
        mtu: new.mtu.map_or(0, u32::from),
        queue_pairs: new.queue_pairs.map_or(0, u32::from),
        vlan: (new.vlan != VlanMode::default()).then(|| values::vlan(&new.vlan)),
        control_queue: new.control_queue,
        anti_spoofing: new.anti_spoofing,
        allowed_addresses: new.allowed_addresses.iter().map(ToString::to_string).collect(),
        data_core: new.data_core.and_then(|core| u32::try_from(core).ok()),
        socket_role: role.unwrap_or_default().into(),
        socket_owner: new.socket_access.owner,
        socket_group: new.socket_access.group,
        socket_mode: values::mode(new.socket_access.mode),
        socket_users: new.socket_access.users.clone(),
        rdma_memory_mib: new.rdma_memory_mib.unwrap_or_default(),
        rdma_flows: new.rdma_flows,
        pkeys: new.pkeys.as_slice().iter().map(|key| u32::from(*key)).collect(),
        vmm_regions: new.vmm_regions.unwrap_or_default(),
        vmm_descriptors: new.vmm_descriptors.unwrap_or_default(),
        wake: new.wake.as_ref().map_or_else(String::new, ToString::to_string),
        wake_patterns: new.wake_patterns.iter().map(ToString::to_string).collect(),
        eth_socket: path(&new.eth_socket),
        rdma_enabled: new.rdma_enabled,
        rdma_socket: path(&new.rdma_socket),
        ..v1::Adapter::default()
    }
}

/// Encodes a request for the store.
pub fn encode(new: &NewAdapter) -> Vec<u8> {
    message(new).encode_to_vec()
}

/// Decodes a row of the store, for a daemon with these data cores.
pub fn decode(bytes: &[u8], data_cores: &[usize]) -> Result<NewAdapter, String> {
    let message = v1::Adapter::decode(bytes).map_err(|e| format!("what is stored is unreadable: {e}"))?;
    let mut wrong = Violations::default();
    let new = read(&message, data_cores, &mut wrong);
    wrong.finish(Some(new)).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of a daemon that stored the message as the client had sent it.
    #[test]
    fn what_an_older_daemon_stored_is_read() {
        let sent = v1::Adapter {
            macs: vec!["02-00-00-00-00-0A".to_owned()],
            mtu: 9000,
            vlan: Some(v1::Vlan {
                mode: Some(v1::vlan::Mode::Access(v1::AccessVlan { vlan: 7 })),
            }),
            anti_spoofing: Some(false),
            allowed_addresses: vec!["10.0.0.0/8".to_owned()],
            data_core: Some(1),
            socket_role: v1::adapter::SocketRole::Connect.into(),
            socket_users: vec![64055],
            rdma_enabled: Some(true),
            rdma_socket: "/run/x.sock".to_owned(),
            vmm_regions: 16,
            ..v1::Adapter::default()
        };
        let read = decode(&sent.encode_to_vec(), &[0, 1]).expect("readable");
        assert_eq!(read.macs, ["02:00:00:00:00:0a".parse().expect("an address")]);
        assert_eq!(
            (read.mtu, read.queue_pairs, read.data_core),
            (Some(9000), None, Some(1))
        );
        assert_eq!(read.vlan, VlanMode::Access(7));
        assert_eq!((read.anti_spoofing, read.rdma_enabled), (Some(false), Some(true)));
        assert_eq!(read.socket_role, Some(SocketRole::Connect));
        assert_eq!(read.rdma_socket, Some(PathBuf::from("/run/x.sock")));
        assert_eq!((read.vmm_regions, read.vmm_descriptors), (Some(16), None));
        // This daemon's encoding has the same values.
        assert_eq!(decode(&encode(&read), &[0, 1]), Ok(read));
        assert_eq!(
            decode(&encode(&NewAdapter::default()), &[]),
            Ok(NewAdapter::default())
        );
        assert!(
            decode(&[0xff], &[])
                .expect_err("no message")
                .contains("unreadable")
        );
    }
}
