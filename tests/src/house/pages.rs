//! Pages in Markdown: where their links lead, and how long those are that everybody reads first.

use super::{Breach, Tree};

/// Pages that everybody reads first, and how many bytes they have at most.
const FIRST: &[(&str, usize)] = &[("README.md", 8 << 10), ("ARCHITECTURE.md", 26_000)];

/// Pages that are read first stay short: the rest is in `docs`, or beside its room.
pub fn page_sizes(tree: &Tree) -> Vec<Breach> {
    let long = |(path, most): &(&str, usize)| {
        let bytes = tree.files.get(*path)?.len();
        (bytes > *most).then(|| Breach::of(*path, format!("{bytes} bytes; {most} are allowed")))
    };
    FIRST.iter().filter_map(long).collect()
}

/// A link of a page leads to a file, or to a folder with files, of the tree.
pub fn links(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (at, line) in text.lines().enumerate() {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let target = link.split('#').next().unwrap_or_default();
                if target.is_empty() || target.contains("://") || target.contains(' ') {
                    continue;
                }
                if !is_there(tree, &resolve(path, target)) {
                    breaches.push(Breach::at(path, at + 1, format!("{link} leads nowhere")));
                }
            }
        }
    }
    breaches
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
            0
        );
        assert_eq!(of("[c](c.md)"), 1);
        assert_eq!(of("[b](../b.md) and [deploy](deploy/x)"), 2);
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
