//! Licences of what we link and build with.

use super::{Breach, Package};

/// Licences that ask for no more than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Zlib",
];

/// Packages whose licence is something else, with the reason why that is fine.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Every package has a licence that we can live with.
pub fn licences(packages: &[Package]) -> Vec<Breach> {
    let wrong = |p: &&Package| !p.licence.as_deref().is_some_and(acceptable);
    let excused = |p: &&Package| EXCEPTIONS.iter().any(|(name, _)| *name == p.name);
    let breach = |p: &Package| {
        let licence = p.licence.as_deref().unwrap_or("none");
        Breach::of(
            &p.name,
            format!("its licence is {licence}, which is not on the list of allowed ones"),
        )
    };
    packages
        .iter()
        .filter(wrong)
        .filter(|p| !excused(p))
        .map(breach)
        .collect()
}

/// Can this SPDX expression be met with allowed licences only?
pub fn acceptable(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    either(&mut words) == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>) -> Option<bool> {
    let mut any = both(words)?;
    while words.next_if_eq(&"OR").is_some() {
        any |= both(words)?;
    }
    Some(any)
}

fn both(words: &mut Words<'_>) -> Option<bool> {
    let mut all = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        all &= one(words)?;
    }
    Some(all)
}

fn one(words: &mut Words<'_>) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let inner = either(words)?;
        return (words.next() == Some(")")).then_some(inner);
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next()?;
        return Some(ALLOWED.contains(&format!("{word} WITH {exception}").as_str()));
    }
    Some(ALLOWED.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert!(acceptable(good), "{good}");
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
            assert!(!acceptable(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_good_licence_is_found() {
        let package = |name: &str, licence: Option<&str>| Package {
            name: name.into(),
            licence: licence.map(Into::into),
            ..Package::default()
        };
        let found = licences(&[
            package("fine", Some("MIT")),
            package("copyleft", Some("AGPL-3.0-only")),
            package("silent", None),
        ]);
        assert_eq!(
            found.iter().map(|b| b.place.as_str()).collect::<Vec<_>>(),
            ["copyleft", "silent"]
        );
    }
}
