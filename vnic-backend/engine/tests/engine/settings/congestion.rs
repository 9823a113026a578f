//! Keys of congestion control, and what they come to.

use super::*;
use std::time::Duration;
use vnic_engine::congestion::notification::CnpPriority;
use vnic_engine::settings::{Chosen, CongestionKeys, PARAMETERS, Points, Preset, parameter};

const LINE: u64 = 100_000_000_000;

fn keys(values: &[(&str, u32)]) -> CongestionKeys {
    AdapterSettings::from_values(stored(values)).congestion
}

fn acting(values: &[(&str, u32)]) -> Points {
    keys(values).parameters.over(Preset::Winof2Doc.points(), LINE)
}

#[test]
fn every_parameter_is_read_back_as_it_was_set() {
    for p in &PARAMETERS {
        let (min, max) = match p.def.kind {
            Kind::Dword { min, max } => (min, max),
            Kind::Rate { min } => (min, 100_000),
            Kind::Bool => (0, 1),
            Kind::Enum(values) => (0, values.len() as u32 - 1),
            _ => panic!("{}", p.def.name),
        };
        let plain = Preset::Winof2Doc.points();
        for value in [min, min + (max - min) / 2, max] {
            let mut chosen = Chosen::default();
            chosen.put(p, Some(value));
            let points = chosen.over(plain.clone(), LINE);
            assert_eq!(p.get(&points), value, "{}", p.def.name);
            // And nothing else has changed.
            for other in PARAMETERS.iter().filter(|o| o.def.name != p.def.name) {
                assert_eq!(
                    other.get(&points),
                    other.get(&plain),
                    "{} by {}",
                    other.def.name,
                    p.def.name
                );
            }
        }
        assert_eq!(p.keyed, key(p.def.name).is_some(), "{}", p.def.name);
        assert_eq!(
            parameter(&p.def.name.to_uppercase()).map(|f| f.def.name),
            Some(p.def.name)
        );
        for alias in p.def.aliases {
            assert_eq!(parameter(alias).map(|f| f.def.name), Some(p.def.name), "{alias}");
        }
    }
    // All keys but those of priorities are parameters.
    let of_keys = KEYS.iter().filter(|k| k.name.starts_with("Dcqcn")).count();
    assert_eq!(of_keys + 3, PARAMETERS.iter().filter(|p| p.keyed).count() + 8);
}

#[test]
fn the_defaults_of_the_keys_are_a_preset() {
    let points = Preset::Winof2Doc.points();
    for p in PARAMETERS.iter().filter(|p| p.keyed) {
        assert_eq!(Some(p.get(&points)), p.def.unset, "{}", p.def.name);
    }
    for preset in Preset::ALL {
        assert_eq!(Preset::by_name(preset.name()), Some(preset));
    }
    assert_eq!(Preset::by_name("fast"), None);
}

#[test]
fn units_are_those_of_the_documents() {
    let points = acting(&[
        ("DcqcnRpgTimeReset", 55),
        ("DcqcnRpgByteReset", 100),
        ("DcqcnRpgAiRate", 40),
        ("DcqcnCnpDscp", 48),
    ]);
    assert_eq!(points.reaction.time_reset, Duration::from_micros(55));
    assert_eq!(points.reaction.byte_reset, 6400);
    assert_eq!(points.reaction.ai_rate, 40_000_000);
    assert_eq!(points.notification.dscp, 48);
    // The priority counts where the mode says so, whichever was set first.
    assert_eq!(points.notification.priority, CnpPriority::Copied);
    let fixed = acting(&[("DcqcnCnp802pPrio", 5), ("DcqcnCnpPrioMode", 0)]);
    assert_eq!(fixed.notification.priority, CnpPriority::Fixed(5));
}

#[test]
fn no_rate_is_above_that_of_the_line() {
    let rates = [
        ("DcqcnRpgAiRate", 90_000),
        ("DcqcnRpgHaiRate", 90_000),
        ("DcqcnRpgMinRate", 90_000),
        ("DcqcnRateToSetOnFirstCnp", 90_000),
    ];
    let slow = keys(&rates)
        .parameters
        .over(Preset::Winof2Doc.points(), 10_000_000_000);
    for (name, _) in rates {
        let p = parameter(name).expect(name);
        assert_eq!(p.get(&slow), 10_000, "{name}");
    }
}

#[test]
fn priorities_are_a_bit_each() {
    assert_eq!(keys(&[]).enable, 0);
    assert_eq!(
        keys(&[("DcqcnEnablePrio3", 1), ("DcqcnEnablePrio7", 1)]).enable,
        0x88
    );
    assert_eq!(
        CongestionKeys::enable_key(3).map(|k| k.name),
        Some("DcqcnEnablePrio3")
    );
    assert!(CongestionKeys::enable_key(8).is_none());
}
