//! State directory, which one daemon uses at a time. The daemon holds a flock(2) on `lock` while it lives, and writes its
//! process ID there; `daemon.json` has the addresses of the running daemon.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{Endpoints, StartError, os};
use crate::private;

/// A locked state directory.
pub struct StateDir {
    dir: PathBuf,
    lock: File,
}

impl StateDir {
    /// Makes the directory if it does not exist, and locks it.
    pub fn lock(dir: &Path) -> Result<StateDir, StartError> {
        private::directory(dir).map_err(os(format!(
            "cannot make {} (give --state-dir or nic.state_dir)",
            dir.display()
        )))?;
        let path = dir.join("lock");
        let what = || format!("cannot use {}", path.display());
        let mut lock = private::file()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(os(what()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = lock.read_to_string(&mut text);
                return Err(StartError::InUse {
                    dir: dir.to_owned(),
                    pid: text.trim().parse().ok(),
                });
            }
            Err(errno) => return Err(os(what())(errno.into())),
        }
        let write = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        write(&mut lock).map_err(os(what()))?;
        Ok(StateDir {
            dir: dir.to_owned(),
            lock,
        })
    }

    fn info(&self) -> PathBuf {
        self.dir.join("daemon.json")
    }

    /// Writes the addresses on which the daemon listens.
    pub fn publish(&self, endpoints: &Endpoints) -> Result<(), StartError> {
        let info = serde_json::json!({
            "pid": std::process::id(),
            "version": crate::VERSION,
            "control": endpoints.control,
            "metrics": endpoints.metrics_url,
        });
        let path = self.info();
        let new = path.with_extension("json.new");
        let write = || {
            let mut file = private::file()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&new)?;
            writeln!(file, "{info:#}")
        };
        write()
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(os(format!("cannot write {}", path.display())))
    }
}

/// Unlocks the directory. The lock file stays: its removal would let two daemons lock two files.
impl Drop for StateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.info());
        let _ = self.lock.set_len(0);
        // To close the file is not enough: a child of this process has it, too, between its fork and its exec.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_has_the_file_does_not_keep_the_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = StateDir::lock(dir.path()).expect("free");
        let childs = first.lock.try_clone().expect("as after a fork");
        assert!(matches!(
            StateDir::lock(dir.path()),
            Err(StartError::InUse { pid: Some(pid), .. }) if pid == std::process::id()
        ));
        drop(first);
        StateDir::lock(dir.path()).expect("free again");
        drop(childs);
    }
}
