//! Licences of what we link and build with.

use super::{Breach, Package, Tree};

/// Where the list of acceptable ones is.
const FILE: &str = "deny.toml";

/// What cargo-deny allows. (It is not run in each run of the tests; this is.)
pub fn allowed_licences(tree: &Tree) -> Vec<String> {
    let text = tree.files.get(FILE).map(String::as_str).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let list = table.get("licenses").and_then(|l| l.get("allow")?.as_array());
    let names = list.into_iter().flatten().filter_map(|name| name.as_str());
    names.map(str::to_owned).collect()
}

/// Every package has a licence that we can live with.
pub fn licences(packages: &[Package], allowed: &[String]) -> Vec<Breach> {
    let fine = |p: &Package| p.licence.as_deref().is_some_and(|l| acceptable(l, allowed));
    let breach = |p: &Package| {
        let licence = p.licence.as_deref().unwrap_or("none");
        Breach::of(
            &p.name,
            format!("its licence is {licence}, which {FILE} does not allow"),
        )
    };
    packages.iter().filter(|p| !fine(p)).map(breach).collect()
}

/// Can this SPDX expression be met with allowed licences only?
fn acceptable(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    either(&mut words, allowed) == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut any = both(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        any |= both(words, allowed)?;
    }
    Some(any)
}

fn both(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let mut all = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        all &= one(words, allowed)?;
    }
    Some(all)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let inner = either(words, allowed)?;
        return (words.next() == Some(")")).then_some(inner);
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next()?;
        return Some(allowed.contains(&format!("{word} WITH {exception}")));
    }
    Some(allowed.iter().any(|name| name == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<String> {
        let names = [
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unicode-3.0",
        ];
        names.map(str::to_owned).to_vec()
    }

    #[test]
    fn the_list_is_that_of_cargo_deny() {
        let list = allowed_licences(&Tree::of([(FILE, "[licenses]\nallow = [\"MIT\", \"ISC\"]\n")]));
        assert_eq!(list, ["MIT", "ISC"]);
        assert!(allowed_licences(&Tree::default()).is_empty());
    }

    #[test]
    fn expressions_are_understood() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert!(acceptable(good, &allowed()), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-2.0-only",
            "MPL-2.0",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ] {
            assert!(!acceptable(bad, &allowed()), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_good_licence_is_found() {
        let package = |name: &str, licence: Option<&str>| Package {
            name: name.into(),
            licence: licence.map(Into::into),
            ..Package::default()
        };
        let packages = [
            package("fine", Some("MIT")),
            package("copyleft", Some("AGPL-3.0-only")),
            package("silent", None),
        ];
        let found = licences(&packages, &allowed());
        assert_eq!(
            found.iter().map(|b| b.place.as_str()).collect::<Vec<_>>(),
            ["copyleft", "silent"]
        );
    }
}
