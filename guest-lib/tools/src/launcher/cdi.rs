//! Containers: a file from which engines learn what a container needs for an adapter (CNCF, Container Device Interface 0.5.0), and
//! the hook by which a container that is being made gets the devices' files (Open Containers runtime specification,
//! `createContainer`).

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use vnic_verbs::sysfs::{NAMES_VARIABLE, SYSFS_VARIABLE};
use vnic_verbs::{DeviceAddress, SOCKET_VARIABLE, sockets_in};

use crate::environment::UCX_REACHES;
use crate::library::Libraries;
use crate::{Refusal, files, place, view};

/// Vendor and class of the devices.
const KIND: &str = "vnic/rdma";
/// Where sockets, library and files are in a container.
const SOCKETS: &str = "/run/vnic";
const LIBRARY: &str = "/run/vnic/libvnic_ibverbs.so";
const FILES: &str = "/run/vnic/files";

/// What the file describes.
#[derive(Debug, Args)]
pub struct CdiOptions {
    /// An adapter, by its name; several with commas [default: those that have a socket now]
    #[arg(long, visible_alias = "adapters", value_name = "NAME", value_delimiter = ',')]
    adapter: Vec<String>,
    /// Where the sockets of adapters are [default: as for run]
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// libvnic_ibverbs.so [default: as for run]
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
}

/// The file, in JSON: a device for each adapter, and one with all of them.
pub fn describe(options: &CdiOptions) -> Result<String, Refusal> {
    let dir = match &options.socket_dir {
        Some(dir) => std::path::absolute(dir).map_err(|e| Refusal::new(format!("{}: {e}", dir.display())))?,
        None => place::socket_dir()?,
    };
    let sockets = match &options.adapter[..] {
        [] => sockets_in(&dir),
        named => named
            .iter()
            .map(|name| dir.join(format!("{name}-rdma.sock")))
            .collect(),
    };
    if sockets.is_empty() {
        return Err(Refusal::new(format!(
            "no adapter has a socket in {}: is vnicd running? --socket-dir says where, --adapter which",
            dir.display()
        )));
    }
    let library = Libraries::from_surroundings().find(options.lib.as_deref())?;
    let own = std::env::current_exe().map_err(|e| Refusal::new(format!("the path of this program: {e}")))?;
    let text = serde_json::to_string_pretty(&specification(&sockets, &library, &own));
    text.map(|text| text + "\n")
        .map_err(|e| Refusal::new(e.to_string()))
}

fn specification(sockets: &[PathBuf], library: &Path, own: &Path) -> Value {
    let mount = |from: &Path, to: String| json!({"hostPath": from, "containerPath": to, "options": ["bind", "nosuid", "nodev"]});
    let mounts: Vec<(String, Value)> = sockets
        .iter()
        .filter_map(|socket| {
            let name = socket.file_name()?.to_str()?;
            let adapter = name.strip_suffix("-rdma.sock")?;
            Some((adapter.to_owned(), mount(socket, format!("{SOCKETS}/{name}"))))
        })
        .collect();
    let all: Vec<&Value> = mounts.iter().map(|(_, mount)| mount).collect();
    let mut devices: Vec<Value> = mounts
        .iter()
        .map(|(adapter, mount)| json!({"name": adapter, "containerEdits": {"mounts": [mount]}}))
        .collect();
    devices.push(json!({"name": "all", "containerEdits": {"mounts": all}}));
    json!({
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": devices,
        "containerEdits": {
            "env": [
                format!("{SOCKET_VARIABLE}={SOCKETS}"),
                format!("{SYSFS_VARIABLE}={FILES}"),
                format!("{UCX_REACHES}=all"),
                format!("LD_PRELOAD={LIBRARY}"),
            ],
            "mounts": [
                mount(library, LIBRARY.into()),
                {"hostPath": "tmpfs", "containerPath": FILES, "type": "tmpfs", "options": ["nosuid", "nodev", "mode=0755"]},
            ],
            "hooks": [{"hookName": "createContainer", "path": own, "args": ["vnic-verbs", "cdi-hook"]}],
        },
    })
}

/// Shows the files of a container's devices in it. `state`: what an engine tells a hook of the container.
pub fn hook(state: impl Read) -> Result<(), Refusal> {
    let trouble = |what: &str, e: &dyn std::fmt::Display| Refusal::new(format!("{what}: {e}"));
    let state: Value =
        serde_json::from_reader(state).map_err(|e| trouble("the state of the container", &e))?;
    let Some(bundle) = state.get("bundle").and_then(Value::as_str).map(Path::new) else {
        return Err(Refusal::new("the state of the container names no bundle"));
    };
    let file = bundle.join("config.json");
    let config = std::fs::read(&file).map_err(|e| trouble(&file.display().to_string(), &e))?;
    let config: Value =
        serde_json::from_slice(&config).map_err(|e| trouble(&file.display().to_string(), &e))?;
    let Some(root) = config.pointer("/root/path").and_then(Value::as_str) else {
        return Err(Refusal::new(format!("{} names no root", file.display())));
    };
    let root = bundle.join(root);
    let names = config
        .pointer("/process/env")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let names = names
        .filter_map(|line| line.as_str()?.strip_prefix(NAMES_VARIABLE)?.strip_prefix('='))
        .flat_map(|names| names.split(',').map(str::to_owned))
        .collect::<Vec<_>>();
    let devices = sockets_in(&inside(&root, SOCKETS))
        .into_iter()
        .map(DeviceAddress::Socket);
    let files = inside(&root, FILES);
    for made in files::write(&files, &devices.collect::<Vec<_>>(), &names) {
        made?;
    }
    view::show(&files, &root).map_err(|e| trouble("the devices' files cannot be shown in the container", &e))
}

/// A path of the container, seen from outside.
fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_adapter_is_a_device_and_so_are_all() {
        let sockets = ["/run/vnic/vf0-rdma.sock".into(), "/run/vnic/vf1-rdma.sock".into()];
        let made = specification(&sockets, Path::new("/lib/x.so"), Path::new("/bin/vnic-verbs"));
        let devices = made["devices"].as_array().expect("devices");
        let names: Vec<&Value> = devices.iter().map(|d| &d["name"]).collect();
        assert_eq!(names, ["vf0", "vf1", "all"]);
        assert_eq!(
            devices[2]["containerEdits"]["mounts"]
                .as_array()
                .expect("mounts")
                .len(),
            2
        );
        assert_eq!(made["containerEdits"]["hooks"][0]["path"], "/bin/vnic-verbs");
    }

    #[test]
    fn a_state_without_a_bundle_is_refused() {
        let refused = |state: &str| hook(state.as_bytes()).expect_err("no bundle").to_string();
        assert!(refused("{}").contains("no bundle"));
        assert!(refused("[").contains("state of the container"));
        assert!(refused(r#"{"bundle": "/none"}"#).contains("/none/config.json"));
    }
}
