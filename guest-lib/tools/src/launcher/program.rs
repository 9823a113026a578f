//! The program: its file, whether our library can be loaded before it, and its start.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::Environment;
use crate::{Refusal, elf};

/// Bytes of a file that hold its header and program header table.
const HEAD_LEN: u64 = 64 * 1024;
/// Most scripts that call each other.
const SCRIPTS_MAX: usize = 4;
/// `e_machine` of this machine.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// The file of a program, as a shell finds it.
pub fn find(name: &OsStr) -> Result<PathBuf, Refusal> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    find_in(name, &path)
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, Refusal> {
    let shown = name.display();
    let runs = |p: &Path| {
        p.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match file.metadata() {
            Err(e) => Err(Refusal::new(format!("{shown}: {e}"))),
            Ok(_) if !runs(&file) => Err(Refusal::new(format!("{shown} is no program: chmod +x?"))),
            Ok(_) => Ok(file),
        };
    }
    std::env::split_paths(path)
        .map(|dir| dir.join(name))
        .find(|file| runs(file))
        .ok_or_else(|| {
            let package = match name.to_str() {
                Some(tool) if tool.starts_with("ibv_") => " (apt install ibverbs-utils)",
                Some(tool) if tool.starts_with("ib_") => " (apt install perftest)",
                Some(tool) if tool.starts_with("ucx_") => " (apt install ucx-utils)",
                _ => "",
            };
            Refusal::new(format!("there is no {shown} in PATH{package}"))
        })
}

/// Checks whether the loader will load our library into a program.
pub fn check(file: &Path) -> Result<(), Refusal> {
    let mut file = file.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let shown = file.display();
        check_rights(&file)?;
        let mut head = Vec::new();
        let read = std::fs::File::open(&file).and_then(|f| f.take(HEAD_LEN).read_to_end(&mut head));
        if read.is_err() {
            // The file may be executable and not readable: whether it works will show.
            return Ok(());
        }
        if let Some(interpreter) = interpreter(&head) {
            file = interpreter;
            continue;
        }
        let Some(program) = elf::read(&head) else {
            return Ok(());
        };
        if program.wide != cfg!(target_pointer_width = "64") || program.machine != MACHINE {
            return Err(Refusal::new(format!(
                "{shown} is a program for another processor (machine {}, {} bits) than the library",
                program.machine,
                if program.wide { 64 } else { 32 }
            )));
        }
        if !program.has_loader {
            return Err(Refusal::new(format!(
                "{shown} is linked statically: the loader has no part in it, and no library can be loaded before its own. Link \
                 it dynamically with libibverbs"
            )));
        }
        return Ok(());
    }
    Ok(())
}

/// Checks whether a program gets more rights than its user has: then the kernel tells the loader to ignore its
/// variables.
fn check_rights(file: &Path) -> Result<(), Refusal> {
    let Ok(metadata) = file.metadata() else {
        return Ok(());
    };
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let what = if metadata.mode() & SET_USER != 0 && metadata.uid() != user.as_raw() {
        "is setuid"
    } else if metadata.mode() & SET_GROUP != 0 && metadata.gid() != group.as_raw() {
        "is setgid"
    } else if !user.is_root() && has_capabilities(file) {
        "has capabilities (getcap)"
    } else {
        return Ok(());
    };
    Err(Refusal::new(format!(
        "{} {what}: the loader ignores LD_PRELOAD for such programs. Run a copy of it without that, as root if it needs rights",
        file.display()
    )))
}

fn has_capabilities(file: &Path) -> bool {
    rustix::fs::getxattr(file, "security.capability", &mut [0; 64][..]).is_ok()
}

/// The interpreter of a script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line
        .split(u8::is_ascii_whitespace)
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// Becomes the program; returns only if that fails.
pub fn become_it(name: &OsStr, file: &Path, arguments: &[OsString], environment: &Environment) -> Refusal {
    let mut command = Command::new(file);
    command.arg0(name).args(arguments);
    for (name, value) in &environment.variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let e = command.exec();
    Refusal::new(format!("{}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, bytes: &[u8], mode: u32) {
        std::fs::write(path, bytes).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().as_os_str();
        let find = |name: &str| find_in(OsStr::new(name), path).map_err(|e| e.to_string());
        put(&dir.path().join("tool"), b"", 0o755);
        put(&dir.path().join("text"), b"", 0o644);
        assert_eq!(find("tool"), Ok(dir.path().join("tool")));
        assert!(find("text").is_err());
        assert!(find("ib_write_bw").is_err_and(|e| e.contains("apt install perftest")));
        let text = dir.path().join("text");
        assert!(find(&text.display().to_string()).is_err_and(|e| e.contains("chmod")));
    }

    #[test]
    fn what_the_loader_has_no_part_in_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("program");
        let check_bytes = |bytes: &[u8]| {
            put(&file, bytes, 0o755);
            check(&file).map_err(|e| e.to_string())
        };
        let wide = cfg!(target_pointer_width = "64");
        assert_eq!(check_bytes(&elf::tests::program(wide, MACHINE, &[1, 3])), Ok(()));
        let refused = check_bytes(&elf::tests::program(wide, MACHINE, &[1, 1]));
        assert!(refused.is_err_and(|e| e.contains("statically")));
        assert!(check_bytes(&elf::tests::program(!wide, 3, &[1, 3])).is_err_and(|e| e.contains("processor")));
        assert_eq!(check_bytes(b"echo no first line"), Ok(()));
    }

    #[test]
    fn of_scripts_the_interpreter_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let (script, program) = (dir.path().join("script"), dir.path().join("program"));
        let wide = cfg!(target_pointer_width = "64");
        put(&program, &elf::tests::program(wide, MACHINE, &[1]), 0o755);
        put(
            &script,
            format!("#! {} -x\n", program.display()).as_bytes(),
            0o755,
        );
        assert!(check(&script).is_err_and(|e| e.to_string().contains("statically")));
        put(&script, format!("#!{}\n", script.display()).as_bytes(), 0o755);
        assert!(
            check(&script).is_ok(),
            "one that calls itself is the kernel's to refuse"
        );
    }

    #[test]
    fn rights_that_are_lent_are_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("program");
        put(&file, b"", 0o4755);
        assert!(check_rights(&file).is_ok(), "its owner gets nothing by it");
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(&file, Some(1), None).expect("another owner");
            put(&file, b"", 0o4755);
            assert!(check_rights(&file).is_err_and(|e| e.to_string().contains("setuid")));
        }
    }
}
