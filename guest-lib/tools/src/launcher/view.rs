//! A program's own view of `/sys` and `/dev`, with the files of our devices in it: a mount namespace, in which the directories that
//! lead there are covered by such with the same entries and ours. It ends with the program, and nobody else sees it.

#![expect(unsafe_code, reason = "this process takes a namespace of its own")]

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use vnic_verbs::sysfs;

use crate::Refusal;
use crate::place;

/// Takes a mount namespace of its own for this process, which has one thread, with an empty directory for files of so many devices.
///
/// Without the right to do so (CAP_SYS_ADMIN) a user namespace gives it, in which the user stays who they are.
pub fn enter(devices: usize) -> Result<PathBuf, Refusal> {
    let root = place::private_dir()?.join("files");
    let trouble = |e: io::Error| Refusal::new(format!("{}: {e}", root.display()));
    fs::create_dir_all(&root).map_err(trouble)?;
    namespace().map_err(|e| {
        nodes(devices);
        Refusal::new(format!(
            "no mount namespace ({e}): a container takes --cap-add SYS_ADMIN, or a profile that allows user namespaces"
        ))
    })?;
    // What others mount later comes in; what is mounted here stays here.
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(|e| {
        Refusal::new(format!(
            "mounts of a namespace cannot be kept in it ({e}): / is no mount point, as in a chroot"
        ))
    })?;
    mount("tmpfs", &root, "tmpfs", MountFlags::NOSUID, c"mode=0755").map_err(|e| trouble(e.into()))?;
    Ok(root)
}

/// Puts what stands for character devices into `/dev` as it is, where a container has a `/dev` of its own: some programs look nowhere
/// else (UCX).
fn nodes(devices: usize) {
    if fs::create_dir_all(NODES).is_ok() {
        for number in 0..devices as u32 {
            let _ = symlink(
                "/dev/null",
                Path::new(NODES).join(sysfs::character_device(number)),
            );
        }
    }
}

/// Directory of the character devices.
const NODES: &str = "/dev/infiniband";

fn namespace() -> io::Result<()> {
    // SAFETY: no file descriptors are unshared, and there is no other thread.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok() {
        return Ok(());
    }
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWUSER) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Shows the files below `root` where programs look for them whose root directory is `at`.
pub fn show(root: &Path, at: &Path) -> io::Result<()> {
    let ours = |path: &str| root.join(path);
    for class in [sysfs::DEVICES, sysfs::VERBS] {
        adopt(&at.join("sys").join(class), &ours(class))?;
    }
    let class = [
        ("infiniband", ours(sysfs::DEVICES)),
        ("infiniband_verbs", ours(sysfs::VERBS)),
    ];
    cover(root, &at.join("sys/class"), &class)?;
    let buses: Vec<PathBuf> = fs::read_dir(ours("devices")).map_or_else(
        |_| Vec::new(),
        |all| all.filter_map(|bus| Some(bus.ok()?.path())).collect(),
    );
    let buses: Vec<(&str, PathBuf)> = buses
        .iter()
        .filter_map(|bus| Some((bus.file_name()?.to_str()?, bus.clone())))
        .collect();
    if !buses.is_empty() {
        cover(root, &at.join("sys/devices"), &buses)?;
        let on_pci = at.join("sys/bus/pci/devices");
        if on_pci.is_dir() {
            adopt(&on_pci, &ours("bus/pci/devices"))?;
            mount_bind_recursive(ours("bus/pci/devices"), &on_pci)?;
        }
    }
    let debug = at.join("sys/kernel/debug");
    if ours(sysfs::DEBUG).is_dir() && debug.is_dir() {
        cover(root, &debug, &[("mlx5", ours(sysfs::DEBUG))])?;
    }
    let nodes = at.join(NODES.trim_start_matches('/'));
    // (A container that is being made has a /dev of its own.)
    if at != Path::new("/") {
        fs::create_dir_all(&nodes)?;
    }
    if nodes.is_dir() {
        let entries: Vec<PathBuf> = fs::read_dir(ours("dev"))?
            .filter_map(|e| Some(e.ok()?.path()))
            .collect();
        let entries: Vec<(&str, PathBuf)> = entries
            .iter()
            .filter_map(|e| Some((e.file_name()?.to_str()?, e.clone())))
            .collect();
        cover(root, &nodes, &entries)
    } else {
        cover(root, &at.join("dev"), &[("infiniband", ours("dev"))])
    }
}

/// Takes the links of the machine's own directory over.
fn adopt(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry?;
        let new = to.join(entry.file_name());
        if entry.file_type()?.is_symlink() && new.symlink_metadata().is_err() {
            symlink(fs::read_link(entry.path())?, new)?;
        }
    }
    Ok(())
}

/// Covers a directory by one with the same entries and these, which hide those of the same names.
fn cover(root: &Path, dir: &Path, ours: &[(&str, PathBuf)]) -> io::Result<()> {
    let name = dir.to_string_lossy().replace('/', "_");
    let new = root.join(format!(".{name}"));
    fs::create_dir(&new)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let to = new.join(entry.file_name());
        if ours.iter().any(|(name, _)| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type()?.is_symlink() {
            symlink(fs::read_link(entry.path())?, to)?;
        } else {
            bind(&entry.path(), &to)?;
        }
    }
    for (name, from) in ours {
        bind(from, &new.join(name))?;
    }
    Ok(mount_bind_recursive(&new, dir)?)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir(to)?;
    } else {
        fs::File::create(to)?;
    }
    Ok(mount_bind_recursive(from, to)?)
}
