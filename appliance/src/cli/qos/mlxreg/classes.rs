//! Registers QTCT (traffic class by priority) and QETCR (turns, shares and limits of traffic classes).
//!
//! QETCR gives each traffic class a group. Higher groups go first; the classes of a group share what the group gets by
//! `bw_allocation`. Linux (`en_dcbnl.c` of mlx5) has group 7 for the algorithm "vendor", one group for all ETS classes, one below it
//! for those with a share of 0, and one above it for each strict class; and so it is read and written here.

use vnic_control::v1;
use vnic_control::v1::qos::Algorithm;

use super::super::super::Failure;
use super::field::{Access, Chosen, Field, LOCAL_PORT, usage, within};

pub(super) const OF_PRIORITY: [Field; 6] = [
    Field::of("switch_prio", (0, 0), 4, Access::Index),
    LOCAL_PORT,
    Field::of("cap_remote_admin", (0, 28), 1, Access::Ro),
    Field::of("cap_local_admin", (0, 29), 1, Access::Ro),
    Field::of("operation_type", (0, 30), 2, Access::Index),
    Field::of("tclass", (4, 0), 4, Access::Rw),
];

pub(super) fn read_class(name: &str, priority: usize, qos: &v1::Qos) -> u32 {
    let class = qos.priority_to_tc.get(priority).filter(|_| name == "tclass");
    class.copied().unwrap_or(0)
}

pub(super) fn write_class(
    chosen: &Chosen<'_>,
    priority: usize,
    qos: &mut v1::Qos,
) -> Result<Vec<&'static str>, Failure> {
    let (Some(class), Some(place)) = (chosen.get("tclass"), qos.priority_to_tc.get_mut(priority)) else {
        return Ok(Vec::new());
    };
    *place = within("tclass", class, 7)?;
    Ok(vec!["priority_to_tc"])
}

/// Fields of a traffic class, with their places in its two words.
const OF_CLASS: [(&str, (u32, u32), u32, Access); 7] = [
    ("bw_allocation", (0, 0), 7, Access::Rw),
    ("group", (0, 16), 4, Access::Rw),
    ("r", (0, 29), 1, Access::Wo),
    ("b", (0, 30), 1, Access::Wo),
    ("g", (0, 31), 1, Access::Wo),
    ("max_bw_value", (4, 0), 16, Access::Rw),
    ("max_bw_units", (4, 16), 4, Access::Rw),
];

/// The port's own limit has a limit's fields alone.
const GLOBAL: &str = "global_configuration";

fn is_of_limit(name: &str) -> bool {
    matches!(name, "r" | "max_bw_value" | "max_bw_units")
}

pub(super) fn fields() -> Vec<Field> {
    let blocks = (0..8)
        .map(|class| format!("tc_configuration[{class}]"))
        .chain([GLOBAL.to_owned()]);
    let all = (8u32..).step_by(8).zip(blocks).flat_map(|(at, block)| {
        OF_CLASS
            .into_iter()
            .filter(|(name, ..)| !block.starts_with(GLOBAL) || is_of_limit(name))
            .map(|(name, (word, bit), size, access)| Field {
                name: format!("{block}.{name}").into(),
                ..Field::of("", (at + word, bit), size, access)
            })
            .collect::<Vec<_>>()
    });
    [LOCAL_PORT].into_iter().chain(all).collect()
}

/// Group of classes that go in turn before all others.
const VENDOR: u32 = 7;
/// Share of a class that has its group for itself.
const ALL: u32 = 100;
const MBPS_100: u64 = 100_000_000;

/// A traffic class as the register has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    group: u32,
    share: u32,
}

/// Groups and shares of the classes.
fn groups(qos: &v1::Qos) -> [Class; 8] {
    let of = |class| {
        let algorithm = qos.tc_algorithm().nth(class).unwrap_or_default();
        (
            algorithm,
            qos.tc_bandwidth_percent.get(class).copied().unwrap_or(0),
        )
    };
    let classes: [(Algorithm, u32); 8] = std::array::from_fn(of);
    let ets = |(algorithm, _): &&(Algorithm, u32)| *algorithm == Algorithm::Ets;
    let rest = classes
        .iter()
        .filter(ets)
        .filter(|(_, share)| *share == 0)
        .count() as u32;
    let shared = classes.iter().any(|class| ets(&class));
    let mut strict = u32::from(shared) + u32::from(rest != 0);
    let mut without = 0;
    classes.map(|(algorithm, share)| match algorithm {
        Algorithm::Strict => {
            strict += 1;
            Class {
                group: strict - 1,
                share: ALL,
            }
        }
        // What is left is for all of them alike; the last one has what does not divide.
        Algorithm::Ets if share == 0 => {
            without += 1;
            let extra = if without == rest { ALL % rest } else { 0 };
            Class {
                group: 0,
                share: ALL / rest + extra,
            }
        }
        Algorithm::Ets => Class {
            group: u32::from(rest != 0),
            share,
        },
        _ => Class {
            group: VENDOR,
            share: ALL,
        },
    })
}

/// Algorithms and percentages of classes in these groups.
fn algorithms(classes: &[Class; 8]) -> Result<[(Algorithm, u32); 8], Failure> {
    let of = |group: u32| classes.iter().filter(move |class| class.group == group);
    let used: Vec<u32> = (0..VENDOR).filter(|group| of(*group).next().is_some()).collect();
    let is_shared = |group: &&u32| of(**group).count() > 1 || of(**group).any(|class| class.share != ALL);
    let shared: Vec<u32> = used.iter().filter(is_shared).copied().collect();
    let ets = shared.last().copied();
    // Strict groups are above that of ETS, and what gets no more than what is left, below.
    let below: Vec<u32> = used.iter().filter(|group| Some(**group) < ets).copied().collect();
    if below.len() > 1 {
        return Err(usage(format!(
            "group {below:?}: below the group that shares by bw_allocation, one more is possible: for what is left"
        )));
    }
    let mut last = None;
    for class in classes.iter().filter(|c| c.group < VENDOR && Some(c.group) > ets) {
        if Some(class.group) <= last {
            return Err(usage(format!(
                "group {}: of classes with a group of their own, a higher one has a higher group",
                class.group
            )));
        }
        last = Some(class.group);
    }
    Ok(classes.map(|class| match class.group {
        VENDOR => (Algorithm::Vendor, 0),
        group if Some(group) == ets => (Algorithm::Ets, class.share),
        group if Some(group) < ets => (Algorithm::Ets, 0),
        _ => (Algorithm::Strict, 0),
    }))
}

/// Value and units of a limit: 100 Mbit/s, at least one of them, or none.
fn limit(bps: u64) -> (u32, u32) {
    match bps {
        0 => (0, 0),
        _ => (u32::try_from(bps / MBPS_100).unwrap_or(u32::MAX).max(1), 3),
    }
}

/// Number of the class and name of its field; class 8 is the port.
fn place(name: &str) -> Option<(usize, &str)> {
    if let Some(name) = name.strip_prefix(GLOBAL) {
        return Some((8, name.strip_prefix('.')?));
    }
    let (class, name) = name.strip_prefix("tc_configuration[")?.split_once("].")?;
    Some((class.parse().ok()?, name))
}

fn rate(class: usize, qos: &v1::Qos) -> u64 {
    match class {
        8 => qos.rate_bps,
        class => qos.tc_rate_limit_bps.get(class).copied().unwrap_or(0),
    }
}

pub(super) fn read(name: &str, qos: &v1::Qos) -> u32 {
    let Some((class, name)) = place(name) else {
        return 0;
    };
    let of = groups(qos).get(class).copied();
    match name {
        "group" => of.map_or(0, |class| class.group),
        "bw_allocation" => of.map_or(0, |class| class.share),
        "max_bw_value" => limit(rate(class, qos)).0,
        "max_bw_units" => limit(rate(class, qos)).1,
        _ => 0,
    }
}

pub(super) fn write(chosen: &Chosen<'_>, qos: &mut v1::Qos) -> Result<Vec<&'static str>, Failure> {
    let of = |class: usize, name: &str, mask: &str| {
        let block = match class {
            8 => GLOBAL.to_owned(),
            class => format!("tc_configuration[{class}]"),
        };
        chosen.masked(&format!("{block}.{name}"), &format!("{block}.{mask}"))
    };
    let mut changed = Vec::new();
    let mut classes = groups(qos);
    let before = classes;
    let mut named = false;
    for (i, class) in classes.iter_mut().enumerate() {
        let (group, share) = (of(i, "group", "g"), of(i, "bw_allocation", "b"));
        named |= group.is_some() || share.is_some();
        class.group = within("group", group.unwrap_or(class.group), VENDOR)?;
        class.share = within("bw_allocation", share.unwrap_or(class.share), ALL)?;
    }
    if named {
        if classes != before {
            let all = algorithms(&classes)?;
            qos.tc_algorithm = all.map(|(algorithm, _)| algorithm.into()).to_vec();
            qos.tc_bandwidth_percent = all.map(|(_, share)| share).to_vec();
        }
        changed.extend(["tc_algorithm", "tc_bandwidth_percent"]);
    }
    for class in 0..=8 {
        let (value, units) = (of(class, "max_bw_value", "r"), of(class, "max_bw_units", "r"));
        if value.is_none() && units.is_none() {
            continue;
        }
        let now = limit(rate(class, qos));
        let bps = bits(value.unwrap_or(now.0), units.unwrap_or(now.1))?;
        match qos.tc_rate_limit_bps.get_mut(class) {
            Some(place) => *place = bps,
            None => qos.rate_bps = bps,
        }
        changed.push(if class == 8 {
            "rate_bps"
        } else {
            "tc_rate_limit_bps"
        });
    }
    changed.dedup();
    Ok(changed)
}

/// Rate in bit/s of a value in units; 0: no limit.
fn bits(value: u32, units: u32) -> Result<u64, Failure> {
    let unit = match units {
        0 => return Ok(0),
        3 => MBPS_100,
        4 => 10 * MBPS_100,
        _ => {
            return Err(usage(format!(
                "max_bw_units {units}: 0 (no limit), 3 (100 Mbit/s) and 4 (1 Gbit/s) are allowed"
            )));
        }
    };
    match value {
        0 => Err(usage(
            "max_bw_value 0: at least 1; max_bw_units=0 takes a limit away",
        )),
        _ => Ok(u64::from(value) * unit),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::args::Register;
    use super::super::tests::{set, shown, value};
    use super::*;

    fn qos() -> v1::Qos {
        v1::Qos {
            priority_to_tc: vec![1, 0, 2, 3, 4, 5, 6, 7],
            tc_algorithm: vec![Algorithm::Vendor.into(); 8],
            tc_bandwidth_percent: vec![0; 8],
            tc_rate_limit_bps: vec![0; 8],
            ..v1::Qos::default()
        }
    }

    fn write_all(qos: &mut v1::Qos, name: &str, values: [u32; 8]) -> Result<Vec<&'static str>, String> {
        let fields: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(class, value)| format!("tc_configuration[{class}].{name}={value}"))
            .collect();
        set(Register::Qetcr, "local_port=1", &fields.join(","), qos)
    }

    fn column(qos: &v1::Qos, name: &str) -> [u32; 8] {
        let seen = shown(Register::Qetcr, "", qos);
        std::array::from_fn(|class| value(&seen, &format!("tc_configuration[{class}].{name}")))
    }

    #[test]
    fn classes_by_priority() {
        let mut qos = qos();
        let seen = shown(Register::Qtct, "switch_prio=0", &qos);
        assert_eq!(value(&seen, "tclass"), 1);
        let changed = set(Register::Qtct, "local_port=1,switch_prio=5", "tclass=3", &mut qos);
        assert_eq!((changed, qos.priority_to_tc[5]), (Ok(vec!["priority_to_tc"]), 3));
        let error = set(Register::Qtct, "switch_prio=5", "tclass=8", &mut qos).expect_err("refused");
        assert!(error.contains("0 to 7"), "{error}");
    }

    /// The groups that Linux gives to a card, and what they are read as.
    #[test]
    fn algorithms_are_groups() {
        use Algorithm::{Ets, Strict, Vendor};
        type Case = ([Algorithm; 8], [u32; 8], [u32; 8], [u32; 8]);
        let cases: [Case; 4] = [
            ([Vendor; 8], [0; 8], [7; 8], [100; 8]),
            (
                [Ets, Ets, Strict, Vendor, Strict, Vendor, Vendor, Vendor],
                [30, 70, 0, 0, 0, 0, 0, 0],
                [0, 0, 1, 7, 2, 7, 7, 7],
                [30, 70, 100, 100, 100, 100, 100, 100],
            ),
            (
                [Ets, Ets, Ets, Ets, Ets, Strict, Vendor, Vendor],
                [40, 60, 0, 0, 0, 0, 0, 0],
                [1, 1, 0, 0, 0, 2, 7, 7],
                [40, 60, 33, 33, 34, 100, 100, 100],
            ),
            ([Strict; 8], [0; 8], [0, 1, 2, 3, 4, 5, 6, 7], [100; 8]),
        ];
        for (algorithm, percent, group, share) in cases {
            let was = v1::Qos {
                tc_algorithm: algorithm.map(Into::into).to_vec(),
                tc_bandwidth_percent: percent.to_vec(),
                ..qos()
            };
            assert_eq!(
                (column(&was, "group"), column(&was, "bw_allocation")),
                (group, share)
            );
            if algorithm == [Strict; 8] {
                // The eighth strict class has the number of "vendor", as on a card; it goes first all the same.
                continue;
            }
            let mut now = qos();
            let fields: Vec<String> = (0..8)
                .map(|i| {
                    format!(
                        "tc_configuration[{i}].g=1,tc_configuration[{i}].group={},tc_configuration[{i}].b=1,\
                         tc_configuration[{i}].bw_allocation={}",
                        group[i], share[i]
                    )
                })
                .collect();
            let changed = set(Register::Qetcr, "", &fields.join(","), &mut now);
            assert_eq!(changed, Ok(vec!["tc_algorithm", "tc_bandwidth_percent"]));
            assert_eq!(now, was);
        }
    }

    #[test]
    fn limits_have_units() {
        let mut qos = qos();
        let changed = set(
            Register::Qetcr,
            "",
            "tc_configuration[3].r=1,tc_configuration[3].max_bw_units=4,tc_configuration[3].max_bw_value=5,\
             global_configuration.max_bw_units=3,global_configuration.max_bw_value=255",
            &mut qos,
        );
        assert_eq!(changed, Ok(vec!["tc_rate_limit_bps", "rate_bps"]));
        assert_eq!(
            (qos.tc_rate_limit_bps[3], qos.rate_bps),
            (5_000_000_000, 25_500_000_000)
        );
        // It is read in the finer unit.
        assert_eq!(
            (column(&qos, "max_bw_value")[3], column(&qos, "max_bw_units")[3]),
            (50, 3)
        );
        let stays =
            "tc_configuration[3].r=0,tc_configuration[3].max_bw_units=0,tc_configuration[2].max_bw_units=0";
        set(Register::Qetcr, "", stays, &mut qos).expect("taken");
        assert_eq!(qos.tc_rate_limit_bps[3], 5_000_000_000);
    }

    #[test]
    fn groups_that_cannot_be_are_refused() {
        for (name, values, problem) in [
            ("group", [8, 7, 7, 7, 7, 7, 7, 7], "0 to 7"),
            ("group", [2, 1, 7, 7, 7, 7, 7, 7], "a higher group"),
            ("group", [0, 1, 2, 2, 7, 7, 7, 7], "one more is possible"),
            ("bw_allocation", [101, 0, 0, 0, 0, 0, 0, 0], "0 to 100"),
            ("max_bw_units", [5, 0, 0, 0, 0, 0, 0, 0], "are allowed"),
            ("max_bw_units", [3, 0, 0, 0, 0, 0, 0, 0], "at least 1"),
        ] {
            let error = write_all(&mut qos(), name, values).expect_err(name);
            assert!(error.contains(problem), "{name}: {error}");
        }
    }
}
