//! Values of a multicast group of the subnet.

use vnic_backend::subnet;

use super::Checked;

/// Queue key of a group that names none: that of OpenSM's.
pub const QKEY_DEFAULT: u32 = 0xb1b;
/// MTU of a group that names none, in bytes.
pub const MTU_DEFAULT: u32 = 1024;
/// Rate of a group that names none, in Mbit/s.
pub const RATE_DEFAULT: u32 = 10_000;
/// Packet lifetime of a group that names none: 2^18 × 4.096 µs, as that of a path.
pub const LIFETIME_DEFAULT: u8 = 18;

/// Code of an MTU in bytes.
pub fn mtu(bytes: u32) -> Checked<u8> {
    code(bytes, subnet::mtu_bytes)
}

/// Code of a rate in Mbit/s.
pub fn rate(mbps: u32) -> Checked<u8> {
    code(mbps, subnet::rate_mbps)
}

/// Packet lifetime: 4.096 µs · 2^n.
pub fn lifetime(exponent: u32) -> Checked<u8> {
    small(exponent, 63)
}

/// Service level.
pub fn service_level(level: u32) -> Checked<u8> {
    small(level, 15)
}

fn code(value: u32, of: fn(u8) -> Option<u32>) -> Checked<u8> {
    let codes = || (1..=u8::MAX).filter_map(|code| Some((code, of(code)?)));
    let found = codes().find(|(_, named)| *named == value);
    found.map(|(code, _)| code).ok_or_else(|| {
        let mut allowed: Vec<u32> = codes().map(|(_, named)| named).collect();
        allowed.sort_unstable();
        let allowed: Vec<_> = allowed.iter().map(u32::to_string).collect();
        format!("{value}: {} are allowed", allowed.join(", "))
    })
}

fn small(value: u32, last: u8) -> Checked<u8> {
    let fits = u8::try_from(value).ok().filter(|value| *value <= last);
    fits.ok_or_else(|| format!("{value} is out of range: 0 to {last}"))
}
