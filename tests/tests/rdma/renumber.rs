//! A device that is taken away and comes back under another number: what programs find, by verbs and in files.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use vnic_tests::driver::rdma::World;
use vnic_tests::driver::rig::wait_for;
use vnic_tests::lab::output;
use vnic_verbs::{Device, DeviceAddress};

use crate::preload_work::compile;
use crate::sysfs::launcher;

/// Numbers of the devices that a process finds.
fn numbers(world: &World) -> Vec<u32> {
    let devices = world.devices(&["vf0", "vf1"]).into_iter();
    devices.map(|(number, _)| number).collect()
}

#[test]
fn a_device_goes_and_comes_back_under_another_number() -> Result<()> {
    let world = World::new(1, &["vf0", "vf1"])?;
    let nic = &world.rig.nic;
    let old = DeviceAddress::Socket(world.socket("vf0"));
    let device = Device::open(&old)?;
    assert_eq!(numbers(&world), [0, 1]);
    nic.set_rdma_away("vf0", true)?;
    ensure!(wait_for(|| device.query_port().is_err_and(|e| e.is_gone())));
    assert_eq!(numbers(&world), [1]);
    let told = Device::open(&old).map(drop).expect_err("it is away").to_string();
    ensure!(told.contains("has taken the device away"), "{told}");
    nic.set_rdma_number("vf0", Some(7))?;
    assert_eq!(numbers(&world), [1], "it is still away");
    nic.set_rdma_away("vf0", false)?;
    assert_eq!(numbers(&world), [1, 7]);
    let told = Device::open(&old)
        .map(drop)
        .expect_err("who clings to the old name")
        .to_string();
    ensure!(told.contains("has made it") && told.ends_with(".7"), "{told}");
    let again = Device::open(&world.devices(&["vf0"]).pop().context("a device")?.1)?;
    // Who has it open keeps it when it has its own number again.
    nic.set_rdma_number("vf0", None)?;
    assert_eq!(numbers(&world), [0, 1]);
    again.query_port()?;
    Device::open(&old)?.query_port()?;
    nic.set_rdma_number("vf0", Some(3))?;
    drop((device, again));
    let dir = world.socket("vf0").parent().context("a directory")?.to_owned();
    world.finish()?;
    let left = std::fs::read_dir(dir).map_or(0, |all| all.count());
    assert_eq!(left, 0, "no socket is left, whatever its name");
    Ok(())
}

/// What a killed daemon has left under another name goes with the next one, unless it lives.
#[test]
fn a_device_that_is_left_under_another_name_is_replaced() -> Result<()> {
    let mut world = World::new(1, &[])?;
    let own = world.socket("vf0");
    let other = own.with_extension("sock.2");
    let away = own.with_extension("sock.away");
    drop(UnixListener::bind(&away)?);
    let lives = UnixListener::bind(&other)?;
    let told = world
        .add("vf0", 1500)
        .expect_err("another daemon has it")
        .to_string();
    ensure!(told.contains("another process listens"), "{told}");
    drop(lives);
    world.add("vf0", 1500)?;
    ensure!(own.exists() && !other.exists() && !away.exists());
    world.finish()
}

#[test]
fn a_program_finds_its_device_under_its_new_name() -> Result<()> {
    let namespaces = output(Command::new("unshare").args(["--mount", "true"])).is_ok();
    let world = World::new(1, &["vf0", "vf1"])?;
    let dir = tempfile::tempdir()?;
    let program = compile("renumbered", dir.path())?;
    let mut command = launcher(&world.socket("vf0"))?;
    command.arg("--socket").arg(world.socket("vf1"));
    command.args(["--name", "mlx5_0,mlx5_1", "--"]).arg(program);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().context("output")?).lines();
    let mut said = Vec::new();
    for line in lines {
        let line = line?;
        match &*line {
            "open" => world.rig.nic.set_rdma_away("vf0", true)?,
            "closed" => {
                world.rig.nic.set_rdma_number("vf0", Some(7))?;
                world.rig.nic.set_rdma_away("vf0", false)?;
            }
            _ => {}
        }
        said.push(line);
    }
    ensure!(child.wait()?.success(), "{said:?}");
    let files = if namespaces { "with files" } else { "without files" };
    let expected = [
        "mlx5_0 mlx5_1",
        "open",
        "lost",
        "mlx5_1",
        "closed",
        "mlx5_1 mlx5_7",
        "mlx5_0 is refused",
        "mlx5_7 opens",
        files,
    ];
    assert_eq!(said, expected);
    world.finish()
}

/// Programs that only look have the files of the launcher, which follow the device.
#[test]
fn files_alone_follow_the_device() -> Result<()> {
    const NAME: &str = "renumber::files_alone_follow_the_device";
    if output(Command::new("unshare").args(["--mount", "true"])).is_err() {
        println!("SKIP {NAME}: no mount namespaces here (CAP_SYS_ADMIN)");
        return Ok(());
    }
    let world = World::new(1, &["vf0", "vf1"])?;
    let script = "await() { while [ \"$(echo $(ls /sys/class/infiniband))\" != \"$1\" ]; do sleep 0.05; done; echo $1; }
        await 'mlx5_0 mlx5_1'; await mlx5_1; await 'mlx5_1 mlx5_7'
        until grep -s ACTIVE /sys/class/infiniband/mlx5_7/ports/1/state; do sleep 0.05; done
        await 'mlx5_0 mlx5_1'";
    let mut command = launcher(&world.socket("vf0"))?;
    command.arg("--socket").arg(world.socket("vf1"));
    command.args([
        "--name",
        "mlx5_0,mlx5_1",
        "--files",
        "only",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let nic = &world.rig.nic;
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().context("output")?).lines() {
        let line = line?;
        match (&*line, said.len()) {
            ("mlx5_0 mlx5_1", 0) => nic.set_rdma_away("vf0", true)?,
            ("mlx5_1", _) => {
                nic.set_rdma_number("vf0", Some(7))?;
                nic.set_rdma_away("vf0", false)?;
            }
            ("4: ACTIVE", _) => nic.set_rdma_number("vf0", None)?,
            _ => {}
        }
        said.push(line);
    }
    ensure!(child.wait()?.success(), "{said:?}");
    let expected = [
        "mlx5_0 mlx5_1",
        "mlx5_1",
        "mlx5_1 mlx5_7",
        "4: ACTIVE",
        "mlx5_0 mlx5_1",
    ];
    assert_eq!(said, expected);
    world.finish()
}
