//! Diagnostics of a configuration file, each with its place.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

use crate::check::Checked;

/// Problems that are told of a file, at most: a file from a client may be all wrong.
const PROBLEMS_MAX: usize = 100;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Diagnostic {
    /// Line and column, from 1; `None` for a problem of the whole file.
    place: Option<(usize, usize)>,
    /// Path of the key, such as `adapter[1].mtu`.
    key: String,
    /// Problem, and what is allowed.
    message: String,
}

/// Problems of a configuration file, in the file's order. Each is displayed as a line `FILE:LINE:COLUMN: KEY: problem and what is allowed`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics {
    file: PathBuf,
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Problem of the whole file.
    pub fn general(file: &Path, message: String) -> Diagnostics {
        Diagnostics {
            file: file.to_owned(),
            list: vec![Diagnostic {
                place: None,
                key: String::new(),
                message,
            }],
        }
    }

    /// The first problems and how many more there are, of a length that fits into an answer.
    pub fn brief(&self) -> String {
        const LINES: usize = 20;
        const LENGTH: usize = 300;
        let all = self.to_string();
        let cut = |line: &str| line.chars().take(LENGTH).collect::<String>();
        let mut lines: Vec<String> = all.lines().take(LINES).map(cut).collect();
        if let more @ 1.. = all.lines().count().saturating_sub(LINES) {
            lines.push(format!("and {more} more lines"));
        }
        lines.join("\n")
    }

    /// Number of problems.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no problem.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.list.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.file.display())?;
            if let Some((line, column)) = d.place {
                write!(f, "{line}:{column}:")?;
            }
            if !d.key.is_empty() {
                write!(f, " {}:", d.key)?;
            }
            write!(f, " {}", d.message)?;
        }
        Ok(())
    }
}

/// A key of a file with its value, or an element of a list.
#[derive(Debug)]
pub(super) struct Entry {
    /// Path of the key, such as `adapter[1].mtu`.
    pub path: String,
    /// Span of the key; of an element: span of its list's key.
    pub key: Range<usize>,
    /// Span of the value.
    pub value: Range<usize>,
}

/// Collector of a file's problems.
#[derive(Debug)]
pub struct Sink<'a> {
    file: &'a Path,
    text: &'a str,
    /// Entries of the file, each before the entries in it.
    pub(super) entries: Vec<Entry>,
    list: RefCell<Vec<(usize, Diagnostic)>>,
}

impl<'a> Sink<'a> {
    /// Makes a collector for the file `file` with the content `text`.
    pub fn new(file: &'a Path, text: &'a str) -> Sink<'a> {
        Sink {
            file,
            text,
            entries: Vec::new(),
            list: RefCell::default(),
        }
    }

    /// Adds a problem of the value at `span` of the key `key`.
    pub fn error(&self, span: Range<usize>, key: impl Into<String>, message: impl Into<String>) {
        if self.is_full() {
            return;
        }
        self.list.borrow_mut().push((
            span.start,
            Diagnostic {
                place: Some(line_and_column(self.text, span.start)),
                key: key.into(),
                message: message.into(),
            },
        ));
    }

    /// Whether no more problems are taken.
    fn is_full(&self) -> bool {
        self.list.borrow().len() >= PROBLEMS_MAX
    }

    /// Innermost key or value around a place.
    pub(super) fn around(&self, place: &Range<usize>) -> Option<&Entry> {
        let around = |span: &Range<usize>| span.start <= place.start && place.end <= span.end;
        // Of tables with one header the last is the innermost; a list's key comes before its elements.
        let (last, mut best) = (self.entries.len(), None);
        for (i, entry) in self.entries.iter().enumerate() {
            for (span, rank) in [(&entry.key, i), (&entry.value, last - i)] {
                let size = (span.len(), rank);
                if around(span) && best.is_none_or(|(least, _)| size < least) {
                    best = Some((size, entry));
                }
            }
        }
        best.map(|(_, entry)| entry)
    }

    fn path(&self, place: &Range<usize>) -> &str {
        self.around(place).map_or("", |entry| &entry.path)
    }

    /// Adds a problem of the value or key at `span`.
    pub fn wrong(&self, span: &Range<usize>, message: impl Into<String>) {
        if !self.is_full() {
            self.error(span.clone(), self.path(span), message);
        }
    }

    /// Span of the value of a table's key, if the key is present.
    pub fn place(&self, table: &Range<usize>, key: &str) -> Option<Range<usize>> {
        let path = format!("{}.{key}", self.path(table));
        let entry = self.entries.iter().find(|entry| entry.path == path);
        entry.map(|entry| entry.value.clone())
    }

    /// Adds a problem of a table's key, which may be absent.
    pub fn wrong_key(&self, table: &Range<usize>, key: &str, message: impl Into<String>) {
        let place = self.place(table, key).unwrap_or_else(|| table.clone());
        self.error(place, format!("{}.{key}", self.path(table)), message);
    }

    /// Value of a required key. A value of a wrong type is a known problem already.
    pub fn required<T>(&self, table: &Range<usize>, key: &str, value: Option<T>) -> Option<T> {
        if value.is_none() && self.place(table, key).is_none() {
            self.wrong_key(table, key, "this key is required");
        }
        value
    }

    /// Passes a value through a check; a refusal is added to the problems.
    pub fn check<T, U>(&self, value: Option<Spanned<T>>, check: impl FnOnce(T) -> Checked<U>) -> Option<U> {
        let value = value?;
        let span = value.span();
        let checked = check(value.into_inner());
        checked.map_err(|message| self.wrong(&span, message)).ok()
    }

    /// [`Sink::check`] for a text.
    pub fn text<U>(
        &self,
        text: Option<Spanned<String>>,
        check: impl FnOnce(&str) -> Checked<U>,
    ) -> Option<U> {
        self.check(text, |text| check(&text))
    }

    /// [`Sink::text`] for several texts; refused ones are left out.
    pub fn texts<U>(&self, texts: Vec<Spanned<String>>, check: impl Fn(&str) -> Checked<U>) -> Vec<U> {
        let checked = texts.into_iter().filter_map(|text| self.text(Some(text), &check));
        checked.collect()
    }

    /// Returns `value`, or the problems if there are any.
    pub fn finish<T>(self, value: T) -> Result<T, Diagnostics> {
        match self.failed() {
            true => Err(self.into_diagnostics()),
            false => Ok(value),
        }
    }

    /// Problems.
    pub fn into_diagnostics(self) -> Diagnostics {
        let mut list = self.list.into_inner();
        list.sort_by_key(|(at, _)| *at);
        Diagnostics {
            file: self.file.to_owned(),
            list: list.into_iter().map(|(_, d)| d).collect(),
        }
    }

    /// Whether there is a problem so far.
    pub fn failed(&self) -> bool {
        !self.list.borrow().is_empty()
    }

    /// Line of a place, for messages that point at another one.
    pub fn line(&self, place: &Range<usize>) -> usize {
        line_and_column(self.text, place.start).0
    }
}

/// Line and column of a byte offset, both from 1; columns are characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}
