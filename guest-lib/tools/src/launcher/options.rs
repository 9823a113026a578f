//! Options that several commands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Which devices. Without any of these: VNIC_SOCKET, if it is set, or else those on PCI.
#[derive(Debug, Clone, Default, Args)]
pub struct DeviceOptions {
    /// The NAME-rdma.sock of an adapter of this host; may be repeated
    #[arg(long, value_name = "SOCKET", conflicts_with = "pci")]
    pub socket: Vec<PathBuf>,
    /// An adapter of this host, by its name; several with commas
    #[arg(
        long,
        visible_alias = "adapters",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with_all = ["pci", "socket"]
    )]
    pub adapter: Vec<String>,
    /// Where the sockets of adapters are [default: as for vnicd: $RUNTIME_DIRECTORY; /run/vnic as root; else
    /// $XDG_RUNTIME_DIR/vnic]
    #[arg(long, value_name = "DIR", requires = "adapter")]
    pub socket_dir: Option<PathBuf>,
    /// In a virtual machine: the PCI address of an RDMA function; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub pci: Vec<String>,
    /// Name of a device, in their order, as mlx5_0 or mlx5_bond_0; may be repeated; those behind the last are counted on [default: vnic0, vnic1, …]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = device_name)]
    pub name: Vec<String>,
    /// Wait so many seconds for the sockets, until the daemon listens there
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub wait: u32,
}

impl DeviceOptions {
    /// How long a socket may take to appear.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.wait.into())
    }
}

/// A name that the kernel would take.
fn device_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=63).contains(&text.len()) && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("names have letters, digits, - and _, 63 at most".into())
    }
}

/// Which library, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct LibraryOptions {
    /// Also be found under the name libibverbs.so.1, for programs that load it by themselves (NCCL, libfabric, Rust's sideway), or
    /// refuse; `run` does so by itself where it can, on machines without RDMA devices of their own
    #[arg(long)]
    pub drop_in: bool,
    /// libvnic_ibverbs.so [default: $VNIC_IBVERBS_LIBRARY; beside this program; in ../lib/vnic and ../lib of it;
    /// /usr/lib/vnic]
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
    /// Tell on standard error why calls fail
    #[arg(long)]
    pub debug: bool,
}
