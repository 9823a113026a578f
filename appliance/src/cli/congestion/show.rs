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
    text::table! { congestion in all, "no adapters";
        "NAME": adapter(congestion),
        "ALGORITHM": congestion.algorithm,
        "PRESET": congestion.preset,
        "RP": set(&congestion.reaction),
        "NP": set(&congestion.notification),
        ">SET": congestion.parameters.iter().filter(|p| p.set).count(),
        ">LINE RATE": rate_text(congestion.line_rate_bps),
    }
}

/// Value of a parameter: its word if that is short, else the number.
fn value(p: &v1::CongestionParameter) -> String {
    match p.word.as_str() {
        word if (1..=12).contains(&word.len()) => word.to_owned(),
        _ => p.value.clone(),
    }
}

/// Whether a parameter is shown: those of an algorithm only while it is the adapter's.
fn is_shown(congestion: &v1::Congestion, p: &v1::CongestionParameter) -> bool {
    let acts = |(of, _): (&str, &str)| of == congestion.algorithm;
    p.point() != Point::Algorithm || p.name.split_once('.').is_some_and(acts)
}

/// Text of one adapter.
pub fn text(congestion: &v1::Congestion) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "Algorithm: {}", congestion.algorithm);
    let _ = writeln!(out, "Preset: {}", congestion.preset);
    let _ = writeln!(out, "Line rate: {}", rate_text(congestion.line_rate_bps));
    if let Some(program) = &congestion.program {
        let _ = writeln!(
            out,
            "Program: {} bytes, fingerprint {}; {} bytes of a flow; {}",
            program.size,
            program.fingerprint,
            program.flow_bytes,
            program.events.join(", ")
        );
    }
    for (title, point, on) in [
        ("Reaction point", Point::Reaction, &congestion.reaction),
        (
            "Notification point",
            Point::Notification,
            &congestion.notification,
        ),
        ("Device", Point::Device, &Vec::new()),
        ("Algorithm", Point::Algorithm, &Vec::new()),
        ("Program", Point::Program, &Vec::new()),
    ] {
        let of = |p: &&v1::CongestionParameter| p.point() == point && is_shown(congestion, p);
        let rows: Vec<_> = congestion.parameters.iter().filter(of).collect();
        let without = match point {
            Point::Program => congestion.program.is_none(),
            Point::Algorithm => rows.is_empty(),
            _ => false,
        };
        if without {
            continue;
        }
        let on = match point {
            Point::Device | Point::Algorithm | Point::Program => String::new(),
            _ => format!(", priorities: {}", set(on)),
        };
        let _ = writeln!(out, "\n{title}{on}");
        out += &text::table! { p in rows, "no parameters";
            "PARAMETER": p.name,
            ">VALUE": p.value,
            "UNIT": if p.word.is_empty() { &p.unit } else { &p.word },
            "SET": if p.set { "set" } else { "" },
            "ALLOWED": p.allowed,
        };
    }
    for warning in &congestion.warnings {
        let _ = writeln!(out, "Note: {warning}");
    }
    out
}

/// Parameters in the form that `set` takes.
pub fn values(parameters: &[v1::CongestionParameter]) -> String {
    let lines = parameters.iter();
    lines.map(|p| format!("{}={}\n", p.name, p.value)).collect()
}

/// Defaults of parameters, with the values.
pub fn defaults(congestion: &v1::Congestion) -> String {
    let shown = congestion.parameters.iter().filter(|p| is_shown(congestion, p));
    let table = text::table! { p in shown, "no parameters";
        "PARAMETER": p.name,
        ">DEFAULT": p.preset_value,
        ">NOW": if p.preset_value == p.value { "" } else { &p.value },
        "UNIT": p.unit,
    };
    format!("Preset: {}\n{table}", congestion.preset)
}

/// Algorithms, and presets side by side.
pub fn presets(all: &v1::ListCongestionPresetsResponse) -> String {
    let algorithms =
        text::table! { a in &all.algorithms, "nothing"; "ALGORITHM": a.name, "WHAT IT IS": a.help, };
    let names = text::table! { p in &all.presets, "nothing"; "PRESET": p.name, "WHAT IT IS": p.help, };
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
    [algorithms, names, table.finish("nothing")].join("\n")
}

/// Limited queue pairs, and flows of guests to queue pairs of their peers.
pub fn flows(flows: &[v1::CongestionFlow]) -> String {
    let none = || "-".to_owned();
    text::table! { f in flows, "no queue pair is limited";
        let stages = f.time_stage.zip(f.byte_stage);
        "ADAPTER": names::last(&f.adapter),
        "GUEST'S PEER": if f.peer.is_empty() { none() } else { f.peer.clone() },
        ">QP": f.queue_pair,
        ">PRIO": f.priority,
        ">RATE": f.rate_bps.map_or_else(none, rate_text),
        ">TARGET": f.target_bps.map_or_else(none, rate_text),
        ">WINDOW": f.window_bytes.map_or_else(none, text::bytes),
        ">ALPHA": f.alpha.map_or_else(none, |a| format!("{:.3}", f64::from(a) / 1024.0)),
        ">STAGES": stages.map_or_else(none, |(time, bytes)| format!("{time}/{bytes}")),
        ">CUTS": f.cuts,
        ">CNPS": f.notifications,
    }
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
