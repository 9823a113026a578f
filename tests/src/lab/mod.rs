//! The lab: the real daemon, real virtual machines, and a shell in each of them.
//!
//! End-to-end cases need release binaries, a guest kernel and an initramfs. `tests/run` prepares these and sets
//! `VNIC_BIN_DIR`; without that variable a case says that it is skipped, and passes. Nothing here is judged
//! by the clock: deadlines only end what hangs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

pub mod built;
pub mod bump;
pub mod daemon;
pub mod guest;
pub mod guide;
pub mod hosts;
pub mod libvirt;
pub mod load;
pub mod mesh;
pub mod namespace;
pub mod own_process;
pub mod pair;
pub mod process;
pub mod qmp;
pub mod report;
pub mod roce_host;
pub mod rxe;
pub mod station;
pub mod tool;
pub mod wire_port;

pub use built::built;
pub use bump::Wire;
pub use daemon::Daemon;
pub use guest::{Guest, GuestSpec};
pub use hosts::Host;
pub use libvirt::Libvirt;
pub use mesh::{MESH_ENDS, mesh_certificates, mesh_port};
pub use namespace::Namespace;
pub use own_process::own_process;
pub use pair::{Pair, iperf, ping};
pub use qmp::Qmp;
pub use report::{Iperf, Ping};
pub use roce_host::RoceHost;
pub use rxe::RxePeer;
pub use station::{Driven, Station};
pub use tool::Tool;
pub use wire_port::WirePort;

/// Says where the binaries are, and that end-to-end cases shall run.
pub const BIN_DIR_VARIABLE: &str = "VNIC_BIN_DIR";
/// A file that gets one line for each skipped case.
pub const SKIP_LOG_VARIABLE: &str = "VNIC_SKIP_LOG";

/// What lets programs that use libibverbs find our device.
pub const VERBS_PROGRAMS: [&str; 3] = ["vnic-guest", "vnic-verbs", "libvnic_ibverbs.so"];

/// For what ends by itself within a second on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Directories of one end-to-end case.
#[derive(Debug)]
pub struct Lab {
    name: &'static str,
    // Sockets: a path that fits into `sockaddr_un`, removed at the end.
    dir: TempDir,
    bin: PathBuf,
    logs: PathBuf,
    images: PathBuf,
    started: Instant,
}

/// Runs an end-to-end case, or says why not. Panics with the case's error and the tails of all logs.
pub fn case(name: &'static str, body: impl FnOnce(&Lab) -> Result<()>) {
    let Some(bin) = std::env::var_os(BIN_DIR_VARIABLE) else {
        skip(
            name,
            "it needs the lab; `tests/run e2e` prepares it and runs this",
        );
        return;
    };
    let lab = Lab::open(name, PathBuf::from(bin)).unwrap_or_else(|e| panic!("{name}: {e:#}"));
    if let Err(error) = body(&lab) {
        say(&format!("{name} FAILED: {error:#}\n{}", lab.log_tails()));
        panic!("{name}: {error:#}");
    }
    say(&format!("{name}: passed after {}", lab.elapsed()));
}

/// Says, loudly, that a case did not run.
pub fn skip(name: &str, why: &str) {
    say(&format!("SKIPPED {name}: {why}"));
    if let Some(path) = std::env::var_os(SKIP_LOG_VARIABLE) {
        let line = format!("{name}: {why}\n");
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut f| f.write_all(line.as_bytes())) {
            say(&format!("the skip could not be noted: {error}"));
        }
    }
}

/// Prints a line that the test harness does not swallow.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Waits until `probe` gives something; its last error is the reason when the patience ends.
pub fn wait_for<T>(what: &str, patience: Duration, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + patience;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= end => {
                return Err(error.context(format!("{what}: not within {patience:?}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The top of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
        .to_owned()
}

/// Runs a program to its end and gives what it printed; it must succeed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The accelerator of QEMU that works here.
pub fn accelerator() -> Result<&'static str> {
    static ACCEL: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    ACCEL
        .get_or_init(|| {
            output(&mut Command::new(checkout().join("deploy/guest/accel")))
                .map(|text| text.trim().to_owned())
                .map_err(|e| format!("{e:#}"))
        })
        .as_deref()
        .map_err(|e| anyhow::anyhow!("no accelerator: {e}"))
}

impl Lab {
    fn open(name: &'static str, bin: PathBuf) -> Result<Lab> {
        for program in ["vnicd", "vnicctl"] {
            let path = bin.join(program);
            ensure!(
                path.is_file(),
                "{BIN_DIR_VARIABLE} is set, but there is no {}",
                path.display()
            );
        }
        Lab::prepare(name, bin)
    }

    /// Without a daemon: for a bench, whose guests are on devices of its own.
    pub fn of_guests(name: &'static str) -> Result<Lab> {
        let program = std::env::current_exe()?;
        let bin = program.parent().context("this program is in no directory")?;
        Lab::prepare(name, bin.to_owned())
    }

    fn prepare(name: &'static str, bin: PathBuf) -> Result<Lab> {
        let build = checkout().join("deploy/guest/build");
        output(&mut Command::new(&build)).context("the guest image cannot be built")?;
        let images = output(Command::new(&build).arg("--print"))?;
        let Some(images) = images.lines().next().and_then(|l| Path::new(l).parent()) else {
            bail!("{} --print says nothing", build.display());
        };
        let logs = images.join("logs").join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        Ok(Lab {
            name,
            dir: tempfile::Builder::new().prefix("vnic-").tempdir_in("/tmp")?,
            bin,
            images: images.to_owned(),
            logs,
            started: Instant::now(),
        })
    }

    /// The case's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Directory for sockets; removed at the end.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in [`Lab::dir`].
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// A file that stays.
    pub fn log(&self, file: &str) -> PathBuf {
        self.logs.join(file)
    }

    /// One of our programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Makes the initramfs with Soft-RoCE, which most cases do without.
    pub(crate) fn rxe_image(&self) -> Result<()> {
        output(Command::new(checkout().join("deploy/guest/build")).arg("--rxe"))
            .context("the guest image with Soft-RoCE cannot be built")?;
        Ok(())
    }

    /// `vmlinuz`, `initramfs.cpio` or `initramfs-rxe.cpio`.
    pub fn image(&self, name: &str) -> PathBuf {
        self.images.join(name)
    }

    /// A guest image with some of our programs in it.
    pub(crate) fn image_with(&self, base: &str, programs: &[&str]) -> Result<PathBuf> {
        let image = self.path(&format!("{base}-{}.cpio", programs.join("-")));
        if !image.exists() {
            output(
                Command::new(checkout().join("deploy/guest/add"))
                    .args(["--base", base])
                    .arg(&image)
                    .args(programs.iter().map(|p| self.program(p))),
            )
            .with_context(|| format!("no guest image with {programs:?}"))?;
        }
        Ok(image)
    }

    /// The guest image with Debian's programs for verbs, and ours.
    pub(crate) fn verbs_image(&self) -> Result<PathBuf> {
        output(Command::new(checkout().join("deploy/guest/build")).arg("--verbs"))
            .context("the guest image with programs for verbs cannot be built")?;
        self.image_with("initramfs-verbs", &VERBS_PROGRAMS)
    }

    /// The QEMU for guests with an RDMA function. Fetched if it is not there.
    pub fn qemu11(&self) -> Result<String> {
        let path = output(&mut Command::new(checkout().join("deploy/guest/qemu11")))
            .context("QEMU 11 cannot be had")?;
        Ok(path.trim().to_owned())
    }

    /// Prints a step of the case, with the time since its start.
    pub fn step(&self, text: &str) {
        say(&format!("{} [{:>6}] {text}", self.name, self.elapsed()));
    }

    fn elapsed(&self) -> String {
        format!("{:.1} s", self.started.elapsed().as_secs_f64())
    }

    fn log_tails(&self) -> String {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.logs)
            .map(|dir| dir.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        files.sort();
        let mut text = String::new();
        for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "log")) {
            text.push_str(&format!("---- end of {}\n{}", file.display(), tail(file, 25)));
        }
        text
    }
}

/// The last lines of a file.
fn tail(file: &Path, lines: usize) -> String {
    let content = fs::read(file).unwrap_or_default();
    let content = String::from_utf8_lossy(&content);
    let all: Vec<&str> = content.lines().collect();
    let mut text = all[all.len().saturating_sub(lines)..].join("\n");
    text.push('\n');
    text
}
