//! Packet capture: the NIC's captured frames as pcapng, to a client or to a file.

mod files;
mod pcapng;
mod session;

pub use files::{CaptureError, CaptureFiles, Info, State};
pub use pcapng::PcapngWriter;
pub use session::{End, Limits, Session};
