//! Who may use whom, as cargo sees it.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata};

use super::Breach;

/// A room: its crate, what of ours it may use, what of others it never sees, not even through somebody else.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
    never: &'static [&'static str],
}

/// What a crate without clock, sockets, threads, files and log has no use for.
const OUTSIDE: &[&str] = &[
    "async-std",
    "chrono",
    "crossbeam-channel",
    "getrandom",
    "libc",
    "log",
    "mio",
    "nix",
    "rand",
    "rustix",
    "smol",
    "time",
    "tokio",
    "tonic",
    "tracing",
    "vhost",
    "vhost-user-backend",
    "virtio-queue",
    "vm-memory",
    "vmm-sys-util",
];
const NO_CONTROL_PLANE: &[&str] = &["hyper", "prost", "tokio", "tonic"];
const CORE: &[&str] = &["vnic-wire", "vnic-fabric", "vnic-engine"];

/// Every room, also those that are not built yet.
const ROOMS: &[Room] = &[
    Room {
        name: "vnic-control",
        may_use: &[],
        never: &["vhost", "vm-memory"],
    },
    Room {
        name: "vnic-device",
        may_use: &[],
        never: OUTSIDE,
    },
    Room {
        name: "vnic-wire",
        may_use: &[],
        never: OUTSIDE,
    },
    Room {
        name: "vnic-fabric",
        may_use: &["vnic-wire"],
        never: OUTSIDE,
    },
    Room {
        name: "vnic-engine",
        may_use: &["vnic-wire", "vnic-device"],
        never: OUTSIDE,
    },
    Room {
        name: "vnic-backend",
        may_use: &["vnic-wire", "vnic-fabric", "vnic-engine", "vnic-device"],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: "vnic-verbs",
        may_use: &["vnic-wire", "vnic-device"],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: "vnic-guest",
        may_use: &["vnic-device", "vnic-verbs"],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: "vnic-verbs-preload",
        may_use: &["vnic-device", "vnic-verbs"],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: "vnic-appliance",
        may_use: &["vnic-backend", "vnic-control"],
        never: &[],
    },
    Room {
        name: "vnic-sim",
        may_use: &["vnic-wire", "vnic-fabric", "vnic-engine", "vnic-device"],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: TESTS,
        may_use: &[
            "vnic-control",
            "vnic-device",
            "vnic-wire",
            "vnic-fabric",
            "vnic-engine",
            "vnic-backend",
            "vnic-verbs",
            "vnic-guest",
            "vnic-verbs-preload",
            "vnic-appliance",
            "vnic-testkit",
            "vnic-sim",
        ],
        never: &[],
    },
    Room {
        name: "vnic-models",
        // (The files of the shell and of the driver's library are built once more, with their neighbours replaced.)
        may_use: &["vnic-device", "vnic-wire", "vnic-fabric", "vnic-engine"],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: "vnic-testkit",
        may_use: &["vnic-control"],
        never: &["vnic-backend", "vnic-verbs"],
    },
    Room {
        name: "vnic-runner",
        may_use: &[],
        never: NO_CONTROL_PLANE,
    },
    Room {
        name: "vnic-fuzz",
        may_use: &[
            "vnic-control",
            "vnic-device",
            "vnic-wire",
            "vnic-engine",
            "vnic-backend",
            "vnic-appliance",
            TESTS,
        ],
        never: &[],
    },
];
/// Uses all, used by nobody but the fuzzer, for its drivers.
const TESTS: &str = "vnic-tests";

/// A package, as far as the rules care.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Is it one of ours?
    pub ours: bool,
    /// What its manifest says about the licence.
    pub licence: Option<String>,
    /// What it links.
    pub uses: BTreeSet<String>,
    /// What its tests and build scripts use besides.
    pub uses_aside: BTreeSet<String>,
}

/// The packages of a workspace and all they need.
pub fn packages(metadata: &Metadata) -> Vec<Package> {
    let names: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .map(|p| (&p.id, p.name.to_string()))
        .collect();
    let nodes = metadata.resolve.iter().flat_map(|r| &r.nodes);
    let deps: BTreeMap<_, _> = nodes.map(|n| (&n.id, &n.deps)).collect();
    let package = |p: &cargo_metadata::Package| {
        let (mut uses, mut uses_aside) = (BTreeSet::new(), BTreeSet::new());
        for dep in deps.get(&p.id).into_iter().copied().flatten() {
            let linked = dep.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal);
            if let Some(name) = names.get(&dep.pkg) {
                if linked {
                    uses.insert(name.clone())
                } else {
                    uses_aside.insert(name.clone())
                };
            }
        }
        let ours = metadata.workspace_members.contains(&p.id);
        Package {
            name: p.name.to_string(),
            ours,
            licence: p.license.clone(),
            uses,
            uses_aside,
        }
    };
    metadata.packages.iter().map(package).collect()
}

/// The rooms keep to the table.
pub fn rooms(packages: &[Package]) -> Vec<Breach> {
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter(|p| p.ours)
        .map(|p| p.name.as_str())
        .collect();
    let mut breaches = Vec::new();
    for p in packages.iter().filter(|p| p.ours) {
        let Some(room) = ROOMS.iter().find(|r| r.name == p.name) else {
            breaches.push(Breach::of(
                &p.name,
                "is not in the table of rooms: say there what it may use",
            ));
            continue;
        };
        for used in p
            .uses
            .iter()
            .chain(&p.uses_aside)
            .filter(|u| ours.contains(u.as_str()))
        {
            if !room.may_use.contains(&used.as_str()) {
                let allowed = if room.may_use.is_empty() {
                    "none of ours".into()
                } else {
                    room.may_use.join(", ")
                };
                breaches.push(Breach::of(&p.name, format!("uses {used}; it may use {allowed}")));
            }
        }
        for (other, path) in reach(packages, &p.name) {
            if room.never.contains(&other) {
                breaches.push(Breach::of(
                    &p.name,
                    format!("never sees {other}, but does: {}", path.join(" → ")),
                ));
            }
        }
    }
    breaches
}

/// What a package links, directly or through others, and how it comes to that.
fn reach<'a>(packages: &'a [Package], from: &'a str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let by_name: BTreeMap<&str, &Package> = packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut open = vec![vec![from]];
    while let Some(path) = open.pop() {
        let Some(p) = path.last().and_then(|name| by_name.get(name)) else {
            continue;
        };
        for used in &p.uses {
            if !found.contains_key(used.as_str()) {
                let longer: Vec<&str> = path.iter().copied().chain([used.as_str()]).collect();
                found.insert(used, longer.clone());
                open.push(longer);
            }
        }
    }
    found
}

/// The crates that are kept free of the outside world.
pub(super) fn core_dirs() -> impl Iterator<Item = String> {
    CORE.iter()
        .map(|c| format!("vnic-backend/{}", c.trim_start_matches("vnic-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[&str]) -> Package {
        let uses = uses.iter().map(|u| (*u).to_owned()).collect();
        Package {
            name: name.into(),
            ours: name.starts_with("vnic-"),
            uses,
            ..Package::default()
        }
    }

    fn house() -> Vec<Package> {
        vec![
            package("vnic-wire", &["thiserror"]),
            package("vnic-fabric", &["vnic-wire"]),
            package("vnic-engine", &["vnic-wire"]),
            package(
                "vnic-backend",
                &["vnic-wire", "vnic-fabric", "vnic-engine", "vhost"],
            ),
            package("vnic-control", &["tonic"]),
            package("vnic-appliance", &["vnic-backend", "vnic-control", "tokio"]),
            package("vnic-tests", &["vnic-backend", "vnic-engine"]),
            package("thiserror", &[]),
            package("vhost", &["libc"]),
            package("libc", &[]),
            package("tonic", &["tokio"]),
            package("tokio", &["libc"]),
        ]
    }

    /// The breaches of the house after one room took up one more dependency.
    fn after(room: &str, more: &str) -> Vec<String> {
        let mut house = house();
        let p = house.iter_mut().find(|p| p.name == room).expect("a room");
        p.uses.insert(more.into());
        rooms(&house).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tidy_house_passes() {
        assert_eq!(rooms(&house()), []);
    }

    #[test]
    fn the_appliance_stays_out_of_the_core() {
        for core in CORE {
            assert_eq!(after("vnic-appliance", core).len(), 1, "{core}");
        }
    }

    #[test]
    fn the_backend_has_no_control_plane() {
        for other in ["tonic", "tokio"] {
            assert!(!after("vnic-backend", other).is_empty(), "{other}");
        }
    }

    #[test]
    fn the_engine_has_no_outside() {
        for other in ["vhost", "tokio", "libc"] {
            assert!(!after("vnic-engine", other).is_empty(), "{other}");
        }
        assert!(!after("vnic-engine", "vnic-fabric").is_empty());
    }

    #[test]
    fn what_others_bring_along_counts() {
        let mut house = house();
        house.push(package("innocent", &["tokio"]));
        house[3].uses.insert("innocent".into());
        let breaches = rooms(&house);
        assert_eq!(breaches.len(), 1, "{breaches:?}");
        assert!(
            breaches[0].what.contains("vnic-backend → innocent → tokio"),
            "{breaches:?}"
        );
    }

    #[test]
    fn nobody_uses_the_tests_and_test_dependencies_count() {
        assert!(!after("vnic-appliance", "vnic-tests").is_empty());
        let mut house = house();
        house[0].uses_aside.insert("vnic-fabric".into());
        assert_eq!(rooms(&house).len(), 1);
    }

    #[test]
    fn a_new_room_needs_a_row() {
        let mut house = house();
        house.push(package("vnic-attic", &[]));
        assert_eq!(rooms(&house).len(), 1);
    }
}
