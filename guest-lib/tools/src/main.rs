//! `vnic-guest`: tools for vnic's RDMA function, in a virtual machine or in a process of the host.
//!
//! Called by the name of a tool (a link `rc_pingpong`, say) it is that tool.

mod cli;
mod exchange;
mod failure;
mod flow;
mod options;
mod pattern;
mod perf;
mod queue;
mod report;
mod seat;
mod session;
mod slots;
mod stats;
mod tools;
mod volley;
mod wait;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os().collect())
}
