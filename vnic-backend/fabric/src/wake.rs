//! Frames that ask to wake a machine.
//!
//! Magic packets (AMD, Magic Packet Technology, publication 20213): somewhere in the frame stand six bytes of ones and then the machine's
//! address sixteen times. The frame's own destination and protocol do not matter.
//!
//! Patterns: frames for the machine with certain bytes at certain places, in the syntax of Linux' `iw wowlan`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use vnic_wire::MacAddr;

const SYNC: [u8; 6] = [0xff; 6];
const TIMES: usize = 16;
/// Bytes of the pattern.
pub const LEN: usize = SYNC.len() + 6 * TIMES;

/// The address that the first such pattern in these bytes repeats.
pub fn magic(bytes: &[u8]) -> Option<MacAddr> {
    bytes.windows(LEN).find_map(|window| {
        let (first, rest) = window.strip_prefix(&SYNC)?.split_first_chunk::<6>()?;
        let mac = MacAddr(*first);
        let same = || rest.as_chunks::<6>().0.iter().all(|other| other == first);
        (!mac.is_multicast() && same()).then_some(mac)
    })
}

/// Frames that are of interest for a port that cannot receive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wakes {
    /// Magic packets for its addresses ([`Switch::wakes`](crate::switch::Switch::wakes)).
    pub magic: bool,
    /// Frames for it with one of these patterns ([`Switch::woken`](crate::switch::Switch::woken)).
    pub patterns: Vec<Pattern>,
}

impl Wakes {
    /// Whether there are any.
    pub fn by_any(&self) -> bool {
        self.magic || !self.patterns.is_empty()
    }
}

/// Bytes of frames that wake: those from an offset on, or any where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    offset: u16,
    bytes: Box<[Option<u8>]>,
}

impl Pattern {
    /// Most bytes of a pattern.
    pub const LEN_MAX: usize = 128;
    /// Largest offset of its first byte.
    pub const OFFSET_MAX: u16 = 1500;

    /// Whether a frame without an 802.1Q tag has these bytes.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let from = frame.get(usize::from(self.offset)..).unwrap_or_default();
        from.len() >= self.bytes.len()
            && from
                .iter()
                .zip(&self.bytes)
                .all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte))
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// `[OFFSET+]BYTE:BYTE…`: a byte is two hexadecimal digits, or `--` for any.
    fn from_str(text: &str) -> Result<Pattern, String> {
        let wrong =
            |what: &str| format!("{text:?}: {what}; [OFFSET+]BYTE:BYTE is allowed, such as 12+08:06:--:01");
        let (offset, list) = text.split_once('+').unwrap_or(("0", text));
        let offset = offset
            .parse()
            .ok()
            .filter(|offset| *offset <= Pattern::OFFSET_MAX);
        let offset = offset.ok_or_else(|| wrong("the offset has to be 0 to 1500"))?;
        let byte = |digits: &str| match digits {
            "--" => Ok(None),
            _ if digits.len() == 2 && digits.bytes().all(|d| d.is_ascii_hexdigit()) => {
                Ok(u8::from_str_radix(digits, 16).ok())
            }
            _ => Err(wrong("a byte is two hexadecimal digits, or --")),
        };
        let bytes: Box<[Option<u8>]> = list.split(':').map(byte).collect::<Result<_, _>>()?;
        if bytes.len() > Pattern::LEN_MAX {
            return Err(wrong("it has more than 128 bytes"));
        }
        if bytes.iter().all(Option::is_none) {
            return Err(wrong("every frame has it"));
        }
        Ok(Pattern { offset, bytes })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset > 0 {
            write!(f, "{}+", self.offset)?;
        }
        for (i, byte) in self.bytes.iter().enumerate() {
            let colon = if i > 0 { ":" } else { "" };
            match byte {
                Some(byte) => write!(f, "{colon}{byte:02x}")?,
                None => write!(f, "{colon}--")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;
    use alloc::vec;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn pattern(mac: MacAddr, times: usize) -> Vec<u8> {
        [&SYNC[..], &mac.0.repeat(times)].concat()
    }

    #[test]
    fn the_pattern_is_found_anywhere_and_whole() {
        let whole = pattern(MAC, TIMES);
        assert_eq!(whole.len(), LEN);
        for front in [0, 1, 14, 42, 1400] {
            // More ones before the pattern are part of nothing.
            for byte in [0, 0xff] {
                let at = |pattern: &[u8]| [&vec![byte; front][..], pattern, &[1, 2, 3]].concat();
                assert_eq!(magic(&at(&whole)), Some(MAC), "{front} {byte}");
                assert_eq!(magic(&at(&pattern(MAC, TIMES - 1))), None);
                let mut other = whole.clone();
                other[LEN - 1] ^= 1;
                assert_eq!(magic(&at(&other)), None);
                other = whole.clone();
                other[5] = 0xfe;
                assert_eq!(magic(&at(&other)), None);
            }
        }
        // Nobody's address.
        assert_eq!(magic(&[0xff; 1514]), None);
        assert_eq!(magic(&[]), None);
    }

    #[test]
    fn patterns_are_what_they_say() {
        let pattern = |text: &str| text.parse::<Pattern>().expect("a pattern");
        for (text, frames) in [
            ("01", [true, false, false]),
            ("--:02", [true, true, false]),
            ("1+02:--:04", [true, false, false]),
            ("2+03", [true, true, false]),
            ("3+04:05", [false, false, false]),
        ] {
            for (frame, wanted) in [&[1, 2, 3, 4][..], &[9, 2, 3, 5], &[]].iter().zip(frames) {
                assert_eq!(pattern(text).matches(frame), wanted, "{text} {frame:?}");
            }
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("0+AB").to_string(), "ab");
        let long = ["00"; 129].join(":");
        assert!(pattern(&long[3..]).matches(&[0; 128]));
        for wrong in [
            "", "+", "1+", "0x1", "1", "001", "01:", "-", "--", "--:--", "1501+00", "-1+00", "00 ", "+f",
            &long,
        ] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }
}
