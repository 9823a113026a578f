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

/// Curve of a profile, 1 to 3: green, yellow, red.
fn curve(profile: &v1::EcnProfile, number: usize) -> v1::EcnCurve {
    let green = v1::EcnCurve {
        min_bytes: profile.min_bytes,
        max_bytes: profile.max_bytes,
        max_probability_ppm: profile.max_probability_ppm,
    };
    let own = match number {
        2 => profile.yellow,
        3 => profile.red,
        _ => None,
    };
    own.unwrap_or(green)
}

/// Writes fields of a register into the settings.
pub fn write(register: Register, class: usize, fields: &Fields, qos: &mut v1::Qos) -> Result<(), Failure> {
    let Some(profile) = qos.ecn.get_mut(class) else {
        return Ok(());
    };
    match register {
        Register::Cwtp => write_profiles(fields, profile),
        Register::Cwtpm => {
            for (name, value) in fields {
                let place = match name.as_str() {
                    "ee" => &mut profile.ecn,
                    "ew" => &mut profile.wred,
                    _ => return Err(unknown(name)),
                };
                *place = within(name, *value, 1)? != 0;
            }
            Ok(())
        }
        Register::RoceAccl => Ok(()),
    }
}

fn unknown(name: &str) -> Failure {
    usage(format!("{name:?} is no field that can be written"))
}

fn within(name: &str, value: u32, most: u32) -> Result<u32, Failure> {
    if value <= most {
        return Ok(value);
    }
    Err(usage(format!("{name} {value} is out of range: 0 to {most}")))
}

/// Writes fields of CWTP. A change of the mode alone leaves numbers that mean something else: all thresholds are needed with it.
fn write_profiles(fields: &Fields, profile: &mut v1::EcnProfile) -> Result<(), Failure> {
    let mut curves = [1, 2, 3].map(|n| curve(profile, n));
    let before = profile.thresholds_in_percent;
    if let Some((name, mode)) = fields.iter().find(|(name, _)| name == "mode") {
        profile.thresholds_in_percent = within(name, *mode, 1)? != 0;
    }
    let percent = profile.thresholds_in_percent;
    if percent != before {
        let given = |n: usize, what: &str| {
            fields
                .iter()
                .any(|(name, _)| *name == format!("profile{n}_{what}"))
        };
        let all = (1..=3).all(|n| given(n, "min") && given(n, "max"));
        if !all {
            let unit = if percent {
                "per cent of the buffer"
            } else {
                "cells"
            };
            return Err(usage(format!(
                "mode: thresholds are in {unit} then: give profile1_min to profile3_max with it"
            )));
        }
    }
    let (unit, most) = if percent { (1, 100) } else { (CELL, CELLS_MAX) };
    for (name, value) in fields.iter().filter(|(name, _)| name != "mode") {
        // `profile1_min` is `min` of profile 1.
        let parts = name.strip_prefix("profile").and_then(|rest| rest.split_once('_'));
        let (n, what) = parts.ok_or_else(|| unknown(name))?;
        let place = n
            .parse::<usize>()
            .ok()
            .and_then(|n| curves.get_mut(n.checked_sub(1)?));
        let curve = place.ok_or_else(|| unknown(name))?;
        match what {
            "min" => curve.min_bytes = within(name, *value, most)? * unit,
            "max" => curve.max_bytes = within(name, *value, most)? * unit,
            "percent" => curve.max_probability_ppm = within(name, *value, 100)? * PERCENT,
            _ => return Err(unknown(name)),
        }
    }
    let [green, yellow, red] = curves;
    profile.min_bytes = green.min_bytes;
    profile.max_bytes = green.max_bytes;
    profile.max_probability_ppm = green.max_probability_ppm;
    // What is as green packets have it is not written down twice.
    profile.yellow = Some(yellow).filter(|curve| *curve != green);
    profile.red = Some(red).filter(|curve| *curve != green);
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
            let unit = if profile.thresholds_in_percent { 1 } else { CELL };
            rows.push(("mode".to_owned(), profile.thresholds_in_percent.into()));
            for n in 1..=3 {
                let curve = curve(&profile, n);
                rows.push((format!("profile{n}_min"), curve.min_bytes / unit));
                rows.push((format!("profile{n}_max"), curve.max_bytes / unit));
                rows.push((format!("profile{n}_percent"), curve.max_probability_ppm / PERCENT));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::qos::assignments;

    fn qos() -> v1::Qos {
        let profile = v1::EcnProfile {
            min_bytes: 0x40 * CELL,
            max_bytes: 0x38c0 * CELL,
            ..v1::EcnProfile::default()
        };
        v1::Qos {
            ecn: vec![profile; 8],
            ..v1::Qos::default()
        }
    }

    fn set(qos: &mut v1::Qos, text: &str) -> Result<(), String> {
        let fields = assignments(text).expect(text);
        write(Register::Cwtp, 5, &fields, qos).map_err(|e| format!("{e:?}"))
    }

    /// The first example of the notes on these registers: profile 1 is another, 2 and 3 are what nobody has written.
    #[test]
    fn three_profiles() {
        let mut qos = qos();
        set(
            &mut qos,
            "mode=0,profile1_min=0x2c0,profile1_max=0x1e40,profile1_percent=30,profile2_min=0x40,profile2_max=0x38c0,\
             profile2_percent=0,profile3_min=0x40,profile3_max=0x38c0,profile3_percent=0",
        )
        .expect("taken");
        let profile = qos.ecn[5];
        let of = (profile.min_bytes, profile.max_bytes, profile.max_probability_ppm);
        assert_eq!(of, (0x2c0 * 128, 0x1e40 * 128, 300_000));
        assert_eq!(profile.yellow, profile.red);
        assert_eq!(
            profile.yellow.map(|c| (c.min_bytes, c.max_bytes)),
            Some((0x40 * 128, 0x38c0 * 128))
        );
        // One field of one profile; the others stay.
        set(&mut qos, "profile3_percent=7").expect("taken");
        assert_eq!(qos.ecn[5].red.map(|c| c.max_probability_ppm), Some(70_000));
        assert_eq!(qos.ecn[5].yellow, profile.yellow);
        // All the same: one curve.
        set(
            &mut qos,
            "profile1_min=0x40,profile1_max=0x38c0,profile1_percent=0,profile3_percent=0",
        )
        .expect("taken");
        assert_eq!((qos.ecn[5].yellow, qos.ecn[5].red), (None, None));
    }

    #[test]
    fn mode_1_is_in_per_cent_and_needs_all_thresholds() {
        let mut qos = qos();
        let refused = set(&mut qos, "mode=1,profile1_min=10,profile1_max=60").expect_err("refused");
        assert!(refused.contains("profile3_max"), "{refused}");
        set(
            &mut qos,
            "mode=1,profile1_min=10,profile1_max=60,profile2_min=10,profile2_max=60,profile3_min=0,profile3_max=20",
        )
        .expect("taken");
        let profile = qos.ecn[5];
        assert_eq!((profile.min_bytes, profile.max_bytes), (10, 60));
        assert_eq!(profile.red.map(|c| (c.min_bytes, c.max_bytes)), Some((0, 20)));
        assert!(profile.thresholds_in_percent && profile.yellow.is_none());
        let shown = text(Register::Cwtp, 5, &[], &qos);
        assert!(shown.contains("mode                | 0x00000001"), "{shown}");
        assert!(shown.contains("profile1_max        | 0x0000003c"), "{shown}");
        let refused = set(&mut qos, "profile1_max=101").expect_err("refused");
        assert!(
            refused.contains("profile1_max 101 is out of range: 0 to 100"),
            "{refused}"
        );
        for bad in ["profile4_min=1", "min=1", "profile1_mean=1", "ee=1"] {
            assert!(set(&mut qos, bad).expect_err(bad).contains("no field"), "{bad}");
        }
    }
}
