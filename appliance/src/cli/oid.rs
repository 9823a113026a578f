//! `vnicctl oid`.

use std::fmt::Write as _;

use clap::Subcommand;
use vnic_backend::oid;
use vnic_control::v1;

use super::Failure;
use super::client::{Client, resource};
use super::output::Output;
use super::text::{self, Facts};
use crate::names;

#[derive(Debug, Subcommand)]
pub enum OidVerb {
    /// List the OIDs that are answered
    #[command(after_help = "Example:\n  vnicctl -o json oid list | jq -r '.oids[].oid_name'")]
    List,
    /// Query an OID of an adapter: its bytes, and what they say
    #[command(
        after_help = "Examples:\n  vnicctl oid query vf0 OID_GEN_STATISTICS\n  vnicctl oid query vf0 0xFFA0C932 \
                      --length 5\n  vnicctl -o json oid query vf0 OID_802_3_CURRENT_ADDRESS | jq -r .data | base64 -d \
                      | xxd\n\nEnds with 1 when the NDIS status is not a success."
    )]
    Query {
        /// Name of the adapter
        adapter: String,
        /// The OID: its name, or its number (hexadecimal after 0x)
        #[arg(value_name = "OID", value_parser = code)]
        code: u32,
        /// How many bytes there is room for [default: as many as the answer has]
        #[arg(long, value_name = "N")]
        length: Option<u32>,
    },
    /// Set an OID of an adapter
    #[command(
        after_help = "Examples:\n  vnicctl oid set vf0 0xFFA0C932 --hex 'a2 1e 0c 00 01'   # dropless mode on, \
                      5 ms\n  vnicctl oid set vf0 0xFFA0C932 --hex a21e0c0002         # off\n\nEnds with 1 when the NDIS \
                      status is not a success; then nothing has changed."
    )]
    Set {
        /// Name of the adapter
        adapter: String,
        /// The OID: its name, or its number (hexadecimal after 0x)
        #[arg(value_name = "OID", value_parser = code)]
        code: u32,
        /// The buffer, byte by byte in hexadecimal; blanks, commas and colons between bytes do not matter
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        hex: Bytes,
    },
}

/// Contents of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

fn code(text: &str) -> Result<u32, String> {
    if let Some(def) = oid::OIDS.iter().find(|def| def.name.eq_ignore_ascii_case(text)) {
        return Ok(def.code);
    }
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| "a name of `vnicctl oid list` or a number up to 0xFFFFFFFF is allowed".to_owned())
}

/// Bytes in hexadecimal; blanks, commas and colons between bytes do not matter.
pub fn bytes(text: &str) -> Result<Bytes, String> {
    let digits: Vec<char> = text
        .chars()
        .filter(|c| !c.is_whitespace() && !",:".contains(*c))
        .collect();
    let byte = |pair: &[char]| match pair {
        [high, low] => Some(high.to_digit(16)? << 4 | low.to_digit(16)?),
        _ => None,
    };
    let all: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| u8::try_from(byte(pair)?).ok())
        .collect();
    all.map(Bytes)
        .ok_or_else(|| "pairs of hexadecimal digits are allowed, such as a21e0c0001".to_owned())
}

/// Runs a command.
pub async fn run(verb: OidVerb, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut service = client.oids().await?;
    match verb {
        OidVerb::List => {
            let list = service.list_oids(v1::ListOidsRequest {}).await?.into_inner();
            out.message("ListOidsResponse", &list, || {
                text::table! { o in &list.oids, "no OIDs";
                    "OID": format!("0x{:08X}", o.code),
                    "NAME": o.oid_name,
                    "SET": if o.settable { "yes" } else { "no" },
                    "MEANING": o.help,
                }
            })
        }
        OidVerb::Query {
            adapter,
            code,
            length,
        } => {
            let request = v1::QueryOidRequest {
                adapter: resource(names::ADAPTERS, &adapter),
                code,
                buffer_length: length,
            };
            let answer = service.query_oid(request).await?.into_inner();
            out.message("QueryOidResponse", &answer, || {
                let mut facts = heading(code, answer.status.as_ref());
                facts.add("bytes needed", answer.bytes_needed.to_string());
                format!("{}{}{}", facts.finish(), dump(&answer.data), said(&answer.text))
            })?;
            success(answer.status.as_ref())
        }
        OidVerb::Set { adapter, code, hex } => {
            let request = v1::SetOidRequest {
                adapter: resource(names::ADAPTERS, &adapter),
                code,
                data: hex.0,
            };
            let answer = service.set_oid(request).await?.into_inner();
            out.message("SetOidResponse", &answer, || {
                let mut facts = heading(code, answer.status.as_ref());
                facts.add("bytes read", answer.bytes_read.to_string());
                if answer.bytes_needed != 0 {
                    facts.add("bytes needed", answer.bytes_needed.to_string());
                }
                facts.finish()
            })?;
            success(answer.status.as_ref())
        }
    }
}

fn heading(code: u32, status: Option<&v1::NdisStatus>) -> Facts {
    let name = oid::oid(code).map_or("unknown", |def| def.name);
    let mut facts = Facts::default();
    facts.add("oid", format!("0x{code:08X} {name}"));
    if let Some(status) = status {
        facts.add("status", format!("0x{:08X} {}", status.code, status.status_name));
    }
    facts
}

/// Hexadecimal dump of a buffer, 16 bytes a line.
fn dump(data: &[u8]) -> String {
    let mut text = String::new();
    for (i, line) in data.chunks(16).enumerate() {
        let _ = write!(text, "  {:04x} ", i * 16);
        for byte in line {
            let _ = write!(text, " {byte:02x}");
        }
        text.push('\n');
    }
    text
}

fn said(text: &str) -> String {
    text.lines().map(|line| format!("{line}\n")).collect()
}

fn success(status: Option<&v1::NdisStatus>) -> Result<(), Failure> {
    match status {
        Some(status) if status.code != 0 => Err(Failure::Failed(format!(
            "{}: {}",
            status.status_name, status.meaning
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_bytes_are_read() {
        assert_eq!(code("oid_gen_link_speed"), Ok(0x0001_0107));
        assert_eq!(code("0xFFA0C932"), Ok(0xFFA0_C932));
        assert_eq!(code("65799"), Ok(0x0001_0107));
        for wrong in ["", "OID_X", "0x", "0x1FFFFFFFF", "-1"] {
            assert!(code(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("a2 1E,0c:00 01"), Ok(Bytes(vec![0xa2, 0x1e, 0x0c, 0, 1])));
        assert_eq!(bytes(""), Ok(Bytes(vec![])));
        for wrong in ["a", "a21", "xy", "0x01"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
