//! Text of congestion control.

use std::fmt::Write as _;

use vnic_control::v1;
use vnic_control::v1::congestion_parameter::Point;

use super::super::text::{self, Table};
use crate::check::qos::rate_text;
use crate::names;

fn adapter(congestion: &v1::Congestion) -> &str {
    names::last(congestion.name.trim_end_matches("/congestion"))
}

/// Enabled priorities.
fn set(flags: &[bool]) -> String {
    let set: Vec<String> = (0..8)
        .zip(flags)
        .filter(|(_, on)| **on)
        .map(|(priority, _): (u32, _)| priority.to_string())
        .collect();
    match set.len() {
        0 => "none".to_owned(),
        8 => "all".to_owned(),
        _ => set.join(","),
    }
}

/// Table of all adapters.
pub fn table(all: &[v1::Congestion]) -> String {
    let mut table = Table::new(&["NAME", "ALGORITHM", "PRESET", "RP", "NP", ">SET", ">LINE RATE"]);
    for congestion in all {
        table.row([
            adapter(congestion).to_owned(),
            congestion.algorithm.clone(),
            congestion.preset.clone(),
            set(&congestion.reaction),
            set(&congestion.notification),
            congestion.parameters.iter().filter(|p| p.set).count().to_string(),
            rate_text(congestion.line_rate_bps),
        ]);
    }
    table.finish("no adapters")
}

/// Value of a parameter: its word if that is short, else the number.
fn value(p: &v1::CongestionParameter) -> String {
    match p.word.as_str() {
        word if (1..=12).contains(&word.len()) => word.to_owned(),
        _ => p.value.clone(),
    }
}

/// Text of one adapter.
pub fn text(congestion: &v1::Congestion) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "Algorithm: {}", congestion.algorithm);
    let _ = writeln!(out, "Preset: {}", congestion.preset);
    let _ = writeln!(out, "Line rate: {}", rate_text(congestion.line_rate_bps));
    for (title, point, on) in [
        ("Reaction point", Point::Reaction, Some(&congestion.reaction)),
        (
            "Notification point",
            Point::Notification,
            Some(&congestion.notification),
        ),
        ("Device", Point::Device, None),
    ] {
        match on {
            Some(on) => {
                let _ = writeln!(out, "\n{title}, priorities: {}", set(on));
            }
            None => {
                let _ = writeln!(out, "\n{title}");
            }
        }
        let mut table = Table::new(&["PARAMETER", ">VALUE", "UNIT", "SET", "ALLOWED"]);
        for p in congestion.parameters.iter().filter(|p| p.point() == point) {
            table.row([
                p.name.clone(),
                p.value.clone(),
                match p.word.as_str() {
                    "" => p.unit.clone(),
                    word => word.to_owned(),
                },
                if p.set { "set" } else { "" }.to_owned(),
                p.allowed.clone(),
            ]);
        }
        out.push_str(&table.finish("no parameters"));
    }
    for warning in &congestion.warnings {
        let _ = writeln!(out, "Note: {warning}");
    }
    out
}

/// Parameters in the form that `set` takes.
pub fn values(parameters: &[v1::CongestionParameter]) -> String {
    parameters.iter().fold(String::new(), |mut out, p| {
        let _ = writeln!(out, "{}={}", p.name, p.value);
        out
    })
}

/// Defaults of parameters, with the values.
pub fn defaults(congestion: &v1::Congestion) -> String {
    let mut table = Table::new(&["PARAMETER", ">DEFAULT", ">NOW", "UNIT"]);
    for p in &congestion.parameters {
        table.row([
            p.name.clone(),
            p.preset_value.clone(),
            if p.preset_value == p.value {
                String::new()
            } else {
                p.value.clone()
            },
            p.unit.clone(),
        ]);
    }
    format!("Preset: {}\n{}", congestion.preset, table.finish("no parameters"))
}

/// Algorithms, and presets side by side.
pub fn presets(all: &v1::ListCongestionPresetsResponse) -> String {
    let mut algorithms = Table::new(&["ALGORITHM", "WHAT IT IS"]);
    for a in &all.algorithms {
        algorithms.row([a.name.clone(), a.help.clone()]);
    }
    let mut names = Table::new(&["PRESET", "WHAT IT IS"]);
    for p in &all.presets {
        names.row([p.name.clone(), p.help.clone()]);
    }
    let columns: Vec<String> = all
        .presets
        .iter()
        .map(|p| format!(">{}", p.name.to_uppercase()))
        .collect();
    let headings: Vec<&str> = ["PARAMETER"]
        .into_iter()
        .chain(columns.iter().map(String::as_str))
        .chain(["UNIT"])
        .collect();
    let mut table = Table::new(&headings);
    let rows = all.presets.first().map_or(&[][..], |p| &p.parameters);
    for (i, row) in rows.iter().enumerate() {
        let values = all
            .presets
            .iter()
            .map(|p| p.parameters.get(i).map_or_else(String::new, value));
        table.row(
            [row.name.clone()]
                .into_iter()
                .chain(values)
                .chain([row.unit.clone()]),
        );
    }
    [algorithms, names, table]
        .map(|table| table.finish("nothing"))
        .join("\n")
}

/// Limited queue pairs.
pub fn flows(flows: &[v1::CongestionFlow]) -> String {
    let mut table = Table::new(&[
        "ADAPTER", ">QP", ">PRIO", ">RATE", ">TARGET", ">WINDOW", ">ALPHA", ">STAGES", ">CUTS", ">CNPS",
    ]);
    let rate = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), rate_text);
    for f in flows {
        let stages = f.time_stage.zip(f.byte_stage);
        table.row([
            names::last(&f.adapter).to_owned(),
            f.queue_pair.to_string(),
            f.priority.to_string(),
            rate(f.rate_bps),
            rate(f.target_bps),
            f.window_bytes.map_or_else(|| "-".to_owned(), text::bytes),
            f.alpha
                .map_or_else(|| "-".to_owned(), |a| format!("{:.3}", f64::from(a) / 1024.0)),
            stages.map_or_else(|| "-".to_owned(), |(time, bytes)| format!("{time}/{bytes}")),
            f.cuts.to_string(),
            f.notifications.to_string(),
        ]);
    }
    table.finish("no queue pair is limited")
}

/// Output in the form of the Windows tool.
pub fn tool(adapter: &str, congestion: &v1::Congestion, defaults: bool) -> String {
    let mut out = String::new();
    for (point, side, on) in [
        (Point::Reaction, "RP", &congestion.reaction),
        (Point::Notification, "NP", &congestion.notification),
    ] {
        let _ = writeln!(out, "DCQCN {side} attributes for adapter \"{adapter}\":");
        for (priority, on) in on.iter().enumerate() {
            let _ = writeln!(
                out,
                "Dcqcn{side}EnablePrio{priority}: {}",
                u8::from(*on && !defaults)
            );
        }
        for p in &congestion.parameters {
            if p.point() == point && p.keyed {
                let value = if defaults { &p.preset_value } else { &p.value };
                let _ = writeln!(out, "{}: {value}", p.name);
            }
        }
        if point == Point::Reaction {
            out.push('\n');
        }
    }
    out
}
