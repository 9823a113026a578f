//! Plots of characters: values over time, and bars.

use std::ffi::OsString;

/// Dots of a braille pattern (Unicode 2800 to 28FF) from the lowest up, of its left and its right column.
const DOTS: [[u32; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];
/// Blocks from one eighth to seven eighths of a cell, from the left.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Characters that plots are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Braille patterns: two values and four levels a cell. Bars of blocks.
    Unicode,
    /// `#`: one value and one level a cell.
    Ascii,
}

impl Ink {
    /// What the user's locale can show (POSIX: LC_ALL, or else LC_CTYPE, or else LANG).
    pub fn of_locale(variable: impl Fn(&str) -> Option<OsString>) -> Ink {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"];
        let locale = names
            .iter()
            .filter_map(|name| variable(name))
            .find(|v| !v.is_empty());
        let locale = locale.unwrap_or_default().to_string_lossy().to_uppercase();
        match locale.contains("UTF-8") || locale.contains("UTF8") {
            true => Ink::Unicode,
            false => Ink::Ascii,
        }
    }

    /// Values in a cell, and levels of it.
    fn cell(self) -> (usize, usize) {
        match self {
            Ink::Unicode => (2, 4),
            Ink::Ascii => (1, 1),
        }
    }

    /// Values for which there is room in so many cells.
    pub fn room(self, width: usize) -> usize {
        width * self.cell().0
    }
}

/// Levels of `value` where `most` has all. What is not zero has one at least.
fn levels(value: u64, most: u64, all: usize) -> usize {
    let part = (u128::from(value.min(most)) * all as u128).div_ceil(u128::from(most.max(1)));
    usize::try_from(part).unwrap_or(all).min(all)
}

/// Lines of a plot of `width` by `height` cells, the highest first and the newest value at the right. A value of `most` reaches the top.
/// `None`: nothing is known of that time.
pub fn plot(ink: Ink, values: &[Option<u64>], width: usize, height: usize, most: u64) -> Vec<String> {
    let (across, up) = ink.cell();
    let room = ink.room(width);
    let shown = &values[values.len().saturating_sub(room)..];
    let empty = room - shown.len();
    let of = |at: usize| {
        let value = at
            .checked_sub(empty)
            .and_then(|i| shown.get(i).copied().flatten());
        value.map_or(0, |value| levels(value, most, height * up))
    };
    let columns: Vec<usize> = (0..room).map(of).collect();
    let line = |row: usize| {
        let below = (height - 1 - row) * up;
        let cell = |cell: &[usize]| match ink {
            Ink::Ascii => match cell.first() {
                Some(level) if *level > below => '#',
                _ => ' ',
            },
            Ink::Unicode => {
                let dots = cell.iter().zip(&DOTS).flat_map(|(level, dots)| {
                    let filled = level.saturating_sub(below).min(up);
                    dots[..filled].iter()
                });
                char::from_u32(0x2800 + dots.sum::<u32>()).unwrap_or(' ')
            }
        };
        columns.chunks(across).map(cell).collect()
    };
    (0..height).map(line).collect()
}

/// A bar of at most `width` cells, which a value of `most` fills. What is not zero is seen.
pub fn bar(ink: Ink, value: u64, most: u64, width: usize) -> String {
    match ink {
        Ink::Ascii => "#".repeat(levels(value, most, width)),
        Ink::Unicode => {
            let eighths = levels(value, most, width * 8);
            let mut bar = "█".repeat(eighths / 8);
            bar.extend((eighths % 8).checked_sub(1).and_then(|i| EIGHTHS.get(i)));
            bar
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_filled_up_to_its_values() {
        let values = [1, 2, 3, 4, 5, 6, 7, 8].map(Some);
        let lines = plot(Ink::Unicode, &values, 5, 2, 8);
        // The left cell is of a time before the first value.
        assert_eq!(lines, ["⠀⠀⠀⣠⣾", "⠀⣠⣾⣿⣿"]);
        let lines = plot(Ink::Ascii, &[Some(0), Some(1), None, Some(4), Some(9)], 6, 4, 4);
        assert_eq!(lines, ["    ##", "    ##", "    ##", "  # ##"]);
    }

    #[test]
    fn the_newest_values_are_shown_and_nothing_overflows() {
        let many: Vec<Option<u64>> = (0..100).map(Some).collect();
        let lines = plot(Ink::Ascii, &many, 3, 1, 98);
        assert_eq!(lines, ["###"]);
        for (values, most) in [(vec![], 0), (vec![Some(u64::MAX)], u64::MAX), (vec![Some(7)], 0)] {
            for ink in [Ink::Unicode, Ink::Ascii] {
                for (width, height) in [(0, 0), (0, 3), (3, 0), (1, 1)] {
                    let lines = plot(ink, &values, width, height, most);
                    assert_eq!(lines.len(), height);
                    assert!(lines.iter().all(|l| l.chars().count() == width), "{lines:?}");
                }
            }
        }
    }

    #[test]
    fn bars_have_eighths_and_what_is_little_is_seen() {
        let bars = [0, 1, 8, 9, 12, 16].map(|n| bar(Ink::Unicode, n, 16, 2));
        assert_eq!(bars, ["", "▏", "█", "█▏", "█▌", "██"]);
        assert_eq!(bar(Ink::Unicode, 1, u64::MAX, 10), "▏");
        assert_eq!([0, 1, 16].map(|n| bar(Ink::Ascii, n, 16, 4)), ["", "#", "####"]);
        assert_eq!(bar(Ink::Ascii, 5, 0, 3), "");
    }

    #[test]
    fn the_locale_says_what_can_be_shown() {
        let ink = |all: &[(&str, &str)]| {
            Ink::of_locale(|name| {
                all.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| OsString::from(v))
            })
        };
        assert_eq!(ink(&[("LANG", "en_GB.UTF-8")]), Ink::Unicode);
        assert_eq!(ink(&[("LANG", "C.utf8")]), Ink::Unicode);
        assert_eq!(ink(&[("LANG", "C.UTF-8"), ("LC_ALL", "C")]), Ink::Ascii);
        assert_eq!(ink(&[("LANG", "C.UTF-8"), ("LC_ALL", "")]), Ink::Unicode);
        assert_eq!(ink(&[]), Ink::Ascii);
    }
}
