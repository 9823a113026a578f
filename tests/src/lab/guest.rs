//! Virtual machines with a shell.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use super::process::Process;
use super::{Lab, accelerator};

/// An emulated machine on a busy host may need this long to come up.
const BOOT_PATIENCE: Duration = Duration::from_secs(400);
/// The RDMA function, under the alias id (SPEC section 2.1): three virtqueues, for commands, events and kicks.
const RDMA_DEVICE: &str = "-device vhost-user-test-device-pci,id=roce,chardev=rdma,virtio-id=38,num_vqs=3,vq_size=128,config_size=64";
/// Hugepages (2 MiB) of a guest with an RDMA function.
const HUGEPAGES: u32 = 64;
/// How long a command in a guest may take where nothing else is said.
const COMMAND_PATIENCE: Duration = Duration::from_secs(300);

/// What a guest is made from.
#[derive(Debug, Clone)]
pub struct GuestSpec {
    /// Its name, in logs and as host name.
    pub name: String,
    /// The vhost-user socket of its adapter.
    pub socket: PathBuf,
    /// The adapter's address.
    pub mac: String,
    /// Address of eth0, with the length of the prefix.
    pub ip: String,
    /// Another address of eth0 (IPv6).
    pub ip6: Option<String>,
    /// MTU of eth0.
    pub mtu: u16,
    /// Queue pairs, and as many virtual CPUs (QEMU only).
    pub queue_pairs: u16,
    /// Its Ethernet function has its own configuration space and control queue, as that of its adapter says: QEMU's generic vhost-user
    /// device, by the QEMU of `deploy/guest/qemu11`.
    pub control_queue: bool,
    /// QEMU listens on the socket, and the daemon connects to it.
    pub listens: bool,
    /// The image with Soft-RoCE, and a device `rxe0` on eth0 (QEMU only; see [`super::rxe`]).
    pub rxe: bool,
    /// The vhost-user socket of its RDMA function (QEMU only). The guest then has `vnic-guest`, the modules and the
    /// hugepages that it needs; the QEMU is the one of `deploy/guest/qemu11`.
    pub rdma: Option<PathBuf>,
    /// Programs of ours in its image, of those that `rdma` and `verbs` do not bring.
    pub programs: &'static [&'static str],
    /// The image with programs that use libibverbs, our library and its launcher, and Soft-RoCE's modules.
    pub verbs: bool,
    /// A reboot starts it anew and does not end it (QEMU only).
    pub reboots: bool,
    /// The QEMU of `deploy/guest/qemu11`, whatever the guest has (QEMU only).
    pub newest: bool,
    /// More options of QEMU, such as that of a monitor ([`super::Qmp`]).
    pub more: Vec<String>,
    /// More properties of QEMU's network device, such as `guest_tso4=off`.
    pub device: Vec<String>,
}

impl GuestSpec {
    /// A guest on a socket.
    pub fn new(name: &str, socket: &Path, mac: &str, ip: &str) -> GuestSpec {
        GuestSpec {
            name: name.to_owned(),
            socket: socket.to_owned(),
            mac: mac.to_owned(),
            ip: ip.to_owned(),
            ip6: None,
            mtu: 1500,
            queue_pairs: 1,
            control_queue: false,
            listens: false,
            rxe: false,
            rdma: None,
            programs: &[],
            verbs: false,
            reboots: false,
            newest: false,
            more: Vec::new(),
            device: Vec::new(),
        }
    }

    /// What `deploy/guest/init` reads.
    pub(super) fn kernel_arguments(&self, agent: &str) -> Vec<String> {
        let mut arguments = vec![
            format!("vnic.name={}", self.name),
            format!("vnic.ip={}", self.ip),
            format!("vnic.mac={}", self.mac),
            format!("vnic.agent={agent}"),
            "vnic.iperf=1".to_owned(),
        ];
        arguments.extend(self.ip6.iter().map(|ip| format!("vnic.ip6={ip}")));
        if self.queue_pairs > 1 {
            arguments.push(format!("vnic.pairs={}", self.queue_pairs));
        }
        if self.rxe {
            arguments.push("vnic.rxe=1".to_owned());
        }
        if self.rdma.is_some() {
            arguments.push(format!("vnic.rdma=1 hugepages={HUGEPAGES}"));
        }
        arguments
    }
}

/// A running virtual machine. Killed on drop.
#[derive(Debug)]
pub struct Guest {
    name: String,
    process: Process,
}

impl Guest {
    /// Starts a QEMU machine; [`Guest::wait_ready`] waits for it.
    pub fn qemu(lab: &Lab, spec: &GuestSpec) -> Result<Guest> {
        let accel = accelerator()?;
        let GuestSpec {
            name, queue_pairs, ..
        } = spec;
        let newest = spec.newest || spec.rdma.is_some() || spec.control_queue;
        let qemu = match newest {
            true => lab.qemu11()?,
            false => "qemu-system-x86_64".to_owned(),
        };
        let console = lab.log(&format!("{name}-console.log"));
        let mut kernel = vec!["console=ttyS0".to_owned(), "panic=-1".to_owned()];
        kernel.extend(spec.kernel_arguments("ttyS1"));

        let mut device = format!(
            "virtio-net-pci,netdev=net,mac={},host_mtu={},romfile=,mq={}",
            spec.mac,
            spec.mtu,
            if *queue_pairs > 1 { "on" } else { "off" }
        );
        if accel.starts_with("tcg") && !newest {
            // QEMU 7.2 (Debian 12) crashes in the MSI-X notifiers of a vhost-user device where there is no KVM.
            device.push_str(",vectors=0");
        } else {
            device.push_str(&format!(",vectors={}", 2 * queue_pairs + 2));
        }
        for property in &spec.device {
            device.push_str(&format!(",{property}"));
        }
        // (QEMU 9.2 has renamed the option. The generic device wants its socket connected when it is made, and does not reconnect.)
        let role = match newest {
            _ if spec.control_queue => "server=off",
            _ if spec.listens => "server=on",
            true => "reconnect-ms=1000",
            false => "reconnect=1",
        };
        let memory = match (spec.verbs, spec.rdma.is_some() || !spec.programs.is_empty()) {
            (true, _) => "768M",
            (false, true) => "512M",
            (false, false) => "256M",
        };
        let ethernet = match spec.control_queue {
            true => format!(
                "-device vhost-user-test-device-pci,chardev=vhost,virtio-id=1,num_vqs={},vq_size=256,config_size=28",
                2 * queue_pairs + 1
            ),
            false => format!("-netdev vhost-user,id=net,chardev=vhost,queues={queue_pairs} -device {device}"),
        };
        let mut words = vec![
            format!("-name {name} -accel {accel} -m {memory} -smp {queue_pairs}"),
            "-machine q35,memory-backend=mem,usb=off,vmport=off".to_owned(),
            format!("-object memory-backend-memfd,id=mem,size={memory},share=on"),
            "-nodefaults -no-user-config -display none".to_owned(),
            format!("-chardev file,id=console,path={}", console.display()),
            "-serial chardev:console".to_owned(),
            "-chardev stdio,id=agent,signal=off -serial chardev:agent".to_owned(),
            format!("-chardev socket,id=vhost,path={},{role}", spec.socket.display()),
            ethernet,
        ];
        if !spec.reboots {
            words.push("-no-reboot".to_owned());
        }
        words.extend(spec.more.iter().cloned());
        if let Some(socket) = &spec.rdma {
            words.push(format!("-chardev socket,id=rdma,path={}", socket.display()));
            words.push(RDMA_DEVICE.to_owned());
        }
        let mut command = vec![qemu];
        command.extend(words.iter().flat_map(|w| w.split_whitespace()).map(str::to_owned));
        if accel == "kvm" {
            command.extend(["-cpu", "host"].map(str::to_owned));
        }
        let initramfs = if spec.verbs {
            lab.verbs_image()?
        } else if spec.rxe {
            lab.rxe_image()?;
            lab.image("initramfs-rxe.cpio")
        } else if spec.rdma.is_some() {
            lab.image_with("initramfs", &["vnic-guest"])?
        } else if !spec.programs.is_empty() {
            lab.image_with("initramfs", spec.programs)?
        } else {
            lab.image("initramfs.cpio")
        };
        for (option, image) in [("-kernel", lab.image("vmlinuz")), ("-initrd", initramfs)] {
            command.push(option.to_owned());
            command.push(image.display().to_string());
        }
        command.push("-append".to_owned());
        command.push(kernel.join(" "));
        Guest::start(lab, name, &command)
    }

    /// Starts a User-Mode-Linux machine; [`Guest::wait_ready`] waits for it.
    pub fn uml(lab: &Lab, spec: &GuestSpec) -> Result<Guest> {
        let name = &spec.name;
        let mut command = vec![
            // (Machines with AMX: see deploy/guest/uml_xstate.c.)
            format!("env LD_PRELOAD={}", lab.image("uml_xstate.so").display()),
            "linux.uml".to_owned(),
            "mem=192M".to_owned(),
            format!("initrd={}", lab.image("initramfs.cpio").display()),
            format!("uml_dir={}", lab.dir().display()),
            format!("umid={name}"),
            // The kernel's messages to standard error, the agent on standard input and output.
            "con=null con0=null,fd:2 con1=fd:0,fd:1 ssl=null".to_owned(),
            format!("virtio_uml.device={}:1", spec.socket.display()),
            "root=/dev/ram0 panic=-1".to_owned(),
        ];
        // (A QEMU machine has it of its device.)
        command.push(format!("vnic.mtu={}", spec.mtu));
        command.extend(spec.kernel_arguments("tty1"));
        let command: Vec<String> = command
            .iter()
            .flat_map(|w| w.split_whitespace())
            .map(str::to_owned)
            .collect();
        Guest::start(lab, name, &command)
    }

    /// A machine whose agent is at the standard input and output of a command.
    pub(super) fn start(lab: &Lab, name: &str, command: &[String]) -> Result<Guest> {
        let process = Process::start(
            name,
            command,
            &lab.log(&format!("{name}-agent.log")),
            &lab.log(&format!("{name}-err.log")),
        )?;
        Ok(Guest {
            name: name.to_owned(),
            process,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until its agent takes commands.
    pub fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + BOOT_PATIENCE;
        while self.process.line(end).context("waiting for the guest")?.trim() != "@@ready@@" {}
        Ok(())
    }

    /// Runs a command with the guest's shell: exit code and output.
    pub fn run(&mut self, command: &str) -> Result<(i32, String)> {
        self.send(command)?;
        self.finish(command)
    }

    /// Runs a command that must succeed.
    pub fn ok(&mut self, command: &str) -> Result<String> {
        let (exit, output) = self.run(command)?;
        ensure!(
            exit == 0,
            "{}: `{command}` ended with {exit}:\n{output}",
            self.name
        );
        Ok(output)
    }

    /// Starts a command; [`Guest::finish`] waits for its end. One at a time.
    pub fn send(&mut self, command: &str) -> Result<()> {
        ensure!(!command.contains('\n'), "a command is one line: {command:?}");
        self.process.send(command)
    }

    /// A line that the running command has printed already, if any. For programs that talk.
    pub fn try_line(&mut self) -> Result<Option<String>> {
        self.process.try_line()
    }

    /// The next line that the running command prints.
    pub fn line(&mut self, end: Instant) -> Result<String> {
        self.process.line(end)
    }

    /// Waits for the command that was sent.
    pub fn finish(&mut self, command: &str) -> Result<(i32, String)> {
        let end = Instant::now() + COMMAND_PATIENCE;
        let mut output = String::new();
        loop {
            let line = match self.process.line(end) {
                Ok(line) => line,
                Err(error) => bail!("{error:#}, after `{command}` and:\n{output}"),
            };
            if let Some(code) = line.strip_prefix("@@exit=").and_then(|l| l.strip_suffix("@@")) {
                // The agent puts an empty line before the marker for output without a line end.
                if output.ends_with("\n\n") || output == "\n" {
                    output.pop();
                }
                let code = code.parse().with_context(|| format!("strange marker {line:?}"))?;
                return Ok((code, output));
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    /// Its driver accepts the device. (A device that offers what it must not has no interface.)
    pub fn has_network(&mut self) -> Result<()> {
        let (exit, _) = self.run("test -e /sys/class/net/eth0")?;
        if exit != 0 {
            let (_, messages) = self.run("dmesg | grep -i virtio")?;
            bail!(
                "{}: its kernel made no eth0 of the device:\n{messages}",
                self.name
            );
        }
        Ok(())
    }

    /// What differs after a reboot.
    pub fn boot_id(&mut self) -> Result<String> {
        let text = self.ok("cat /proc/sys/kernel/random/boot_id")?;
        Ok(text.trim().to_owned())
    }

    /// Does the machine still run?
    pub fn running(&mut self) -> bool {
        self.process.running()
    }

    /// Holds the machine in the middle of whatever it does (User-Mode-Linux only: one process is the whole kernel), until
    /// [`Guest::thaw`]. When this returns it does nothing any more.
    pub fn freeze(&self) -> Result<()> {
        self.process.signal(Signal::STOP)?;
        let stat = format!("/proc/{}/stat", self.process.id());
        super::wait_for("the machine stands still", super::PATIENCE, || {
            let text = std::fs::read_to_string(&stat)?;
            // The state follows the name, which is in parentheses.
            let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            ensure!(matches!(state, Some('T' | 't')), "its state is {state:?}");
            Ok(())
        })
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }
}
