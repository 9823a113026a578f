//! Options of `vnicctl status`.

use std::time::Duration;

use crate::check::fault::span;

/// `vnicctl status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Time between the two looks that say what grows, such as 1s
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    pub interval: Duration,
    /// How long ago a warning or error is still news, such as 10min or 1d
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = span)]
    pub since: Duration,
    /// Exit code 1 if something is odd, for scripts
    #[arg(long)]
    pub check: bool,
}
