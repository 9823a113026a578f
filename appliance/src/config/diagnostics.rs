//! Everything that is wrong with a configuration, each with its place in the file.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Diagnostic {
    /// Line and column, from 1; `None` when it has no place in the file.
    place: Option<(usize, usize)>,
    /// Path of the key, such as `adapter[1].mtu`.
    key: String,
    /// What is wrong and what is allowed.
    message: String,
}

/// All that is wrong with one configuration file, in the file's order. Displayed one a line as
/// `FILE:LINE:COLUMN: KEY: what is wrong and what is allowed`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics {
    file: PathBuf,
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Something that concerns the file as a whole.
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

    /// How many things are wrong.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Is nothing wrong?
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

/// Collects what is wrong while a file is read.
#[derive(Debug)]
pub struct Sink<'a> {
    file: &'a Path,
    text: &'a str,
    list: RefCell<Vec<(usize, Diagnostic)>>,
}

impl<'a> Sink<'a> {
    /// For the file `file` with the content `text`.
    pub fn new(file: &'a Path, text: &'a str) -> Sink<'a> {
        Sink {
            file,
            text,
            list: RefCell::default(),
        }
    }

    /// Notes that the value at `span` of the key `key` is wrong.
    pub fn error(&self, span: Range<usize>, key: impl Into<String>, message: impl Into<String>) {
        self.list.borrow_mut().push((
            span.start,
            Diagnostic {
                place: Some(line_and_column(self.text, span.start)),
                key: key.into(),
                message: message.into(),
            },
        ));
    }

    /// `value` when nothing was wrong.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Diagnostics> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|(at, _)| *at);
        match value {
            Some(value) if list.is_empty() => Ok(value),
            _ => Err(Diagnostics {
                file: self.file.to_owned(),
                list: list.into_iter().map(|(_, d)| d).collect(),
            }),
        }
    }

    /// Was anything wrong so far?
    pub fn failed(&self) -> bool {
        !self.list.borrow().is_empty()
    }

    /// The line of an offset, for messages that point at another place.
    pub fn line(&self, offset: usize) -> usize {
        line_and_column(self.text, offset).0
    }
}

/// Line and column of a byte offset, both from 1, columns in characters.
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
