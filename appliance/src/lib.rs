//! The appliance: `vnicd`, the NIC daemon, and `vnicctl`, its command line. This crate reads the configuration, starts the
//! NIC of `vnic-backend`, and serves gRPC and Prometheus; it notifies systemd and writes logs.
#![forbid(unsafe_code)]
// `println!` and `eprintln!` panic if nobody reads what they print, and with them the daemon.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod access;
pub mod capture;
mod check;
pub mod cli;
pub mod comparable;
pub mod config;
mod control;
mod counters;
pub mod daemon;
pub mod events;
mod faults;
mod grpc;
pub mod http;
mod json;
mod logging;
mod macs;
pub mod mesh;
pub mod metrics;
mod names;
mod nv;
mod paced;
pub mod panics;
mod private;
mod pulse;
pub mod registry;
mod same;
pub mod scenarios;
pub mod store;
mod stored;
mod systemd;
mod teams;
pub mod traces;
mod verbs_faults;
mod wake;

/// Version of the product.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Revision from which the binary was built, if `VNIC_GIT_REVISION` was set for the build.
pub const GIT_REVISION: Option<&str> = option_env!("VNIC_GIT_REVISION");

/// Features of this build, sorted, for `GetServerInfo`.
pub const FEATURES: &[&str] = &[
    "access-lists",
    "adapter-update",
    "capture-pcapng",
    "clock",
    "config-apply",
    "congestion-control",
    "embedded-switch",
    "ethernet",
    "event-log",
    "fault-injection",
    "fault-scenarios",
    "frame-trace",
    "histograms",
    "live-migration",
    "mesh",
    "metrics-gzip",
    "metrics-node-exporter",
    "metrics-prometheus",
    "mirror",
    "nv-parameters",
    "oid",
    "qos",
    "rdma",
    "rdma-connections",
    "registry",
    "request-ids",
    "request-outcomes",
    "teams",
    "uplink-packet",
    "uplink-tap",
    "uplink-xdp",
    "validate-only",
    "verbs-faults",
    "vlan",
];
