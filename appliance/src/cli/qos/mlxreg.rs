//! Registers CWTP and CWTPM (congestion point of a traffic class) in the output format of mlxreg. The fields are those of
//! Linux, `drivers/net/ethernet/mellanox/mlxsw/reg.h`.

use std::fmt::Write as _;

use vnic_control::v1;

use super::super::Failure;
use super::args::Register;

/// Bytes of a cell, the unit of CWTP's thresholds. The registers have "cells" without a size; the Linux driver mlx5 takes
/// 128 bytes for a cell of port buffers if the card does not report another size (`en_dcbnl.c`).
const CELL: u32 = 128;
/// Greatest threshold in cells: 20 bits, and 256 MiB.
const CELLS_MAX: u32 = (256 << 20) / CELL;
/// Parts per million in one per cent.
const PERCENT: u32 = 10_000;

pub type Fields = [(String, u32)];

fn usage(problem: impl Into<String>) -> Failure {
    Failure::Usage(problem.into())
}

/// Traffic class of the indexes.
pub fn class(indexes: &Fields) -> Result<usize, Failure> {
    let mut class = None;
    for (name, value) in indexes {
        match name.as_str() {
            "traffic_class" if *value < 8 => class = Some(*value as usize),
            "traffic_class" => return Err(usage(format!("traffic_class {value} is out of range: 0 to 7"))),
            "local_port" | "pnat" => {}
            _ => {
                return Err(usage(format!(
                    "{name:?} is no index: local_port, pnat and traffic_class are"
                )));
            }
        }
    }
    class.ok_or_else(|| usage("--indexes: traffic_class is missing, such as traffic_class=5"))
}

/// Writes fields of a register into the settings.
pub fn write(register: Register, class: usize, fields: &Fields, qos: &mut v1::Qos) -> Result<(), Failure> {
    qos.ecn.resize(8, v1::EcnProfile::default());
    let Some(profile) = qos.ecn.get_mut(class) else {
        return Ok(());
    };
    let of = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    let known: &[&str] = match register {
        Register::Cwtp => &["mode", "min", "max", "percent"],
        Register::Cwtpm => &["ee", "ew"],
        Register::RoceAccl => &[],
    };
    for (name, value) in fields {
        // `profile1_min` is `min` of profile 1.
        let what = name
            .strip_prefix("profile")
            .and_then(|rest| rest.split_once('_'))
            .filter(|(n, _)| register == Register::Cwtp && ["1", "2", "3"].contains(n))
            .map_or(name.as_str(), |(_, what)| what);
        let most = match what {
            _ if !known.contains(&what) || (what == name && ["min", "max", "percent"].contains(&what)) => {
                return Err(usage(format!("{name:?} is no field that can be written")));
            }
            "mode" if *value != 0 => {
                return Err(usage(
                    "mode 1 (thresholds in per cent of a buffer) is not there: 0 (fixed)",
                ));
            }
            "min" | "max" => CELLS_MAX,
            "percent" => 100,
            _ => 1,
        };
        if *value > most {
            return Err(usage(format!("{name} {value} is out of range: 0 to {most}")));
        }
        if what != name && of(&format!("profile1_{what}")) != Some(*value) {
            return Err(usage(format!(
                "{name}: all three profiles are the same, packets have no colours: give it the value of profile1_{what}"
            )));
        }
    }
    if let Some(cells) = of("profile1_min") {
        profile.min_bytes = cells * CELL;
    }
    if let Some(cells) = of("profile1_max") {
        profile.max_bytes = cells * CELL;
    }
    if let Some(percent) = of("profile1_percent") {
        profile.max_probability_ppm = percent * PERCENT;
    }
    if let Some(on) = of("ee") {
        profile.ecn = on != 0;
    }
    if let Some(on) = of("ew") {
        profile.wred = on != 0;
    }
    Ok(())
}

/// Register of a traffic class. Values that are not a whole number of cells or per cent are rounded down.
pub fn text(register: Register, class: usize, indexes: &Fields, qos: &v1::Qos) -> String {
    let profile = qos.ecn.get(class).copied().unwrap_or_default();
    let index = |name: &str| indexes.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v);
    let mut rows: Vec<(String, u32)> = ["pnat", "local_port", "traffic_class"]
        .map(|name| (name.to_owned(), index(name)))
        .to_vec();
    match register {
        Register::Cwtp => {
            rows.push(("mode".to_owned(), 0));
            for n in 1..=3 {
                rows.push((format!("profile{n}_min"), profile.min_bytes / CELL));
                rows.push((format!("profile{n}_max"), profile.max_bytes / CELL));
                rows.push((
                    format!("profile{n}_percent"),
                    profile.max_probability_ppm / PERCENT,
                ));
            }
        }
        Register::Cwtpm => {
            rows.push(("ee".to_owned(), profile.ecn.into()));
            rows.push(("ew".to_owned(), profile.wred.into()));
        }
        Register::RoceAccl => {}
    }
    self::rows(&rows)
}

/// Fields as mlxreg shows them.
pub fn rows(rows: &Fields) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 4;
    let ruler = "=".repeat(width + 13);
    let mut out = String::from("Sending access register...\n");
    let _ = writeln!(out, "{:width$}| Data\n{ruler}", "Field Name");
    for (name, value) in rows {
        let _ = writeln!(out, "{name:width$}| {value:#010x}");
    }
    out + &ruler + "\n"
}
