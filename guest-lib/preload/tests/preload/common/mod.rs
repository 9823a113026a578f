//! The library that was built, and C programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

// It is built because it is used.
use vnic_ibverbs as _;

/// Where distributions have the real library.
const REAL: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
    "/usr/lib64/libibverbs.so.1",
    "/usr/lib/libibverbs.so.1",
];

/// `libvnic_ibverbs.so`, as it was built with this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let beside = test.parent().expect("a directory").join("libvnic_ibverbs.so");
    assert!(beside.exists(), "no {}", beside.display());
    beside
}

/// The distribution's library. Without it there is nothing to compare with; that is said, not hidden.
pub fn real(test: &str) -> Option<&'static Path> {
    let found = REAL.iter().map(Path::new).find(|p| p.exists());
    if found.is_none() {
        println!("SKIP {test}: no libibverbs.so.1 (apt install libibverbs1)");
    }
    found
}

/// The distribution's librdmacm, beside its libibverbs; likewise.
pub fn real_of_connections(test: &str) -> Option<PathBuf> {
    let found = real(test)?.with_file_name("librdmacm.so.1");
    if !found.exists() {
        println!("SKIP {test}: no librdmacm.so.1 (apt install librdmacm1)");
        return None;
    }
    Some(found)
}

/// Whether C programs can be built for libibverbs here; likewise.
pub fn can_compile(test: &str) -> bool {
    let there = Path::new("/usr/include/infiniband/verbs.h").exists();
    if !there {
        println!("SKIP {test}: no infiniband/verbs.h (apt install libibverbs-dev)");
    }
    there
}

/// Builds a program.
pub fn compile(dir: &Path, name: &str, source: &str, libraries: &[&str]) -> PathBuf {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&file, source).expect("a file");
    let cc = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &file])
        .args(libraries)
        .output()
        .expect("a C compiler (apt install gcc libc6-dev)");
    assert!(cc.status.success(), "{}", text(&cc.stderr));
    program
}

/// What a program printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program that must end well.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}
