//! Rules for files of any kind.

use super::{Breach, Tree};
use crate::house::strip::without_tests;

/// From here on a file is to be split.
const LINES_MAX: usize = 800;
/// Files that are longer, and how long they may be: only ever to be shortened.
const LONGER: &[(&str, usize)] = &[];
/// What people write by hand.
const WRITTEN: &[&str] = &[".rs", ".proto", ".sh", ".c", ".h"];

/// Files stay readable.
pub fn file_sizes(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in &tree.files {
        if !WRITTEN.iter().any(|end| path.ends_with(end)) && !is_script(text) {
            continue;
        }
        let lines = if path.ends_with(".rs") {
            lines_without_tests(text)
        } else {
            text.lines().count()
        };
        let limit = LONGER
            .iter()
            .find(|(p, _)| p == path)
            .map_or(LINES_MAX - 1, |(_, n)| *n);
        if lines > limit {
            let what = format!("{lines} lines without tests; at most {limit}: split it by concept");
            breaches.push(Breach::of(path, what));
        }
    }
    breaches
}

/// Blank lines within tests do not count, blank lines elsewhere do.
fn lines_without_tests(text: &str) -> usize {
    let kept = without_tests(text);
    let mut inside = false;
    let mut count = 0;
    for (raw, kept) in text.lines().zip(kept.lines()) {
        if raw.trim_end() == "#[cfg(test)]" && kept.trim().is_empty() {
            inside = true;
        }
        count += usize::from(!inside);
        inside &= raw.trim_end() != "}";
    }
    count
}

/// Every room says what it is: a README, or documentation at the top of its crate.
pub fn documented(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.ending("Cargo.toml") {
        let dir = path.trim_end_matches("Cargo.toml");
        if !text.contains("[package]") {
            continue;
        }
        let docs = |name: &str| {
            tree.files
                .get(&format!("{dir}{name}"))
                .is_some_and(|t| t.starts_with("//!"))
        };
        let readme = tree.files.contains_key(&format!("{dir}README.md"));
        if !readme && !docs("src/lib.rs") && !docs("src/main.rs") {
            breaches.push(Breach::of(
                dir,
                "has neither README.md nor documentation at the top of its crate",
            ));
        }
    }
    breaches
}

/// Every service and method of the control interface is explained where it is declared.
pub fn proto_comments(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.ending(".proto") {
        let mut before = "";
        for (i, line) in text.lines().map(str::trim).enumerate() {
            let declares = line.starts_with("rpc ") || line.starts_with("service ");
            if declares && !(before.starts_with("//") && before.len() > 3) && !before.ends_with("*/") {
                let name = line.split(['(', '{']).next().unwrap_or(line).trim();
                breaches.push(Breach::at(path, i + 1, format!("{name} has no comment above it")));
            }
            before = line;
        }
    }
    breaches
}

/// Shell scripts that cannot stop at the first error, and why.
const LENIENT: &[(&str, &str)] = &[
    (
        "deploy/guest/init",
        "process 1 of a guest: the kernel panics when it ends",
    ),
    (
        "deploy/guest/agent",
        "runs whatever it is told in a guest and reports how that ended",
    ),
];

/// Each promise of `SECURITY.md` names tests that are there: a file, and functions of it.
pub fn promises(tree: &Tree) -> Vec<Breach> {
    const PAGE: &str = "SECURITY.md";
    let Some(page) = tree.files.get(PAGE) else {
        return vec![Breach::of(PAGE, "it is missing")];
    };
    let rows = page
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != "| promise | test |")
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'));
    let mut breaches = Vec::new();
    let mut found = 0;
    for (at, row) in rows {
        let tests = row
            .trim_end_matches(['|', ' '])
            .rsplit('|')
            .next()
            .unwrap_or_default();
        let mut file = None;
        for name in tests.split('`').skip(1).step_by(2) {
            if name.ends_with(".rs") {
                file = tree.files.get(name);
                found += usize::from(file.is_some());
            }
            let there =
                name.ends_with(".rs") || file.is_some_and(|text| text.contains(&format!("fn {name}(")));
            if file.is_none() || !there {
                breaches.push(Breach::at(PAGE, at + 1, format!("there is no test `{name}`")));
            }
        }
        if file.is_none() {
            breaches.push(Breach::at(PAGE, at + 1, "a promise without a test"));
        }
    }
    if found == 0 {
        breaches.push(Breach::of(PAGE, "it has no table of promises and tests"));
    }
    breaches
}

/// Shell scripts stop at the first error.
pub fn shell_scripts(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.files.iter().filter(|(_, t)| is_script(t)) {
        if LENIENT.iter().any(|(p, _)| p == path) {
            continue;
        }
        let mut commands = text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'));
        if commands.next() != Some("set -euo pipefail") {
            breaches.push(Breach::of(path, "its first command is not `set -euo pipefail`"));
        }
    }
    breaches
}

fn is_script(text: &str) -> bool {
    text.lines()
        .next()
        .is_some_and(|l| l.starts_with("#!") && l.trim_end().ends_with("sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_without_tests_are_found() {
        let head = "| promise | test |\n|---|---|\n";
        let of = |row: &str| {
            let page = format!("{head}| a | {row} |\n\n`other`\n");
            promises(&Tree::of([
                ("SECURITY.md", page.as_str()),
                ("t.rs", "fn one() {}"),
            ]))
            .len()
        };
        assert_eq!(of("`t.rs` `one`"), 0);
        assert_eq!(of("`t.rs`"), 0);
        assert_eq!(of("`t.rs` `two`"), 1);
        assert!(of("`u.rs` `one`") > 0);
        assert!(of("none") > 0);
        assert_eq!(promises(&Tree::of([("SECURITY.md", "nothing")])).len(), 1);
        assert_eq!(promises(&Tree::of([("README.md", "")])).len(), 1);
    }

    #[test]
    fn long_files_are_found() {
        let body = "fn f() {}\n".repeat(LINES_MAX - 1);
        assert_eq!(file_sizes(&Tree::of([("a.rs", &body)])), []);
        let tests = format!(
            "{body}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "    fn t() {}\n\n".repeat(500)
        );
        assert_eq!(
            file_sizes(&Tree::of([("a.rs", &tests)])),
            [],
            "tests do not count"
        );
        let long = format!("{body}fn g() {{}}\n");
        assert_eq!(file_sizes(&Tree::of([("a.rs", &long)])).len(), 1);
        assert_eq!(file_sizes(&Tree::of([("a.proto", &long)])).len(), 1);
        assert_eq!(
            file_sizes(&Tree::of([("tests/run", &format!("#!/bin/sh\n{body}"))])).len(),
            1
        );
        assert_eq!(file_sizes(&Tree::of([("Cargo.lock", &long)])), []);
    }

    #[test]
    fn no_file_is_longer_by_leave() {
        assert!(LONGER.is_empty(), "split it instead: {LONGER:?}");
    }

    #[test]
    fn silent_rooms_are_found() {
        let toml = "[package]\nname = \"a\"\n";
        assert_eq!(
            documented(&Tree::of([
                ("a/Cargo.toml", toml),
                ("a/src/lib.rs", "fn f() {}\n")
            ]))
            .len(),
            1
        );
        assert_eq!(
            documented(&Tree::of([
                ("a/Cargo.toml", toml),
                ("a/src/lib.rs", "//! Docs.\n")
            ])),
            []
        );
        assert_eq!(
            documented(&Tree::of([("a/Cargo.toml", toml), ("a/README.md", "# A\n")])),
            []
        );
        assert_eq!(documented(&Tree::of([("Cargo.toml", "[workspace]\n")])), []);
    }

    #[test]
    fn silent_methods_are_found() {
        let good = "// What it is for.\nservice A {\n  // Does it.\n  rpc Do(X) returns (Y);\n}\n";
        assert_eq!(proto_comments(&Tree::of([("a.proto", good)])), []);
        let bad = "service A {\n  rpc Do(X) returns (Y);\n\n  // Lost.\n\n  rpc Be(X) returns (Y);\n}\n";
        let found = proto_comments(&Tree::of([("a.proto", bad)]));
        assert_eq!(
            found.iter().map(|b| b.place.as_str()).collect::<Vec<_>>(),
            ["a.proto:1", "a.proto:2", "a.proto:6"]
        );
    }

    #[test]
    fn careless_scripts_are_found() {
        let good = "#!/usr/bin/env bash\n# What it does.\n\nset -euo pipefail\nls\n";
        assert_eq!(
            shell_scripts(&Tree::of([("a", good), ("b.py", "#!/usr/bin/python3\n")])),
            []
        );
        for bad in [
            "#!/bin/sh\nls\nset -euo pipefail\n",
            "#!/bin/bash\nset -e\n",
            "#!/bin/bash\n",
        ] {
            assert_eq!(shell_scripts(&Tree::of([("a", bad)])).len(), 1, "{bad}");
        }
    }
}
