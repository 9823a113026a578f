//! Text for people: tables, numbers and times.

use std::fmt::Write as _;

/// A table with aligned columns.
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of numbers, which are aligned to the right.
    numbers: Vec<bool>,
}

impl Table {
    /// Makes a table with these headings; a heading that begins with `>` makes a column of numbers.
    pub fn new(headings: &[&str]) -> Table {
        Table {
            numbers: headings.iter().map(|h| h.starts_with('>')).collect(),
            rows: vec![
                headings
                    .iter()
                    .map(|h| h.trim_start_matches('>').to_owned())
                    .collect(),
            ],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Text of the table; `nothing` if it has no rows.
    pub fn finish(self, nothing: &str) -> String {
        if self.rows.len() == 1 {
            return format!("{nothing}\n");
        }
        let width = |i: usize| {
            let cell = |row: &Vec<String>| row.get(i).map_or(0, |c| c.chars().count());
            self.rows.iter().map(cell).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.numbers.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let width = widths.get(i).copied().unwrap_or(0);
                let number = self.numbers.get(i).copied().unwrap_or(false);
                let _ = if number {
                    write!(line, "{cell:>width$}  ")
                } else {
                    write!(line, "{cell:<width$}  ")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Text of a table with a row for each of some things: its columns, each with a heading as in [`Table::new`] and the cell of a thing.
macro_rules! table {
    ($thing:pat in $things:expr, $nothing:expr; $(let $name:pat = $value:expr;)* $($heading:literal: $cell:expr,)+) => {{
        let mut table = $crate::cli::text::Table::new(&[$($heading),+]);
        for $thing in $things {
            $(let $name = $value;)*
            table.row([$($cell.to_string()),+]);
        }
        table.finish($nothing)
    }};
}
pub(super) use table;

/// Names and values, one a line.
#[derive(Default)]
pub struct Facts(Vec<(&'static str, String)>);

impl Facts {
    /// Adds a line, unless the value is empty.
    pub fn add(&mut self, name: &'static str, value: impl Into<String>) -> &mut Facts {
        let value = value.into();
        if !value.is_empty() {
            self.0.push((name, value));
        }
        self
    }

    /// Text of the lines.
    pub fn finish(&self) -> String {
        let width = self.0.iter().map(|(n, _)| n.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in &self.0 {
            let _ = writeln!(text, "{name:<width$}  {value}");
        }
        text
    }
}

/// Adds lines to facts.
macro_rules! facts {
    ($facts:ident; $($name:literal: $value:expr,)+) => {
        $($facts.add($name, $value.to_string());)+
    };
}
pub(super) use facts;

/// A text, or another one if it is empty.
pub fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

/// Word of an enum's value in messages, without the prefix of its enum; empty if it is not specified.
pub fn word(name: &'static str, prefix: &str) -> &'static str {
    match name.strip_prefix(prefix) {
        Some("UNSPECIFIED") => "",
        Some(word) => word,
        None => name,
    }
}

// Three digits are shown, fewer than an `f64` has.
#[allow(clippy::cast_precision_loss)]
fn scaled(n: u64, base: u64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    while value >= base as f64 * 0.9995 && unit + 1 < units.len() {
        value /= base as f64;
        unit += 1;
    }
    let digits = match (unit, value) {
        (0, _) => 0,
        (_, v) if v < 9.995 => 2,
        (_, v) if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", units.get(unit).copied().unwrap_or_default())
}

/// Count: exact if it is small, three digits if it is large.
pub fn count(n: u64) -> String {
    if n < 100_000 {
        n.to_string()
    } else {
        scaled(n, 1000, &["", "k", "M", "G", "T", "P", "E"])
    }
}

/// A number in three digits, such as `12.3k`: rates need no more.
pub fn short(n: u64) -> String {
    scaled(n, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

/// Part of one number in the sum of both, in per cent.
pub fn percent(part: u64, rest: u64) -> u64 {
    let all = u128::from(part) + u128::from(rest);
    (u128::from(part) * 100)
        .checked_div(all)
        .and_then(|p| u64::try_from(p).ok())
        .unwrap_or(0)
}

/// A time of so many nanoseconds in three digits, such as `1.02µs`.
pub fn nanos(n: u64) -> String {
    scaled(n, 1000, &["ns", "µs", "ms", "s"])
}

/// A number of bytes.
pub fn bytes(n: u64) -> String {
    scaled(n, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// A time as RFC 3339 in UTC, to the millisecond.
pub fn time(t: Option<prost_types::Timestamp>) -> String {
    t.map(|mut t| {
        t.nanos = t.nanos / 1_000_000 * 1_000_000;
        t.to_string()
    })
    .unwrap_or_default()
}

/// A span of time.
pub fn span(d: Option<prost_types::Duration>) -> String {
    let Some(d) = d else { return String::new() };
    let s = u64::try_from(d.seconds).unwrap_or(0);
    let micros = u64::try_from(d.nanos / 1000).unwrap_or(0);
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, 0) if micros < 1000 => format!("{micros} µs"),
        (0, 0, 0, 0) => format!("{} ms", micros / 1000),
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(99_999), "99999");
        assert_eq!(count(100_000), "100k");
        assert_eq!(count(1_234_567), "1.23M");
        assert_eq!(count(999_999), "1.00M");
        assert_eq!(
            [short(999), short(1000), short(12_345)],
            ["999", "1.00k", "12.3k"]
        );
        assert_eq!(
            [nanos(0), nanos(128), nanos(16_384), nanos(1 << 30)],
            ["0ns", "128ns", "16.4µs", "1.07s"]
        );
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(count(u64::MAX), "18.4E");
    }

    #[test]
    fn shares_are_parts_of_all() {
        assert_eq!(percent(0, 0), 0);
        assert_eq!(percent(1, 3), 25);
        assert_eq!(percent(u64::MAX, 0), 100);
    }

    #[test]
    fn spans_for_people() {
        let d = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        assert_eq!(span(d(0, 50_000)), "50 µs");
        assert_eq!(span(d(0, 5_000_000)), "5 ms");
        assert_eq!(span(d(61, 0)), "1 min 1 s");
        assert_eq!(span(d(90_000, 0)), "1 d 1 h");
    }

    #[test]
    fn tables_align() {
        let mut t = Table::new(&["NAME", ">N"]);
        t.row(["a".to_owned(), "5".to_owned()]);
        t.row(["long".to_owned(), "12345".to_owned()]);
        assert_eq!(t.finish("none"), "NAME      N\na         5\nlong  12345\n");
        assert_eq!(Table::new(&["NAME"]).finish("no adapters"), "no adapters\n");
    }
}
