//! What the tests share: daemons in temporary directories.

pub mod lab;
pub mod process;
pub mod wires;

use std::path::Path;
use std::process::{Command, Stdio};

use vnic_appliance::config::{Environment, Overrides, Settings, Simple};

/// The CPU every test daemon polls on.
pub fn cpu() -> usize {
    *Environment::current().cpus.last().expect("a CPU")
}

/// Settings for a daemon in `dir` with `adapters` adapters; metrics on a free port.
pub fn settings(dir: &Path, adapters: usize) -> Settings {
    let overrides = Overrides {
        socket_dir: Some(dir.to_owned()),
        metrics: Some(Some(([127, 0, 0, 1], 0).into())),
        ..Overrides::default()
    };
    let simple = Simple {
        adapters,
        queue_pairs: 1,
        taps: Vec::new(),
        packets: Vec::new(),
        xdps: Vec::new(),
    };
    Settings::from_command_line(&simple, &overrides, &Environment::current()).expect("settings")
}

/// Is the program installed? A test that needs one which is not says so.
pub fn installed(program: &str, test: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("SKIP {test}: {program} is not installed");
    }
    found
}
