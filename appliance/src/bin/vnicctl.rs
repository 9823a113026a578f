//! `vnicctl`: the command line of the NIC daemon.

fn main() -> std::process::ExitCode {
    vnic_appliance::cli::run().into()
}
