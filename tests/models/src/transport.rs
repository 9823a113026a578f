//! In the place of a driver's way to its device.

use vnic_device::ring::Extent;

#[derive(Debug)]
pub enum Error {
    Protocol(String),
}

pub struct SharedPages {
    pub extents: Vec<Extent>,
}

pub trait Transport {
    fn allocate(&self, len: usize) -> Result<SharedPages, Error>;
}

#[derive(Debug, Clone, Copy)]
pub struct Virtqueue {
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
}
