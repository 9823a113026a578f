//! What guests, VMMs, peers on the wire and clients can send, as targets of a coverage-guided fuzzer.
//!
//! A target takes bytes and must return, whatever they are. `tests/run fuzz` lets libFuzzer choose them, under
//! AddressSanitizer and with overflow checks; `cargo test` gives each target what `corpus/TARGET` holds, and random bytes.
//! An input that once showed a bug stays in the corpus.
#![forbid(unsafe_code)]

mod targets;

use targets::{
    cm, commands, driver, engine, files, gids, grpc, lacp, lldp, mesh, packed, ring, roce, vhost, work,
};

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// Whose bytes they are.
    pub about: &'static str,
    /// Takes an input; panics when something does not hold.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident: $about:literal, $run:path;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), about: $about, run: $run }),*];
    };
}

targets! {
    vhost: "VMM: vhost-user messages and their descriptors", vhost::run;
    ring: "guest: a split ring and its chains, beside a model", ring::run;
    packed: "guest: a packed ring and its chains, beside a model", packed::run;
    driver: "guest: commands of its Ethernet driver", driver::run;
    commands: "guest: RDMA commands and how they are cut", commands::run;
    work: "guest: work requests, receives, doorbells, indices", work::run;
    engine: "wire: changed packets between live queue pairs", engine::run;
    roce: "wire: RoCE frames", roce::run;
    gids: "guest and wire: ARP, neighbour discovery, DHCP", gids::run;
    lacp: "wire: slow protocols", lacp::run;
    lldp: "wire: link layer discovery", lldp::run;
    cm: "wire: messages of communication management and of subnet administration, and a driver", cm::run;
    mesh: "mesh peer: frames in datagrams", mesh::run;
    grpc: "client: requests of every method", grpc::run;
    reg: "client: .reg files", files::reg;
    config: "operator: vnicd.toml", files::config;
    faults: "operator: files of fault rules", files::faults;
    policy: "operator: policies of a subnet", files::policy;
}

/// The target of this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|t| t.name == name)
}
