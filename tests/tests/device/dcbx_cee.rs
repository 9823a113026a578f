//! Data center bridging exchange of CEE with a stranger: Open-LLDP's lldpad at the other end of a pair of network devices.
//!
//! lldpad's state machines, its TLVs and its rules of priorities and groups are its own, and dcbtool(8) sets and shows them as an operator
//! does. lldpad speaks CEE only on devices whose driver has DCB, and a veth has none. So a library
//! (`dcbx_cee/driver.c`) is preloaded into lldpad and answers its requests of rtnetlink for DCB in the place of the kernel and of a
//! card's driver; it notes what lldpad gives the hardware. Frames and all else go through the kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vnic_backend::settings::Trust;
use vnic_backend::{
    ApplicationRow, DcbxMode, DcbxSource, DcbxSources, DcbxSpec, DcbxVersion, DcbxWilling, LldpMode,
    PortSpec, QosSpec, dcbx,
};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::veth::{Veth, ends, ip};

use crate::dcbx::{PORT, UNWILLING, acts, classes, status};
use crate::lldp::{Ends, lldpad, said};

/// lldpad on the other end of the wire.
struct Stranger {
    dir: TempDir,
    ifname: String,
    _daemon: Ends,
}

/// Compiles the driver.
fn driver(into: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/device/dcbx_cee/driver.c");
    let library = into.join("driver.so");
    let out = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output()
        .context("a C compiler")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(library)
}

impl Stranger {
    /// Starts it; `None` where there is none. `forced`: it begins with CEE, and not with IEEE 802.1Qaz until it hears CEE only.
    fn start(forced: bool) -> Result<Option<Stranger>> {
        let Some(daemon) = lldpad("lldpad") else {
            println!("skipped: there is no lldpad (Debian 13: package lldpad)");
            return Ok(None);
        };
        let version = Command::new(daemon.get_program()).arg("-v").output()?.stdout;
        if String::from_utf8_lossy(&version).contains("v1.2.99") {
            println!("skipped: lldpad of Debian 12 forgets a network device when it first sends DCBX of CEE");
            return Ok(None);
        }
        ip(&["link", "set", "lo", "up"])?;
        let dir = tempfile::tempdir()?;
        let ifname = ends(0)[1].clone();
        let conf = dir.path().join("lldpad.conf");
        // 2 is CEE, 4 the bit of dcbtool's `force-cee`.
        let version = if forced { 2 | 4 } else { 2 };
        std::fs::write(
            &conf,
            format!("dcbx : {{ version = \"1.0\"; dcbx_version = {version}; }};\n"),
        )?;
        // It does not start beside another, and goes on with what one has left: a file in /dev/shm says so.
        let script = "mount --make-rprivate / && mount -t tmpfs none /dev/shm && \
                      exec env LD_PRELOAD=\"$DRIVER\" \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script])
            .arg(daemon.get_program());
        command
            .env("DRIVER", driver(dir.path())?)
            .env("VNIC_DCB_DEVICE", &ifname)
            .env("VNIC_DCB_RECORD", dir.path().join("record"));
        command.arg("-p").arg("-f").arg(conf);
        let daemon = Ends(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let new = Stranger {
            dir,
            ifname,
            _daemon: daemon,
        };
        ensure!(
            wait_for(|| new.tool("gc", "pfc").is_ok()),
            "{:?}",
            new.tool("gc", "pfc")
        );
        Ok(Some(new))
    }

    /// What dcbtool answers: values by their names.
    fn tool(&self, command: &str, words: &str) -> Result<BTreeMap<String, String>> {
        let words: Vec<&str> = [command, &self.ifname]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        let text = said(lldpad("dcbtool").context("no dcbtool")?, &words)?;
        let line = |line: &str| {
            let (name, value) = line.split_once(':')?;
            let value: Vec<&str> = value.split_whitespace().collect();
            Some((name.into(), value.join(" ")))
        };
        let all: BTreeMap<String, String> = text.lines().filter_map(line).collect();
        ensure!(
            all.get("Status").is_some_and(|s| s == "Successful"),
            "{words:?}: {text}"
        );
        Ok(all)
    }

    /// A value of what a feature came to.
    fn operates(&self, feature: &str, name: &str) -> Option<String> {
        self.tool("go", feature).ok()?.remove(name)
    }

    /// Waits until a feature operates without errors, and a value is this.
    fn comes_to(&self, feature: &str, name: &str, value: &str) {
        let has = || {
            let is = self.tool("go", feature).unwrap_or_default();
            [("Oper Mode", "true"), ("Errors", "0x00 - none"), (name, value)]
                .iter()
                .all(|(name, value)| is.get(*name).is_some_and(|is| is == value))
        };
        assert!(wait_for(has), "{name} {value}: {:?}", self.tool("go", feature));
    }

    /// Waits until it has given its hardware these values.
    fn gives_its_hardware(&self, values: &[(&str, &str)]) {
        let has = || {
            let is = self.hardware();
            values
                .iter()
                .all(|(kind, value)| is.get(*kind).is_some_and(|is| is == value))
        };
        assert!(wait_for(has), "{values:?}: {:?}", self.hardware());
    }

    /// What it gave the hardware last and let act, by its kind (for applications with the protocol).
    fn hardware(&self) -> BTreeMap<String, String> {
        let text = std::fs::read_to_string(self.dir.path().join("record")).unwrap_or_default();
        let acts = text.rsplit_once("all\n").map_or("", |(before, _)| before);
        let line = |line: &str| {
            let (kind, value) = match line.strip_prefix("app ") {
                Some(_) => line.rsplit_once(' ')?,
                None => line.split_once(' ')?,
            };
            Some((kind.into(), value.into()))
        };
        acts.lines().filter_map(line).collect()
    }
}

/// Protocols of applications that lldpad knows, with their selectors.
const FCOE: (u8, u16) = (1, 0x8906);
const FIP: (u8, u16) = (1, 0x8914);
const ISCSI: (u8, u16) = (4, 3260);

fn add_port(veth: &Veth, rig: &Rig, mode: DcbxMode, willing: DcbxWilling, rows: &[&str]) -> Result<()> {
    let rows = rows
        .iter()
        .map(|row| row.parse::<ApplicationRow>().expect("a row").0);
    rig.nic.add_port(PortSpec {
        lldp: LldpMode::RxAndTx,
        dcbx: DcbxSpec {
            mode,
            willing,
            applications: rows.collect(),
        },
        speed_mbps: Some(10),
        ..veth.ports("packet", 0)?.remove(0)
    })?;
    Ok(())
}

/// The version, whose values act, applications that do (selector, protocol, priority), and what is in error.
type CameTo = (DcbxVersion, DcbxSources, Vec<(u8, u16, u8)>, Option<&'static str>);

fn came_to(rig: &Rig) -> Option<CameTo> {
    let is = status(rig)?.outcome;
    let row = |row: &dcbx::Application| (row.selector, row.protocol, row.priority);
    let rows = is.operational.applications.iter().map(row).collect();
    Some((is.version, is.sources, rows, is.problem))
}

/// lldpad begins with CEE. A port that has both versions, and names RoCE only, changes to CEE and takes all that lldpad has; both ends
/// say that they agree, and that they do not when they do not.
#[test]
fn a_willing_port_takes_what_a_stranger_has() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let Some(stranger) = Stranger::start(true)? else {
        return Ok(());
    };
    let set = |feature: &str| stranger.tool("sc", feature);
    set("pfc e:1 a:1 w:0 pfcup:00010100")?;
    set("pg e:1 a:1 w:0 pgid:00011111 pgpct:30,70,0,0,0,0,0,0")?;
    for (name, priorities) in [("fcoe", "08"), ("iscsi", "10"), ("fip", "08")] {
        set(&format!("app:{name} e:1 a:1 w:0 appcfg:{priorities}"))?;
    }
    let rig = Rig::new(1)?;
    add_port(
        &veth,
        &rig,
        DcbxMode::Auto,
        DcbxWilling::default(),
        &["udp:4791=5"],
    )?;
    let agreed = (0b10_1000, [30, 70], Trust::Pcp);
    let all = DcbxSources {
        ets: DcbxSource::Peer,
        pfc: DcbxSource::Peer,
        applications: DcbxSource::Peer,
    };
    let rows = [(FCOE, 3), (ISCSI, 4), (FIP, 3)].map(|((selector, protocol), p)| (selector, protocol, p));
    let taken = Some((DcbxVersion::Cee, all, rows.to_vec(), None));
    assert!(
        wait_for(|| acts(&rig) == agreed && came_to(&rig) == taken),
        "{:?} {:?}",
        acts(&rig),
        came_to(&rig)
    );
    stranger.comes_to("pfc", "pfcup", "0 0 0 1 0 1 0 0");
    stranger.comes_to("pg", "pgid", "0 0 0 1 1 1 1 1");
    stranger.comes_to("pg", "pgpct", "30% 70% 0% 0% 0% 0% 0% 0%");
    stranger.comes_to("app:fcoe", "appcfg", "08");
    stranger.comes_to("app:iscsi", "appcfg", "10");
    stranger.comes_to("app:fip", "appcfg", "08");
    // What lldpad's operator changes, the port follows.
    set("pfc pfcup:00000010")?;
    set("pg pgpct:60,40,0,0,0,0,0,0")?;
    set("app:iscsi appcfg:20")?;
    let iscsi = || came_to(&rig).and_then(|is| is.2.iter().find(|row| row.1 == ISCSI.1).map(|row| row.2));
    assert!(
        wait_for(|| acts(&rig) == (0b100_0000, [60, 40], Trust::Pcp) && iscsi() == Some(5)),
        "{:?} {:?}",
        acts(&rig),
        came_to(&rig)
    );
    // Both ends are willing, and have other priorities: both say so, and each keeps its own.
    set("pfc w:1")?;
    let problem = || status(&rig)?.outcome.problem;
    assert!(wait_for(
        || acts(&rig).0 == 0 && problem().is_some_and(|why| why.starts_with("flow control"))
    ));
    let errors = || stranger.operates("pfc", "Errors");
    let differ = || errors().is_some_and(|is| is.contains("mismatch with peer") && is.contains("peer error"));
    assert!(wait_for(differ), "{:?}", errors());
    let qos = rig.nic.qos(PORT)?.spec;
    rig.nic.set_qos(
        PORT,
        QosSpec {
            pfc: 0b100_0000,
            ..qos
        },
    )?;
    assert!(wait_for(|| acts(&rig).0 == 0b100_0000 && problem().is_none()));
    stranger.comes_to("pfc", "pfcup", "0 0 0 0 0 0 1 0");
    rig.finish(Copies::Extra(0))
}

/// lldpad begins with IEEE 802.1Qaz, hears a port that has CEE only, and takes all that it has, to its hardware.
#[test]
fn a_willing_stranger_takes_what_a_port_has() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let Some(stranger) = Stranger::start(false)? else {
        return Ok(());
    };
    let rig = Rig::new(1)?;
    let rows = [
        "ethertype:0x8906=5",
        "ethertype:0x8914=5",
        "tcp:3260=6",
        "udp:4791=3",
    ];
    add_port(&veth, &rig, DcbxMode::Cee, UNWILLING, &rows)?;
    rig.nic.set_qos(PORT, classes(0b10_1000, [30, 70]))?;
    stranger.comes_to("pfc", "pfcup", "0 0 0 1 0 1 0 0");
    stranger.comes_to("pg", "pgid", "0 0 0 1 1 1 1 1");
    stranger.comes_to("pg", "pgpct", "30% 70% 0% 0% 0% 0% 0% 0%");
    stranger.comes_to("app:fcoe", "appcfg", "20");
    stranger.comes_to("app:fip", "appcfg", "20");
    stranger.comes_to("app:iscsi", "appcfg", "40");
    stranger.gives_its_hardware(&[
        ("pfc", "28"),
        ("pfc_state", "1"),
        ("tx", "07:30 f8:70 00:0 00:0 00:0 00:0 00:0 00:0"),
        ("app 0 8906", "20"),
        ("app 1 0cbc", "40"),
    ]);
    // What the port's operator changes, lldpad follows: priority 7 goes before all others.
    let mut strict = classes(0b100_0000, [60, 40]);
    strict.classes.of_priority[7] = 2;
    rig.nic.set_qos(PORT, strict)?;
    stranger.comes_to("pfc", "pfcup", "0 0 0 0 0 0 1 0");
    stranger.comes_to("pg", "pgpct", "60% 40% 0% 0% 0% 0% 0% 0%");
    stranger.comes_to("pg", "pgid", "0 0 0 1 1 1 1 F");
    stranger.gives_its_hardware(&[("pfc", "40"), ("tx", "07:60 78:40 80:0 00:0 00:0 00:0 00:0 00:0")]);
    let own = (DcbxVersion::Cee, DcbxSources::default(), None);
    assert_eq!(came_to(&rig).map(|is| (is.0, is.1, is.3)), Some(own));
    rig.finish(Copies::Extra(0))
}
