//! Numbers with units: times, rates, sizes.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Time in ns: `50us`, `1.5ms`, or a number of ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// A rate in bit/s: `40Gb/s`, `40G`, or a number of bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Bytes: `200KB`, `1.5M`, or a number of bytes. Decimal, as the papers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATES: &[(&str, f64)] = &[
    ("", 1.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

/// A number and one of the units.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.replace('_', "").parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let value = (number * factor).round();
    (value < 1.8e19).then_some(value as u64)
}

fn without<'a>(text: &'a str, endings: &[&str]) -> &'a str {
    let found = endings.iter().find_map(|e| text.trim().strip_suffix(e));
    found.unwrap_or(text)
}

impl Time {
    /// From a text with a unit.
    pub fn parse(text: &str) -> Option<Time> {
        let plain = text.trim().parse().ok();
        plain.or_else(|| quantity(text, TIMES)).map(Time)
    }
}

impl Rate {
    /// From a text with a unit.
    pub fn parse(text: &str) -> Option<Rate> {
        quantity(without(text, &["bit/s", "b/s", "bps"]), RATES).map(Rate)
    }
}

impl Size {
    /// From a text with a unit.
    pub fn parse(text: &str) -> Option<Size> {
        quantity(without(text, &["B"]), RATES).map(Size)
    }
}

struct Reader {
    expected: &'static str,
    parse: fn(&str) -> Option<u64>,
}

impl Visitor<'_> for Reader {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        (self.parse)(text).ok_or_else(|| E::custom(format!("{text:?} is not {}", self.expected)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        u64::try_from(value).map_err(|_| E::custom(format!("{value} is not {}", self.expected)))
    }
}

macro_rules! quantities {
    ($($name:ident: $expected:literal;)*) => {
        $(impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let reader = Reader {
                    expected: $expected,
                    parse: |text| $name::parse(text).map(|v| v.0),
                };
                deserializer.deserialize_any(reader).map($name)
            }
        })*
    };
}

quantities! {
    Time: "a time, such as \"50us\" or \"10ms\"";
    Rate: "a rate, such as \"40Gb/s\"";
    Size: "a size, such as \"200KB\"";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal() {
        assert_eq!(Time::parse("50us"), Some(Time(50_000)));
        assert_eq!(Time::parse("1.5 ms"), Some(Time(1_500_000)));
        assert_eq!(Time::parse("7"), Some(Time(7)));
        assert_eq!(Rate::parse("40Gb/s"), Some(Rate(40_000_000_000)));
        assert_eq!(Rate::parse("2.5G"), Some(Rate(2_500_000_000)));
        assert_eq!(Rate::parse("100 Mbit/s"), Some(Rate(100_000_000)));
        assert_eq!(Size::parse("200KB"), Some(Size(200_000)));
        assert_eq!(Size::parse("12M"), Some(Size(12_000_000)));
        assert_eq!(Size::parse("500"), Some(Size(500)));
    }

    #[test]
    fn what_is_none_is_none() {
        for text in ["", "x", "5 apples", "us", "-5us", "1.2.3us"] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
        assert_eq!(Size::parse("5us"), None);
        assert_eq!(Rate::parse("40GB"), None);
    }
}
