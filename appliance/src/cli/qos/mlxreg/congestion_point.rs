//! Registers CWTP (thresholds) and CWTPM (switches) of the congestion point of a traffic class.

use vnic_control::v1;

use super::super::super::Failure;
use super::super::args::Register;
use super::field::{Access, Field, Given, LOCAL_PORT, PNAT, unknown, usage, within};

/// Bytes of a cell, the unit of CWTP's thresholds. The registers have "cells" without a size; the Linux driver mlx5 takes
/// 128 bytes for a cell of port buffers if the card does not report another size (`en_dcbnl.c`).
const CELL: u32 = 128;
/// Greatest threshold in cells: 20 bits, and 256 MiB.
const CELLS_MAX: u32 = (256 << 20) / CELL;
/// Parts per million in one per cent.
const PERCENT: u32 = 10_000;

const CLASS: Field = Field::of("traffic_class", (0x20, 0), 8, Access::Index);

pub(super) const THRESHOLDS: [Field; 13] = [
    PNAT,
    LOCAL_PORT,
    CLASS,
    Field::of("mode", (0x24, 24), 1, Access::Rw),
    Field::of("profile1_min", (0x28, 0), 24, Access::Rw),
    Field::of("profile1_max", (0x2c, 0), 24, Access::Rw),
    Field::of("profile1_percent", (0x2c, 24), 7, Access::Rw),
    Field::of("profile2_min", (0x30, 0), 24, Access::Rw),
    Field::of("profile2_max", (0x34, 0), 24, Access::Rw),
    Field::of("profile2_percent", (0x34, 24), 7, Access::Rw),
    Field::of("profile3_min", (0x38, 0), 24, Access::Rw),
    Field::of("profile3_max", (0x3c, 0), 24, Access::Rw),
    Field::of("profile3_percent", (0x3c, 24), 7, Access::Rw),
];

pub(super) const SWITCHES: [Field; 5] = [
    PNAT,
    LOCAL_PORT,
    CLASS,
    Field::of("ee", (0x24, 0), 1, Access::Rw),
    Field::of("ew", (0x24, 1), 1, Access::Rw),
];

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

/// Writes fields of CWTP or CWTPM into the profile of a traffic class.
pub(super) fn write(
    register: Register,
    class: usize,
    given: &Given,
    qos: &mut v1::Qos,
) -> Result<(), Failure> {
    let Some(profile) = qos.ecn.get_mut(class) else {
        return Ok(());
    };
    if register == Register::Cwtp {
        return write_profiles(given, profile);
    }
    for (name, value) in given {
        match name.as_str() {
            "ee" => profile.ecn = *value != 0,
            "ew" => profile.wred = *value != 0,
            _ => return Err(unknown(name)),
        }
    }
    Ok(())
}

/// Writes fields of CWTP. A change of the mode alone leaves numbers that mean something else: all thresholds are needed with it.
fn write_profiles(fields: &Given, profile: &mut v1::EcnProfile) -> Result<(), Failure> {
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

/// A field of the profile of a traffic class, rounded down to a whole number of cells or per cent.
pub(super) fn read(name: &str, class: usize, qos: &v1::Qos) -> u32 {
    let profile = qos.ecn.get(class).copied().unwrap_or_default();
    let percent = profile.thresholds_in_percent;
    let unit = if percent { 1 } else { CELL };
    let (number, what) = match name {
        "mode" => return percent.into(),
        "ee" => return profile.ecn.into(),
        "ew" => return profile.wred.into(),
        // `profile1_min` is `min` of profile 1.
        _ => name
            .trim_start_matches("profile")
            .split_once('_')
            .unwrap_or_default(),
    };
    let curve = curve(&profile, number.parse().unwrap_or(1));
    match what {
        "min" => curve.min_bytes / unit,
        "max" => curve.max_bytes / unit,
        _ => curve.max_probability_ppm / PERCENT,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{set as write_fields, shown, value};
    use super::*;

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
        write_fields(Register::Cwtp, "traffic_class=5", text, qos).map(drop)
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
        let seen = shown(Register::Cwtp, "traffic_class=5", &qos);
        assert_eq!((value(&seen, "mode"), value(&seen, "profile1_max")), (1, 60));
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
