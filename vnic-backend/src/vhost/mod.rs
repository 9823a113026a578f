//! vhost-user devices: what a VMM talks to.

#[macro_use]
mod refuse;

mod early;
mod eth;
mod rdma;
mod server;

use std::fs::File;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result};

use crate::mem::Region;

pub use server::{Endpoint, spawn};

/// Maps memory as a VMM describes it.
fn map_region(region: &VhostUserMemoryRegion, file: File) -> Result<Region> {
    Region::map(
        region.guest_phys_addr,
        region.memory_size,
        region.user_addr,
        file,
        region.mmap_offset,
    )
    .map_err(Error::ReqHandlerError)
}
