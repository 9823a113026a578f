//! `vnic-verbs` as it is called. What stands for the library here is one that says that it was loaded.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Exit code of who could not do it.
const REFUSED: i32 = 125;

/// Says so when it is loaded.
const LIBRARY: &str = r#"
    #include <stdlib.h>
    #include <unistd.h>
    __attribute__((constructor)) static void loaded(void)
    {
        if (getenv("SAY") && write(1, "loaded\n", 7) != 7)
            abort();
    }
"#;

struct Stage {
    dir: tempfile::TempDir,
    library: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        let (source, library) = (root.join("library.c"), root.join("libvnic_ibverbs.so"));
        std::fs::write(&source, LIBRARY).expect("a file");
        let cc = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .expect("a C compiler (apt install gcc libc6-dev)");
        assert!(cc.status.success(), "{}", text(&cc.stderr));
        Stage { dir, library }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The launcher, in an environment that says nothing about devices.
    fn launcher(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vnic-verbs"));
        for name in ["VNIC_SOCKET", "VNIC_PCI", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command
            .env("VNIC_IBVERBS_LIBRARY", &self.library)
            .env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }

    /// `vnic-verbs run` on a socket where somebody listens.
    fn run(&self, options: &[&str], program: &[&str]) -> Output {
        let socket = self.path("vf0-rdma.sock");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let output = self
            .launcher()
            .args(["run", "--files", "never", "--adapters", "vf0", "--socket-dir"])
            .arg(self.dir.path())
            .args(options)
            .arg("--")
            .args(program)
            .output();
        std::fs::remove_file(socket).expect("it is there");
        output.expect("it runs")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refused(output: &Output, cause: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(REFUSED), "{said}");
    assert!(said.starts_with("vnic-verbs: ") && said.contains(cause), "{said}");
}

#[test]
fn a_program_gets_the_library_and_its_device_and_keeps_its_own_exit_code() {
    let stage = Stage::new();
    let script = "SAY=1 /bin/true; echo $VNIC_SOCKET; echo $VNIC_IBVERBS_DEBUG; echo \"$0 $1\"; exit 7";
    let output = stage.run(&["--debug"], &["sh", "-c", script, "a b", "--socket"]);
    let expected = format!(
        "loaded\n{}\n1\na b --socket\n",
        stage.path("vf0-rdma.sock").display()
    );
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn the_drop_in_is_found_under_the_name_of_the_real_library_and_loaded_once() {
    let stage = Stage::new();
    let script = "ls $LD_LIBRARY_PATH; test $LD_PRELOAD -ef $LD_LIBRARY_PATH/libibverbs.so.1 && echo same";
    // (Where the kernel has devices, only if that is asked for.)
    let alone = std::fs::read_dir("/sys/class/infiniband").map_or(true, |mut all| all.next().is_none());
    let without: &[&str] = if alone { &[] } else { &["--drop-in"] };
    for options in [&["--drop-in"][..], without, without] {
        let output = stage.run(options, &["sh", "-c", script]);
        assert_eq!(
            text(&output.stdout),
            "libibverbs.so.1\nlibrdmacm.so.1\nsame\n",
            "{}",
            text(&output.stderr)
        );
    }
    let dir = stage.path("own");
    let output = stage
        .launcher()
        .arg("drop-in")
        .arg(&dir)
        .output()
        .expect("it runs");
    assert_eq!(
        text(&output.stdout),
        format!("{}\n", dir.join("libibverbs.so.1").display())
    );
    assert!(dir.join("libibverbs.so.1").exists());
}

#[test]
fn it_waits_for_the_daemon() {
    let stage = Stage::new();
    let socket = stage.path("vf0-rdma.sock");
    let started = stage
        .launcher()
        .args(["run", "--files", "never", "--wait", "600", "--socket"])
        .arg(&socket)
        .args(["--", "echo", "ran"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let output = started.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "ran\n");
}

#[test]
fn what_cannot_be_done_is_refused_with_its_cause() {
    let stage = Stage::new();
    let run = |more: &[&str]| {
        let all = stage.launcher().arg("run").args(more).output();
        all.expect("it runs")
    };
    let nobody = stage.path("nobody-rdma.sock").display().to_string();
    refused(&run(&["--socket", &nobody, "--wait", "0", "--", "true"]), &nobody);
    refused(&run(&["--socket", &nobody, "--", "no-such-program"]), "PATH");
    refused(
        &run(&["--socket", &nobody, "--lib", "/no/such/library.so", "--", "true"]),
        "--lib: /no/such/library.so",
    );
    refused(&run(&["--pci", "4", "--", "true"]), "0000:00:04.0");
    let nothing_on_pci = vnic_verbs::Device::list().is_ok_and(|devices| devices.is_empty());
    if nothing_on_pci && std::env::var_os("VNIC_SOCKET").is_none() {
        refused(&run(&["--", "true"]), "--adapter vf0");
    }
}

#[test]
fn static_programs_are_refused() {
    const NAME: &str = "launcher::static_programs_are_refused";
    let stage = Stage::new();
    let (source, program) = (stage.path("static.c"), stage.path("static"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    let cc = Command::new("cc")
        .args(["-static", "-o"])
        .args([&program, &source])
        .output();
    if !cc.is_ok_and(|made| made.status.success()) {
        println!("SKIP {NAME}: no static C library (apt install libc6-dev)");
        return;
    }
    let output = stage.run(&[], &[Path::new(&program).to_str().expect("a text")]);
    refused(&output, "statically");
}

#[test]
fn a_shell_is_told_what_to_set() {
    let stage = Stage::new();
    let env = stage
        .launcher()
        .args(["env", "--pci", "00:04.0"])
        .output()
        .expect("it runs");
    assert_eq!(
        text(&env.stdout),
        format!(
            "export LD_PRELOAD={}\nunset VNIC_SOCKET\nexport VNIC_PCI=0000:00:04.0\n",
            stage.library.display()
        )
    );
    let listed = stage
        .launcher()
        .args(["devices", "--pci", "00:04.0", "--pci", "00:05.0"])
        .output()
        .expect("it runs");
    assert_eq!(text(&listed.stdout), "vnic0  0000:00:04.0\nvnic1  0000:00:05.0\n");
    let script = stage
        .launcher()
        .args(["completions", "bash"])
        .output()
        .expect("it runs");
    assert!(text(&script.stdout).contains("--adapter"));
}
