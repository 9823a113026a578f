//! vhost-user devices: what a VMM talks to.

#[macro_use]
mod refuse;

mod admit;
mod budget;
mod early;
mod eth;
mod rdma;
mod server;

use std::fs::File;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result};

use crate::call::{Call, is_eventfd};
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

/// A kick, as a VMM gives it. Data cores wait for it: of other files the VMM could decide how long it takes to ask.
fn kick(file: Option<File>) -> Result<Option<Arc<File>>> {
    match file {
        Some(file) if !is_eventfd(&file).map_err(Error::ReqHandlerError)? => {
            Err(Error::InvalidOperation("a kick descriptor is no eventfd"))
        }
        file => Ok(file.map(Arc::new)),
    }
}

/// An interrupt, as a VMM gives it.
fn call(endpoint: &Endpoint, file: Option<File>) -> Result<Option<Arc<Call>>> {
    let call = file.map(|file| Call::new(file, endpoint.signals())).transpose();
    Ok(call.map_err(Error::ReqHandlerError)?.map(Arc::new))
}
