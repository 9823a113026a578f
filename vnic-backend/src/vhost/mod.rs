//! vhost-user devices: what a VMM talks to.

#[macro_use]
mod refuse;

mod early;
mod eth;
mod rdma;
mod server;

use std::fs::File;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result};

use crate::mem::{Lender, Region};

pub use server::{Endpoint, spawn};

/// Maps memory as a VMM describes it. All ways in lead here, and the `vhost` crate does not look at each of them.
fn map_region(region: &VhostUserMemoryRegion, file: File, lender: &Arc<Lender>) -> Result<Region> {
    Region::map(
        region.guest_phys_addr,
        region.memory_size,
        region.user_addr,
        file,
        region.mmap_offset,
        lender,
    )
    .map_err(Error::ReqHandlerError)
}
