//! Status codes of NDIS.

use core::fmt;

/// An `NDIS_STATUS` (Windows Driver Kit, ndis.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status($value);)*

            /// Name, such as `NDIS_STATUS_INVALID_LENGTH`; empty for a code that is not used here.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => concat!("NDIS_STATUS_", stringify!($name)),)*
                    _ => "",
                }
            }

            /// Meaning in words.
            pub const fn meaning(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    /// Success.
    SUCCESS = 0, "done";
    /// The OID exists, but not for this request.
    NOT_SUPPORTED = 0xC000_00BB, "it can be queried, not set";
    /// A set has a buffer of a wrong length.
    INVALID_LENGTH = 0xC001_0014, "the buffer has a wrong length";
    /// A set has a value that is not allowed.
    INVALID_DATA = 0xC001_0015, "the buffer has a value that is not allowed";
    /// A query has a buffer that is too short for the answer.
    BUFFER_TOO_SHORT = 0xC001_0016, "the answer has no room in the buffer";
    /// The OID does not exist.
    INVALID_OID = 0xC001_0017, "there is no such OID";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:08X})", self.name(), self.0)
    }
}
