//! Problems of a request, by field.

use std::fmt;

use super::Checked;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field.
    pub field: String,
    /// Problem, and what is allowed.
    pub problem: String,
}

/// Problems of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    pub fn one(field: impl Into<String>, problem: impl Into<String>) -> Violations {
        let mut one = Violations::default();
        one.add(field, problem);
        one
    }

    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        let (field, problem) = (field.into(), problem.into());
        self.0.push(Violation { field, problem });
    }

    /// Passes a checked value on; an error is added to the problems.
    pub fn check<T>(&mut self, field: impl Into<String>, checked: Checked<T>) -> Option<T> {
        checked.map_err(|problem| self.add(field, problem)).ok()
    }

    /// Passes a value on that may be absent, and is checked if it is there.
    pub fn optional<V, T>(
        &mut self,
        field: impl Into<String>,
        value: Option<V>,
        check: impl FnOnce(V) -> Checked<T>,
    ) -> Option<Option<T>> {
        match value {
            None => Some(None),
            Some(value) => self.check(field, check(value)).map(Some),
        }
    }

    /// Returns the value, or the problems if there are any.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Violations> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// Changes the paths of all fields.
    pub fn rename(mut self, path: impl Fn(&str) -> String) -> Violations {
        for one in &mut self.0 {
            one.field = path(&one.field);
        }
        self
    }

    /// Adds the problems of `others`.
    pub fn extend(&mut self, others: Violations) {
        self.0.extend(others.0);
    }

    /// Problems in the order in which they were added.
    pub fn all(&self) -> &[Violation] {
        &self.0
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut problems: Vec<String> = self
            .0
            .iter()
            .map(|v| format!("{}: {}", v.field, v.problem))
            .collect();
        problems.dedup();
        f.write_str(&problems.join("; "))
    }
}
