//! libvirt as it is on a host with Debian: the daemon is root's, machines run as user `libvirt-qemu`.
//!
//! It lives in namespaces of its own, with its directories, and with this user, in the directory of the case: two runs never meet, the
//! machine that we are on need not be a host of libvirt's, and with the first process of the PID namespace all of it is gone.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::process::Process;
use super::{Guest, GuestSpec, Lab, PATIENCE, accelerator, output, wait_for};

/// User as whom its machines run, and the user's group.
pub const USER: u32 = 64055;
/// A group of which that user is a member, unless `/dev/kvm` has one.
const GROUP: u32 = 64056;

/// No relabelling, no cgroups, no namespaces within: it changes files below its own directories only.
const QEMU_CONF: &str = "dynamic_ownership = 0\nremember_owner = 0\nsecurity_driver = \"none\"\nnamespaces = []\n\
                         cgroup_controllers = []\nstdio_handler = \"file\"\n";
/// What the first process of the PID namespace runs: it stays, and waits for all that end there.
const INSIDE: &str = r#"
set -e
for pair in etc=/etc/libvirt lib=/var/lib/libvirt run=/run log=/var/log/libvirt cache=/var/cache/libvirt; do
    mkdir -p "${pair#*=}"
    mount --bind "$0/${pair%%=*}" "${pair#*=}"
done
mount --bind "$0/passwd" /etc/passwd
mount --bind "$0/group" /etc/group
ip link set lo up
libvirtd &
wait
"#;

/// A running libvirtd. It and its machines are killed on drop.
#[derive(Debug)]
pub struct Libvirt {
    _process: Process,
}

impl Libvirt {
    /// Starts it. `Err` within: this machine gives us no namespaces, and why.
    pub fn start(lab: &Lab) -> Result<Result<Libvirt, String>> {
        let unshare = "--mount --net --pid --fork --kill-child --mount-proc";
        let probe = Command::new("unshare")
            .args(unshare.split(' '))
            .arg("true")
            .output()?;
        if !probe.status.success() {
            let why = String::from_utf8_lossy(&probe.stderr);
            return Ok(Err(format!("no namespaces: {}", why.trim())));
        }
        let dir = lab.path("libvirt");
        // (Machines come past directories that they cannot read.)
        fs::set_permissions(lab.dir(), Permissions::from_mode(0o711))?;
        for below in ["etc", "lib", "run", "log", "cache"] {
            fs::create_dir_all(dir.join(below))?;
        }
        fs::write(dir.join("etc/qemu.conf"), QEMU_CONF)?;
        fs::write(
            dir.join("etc/libvirtd.conf"),
            "auth_unix_rw = \"none\"\nunix_sock_group = \"root\"\n",
        )?;
        let with = |file: &str, lines: String| -> Result<()> {
            let text = fs::read_to_string(Path::new("/etc").join(file))?;
            // The first line of a name or number counts.
            Ok(fs::write(dir.join(file), lines + &text)?)
        };
        with(
            "passwd",
            format!("libvirt-qemu:x:{USER}:{USER}::/var/lib/libvirt:/usr/sbin/nologin\n"),
        )?;
        with(
            "group",
            format!("libvirt-qemu:x:{USER}:\nvnic-lab:x:{}:libvirt-qemu\n", group()),
        )?;
        for image in ["vmlinuz", "initramfs.cpio"] {
            fs::copy(lab.image(image), dir.join(image))?;
            fs::set_permissions(dir.join(image), Permissions::from_mode(0o644))?;
        }
        let mut words = vec!["unshare"];
        words.extend(unshare.split(' '));
        let place = dir.display().to_string();
        words.extend(["sh", "-c", INSIDE, &place]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let log = lab.log("libvirtd.log");
        let libvirt = Libvirt {
            _process: Process::start("libvirtd", &words, &log, &log)?,
        };
        wait_for("libvirtd", PATIENCE, || virsh(lab, &["version"]).map(|_| ()))?;
        Ok(Ok(libvirt))
    }

    /// Starts a machine. `domain` is the domain's XML, with `…` for what the lab says: the rest of the machine, its serial lines, and
    /// the end of the address. [`Guest::wait_ready`] waits for it.
    pub fn machine(lab: &Lab, spec: &GuestSpec, domain: &str) -> Result<Guest> {
        let name = &spec.name;
        let dir = lab.path("libvirt");
        let shown = dir.display();
        for pipe in ["console.in", "console.out", "agent.in", "agent.out"] {
            let path = dir.join(format!("{name}-{pipe}"));
            output(Command::new("mkfifo").arg("--mode=0600").arg(&path))?;
            chown(&path, Some(USER), None)?;
        }
        let kernel = spec.kernel_arguments("ttyS1").join(" ");
        let machine = format!(
            "<name>{name}</name><memory unit='MiB'>256</memory><features><acpi/></features>
            <os><type machine='q35'>hvm</type><kernel>{shown}/vmlinuz</kernel><initrd>{shown}/initramfs.cpio</initrd>
            <cmdline>console=ttyS0 panic=-1 {kernel}</cmdline></os><on_reboot>destroy</on_reboot>"
        );
        let lines = ["console", "agent"]
            .map(|line| format!("<serial type='pipe'><source path='{shown}/{name}-{line}'/></serial>"))
            .concat();
        let (begin, domain) = domain.split_once('…').context("no place for the machine")?;
        let (memory, domain) = domain.split_once('…').context("no place for its serial lines")?;
        let xml = format!("{begin}{machine}{memory}<controller type='usb' model='none'/>{lines}{domain}");
        let mut xml = xml
            .replace("02:…", &spec.mac)
            .replace("/run/vnic/vf0-eth.sock", &spec.socket.display().to_string());
        if accelerator()? == "kvm" {
            let (before, rest) = xml.split_once("<qemu:override>").context("no override")?;
            let (_, after) = rest.split_once("</qemu:override>").context("no override's end")?;
            xml = format!("{before}{after}");
        } else {
            xml = xml.replace("type='kvm'", "type='qemu'");
        }
        ensure!(!xml.contains('…'), "something is left to say:\n{xml}");
        let file = lab.log(&format!("{name}.xml"));
        fs::write(&file, xml)?;
        // It holds both ends of its pipes, and so opens them for us, whoever comes first.
        let console = lab.log(&format!("{name}-console.log"));
        let pipes = format!(
            "cat '{shown}/{name}-console.out' >'{}' & cat '{shown}/{name}-agent.out' & exec cat >'{shown}/{name}-agent.in'",
            console.display()
        );
        let guest = Guest::start(lab, name, &["sh", "-c", &pipes].map(str::to_owned))?;
        virsh(lab, &["create", &file.display().to_string()])?;
        Ok(guest)
    }
}

/// The group by which the machines' user may open what is not its own: `/dev/kvm`, too, where there is one.
pub fn group() -> u32 {
    fs::metadata("/dev/kvm").map_or(GROUP, |kvm| kvm.gid())
}

/// `virsh`, which must succeed. What waits for ever ends with the lab's patience.
pub fn virsh(lab: &Lab, words: &[&str]) -> Result<String> {
    let socket = lab.path("libvirt/run/libvirt/libvirt-sock");
    output(
        Command::new("timeout")
            .arg(PATIENCE.as_secs().to_string())
            .args(["virsh", "-c"])
            .arg(format!("qemu+unix:///system?socket={}", socket.display()))
            .args(words),
    )
}
