//! A frame that may be RoCE, v1 or v2: what can be read can be written, and is the same then. A frame of a raw packet queue pair:
//! checksums that are filled in are right, and a flow by all of its fields takes it, whoever of several queue pairs has
//! it then.

use vnic_device::command::flow::{CreateFlow, CreateHashQp};
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
    spread(bytes);
}

/// The key and the chosen hashes are the frame's first bytes, too.
fn spread(bytes: &[u8]) {
    let mut wanted = CreateHashQp {
        hash_types: u32::from(bytes.first().copied().unwrap_or(0)) & 127,
        entries: 4,
        ..CreateHashQp::default()
    };
    wanted.table[..4].copy_from_slice(&[2, 3, 4, 5]);
    for (to, from) in wanted.key.iter_mut().zip(bytes) {
        *to = *from;
    }
    let mut steering = Steering::default();
    let number = steering
        .insert_hash_qp(&wanted)
        .expect("room")
        .expect("hash types");
    let flow = CreateFlow {
        qp: number.0,
        ..CreateFlow::default()
    };
    steering.insert(&flow).expect("room");
    let taker = steering.find(bytes).by.map(|qp| qp.0);
    assert!(taker.is_none() == (bytes.len() < 14) && taker.is_none_or(|qp| (2..6).contains(&qp)));
}
