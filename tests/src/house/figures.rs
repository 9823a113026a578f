//! Figures of the house: no rule, but what those who change it look at. `tests/run` prints them at its end.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;
use super::shape::{against, arrows};
use super::text::lines_without_tests;

/// The folder whose files shall not know one another in circles.
const APPLIANCE: &str = "appliance/src";

/// Lines to print: circles of the appliance, then lines of each room.
pub fn figures(tree: &Tree) -> Vec<String> {
    let arrows = arrows(tree, APPLIANCE);
    let circles: Vec<String> = circles(&arrows).iter().map(|c| c.join(" ")).collect();
    let mut lines = vec![format!(
        "{APPLIANCE}: {} uses between files, {} run back, {} circles{}{}",
        arrows.len(),
        against(&arrows).len(),
        circles.len(),
        if circles.is_empty() { "" } else { ": " },
        circles.join("; ")
    )];
    lines.push(format!("{:<24} {:>8} {:>8}", "room", "lines", "of tests"));
    let (mut all, mut all_tests) = (0, 0);
    for (room, (code, tests)) in rooms(tree) {
        lines.push(format!("{room:<24} {code:>8} {tests:>8}"));
        (all, all_tests) = (all + code, all_tests + tests);
    }
    lines.push(format!("{:<24} {all:>8} {all_tests:>8}", "together"));
    lines
}

/// Modules that all use one another, directly or through others: each circle once, its members by name.
fn circles(arrows: &BTreeSet<(String, String)>) -> Vec<Vec<&str>> {
    let modules: BTreeSet<&str> = arrows
        .iter()
        .flat_map(|(a, b)| [a.as_str(), b.as_str()])
        .collect();
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            for (_, to) in arrows.iter().filter(|(a, _)| a == at) {
                if seen.insert(to.as_str()) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = modules.iter().map(|m| (*m, reached(m))).collect();
    let mut found: Vec<Vec<&str>> = Vec::new();
    for module in modules.iter().filter(|m| reached[*m].contains(*m)) {
        if found.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let circle = modules.iter().copied();
        found.push(
            circle
                .filter(|other| reached[module].contains(other) && reached[other].contains(module))
                .collect(),
        );
    }
    found
}

/// Lines of Rust of each crate: of the product, and of its tests. What the crates of tests hold is of tests.
fn rooms(tree: &Tree) -> BTreeMap<&str, (usize, usize)> {
    let packages: Vec<&str> = tree
        .ending("/Cargo.toml")
        .filter(|(_, text)| text.contains("[package]"))
        .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
        .collect();
    let mut rooms: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        let holds = |room: &&&str| {
            path.strip_prefix(**room)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        let Some(room) = packages.iter().filter(holds).max_by_key(|room| room.len()) else {
            continue;
        };
        let is_test = path.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
        let code = if is_test { 0 } else { lines_without_tests(text) };
        let counts = rooms.entry(room).or_default();
        counts.0 += code;
        counts.1 += text.lines().count() - code;
    }
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_once() {
        let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")];
        let arrows = arrows.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!(circles(&arrows), [["a", "b", "c"]]);
    }

    #[test]
    fn lines_belong_to_the_innermost_room() {
        let toml = "[package]\nname = \"a\"\n";
        let tree = Tree::of([
            ("a/Cargo.toml", toml),
            ("a/src/lib.rs", "fn f() {}\n\n#[cfg(test)]\nmod tests {\n}\n"),
            ("a/b/Cargo.toml", toml),
            ("a/b/src/lib.rs", "fn f() {}\n"),
            ("a/b/tests/b/main.rs", "fn f() {}\n"),
        ]);
        assert_eq!(rooms(&tree), BTreeMap::from([("a", (2, 3)), ("a/b", (1, 1))]));
        assert_eq!(figures(&tree).len(), 5);
    }
}
