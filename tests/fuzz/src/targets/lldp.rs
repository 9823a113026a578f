//! A frame of link layer discovery, for an agent that has a neighbour: what can be read can be written, and is the same then.
use vnic_wire::MacAddr;
use vnic_wire::dcbx::Exchange;
use vnic_wire::lldp::Lldpdu;

/// See the module.
pub fn run(bytes: &[u8]) {
    // Behind the addresses and the EtherType.
    let frame = [&[0; 12], &[0x88, 0xcc][..], bytes].concat();
    let Ok(read) = Lldpdu::parse(&frame) else { return };
    let said = Exchange::parse(read.more);
    let mut more = Vec::new();
    said.emit(&mut more);
    let written = Lldpdu::frame(MacAddr([0; 6]), read.chassis, read.port, read.ttl, &more);
    let again = Lldpdu::parse(&written).expect("what was written");
    assert_eq!(
        (again.chassis, again.port, again.ttl),
        (read.chassis, read.port, read.ttl),
        "written and read again"
    );
    assert_eq!(Exchange::parse(again.more), said, "of priorities");
}
