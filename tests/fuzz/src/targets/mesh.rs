//! Datagrams of a mesh peer: frames come out as long as they say, and what is put together stays within its bound.

use std::time::{Duration, Instant};

use vnic_appliance::mesh::frame::{Assembly, FRAME_MAX};

/// Each datagram: its length, how much later it comes.
pub fn run(bytes: &[u8]) {
    let mut assembly = Assembly::default();
    let (mut now, mut rest, mut datagrams) = (Instant::now(), bytes, 0);
    while let [low, high, later, more @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high & 0x27]));
        let (datagram, behind) = more.split_at(len.min(more.len()));
        rest = behind;
        now += Duration::from_millis(u64::from(*later) * 10);
        let malformed = assembly.malformed;
        if let Some(frame) = assembly.take(datagram, now) {
            assert!((14..=FRAME_MAX).contains(&frame.len()), "{} bytes", frame.len());
            assert!(malformed == assembly.malformed, "a frame of a malformed datagram");
        }
        datagrams += 1;
        assert!(assembly.incomplete + assembly.malformed <= datagrams);
    }
}
