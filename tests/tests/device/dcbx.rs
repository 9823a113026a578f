//! Data center bridging exchange of ports: with a switch's bytes, between two NICs, and with a stranger (lldpd). `dcbx_cee` has one of CEE.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use vnic_backend::settings::Trust;
use vnic_backend::{
    ApplicationRow, Classes, DcbxMode, DcbxSource, DcbxSpec, DcbxStatus, DcbxVersion, DcbxWilling, LldpMode,
    MacAddr, NicEventKind, PortSpec, QosLimits, QosSpec, Tsa, dcbx,
};
use vnic_tests::driver::Wire;
use vnic_tests::driver::packets::eth;
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::veth::{Veth, ends, ip};
use vnic_wire::pause::Frame;

pub const PORT: &str = "p0";
/// Nearest bridge.
const NEAREST: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);

pub const UNWILLING: DcbxWilling = DcbxWilling {
    ets: false,
    pfc: false,
    applications: false,
};

/// DCBX with these willing bits, and with these applications.
fn ieee(willing: DcbxWilling, rows: &[&str]) -> DcbxSpec {
    let rows = rows
        .iter()
        .map(|row| row.parse::<ApplicationRow>().expect("a row").0);
    DcbxSpec {
        mode: DcbxMode::Ieee,
        willing,
        applications: rows.collect(),
    }
}

/// Quality of service with flow control for these priorities, and two ETS classes.
pub fn classes(pfc: u8, shares: [u8; 2]) -> QosSpec {
    let mut classes = Classes {
        of_priority: [0, 0, 0, 1, 1, 1, 1, 1],
        tsa: [Tsa::Strict; 8],
        ..Classes::default()
    };
    classes.tsa[..2].fill(Tsa::Ets);
    classes.share[..2].copy_from_slice(&shares);
    QosSpec {
        pfc,
        classes,
        ..QosSpec::default()
    }
}

pub fn status(rig: &Rig) -> Option<DcbxStatus> {
    rig.nic.port(PORT).ok()?.lldp?.dcbx
}

/// Gives each NIC its end of a wire as a port with LLDP and this DCBX.
fn add_ports(veth: &Veth, rigs: [&Rig; 2], specs: [DcbxSpec; 2]) -> Result<()> {
    for (i, (rig, dcbx)) in rigs.into_iter().zip(specs).enumerate() {
        rig.nic.add_port(PortSpec {
            lldp: LldpMode::RxAndTx,
            dcbx,
            speed_mbps: Some(10),
            ..veth.ports("packet", i)?.remove(0)
        })?;
    }
    Ok(())
}

/// Priorities with flow control, shares, and trust that act on the port.
pub fn acts(rig: &Rig) -> (u8, [u8; 2], Trust) {
    let acting = rig.nic.qos(PORT).expect("it is there").acting;
    let shares = [acting.classes.share[0], acting.classes.share[1]];
    (acting.pause.pfc, shares, acting.classification.priorities.trust)
}

/// A message of a switch with this last byte of its addresses, which holds for these seconds: it is not willing, recommends classes
/// with 30 and 70 %, has flow control for priorities 3 and 5, and priority 4 for DSCP 26.
fn switch(last: u8, ttl: u8) -> Vec<u8> {
    #[rustfmt::skip]
    const SAYS: &[u8] = &[
        // ETS Recommendation: priorities 3 to 7 in class 1; 30, 70; ETS, ETS, strict.
        0xfe, 0x19, 0x00, 0x80, 0xc2, 0x0a, 0x00, 0x00, 0x01, 0x11, 0x11, 30, 70, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0,
        // Priority-based Flow Control: not willing, 8 at a time; 3 and 5.
        0xfe, 0x06, 0x00, 0x80, 0xc2, 0x0b, 0x08, 0x28,
        // Application Priority: DSCP 26 has 4.
        0xfe, 0x08, 0x00, 0x80, 0xc2, 0x0c, 0x00, 0x85, 0x00, 26,
        0x00, 0x00,
    ];
    let mut pdu = vec![
        0x02, 0x07, 0x04, 0x02, 0, 0, 0, 0, last, 0x04, 0x02, 0x07, b'1', 0x06, 0x02, 0, ttl,
    ];
    pdu.extend(SAYS);
    eth(NEAREST, MacAddr([2, 0, 0, 0, 0, last]), [0x88, 0xcc], &pdu)
}

#[test]
fn a_willing_port_takes_what_a_switch_has() -> Result<()> {
    let Some(_veth) = Veth::several(1500, 0)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    let Some(wire) = Wire::of_port(&rig, "dcbx0", None)? else {
        return Ok(());
    };
    rig.nic.set_port_speed(PORT, Some(10))?;
    rig.nic
        .set_port_dcbx(PORT, ieee(DcbxWilling::default(), &["udp:4791=3"]))?;
    assert_eq!(status(&rig), None, "it waits for link layer discovery");
    rig.nic.set_port_lldp(PORT, LldpMode::RxAndTx)?;
    let (none, taken) = ((0, [0, 0], Trust::Pcp), (0b10_1000, [30, 70], Trust::Both));
    assert_eq!(acts(&rig), none);
    // (A TAP device takes a moment until it is up.)
    assert!(wait_for(
        || wire.send(&switch(9, 120)).is_ok() && acts(&rig) == taken
    ));
    rig.wait_event(PORT, |kind| {
        matches!(kind, NicEventKind::DcbxChanged { outcome } if outcome.sources.pfc == DcbxSource::Peer)
    })?;
    // What the operator gave is kept beside it.
    let qos = rig.nic.qos(PORT)?;
    assert_eq!((qos.spec.pfc, qos.spec.classes), (0, Classes::default()));
    assert_eq!(qos.acting.classification.dscp_to_priority[26], 4);
    let is = status(&rig).context("DCBX")?;
    assert_eq!(
        (is.administrative.pfc, is.outcome.operational.pfc),
        (0, 0b10_1000)
    );
    assert_eq!(is.peer.context("a peer")?.pfc.map(|pfc| pfc.willing), Some(false));
    // It tells what acts, and its willing bits.
    let told = |f: &[u8], pfc: u8| {
        let end = f
            .windows(8)
            .any(|w| w[..7] == [0xfe, 6, 0, 0x80, 0xc2, 11, 0x88] && w[7] == pfc);
        f.get(12..14) == Some(&[0x88, 0xcc]) && end
    };
    wire.recv(|f| told(f, 0b10_1000))?;
    // The port obeys pause for these priorities, and for no other.
    let pause = Frame::Priorities {
        enabled: 0b0100_1000,
        quanta: [0xffff; 8],
    };
    let paused = || rig.nic.qos(PORT).map_or(0, |qos| qos.queues.paused);
    wire.send(&pause.emit(MacAddr([2, 0, 0, 0, 0, 9])))?;
    assert!(wait_for(|| paused() == 0b1000), "{:#b}", paused());
    // A second station: neither counts. It leaves.
    wire.send(&switch(10, 120))?;
    assert!(wait_for(|| acts(&rig) == none));
    assert_eq!(status(&rig).context("DCBX")?.outcome.peers, 2);
    rig.wait_event(PORT, |kind| {
        matches!(kind, NicEventKind::DcbxSeveralPeers { peers: 2 })
    })?;
    wire.send(&switch(10, 0))?;
    assert!(wait_for(|| acts(&rig) == taken));
    // Without quality of service there is no exchange.
    let disabled = QosSpec {
        disabled: true,
        ..QosSpec::default()
    };
    rig.nic.set_qos(PORT, disabled)?;
    assert_eq!((status(&rig), acts(&rig).0), (None, 0));
    rig.nic.set_qos(PORT, QosSpec::default())?;
    assert_eq!(acts(&rig), taken, "the neighbour is known");
    // The switch leaves.
    wire.send(&switch(9, 0))?;
    assert!(wait_for(|| acts(&rig) == none));
    wire.recv(|f| told(f, 0))?;
    let port = rig.nic.set_port_dcbx(PORT, DcbxSpec::default())?;
    assert_eq!(port.lldp.context("it speaks")?.dcbx, None);
    rig.finish(Copies::Unknown)
}

/// A message of a switch of CEE with these numbers, which holds for these seconds: it is not willing, has groups with 30 and 70 %, flow
/// control for priorities 3 and 5, and priority 4 for UDP or TCP port 4791.
fn switch_of_cee(sequence: u8, acknowledged: u8, ttl: u8) -> Vec<u8> {
    #[rustfmt::skip]
    let says = [
        0xfe, 55, 0x00, 0x1b, 0x21, 0x02,
        // Control.
        0x02, 0x0a, 0, 0, 0, 0, 0, sequence, 0, 0, 0, acknowledged,
        // Priority groups: priorities 3 to 7 in group 1; 30, 70; 8 classes.
        0x04, 0x11, 0, 0, 0x80, 0, 0x00, 0x01, 0x11, 0x11, 30, 70, 0, 0, 0, 0, 0, 0, 8,
        // Priority-based flow control: 3 and 5; 8 classes.
        0x06, 0x06, 0, 0, 0x80, 0, 0x28, 8,
        // Application protocol: port 4791 has 4.
        0x08, 0x0a, 0, 0, 0x80, 0, 0x12, 0xb7, 0x01, 0x1b, 0x21, 0x10,
        0x00, 0x00,
    ];
    let head = [
        0x02, 0x07, 0x04, 0x02, 0, 0, 0, 0, 9, 0x04, 0x02, 0x07, b'1', 0x06, 0x02, 0, ttl,
    ];
    let pdu = [&head[..], &says].concat();
    eth(NEAREST, MacAddr([2, 0, 0, 0, 0, 9]), [0x88, 0xcc], &pdu)
}

/// Where the TLV of CEE begins in a frame.
fn cee(frame: &[u8]) -> Option<&[u8]> {
    let at = frame.windows(4).position(|w| w == [0x00, 0x1b, 0x21, 2])?;
    frame.get(at + 4..)
}

#[test]
fn a_port_with_both_versions_speaks_that_of_a_switch() -> Result<()> {
    let Some(_veth) = Veth::several(1500, 0)? else {
        return Ok(());
    };
    let mut rig = Rig::new(1)?;
    rig.add("a")?;
    let Some(wire) = Wire::of_port(&rig, "dcbx1", None)? else {
        return Ok(());
    };
    rig.nic.set_port_speed(PORT, Some(10))?;
    let auto = DcbxSpec {
        mode: DcbxMode::Auto,
        ..DcbxSpec::default()
    };
    rig.nic.set_port_dcbx(PORT, auto)?;
    rig.nic.set_port_lldp(PORT, LldpMode::RxAndTx)?;
    let version = || Some(status(&rig)?.outcome.version);
    assert_eq!(version(), Some(DcbxVersion::Ieee));
    // The switch has read nothing: the port changes its version, and takes nothing.
    assert!(wait_for(|| {
        wire.send(&switch_of_cee(7, 0, 120)).is_ok() && version() == Some(DcbxVersion::Cee)
    }));
    assert_eq!(acts(&rig), (0, [0, 0], Trust::Pcp));
    // It says: number 1, and that it has read 7; enabled and willing, no flow control, 8 classes.
    let says = |f: &[u8]| {
        let Some(says) = cee(f) else { return false };
        says[..12] == [0x02, 0x0a, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7]
            && says.windows(8).any(|w| w == [0x06, 0x06, 0, 0, 0xc0, 0, 0, 8])
            && !f.windows(4).any(|w| w == [0x00, 0x80, 0xc2, 9])
    };
    wire.recv(says)?;
    let taken = (0b10_1000, [30, 70], Trust::Pcp);
    assert!(wait_for(|| {
        wire.send(&switch_of_cee(7, 1, 120)).is_ok() && acts(&rig) == taken
    }));
    let is = status(&rig).context("DCBX")?;
    let rows = |rows: &[dcbx::Application]| rows.iter().map(|r| (r.selector, r.priority)).collect::<Vec<_>>();
    assert_eq!(rows(&is.outcome.operational.applications), [(4, 4)]);
    assert_eq!(
        is.peer.context("a peer")?.pfc.map(|pfc| pfc.priorities),
        Some(0b10_1000)
    );
    // RDMA of adapters has the priority of its port.
    let rdma = |name: &str| rig.nic.qos(name).ok()?.rdma_priority;
    assert!(wait_for(|| rdma("a") == Some(4)));
    let qos = rig.nic.qos(PORT)?.dcbx.context("DCBX")?;
    assert_eq!((qos.0, qos.1.pfc), (DcbxVersion::Cee, DcbxSource::Peer));
    // The switch says no more of flow control (a TLV that nobody knows is in its place): the port tells an error. Applications of
    // IEEE with another length than they have are counted, and are none.
    let mut bad = switch_of_cee(7, 1, 120);
    let at = bad
        .windows(2)
        .position(|w| w == [0x06, 0x06])
        .context("flow control")?;
    (bad[at], bad[at + 1]) = (0x0a, 0x06);
    bad.truncate(bad.len() - 2);
    let twice = [
        &bad[..],
        &[0xfe, 0x06, 0x00, 0x80, 0xc2, 0x0c, 0x00, 0x85, 0x00, 0x00],
    ]
    .concat();
    wire.send(&twice)?;
    assert!(wait_for(|| acts(&rig) == (0, [30, 70], Trust::Pcp)));
    wire.recv(|f| cee(f).is_some_and(|says| says.windows(4).any(|w| w == [0, 0, 0xe0, 0])))?;
    let samples = rig.nic.counters();
    let count = |name: &str| {
        let own = |s: &&vnic_backend::Sample| s.owner == PORT && s.def.name == name;
        samples.iter().find(own).map_or(0, |s| s.value)
    };
    // Its three messages; the port's answers to the first one and to the last; what it came to with each.
    let counted = [
        "rx_dcbx_errors",
        "rx_dcbx_frames",
        "tx_dcbx_frames",
        "dcbx_changes",
    ]
    .map(count);
    let [errors, received, sent, changes] = counted;
    assert!(
        errors == 1 && received >= 3 && sent >= 2 && changes >= 3,
        "{counted:?}"
    );
    // The switch leaves, and the port begins with IEEE again.
    wire.send(&switch_of_cee(7, 1, 0))?;
    assert!(wait_for(|| version() == Some(DcbxVersion::Ieee)));
    assert_eq!(acts(&rig), (0, [0, 0], Trust::Pcp));
    assert!(wait_for(|| rdma("a").is_none()));
    rig.finish(Copies::Unknown)
}

#[test]
fn a_nic_with_limits_says_so_and_takes_no_more() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let [a, b] = [Rig::new(1)?, Rig::new(1)?];
    a.nic.limit_qos(QosLimits {
        classes: 4,
        pfc: 2,
        ..QosLimits::default()
    })?;
    add_ports(
        &veth,
        [&a, &b],
        [ieee(DcbxWilling::default(), &[]), ieee(UNWILLING, &[])],
    )?;
    b.nic.set_qos(PORT, classes(0b11_1000, [30, 70]))?;
    let most = |rig: &Rig| {
        let peer = status(rig)?.peer?;
        Some((peer.ets?.classes_max, peer.pfc?.capability))
    };
    assert!(wait_for(|| most(&b) == Some((4, 2))), "{:?}", most(&b));
    let has = |pfc, shares| {
        let (is, has, _) = acts(&a);
        (is, has) == (pfc, shares)
    };
    assert!(wait_for(|| has(0, [30, 70])), "{:?}", acts(&a));
    let why = status(&a).context("DCBX")?.outcome.problem;
    assert!(why.is_some_and(|why| why.contains("flow control")), "{why:?}");
    // More is allowed from now on.
    a.nic.limit_qos(QosLimits {
        pfc: 3,
        ..QosLimits::default()
    })?;
    assert!(wait_for(|| has(0b11_1000, [30, 70])), "{:?}", acts(&a));
    assert!(wait_for(|| most(&b) == Some((8, 3))), "{:?}", most(&b));
    for rig in [a, b] {
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

#[test]
fn two_nics_agree_by_cee() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let [mut a, b] = [Rig::new(1)?, Rig::new(1)?];
    let mode = |mode, willing| DcbxSpec {
        mode,
        willing,
        ..DcbxSpec::default()
    };
    let specs = [
        mode(DcbxMode::Auto, DcbxWilling::default()),
        mode(DcbxMode::Cee, UNWILLING),
    ];
    add_ports(&veth, [&a, &b], specs)?;
    b.nic.set_qos(PORT, classes(0b1000, [30, 70]))?;
    let taken = |rig: &Rig, pfc, shares| {
        let (is, has, _) = acts(rig);
        (is, has) == (pfc, shares)
    };
    assert!(wait_for(|| taken(&a, 0b1000, [30, 70])), "{:?}", acts(&a));
    // What b changes, a follows.
    b.nic.set_qos(PORT, classes(0b10_0000, [60, 40]))?;
    assert!(wait_for(|| taken(&a, 0b10_0000, [60, 40])));
    // Both are willing: each keeps its own, and says that they differ.
    a.nic.set_qos(PORT, classes(0b10, [50, 50]))?;
    b.nic
        .set_port_dcbx(PORT, mode(DcbxMode::Cee, DcbxWilling::default()))?;
    let differ = |rig: &Rig| status(rig).and_then(|is| is.outcome.problem).is_some();
    assert!(wait_for(|| taken(&a, 0b10, [50, 50]) && differ(&a) && differ(&b)));
    a.wait_event(
        PORT,
        |kind| matches!(kind, NicEventKind::DcbxRefused { why } if why.starts_with("flow control")),
    )?;
    // The same flow control: they do not.
    b.nic.set_qos(PORT, classes(0b10, [60, 40]))?;
    assert!(wait_for(|| !differ(&a) && !differ(&b)));
    b.nic.remove_port(PORT)?;
    assert!(wait_for(|| status(&a).is_some_and(|is| is.outcome.peers == 0)));
    assert!(taken(&a, 0b10, [50, 50]));
    a.finish(Copies::Extra(0))?;
    b.finish(Copies::Unknown)
}

#[test]
fn rows_of_applications_have_limits() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    rig.nic.add_port(veth.ports("packet", 0)?.remove(0))?;
    let row = |selector, protocol, priority| dcbx::Application {
        selector,
        protocol,
        priority,
    };
    let many: Vec<_> = (0..65).map(|n| row(3, n, 1)).collect();
    let cases: [(&[dcbx::Application], &str); 5] = [
        (&[row(0, 1, 1)], "selector 1 to 5"),
        (&[row(5, 64, 1)], "protocol 0 to 63"),
        (&[row(3, 1, 8)], "priority 0 to 7"),
        (&[row(3, 1, 7), row(3, 1, 6)], "has a row already"),
        (&many, "at most 64"),
    ];
    for (rows, why) in cases {
        let wanted = DcbxSpec {
            applications: rows.to_vec(),
            ..DcbxSpec::default()
        };
        let refused = rig.nic.set_port_dcbx(PORT, wanted).expect_err(why).to_string();
        assert!(
            refused.contains("dcbx_applications") && refused.contains(why),
            "{refused}"
        );
    }
    rig.finish(Copies::Extra(0))
}

#[test]
fn two_nics_agree() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let [mut a, mut b] = [Rig::new(1)?, Rig::new(1)?];
    let specs = [ieee(DcbxWilling::default(), &[]), ieee(UNWILLING, &["dscp:26=3"])];
    add_ports(&veth, [&a, &b], specs)?;
    b.nic.set_qos(PORT, classes(0b1000, [30, 70]))?;
    assert!(
        wait_for(|| acts(&a) == (0b1000, [30, 70], Trust::Both)),
        "{:?}",
        acts(&a)
    );
    assert_eq!(acts(&b), (0b1000, [30, 70], Trust::Pcp));
    // Both see that they have the same.
    let problem = |rig: &Rig| rig.nic.port(PORT).ok()?.lldp?.problem;
    assert!(wait_for(|| problem(&a).is_none() && problem(&b).is_none()));
    // An adapter of b pauses its senders: the port of a obeys.
    b.add("b")?;
    let paused = |rig: &Rig| rig.nic.qos(PORT).map_or(0, |qos| qos.queues.paused);
    assert_eq!(paused(&a), 0);
    b.nic.set_pause_storm("b", Some(0b1000))?;
    assert!(wait_for(|| paused(&a) == 0b1000));
    b.nic.set_pause_storm("b", None)?;
    // What b changes, a follows.
    b.nic.set_qos(PORT, classes(0b10_0000, [60, 40]))?;
    assert!(wait_for(|| acts(&a) == (0b10_0000, [60, 40], Trust::Both)));
    // Of two willing ports, the one with the lower address yields; neither recommends.
    a.nic.set_qos(PORT, classes(0b10, [50, 50]))?;
    b.nic.set_port_dcbx(PORT, ieee(DcbxWilling::default(), &[]))?;
    let mac = |rig: &Rig| rig.nic.port(PORT).ok()?.device?.mac;
    let agreed = if mac(&a) < mac(&b) { 0b10_0000 } else { 0b10 };
    assert!(wait_for(
        || acts(&a) == (agreed, [50, 50], Trust::Pcp) && acts(&b) == (agreed, [60, 40], Trust::Pcp)
    ));
    // One leaves.
    b.nic.remove_port(PORT)?;
    assert!(wait_for(|| acts(&a) == (0b10, [50, 50], Trust::Pcp)));
    a.wait_event(PORT, |kind| matches!(kind, NicEventKind::DcbxChanged { .. }))?;
    a.finish(Copies::Extra(0))?;
    b.finish(Copies::Unknown)
}

/// A program of lldpd, with the library beside it, where it is.
fn lldpd(name: &str) -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let file = dirs.map(|dir| dir.join(name)).find(|file| file.is_file())?;
    let lib = file.parent()?.parent()?.join("lib/x86_64-linux-gnu");
    Some((file, lib))
}

/// A process that ends with this, and takes its own along.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Starts lldpd on an interface. It wants a user of its own, and a directory in /run: a mount namespace has both.
fn start_lldpd(dir: &Path, ifname: &str) -> Result<Option<Ends>> {
    let Some((daemon, lib)) = lldpd("lldpd") else {
        return Ok(None);
    };
    for (file, line) in [
        ("passwd", "_lldpd:x:65533:65533::/run/lldpd:/bin/false\n"),
        ("group", "_lldpd:x:65533:\n"),
    ] {
        let all = std::fs::read_to_string(Path::new("/etc").join(file))?;
        std::fs::write(dir.join(file), all + line)?;
    }
    let script = "mount --make-rprivate / && mount --bind $DIR/passwd /etc/passwd && mount --bind $DIR/group /etc/group && \
                  mount -t tmpfs none /run && mkdir /run/lldpd && exec $LLDPD -d -u $DIR/socket -I $IF -O /dev/null -L $CLI";
    let (cli, _) = lldpd("lldpcli").context("no lldpcli")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command
        .env("DIR", dir)
        .env("LLDPD", daemon)
        .env("CLI", cli)
        .env("IF", ifname);
    command.env("LD_LIBRARY_PATH", lib);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Some(Ends(child)))
}

/// lldpd at the other end of the wire sees what the port says, and the port takes what lldpd says (whose attributes are TLVs of the
/// operator's own there, for it has no DCBX).
#[test]
fn a_stranger_is_understood() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    ip(&["link", "set", "lo", "up"])?;
    let dir = tempfile::tempdir()?;
    let [_, theirs] = ends(0);
    let Some(daemon) = start_lldpd(dir.path(), &theirs)? else {
        println!("skipped: there is no lldpd (Debian: package lldpd)");
        return Ok(());
    };
    let tool = |words: &str| -> Result<String> {
        let (cli, lib) = lldpd("lldpcli").context("no lldpcli")?;
        let mut command = Command::new(cli);
        command
            .env("LD_LIBRARY_PATH", lib)
            .arg("-u")
            .arg(dir.path().join("socket"));
        let output = command.args(words.split(' ')).output()?;
        ensure!(output.status.success(), "{words}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let rig = Rig::new(1)?;
    let spec = veth.ports("packet", 0)?.remove(0);
    rig.nic.add_port(PortSpec {
        lldp: LldpMode::RxAndTx,
        dcbx: ieee(DcbxWilling::default(), &["udp:4791=3"]),
        ..spec
    })?;
    // Priority-based Flow Control: not willing, 8 at a time, priority 3. ETS Recommendation: 20 and 80 %.
    let says = |subtype: u8, bytes: &str| {
        format!("configure ports {theirs} lldp custom-tlv oui 00,80,c2 subtype {subtype} oui-info {bytes}")
    };
    let pfc = says(11, "08,08");
    assert!(wait_for(|| tool(&pfc).is_ok()), "{:?}", tool(&pfc));
    tool(&says(
        10,
        "00,00,01,11,11,14,50,00,00,00,00,00,00,02,02,00,00,00,00,00,00",
    ))?;
    assert!(
        wait_for(|| acts(&rig) == (0b1000, [20, 80], Trust::Pcp)),
        "{:?}",
        acts(&rig)
    );
    // Willing, 8 at a time, priority 3: what acts is told.
    let sees = || {
        let text = tool("show neighbors details").unwrap_or_default();
        text.contains("SubType: 11, Len: 2 88,08") && text.contains("SubType: 12, Len: 4 00,63,12,B7")
    };
    assert!(wait_for(sees), "{:?}", tool("show neighbors details"));
    drop(daemon);
    rig.nic.set_port_lldp(PORT, LldpMode::TxOnly)?;
    assert_eq!(acts(&rig).0, 0);
    rig.finish(Copies::Extra(0))
}
