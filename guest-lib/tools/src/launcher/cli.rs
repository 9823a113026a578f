//! The command line.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use vnic_verbs::DeviceAddress;
use vnic_verbs::sysfs::SYSFS_VARIABLE;

use crate::cdi::CdiOptions;
use crate::environment::Environment;
use crate::files::Shown;
use crate::library::Libraries;
use crate::options::{DeviceOptions, LibraryOptions};
use crate::{Refusal, cdi, devices, drop_in, files, program, view};

const AFTER_HELP: &str = "\
Examples:
  vnic-verbs run --adapters vf0 -- ib_write_bw                    a process of the host takes adapter vf0
  vnic-verbs run --adapters vf1 -- ib_write_bw localhost          another one, in another shell
  vnic-verbs run -- ibv_devinfo -v                                in a virtual machine, as root
  vnic-verbs run --adapters vf0,vf1 -- python3 test.py            one process with two devices, vnic0 and vnic1
  eval \"$(vnic-verbs env --adapters vf0)\"; ibv_devices            for all programs of this shell

The program sees vnic0, vnic1, … before the devices that it would see without. VNIC_IBVERBS_DEBUG=1 (--debug) tells why a call \
fails.";

/// Runs programs that were linked with libibverbs on vnic's RDMA function, as they are.
#[derive(Debug, Parser)]
#[command(name = "vnic-verbs", version, after_help = AFTER_HELP, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program
    Run {
        #[command(flatten)]
        device: DeviceOptions,
        #[command(flatten)]
        library: LibraryOptions,
        /// Show the devices in /sys/class/infiniband, /dev/infiniband and on PCI, in a mount namespace of the program
        #[arg(long, value_name = "WHEN", default_value = "auto")]
        files: Shown,
        /// The program and its arguments
        #[arg(required = true, last = true, value_name = "PROGRAM")]
        words: Vec<OsString>,
    },
    /// Print what a shell must set, for programs that it starts
    Env {
        #[command(flatten)]
        device: DeviceOptions,
        #[command(flatten)]
        library: LibraryOptions,
    },
    /// Put the library under the name libibverbs.so.1 into a directory, for an LD_LIBRARY_PATH of one's own
    #[command(
        after_help = "Example:\n  vnic-verbs drop-in /opt/vnic; LD_LIBRARY_PATH=/opt/vnic VNIC_SOCKET=/run/vnic/vf0-rdma.sock program"
    )]
    DropIn {
        /// The directory; it is made if need be
        dir: PathBuf,
        /// libvnic_ibverbs.so; as for run
        #[arg(long, value_name = "PATH")]
        lib: Option<PathBuf>,
    },
    /// Write the files that the kernel has of such devices (/sys/class/infiniband, …) into a directory, and keep them as the devices
    /// are, until they are gone
    #[command(after_help = "Example:\n  vnic-verbs files /run/vnic/files --adapter vf0")]
    Files {
        /// The directory; it is made if need be
        dir: PathBuf,
        #[command(flatten)]
        device: DeviceOptions,
        /// End with the process that started this
        #[arg(long, hide = true)]
        with_parent: bool,
    },
    /// Print a file for container engines (CDI): a container that gets the device vnic/rdma=vf0 finds the adapter as under run, without
    /// rights of its own
    #[command(
        after_help = "Examples:\n  vnic-verbs cdi > /etc/cdi/vnic.json\n  podman run --device vnic/rdma=vf0 -e VNIC_NAMES=mlx5_0 IMAGE ibv_devinfo"
    )]
    Cdi(CdiOptions),
    /// Show the devices' files in a container that an engine is making
    #[command(hide = true)]
    CdiHook,
    /// List the devices that programs would see
    Devices {
        #[command(flatten)]
        device: DeviceOptions,
    },
    /// Print a completion script
    #[command(
        after_help = "Example:\n  vnic-verbs completions bash > /usr/share/bash-completion/completions/vnic-verbs"
    )]
    Completions {
        /// For which shell
        shell: Shell,
    },
}

/// Exit code of who could not do it; that of a program that runs is its own.
const REFUSED: u8 = 125;

/// Does what the command line says.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let done = match Arguments::parse_from(words).command {
        Command::Run {
            device,
            library,
            files,
            words,
        } => start(&device, &library, files, &words),
        Command::Env { device, library } => environment(&device, &library, false).map(|e| print(&e.shell())),
        Command::DropIn { dir, lib } => Libraries::from_surroundings()
            .find(lib.as_deref())
            .and_then(|library| drop_in::put(&library, &dir))
            .map(|file| print(&format!("{}\n", file.display()))),
        Command::Files {
            dir,
            device,
            with_parent,
        } => keep(&dir, &device, with_parent),
        Command::Cdi(options) => cdi::describe(&options).map(|text| print(&text)),
        Command::CdiHook => cdi::hook(std::io::stdin()),
        Command::Devices { device } => devices::list(&device).map(|lines| print(&lines)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "vnic-verbs", &mut script);
            print(&String::from_utf8_lossy(&script));
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("vnic-verbs: {e}");
            ExitCode::from(REFUSED)
        }
    }
}

fn environment(
    device: &DeviceOptions,
    library: &LibraryOptions,
    one_program: bool,
) -> Result<Environment, Refusal> {
    let found = Libraries::from_surroundings().find(library.lib.as_deref())?;
    let mut environment = Environment::new(&found, library, one_program)?;
    environment.devices(&devices::choose(device)?)?;
    environment.names(&device.name);
    Ok(environment)
}

fn start(
    device: &DeviceOptions,
    library: &LibraryOptions,
    shown: Shown,
    words: &[OsString],
) -> Result<(), Refusal> {
    let [name, arguments @ ..] = words else {
        return Err(Refusal::new("which program?"));
    };
    // What can be seen at once is said before anybody waits.
    let program = program::find(name)?;
    let mut environment = if shown == Shown::Only {
        let mut bare = Environment::default();
        bare.devices(&devices::choose(device)?)?;
        bare
    } else {
        program::check(&program)?;
        environment(device, library, true)?
    };
    devices::wait(&environment.sockets, device.patience())?;
    let seen = match shown {
        Shown::Never => Ok(()),
        _ => show(device, shown, &mut environment),
    };
    match seen {
        Err(e) if shown == Shown::Only => return Err(e),
        Err(e) => eprintln!(
            "vnic-verbs: programs that look for devices in /sys/class/infiniband will find none: {e}. --files never: not wanted"
        ),
        Ok(()) => {}
    }
    Err(program::become_it(name, &program, arguments, &environment))
}

/// Shows the devices to this process, which becomes the program, in files.
fn show(options: &DeviceOptions, shown: Shown, environment: &mut Environment) -> Result<(), Refusal> {
    let found = devices::found(options)?;
    // In a chroot its path is that of the machine as soon as the process has mounts of its own.
    let own = std::env::current_exe().map_err(|e| Refusal::new(format!("the path of this program: {e}")))?;
    let root = view::enter(found.len())?;
    if shown == Shown::Only {
        files::start_keeper(&own, &root, &found, &options.name)?;
    } else {
        // The device is the program's: the library keeps the files.
        for made in files::write(&root, &found, &options.name) {
            made?;
        }
        environment
            .variables
            .push((SYSFS_VARIABLE, Some(root.clone().into())));
    }
    view::show(&root, Path::new("/")).map_err(|e| {
        Refusal::new(format!(
            "the devices' files cannot be shown in /sys and /dev: {e}"
        ))
    })
}

/// Writes files of devices, and keeps them.
fn keep(dir: &Path, options: &DeviceOptions, with_parent: bool) -> Result<(), Refusal> {
    use rustix::process::{PidfdFlags, getppid, pidfd_open};
    let parent = getppid().filter(|_| with_parent);
    let parent = parent
        .map(|process| pidfd_open(process, PidfdFlags::empty()))
        .transpose();
    let parent = parent.map_err(|e| Refusal::new(format!("the program that started this: {e}")))?;
    let found = devices::found(options)?;
    let sockets: Vec<PathBuf> = found
        .iter()
        .filter_map(|address| match address {
            DeviceAddress::Socket(path) => Some(path.clone()),
            DeviceAddress::Pci(_) => None,
        })
        .collect();
    devices::wait(&sockets, options.patience())?;
    let kept: Result<Vec<_>, Refusal> = files::write(dir, &found, &options.name).into_iter().collect();
    let keeper = files::Keeper {
        root: dir,
        devices: &found,
        names: &options.name,
        kept: kept?,
        settings: files::settings(dir, &found, &options.name)?,
    };
    print(&format!("{}\n", dir.display()));
    let with_parent = parent.is_some();
    match keeper.keep(parent) {
        Ok(()) if with_parent => Ok(()),
        Ok(()) => Err(Refusal::new("the devices are gone")),
        Err(e) => Err(Refusal::new(format!("the devices' files: {e}"))),
    }
}

/// Whoever reads it may have seen enough.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split(' '))
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let parsed =
            parse("vnic-verbs run --adapters vf0,vf1 --debug -- ib_send_bw --socket 3 -d x").expect("sound");
        let Command::Run {
            device,
            library,
            words,
            ..
        } = parsed.command
        else {
            panic!("another command");
        };
        assert_eq!(device.adapter, ["vf0", "vf1"]);
        assert!(library.debug && !library.drop_in);
        assert_eq!(words, ["ib_send_bw", "--socket", "3", "-d", "x"]);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for line in [
            "vnic-verbs run",
            "vnic-verbs run --",
            "vnic-verbs run --socket /a --pci 00:04.0 -- x",
            "vnic-verbs run --socket /a --adapter vf0 -- x",
            "vnic-verbs run --socket-dir /a -- x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
