//! `vnic-verbs`: runs programs that were linked with libibverbs on vnic's RDMA function, as they are.

mod cdi;
mod cli;
mod devices;
mod drop_in;
mod elf;
mod environment;
mod files;
mod library;
mod options;
mod place;
mod program;
mod refusal;
mod settings;
mod versions;
mod view;

use refusal::Refusal;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os().collect())
}
