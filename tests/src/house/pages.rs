//! Pages in Markdown: where their links lead, how long those are that everybody reads first, and what the book holds. Citations, in
//! files of any kind.

use std::collections::BTreeMap;

use super::{Breach, Tree};

/// Pages that everybody reads first, and how many bytes they have at most.
const FIRST: &[(&str, usize)] = &[("README.md", 8 << 10), ("ARCHITECTURE.md", 25 << 10)];
/// The contents of the book, and the folder whose pages it holds.
const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = "docs/";
/// Sources that were at hand when this was written and that no reader can get. Their text is in papers, standards and vendors'
/// manuals: those are cited, by title and section.
const INTERNAL: &[&str] = &["rdma-notes", "ofed-programming", "ofed-qos", "winof2-ethernet"];
/// Here the names of internal sources stand.
const RULES: &str = "tests/src/house/";

/// Pages that are read first stay short: the rest is in `docs`, or beside its room.
pub fn page_sizes(tree: &Tree) -> Vec<Breach> {
    let long = |(path, most): &(&str, usize)| {
        let bytes = tree.files.get(*path)?.len();
        (bytes > *most).then(|| Breach::of(*path, format!("{bytes} bytes; {most} are allowed")))
    };
    FIRST.iter().filter_map(long).collect()
}

/// What is cited can be got by a reader.
pub fn citations(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| !path.starts_with(RULES)) {
        for (at, line) in text.lines().enumerate() {
            for name in INTERNAL.iter().filter(|name| line.contains(**name)) {
                let what = format!("{name} is not in the repository: cite a paper, a standard or a manual");
                breaches.push(Breach::at(path, at + 1, what));
            }
        }
    }
    breaches
}

/// A link of a page leads to a file, or to a folder with files, of the tree; its anchor is a heading of that page.
pub fn links(tree: &Tree) -> Vec<Breach> {
    let pages = || tree.ending(".md");
    let anchors: BTreeMap<&str, Vec<String>> = pages().map(|(path, text)| (path, headings(text))).collect();
    let mut breaches = Vec::new();
    for (path, text) in pages() {
        for (at, link) in links_of(text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") || target.contains(' ') {
                continue;
            }
            let page = match target {
                "" => path.to_owned(),
                _ => resolve(path, target),
            };
            let heading = |known: &Vec<String>| known.iter().any(|name| name == anchor);
            if !is_there(tree, &page) {
                breaches.push(Breach::at(path, at, format!("{link} leads nowhere")));
            } else if !anchor.is_empty() && !anchors.get(page.as_str()).is_some_and(heading) {
                breaches.push(Breach::at(
                    path,
                    at,
                    format!("{link}: {page} has no such heading"),
                ));
            }
        }
    }
    breaches
}

/// The contents of the book name each page of its folder, once. A page of it links to no page elsewhere: mdBook, which makes
/// `.html` of each `.md`, would break that link.
pub fn book(tree: &Tree) -> Vec<Breach> {
    let named: Vec<String> = tree.files.get(SUMMARY).map_or_else(Vec::new, |text| {
        links_of(text).map(|(_, link)| resolve(SUMMARY, link)).collect()
    });
    let pages = tree.ending(".md").map(|(path, _)| path);
    let of_book = pages.filter(|path| path.starts_with(BOOK) && *path != SUMMARY);
    let wrong = of_book.filter_map(|path| {
        let times = named.iter().filter(|name| *name == path).count();
        (times != 1).then(|| Breach::of(path, format!("{SUMMARY} names it {times} times")))
    });
    let mut breaches: Vec<Breach> = wrong.collect();
    for (path, text) in tree.ending(".md").filter(|(path, _)| path.starts_with(BOOK)) {
        for (at, link) in links_of(text) {
            let target = link.split('#').next().unwrap_or_default();
            let leaves = !target.contains("://") && !resolve(path, target).starts_with(BOOK);
            if leaves && target.ends_with(".md") {
                breaches.push(Breach::at(
                    path,
                    at,
                    format!("{link} leaves the book: link to the folder"),
                ));
            }
        }
    }
    breaches
}

/// The table of ARCHITECTURE that says where things are put, and where its paths begin.
const PLACES: &str = "## Where do I put";
const ROOTS: &[&str] = &["", "vnic-backend/", "vnic-backend/src/", "appliance/src/"];

/// A path in the table of places is there: a file or a folder.
pub fn places(tree: &Tree) -> Vec<Breach> {
    const PAGE: &str = "ARCHITECTURE.md";
    let text = tree.files.get(PAGE).map(String::as_str).unwrap_or_default();
    let rows = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| !line.starts_with(PLACES));
    let rows = rows.take_while(|(_, line)| !line.starts_with("## ") || line.starts_with(PLACES));
    let mut breaches = Vec::new();
    let mut found = 0;
    for (at, row) in rows.filter(|(_, line)| line.starts_with('|')) {
        for path in row.split('`').skip(1).step_by(2) {
            let is_path = !path.contains(' ') && (path.contains('/') || path.ends_with(".rs"));
            if !is_path {
                continue;
            }
            found += 1;
            if !ROOTS.iter().any(|root| is_there(tree, &format!("{root}{path}"))) {
                breaches.push(Breach::at(PAGE, at + 1, format!("there is no {path}")));
            }
        }
    }
    if found == 0 {
        breaches.push(Breach::of(PAGE, format!("no table {PLACES}")));
    }
    breaches
}

/// Lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((at + 1, line))
    })
}

fn links_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(at, line)| {
        let targets = line.split("](").skip(1);
        targets.filter_map(move |rest| Some((at, rest.split(')').next()?)))
    })
}

/// Anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = |name: &str| anchors.iter().any(|known| known == name);
        let again = (1..).map(|n| format!("{name}-{n}")).find(|name| !before(name));
        anchors.push(if before(&name) {
            again.unwrap_or(name)
        } else {
            name
        });
    }
    anchors
}

fn is_there(tree: &Tree, path: &str) -> bool {
    let folder = format!("{path}/");
    tree.files.contains_key(path) || tree.files.keys().any(|file| file.starts_with(&folder))
}

/// What a link of a page stands for, from the root of the tree.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let of = |text: &str| {
            links(&Tree::of([
                ("docs/a.md", text),
                ("deploy/x/y", ""),
                ("docs/b.md", ""),
            ]))
            .len()
        };
        assert_eq!(
            of("[b](b.md), [x](../deploy/x) [web](https://example.com/a) [here](#here) [b](b.md#part)"),
            2
        );
        assert_eq!(of("# Here, and _there_\n[here](#here-and-_there_) [b](b.md)"), 0);
        assert_eq!(of("## A\n## A\n[first](#a) [second](#a-1) [third](#a-2)"), 1);
        assert_eq!(of("```\n# a comment\n[x](nowhere)\n```\n[a](#a-comment)"), 1);
        assert_eq!(of("[c](c.md)"), 1);
        assert_eq!(of("[b](../b.md) and [deploy](deploy/x)"), 2);
    }

    #[test]
    fn pages_that_the_book_does_not_hold_are_found() {
        let of = |summary: &str| {
            let files = [
                ("docs/SUMMARY.md", summary),
                ("docs/a.md", ""),
                ("docs/b/c.md", ""),
            ];
            book(&Tree::of(files)).len()
        };
        assert_eq!(of("- [A](a.md)\n  - [C](b/c.md)"), 0);
        assert_eq!(of("- [A](a.md)\n- [again](a.md)"), 2);
        assert_eq!(of("- [A](a.md)\n- [C](b/c.md)\n[R](../README.md) [x](../x)"), 1);
        assert_eq!(book(&Tree::of([("docs/a.md", ""), ("README.md", "")])).len(), 1);
    }

    #[test]
    fn places_that_are_not_there_are_found() {
        let of = |row: &str| {
            let page = format!(
                "## Where do I put …\n\n| `nowhere/to.rs`, as a key |\n{row}\n## Else\n| `nothing/x` |\n"
            );
            let page: &'static str = page.leak();
            let files = [("ARCHITECTURE.md", page), ("vnic-backend/src/vhost/eth.rs", "")];
            places(&Tree::of(files)).len()
        };
        assert_eq!(of("| `vhost/eth.rs`, `vhost`, `field!` |"), 1);
        assert_eq!(of("| `eth.rs` |"), 2);
        assert_eq!(places(&Tree::of([("ARCHITECTURE.md", "# A")])).len(), 1);
    }

    #[test]
    fn sources_that_nobody_can_get_are_found() {
        let of = |path: &'static str| citations(&Tree::of([(path, "// (rdma-notes-zh section 9)")])).len();
        assert_eq!(of("a.rs"), 1);
        assert_eq!(of("tests/src/house/pages.rs"), 0);
        assert_eq!(citations(&Tree::of([("a.rs", "// IEEE 802.1Q, winof2-doc")])), []);
    }

    #[test]
    fn long_first_pages_are_found() {
        assert_eq!(page_sizes(&Tree::of([("README.md", "short")])), []);
        assert_eq!(
            page_sizes(&Tree::of([("README.md", &*"a".repeat(8193))])).len(),
            1
        );
    }
}
