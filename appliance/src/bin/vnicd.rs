//! `vnicd`: the NIC daemon.

use clap::Parser as _;

fn main() -> std::process::ExitCode {
    vnic_appliance::daemon::run(&vnic_appliance::daemon::Args::parse()).into()
}
