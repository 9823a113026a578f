//! The rules of the house, as code: each rule looks at the tree of files, or at what cargo knows, and answers with
//! what breaks it. `tests/tests/house_rules.rs` holds the tree to them; the tests in here hold the rules to broken trees.

pub mod circles;
mod figures;
mod licences;
mod pages;
mod rooms;
pub mod shape;
mod source;
mod strip;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

pub use figures::figures;
pub use licences::{allowed_licences, licences};
pub use pages::{book, citations, links, page_sizes, places};
pub use rooms::{Package, packages, rooms};
pub use source::{core_attributes, floors, markers};
pub use text::{documented, lab_cases, locked_commands, promises, proto_comments, shell_scripts, toolchain};

/// Something that breaks a rule, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// File (with line, when there is one), crate or package.
    pub place: String,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Breach {
    fn at(path: &str, line: usize, what: impl Into<String>) -> Breach {
        Breach {
            place: format!("{path}:{line}"),
            what: what.into(),
        }
    }

    fn of(place: impl Into<String>, what: impl Into<String>) -> Breach {
        Breach {
            place: place.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// The project's text files, by path from the root.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Contents.
    pub files: BTreeMap<String, String>,
}

impl Tree {
    /// Of the project: what git knows or would add; without git, everything but build products.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut paths = listed_by_git(root).unwrap_or_default();
        if paths.is_empty() {
            walk(root, Path::new(""), &mut paths)?;
        }
        let mut files = BTreeMap::new();
        for path in paths {
            // Not text, or deleted but not yet committed: not for us.
            if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
                files.insert(path, text);
            }
        }
        Ok(Tree { files })
    }

    /// Files whose name ends so.
    fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |(p, _)| p.ends_with(end))
            .map(|(p, t)| (p.as_str(), t.as_str()))
    }

    /// For tests of rules.
    #[cfg(test)]
    fn of<const N: usize>(files: [(&str, &str); N]) -> Tree {
        Tree {
            files: files.map(|(p, t)| (p.to_owned(), t.to_owned())).into(),
        }
    }
}

/// The root of the workspace that this crate was built in.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).unwrap_or(here)
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let out = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()
        .filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(
        text.split('\0')
            .filter(|p| !p.is_empty())
            .map(Into::into)
            .collect(),
    )
}

fn walk(root: &Path, below: &Path, paths: &mut Vec<String>) -> Result<()> {
    let dir = root.join(below);
    for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        let path = below.join(&name);
        if entry.file_type()?.is_dir() {
            if name != "target" && name != ".git" {
                walk(root, &path, paths)?;
            }
        } else if let Some(path) = path.to_str() {
            paths.push(path.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_without_git_is_walked() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["a.rs", "b/c.rs", "target/d.rs", ".git/e.rs"] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "x").expect("written");
        }
        std::fs::write(dir.path().join("binary"), [0xff, 0xfe]).expect("written");
        let tree = Tree::read(dir.path()).expect("a tree");
        assert_eq!(tree.files.keys().collect::<Vec<_>>(), ["a.rs", "b/c.rs"]);
    }

    #[test]
    fn the_project_is_found() {
        let tree = Tree::read(&root()).expect("a tree");
        assert!(tree.files.contains_key("Cargo.toml"));
        assert!(tree.files.keys().all(|p| !p.starts_with("target/")));
    }
}
