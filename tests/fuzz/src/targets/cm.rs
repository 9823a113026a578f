//! Datagrams of communication management: what can be read can be written, and is the same then; so are the addresses in front
//! of its private data.
use vnic_wire::cm::{Mad, Message, ip};

/// See the module.
pub fn run(bytes: &[u8]) {
    let Ok(read) = Mad::parse(bytes) else { return };
    assert_eq!(Mad::parse(&read.emit()), Ok(read), "written and read again");
    let private = match &read.message {
        Message::Req(req) => &req.private.0[..],
        Message::SidrReq(req) => &req.private.0[..],
        _ => return,
    };
    if let Ok(addresses) = ip::Header::parse(private) {
        assert_eq!(ip::Header::parse(&addresses.emit()), Ok(addresses));
    }
}
