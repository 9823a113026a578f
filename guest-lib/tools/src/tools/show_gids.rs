//! `show_gids`: the GID table, as the script of that name shows it.

use std::process::ExitCode;

use serde_json::json;
use vnic_verbs::{Context, GidKind};

use crate::failure::{Failure, Result};
use crate::options::DeviceOptions;
use crate::report::Report;
use crate::seat;

/// Lists the GIDs.
pub fn run(options: &DeviceOptions) -> ExitCode {
    let report = seat::open(options.device.as_ref()).and_then(|context| table(&context));
    seat::finish("show_gids", options.json, report)
}

fn table(context: &Context) -> Result<Report> {
    let mut report = Report::new("show_gids");
    report.word("device", context.name());
    report.note(format!(
        "{:<6} {:<40} {:<16} {:<4} {:<5} MAC",
        "INDEX", "GID", "IPv4", "VER", "VLAN"
    ));
    let mut rows = Vec::new();
    for entry in context.gids().map_err(|e| Failure::from(e).on(context.name()))? {
        let ip = entry.gid.ip();
        let ipv4 = if ip.is_ipv4() {
            ip.to_string()
        } else {
            String::new()
        };
        let version = kind_name(entry.kind);
        report.note(format!(
            "{:<6} {:<40} {ipv4:<16} {version:<4} {:<5} {}",
            entry.index,
            entry.gid.to_string(),
            entry.vlan,
            entry.mac
        ));
        rows.push(json!({
            "index": entry.index, "gid": entry.gid.to_string(), "address": ip.to_string(), "type": version,
            "vlan": entry.vlan, "mac": entry.mac.to_string(),
        }));
    }
    report.word("gids", rows);
    Ok(report)
}

/// Name of the kind in rdma-core's tools.
pub fn kind_name(kind: GidKind) -> &'static str {
    match kind {
        GidKind::None => "-",
        GidKind::RoceV1 => "v1",
        GidKind::RoceV2 => "v2",
    }
}
