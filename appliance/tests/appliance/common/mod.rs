//! What the tests share: daemons in temporary directories.

pub mod lab;
pub mod process;
pub mod wires;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
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

/// Page behind a URL of a metrics server.
pub fn get(url: &str) -> String {
    let (address, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("a URL");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let question = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, page) = answer.split_once("\r\n\r\n").expect("a page");
    page.to_owned()
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
