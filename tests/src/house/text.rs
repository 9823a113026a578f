//! Rules for files of any kind.

use super::{Breach, Tree};
use crate::house::strip::without_tests;

/// Blank lines within tests do not count, blank lines elsewhere do.
pub(super) fn lines_without_tests(text: &str) -> usize {
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

/// Each promise of `SECURITY.md` and `tests/operators.md` names tests that are there: a file, and functions of it.
pub fn promises(tree: &Tree) -> Vec<Breach> {
    let pages = ["SECURITY.md", "tests/operators.md"];
    pages.iter().flat_map(|page| promises_of(tree, page)).collect()
}

fn promises_of(tree: &Tree, name_of_page: &str) -> Vec<Breach> {
    let Some(page) = tree.files.get(name_of_page) else {
        return vec![Breach::of(name_of_page, "it is missing")];
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
                breaches.push(Breach::at(
                    name_of_page,
                    at + 1,
                    format!("there is no test `{name}`"),
                ));
            }
        }
        if file.is_none() {
            breaches.push(Breach::at(name_of_page, at + 1, "a promise without a test"));
        }
    }
    if found == 0 {
        breaches.push(Breach::of(name_of_page, "it has no table of promises and tests"));
    }
    breaches
}

/// Cases of the lab are tests of one program, which `tests/run e2e` runs and the unit tests leave out: elsewhere they would never run.
pub fn lab_cases(tree: &Tree) -> Vec<Breach> {
    const HERE: [&str; 2] = ["tests/tests/vm/", "tests/src/"];
    tree.ending(".rs")
        .filter(|(path, text)| text.contains("lab::case") && !HERE.iter().any(|dir| path.starts_with(dir)))
        .map(|(path, _)| Breach::of(path, format!("a case of the lab outside {}", HERE[0])))
        .collect()
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

/// What cargo may change `Cargo.lock` for.
const RESOLVES: &[&str] = &[
    "bench", "build", "check", "clippy", "doc", "install", "metadata", "run", "test",
];

/// Commands for cargo, in scripts, workflows and documents, build with what `Cargo.lock` says or not at all.
pub fn locked_commands(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in &tree.files {
        // In documents, what is shown as commands.
        let page = path.ends_with(".md");
        if !page && !is_script(text) && !path.ends_with(".yml") {
            continue;
        }
        let mut shown = !page;
        let mut from = None;
        let mut command = String::new();
        for (at, line) in text.lines().map(str::trim).enumerate() {
            if page && line.starts_with("```") {
                shown = line == "```sh";
                continue;
            }
            if !shown || line.starts_with('#') {
                continue;
            }
            // What goes on in the next line is one command.
            let first = *from.get_or_insert(at);
            match line.strip_suffix('\\') {
                Some(more) => command.push_str(more),
                None => {
                    command.push_str(line);
                    if unlocked(&command) {
                        breaches.push(Breach::at(path, first + 1, "cargo without --locked"));
                    }
                    command.clear();
                    from = None;
                }
            }
        }
    }
    breaches
}

/// Is there a command for cargo in it that may choose other versions?
fn unlocked(line: &str) -> bool {
    line.split("cargo ").skip(1).any(|rest| {
        let mut words = rest.split_whitespace().filter(|word| !word.starts_with('+'));
        let resolves = words.next().is_some_and(|word| RESOLVES.contains(&word));
        // (Behind `--` are words for the program.)
        resolves
            && !words
                .take_while(|word| *word != "--")
                .any(|word| word == "--locked")
    })
}

/// One compiler, to the last number: the one that `tests/costs.toml` is of. It is new enough for `Cargo.toml`.
pub fn toolchain(tree: &Tree) -> Vec<Breach> {
    const FILE: &str = "rust-toolchain.toml";
    let value = |file: &str, key: &str| {
        let text = tree.files.get(file)?;
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(" = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    let channel = value(FILE, "channel").unwrap_or_default();
    let mut breaches = Vec::new();
    let exact = channel
        .split('.')
        .map(|n| n.parse::<u32>().ok())
        .collect::<Vec<_>>();
    if exact.len() != 3 || exact.contains(&None) {
        breaches.push(Breach::of(
            FILE,
            format!("its channel is no release: {channel:?}"),
        ));
    }
    let least = value("Cargo.toml", "rust-version").unwrap_or_default();
    if least.is_empty() || !format!("{channel}.").starts_with(&format!("{least}.")) {
        let what = format!("{channel} is not of {least}, the rust-version of Cargo.toml");
        breaches.push(Breach::of(FILE, what));
    }
    let recorded = value("tests/costs.toml", "compiler").unwrap_or_default();
    if recorded != format!("rustc {channel}") {
        let what = format!("{channel} is not the compiler of tests/costs.toml, {recorded:?}");
        breaches.push(Breach::of(FILE, what));
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
                ("tests/operators.md", page.as_str()),
                ("t.rs", "fn one() {}"),
            ]))
            .len()
        };
        assert_eq!(of("`t.rs` `one`"), 0);
        assert_eq!(of("`t.rs`"), 0);
        assert_eq!(of("`t.rs` `two`"), 2);
        assert!(of("`u.rs` `one`") > 0);
        assert!(of("none") > 0);
        assert_eq!(promises(&Tree::of([("SECURITY.md", "nothing")])).len(), 2);
        assert_eq!(promises(&Tree::of([("README.md", "")])).len(), 2);
    }

    #[test]
    fn cases_of_the_lab_elsewhere_are_found() {
        let case = "fn t() { lab::case(\"x\", |_| Ok(())) }";
        assert_eq!(lab_cases(&Tree::of([("tests/tests/vm/x.rs", case)])), []);
        assert_eq!(lab_cases(&Tree::of([("tests/tests/device/x.rs", case)])).len(), 1);
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

    #[test]
    fn commands_that_may_choose_versions_are_found() {
        let script = |command: &str| {
            let text = format!("#!/bin/bash\nset -euo pipefail\n# cargo build\n{command}\n");
            locked_commands(&Tree::of([("a", &text)])).len()
        };
        for good in [
            "cargo build --locked",
            "cargo fmt --all --check",
            "exec nice cargo \\\n    test --locked",
            "cargo test --workspace \\\n    --locked -- --show-output",
            "step clippy cargo clippy --locked && cargo +nightly run --locked",
            "command -v cargo >/dev/null",
        ] {
            assert_eq!(script(good), 0, "{good}");
        }
        for bad in [
            "cargo build",
            "cargo +stable build --release",
            "A=1 cargo test -- --locked",
            "cargo build --locked && cargo run",
            "cargo install \\\n    cargo-deny",
        ] {
            assert_eq!(script(bad), 1, "{bad}");
        }
        let page =
            "`cargo test` says\n```sh\ncargo build --release   # it\n```\n```yaml\n- run: cargo test\n```\n";
        let found = locked_commands(&Tree::of([("a.md", page), ("a.rs", "cargo build")]));
        assert_eq!(found, [Breach::at("a.md", 3, "cargo without --locked")]);
        let workflow = "steps:\n  - run: cargo test\n";
        assert_eq!(locked_commands(&Tree::of([("a.yml", workflow)])).len(), 1);
    }

    #[test]
    fn other_compilers_are_found() {
        let of = |channel: &str| {
            let file = format!("[toolchain]\nchannel = \"{channel}\"\n");
            toolchain(&Tree::of([
                ("rust-toolchain.toml", file.as_str()),
                ("Cargo.toml", "[workspace.package]\nrust-version = \"1.95\"\n"),
                ("tests/costs.toml", "compiler = \"rustc 1.95.0\"\n"),
            ]))
            .len()
        };
        assert_eq!(of("1.95.0"), 0);
        assert_eq!(of("1.95.1"), 1);
        assert_eq!(of("1.96.0"), 2);
        assert_eq!(of("1.95"), 2);
        assert_eq!(of("stable"), 3);
        assert_eq!(toolchain(&Tree::of([("Cargo.toml", "")])).len(), 3);
    }
}
