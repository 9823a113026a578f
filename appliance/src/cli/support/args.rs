//! Options of `vnicctl support-bundle`.

use std::path::PathBuf;
use std::time::Duration;

use crate::check::fault::span;

/// `vnicctl support-bundle`.
#[derive(Debug, clap::Args)]
pub struct SupportArgs {
    /// Write the archive to PATH, which must not exist [default: vnic-support-HOST-TIME.tar.gz]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Time between the two samples of counters, such as 3s
    #[arg(long, value_name = "SPAN", default_value = "3s", value_parser = span)]
    pub interval: Duration,
}
