//! Uplinks over network devices: two NICs whose ports are the ends of a veth pair.

use anyhow::Result;
use vnic_backend::DropReason;
use vnic_tests::driver::OFFLOADS;
use vnic_tests::driver::packets::{pattern, tso, udp_partial};
use vnic_tests::driver::pair::{self, Pair, big, flows, frames};
use vnic_tests::driver::rig::{Rig, wait_for};

#[test]
fn packet_frames() -> Result<()> {
    frames("packet", 1, 1500)
}

#[test]
fn packet_frames_between_cores() -> Result<()> {
    frames("packet", 2, 1500)
}

#[test]
fn packet_jumbo_frames() -> Result<()> {
    frames("packet", 1, 9000)
}

/// What a guest leaves unfinished reaches the other unfinished: nobody computes or cuts anything.
#[test]
fn packet_offloads_pass() -> Result<()> {
    let options = [big().with(OFFLOADS), big().with(OFFLOADS)];
    let Some(mut pair) = Pair::new("packet", 1, 1500, options)? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    for flow in flows(b, a) {
        let (frame, hdr) = udp_partial(&flow, &pattern(777));
        assert_eq!(pair.carry(0, &frame, hdr)?, (hdr, frame), "{flow:?}");
        for len in [1401, 9_000, 60_000] {
            let (frame, hdr) = tso(&flow, &pattern(len), 1400);
            let got = pair.carry(0, &frame, hdr)?;
            assert_eq!(got.0, hdr, "{flow:?}");
            assert!(got.1 == frame, "{flow:?} {len}");
        }
    }
    assert_eq!(pair.rigs[1].counter("a", "rx_tso_passed"), 12);
    assert_eq!(pair.rigs[0].counter("a", "tx_tso_cut"), 0);
    pair.finish()
}

/// A burst that is more than the device takes at once: what it could not take goes later, without another frame that
/// reminds anybody of it.
#[test]
fn packet_bursts_do_not_stay_behind() -> Result<()> {
    let options = [big().with(OFFLOADS), big().with(OFFLOADS)];
    let Some(mut pair) = Pair::new("packet", 1, 1500, options)? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    let (frame, hdr) = tso(&flows(b, a)[0], &pattern(60_000), 1400);
    let done = |rig: &Rig| rig.counter("p0", "tx_frames") + rig.drops("p0", DropReason::PortTransmit);
    let before = done(&pair.rigs[0]);
    for _ in 0..300 {
        pair.guests[0].send_wait(0, &frame, hdr);
    }
    pair.guests[0].drain();
    assert!(wait_for(|| done(&pair.rigs[0]) == before + 300));
    pair.finish()
}

/// What is left unfinished, for a guest that takes finished frames only.
#[test]
fn packet_offloads_are_finished_for_a_guest_without() -> Result<()> {
    pair::offloads_are_finished("packet")
}

#[test]
fn packet_a_device_that_is_not_there_or_does_not_fit() -> Result<()> {
    pair::a_device_that_is_not_there_or_does_not_fit("packet")
}

#[test]
fn packet_a_link_that_goes_down_and_comes_back() -> Result<()> {
    pair::a_link_that_goes_down_and_comes_back("packet")
}

#[test]
fn packet_a_device_that_is_deleted_and_comes_back() -> Result<()> {
    pair::a_device_that_is_deleted_and_comes_back("packet")
}
