//! Command line of `vnicctl adapter`.

use clap::Subcommand;
use prost_types::FieldMask;
use vnic_control::v1;

use super::super::Failure;
use super::super::client::resource;
use super::super::vlan::VlanArgs;
use crate::names::ADAPTERS;
use crate::{access, check, json, stored};

#[derive(Debug, clap::Args)]
#[group(id = "other", required = true, args = ["to", "file"])]
pub struct MigrationPrepare {
    /// Name of the adapter that the guest leaves; with --file, of the one to which it comes
    name: String,
    /// Adapter of the same daemon to which the guest comes
    #[arg(long, value_name = "ADAPTER")]
    to: Option<String>,
    /// File that export-migration of another daemon has printed; "-": standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<String>,
}

impl MigrationPrepare {
    /// The request.
    pub fn request(self) -> Result<v1::PrepareMigrationRequest, Failure> {
        use v1::prepare_migration_request::From;
        let name = resource(ADAPTERS, &self.name);
        let Some(file) = self.file else {
            return Ok(v1::PrepareMigrationRequest {
                name: resource(ADAPTERS, &self.to.unwrap_or_default()),
                from: Some(From::Source(name)),
            });
        };
        let text = match file.as_str() {
            "-" => std::io::read_to_string(std::io::stdin())?,
            path => std::fs::read_to_string(path)?,
        };
        let document = json::read("MigrationDocument", &text).map_err(std::io::Error::other)?;
        Ok(v1::PrepareMigrationRequest {
            name,
            from: Some(From::Document(document)),
        })
    }
}

#[derive(Debug, Subcommand)]
pub enum AdapterVerb {
    /// List all adapters
    #[command(after_help = "Example:\n  vnicctl -o json adapter list | jq -r '.adapters[].macs[0]'")]
    List,
    /// Show one adapter in full
    #[command(after_help = "Example:\n  vnicctl adapter show vf0")]
    Show {
        /// Name of the adapter
        name: String,
    },
    /// Make an adapter; it is stored, and lives until it is removed
    #[command(
        after_help = "Examples:\n  vnicctl adapter add blue\n  vnicctl adapter add db --mac 02:00:5e:00:00:07 \
                      --mtu 9000 --queue-pairs 4\n  vnicctl adapter add lab --trunk 10,20 --native 1 \
                      --no-anti-spoofing"
    )]
    Add(Box<AdapterAdd>),
    /// Change an adapter: VLANs, anti-spoofing, further MAC addresses, P_Keys and socket users at once, the rest by its next restart
    #[command(
        after_help = "Examples:\n  vnicctl adapter set blue --access-vlan 20 --anti-spoofing off\n  vnicctl adapter set blue --mtu \
                      9000 --queue-pairs 4 --restart\n  vnicctl adapter set blue --default allowed_addresses --default vlan\n  \
                      vnicctl adapter set blue --mtu 9000 --if-match 9d3f0a7c11e2b548\n\nThe change is stored with an adapter \
                      that was made at run time. An adapter of the configuration has the configured values when the daemon \
                      starts again."
    )]
    Set(Box<AdapterSet>),
    /// Detach the guest and remove the adapter
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl adapter remove blue"
    )]
    Remove {
        /// Name of the adapter
        name: String,
    },
    /// Let pending settings act and close the connection to the guest's VMM, which reconnects; brings back a failed
    /// adapter
    #[command(after_help = "Example:\n  vnicctl adapter restart vf0")]
    Restart {
        /// Name of the adapter
        name: String,
    },
    /// Prepare a live migration: an adapter gets addresses and settings of another one, and waits for its guest
    #[command(
        after_help = "Examples:\n  vnicctl adapter prepare-migration vf0 --to vf1\n  vnicctl adapter export-migration vf0 | vnicctl \
                      --server https://other:8443 adapter prepare-migration vf0 -f -\n\nThe addresses go with the guest: the adapter has \
                      them on which it runs. `hand-over` ends the migration, `cancel-migration` gives it up."
    )]
    PrepareMigration(MigrationPrepare),
    /// Begin a live migration to another daemon: prints what prepare-migration needs there
    #[command(after_help = "Example:\n  vnicctl adapter export-migration vf0 > vf0.json")]
    ExportMigration {
        /// Name of the adapter that the guest leaves
        name: String,
    },
    /// End a migration after the guest has moved: its addresses are the target's for good, and the source gets others
    #[command(after_help = "Example:\n  vnicctl adapter hand-over vf1")]
    HandOver {
        /// Name of either adapter
        name: String,
    },
    /// Give a migration up: the guest goes on at the source, and the target is as before
    #[command(after_help = "Example:\n  vnicctl adapter cancel-migration vf1")]
    CancelMigration {
        /// Name of either adapter
        name: String,
    },
    /// Addresses of an adapter besides the one that its guest is given
    #[command(subcommand)]
    Mac(super::super::adapter_mac::MacVerb),
    /// Show attach and link state, and then changes as they happen
    #[command(
        after_help = "Examples:\n  vnicctl adapter watch\n  vnicctl -o json adapter watch vf0   (one object a line)"
    )]
    Watch {
        /// Name of the adapter; all when absent
        name: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub struct AdapterAdd {
    /// Name: 1 to 15 of a-z, 0-9, '-' and '_'
    pub name: String,
    #[command(flatten)]
    options: AdapterOptions,
    /// With its own configuration space and control queue: for QEMU's vhost-user-test-device-pci (virtio-id=1) and
    /// User-Mode-Linux, not for -netdev vhost-user
    #[arg(long)]
    control_queue: bool,
    /// Accept frames from any source address
    #[arg(long)]
    no_anti_spoofing: bool,
    /// Without an RDMA function
    #[arg(long, conflicts_with_all = ["rdma_socket", "rdma_memory_mib", "pkeys"])]
    no_rdma: bool,
    /// Programs take no frames that come for the adapter: no flows of raw packet queue pairs
    #[arg(long)]
    no_rdma_flows: bool,
    /// The VMM listens on the sockets and the daemon connects
    #[arg(long, conflicts_with_all = ["socket_owner", "socket_group", "socket_mode"])]
    connect: bool,
}

#[derive(Debug, clap::Args)]
pub struct AdapterSet {
    /// Name of the adapter
    pub name: String,
    #[command(flatten)]
    options: AdapterOptions,
    /// With its own configuration space and control queue, or with those of the VMM (-netdev vhost-user)
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    control_queue: Option<bool>,
    /// Accept frames from the adapter's own addresses only (on), or from any (off)
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    anti_spoofing: Option<bool>,
    /// With an RDMA function, or without
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    rdma: Option<bool>,
    /// Programs may take frames that come for the adapter by flows of raw packet queue pairs, or may not
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    rdma_flows: Option<bool>,
    /// The daemon listens on the sockets, or the VMM does and the daemon connects
    #[arg(long, value_name = "listen|connect", value_parser = role)]
    socket_role: Option<v1::adapter::SocketRole>,
    /// A field that gets its default, such as vlan; again for further ones
    #[arg(long = "default", value_name = "FIELD")]
    defaults: Vec<String>,
    /// Change the adapter only if its settings still have this etag, which `-o json adapter show` prints
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    /// Restart the adapter after that, so that everything acts; the guest's link goes down and comes back
    #[arg(long)]
    pub restart: bool,
}

/// Options of an adapter.
// Wide: a field for each option.
#[derive(Debug, clap::Args)]
struct AdapterOptions {
    /// MAC address; again for further ones. The first is given to the guest [default: derived from the name]
    #[arg(long, value_name = "MAC")]
    mac: Vec<String>,
    /// Bytes of Ethernet payload, 68 to 9216 [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Queue pairs offered to the guest, 1 to 16 [default: 1]
    #[arg(long, value_name = "N")]
    queue_pairs: Option<u32>,
    #[command(flatten)]
    vlan: VlanArgs,
    /// An IP address or prefix that the guest may claim; again for further ones [default: any]
    #[arg(long = "allowed-address", value_name = "PREFIX")]
    allowed_addresses: Vec<String>,
    /// The data core that serves it [default: the one with the fewest adapters]
    #[arg(long, value_name = "CPU")]
    data_core: Option<u32>,
    /// Path of the socket of the Ethernet function [default: NAME-eth.sock in the daemon's socket directory]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Path of the socket of the RDMA function [default: NAME-rdma.sock in the daemon's socket directory]
    #[arg(long, value_name = "PATH")]
    rdma_socket: Option<String>,
    /// Owner of the sockets, by name or number [default: the daemon's user]
    #[arg(long, value_name = "USER", value_parser = access::user_id)]
    socket_owner: Option<u32>,
    /// Group of the sockets, by name or number [default: the daemon's own]
    #[arg(long, value_name = "GROUP", value_parser = access::group_id)]
    socket_group: Option<u32>,
    /// Mode of the sockets, octal [default: 0660]
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<String>,
    /// A user as whom the VMM may run, by name or number; again for further ones [default: who can open the sockets]
    #[arg(long = "socket-user", value_name = "USER", value_parser = access::user_id)]
    socket_users: Vec<u32>,
    /// Memory that the RDMA function may have in the daemon, in MiB, 64 to 65536: the limits of the device follow from it
    /// [default: 2216, enough for those of a ConnectX]
    #[arg(long, value_name = "MIB")]
    rdma_memory_mib: Option<u32>,
    /// P_Keys of its RDMA function, by index, 1 to 16: bit 15 says that it is a full member of the partition [default: 0xffff]
    #[arg(long, value_name = "P_KEY", value_delimiter = ',', value_parser = check::pkey)]
    pkeys: Vec<u16>,
    /// Memory regions that its VMMs may have, on both sockets together, 1 to 1534 [default: 1534, as many as any VMM can use]
    #[arg(long, value_name = "N")]
    vmm_regions: Option<u32>,
    /// Descriptors that the daemon holds for its VMMs, on both sockets together, 8 to 80 [default: 80, as many as any VMM can
    /// use]
    #[arg(long, value_name = "N")]
    vmm_descriptors: Option<u32>,
    /// Patterns of frames that wake as magic packets do, up to 8: [OFFSET+]BYTE:BYTE, where a byte is two hexadecimal digits or -- for
    /// any, as of iw wowlan: 12+08:06 is ARP. Offsets count without a VLAN tag [default: none]
    #[arg(long = "wake-pattern", value_name = "PATTERN", value_delimiter = ',')]
    wake_patterns: Vec<String>,
    /// What a magic packet does while the guest does not run: qmp:PATH (QEMU's monitor: system_wakeup or cont), unix:PATH (a socket
    /// gets a line of JSON; a systemd socket unit starts its service so) or http://HOST:PORT/PATH (JSON is posted)
    /// [default: it is only reported]
    #[arg(long, value_name = "ACTION")]
    wake: Option<String>,
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off is allowed".to_owned()),
    }
}

fn role(text: &str) -> Result<v1::adapter::SocketRole, String> {
    match text {
        "listen" => Ok(v1::adapter::SocketRole::Listen),
        "connect" => Ok(v1::adapter::SocketRole::Connect),
        _ => Err("listen or connect is allowed".to_owned()),
    }
}

impl AdapterOptions {
    fn message(&self) -> Result<v1::Adapter, Failure> {
        Ok(v1::Adapter {
            macs: self.mac.clone(),
            mtu: self.mtu.unwrap_or(0),
            queue_pairs: self.queue_pairs.unwrap_or(0),
            vlan: self.vlan.message()?,
            allowed_addresses: self.allowed_addresses.clone(),
            data_core: self.data_core,
            socket_owner: self.socket_owner,
            socket_group: self.socket_group,
            socket_mode: self.socket_mode.clone().unwrap_or_default(),
            socket_users: self.socket_users.clone(),
            rdma_memory_mib: self.rdma_memory_mib.unwrap_or(0),
            pkeys: self.pkeys.iter().map(|key| u32::from(*key)).collect(),
            vmm_regions: self.vmm_regions.unwrap_or(0),
            vmm_descriptors: self.vmm_descriptors.unwrap_or(0),
            wake: self.wake.clone().unwrap_or_default(),
            wake_patterns: self.wake_patterns.clone(),
            eth_socket: self.socket.clone().unwrap_or_default(),
            rdma_socket: self.rdma_socket.clone().unwrap_or_default(),
            ..v1::Adapter::default()
        })
    }
}

impl AdapterAdd {
    /// The request.
    pub fn request(&self) -> Result<v1::CreateAdapterRequest, Failure> {
        let role = match self.connect {
            true => v1::adapter::SocketRole::Connect,
            false => v1::adapter::SocketRole::Listen,
        };
        Ok(v1::CreateAdapterRequest {
            adapter_id: self.name.clone(),
            adapter: Some(v1::Adapter {
                control_queue: Some(self.control_queue),
                anti_spoofing: Some(!self.no_anti_spoofing),
                rdma_enabled: Some(!self.no_rdma),
                rdma_flows: Some(!self.no_rdma_flows),
                socket_role: role.into(),
                ..self.options.message()?
            }),
        })
    }
}

impl AdapterSet {
    /// The request: the fields of the options, and those that get their defaults.
    pub fn request(&self) -> Result<v1::UpdateAdapterRequest, Failure> {
        let adapter = v1::Adapter {
            control_queue: self.control_queue,
            anti_spoofing: self.anti_spoofing,
            rdma_enabled: self.rdma,
            rdma_flows: self.rdma_flows,
            socket_role: self.socket_role.unwrap_or_default().into(),
            ..self.options.message()?
        };
        let mut paths = stored::adapters::set_in(&adapter);
        if let Some(both) = self.defaults.iter().find(|field| paths.contains(field)) {
            let problem = format!("--default {both}: another option sets {both}");
            return Err(Failure::Usage(problem));
        }
        paths.extend_from_slice(&self.defaults);
        if paths.is_empty() {
            let problem = "what shall change? See vnicctl adapter set --help";
            return Err(Failure::Usage(problem.to_owned()));
        }
        Ok(v1::UpdateAdapterRequest {
            adapter: Some(v1::Adapter {
                name: resource(ADAPTERS, &self.name),
                etag: self.if_match.clone().unwrap_or_default(),
                ..adapter
            }),
            update_mask: Some(FieldMask { paths }),
        })
    }
}
