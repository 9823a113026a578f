//! A user's view of counters: the baseline that the daemon returned at a reset, in a file of the user's.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::super::Failure;
use super::super::client::Client;
use crate::counters::baseline::BYTES_MAX;

/// Path of a view, which may not exist.
pub struct View(PathBuf);

impl View {
    /// View in the named file, or in the user's state directory: one for each daemon and owner.
    pub fn find(named: Option<&Path>, client: &Client, owner: &str) -> Result<View, Failure> {
        if let Some(path) = named {
            return Ok(View(path.to_owned()));
        }
        let var = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let state = var("XDG_STATE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| Some(var("HOME")?.join(".local/state")));
        let Some(state) = state else {
            return Err(Failure::Usage(
                "neither XDG_STATE_HOME nor HOME is set: name a file with --view FILE".to_owned(),
            ));
        };
        let dir = state.join("vnic/counters").join(plain(client.shown()));
        Ok(View(dir.join(format!("{}.view", plain(owner)))))
    }

    /// Path of the view.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the view; empty if there is none.
    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        match self.load() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            result => result.map_err(|e| self.failed("read", &e)),
        }
    }

    /// Reads the view, which must exist.
    pub fn must_read(&self) -> Result<Vec<u8>, Failure> {
        self.load().map_err(|e| self.failed("read", &e))
    }

    fn load(&self) -> std::io::Result<Vec<u8>> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        // A longer file is not a view; the part that is read is enough for the daemon to refuse it.
        let most = u64::try_from(BYTES_MAX + 1).unwrap_or(u64::MAX);
        std::fs::File::open(&self.0)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Replaces the view by a new one atomically.
    pub fn keep(&self, baseline: &[u8]) -> Result<(), Failure> {
        let write = || {
            if let Some(dir) = self.0.parent() {
                std::fs::create_dir_all(dir)?;
            }
            let mut new = self.0.clone().into_os_string();
            new.push(format!(".{}", std::process::id()));
            std::fs::write(&new, baseline)?;
            std::fs::rename(&new, &self.0)
        };
        write().map_err(|e| self.failed("write", &e))
    }

    /// Removes the view; returns whether there was one.
    pub fn forget(&self) -> Result<bool, Failure> {
        match std::fs::remove_file(&self.0) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed("remove", &error)),
        }
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> Failure {
        Failure::Failed(format!("cannot {what} {}: {error}", self.0.display()))
    }
}

/// File name for a name: different names have different file names.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => plain.push(char::from(byte)),
            b'.' if !plain.is_empty() => plain.push('.'),
            _ => plain.push_str(&format!("%{byte:02x}")),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_of_files_are_plain_and_different() {
        assert_eq!(plain("adapters/vf0"), "adapters%2fvf0");
        assert_eq!(plain("unix:/run/x.sock"), "unix%3a%2frun%2fx.sock");
        assert_eq!(plain(".."), "%2e.");
        assert_ne!(plain("a/b"), plain("a_b"));
    }
}
