//! Reasons of a REJ (IBTA vol 1 section 12.6.7.2, table "REJ reasons"; Linux' `enum ib_cm_rej_reason`).

use core::fmt;

/// Why a message was rejected, as the standard's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Reason(pub u16);

macro_rules! reasons {
    ($($name:ident = $number:literal: $text:literal,)*) => {
        impl Reason {
            $(#[doc = concat!($text, ".")]
            pub const $name: Reason = Reason($number);)*

            /// The reason in words; none if the standard has no such number.
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    NO_QP = 1: "no queue pair available",
    NO_EEC = 2: "no end-to-end context available",
    NO_RESOURCES = 3: "no resources available",
    TIMEOUT = 4: "timeout",
    UNSUPPORTED = 5: "unsupported request",
    INVALID_ID = 6: "invalid communication ID",
    INVALID_INSTANCE = 7: "invalid communication instance",
    INVALID_SERVICE_ID = 8: "invalid service ID",
    INVALID_SERVICE_TYPE = 9: "invalid transport service type",
    STALE = 10: "stale connection",
    NO_RDC = 11: "reliable datagram channel does not exist",
    INVALID_GID = 12: "primary remote port GID rejected",
    INVALID_LID = 13: "primary remote port LID rejected",
    INVALID_SL = 14: "invalid primary service level",
    INVALID_TRAFFIC_CLASS = 15: "invalid primary traffic class",
    INVALID_HOP_LIMIT = 16: "invalid primary hop limit",
    INVALID_RATE = 17: "invalid primary packet rate",
    INVALID_ALTERNATE_GID = 18: "alternate remote port GID rejected",
    INVALID_ALTERNATE_LID = 19: "alternate remote port LID rejected",
    INVALID_ALTERNATE_SL = 20: "invalid alternate service level",
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21: "invalid alternate traffic class",
    INVALID_ALTERNATE_HOP_LIMIT = 22: "invalid alternate hop limit",
    INVALID_ALTERNATE_RATE = 23: "invalid alternate packet rate",
    PORT_CM_REDIRECT = 24: "port and CM redirection",
    PORT_REDIRECT = 25: "port redirection",
    INVALID_MTU = 26: "invalid path MTU",
    INSUFFICIENT_RESPONDER_RESOURCES = 27: "insufficient responder resources",
    CONSUMER = 28: "rejected by the program",
    RNR_RETRY = 29: "RNR retry count rejected",
    DUPLICATE_ID = 30: "duplicate local communication ID",
    INVALID_CLASS_VERSION = 31: "invalid class version",
    INVALID_FLOW_LABEL = 32: "invalid primary flow label",
    INVALID_ALTERNATE_FLOW_LABEL = 33: "invalid alternate flow label",
    VENDOR_OPTION = 35: "vendor option is not supported",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "{text} ({})", self.0),
            None => write!(f, "reason {}", self.0),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
