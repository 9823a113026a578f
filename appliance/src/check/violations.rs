//! Everything that is wrong with what somebody asks for, field by field.

use std::fmt;

use super::Checked;

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

/// Collects everything that is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// One wrong field.
    pub fn one(field: impl Into<String>, problem: impl Into<String>) -> Violations {
        let mut one = Violations::default();
        one.add(field, problem);
        one
    }

    /// Notes that a field is wrong.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        let (field, problem) = (field.into(), problem.into());
        self.0.push(Violation { field, problem });
    }

    /// The value, or `None` and a note.
    pub fn check<T>(&mut self, field: impl Into<String>, checked: Checked<T>) -> Option<T> {
        checked.map_err(|problem| self.add(field, problem)).ok()
    }

    /// The value when nothing was wrong.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Violations> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// The same fields by other paths.
    pub fn rename(mut self, path: impl Fn(&str) -> String) -> Violations {
        for one in &mut self.0 {
            one.field = path(&one.field);
        }
        self
    }

    /// Adds others.
    pub fn extend(&mut self, others: Violations) {
        self.0.extend(others.0);
    }

    /// All of them, in the order in which they were found.
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
