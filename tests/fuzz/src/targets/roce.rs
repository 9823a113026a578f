//! A frame that may be RoCE, v1 or v2: what can be read can be written, and is the same then. A frame of a raw packet queue pair:
//! checksums that are filled in are right, and a flow by all of its fields takes it.

use vnic_device::command::flow::CreateFlow;
use vnic_engine::checksums;
use vnic_engine::rdma::steering::Steering;
use vnic_wire::roce::{self, Frame, Path};

/// See the module.
pub fn run(bytes: &[u8]) {
    let is_roce = roce::is_roce(bytes);
    let _ = roce::ecn(bytes);
    raw(bytes);
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

fn raw(bytes: &[u8]) {
    let mut frame = bytes.to_vec();
    let right = checksums::are_right(&frame);
    checksums::fill(&mut frame);
    assert_eq!(frame.len(), bytes.len());
    assert!(!right || checksums::are_right(&frame));
    let mut filled = frame.clone();
    checksums::fill(&mut filled);
    assert_eq!(filled, frame);
    let mut flow = CreateFlow::default();
    if let (Some(destination), Some(source)) = (
        frame.first_chunk(),
        frame.get(6..).and_then(|rest| rest.first_chunk()),
    ) {
        (flow.value.destination_mac, flow.value.source_mac) = (*destination, *source);
        (flow.mask.destination_mac, flow.mask.source_mac) = ([0xff; 6], [0xff; 6]);
    }
    let mut steering = Steering::default();
    let made = steering.insert(&flow).expect("room");
    assert_eq!(steering.find(&frame).by.is_some(), frame.len() >= 14);
    assert!(made.is_some_and(|id| steering.remove(id)) && steering.is_empty());
    assert!(steering.find(&frame).is_nobody());
}
