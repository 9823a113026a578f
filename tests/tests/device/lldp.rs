//! Link layer discovery of ports: between two NICs, with a stranger (lldpad), and kept from guests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use vnic_backend::{
    DropReason, LldpLost, LldpMode, LldpNeighbour, NicEventKind, PortSpec, QosSpec, dcbx, lldp_capability,
};
use vnic_tests::driver::packets::eth;
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::veth::{Veth, ends};
use vnic_tests::driver::{NetHdr, Options, Wire};

/// Nearest bridge.
const TO: vnic_backend::MacAddr = vnic_backend::MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);
const TYPE: [u8; 2] = [0x88, 0xcc];

fn neighbours(rig: &Rig, port: &str) -> Result<Vec<LldpNeighbour>> {
    Ok(rig.nic.port(port)?.lldp.map(|l| l.neighbours).unwrap_or_default())
}

/// The two ends of a wire, with this discovery each.
fn both(veth: &Veth, modes: [LldpMode; 2]) -> Result<[Rig; 2]> {
    let rigs = [Rig::new(1)?, Rig::new(1)?];
    for (i, (rig, lldp)) in rigs.iter().zip(modes).enumerate() {
        let ports = veth.ports("packet", i)?;
        let spec = ports.into_iter().next().context("a port")?;
        rig.nic.add_port(PortSpec { lldp, ..spec })?;
    }
    Ok(rigs)
}

#[test]
fn two_nics_hear_each_other() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let [mut a, mut b] = both(&veth, [LldpMode::RxAndTx, LldpMode::TxOnly])?;
    let port = "p0";
    assert!(wait_for(|| neighbours(&a, port).is_ok_and(|n| n.len() == 1)));
    let heard = neighbours(&a, port)?.remove(0).said;
    let theirs = b
        .nic
        .port(port)?
        .device
        .and_then(|d| d.mac)
        .context("an address")?;
    assert_eq!((&heard.port[..], heard.chassis), (port, theirs.to_string()));
    assert_eq!(heard.port_description, format!("packet {}", ends(0)[1]));
    assert_eq!(heard.capabilities, lldp_capability::BRIDGE);
    assert!(
        heard.system_description.starts_with("vnic "),
        "{}",
        heard.system_description
    );
    a.wait_event(port, |k| matches!(k, NicEventKind::LldpNeighbourFound { .. }))?;
    // One that does not listen hears nobody; then it does.
    assert_eq!(neighbours(&b, port)?, []);
    b.nic.set_port_lldp(port, LldpMode::RxAndTx)?;
    a.nic.set_port_lldp(port, LldpMode::RxOnly)?;
    a.nic.set_port_lldp(port, LldpMode::RxAndTx)?;
    assert!(wait_for(|| neighbours(&b, port).is_ok_and(|n| n.len() == 1)));
    // One that ends to speak says so, and so does one that is removed.
    b.nic.set_port_lldp(port, LldpMode::RxOnly)?;
    let left = |k: &NicEventKind| {
        matches!(
            k,
            NicEventKind::LldpNeighbourLost {
                why: LldpLost::Shutdown,
                ..
            }
        )
    };
    a.wait_event(port, left)?;
    a.nic.remove_port(port)?;
    b.wait_event(port, left)?;
    assert_eq!(neighbours(&b, port)?, []);
    // A wire that is cut.
    b.nic.set_port_lldp(port, LldpMode::Disabled)?;
    assert_eq!(b.nic.port(port)?.lldp, None);
    a.finish(Copies::Extra(0))?;
    b.finish(Copies::Unknown)
}

/// What a guest says reaches no wire, and what a wire says no guest; unless the operator wants it.
#[test]
fn guests_have_no_part_in_it() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let [mut a, mut b] = both(&veth, [LldpMode::RxAndTx, LldpMode::Disabled])?;
    let other = vnic_backend::MacAddr([2, 0, 0, 0, 9, 9]);
    let mac = a.add("a")?;
    b.add_with("b", |spec| spec.macs = vec![other])?;
    let (mut ga, mut gb) = (
        a.attach("a", Options::default())?,
        b.attach("b", Options::default())?,
    );
    // (A frame behind it shows that it would have come.)
    let says = eth(TO, mac, TYPE, &[0; 46]);
    let behind = eth(other, mac, [0x88, 0xb5], &[7; 46]);
    for frame in [&says, &behind] {
        ga.send_wait(0, frame, NetHdr::default());
    }
    let (_, _, got) = gb.recv(0, deadline()).context("a frame")?;
    assert_eq!(got, behind);
    assert_eq!(a.drops("a", DropReason::MacControl), 1);
    // The port hears the other one's guest neither.
    gb.send_wait(0, &eth(TO, other, TYPE, &[0; 46]), NetHdr::default());
    assert!(wait_for(|| b.drops("b", DropReason::MacControl) == 1));
    assert_eq!(neighbours(&a, "p0")?, []);
    a.finish(Copies::Unknown)?;
    b.finish(Copies::Unknown)
}

/// A program of Open-LLDP, where it is.
pub fn lldpad(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let file = dirs.map(|dir| dir.join(name)).find(|file| file.is_file())?;
    Some(Command::new(file))
}

/// A process that ends with this.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn said(mut command: Command, words: &[&str]) -> Result<String> {
    let output = command.args(words).output()?;
    ensure!(output.status.success(), "{words:?}: {output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Open-LLDP at the other end of the wire sees the port, and is seen.
#[test]
fn a_stranger_hears_and_is_heard() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let Some(mut daemon) = lldpad("lldpad") else {
        println!("skipped: there is no lldpad (Debian: package lldpad)");
        return Ok(());
    };
    let tool = |words: &[&str]| said(lldpad("lldptool").context("no lldptool")?, words);
    vnic_tests::driver::veth::ip(&["link", "set", "lo", "up"])?;
    let rig = Rig::new(1)?;
    let spec = veth.ports("packet", 0)?.into_iter().next().context("a port")?;
    let lldp = LldpMode::RxAndTx;
    rig.nic.add_port(PortSpec { lldp, ..spec })?;
    let dir = tempfile::tempdir()?;
    let [_, theirs] = ends(0);
    daemon.arg("-p").arg("-f").arg(dir.path().join("lldpad.conf"));
    let _daemon = Ends(daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let set = ["set-lldp", "-i", &theirs, "adminStatus=rxtx"];
    assert!(wait_for(|| tool(&set).is_ok()), "{:?}", tool(&set));
    for tlv in ["sysName", "portDesc"] {
        tool(&["-T", "-i", &theirs, "-V", tlv, "enableTx=yes"])?;
    }
    assert!(wait_for(|| neighbours(&rig, "p0").is_ok_and(|n| {
        n.iter()
            .any(|n| n.said.port_description.contains(&theirs) && !n.said.system_name.is_empty())
    })));
    let sees = || {
        let text = tool(&["-t", "-n", "-i", &theirs]).unwrap_or_default();
        text.contains("Ifname: p0")
            && text.contains("virtual RoCE NIC")
            && text.contains("Enabled capabilities: Bridge")
    };
    assert!(wait_for(sees), "{:?}", tool(&["-t", "-n", "-i", &theirs]));
    rig.nic.remove_port("p0")?;
    assert!(wait_for(|| !sees()), "it was told that the port left");
    rig.finish(Copies::Extra(0))
}

/// What a switch says of priorities (bytes of the standard, as tshark reads them), and what contradicts the port's own.
#[test]
fn what_a_switch_says_of_priorities() -> Result<()> {
    #[rustfmt::skip]
    const SAYS: &[u8] = &[
        0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e, 0x02, 0, 0, 0, 0, 0x09, 0x88, 0xcc,
        0x02, 0x07, 0x04, 0x02, 0, 0, 0, 0, 0x08, // chassis
        0x04, 0x05, 0x05, b'e', b't', b'-', b'1', // port
        0x06, 0x02, 0x00, 0x79, // 121 s
        // ETS Configuration: not willing, 8 classes; priorities 3 to 5 in class 1, 6 and 7 in class 2; 30, 70; ETS, ETS, strict.
        0xfe, 0x19, 0x00, 0x80, 0xc2, 0x09, 0x00, 0x00, 0x01, 0x11, 0x22, 30, 70, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0,
        // Priority-based Flow Control: not willing, 8 at a time; 3 and 5.
        0xfe, 0x06, 0x00, 0x80, 0xc2, 0x0b, 0x08, 0x28,
        // Application Priority: UDP port 4791 has 3.
        0xfe, 0x08, 0x00, 0x80, 0xc2, 0x0c, 0x00, 0x63, 0x12, 0xb7,
        0x00, 0x00,
    ];
    let Some(_veth) = Veth::several(1500, 0)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    let Some(wire) = Wire::of_port(&rig, "lldp0", None)? else {
        return Ok(());
    };
    rig.nic.set_port_lldp("p0", LldpMode::RxOnly)?;
    // (A TAP device takes a moment until it is up.)
    let exchange = || {
        wire.send(SAYS).ok()?;
        Some(neighbours(&rig, "p0").ok()?.first()?.said.exchange.clone())
    };
    assert!(wait_for(|| exchange().is_some()));
    let said = exchange().context("a neighbour")?;
    let (ets, pfc) = (said.ets.context("classes")?, said.pfc.context("flow control")?);
    assert_eq!(
        (pfc.priorities, pfc.willing, pfc.capability),
        (0b10_1000, false, 8)
    );
    assert_eq!(ets.classes.of_priority, [0, 0, 0, 1, 1, 1, 2, 2]);
    assert_eq!(
        (ets.classes.share[..2].to_vec(), ets.willing, ets.classes_max),
        (vec![30, 70], false, 8)
    );
    assert_eq!(
        ets.classes.algorithm[1..3],
        [dcbx::Algorithm::Ets, dcbx::Algorithm::Strict]
    );
    let of = |a: &dcbx::Application| (a.selector, a.protocol, a.priority);
    assert_eq!(
        said.applications.iter().map(of).collect::<Vec<_>>(),
        [(3, 4791, 3)]
    );
    let problem = || rig.nic.port("p0").ok()?.lldp?.problem;
    let told = problem().context("a contradiction")?;
    assert!(
        told.ends_with("has flow control for priorities 3, 5, this port for no priority"),
        "{told}"
    );
    let pfc = 0b10_1000;
    rig.nic.set_qos(
        "p0",
        QosSpec {
            pfc,
            ..QosSpec::default()
        },
    )?;
    assert_eq!(problem(), None);
    rig.finish(Copies::Extra(0))
}
