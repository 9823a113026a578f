//! Reads a TOML tree key by key. Each wrong value and each unknown key becomes a diagnostic with its place and
//! the reading goes on, so that one run reports everything.

use std::cell::RefCell;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostics::Sink;
use crate::check::{Checked, nearest};

/// A value with its place and its key's path.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it is.
    pub span: Range<usize>,
    /// The path of its key.
    pub key: String,
}

impl<T> At<T> {
    /// Passes the value through a check; what the check refuses is noted.
    pub fn check<U>(self, sink: &Sink<'_>, check: impl FnOnce(T) -> Checked<U>) -> Option<At<U>> {
        match check(self.value) {
            Ok(value) => Some(At {
                value,
                span: self.span,
                key: self.key,
            }),
            Err(message) => {
                sink.error(self.span, self.key, message);
                None
            }
        }
    }
}

/// A table of the file. Every key that is asked for is known; [`Section::finish`] refuses the others.
pub struct Section<'a> {
    table: &'a DeTable<'a>,
    /// Where the table is.
    pub span: Range<usize>,
    path: String,
    known: RefCell<Vec<&'static str>>,
    sink: &'a Sink<'a>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub fn root(table: &'a Spanned<DeTable<'a>>, sink: &'a Sink<'a>) -> Section<'a> {
        Section::new(table.get_ref(), table.span(), String::new(), sink)
    }

    fn new(table: &'a DeTable<'a>, span: Range<usize>, path: String, sink: &'a Sink<'a>) -> Section<'a> {
        Section {
            table,
            span,
            path,
            known: RefCell::default(),
            sink,
        }
    }

    /// Path of this table.
    pub fn own_path(&self) -> &str {
        &self.path
    }

    /// Path of a key of this table.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn get(&self, key: &'static str) -> Option<At<&'a DeValue<'a>>> {
        self.known.borrow_mut().push(key);
        let (_, value) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some(At {
            value: value.get_ref(),
            span: value.span(),
            key: self.path(key),
        })
    }

    fn typed<T>(
        &self,
        at: At<&'a DeValue<'a>>,
        expected: &str,
        get: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<At<T>> {
        let found = at.value.type_str();
        at.check(self.sink, |v| {
            get(v).ok_or_else(|| format!("expected {expected}, found {found}"))
        })
    }

    /// Where the value of a key is, or would be.
    pub fn place(&self, key: &'static str) -> Range<usize> {
        self.get(key).map_or_else(|| self.span.clone(), |at| at.span)
    }

    /// Is the key there?
    pub fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// A string.
    pub fn string(&self, key: &'static str) -> Option<At<&'a str>> {
        self.typed(self.get(key)?, "a string", DeValue::as_str)
    }

    /// A string that must be there.
    pub fn required_string(&self, key: &'static str) -> Option<At<&'a str>> {
        if !self.has(key) {
            self.sink
                .error(self.span.clone(), self.path(key), "this key is required");
        }
        self.string(key)
    }

    /// An integer.
    pub fn integer(&self, key: &'static str) -> Option<At<i64>> {
        self.typed(self.get(key)?, "an integer", integer)
    }

    /// A number or a text, whichever is there.
    pub fn scalar(&self, key: &'static str) -> Option<At<Scalar<'a>>> {
        self.typed(self.get(key)?, "a number or a string", scalar)
    }

    /// A list of numbers and texts.
    pub fn scalars(&self, key: &'static str) -> Option<At<Vec<At<Scalar<'a>>>>> {
        self.list(key, "a number or a string", scalar)
    }

    /// True or false.
    pub fn boolean(&self, key: &'static str) -> Option<At<bool>> {
        self.typed(self.get(key)?, "true or false", DeValue::as_bool)
    }

    /// A list; each element with its own place.
    fn list<T>(
        &self,
        key: &'static str,
        expected: &str,
        get: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<At<Vec<At<T>>>> {
        let list = self.typed(
            self.get(key)?,
            &format!("a list, each element {expected}"),
            DeValue::as_array,
        )?;
        let elements: Vec<Option<At<T>>> = list
            .value
            .iter()
            .enumerate()
            .map(|(i, element)| {
                let at = At {
                    value: element.get_ref(),
                    span: element.span(),
                    key: format!("{}[{i}]", list.key),
                };
                self.typed(at, expected, &get)
            })
            .collect();
        Some(At {
            value: elements.into_iter().collect::<Option<Vec<_>>>()?,
            span: list.span,
            key: list.key,
        })
    }

    /// A list of strings.
    pub fn strings(&self, key: &'static str) -> Option<At<Vec<At<&'a str>>>> {
        self.list(key, "a string", DeValue::as_str)
    }

    /// A list of integers.
    pub fn integers(&self, key: &'static str) -> Option<At<Vec<At<i64>>>> {
        self.list(key, "an integer", integer)
    }

    /// A string or a list of strings.
    pub fn string_or_strings(&self, key: &'static str) -> Option<At<Vec<At<&'a str>>>> {
        let at = self.get(key)?;
        if at.value.is_array() {
            return self.strings(key);
        }
        let one = self.typed(at, "a string or a list of strings", DeValue::as_str)?;
        Some(At {
            span: one.span.clone(),
            key: one.key.clone(),
            value: vec![one],
        })
    }

    /// Is the value a string?
    pub fn is_string(&self, key: &'static str) -> bool {
        self.get(key).is_some_and(|at| at.value.is_str())
    }

    /// A table.
    pub fn table(&self, key: &'static str) -> Option<Section<'a>> {
        let at = self.typed(self.get(key)?, "a table", DeValue::as_table)?;
        Some(Section::new(at.value, at.span, at.key, self.sink))
    }

    /// A table whose keys are names of the user's choice, each with a text: what is there, or nothing. A text of the wrong
    /// type is noted, and `None`.
    #[allow(clippy::type_complexity)]
    pub fn texts_by_name(&self, key: &'static str) -> Option<Vec<(At<&'a str>, Option<At<&'a str>>)>> {
        let Some(at) = self.get(key) else {
            return Some(Vec::new());
        };
        let table = self.typed(at, "a table", DeValue::as_table)?;
        let rows = table.value.iter().map(|(name, value)| {
            let path = format!("{}.{}", table.key, name.get_ref());
            let name = At {
                value: name.get_ref().as_ref(),
                span: name.span(),
                key: path.clone(),
            };
            let value = At {
                value: value.get_ref(),
                span: value.span(),
                key: path,
            };
            (name, self.typed(value, "a string", DeValue::as_str))
        });
        Some(rows.collect())
    }

    /// Tables written as `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<Section<'a>> {
        let expected = format!("tables, each written as [[{key}]]");
        let Some(at) = self.get(key) else {
            return Vec::new();
        };
        let Some(list) = self.typed(at, &expected, DeValue::as_array) else {
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (i, element) in list.value.iter().enumerate() {
            let at = At {
                value: element.get_ref(),
                span: element.span(),
                key: format!("{}[{i}]", list.key),
            };
            if let Some(at) = self.typed(at, "a table", DeValue::as_table) {
                sections.push(Section::new(at.value, at.span, at.key, self.sink));
            }
        }
        sections
    }

    /// Refuses every key that nobody asked for.
    pub fn finish(self) {
        let mut known = self.known.take();
        known.sort_unstable();
        known.dedup();
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if known.binary_search(&name).is_ok() {
                continue;
            }
            let message = match nearest(name, &known) {
                Some(meant) => format!("unknown key; did you mean {meant:?}?"),
                None => format!("unknown key; allowed here: {}", known.join(", ")),
            };
            self.sink.error(key.span(), self.path(name), message);
        }
    }
}

/// A value that can be written as a number or as a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(&'a str),
}

fn scalar<'a>(value: &'a DeValue<'a>) -> Option<Scalar<'a>> {
    if let Some(text) = value.as_str() {
        return Some(Scalar::Text(text));
    }
    if let Some(float) = value.as_float() {
        return float.as_str().parse().ok().map(Scalar::Float);
    }
    integer(value).map(Scalar::Integer)
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let n = value.as_integer()?;
    i64::from_str_radix(n.as_str(), n.radix()).ok()
}
