//! Why a peer rejects a connection.

use std::fmt;

/// A peer's rejection of a connection: the number of its reason (IBTA volume 1 section 12.6.7.2), and what the peer's program says to
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Number of the reason.
    pub reason: u16,
    /// Private data of the peer, with the zeros that fill it up.
    pub private_data: Vec<u8>,
}

impl Rejection {
    /// No resources: among others, the listener has as many requests as its backlog.
    pub const NO_RESOURCES: u16 = 3;
    /// Nobody listens for the service.
    pub const INVALID_SERVICE: u16 = 8;
    /// One side takes the other's queue pair for one of an older connection.
    pub const STALE: u16 = 10;
    /// The peer's program has rejected it.
    pub const CONSUMER: u16 = 28;

    /// The reason in words, if the standard has its number.
    pub fn text(&self) -> Option<&'static str> {
        Some(match self.reason {
            1 => "no queue pair available",
            2 => "no end-to-end context available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "invalid service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "reliable datagram channel does not exist",
            12 => "primary remote port GID rejected",
            13 => "primary remote port LID rejected",
            14 => "invalid primary service level",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            20 => "invalid alternate service level",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "port and CM redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "rejected by the program",
            29 => "RNR retry count rejected",
            30 => "duplicate local communication ID",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option is not supported",
            _ => return None,
        })
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "{text} (reason {})", self.reason),
            None => write!(f, "reason {}", self.reason),
        }
    }
}
