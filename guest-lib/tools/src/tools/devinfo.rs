//! `devinfo`: attributes of a device, as `ibv_devinfo` prints them.

use std::process::ExitCode;

use serde_json::{Map, Value, json};
use vnic_verbs::{Capabilities, Context, MacAddress, PortState};

use super::show_gids::kind_name;
use crate::failure::Result;
use crate::options::DeviceOptions;
use crate::report::Report;
use crate::seat;

/// Prints the attributes.
pub fn run(options: &DeviceOptions, verbose: bool) -> ExitCode {
    let report = seat::open(options.device.as_ref())
        .and_then(|context| info(&context, verbose).map_err(|failure| failure.on(context.name())));
    seat::finish("devinfo", options.json, report)
}

/// Adds a line to the text, and the same to the JSON.
fn line(
    report: &mut Report,
    json: &mut Map<String, Value>,
    indent: usize,
    key: &str,
    value: impl Into<Value>,
) {
    let value = value.into();
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    report.note(format!(
        "{:indent$}{:<width$} {text}",
        "",
        format!("{key}:"),
        width = 32 - indent
    ));
    json.insert(key.to_owned(), value);
}

fn info(context: &Context, verbose: bool) -> Result<Report> {
    let device = context.query_device();
    let port = context.query_port()?;
    let mut report = Report::new("devinfo");
    let mut json = Map::new();
    report.word("device", context.name());
    report.note(format!("device: {}", context.name()));
    let mut say = |key: &str, value: Value| line(&mut report, &mut json, 4, key, value);
    say("transport", json!("RoCE"));
    say("fw_ver", json!(device.firmware()));
    say("node_guid", json!(guid(&device.node_guid)));
    say("vendor_id", json!(format!("{:#06x}", device.vendor_id)));
    say("vendor_part_id", json!(device.vendor_part_id));
    say("hw_ver", json!(format!("{:#x}", device.hardware_version)));
    if verbose {
        say("capabilities", json!(capabilities(device.capabilities())));
        say(
            "atomic_scope",
            json!(format!("{:?}", device.atomic_scope()).to_lowercase()),
        );
        for (key, value) in [
            ("max_mr_size", device.max_mr_size),
            ("max_dm_size", device.max_dm_size),
            ("max_command_len", device.max_command_len.into()),
            ("max_qp", device.max_qp.into()),
            ("max_qp_wr", device.max_qp_wr.into()),
            ("max_send_blocks", device.max_send_blocks.into()),
            ("max_sge", device.max_sge.into()),
            ("max_inline", device.max_inline.into()),
            ("max_cq", device.max_cq.into()),
            ("max_cqe", device.max_cqe.into()),
            ("max_mr", device.max_mr.into()),
            ("max_mr_extents", device.max_mr_extents.into()),
            ("max_mw", device.max_mw.into()),
            ("max_pd", device.max_pd.into()),
            ("max_srq", device.max_srq.into()),
            ("max_srq_wr", device.max_srq_wr.into()),
            ("max_srq_sge", device.max_srq_sge.into()),
            ("max_ah", device.max_ah.into()),
            ("max_xrcd", device.max_xrcd.into()),
            ("max_mcast_groups", device.max_mcast_groups.into()),
            ("max_mcast_qp_per_group", device.max_mcast_qp_per_group.into()),
            ("max_rd_atomic", device.max_rd_atomic.into()),
            ("max_doorbell_rings", device.max_doorbell_rings.into()),
            ("local_ack_delay", device.local_ack_delay.into()),
            ("min_qp_rate_kbps", device.min_qp_rate.into()),
            ("max_qp_rate_kbps", device.max_qp_rate.into()),
        ] {
            say(key, json!(value));
        }
    }
    report.note("    port: 1".to_owned());
    let mut port_json = Map::new();
    let mut say = |key: &str, value: Value| line(&mut report, &mut port_json, 8, key, value);
    say(
        "state",
        json!(match port.state() {
            PortState::Active => "PORT_ACTIVE",
            PortState::Down => "PORT_DOWN",
        }),
    );
    say("max_mtu", json!(port.max_mtu().bytes()));
    say("active_mtu", json!(port.active_mtu().bytes()));
    say("mac", json!(MacAddress(port.mac).to_string()));
    say("link_layer", json!("Ethernet"));
    if verbose {
        say("speed", json!(port.speed));
        say("max_msg_sz", json!(port.max_message));
        say("gid_tbl_len", json!(port.gid_table_len));
        say("pkey_tbl_len", json!(port.pkey_table_len));
        for entry in context.gids()? {
            say(
                &format!("GID[{}]", entry.index),
                json!(format!("{}, RoCE {}", entry.gid, kind_name(entry.kind))),
            );
        }
    }
    json.insert("port".into(), port_json.into());
    if verbose {
        objects(context, &mut report, &mut json)?;
    }
    for (key, value) in json {
        report.word(&key, value);
    }
    Ok(report)
}

/// Prints the number of objects, and the counters that are not zero.
fn objects(context: &Context, report: &mut Report, json: &mut Map<String, Value>) -> Result {
    report.note("    objects: used of most");
    let mut all = Map::new();
    for r in context.resources()? {
        report.note(format!(
            "        {:<24} {} of {}",
            format!("{}:", r.name),
            r.used,
            r.limit
        ));
        all.insert(r.name, json!({ "used": r.used, "limit": r.limit }));
    }
    json.insert("objects".into(), all.into());
    report.note("    counters that are not zero");
    let mut all = Map::new();
    for c in context.counters()? {
        if c.value > 0 {
            report.note(format!("        {:<24} {}", format!("{}:", c.name), c.value));
        }
        all.insert(c.name, c.value.into());
    }
    json.insert("counters".into(), all.into());
    Ok(())
}

/// A GUID as `ibv_devinfo` writes it.
fn guid(bytes: &[u8; 8]) -> String {
    let parts: Vec<String> = bytes
        .chunks(2)
        .map(|two| format!("{:02x}{:02x}", two[0], two[1]))
        .collect();
    parts.join(":")
}

fn capabilities(all: Capabilities) -> String {
    let names: Vec<_> = all.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    names.join(" ")
}
