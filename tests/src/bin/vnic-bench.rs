//! `vnic-bench`: the NIC against its peers.

fn main() -> std::process::ExitCode {
    vnic_tests::bench::main()
}
