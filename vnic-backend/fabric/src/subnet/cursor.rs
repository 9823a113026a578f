//! The text of a policy file, read from its begin to its end: words, strings, numbers, and where they stand.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::ranges::Ranges;

/// What is wrong with a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// Line, from 1 on.
    pub line: u32,
    /// Column in characters, from 1 on.
    pub column: u32,
    /// What is wrong there, and what is allowed.
    pub problem: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.problem)
    }
}

/// Line and column of a character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1 on.
    pub line: u32,
    /// Column, from 1 on.
    pub column: u32,
}

impl Place {
    /// The error that something is wrong here.
    pub fn error(self, problem: impl Into<String>) -> PolicyError {
        PolicyError {
            line: self.line,
            column: self.column,
            problem: problem.into(),
        }
    }
}

/// Result of reading.
pub type Read<T> = Result<T, PolicyError>;

/// What is still to be read.
pub struct Cursor<'a> {
    rest: &'a str,
    place: Place,
}

/// The end of a comment or of a value.
fn ends_line(c: char) -> bool {
    c == '\n' || c == '#'
}

fn blank(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

impl<'a> Cursor<'a> {
    /// A whole text.
    pub fn new(text: &'a str) -> Cursor<'a> {
        let place = Place { line: 1, column: 1 };
        Cursor { rest: text, place }
    }

    /// Where the next character stands.
    pub fn place(&self) -> Place {
        self.place
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn step(&mut self) {
        let mut chars = self.rest.chars();
        match chars.next() {
            None => return,
            Some('\n') => {
                self.place = Place {
                    line: self.place.line.saturating_add(1),
                    column: 1,
                }
            }
            Some(_) => self.place.column = self.place.column.saturating_add(1),
        }
        self.rest = chars.as_str();
    }

    /// Takes characters as long as they are such.
    fn take(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let from = self.rest;
        while self.peek().is_some_and(&is) {
            self.step();
        }
        let length = from.len().saturating_sub(self.rest.len());
        from.get(..length).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.take(blank);
    }

    /// Goes to the next word: over blanks, ends of lines and comments. False: there is none.
    pub fn next_word(&mut self) -> bool {
        loop {
            self.take(char::is_whitespace);
            match self.peek() {
                Some('#') => self.take(|c| c != '\n'),
                next => return next.is_some(),
            };
        }
    }

    /// A keyword: letters, digits and dashes. An error: something else stands here.
    pub fn word(&mut self) -> Read<&'a str> {
        let place = self.place;
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '-');
        match word.is_empty() {
            true => Err(place.error(format!("a keyword is expected, and {} stands here", self.shown()))),
            false => Ok(word),
        }
    }

    /// What stands here, for an error.
    fn shown(&self) -> String {
        match self.peek() {
            None => "the end of the file".into(),
            Some('\n' | '#') => "the end of the line".into(),
            Some(c) => format!("`{}`", c.escape_debug()),
        }
    }

    /// Takes a character if it stands here, with the blanks around it.
    pub fn accept(&mut self, wanted: char) -> bool {
        self.blanks();
        let here = self.peek() == Some(wanted);
        if here {
            self.step();
            self.blanks();
        }
        here
    }

    /// Takes a character that has to stand here.
    pub fn expect(&mut self, wanted: char, behind: &str) -> Read<()> {
        match self.accept(wanted) {
            true => Ok(()),
            false => Err(self.place.error(format!(
                "`{wanted}` is expected behind {behind}, and {} stands here",
                self.shown()
            ))),
        }
    }

    /// The end of a value: nothing but a comment may stand behind it in its line.
    pub fn finish(&mut self, behind: &str) -> Read<()> {
        self.blanks();
        match self.peek() {
            None => Ok(()),
            Some(c) if ends_line(c) => Ok(()),
            Some(_) => Err(self
                .place
                .error(format!("{} stands behind {behind}", self.shown()))),
        }
    }

    /// A string up to the end of the line, or to a comma if it is one of a list. What stands in quotes is taken as it is.
    fn piece(&mut self, list: bool, what: &str) -> Read<(Place, String)> {
        self.blanks();
        let place = self.place;
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|c| !(ends_line(*c) || list && *c == ',')) {
            let quote = self.place;
            self.step();
            if c != '"' {
                text.push(c);
                continue;
            }
            text.push_str(self.take(|c| c != '"' && c != '\n'));
            if self.peek() != Some('"') {
                return Err(quote.error("the quote has no end in its line"));
            }
            self.step();
        }
        match text.trim() {
            "" => Err(place.error(format!("{what} is empty"))),
            text => Ok((place, text.into())),
        }
    }

    /// A string that has the rest of the line.
    pub fn string(&mut self, what: &str) -> Read<String> {
        Ok(self.piece(false, what)?.1)
    }

    /// Strings with commas between them.
    pub fn strings(&mut self, what: &str) -> Read<Vec<(Place, String)>> {
        self.list(|text| text.piece(true, what))
    }

    /// Values with commas between them; behind a comma the next line may go on.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Cursor<'a>) -> Read<T>) -> Read<Vec<T>> {
        let mut all = Vec::new();
        loop {
            all.push(one(self)?);
            if !self.accept(',') {
                return Ok(all);
            }
            self.next_word();
        }
    }

    /// A number: decimal, hexadecimal (0x) or octal (0), as strtoull(3) has it.
    pub fn number(&mut self, what: &str) -> Read<(Place, u64)> {
        self.blanks();
        let place = self.place;
        let digits = self.take(|c| c.is_ascii_alphanumeric());
        let (radix, plain) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => (16, hex),
            None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
            None => (10, digits),
        };
        if digits.is_empty() {
            return Err(place.error(format!(
                "{what}: a number is expected, and {} stands here",
                self.shown()
            )));
        }
        let number = u64::from_str_radix(plain, radix);
        number.map(|n| (place, n)).map_err(|_| {
            place.error(format!(
                "{what}: {digits:?} is no number of at most 64 bits: decimal, hexadecimal (0x…) or octal (0…)"
            ))
        })
    }

    /// A number of a range.
    pub fn within(&mut self, what: &str, lo: u64, hi: u64) -> Read<u64> {
        let (place, n) = self.number(what)?;
        match (lo..=hi).contains(&n) {
            true => Ok(n),
            false => Err(place.error(format!("{what} {n} is out of range: {lo} to {hi}"))),
        }
    }

    /// A number of a range that a byte holds.
    pub fn byte(&mut self, what: &str, lo: u8, hi: u8) -> Read<u8> {
        let n = self.within(what, lo.into(), hi.into())?;
        Ok(u8::try_from(n).unwrap_or(hi))
    }

    /// Numbers and ranges with commas between them, none above `most`; `mask` is what counts of each.
    pub fn ranges(&mut self, what: &str, most: u64, mask: u64) -> Read<Ranges> {
        let mut all = Ranges::default();
        let each = self.list(|text| {
            let first = text.within(what, 0, most)?;
            let last = match text.accept('-') {
                true => text.within(what, 0, most)?,
                false => first,
            };
            Ok(Ranges::one(first & mask, last & mask))
        })?;
        each.into_iter().for_each(|range| all.add(range));
        Ok(all)
    }
}
