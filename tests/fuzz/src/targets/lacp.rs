//! A slow-protocol frame: what can be read can be written, and is the same then.
use vnic_wire::MacAddr;
use vnic_wire::lacp::Frame;

/// See the module.
pub fn run(bytes: &[u8]) {
    if let Ok(read) = Frame::parse(bytes) {
        let written = read.emit(MacAddr([2, 0, 0, 0, 0, 1]));
        assert_eq!(Frame::parse(&written), Ok(read), "written and read again");
    }
}
