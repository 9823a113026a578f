//! Settings at one time with their etags, and field masks of changes.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use super::refused::Refused;
use crate::check::{Violations, nearest};

/// Settings at one time.
pub struct Now<S> {
    /// Configured settings, and what acts.
    pub status: S,
    /// Settings without effect, or guarantees that cannot be kept, in words.
    pub warnings: Vec<String>,
    /// ETag; it changes with the settings.
    pub etag: String,
}

/// Fields that a field mask names, each once; `such_as` is an example for error texts.
pub fn named(
    paths: &[String],
    known: &'static [&'static str],
    such_as: &str,
) -> Result<Vec<&'static str>, Violations> {
    let mut wrong = Violations::default();
    if paths.is_empty() {
        let problem = format!("the fields to change are missing, such as {such_as:?}");
        return Err(Violations::one("update_mask", problem));
    }
    let mut named = Vec::new();
    for path in paths {
        match known.iter().find(|f| *f == path) {
            Some(field) if named.contains(field) => {}
            Some(field) => named.push(*field),
            None => {
                let meant =
                    nearest(path, known).map_or_else(String::new, |n| format!("; did you mean {n:?}?"));
                wrong.add(
                    "update_mask",
                    format!("{path:?} is no field that can be written{meant}"),
                );
            }
        }
    }
    wrong.finish(Some(named))
}

/// Checks that settings with the etag `is` have not changed since an etag; empty: they may have.
pub fn unchanged(since: &str, is: String) -> Result<(), Refused> {
    if since.is_empty() || since == is {
        return Ok(());
    }
    Err(Refused::Changed(is))
}

/// ETag of an encoding: equal bytes have equal etags.
pub fn etag(of: &[u8]) -> String {
    let hash = BuildHasherDefault::<DefaultHasher>::default();
    format!("{:016x}", hash.hash_one(of))
}
