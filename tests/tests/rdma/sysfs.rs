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

/// Where a counter's file is: those of messages of communication management have folders of their own, as on Linux.
fn file(name: &str) -> String {
    for group in ["cm_rx_duplicates", "cm_rx_msgs", "cm_tx_msgs", "cm_tx_retries"] {
        if let Some(message) = name.strip_prefix(group) {
            return format!("{group}/{}", message.trim_start_matches('_'));
        }
    }
    format!("hw_counters/{name}")
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
                read(&format!("ports/1/{}", file(&counter.name)))?,
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

/// Threads of a process keep the files of their devices below one root.
#[test]
fn devices_of_a_process_do_not_mix_up_their_files() -> Result<()> {
    let world = World::new(1, &["vf0", "vf1"])?;
    let root = tempfile::tempdir()?;
    let device = Device::open(&world.socket("vf0").display().to_string().parse()?)?;
    let other = Device::open(&world.socket("vf1").display().to_string().parse()?)?;
    let expected = |device: &vnic_verbs::Context| -> Result<String> {
        let gids = device.gids()?;
        Ok(format!("{}\n", gids.first().context("a GID")?.gid))
    };
    let keep = |device: &vnic_verbs::Context, name: &'static str, number| -> Result<()> {
        let gid = expected(device)?;
        let at = root.path().join("class/infiniband").join(name).join("ports/1");
        for _ in 0..5 {
            let place = Place {
                number,
                ..place(name)
            };
            Files::new(root.path(), place).keep(device)?;
            assert_eq!(std::fs::read_to_string(at.join("gids/0"))?, gid);
            assert_eq!(
                std::fs::read_to_string(at.join("gid_attrs/types/0"))?,
                "IB/RoCE v1\n"
            );
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| keep(&device, "vnic0", 0));
        let second = scope.spawn(|| keep(&other, "vnic1", 1));
        let joined = [first.join(), second.join()].map(|ended| ended.map_err(|_| anyhow::anyhow!("a panic")));
        joined.into_iter().try_for_each(|ended| ended?)
    })
}

/// `vnic-verbs run` on an adapter of this process.
pub fn launcher(socket: &Path) -> Result<Command> {
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

/// What a container engine does for a device: mounts, environment and hook of the file for engines.
#[test]
fn a_container_without_rights_finds_the_device_that_it_was_given() -> Result<()> {
    const NAME: &str = "sysfs::a_container_without_rights_finds_the_device_that_it_was_given";
    if !output(Command::new("unshare").args(["--mount", "true"])).is_ok_and(|_| true) {
        println!("SKIP {NAME}: no mount namespaces here (CAP_SYS_ADMIN)");
        return Ok(());
    }
    let world = World::new(1, &["vf0", "vf1"])?;
    let sockets = world.socket("vf1");
    let dir = sockets.parent().context("a directory")?;
    let mut command = Command::new(built("vnic-guest", "vnic-verbs")?);
    command
        .env(
            "VNIC_IBVERBS_LIBRARY",
            built("vnic-verbs-preload", "libvnic_ibverbs.so")?,
        )
        .args(["cdi", "--socket-dir"])
        .arg(dir);
    let file: serde_json::Value = serde_json::from_str(&output(&mut command)?)?;
    let list = |pointer: &str| {
        file.pointer(pointer)
            .and_then(|all| all.as_array())
            .cloned()
            .unwrap_or_default()
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();

    let bundle = tempfile::tempdir()?;
    let root = bundle.path().join("root");
    let environment: Vec<String> = list("/containerEdits/env").iter().map(text).collect();
    let config = serde_json::json!({"root": {"path": "root"}, "process": {"env": ["VNIC_NAMES=mlx5_7"]}});
    std::fs::create_dir(&root)?;
    std::fs::write(bundle.path().join("config.json"), config.to_string())?;
    let mut script = format!(
        "set -e; R={}; mount --make-rprivate /; mount --rbind / $R; mount -t tmpfs none $R/run
        mount -t tmpfs none $R/dev; touch $R/dev/null; mount --bind /dev/null $R/dev/null\n",
        root.display()
    );
    for mount in [
        list("/devices/1/containerEdits/mounts"),
        list("/containerEdits/mounts"),
    ]
    .concat()
    {
        let (from, to) = (text(&mount["hostPath"]), text(&mount["containerPath"]));
        script += &match mount["type"].as_str() {
            Some(kind) => format!("mkdir -p $R{to}; mount -t {kind} {from} $R{to}\n"),
            None => format!("mkdir -p $R$(dirname {to}); touch $R{to}; mount --bind {from} $R{to}\n"),
        };
    }
    let hook = &file["containerEdits"]["hooks"][0];
    ensure!(hook["hookName"] == "createContainer");
    script += &format!(
        "echo '{{\"bundle\": \"{}\"}}' | {} {}\n",
        bundle.path().display(),
        text(&hook["path"]),
        text(&hook["args"][1]),
    );
    // Without any right to mount, as a container is by default.
    script += &format!(
        "exec setpriv --bounding-set -sys_admin chroot $R env {} sh -c 'cat /sys/class/infiniband/mlx5_7/ports/1/state
        ls /sys/class/infiniband /run/vnic; test -c /dev/infiniband/uverbs_vnic0 && test -d /sys/class/net/lo && echo whole
        {} devinfo | grep -o PORT_ACTIVE'",
        environment.join(" "),
        built("vnic-guest", "vnic-guest")?.display()
    );
    let said = output(Command::new("unshare").args(["--mount", "sh", "-c"]).arg(script))?;
    assert_eq!(
        said,
        "4: ACTIVE\n/run/vnic:\nfiles\nlibvnic_ibverbs.so\nvf1-rdma.sock\n\n/sys/class/infiniband:\nmlx5_7\nwhole\nPORT_ACTIVE\n"
    );
    Ok(())
}
