//! Rules for Rust source.

use super::rooms::core_dirs;
use super::strip::{code, has_word, without_tests};
use super::{Breach, Tree};

/// Tests of the core may use `std`.
const FOR_TESTS: &str = "#[cfg(test)]\nextern crate std;";

/// The core crates promise what they are: without `std` they have no clock, thread, socket, file or log.
pub fn core_attributes(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for dir in core_dirs() {
        let path = format!("{dir}/src/lib.rs");
        let Some(text) = tree.files.get(&path) else {
            breaches.push(Breach::of(path, "is not there"));
            continue;
        };
        let code = code(text);
        for wanted in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !code.lines().any(|l| l.trim() == wanted) {
                breaches.push(Breach::of(&path, format!("{wanted} is missing")));
            }
        }
        let sources = tree
            .ending(".rs")
            .filter(|(p, _)| p.starts_with(&format!("{dir}/src/")));
        for (path, _) in sources.filter(|(_, text)| text.replace(FOR_TESTS, "").contains("extern crate std"))
        {
            breaches.push(Breach::of(path, "the core has no `std`"));
        }
    }
    breaches
}

/// Floors of rooms, what their files do not name, and why.
const FLOORS: &[(&str, &[(&str, &str)])] = &[
    (
        "appliance/src/control",
        &[
            ("tonic", "status codes are gRPC's: say it with `Refused`"),
            ("vnic_control", "messages are gRPC's, and the store's in `stored`"),
            ("prost", "messages are gRPC's, and the store's in `stored`"),
            ("crate::access", "who may do what is asked before"),
            ("crate::cli", "it is a client of gRPC"),
            ("crate::daemon", "it builds control"),
            ("crate::grpc", "it translates into calls of control"),
            ("crate::metrics", "they read control"),
        ],
    ),
    (
        "appliance/src/stored",
        &[
            ("tonic", "status codes are gRPC's"),
            ("crate::control", "it stores"),
            ("crate::grpc", "it translates by this"),
        ],
    ),
    (
        "appliance/src/metrics",
        &[("crate::grpc", "metrics read control")],
    ),
];

/// What belongs to another floor is not named, outside tests.
pub fn floors(tree: &Tree) -> Vec<Breach> {
    let floor = |(floor, bans): &(&str, &[(&'static str, &'static str)])| {
        named(tree, &format!("{floor}/"), floor, bans)
    };
    FLOORS.iter().flat_map(floor).collect()
}

/// Where files of a folder name what they must not.
fn named(tree: &Tree, folder: &str, called: &str, bans: &[(&str, &str)]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let files = tree
        .ending(".rs")
        .filter(|(p, _)| p.starts_with(folder) && !p.ends_with("/tests.rs"));
    for (path, text) in files {
        for (i, line) in without_tests(text).lines().enumerate() {
            // The first that fits names the line; some are parts of others.
            if let Some((ban, why)) = bans.iter().find(|(ban, _)| starts_word(line, ban)) {
                breaches.push(Breach::at(path, i + 1, format!("{ban} in {called}: {why}")));
            }
        }
    }
    breaches
}

fn starts_word(line: &str, what: &str) -> bool {
    line.match_indices(what).any(|(at, _)| {
        let before = at.checked_sub(1).map(|i| line.as_bytes()[i]);
        !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// Nothing is left for later. (The words are put together here so that this file passes.)
pub fn markers(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let notes = [concat!("FIX", "ME"), concat!("XX", "X")];
    for (path, text) in tree.files.iter().filter(|(p, _)| !p.ends_with(".lock")) {
        for (i, line) in text.lines().enumerate() {
            for note in notes.iter().filter(|n| has_word(line, n)) {
                breaches.push(Breach::at(
                    path,
                    i + 1,
                    format!("{note}: do it, or write an issue"),
                ));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE_LIB: &str = "//! Docs.\n#![no_std]\n#![forbid(unsafe_code)]\n";

    #[test]
    fn core_crates_promise() {
        let lib = |c: &str| format!("vnic-backend/{c}/src/lib.rs");
        let mut tree = Tree::default();
        for c in ["wire", "fabric", "engine"] {
            tree.files.insert(lib(c), CORE_LIB.into());
        }
        assert_eq!(core_attributes(&tree), []);
        tree.files
            .insert(lib("wire"), "#![no_std]\n// #![forbid(unsafe_code)]\n".into());
        tree.files
            .insert(lib("fabric"), "#![forbid(unsafe_code)]\n".into());
        tree.files.remove(&lib("engine"));
        tree.files
            .insert("vnic-backend/wire/src/a.rs".into(), "extern crate std;\n".into());
        assert_eq!(core_attributes(&tree).len(), 4);
    }

    #[test]
    fn what_is_above_a_floor_is_found() {
        for bad in [
            "use tonic::Status;",
            "fn f(m: vnic_control::v1::Qos) {}",
            "use crate::grpc::errors;",
        ] {
            assert_eq!(
                floors(&Tree::of([("appliance/src/control/a.rs", bad)])).len(),
                1,
                "{bad}"
            );
            assert_eq!(
                floors(&Tree::of([("appliance/src/grpc/a.rs", bad)])),
                [],
                "gRPC may: {bad}"
            );
        }
        let fine = "// tonic\nuse crate::stored::qos;\n";
        assert_eq!(floors(&Tree::of([("appliance/src/control/a.rs", fine)])), []);
    }

    #[test]
    fn work_in_progress_is_found() {
        for note in [concat!("FIX", "ME"), concat!("XX", "X")] {
            for path in ["a.rs", "b.md", "c"] {
                assert_eq!(
                    markers(&Tree::of([(path, &format!("# {note}: x"))])).len(),
                    1,
                    "{note} in {path}"
                );
            }
        }
        assert_eq!(markers(&Tree::of([("Cargo.lock", concat!("XX", "X"))])), []);
    }
}
