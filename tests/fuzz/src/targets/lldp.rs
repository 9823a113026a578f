//! A frame of link layer discovery, for an agent that has a neighbour: what can be read can be written, and is the same then.
use vnic_wire::MacAddr;
use vnic_wire::dcbx::Exchange;
use vnic_wire::dcbx::cee::Cee;
use vnic_wire::lldp::Lldpdu;

/// See the module.
pub fn run(bytes: &[u8]) {
    // Behind the addresses and the EtherType.
    let frame = [&[0; 12], &[0x88, 0xcc][..], bytes].concat();
    let Ok(read) = Lldpdu::parse(&frame) else { return };
    let mut unread = 0;
    let said = Exchange::parse(read.more, &mut unread);
    let before = Cee::parse(read.more, &mut unread);
    let mut more = Vec::new();
    said.emit(&mut more);
    if let Some(before) = &before {
        before.emit(&mut more);
        before.exchange();
    }
    let written = Lldpdu::frame(MacAddr([0; 6]), read.chassis, read.port, read.ttl, &more);
    let again = Lldpdu::parse(&written).expect("what was written");
    assert_eq!(
        (again.chassis, again.port, again.ttl),
        (read.chassis, read.port, read.ttl),
        "written and read again"
    );
    let mut unread = 0;
    assert_eq!(Exchange::parse(again.more, &mut unread), said, "of priorities");
    assert_eq!(
        Cee::parse(again.more, &mut unread),
        before,
        "of priorities, as of CEE"
    );
    assert_eq!(unread, 0);
}
