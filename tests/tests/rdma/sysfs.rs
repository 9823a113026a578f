//! A device in files, as the kernel shows its own, and a program that finds them where it looks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use vnic_backend::GidSetting;
use vnic_tests::driver::rdma::World;
use vnic_tests::lab::{built, output};
use vnic_verbs::sysfs::{Files, Place};
use vnic_verbs::{Device, GidKind};
use vnic_wire::gid::Gid;

fn place(name: &str) -> Place {
    Place {
        name: name.into(),
        number: 0,
        pci: None,
    }
}

#[test]
fn files_say_what_verbs_say_and_follow_it() -> Result<()> {
    let world = World::new(1, &["vf0"])?;
    let device = Device::open(&world.socket("vf0").display().to_string().parse()?)?;
    let root = tempfile::tempdir()?;
    let mut files = Files::new(root.path(), place("mlx5_0"));
    files.keep(&device)?;
    let card = root.path().join("class/infiniband/mlx5_0");
    let read = |path: &str| -> Result<String> {
        let text = std::fs::read_to_string(card.join(path)).context(path.to_owned())?;
        Ok(text.trim_end().to_owned())
    };
    assert_eq!(read("node_type")?, "1: CA");
    assert_eq!(read("fw_ver")?, device.query_device().firmware());
    assert_eq!(read("ports/1/state")?, "4: ACTIVE");
    assert_eq!(read("ports/1/link_layer")?, "Ethernet");
    assert_eq!(read("ports/1/rate")?, "100 Gb/sec (4X EDR)");
    assert_eq!(
        read("device/class")?,
        "0x020000",
        "by the link to the function on PCI"
    );
    for counter in device.counters()? {
        if !counter.name.contains("_vport_") {
            assert_eq!(
                read(&format!("ports/1/hw_counters/{}", counter.name))?,
                counter.value.to_string()
            );
        }
    }
    for entry in device.gids()?.iter().filter(|e| e.kind != GidKind::None) {
        let index = entry.index;
        assert_eq!(read(&format!("ports/1/gids/{index}"))?, entry.gid.to_string());
        assert!(!read(&format!("ports/1/gid_attrs/ndevs/{index}"))?.is_empty());
    }
    // An entry comes, and goes.
    let setting = GidSetting {
        gid: Gid::from_ipv4([10, 0, 0, 7]).0,
        kind: vnic_backend::GidKind::RoceV2,
        vlan: None,
    };
    let kind = "ports/1/gid_attrs/types/5";
    assert!(read(kind).is_err());
    world.rig.nic.set_gid("vf0", Some(5), Some(setting))?;
    files.keep(&device)?;
    assert_eq!(read(kind)?, "RoCE v2");
    assert_eq!(read("ports/1/gids/5")?, "0000:0000:0000:0000:0000:ffff:0a00:0007");
    world.rig.nic.set_gid("vf0", Some(5), None)?;
    files.keep(&device)?;
    assert!(read(kind).is_err());
    Ok(())
}

/// `vnic-verbs run` on an adapter of this process.
fn launcher(socket: &Path) -> Result<Command> {
    let mut command = Command::new(built("vnic-guest", "vnic-verbs")?);
    command
        .env(
            "VNIC_IBVERBS_LIBRARY",
            built("vnic-verbs-preload", "libvnic_ibverbs.so")?,
        )
        .env_remove("VNIC_SOCKET")
        .arg("run")
        .arg("--socket")
        .arg(socket);
    Ok(command)
}

#[test]
fn a_program_finds_the_files_where_it_looks_and_nobody_else_does() -> Result<()> {
    const NAME: &str = "sysfs::a_program_finds_the_files_where_it_looks_and_nobody_else_does";
    if !output(Command::new("unshare").args(["--mount", "true"])).is_ok_and(|_| true) {
        println!("SKIP {NAME}: no mount namespaces here (CAP_SYS_ADMIN)");
        return Ok(());
    }
    let world = World::new(1, &["vf0"])?;
    let socket = world.socket("vf0");
    let script = "cat /sys/class/infiniband/$1/ports/1/state; cat /sys/class/infiniband_verbs/*/ibdev
        test -c /dev/infiniband/uverbs_vnic0 && test -c /dev/null && test -d /sys/class/net/lo && echo whole
        basename $(realpath /sys/class/infiniband/$1/device)";
    for (name, more) in [
        ("vnic0", &[][..]),
        ("mlx5_bond_0", &["--name", "mlx5_bond_0"]),
        ("mlx5_0", &["--name", "mlx5_0", "--files", "only"]),
    ] {
        let mut command = launcher(&socket)?;
        let said = output(command.args(more).args(["--", "sh", "-c", script, "sh", name]))?;
        assert_eq!(said, format!("4: ACTIVE\n{name}\nwhole\n766e:00:00.0\n"));
    }
    ensure!(!Path::new("/dev/infiniband/uverbs_vnic0").exists());
    // Without: the program as it would be.
    let mut command = launcher(&socket)?;
    let script = "test -e /sys/class/infiniband/vnic0 || echo none";
    assert_eq!(
        output(command.args(["--files", "never", "--", "sh", "-c", script]))?,
        "none\n"
    );
    Ok(())
}
