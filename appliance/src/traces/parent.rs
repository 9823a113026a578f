//! The trace that a client's request belongs to (W3C Trace Context, `traceparent` and `tracestate`).

use tonic::codegen::http::HeaderMap;

/// Longest `tracestate` that is passed on (section 3.3.1.5 asks for 512 at least).
const STATE_MAX: usize = 512;

/// Span of a client that a request is a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// Whether the client records the trace.
    pub sampled: bool,
    /// What the client's tracer passes on.
    pub state: String,
}

impl Parent {
    /// Reads the metadata of a request. `None`: it belongs to no trace, or what it says is not valid.
    pub fn read(headers: &HeaderMap) -> Option<Parent> {
        let mut values = headers.get_all("traceparent").iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let parent = parse(value.to_str().ok()?)?;
        let states = headers.get_all("tracestate").iter();
        let states: Option<Vec<&str>> = states.map(|state| state.to_str().ok()).collect();
        let state = states.unwrap_or_default().join(",");
        Some(Parent {
            state: if state.len() > STATE_MAX {
                String::new()
            } else {
                state
            },
            ..parent
        })
    }
}

fn parse(text: &str) -> Option<Parent> {
    let mut parts = text.splitn(5, '-');
    let (version, trace, span, flags) = (
        bytes::<1>(parts.next()?)?,
        bytes(parts.next()?)?,
        bytes(parts.next()?)?,
        bytes::<1>(parts.next()?)?,
    );
    // Later versions may have more parts.
    let known = version[0] != 0xff && (version[0] != 0 || parts.next().is_none());
    let valid = known && trace != [0; 16] && span != [0; 8];
    valid.then(|| Parent {
        trace,
        span,
        sampled: flags[0] & 1 == 1,
        state: String::new(),
    })
}

/// Bytes of lowercase hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_parent_is_read_and_nothing_that_is_not_valid() {
        let parent = parse(&format!("00-{TRACE}-{SPAN}-01")).expect("valid");
        assert_eq!(
            (parent.trace[0], parent.trace[15], parent.span[7]),
            (0x0a, 0x9c, 0x31)
        );
        assert!(parent.sampled);
        assert!(!parse(&format!("00-{TRACE}-{SPAN}-02")).expect("valid").sampled);
        assert!(parse(&format!("cc-{TRACE}-{SPAN}-01-what-comes")).is_some());
        for bad in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}-{SPAN}-é"),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn state_is_passed_on_and_two_parents_are_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(Parent::read(&headers), None);
        let value = format!("00-{TRACE}-{SPAN}-01");
        headers.insert("traceparent", value.parse().expect("a value"));
        headers.append("tracestate", "a=1".parse().expect("a value"));
        headers.append("tracestate", "b=2".parse().expect("a value"));
        assert_eq!(Parent::read(&headers).expect("a parent").state, "a=1,b=2");
        headers.insert("tracestate", "x".repeat(600).parse().expect("a value"));
        assert_eq!(Parent::read(&headers).expect("a parent").state, "");
        headers.append("traceparent", value.parse().expect("a value"));
        assert_eq!(Parent::read(&headers), None);
    }
}
