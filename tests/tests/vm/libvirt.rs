//! Machines of libvirt's, which run as a user of their own, with the configuration and the domain of `docs/attach.md`.

use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use vnic_tests::lab::guide::parts;
use vnic_tests::lab::libvirt::{USER, group};
use vnic_tests::lab::{self, Daemon, Guest, GuestSpec, Lab, Libvirt, PATIENCE, Pair, ping, wait_for};

/// The block of this kind of `docs/attach.md` that has a word.
fn block(kind: &str, word: &str) -> Result<String> {
    let found = parts("attach.md")?
        .into_iter()
        .find(|p| p.kind == kind && p.text.contains(word));
    Ok(found
        .with_context(|| format!("docs/attach.md has no {kind} with {word}"))?
        .text)
}

fn machine(lab: &Lab, spec: &GuestSpec) -> Result<Guest> {
    Libvirt::machine(lab, spec, &block("xml", "vhostuser")?)
}

/// The sockets are those of libvirt's user, by owner and by group.
fn given(lab: &Lab) -> Result<()> {
    let of = |socket: &str| -> Result<(u32, u32)> {
        let has = std::fs::metadata(lab.path(socket))?;
        Ok((has.uid(), has.gid()))
    };
    for function in ["eth", "rdma"] {
        ensure!(
            of(&format!("vf0-{function}.sock"))? == (USER, 0),
            "vf0's {function} is not its owner's"
        );
        ensure!(
            of(&format!("vf1-{function}.sock"))? == (0, group()),
            "vf1's {function} is not its group's"
        );
    }
    Ok(())
}

#[test]
fn machines_of_another_user_attach_and_outlive_the_daemon() {
    lab::case("vm-libvirt", |lab| {
        if !rustix::process::geteuid().is_root() {
            lab::skip(lab.name(), "only root runs machines as another user");
            return Ok(());
        }
        // (The machine's user has its name in libvirt's namespace only.)
        let config = block("toml", "libvirt-qemu")?
            .replace("libvirt-qemu", &USER.to_string())
            .replace("kvm", &group().to_string());
        let mut daemon = Daemon::with_config(lab, &config)?;
        given(lab)?;
        let _libvirt = match Libvirt::start(lab)? {
            Ok(libvirt) => libvirt,
            Err(why) => {
                lab::skip(lab.name(), &why);
                return Ok(());
            }
        };
        lab.step("libvirtd runs");
        let mut vms = Pair::boot(lab, &daemon, machine, |_, _| {})?;
        ping(&mut vms.one, "-c 5 -i 0.1 10.0.0.2")?;
        ping(&mut vms.two, "-c 5 -i 0.1 10.0.0.1")?;
        let boots = vms.boot_ids()?;

        daemon.kill()?;
        daemon.restart()?;
        given(lab)?;
        daemon.wait_up("vf0")?;
        daemon.wait_up("vf1")?;
        // What a guest asked its neighbours while its link was down is lost.
        wait_for("an answer after the restart", PATIENCE, || {
            vms.one.ok("ping -c 1 -W 1 10.0.0.2").map(|_| ())
        })?;
        ping(&mut vms.one, "-c 5 -i 0.1 10.0.0.2")?;
        ping(&mut vms.two, "-c 5 -i 0.1 10.0.0.1")?;
        vms.not_rebooted(&boots)?;
        lab.step("the machines' network went on after a kill");
        let status = daemon.stop()?;
        ensure!(status.success(), "vnicd ended with {status}");
        Ok(())
    });
}
