//! What the daemon takes from itself when it starts: files that it never writes or runs (Landlock, landlock(7)), and system calls
//! that it never makes (seccomp(2)). Data cores take more from themselves, each for its own thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetStatus, path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::config::Settings;
use crate::private;

/// What may be written there: the TAP driver; the name of a thread and what a core dump has.
const WRITE: [&str; 2] = ["/dev/net", "/proc/self"];

/// What a NIC has no business with: other programs, other processes, mounts, modules, clocks, keys.
const NEVER: [i64; 38] = [
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

static FILES: AtomicBool = AtomicBool::new(false);

/// May files be made only in directories that were known when the daemon started?
pub fn limits_files() -> bool {
    FILES.load(Ordering::Relaxed)
}

/// What could be had of it, in words for the log.
pub fn enter(settings: &Settings) -> Result<&'static str, String> {
    forbid()?;
    files(settings)
}

/// For this thread and all that it starts.
fn forbid() -> Result<(), String> {
    let rules: BTreeMap<i64, _> = NEVER.into_iter().map(|call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into();
    let filter = arch.and_then(|arch| {
        SeccompFilter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            arch,
        )
    });
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(|e| format!("the filter of system calls: {e}"))?;
    seccompiler::apply_filter(&program).map_err(|e| format!("the filter of system calls: {e}"))
}

/// Directories in which the daemon makes, changes and removes files.
fn own(settings: &Settings) -> Vec<PathBuf> {
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    let sockets = settings.adapters.iter().flat_map(|adapter| {
        let rdma = adapter.rdma_socket.as_deref().and_then(parent);
        parent(&adapter.eth_socket).into_iter().chain(rdma)
    });
    let mut all = vec![settings.state_dir.clone(), settings.socket_dir.clone()];
    all.extend(WRITE.map(PathBuf::from));
    all.extend(parent(&settings.control.unix));
    all.extend(sockets);
    all
}

/// For this thread and all that it starts.
fn files(settings: &Settings) -> Result<&'static str, String> {
    // A rule needs a directory. (Whoever needs one that cannot be made says so.)
    let _ = private::directory(&settings.state_dir);
    let _ = std::fs::create_dir_all(&settings.socket_dir);
    // (An operator may name certificates and files anywhere, at any time: reading is left to their modes.)
    let writing = AccessFs::from_write(ABI::V5);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writing | AccessFs::Execute)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(own(settings), writing)))
        .and_then(|rules| rules.restrict_self())
        .map_err(|e| format!("the rules of Landlock: {e}"))?;
    FILES.store(status.ruleset != RulesetStatus::NotEnforced, Ordering::Relaxed);
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "files and system calls",
        RulesetStatus::PartiallyEnforced => "files, as far as this kernel can, and system calls",
        RulesetStatus::NotEnforced => "system calls; this kernel has no Landlock",
    })
}
