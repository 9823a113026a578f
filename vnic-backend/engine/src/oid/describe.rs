//! Text of OID data.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use vnic_wire::MacAddr;

use super::{Form, OidDef, SIGNATURE, Statistics, dropless, oid};

/// Text of an answer's data; empty if the data are not of this OID. It has a line for each fact.
pub fn describe(def: &OidDef, data: &[u8]) -> String {
    worded(def, data).unwrap_or_default()
}

fn worded(def: &OidDef, data: &[u8]) -> Option<String> {
    Some(match def.form {
        Form::Number(words) => {
            let number = u32_at(data, 0)?;
            match words.iter().find(|(known, _)| *known == number) {
                Some((_, word)) => format!("{number} ({word})"),
                None => with_unit(number.into(), def.unit),
            }
        }
        Form::Counter => with_unit(
            u64_at(data, 0).or_else(|| u32_at(data, 0).map(u64::from))?,
            def.unit,
        ),
        Form::Codes => lines(data.chunks_exact(4).filter_map(|code| {
            let code = u32_at(code, 0)?;
            let name = oid(code).map_or("", |def| def.name);
            Some(format!("0x{code:08X} {name}"))
        })),
        Form::Address => address(data)?,
        Form::Addresses if data.is_empty() => "no addresses".to_owned(),
        Form::Addresses => lines(data.chunks_exact(6).filter_map(address)),
        Form::Text => {
            let text = data.strip_suffix(&[0]).unwrap_or(data);
            core::str::from_utf8(text).ok()?.to_owned()
        }
        Form::LinkSpeed => format!(
            "transmit {}\nreceive {}",
            with_unit(u64_at(data, 0)?, def.unit),
            with_unit(u64_at(data, 8)?, def.unit)
        ),
        Form::LinkState => {
            let connected = match u32_at(data, 4)? {
                1 => "connected",
                2 => "disconnected",
                _ => "unknown",
            };
            let duplex = match u32_at(data, 8)? {
                1 => "half duplex",
                2 => "full duplex",
                _ => "duplex unknown",
            };
            let (send, receive) = (u64_at(data, 16)?, u64_at(data, 24)?);
            format!("{connected}\n{duplex}\ntransmit {send} bit/s\nreceive {receive} bit/s")
        }
        Form::Statistics => {
            let flags = u32_at(data, 4)?;
            let members = Statistics::default().members();
            lines(members.iter().enumerate().filter_map(|(i, (name, flag, _))| {
                let value = u64_at(data, 8 + 8 * i)?;
                Some(match flags & flag {
                    0 => format!("{name}: not counted"),
                    _ => format!("{name}: {value}"),
                })
            }))
        }
        Form::Dropless => match dropless::parse(data)? {
            (SIGNATURE, 1) => "on".to_owned(),
            (SIGNATURE, 0 | 2) => "off".to_owned(),
            _ => return None,
        },
    })
}

fn with_unit(number: u64, unit: &str) -> String {
    match unit {
        "" => number.to_string(),
        // Without the sign, 5 of "100 bit/s" would be "5 100 bit/s".
        unit if unit.starts_with(|c: char| c.is_ascii_digit()) => format!("{number} x {unit}"),
        unit => format!("{number} {unit}"),
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn address(data: &[u8]) -> Option<String> {
    Some(MacAddr(data.try_into().ok()?).to_string())
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}
