//! Restrictions of the whole process: files that the daemon never writes or executes (Landlock, landlock(7)), and system
//! calls that it never makes (seccomp(2)). Data cores and threads of adapters' sockets have further restrictions of their
//! own.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    path_beneath_rules,
};
use vnic_backend::Filter;

use crate::config::Settings;
use crate::private;

/// Further writable paths: the TAP driver, and /proc/self.
const WRITE: [&str; 2] = ["/dev/net", "/proc/self"];

/// Forbidden system calls: those for other programs, other processes, mounts, modules, clocks, keys.
const NEVER: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_personality,
];

/// Forbids the system calls in [`NEVER`] for this thread and all that it starts.
pub fn forbid() -> Result<(), String> {
    let filter = Filter::without(NEVER).map_err(|e| e.to_string())?;
    filter.enter().map_err(|e| e.to_string())
}

/// Restricts where files are created, changed and executed, for this thread and all that it starts. A kernel without Landlock is no error.
pub fn files(settings: &Settings) -> Result<(), String> {
    // A rule needs an existing directory. (An error is reported by the code that needs the directory.)
    let _ = private::directory(&settings.state_dir);
    let _ = std::fs::create_dir_all(&settings.socket_dir);
    // Sockets of adapters may be anywhere: requests and stored adapters have their paths. Certificates may be anywhere,
    // too: reading is left to file modes.
    let writing = AccessFs::from_write(ABI::V5) & !(AccessFs::MakeSock | AccessFs::RemoveFile);
    let own = [&settings.state_dir, &settings.socket_dir];
    let own = own.map(PathBuf::as_path).into_iter().chain(WRITE.map(Path::new));
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writing | AccessFs::Execute)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(own, writing)))
        .and_then(|rules| rules.restrict_self())
        .map(|_| ())
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;
    use crate::config::{Environment, Overrides, Simple};

    #[test]
    fn files_are_written_where_the_daemon_has_its_own_and_no_program_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        let elsewhere = tempfile::tempdir().expect("a directory");
        let overrides = Overrides {
            socket_dir: Some(dir.path().join("sockets")),
            state_dir: Some(dir.path().join("state")),
            ..Overrides::default()
        };
        let simple = Simple {
            adapters: 1,
            queue_pairs: 1,
            taps: Vec::new(),
            packets: Vec::new(),
            xdps: Vec::new(),
        };
        let settings = Settings::from_command_line(&simple, &overrides, &Environment::current());
        let settings = settings.expect("settings");
        let there = elsewhere.path().to_owned();
        let (own, other, landlock, program) = std::thread::spawn(move || {
            files(&settings).expect("limits");
            let ran = |program: &str| Command::new(program).status().err().map(|e| e.kind());
            let landlock = ran("/bin/true");
            forbid().expect("limits");
            let made = |dir: &Path| fs::write(dir.join("file"), "x").err().map(|e| e.kind());
            std::os::unix::net::UnixListener::bind(there.join("socket")).expect("a socket");
            (
                made(&settings.state_dir),
                made(&there),
                landlock,
                ran("/bin/true"),
            )
        })
        .join()
        .expect("the thread goes on");
        assert_eq!((own, program), (None, Some(ErrorKind::PermissionDenied)));
        // A kernel without Landlock forbids neither, one with Landlock both.
        assert_eq!(other, landlock);
        match fs::read_to_string("/sys/kernel/security/lsm") {
            Ok(lsm) if !lsm.contains("landlock") => println!("SKIP sandbox: this kernel has no Landlock"),
            _ => assert_eq!(other, Some(ErrorKind::PermissionDenied)),
        }
    }
}
