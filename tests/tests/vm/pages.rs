//! Pages of `docs/` that need nothing but a daemon: each of their commands, as it stands there, on a real one in a network namespace.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use vnic_tests::lab::guide::{Part, parts, search_path};
use vnic_tests::lab::process::Process;
use vnic_tests::lab::{self, Lab, Namespace, PATIENCE};
use vnic_verbs::{CqBuilder, Device, DeviceAddress, QueuePair, Rc};

/// Commands that go on until somebody ends them.
const FOREVER: &[&str] = &[
    "adapter watch",
    "capture live",
    "counter watch",
    "event follow",
    "qp watch",
    "top",
];

/// Two adapters, and a port on `eth0`.
const NIC: &str = "[[adapter]]\nname = \"vf0\"\n[[adapter]]\nname = \"vf1\"\n\
    [[port]]\nname = \"p0\"\ntype = \"packet\"\nifname = \"eth0\"\n";

/// A daemon in a network namespace.
struct Host<'a> {
    lab: &'a Lab,
    here: Namespace,
    /// The other ends of `eth0` and `eth1`.
    _there: Namespace,
    daemon: Process,
}

impl<'a> Host<'a> {
    /// `None`: there are no namespaces here.
    fn start(lab: &'a Lab, config: &str) -> Result<Option<Host<'a>>> {
        let (here, there) = match (Namespace::new()?, Namespace::new()?) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(why), _) | (_, Err(why)) => {
                lab::skip(lab.name(), &why);
                return Ok(None);
            }
        };
        for i in 0..2 {
            here.veth(&format!("eth{i}"), &there, &format!("far{i}"), 1500)?;
        }
        let (dir, file) = (lab.dir().display(), lab.path("vnicd.toml"));
        let place = format!("[nic]\nsocket_dir = \"{dir}\"\nstate_dir = \"{dir}/state\"\n");
        std::fs::write(&file, place + config + NIC)?;
        let mut words = here.prefix();
        words.push(lab.program("vnicd").display().to_string());
        words.extend(["--config".into(), file.display().to_string()]);
        let log = lab.log("vnicd.log");
        let mut daemon = Process::start("vnicd", &words, &log, &log)?;
        let end = Instant::now() + PATIENCE;
        while !daemon.line(end).context("waiting for `ready`")?.contains("ready") {}
        Ok(Some(Host {
            lab,
            here,
            _there: there,
            daemon,
        }))
    }

    /// Runs commands of a page; one that goes on for ever is interrupted once it had time to print.
    fn run(&self, commands: &str) -> Result<()> {
        self.said(commands).map(drop)
    }

    /// What they print.
    fn said(&self, commands: &str) -> Result<String> {
        let command = commands.split('#').next().unwrap_or_default().trim_end();
        let forever = command.ends_with(" --watch")
            || FOREVER
                .iter()
                .any(|verb| command.starts_with(&format!("vnicctl {verb}")));
        let mut bash = self.here.command("env");
        bash.arg(search_path(self.lab)?);
        if forever {
            bash.args(["timeout", "--signal=INT", "--kill-after=60", "2"]);
        }
        let endpoint = format!("unix:{}/control.sock", self.lab.dir().display());
        bash.args(["bash", "-euo", "pipefail", "-c", commands])
            .current_dir(self.lab.dir())
            .env("VNIC_ENDPOINT", endpoint);
        let output = bash.output().with_context(|| commands.to_owned())?;
        let interrupted = forever && [Some(124), Some(130)].contains(&output.status.code());
        ensure!(
            output.status.success() || interrupted,
            "{commands}\n{} {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A queue pair of a process at `vf0`.
    fn queue_pair(&self) -> Result<QueuePair<Rc>> {
        let device = Device::open(&DeviceAddress::Socket(self.lab.path("vf0-rdma.sock")))?;
        let cq = device.create_cq_with(CqBuilder::new(16))?;
        Ok(device.alloc_pd()?.qp::<Rc>(&cq, &cq).build()?)
    }

    fn end(mut self) -> Result<()> {
        self.daemon.signal(rustix::process::Signal::TERM)?;
        ensure!(self.daemon.wait(PATIENCE)?.success(), "vnicd did not end well");
        Ok(())
    }
}

/// The commands of a page, by its fences.
fn commands(page: &[Part]) -> impl Iterator<Item = &str> {
    page.iter().filter(|p| p.kind == "sh").map(|p| p.text.as_str())
}

#[test]
fn commands_by_subject() {
    lab::case("pages-commands", |lab| {
        let Some(host) = Host::start(lab, "")? else {
            return Ok(());
        };
        let page = parts("commands.md")?;
        // (Those of the simulator are run by its own tests.)
        let lines = commands(&page)
            .flat_map(str::lines)
            .filter(|line| !line.starts_with("cargo "));
        let (mut taken, mut problems, mut qp) = (0, String::new(), None);
        for line in lines {
            // The page's queue pair has another number.
            if qp.is_none() && line.starts_with("vnicctl qos pacing") {
                qp = Some(host.queue_pair()?);
            }
            let number = qp.as_ref().map_or(17, QueuePair::number);
            let line = line
                .replace(" 17 ", &format!(" {number} "))
                .replace(" 0x11 ", &format!(" {number:#x} "));
            match host.run(&line) {
                Ok(()) => taken += 1,
                Err(error) => problems += &format!("{error:#}\n"),
            }
        }
        ensure!(problems.is_empty(), "{problems}");
        ensure!(taken >= 60, "{taken} commands");
        lab.step(&format!("{taken} commands of the page"));
        drop(qp);
        host.end()
    });
}

#[test]
fn a_bump_in_the_wire() {
    lab::case("pages-wire", |lab| {
        let Some(host) = Host::start(lab, "")? else {
            return Ok(());
        };
        let page = parts("wire.md")?;
        let mut all = commands(&page);
        // (Link-local frames of the kernel may have crossed the wire already: the list's numbers are theirs.)
        for commands in &mut all {
            host.run(commands)?;
        }
        host.end()
    });
}

#[test]
fn who_may_do_what() {
    lab::case("pages-access", |lab| {
        let page = parts("access.md")?;
        let config = page
            .iter()
            .find(|p| p.kind == "toml")
            .context("a configuration")?;
        let dir = lab.dir().display().to_string();
        let config = config
            .text
            .replace("/run/vnic", &dir)
            .replace("/etc/vnic", &dir)
            .replace("groups = { kvm = \"operator\" }\n", "");
        let all = commands(&page).next().context("no commands")?;
        let (certificates, call) = all.rsplit_once("vnicctl").context("a call")?;
        std::fs::write(lab.path("ca.sh"), certificates)?;
        let mut bash = std::process::Command::new("bash");
        lab::output(bash.args(["-eu", "ca.sh"]).current_dir(lab.dir()))?;
        let Some(host) = Host::start(lab, &config)? else {
            return Ok(());
        };
        host.run(&format!("vnicctl{call}"))?;
        ensure!(
            host.run(&format!(
                "vnicctl{}",
                call.replace("--tls-cert ops.pem", "--tls-cert server.pem")
                    .replace("ops.key", "server.key")
            ))
            .is_err(),
            "a name that the page does not list is let in"
        );
        lab.step("the page's certificates let in whom they name");
        host.end()
    });
}

/// A command of `docs/attach.md` with these words; what the page leaves open (`…`) is `rest`.
fn attach_command(lab: &Lab, words: &str, rest: &str) -> Result<String> {
    let page = parts("attach.md")?;
    let program = words.split(' ').next().unwrap_or_default();
    let block = commands(&page)
        .find(|text| text.starts_with(program) && words.split(' ').all(|word| text.contains(word)))
        .with_context(|| format!("the page has no {words}"))?;
    let mut command = String::new();
    for line in block.lines() {
        command += line.trim_end_matches('\\');
        if !line.ends_with('\\') {
            break;
        }
    }
    Ok(command
        .replace("/run/vnic", &lab.dir().display().to_string())
        .replace("02:…", "02:00:00:00:0a:01")
        .replace('…', rest))
}

/// Starts a program in the background until the adapter says that it is attached, by `line` of `adapter show`; then ends it.
fn attaches(host: &Host<'_>, name: &str, line: &str, command: &str) -> Result<()> {
    let log = host.lab.log(&format!("{name}.log"));
    let words = ["bash", "-c", &format!("exec {command}")].map(str::to_owned);
    let mut program = Process::start(name, &words, &log, &log)?;
    let attached = |wanted: bool| {
        lab::wait_for(&format!("{name}: {command}"), PATIENCE, || {
            let shown = host.said("vnicctl adapter show vf0")?;
            let state = shown.lines().find(|l| l.starts_with(line)).context("no state")?;
            ensure!(state.contains("detached") != wanted, "{state}");
            Ok(())
        })
    };
    attached(true)?;
    program.signal(rustix::process::Signal::KILL)?;
    program.wait(PATIENCE)?;
    attached(false)?;
    host.lab.step(&format!("{name} attaches as the page says"));
    Ok(())
}

// (User-Mode-Linux and DPDK attach in the modules of their own.)
#[test]
fn qemu_attaches_as_the_page_says() {
    lab::case("pages-attach", |lab| {
        let Some(host) = Host::start(lab, "")? else {
            return Ok(());
        };
        let quiet = "-m 1G -nodefaults -display none -S";
        let command = attach_command(lab, "qemu-system-x86_64 vf0-eth", quiet)?;
        attaches(&host, "qemu", "state ", &command)?;
        let command = attach_command(lab, "qemu-system-x86_64 vf0-rdma", quiet)?;
        // (Memory as above, says the page.)
        let memory = "-object memory-backend-memfd,id=mem,size=1G,share=on -machine memory-backend=mem";
        let command = command.replacen("qemu-system-x86_64", &format!("{} {memory}", lab.qemu11()?), 1);
        attaches(&host, "qemu11", "rdma function ", &command)?;
        host.end()
    });
}
