//! Values: parsing, formatting, and checks.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use vnic_wire::MacAddr;

use super::{Built, Illegal, KeyDef, Kind, Value};

/// Value to store for a requested one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The requested value in its plain form: a number if the key is a number.
    Accepted(Value),
    /// The default instead of an illegal value, as documented for this key ([`Illegal::Default`]).
    Fallback {
        /// Value to store.
        stored: Value,
        /// Requested value.
        asked: Value,
        /// Problem, and stored value, in words.
        why: String,
    },
}

impl Checked {
    /// Value to store.
    pub fn value(&self) -> &Value {
        match self {
            Checked::Accepted(value) | Checked::Fallback { stored: value, .. } => value,
        }
    }
}

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The value is not allowed; nothing is stored.
    #[error("{text}")]
    NotAllowed {
        /// Key, value, and what is allowed, in words.
        text: String,
    },
    /// The value is above the line rate: the call fails, and the line rate is stored all the same (WinOF-2 Ethernet
    /// Network, RCM Parameters).
    #[error("{text}")]
    AboveLineRate {
        /// Value to store.
        store: Value,
        /// Key, value and line rate, in words.
        text: String,
    },
    /// The key is not built; the text has what it waits for.
    #[error("not implemented: this key waits for {0}")]
    NotBuilt(&'static str),
}

impl KeyDef {
    /// Parses a value. Numbers are decimal, or hexadecimal after `0x`; a number with a word may be given by it
    /// ([`word`](KeyDef::word)), whatever the case. Addresses are separated by blanks, commas or semicolons. A text that
    /// is no value of this key stays a text, and [`check`](KeyDef::check) refuses or accepts it.
    pub fn parse(&self, text: &str) -> Value {
        self.plain(&Value::Text(text.to_owned()))
    }

    /// Plain form of a value, as it is stored: a number if the key is a number, whatever its type was.
    fn plain(&self, value: &Value) -> Value {
        let Value::Text(text) = value else {
            return value.clone();
        };
        let plain = match self.kind {
            Kind::Dword { .. } | Kind::Rate { .. } | Kind::Bool => number(text).map(Value::Dword),
            Kind::Enum(values) => number(text).or_else(|| worded(values, text)).map(Value::Dword),
            Kind::MacList { .. } => addresses(text).map(Value::Macs),
            Kind::Text { .. } => None,
        };
        plain.unwrap_or_else(|| value.clone())
    }

    /// Text of a value that [`parse`](KeyDef::parse) accepts: numbers in decimal, addresses as `AB-CD-EF-AB-CD-E0`.
    pub fn format(&self, value: &Value) -> String {
        match value {
            Value::Dword(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Macs(macs) => macs
                .iter()
                .map(|mac| mac.to_string().to_ascii_uppercase().replace(':', "-"))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    /// Word of a value, if its number has one: `NDIS poll` for 4 of `RecvCompletionMethod`.
    pub fn word(&self, value: &Value) -> Option<&'static str> {
        match (self.kind, value) {
            (Kind::Enum(values), Value::Dword(number)) => values
                .iter()
                .find(|(known, _)| known == number)
                .map(|(_, word)| *word),
            _ => None,
        }
    }

    /// Allowed values in words.
    pub fn allowed(&self) -> String {
        let unit = match self.unit {
            "" => String::new(),
            unit if unit.starts_with(|c: char| c.is_ascii_digit()) => format!(" (units of {unit})"),
            unit => format!(" ({unit})"),
        };
        match self.kind {
            Kind::Dword { min, max } if min == max => format!("{min}{unit}"),
            Kind::Dword { min, max } => format!("{min} to {max}{unit}"),
            Kind::Rate { min } => format!("{min} to the line rate{unit}"),
            Kind::Enum(values) => values
                .iter()
                .map(|(number, word)| format!("{number} ({word})"))
                .collect::<Vec<_>>()
                .join(", "),
            Kind::Bool => "0 and 1".to_owned(),
            Kind::MacList { max } => {
                format!("at most {max} different unicast Ethernet addresses, none of them zero")
            }
            Kind::Text { max } => format!("text of at most {max} bytes"),
        }
    }

    /// Checks whether `value` may be stored; returns the value to store. `line_rate_mbps` is the rate of the adapter's
    /// link, for keys that are rates.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; a key that is not built refuses every value.
    pub fn check(&self, value: &Value, line_rate_mbps: u32) -> Result<Checked, Refusal> {
        match self.built {
            Built::Yes => self.check_value(value, line_rate_mbps),
            Built::No(what) => Err(Refusal::NotBuilt(what)),
        }
    }

    /// Checks a value as [`check`](KeyDef::check) does for a key that is built: by the document alone.
    ///
    /// # Errors
    ///
    /// [`Refusal`], never [`Refusal::NotBuilt`].
    pub fn check_value(&self, value: &Value, line_rate_mbps: u32) -> Result<Checked, Refusal> {
        let value = self.plain(value);
        if self.allows(&value, line_rate_mbps) {
            return Ok(Checked::Accepted(value));
        }
        let asked = match self.format(&value) {
            text if text.is_empty() => "an empty value".to_owned(),
            text => text,
        };
        let text = format!(
            "{}: {asked} is not allowed; allowed: {}",
            self.name,
            self.allowed()
        );
        match (self.illegal, self.default, &value) {
            (Illegal::Default, Some(default), _) => Ok(Checked::Fallback {
                stored: Value::Dword(default),
                why: format!("{text}; the default, {default}, is stored instead"),
                asked: value,
            }),
            (Illegal::LineRate, _, Value::Dword(rate)) if *rate > line_rate_mbps => {
                Err(Refusal::AboveLineRate {
                    store: Value::Dword(line_rate_mbps),
                    text: format!(
                        "{}: {rate} Mbit/s is above the line rate; the line rate, {line_rate_mbps} Mbit/s, is stored instead",
                        self.name
                    ),
                })
            }
            _ => Err(Refusal::NotAllowed { text }),
        }
    }

    /// Whether the key allows the value, which is in its plain form.
    pub(super) fn allows(&self, value: &Value, line_rate_mbps: u32) -> bool {
        match (self.kind, value) {
            (Kind::Dword { min, max }, Value::Dword(number)) => (min..=max).contains(number),
            (Kind::Rate { min }, Value::Dword(number)) => (min..=line_rate_mbps).contains(number),
            (Kind::Enum(values), Value::Dword(number)) => values.iter().any(|(known, _)| known == number),
            (Kind::Bool, Value::Dword(number)) => *number <= 1,
            (Kind::MacList { max }, Value::Macs(macs)) => {
                macs.len() <= max
                    && macs.iter().enumerate().all(|(i, mac)| {
                        !mac.is_multicast()
                            && *mac != MacAddr::default()
                            && macs.iter().take(i).all(|other| other != mac)
                    })
            }
            (Kind::Text { max }, Value::Text(text)) => text.len() <= max,
            _ => false,
        }
    }
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` would accept a sign.
    if digits.starts_with('+') {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

fn worded(values: &[(u32, &str)], text: &str) -> Option<u32> {
    values
        .iter()
        .find(|(_, word)| word.eq_ignore_ascii_case(text.trim()))
        .map(|(number, _)| *number)
}

fn addresses(text: &str) -> Option<Vec<MacAddr>> {
    text.split([' ', '\t', '\n', ',', ';'])
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect()
}
