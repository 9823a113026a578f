//! Causes of closed connections in words. The text of the other end's close is not repeated.

use quinn::{ConnectionError, TransportErrorCode};

use super::peers::Bye;

/// Cause that the other end gave when it closed the connection.
pub fn bye(error: &ConnectionError) -> Option<Bye> {
    let ConnectionError::ApplicationClosed(close) = error else {
        return None;
    };
    let all = [
        Bye::Ends,
        Bye::Duplicate,
        Bye::Myself,
        Bye::Unlisted,
        Bye::NoHello,
        Bye::Full,
        Bye::Replaced,
        Bye::Untrusted,
    ];
    all.into_iter().find(|b| u64::from(close.error_code) == *b as u64)
}

/// Error of a connection in words.
pub fn of(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(_) => match bye(error) {
            Some(Bye::Unlisted) => {
                "the other end refused: our certificate has none of its listed names".to_owned()
            }
            Some(Bye::Untrusted) => {
                "the other end refused: our certificate expired, was revoked, or is of a CA that counts no longer there"
                    .to_owned()
            }
            Some(Bye::Myself) => Bye::Myself.words().to_owned(),
            Some(Bye::Replaced) => "the other end takes this one for a new one".to_owned(),
            Some(bye) => format!("the other end closed it: {}", bye.words()),
            None => "the other end closed it".to_owned(),
        },
        ConnectionError::ConnectionClosed(close) => {
            format!("the other end gave up: {}", code(close.error_code))
        }
        ConnectionError::TransportError(ours) => match alert(ours.code) {
            Some(_) => format!("{}: {}", code(ours.code), ours.reason),
            None => ours.to_string(),
        },
        ConnectionError::TimedOut => "no answer".to_owned(),
        ConnectionError::Reset => "the other end does not know the connection: it was restarted".to_owned(),
        other => other.to_string(),
    }
}

/// TLS alert of a QUIC error (RFC 9001, section 4.8).
fn alert(code: TransportErrorCode) -> Option<u64> {
    (0x100..0x200)
        .contains(&u64::from(code))
        .then(|| u64::from(code) - 0x100)
}

fn code(code: TransportErrorCode) -> String {
    // RFC 8446, section 6; RFC 7301, section 3.2.
    let words = match alert(code) {
        Some(42) => "bad certificate",
        Some(43) => "unsupported certificate",
        Some(44) => "certificate revoked",
        Some(45) => "certificate expired",
        Some(46) => "certificate unknown",
        Some(48) => "certificate of an unknown CA",
        Some(51) => "wrong signature",
        Some(116) => "a certificate is required",
        Some(120) => "it speaks another protocol (ALPN)",
        Some(other) => return format!("TLS alert {other}"),
        None => return code.to_string(),
    };
    words.to_owned()
}
