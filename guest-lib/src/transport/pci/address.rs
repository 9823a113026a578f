//! Addresses of PCI functions.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Address of a PCI function, as sysfs writes it: `0000:00:05.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, at most 31.
    pub device: u8,
    /// Function of the device, at most 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    /// Reads an address. The domain may be left out, as `lspci` does.
    fn from_str(text: &str) -> Result<PciAddress, Error> {
        parse(text).ok_or_else(|| {
            Error::Invalid(format!(
                "\"{text}\" is not the address of a PCI function, as 0000:00:05.0 is"
            ))
        })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.split_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>, max: u32| {
        let plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        let value = u32::from_str_radix(text, 16).ok()?;
        (plain && value <= max).then_some(value)
    };
    Some(PciAddress {
        domain: number(domain, 1..=8, u32::MAX)?,
        bus: number(bus, 1..=2, 0xff)? as u8,
        device: number(device, 1..=2, 31)? as u8,
        function: number(function, 1..=1, 7)? as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("0000:00:05.0", "0000:00:05.0"),
            ("00:05.0", "0000:00:05.0"),
            ("10000:e1:1f.7", "10000:e1:1f.7"),
            ("1:A:b.1", "0001:0a:0b.1"),
        ] {
            let address: PciAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), written);
        }
        for text in [
            "",
            "5",
            "00:05",
            "00:20.0",
            "00:05.8",
            "00:+5.0",
            "0:0:0:1.0",
            "../x:1.0",
            "eth0",
        ] {
            let refused = text.parse::<PciAddress>().expect_err(text);
            assert!(refused.to_string().contains("0000:00:05.0"));
        }
    }
}
