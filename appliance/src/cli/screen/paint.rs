//! Tables of live views: columns that fit a width, and colours.

use std::ffi::OsStr;
use std::fmt::Write as _;

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    /// As all text.
    #[default]
    Plain,
    /// Headings.
    Bold,
    /// As it should be.
    Green,
    /// Someone should look.
    Yellow,
    /// Somebody is not served.
    Red,
}

impl Colour {
    /// The escape code that begins it (ECMA-48 SGR).
    fn code(self) -> &'static str {
        match self {
            Colour::Plain => "",
            Colour::Bold => "\x1b[1m",
            Colour::Green => "\x1b[32m",
            Colour::Yellow => "\x1b[33m",
            Colour::Red => "\x1b[31m",
        }
    }
}

/// Whether colours are shown: on a terminal, unless `NO_COLOR` has a value that is not empty (<https://no-color.org>).
pub fn wanted(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Text in a colour.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    pub text: String,
    pub colour: Colour,
}

impl Cell {
    /// A cell without colour.
    pub fn plain(text: impl Into<String>) -> Cell {
        Cell::new(text, Colour::Plain)
    }

    /// A cell in a colour. Control characters are shown as `?`: they may come from others.
    pub fn new(text: impl Into<String>, colour: Colour) -> Cell {
        let text: String = text.into();
        let clean = |c: char| if c.is_control() { '?' } else { c };
        Cell {
            text: text.chars().map(clean).collect(),
            colour,
        }
    }
}

/// How lines are made.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// Columns of the terminal; what is beyond is cut.
    pub width: Option<usize>,
    /// Colours are shown.
    pub colours: bool,
}

impl Paper {
    /// Lines of a table. A heading that begins with `>` makes a column of numbers, which are aligned to the right.
    pub fn table(&self, headings: &[&str], rows: &[Vec<Cell>]) -> Vec<String> {
        let width = |i: usize| {
            let cells = rows.iter().filter_map(|row| row.get(i));
            let widest = cells.map(|c| c.text.chars().count()).max().unwrap_or(0);
            let heading = headings.get(i).map_or("", |h| h.trim_start_matches('>'));
            widest.max(heading.chars().count())
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let numbers: Vec<bool> = headings.iter().map(|h| h.starts_with('>')).collect();
        let heads = headings
            .iter()
            .map(|h| Cell::new(h.trim_start_matches('>'), Colour::Bold));
        let heads: Vec<Cell> = heads.collect();
        let all = std::iter::once(&heads).chain(rows);
        all.map(|row| {
            let cells = row
                .iter()
                .zip(&widths)
                .zip(&numbers)
                .map(|((cell, width), number)| {
                    let fill = " ".repeat(width.saturating_sub(cell.text.chars().count()));
                    let text = match number {
                        true => format!("{fill}{}", cell.text),
                        false => format!("{}{fill}", cell.text),
                    };
                    Cell {
                        text,
                        colour: cell.colour,
                    }
                });
            let cells: Vec<Cell> = cells.collect();
            self.line(&cells)
        })
        .collect()
    }

    /// A line of cells, two spaces apart, without spaces at its end.
    pub fn line(&self, cells: &[Cell]) -> String {
        let mut left = self.width.unwrap_or(usize::MAX);
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            if i > 0 {
                let gap = left.min(2);
                line.push_str(&"  "[..gap]);
                left -= gap;
            }
            let text: String = cell.text.chars().take(left).collect();
            left -= text.chars().count();
            if !self.colours || cell.colour == Colour::Plain || text.trim().is_empty() {
                line.push_str(&text);
            } else {
                let _ = write!(line, "{}{text}\x1b[0m", cell.colour.code());
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paper = Paper {
        width: None,
        colours: false,
    };

    #[test]
    fn no_color_of_any_value_that_is_not_empty_switches_colours_off() {
        assert!(wanted(true, None));
        assert!(wanted(true, Some(OsStr::new(""))));
        for value in ["1", "0", "false"] {
            assert!(!wanted(true, Some(OsStr::new(value))), "{value}");
        }
        assert!(!wanted(false, None));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec![Cell::plain("a"), Cell::plain("5"), Cell::plain("")],
            vec![Cell::plain("long"), Cell::plain("12345"), Cell::plain("x")],
        ];
        let lines = PLAIN.table(&["NAME", ">N", "E"], &rows);
        assert_eq!(lines, ["NAME      N  E", "a         5", "long  12345  x"]);
    }

    #[test]
    fn lines_are_cut_and_never_wrap() {
        let rows = [vec![Cell::new("ééééé", Colour::Red), Cell::plain("12345")]];
        for width in 0..16 {
            for colours in [false, true] {
                let paper = Paper {
                    width: Some(width),
                    colours,
                };
                for line in paper.table(&["NAME", ">NUMBER"], &rows) {
                    let mut visible = line.clone();
                    for code in ["\x1b[1m", "\x1b[31m", "\x1b[0m"] {
                        visible = visible.replace(code, "");
                    }
                    assert!(visible.chars().count() <= width, "{width}: {line:?}");
                    assert!(!visible.contains('\x1b'), "{line:?}");
                    assert_eq!(line.matches("\x1b[0m").count() * 2, line.matches('\x1b').count());
                }
            }
        }
    }

    #[test]
    fn colours_are_codes_around_the_text_and_only_on_request() {
        let cells = [Cell::new("down", Colour::Red), Cell::plain("p0")];
        assert_eq!(PLAIN.line(&cells), "down  p0");
        let paper = Paper {
            width: None,
            colours: true,
        };
        assert_eq!(paper.line(&cells), "\x1b[31mdown\x1b[0m  p0");
    }

    #[test]
    fn what_others_wrote_sends_no_codes_to_the_terminal() {
        assert_eq!(Cell::plain("a\x1b[2Jb\r").text, "a?[2Jb?");
    }
}
