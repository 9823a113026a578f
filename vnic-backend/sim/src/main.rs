//! `vnic-sim`: runs the simulator from the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    vnic_sim::cli::main()
}
