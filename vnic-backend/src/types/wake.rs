//! What wakes a guest.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Most patterns of an adapter.
pub const WAKE_PATTERNS_MAX: usize = 8;

/// What is done when a magic packet, or a frame with a pattern, comes for an adapter whose guest does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WakeAction {
    /// `qmp:PATH`: QEMU's monitor on a UNIX socket gets `system_wakeup` (a suspended guest) or `cont` (a stopped one).
    Qmp(PathBuf),
    /// `unix:PATH`: a UNIX stream socket is connected to, and gets a line of JSON. A systemd socket unit starts its service so.
    Unix(PathBuf),
    /// `http://HOST[:PORT]/PATH`: JSON is posted there.
    Http(String),
}

impl FromStr for WakeAction {
    type Err = String;

    fn from_str(text: &str) -> Result<WakeAction, String> {
        let path = |rest: &str| match rest.starts_with('/') {
            true => Ok(PathBuf::from(rest)),
            false => Err(format!("{text:?}: the path of the socket has to begin with /")),
        };
        if let Some(rest) = text.strip_prefix("qmp:") {
            path(rest).map(WakeAction::Qmp)
        } else if let Some(rest) = text.strip_prefix("unix:") {
            path(rest).map(WakeAction::Unix)
        } else if text.strip_prefix("http://").is_some_and(|rest| !rest.is_empty()) {
            Ok(WakeAction::Http(text.to_owned()))
        } else {
            Err(format!(
                "{text:?}: qmp:PATH (QEMU's monitor), unix:PATH (a socket) or http://HOST:PORT/PATH is allowed"
            ))
        }
    }
}

impl fmt::Display for WakeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WakeAction::Qmp(path) => write!(f, "qmp:{}", path.display()),
            WakeAction::Unix(path) => write!(f, "unix:{}", path.display()),
            WakeAction::Http(url) => f.write_str(url),
        }
    }
}
