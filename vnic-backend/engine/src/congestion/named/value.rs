//! Rows of parameters: their values as text.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Error, Parameter};

/// Unit of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A number.
    One,
    /// On or off.
    Switch,
    /// One of several words.
    Word,
    /// Time.
    Time,
    /// bit/s.
    BitRate,
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// Hundredths.
    Percent,
    /// 1/1024.
    Per1024,
}

impl Unit {
    /// The unit of a number without an ending; empty: none.
    pub fn name(self) -> &'static str {
        match self {
            Unit::One | Unit::Switch | Unit::Word => "",
            Unit::Time => "ns",
            Unit::BitRate => "bit/s",
            Unit::Bytes => "bytes",
            Unit::Packets => "packets",
            Unit::Percent => "percent",
            Unit::Per1024 => "1/1024",
        }
    }

    /// The unit as it is written behind a range.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::One | Unit::Switch | Unit::Word => "",
            Unit::Time => " (with ns, us, ms or s)",
            Unit::BitRate => " bit/s",
            Unit::Bytes => " bytes",
            Unit::Packets => " packets",
            Unit::Percent => " percent",
            Unit::Per1024 => " / 1024",
        }
    }
}

/// A value that is one of several words.
pub trait Words {
    /// The words.
    fn words(&self) -> &'static [&'static str];
    /// The word that it is.
    fn word(&self) -> &'static str;
    /// Changes it to one of [`Words::words`].
    fn choose(&mut self, word: &str) -> bool;
}

/// [`Words`] of an enumeration without data.
macro_rules! words {
    ($type:ty: $($word:literal = $value:expr),+) => {
        impl $crate::congestion::named::value::Words for $type {
            fn words(&self) -> &'static [&'static str] {
                &[$($word),+]
            }

            fn word(&self) -> &'static str {
                [$(($word, $value)),+].iter().find(|(_, v)| v == self).map_or("", |(w, _)| w)
            }

            fn choose(&mut self, word: &str) -> bool {
                match word {
                    $($word => *self = $value,)+
                    _ => return false,
                }
                true
            }
        }
    };
}
pub(super) use words;

/// A field of an algorithm's parameters.
pub enum Field<'a> {
    Switch(&'a mut bool),
    Small(&'a mut u32),
    Whole(&'a mut u64),
    Real(&'a mut f64),
    Time(&'a mut Duration),
    Word(&'a mut dyn Words),
}

/// A parameter of `P`.
pub struct Row<P: 'static> {
    pub name: &'static str,
    pub unit: Unit,
    /// Least and greatest value; of times in ns.
    pub range: (f64, f64),
    pub help: &'static str,
    pub field: fn(&mut P) -> Field<'_>,
}

/// A table of [`Row`]s, one for each of these fields of a type: a number is a kind of [`Field`] with its [`Unit`] and range; of
/// others the kind is the unit.
macro_rules! rows {
    (
        $(#[$meta:meta])* pub const $table:ident of $type:ty:
        $($name:ident: $field:ident $(as $unit:ident)? $(in $range:expr)?, $help:literal;)+
    ) => {
        $(#[$meta])*
        pub const $table: &[$crate::congestion::named::value::Row<$type>] = &[$(
            $crate::congestion::named::value::Row {
                name: stringify!($name),
                unit: $crate::congestion::named::value::rows!(@unit $field $($unit)?),
                range: $crate::congestion::named::value::rows!(@range $($range)?),
                help: $help,
                field: |p| $crate::congestion::named::value::Field::$field(&mut p.$name),
            }
        ),+];
    };
    (@unit $field:ident $unit:ident) => { $crate::congestion::named::value::Unit::$unit };
    (@unit $unit:ident) => { $crate::congestion::named::value::Unit::$unit };
    (@range $range:expr) => { $range };
    // (Values that are no numbers have no range.)
    (@range) => { (0.0, 0.0) };
}
pub(super) use rows;

/// Sets the parameter of a name; `None`: there is no such row.
pub fn set<P>(rows: &[Row<P>], parameters: &mut P, key: &str, value: &str) -> Option<Result<(), Error>> {
    let row = rows.iter().find(|row| row.name == key)?;
    let field = (row.field)(parameters);
    let accepted = accepted(row, &field);
    Some(put(row, field, value.trim()).ok_or_else(|| Error::Value {
        key: row.name.to_string(),
        value: value.to_string(),
        accepted,
    }))
}

/// All rows with their values.
pub fn list<P>(rows: &[Row<P>], parameters: &mut P) -> Vec<Parameter> {
    let of = |row: &Row<P>| {
        let field = (row.field)(parameters);
        Parameter {
            name: row.name.into(),
            unit: row.unit,
            accepted: accepted(row, &field),
            value: show(row.unit, &field),
            number: plain(&field),
            help: row.help,
        }
    };
    rows.iter().map(of).collect()
}

fn put<P>(row: &Row<P>, field: Field<'_>, text: &str) -> Option<()> {
    let (least, most) = row.range;
    let number = |text: &str| parse(row.unit, text).filter(|n| (least..=most).contains(n));
    // (The range of a whole field is within 2^53: no value is rounded.)
    let whole = |text: &str| {
        number(text)
            .filter(|n| *n >= 0.0 && n % 1.0 == 0.0)
            .map(|n| n as u64)
    };
    match field {
        Field::Switch(to) => *to = switch(text)?,
        Field::Small(to) => *to = u32::try_from(whole(text)?).ok()?,
        Field::Whole(to) => *to = whole(text)?,
        Field::Real(to) => *to = number(text)?,
        Field::Time(to) => *to = Duration::from_nanos(whole(text)?),
        Field::Word(to) => {
            let words = to.words();
            let numbered = text.parse().ok().and_then(|i: usize| words.get(i).copied());
            to.choose(numbered.unwrap_or(text)).then_some(())?;
        }
    }
    Some(())
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// A number with the endings that its unit allows.
pub fn parse(unit: Unit, text: &str) -> Option<f64> {
    let endings: &[(&str, f64)] = match unit {
        Unit::Time => &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)],
        Unit::BitRate | Unit::Bytes => &[("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)],
        _ => &[("", 1.0)],
    };
    if unit == Unit::Time && text == "0" {
        return Some(0.0);
    }
    let ending = endings.iter().find(|(ending, _)| text.ends_with(ending));
    let (ending, times) = ending?;
    let digits = text.strip_suffix(ending)?.trim_end();
    let number: f64 = digits.parse().ok()?;
    let number = number * times;
    // (0.3 us are 300 ns, and not the neighbour of 300 that the product is.)
    let whole = libm::round(number);
    let near = *times > 1.0 && (number - whole).abs() < 1e-6;
    number.is_finite().then_some(if near { whole } else { number })
}

/// A value as [`put`] takes it.
fn show(unit: Unit, field: &Field<'_>) -> String {
    match field {
        Field::Switch(on) => if **on { "on" } else { "off" }.to_string(),
        Field::Small(n) => number(unit, f64::from(**n)),
        Field::Whole(n) => number(unit, **n as f64),
        Field::Real(n) => number(unit, **n),
        Field::Time(t) => number(Unit::Time, t.as_nanos() as f64),
        Field::Word(word) => word.word().to_string(),
    }
}

/// A value as a number: ns, bit/s, bytes and so on, 1 or 0 of a switch, the place of a word among its words.
fn plain(field: &Field<'_>) -> String {
    match field {
        Field::Switch(on) => u8::from(**on).to_string(),
        Field::Small(n) => n.to_string(),
        Field::Whole(n) => n.to_string(),
        Field::Real(n) => n.to_string(),
        Field::Time(t) => t.as_nanos().to_string(),
        Field::Word(word) => {
            let at = word.words().iter().position(|known| *known == word.word());
            at.unwrap_or(0).to_string()
        }
    }
}

/// A number with the greatest ending that leaves it whole.
pub fn number(unit: Unit, n: f64) -> String {
    let endings: &[(f64, &str)] = match unit {
        Unit::Time => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        Unit::BitRate | Unit::Bytes => &[(1e9, "G"), (1e6, "M"), (1e3, "k")],
        _ => &[],
    };
    let fits = |(times, _): &&(f64, &str)| n != 0.0 && n % times == 0.0;
    match endings.iter().find(fits) {
        Some((times, ending)) => format!("{}{ending}", n / times),
        None => format!("{n}"),
    }
}

fn accepted<P>(row: &Row<P>, field: &Field<'_>) -> String {
    match field {
        Field::Switch(_) => "on or off".to_string(),
        Field::Word(word) => format!("one of {}", word.words().join(", ")),
        _ => {
            let (least, most) = row.range;
            let ends = (number(row.unit, least), number(row.unit, most));
            format!("{} to {}{}", ends.0, ends.1, row.unit.suffix())
        }
    }
}
