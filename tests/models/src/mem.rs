//! In the place of guest memory: addresses of guests are those of the model.

#![expect(unsafe_code, reason = "has the functions of the product's memory")]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::sync::{put_u16, put_u32, put_u64};

/// Memory that both sides see.
pub struct Ram {
    first: usize,
    _bytes: Vec<u64>,
}

/// As SPEC.md and virtio want rings aligned.
const ALIGNMENT: usize = 64;

impl Ram {
    /// Zeros, which nobody reaches by atomics yet.
    pub fn new(len: usize) -> Ram {
        let mut bytes = vec![0u64; (len + ALIGNMENT) / 8];
        let first = bytes.as_mut_ptr().expose_provenance().next_multiple_of(ALIGNMENT);
        Ram { first, _bytes: bytes }
    }

    /// Address of a byte.
    pub fn at(&self, offset: usize) -> u64 {
        (self.first + offset) as u64
    }

    /// At these offsets are atomics of so many bits. (They must be there before there are threads.)
    pub fn put(&self, bits: u32, offsets: impl IntoIterator<Item = usize>) {
        for offset in offsets {
            let at = self.first + offset;
            match bits {
                16 => put_u16(at),
                32 => put_u32(at),
                _ => put_u64(at),
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Seg<'m>(pub *mut u8, pub u32, PhantomData<&'m ()>);

impl Seg<'_> {
    /// # Safety
    /// As in the product.
    pub unsafe fn lent(self) -> Seg<'static> {
        Seg(self.0, self.1, PhantomData)
    }
}

#[derive(Debug, Default)]
pub struct MemMap;

/// More than any model needs.
const ROOM: u64 = 1 << 20;

impl MemMap {
    pub fn lookup(&self, gpa: u64) -> Option<(*mut u8, u64)> {
        Some((std::ptr::with_exposed_provenance_mut(gpa as usize), ROOM))
    }

    pub fn seg(&self, gpa: u64, len: u32) -> Option<Seg<'_>> {
        let ptr = std::ptr::with_exposed_provenance_mut(gpa as usize);
        Some(Seg(ptr, len, PhantomData))
    }

    pub fn user_range(&self, user: u64, _: u64, _: u64) -> Option<*mut u8> {
        Some(std::ptr::with_exposed_provenance_mut(user as usize))
    }
}

#[derive(Debug, Default)]
pub struct Segs(Vec<(u64, u32)>);

impl Segs {
    pub fn of(&mut self, _: &Arc<MemMap>) {}

    pub fn translate(&mut self, gpa: u64, len: u32) -> bool {
        self.push(gpa, len)
    }

    pub fn push(&mut self, gpa: u64, len: u32) -> bool {
        self.0.push((gpa, len));
        true
    }
}

pub struct Buffers<const N: usize>;

impl<const N: usize> Buffers<N> {
    pub fn push(&mut self, _: &Arc<MemMap>, _: u16, gpa: u64, len: u32) -> Option<Seg<'_>> {
        let ptr = std::ptr::with_exposed_provenance_mut(gpa as usize);
        Some(Seg(ptr, len, PhantomData))
    }
}

#[derive(Debug)]
pub struct DirtyLog;

impl DirtyLog {
    pub fn mark(&self, _: u64, _: u64) {}
}

pub fn prefetch(_: *const u8) {}
pub fn prefetch_for_writing(_: *const u8) {}

/// In the place of what says that a frame lasts.
#[derive(Debug, Clone, Copy)]
pub struct Lasting;

impl Lasting {
    /// Says so of a frame.
    ///
    /// # Safety
    /// None is needed: models hold no frames.
    pub unsafe fn new(_verified: bool) -> Lasting {
        Lasting
    }
}
