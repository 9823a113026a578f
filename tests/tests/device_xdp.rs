//! Uplinks by AF_XDP: two NICs whose ports are the ends of a veth pair.

use anyhow::Result;
use vnic_tests::driver::pair;

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
