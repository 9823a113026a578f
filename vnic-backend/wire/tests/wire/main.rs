//! Headers and whole frames, compared with other implementations and with captures.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cm;
mod cm_tshark;
mod common;
mod headers;
mod int;
mod lacp;
mod oracle;
mod roce;
mod sa;
mod tshark;
mod vectors;
