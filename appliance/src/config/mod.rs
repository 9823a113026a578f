//! Settings of the daemon: from a TOML file or from the command line, checked in full before anything starts.

mod access;
mod adapter;
mod command_line;
mod diagnostics;
mod environment;
mod faults;
mod file;
mod port;
mod reader;
mod settings;
mod taken;
mod teams;
mod vlan;

use crate::access::Access;

pub use command_line::{Simple, Uplink};
pub(crate) use command_line::{eth_socket, rdma_socket};
pub use diagnostics::Diagnostics;
pub use environment::Environment;
pub use faults::from_text as faults_from_text;
pub use settings::{CONTROL_MODE, Control, Overrides, Settings};

impl Settings {
    /// Reads, parses and checks a configuration file.
    pub fn from_file(
        path: &std::path::Path,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Settings, Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Diagnostics::general(path, format!("cannot read the file: {e}")))?;
        file::parse(path, &text, overrides, environment)
    }

    /// Reads the part of a configuration file that may change while the daemon runs: `[access]`.
    pub fn access_from_file(path: &std::path::Path) -> Result<Access, Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Diagnostics::general(path, format!("cannot read the file: {e}")))?;
        file::parse_access(path, &text)
    }

    /// [`Settings::from_file`] with the file's text.
    pub fn from_text(
        path: &std::path::Path,
        text: &str,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Settings, Diagnostics> {
        file::parse(path, text, overrides, environment)
    }

    /// Settings without a configuration file.
    pub fn from_command_line(
        simple: &Simple,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Settings, String> {
        command_line::settings(simple, overrides, environment)
    }
}
