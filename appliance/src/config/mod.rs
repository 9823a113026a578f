//! Settings of the daemon: from a TOML file or from the command line, checked in full before anything starts.

mod access;
mod adapter;
mod command_line;
mod diagnostics;
mod environment;
mod faults;
mod file;
mod keys;
mod objects;
mod port;
mod reader;
mod scenario;
mod settings;
mod subnet_groups;
mod taken;
mod teams;
mod verbs_faults;
mod vlan;
mod written;

pub use command_line::{Simple, Uplink};
pub(crate) use command_line::{eth_socket, rdma_socket};
pub use diagnostics::Diagnostics;
pub use environment::Environment;
pub use faults::from_text as faults_from_text;
pub use keys::{Difference, Keys};
pub use objects::Object;
pub use scenario::from_text as scenario_from_text;
pub use settings::{CONTROL_MODE, Control, Given, Overrides, Settings};
pub use written::{daemon, file as written};

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
