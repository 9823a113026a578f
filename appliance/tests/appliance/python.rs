//! Clients on gRPC's C core, with Python's as the one of them.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::common::lab::text;
use crate::common::process;

/// Python with grpcio; `tests/packages.sh` makes it.
const PYTHON: &str = "python3-grpcio";

#[test]
fn a_client_on_the_c_core_uses_the_unix_socket_and_reflection() {
    if !crate::common::installed(
        PYTHON,
        "a_client_on_the_c_core_uses_the_unix_socket_and_reflection",
    ) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let adapters = "[[adapter]]\nname = \"vf0\"\nrdma = false\n[[adapter]]\nname = \"vf1\"\nrdma = false\n";
    let daemon = process::start(dir.path(), adapters);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/client.py");
    let output = Command::new(PYTHON)
        .arg(script)
        .arg(dir.path().join("control.sock"))
        .output()
        .expect("Python");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[1..],
        [
            "adapters adapters/vf0 adapters/vf1",
            "watched adapters/vf0",
            "refused NOT_FOUND"
        ]
    );
    for service in [
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "vnic.v1.AdapterService",
    ] {
        assert!(lines[0].split(' ').any(|s| s == service), "{service}: {said}");
    }
    daemon.end(Signal::TERM);
}
