//! `vnic-verbs`: runs programs that were linked with libibverbs on vnic's RDMA function, as they are.

mod cli;
mod devices;
mod drop_in;
mod elf;
mod environment;
mod library;
mod place;
mod program;
mod versions;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os().collect())
}

/// Why something cannot be done, and what helps. The text has both.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl Refusal {
    fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }
}
