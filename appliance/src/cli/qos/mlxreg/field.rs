//! Fields of a register, and those of them that are to be written.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::super::super::Failure;

/// Fields with values, as a command line has them.
pub type Given = [(String, u32)];

pub fn usage(problem: impl Into<String>) -> Failure {
    Failure::Usage(problem.into())
}

/// What can be done with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It says which part of the device is meant.
    Index,
    /// It is read and written.
    Rw,
    /// It is read.
    Ro,
    /// It says what else is written with it; it is read as 0.
    Op,
    /// It is written, and read as 0.
    Wo,
}

impl Access {
    pub const fn word(self) -> &'static str {
        match self {
            Access::Index => "INDEX",
            Access::Rw => "RW",
            Access::Ro => "RO",
            Access::Op => "OP",
            Access::Wo => "WO",
        }
    }
}

/// A field of a register.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: Cow<'static, str>,
    /// Byte of its word of 32 bits.
    pub address: u32,
    /// Least bit within that word.
    pub bit: u32,
    /// Bits.
    pub size: u32,
    pub access: Access,
}

impl Field {
    pub const fn of(name: &'static str, (address, bit): (u32, u32), size: u32, access: Access) -> Field {
        Field {
            name: Cow::Borrowed(name),
            address,
            bit,
            size,
            access,
        }
    }
}

/// Which access of a card, of those that it keeps apart, is meant.
pub const PNAT: Field = Field::of("pnat", (0, 14), 2, Access::Index);
/// Port; the command line has its name.
pub const LOCAL_PORT: Field = Field::of("local_port", (0, 16), 8, Access::Index);

/// Fields that are to be written.
pub struct Chosen<'a>(pub &'a Given);

impl<'a> Chosen<'a> {
    /// Checks that they can be written, and that each value fits its field.
    pub fn of(known: &[Field], given: &'a Given) -> Result<Chosen<'a>, Failure> {
        for (name, value) in given {
            let field = known.iter().find(|f| f.name == *name);
            let field = field.ok_or_else(|| unknown(name))?;
            match field.access {
                Access::Index => return Err(usage(format!("{name} is an index: it belongs to --indexes"))),
                Access::Ro => return Err(usage(format!("{name} can only be read"))),
                _ => {}
            }
            let most = u32::MAX >> (32 - field.size);
            within(name, *value, most)?;
        }
        Ok(Chosen(given))
    }

    pub fn get(&self, name: &str) -> Option<u32> {
        let of = self.0.iter().rev().find(|(n, _)| n == name);
        of.map(|(_, value)| *value)
    }

    /// A field, unless its mask, where it is named, says that it stays.
    pub fn masked(&self, name: &str, mask: &str) -> Option<u32> {
        self.get(name).filter(|_| self.get(mask) != Some(0))
    }

    /// The same, with a mask that says so by 1.
    pub fn unmasked(&self, name: &str, mask_n: &str) -> Option<u32> {
        self.get(name).filter(|_| self.get(mask_n) != Some(1))
    }
}

pub fn unknown(name: &str) -> Failure {
    usage(format!("{name:?} is no field that can be written"))
}

pub fn within(name: &str, value: u32, most: u32) -> Result<u32, Failure> {
    if value <= most {
        return Ok(value);
    }
    Err(usage(format!("{name} {value} is out of range: 0 to {most}")))
}

/// Fields with values as mlxreg shows them.
pub fn rows(rows: &Given) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 4;
    let ruler = "=".repeat(width + 13);
    let mut out = String::from("Sending access register...\n");
    let _ = writeln!(out, "{:width$}| Data\n{ruler}", "Field Name");
    for (name, value) in rows {
        let _ = writeln!(out, "{name:width$}| {value:#010x}");
    }
    out + &ruler + "\n"
}
