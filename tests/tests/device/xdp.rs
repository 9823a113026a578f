//! Uplinks by AF_XDP: two NICs whose ports are the ends of a veth pair.

mod kernels;

use anyhow::Result;
use vnic_backend::DropReason;
use vnic_tests::driver::OFFLOADS;
use vnic_tests::driver::packets::{pattern, tso};
use vnic_tests::driver::pair::{self, Pair, big, flows};
use vnic_tests::driver::rig::{Copies, Rig, wait_for};
use vnic_tests::driver::veth::{ENDS, Veth, refusal};

#[test]
fn xdp_frames() -> Result<()> {
    pair::frames("xdp", 1, 1500)
}

#[test]
fn xdp_frames_between_cores() -> Result<()> {
    pair::frames("xdp", 2, 1500)
}

/// Frames that lie in several pieces, both ways.
#[test]
fn xdp_jumbo_frames() -> Result<()> {
    pair::frames("xdp", 1, 9000)
}

/// Frames of a page.
#[test]
fn xdp_frames_of_a_page() -> Result<()> {
    pair::frames("xdp", 1, 3818)
}

/// A driver that refuses the program: the frames of the other end may be longer than it can carry with one.
#[test]
fn xdp_frames_without_the_driver() -> Result<()> {
    let Some(pair) = Pair::over(9000, "xdp", 1, 1500, [big(), big()])? else {
        return Ok(());
    };
    let mode = pair.rigs[0].nic.port("p0")?.mode;
    let want = "xdp copy, generic (native: Numerical result out of range (os error 34)), 1 queue";
    assert_eq!(mode, want);
    pair::frames_over(pair, 1500)
}

#[test]
fn xdp_a_device_that_is_not_there_or_does_not_fit() -> Result<()> {
    pair::a_device_that_is_not_there_or_does_not_fit("xdp")
}

#[test]
fn xdp_a_link_that_goes_down_and_comes_back() -> Result<()> {
    pair::a_link_that_goes_down_and_comes_back("xdp")
}

#[test]
fn xdp_a_device_that_is_deleted_and_comes_back() -> Result<()> {
    pair::a_device_that_is_deleted_and_comes_back("xdp")
}

/// What guests leave to a device is finished before it leaves.
#[test]
fn xdp_offloads_are_finished() -> Result<()> {
    pair::offloads_are_finished("xdp")
}

/// A burst that is more than the device takes at once: all of it leaves, or is counted.
#[test]
fn xdp_bursts_do_not_stay_behind() -> Result<()> {
    let options = [big().with(OFFLOADS), big().with(OFFLOADS)];
    let Some(mut pair) = Pair::new("xdp", 1, 1500, options)? else {
        return Ok(());
    };
    let [a, b] = pair.macs;
    // 43 frames each.
    let (frame, hdr) = tso(&flows(b, a)[0], &pattern(60_000), 1400);
    let done = |rig: &Rig| rig.counter("p0", "tx_frames") + rig.drops("p0", DropReason::PortTransmit);
    let before = done(&pair.rigs[0]);
    for _ in 0..300 {
        pair.guests[0].send_wait(0, &frame, hdr);
    }
    pair.guests[0].drain();
    assert!(wait_for(|| done(&pair.rigs[0]) == before + 300 * 43));
    pair.finish()
}

/// A device has one program: the second port over it is refused and says why, and gets it when the first is gone.
#[test]
fn xdp_a_device_that_is_taken() -> Result<()> {
    let Some(veth) = Veth::new(1500)? else {
        return Ok(());
    };
    let rigs = [Rig::new(1)?, Rig::new(1)?];
    let status = rigs[0].nic.add_port(veth.port("xdp", ENDS[0])?)?;
    assert_eq!(status.mode, "xdp copy, native, 1 queue");
    let text = refusal(rigs[1].nic.add_port(veth.port("xdp", ENDS[0])?))?;
    assert!(
        text.contains("attaching an XDP program of left") && text.contains("it has another one"),
        "{text}"
    );
    assert!(rigs[1].nic.ports().is_empty());
    for _ in 0..3 {
        rigs[0].nic.remove_port("p0")?;
        rigs[1].nic.add_port(veth.port("xdp", ENDS[0])?)?;
        rigs[1].nic.remove_port("p0")?;
        rigs[0].nic.add_port(veth.port("xdp", ENDS[0])?)?;
    }
    for rig in rigs {
        rig.finish(Copies::Unknown)?;
    }
    Ok(())
}

/// Two kernels on a wire each, and our switch between them: what they leave unfinished to their veth pairs is finished.
#[test]
fn xdp_between_kernels() -> Result<()> {
    kernels::talk(1)
}

#[test]
fn xdp_between_kernels_over_several_queues() -> Result<()> {
    kernels::talk(3)
}
