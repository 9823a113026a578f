//! Checks of the parts of a fault rule.

use std::time::Duration;

use vnic_backend::fault::{
    ALWAYS, BITS_MAX, BITS24_MAX, COPIES_MAX, HOLD_MAX, Opcodes, PsnRange, REORDER_MAX, opcode_of,
};

use super::{Checked, ranges, within};

/// Default time after which a reordered frame leaves even if no frame has overtaken it.
pub const AT_MOST_DEFAULT: Duration = Duration::from_millis(10);

ranges! {
    /// Number of a queue pair.
    destination_qp: u32 = 0..=BITS24_MAX, "";
    /// Packet sequence number.
    psn: u32 = 0..=BITS24_MAX, "";
    /// BTH opcode by number.
    opcode: u8 = 0..=255, "";
    /// EtherType.
    ethertype: u16 = 0..=0xffff, "";
    /// Number of frames that overtake a reordered one.
    reorder: u32 = 1..=REORDER_MAX, "";
    /// Number of copies.
    copies: u32 = 1..=COPIES_MAX, "";
    /// Index of the corrupted byte.
    offset: u16 = 0..=0xffff, "";
}

/// Probability in millionths.
pub fn probability(value: f64) -> Checked<u32> {
    let wrong = || {
        format!(
            "{value} is not a probability: 0 to 1 in steps of a millionth, such as 0.01 for one frame in a hundred"
        )
    };
    let millionths = (value * f64::from(ALWAYS)).round();
    if !(0.0..=1.0).contains(&value) || (value > 0.0 && millionths < 1.0) {
        return Err(wrong());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let millionths = millionths as u32;
    Ok(millionths)
}

/// A probability such as `0.01` or `1%`.
pub fn probability_text(text: &str) -> Checked<u32> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 0.01),
        None => (text, 1.0),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a probability: such as 0.01 or 1%"))?;
    probability(number * scale)
}

/// Range of packet sequence numbers such as `7`, `10-20` or, across the end of the number space, `16777214-3`.
pub fn psn_text(text: &str) -> Checked<PsnRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| integer(part).and_then(psn);
    match (number(first), number(last)) {
        (Ok(first), Ok(last)) => Ok(PsnRange { first, last }),
        (Err(problem), _) | (_, Err(problem)) => {
            Err(format!("{text:?} are no PSNs such as 7 or 10-20: {problem}"))
        }
    }
}

/// BTH opcode by name or number, such as `RC_SEND_ONLY`, `4` or `0x04`.
pub fn opcode_text(text: &str) -> Checked<u8> {
    if let Some(opcode) = opcode_of(text) {
        return Ok(opcode);
    }
    integer(text).and_then(opcode).map_err(|_| {
        format!("{text:?} is not a BTH opcode: a name such as RC_SEND_ONLY or RC_ACKNOWLEDGE, or 0 to 255")
    })
}

/// Set of opcodes; `None`: any.
pub fn opcodes(list: Vec<u8>) -> Option<Opcodes> {
    (!list.is_empty()).then(|| list.into_iter().collect())
}

/// Number of injections after which a rule is spent.
pub fn count(value: i64) -> Checked<u64> {
    u64::try_from(value).map_err(|_| format!("{value} is negative"))
}

/// Number of flipped bits, anywhere or in one byte.
pub fn bits(value: i64, in_one_byte: bool) -> Checked<u32> {
    within(value, if in_one_byte { 1..=8 } else { 1..=BITS_MAX }, "")
}

/// Time for which a frame is held back.
pub fn held(span: Duration) -> Checked<Duration> {
    if span.is_zero() || span > HOLD_MAX {
        return Err(format!(
            "{span:?} is out of range: more than 0, at most {HOLD_MAX:?}"
        ));
    }
    Ok(span)
}

/// Time span with its unit, such as `1.2ms`, `50us`, `3 s`.
pub fn span(text: &str) -> Checked<Duration> {
    let wrong =
        || format!("{text:?} is not a span of time: a number with ns, us, ms, s, min, h or d, such as 1.2ms");
    let at = text.find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let nanoseconds: u32 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" | "h" | "d" => 0,
        _ => return Err(wrong()),
    };
    let number = number.trim();
    let digits = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = number.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
    let seconds = match unit {
        "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        // Computed in whole nanoseconds, so that 1.2 ms does not become 1.199999.
        _ => return nanoseconds_of(number * f64::from(nanoseconds)).ok_or_else(wrong),
    };
    nanoseconds_of(seconds * 1e9).ok_or_else(wrong)
}

fn nanoseconds_of(n: f64) -> Option<Duration> {
    let n = n.round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = n as u64;
    (0.0..1.8e19).contains(&n).then(|| Duration::from_nanos(whole))
}

/// Integer, decimal or hexadecimal with `0x`.
pub fn integer(text: &str) -> Checked<i64> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities() {
        assert_eq!(probability_text("0.01"), Ok(10_000));
        assert_eq!(probability_text("1%"), Ok(10_000));
        assert_eq!(probability_text("100 %"), Ok(1_000_000));
        assert_eq!(probability(0.000_001), Ok(1));
        assert_eq!(probability(0.0), Ok(0));
        for bad in ["", "x", "1.1", "-0.1", "101%", "0.0000001", "NaN", "inf"] {
            assert!(probability_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans() {
        let ns = Duration::from_nanos;
        for (text, expected) in [
            ("1.2ms", ns(1_200_000)),
            ("50us", ns(50_000)),
            ("3 s", ns(3_000_000_000)),
            ("1ns", ns(1)),
            ("0.5µs", ns(500)),
            ("2min", Duration::from_secs(120)),
            ("1.5h", Duration::from_secs(5400)),
            ("1d", Duration::from_secs(86_400)),
        ] {
            assert_eq!(span(text), Ok(expected), "{text}");
        }
        for bad in ["", "5", "ms", "-1ms", "1 day", "1e99s", "1.2.3s", "infs"] {
            assert!(span(bad).is_err(), "{bad}");
        }
        assert!(held(ns(0)).is_err() && held(ns(60_000_000_001)).is_err() && held(ns(1)).is_ok());
    }

    #[test]
    fn packets() {
        assert_eq!(psn_text("7"), Ok(PsnRange { first: 7, last: 7 }));
        assert_eq!(
            psn_text("0xfffffe-1"),
            Ok(PsnRange {
                first: 0xff_fffe,
                last: 1
            })
        );
        for bad in ["", "x", "1-", "16777216", "1-2-3"] {
            assert!(psn_text(bad).is_err(), "{bad}");
        }
        for name in ["RC_SEND_ONLY", "rc send_only", "rc-send-only", "4", "0x04"] {
            assert_eq!(opcode_text(name), Ok(4), "{name}");
        }
        assert_eq!(opcode_text("cnp"), Ok(0x81));
        for bad in ["SEND", "256", ""] {
            assert!(opcode_text(bad).is_err(), "{bad}");
        }
    }
}
