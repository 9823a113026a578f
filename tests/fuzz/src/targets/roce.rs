//! A frame that may be RoCE, v1 or v2: what can be read can be written, and is the same then.
use vnic_wire::roce::{self, Frame, Path};

/// See the module.
pub fn run(bytes: &[u8]) {
    let is_roce = roce::is_roce(bytes);
    let _ = roce::ecn(bytes);
    let Ok(read) = Frame::parse(bytes) else { return };
    assert!(is_roce);
    let mut written = Vec::new();
    roce::build(&Path::from(&read), &read.headers, read.payload, &mut written).expect("it was a frame");
    let again = Frame::parse(&written).expect("a frame");
    assert!(again.icrc_ok() && again.header_checksum_ok());
    assert_eq!(
        (again.eth, again.vlan, again.network),
        (read.eth, read.vlan, read.network)
    );
    assert_eq!((again.headers, again.payload), (read.headers, read.payload));
}
