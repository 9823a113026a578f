//! Memory of a ring or region, as a driver knows it: extents, one behind the other, read and written by offset.

use std::sync::atomic::Ordering;

use vm_memory::{AtomicAccess, Bytes, GuestAddress};
use vnic_device::ring::Extent;
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};

use super::super::memory::GuestMem;

/// Some guest memory, in one or more pieces.
#[derive(Clone)]
pub struct Area {
    mem: GuestMem,
    /// Where it is.
    pub extents: Vec<Extent>,
}

impl Area {
    /// The memory of these extents.
    pub fn new(mem: &GuestMem, extents: Vec<Extent>) -> Area {
        Area {
            mem: mem.clone(),
            extents,
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.extents.iter().map(|e| e.len).sum()
    }

    /// No memory at all.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The guest-physical address of an offset, and how many bytes are together from there on.
    ///
    /// # Panics
    /// When the offset is behind the end.
    pub fn at(&self, mut offset: u64) -> (u64, u64) {
        for e in &self.extents {
            if offset < e.len {
                return (e.gpa + offset, e.len - offset);
            }
            offset -= e.len;
        }
        panic!("{offset} bytes behind the end of an area")
    }

    /// Writes bytes.
    ///
    /// # Panics
    /// When they are not in the area.
    pub fn write(&self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (gpa, room) = self.at(offset);
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.mem.write(gpa, now).expect("guest memory");
            offset += now.len() as u64;
            bytes = later;
        }
    }

    /// Writes a structure.
    pub fn put<T: IntoBytes + Immutable>(&self, offset: u64, value: &T) {
        self.write(offset, value.as_bytes());
    }

    /// Reads bytes.
    ///
    /// # Panics
    /// When they are not in the area.
    pub fn read(&self, mut offset: u64, mut into: &mut [u8]) {
        while !into.is_empty() {
            let (gpa, room) = self.at(offset);
            let n = into.len().min(room as usize);
            let (now, later) = into.split_at_mut(n);
            self.mem.read(gpa, now).expect("guest memory");
            offset += n as u64;
            into = later;
        }
    }

    /// The bytes from `offset` on.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(offset, &mut out);
        out
    }

    /// Reads a structure.
    pub fn get<T: FromBytes>(&self, offset: u64) -> T {
        let bytes = self.bytes(offset, size_of::<T>());
        T::read_from_bytes(&bytes).expect("as many bytes as it has")
    }

    /// One load, with everything that was written before it.
    pub fn load<T: AtomicAccess>(&self, offset: u64) -> T {
        let at = GuestAddress(self.at(offset).0);
        self.mem.map().load(at, Ordering::Acquire).expect("guest memory")
    }

    /// One store, behind everything before it.
    pub fn store<T: AtomicAccess>(&self, offset: u64, value: T) {
        let at = GuestAddress(self.at(offset).0);
        let stored = self.mem.map().store(value, at, Ordering::Release);
        stored.expect("guest memory");
    }

    /// A part of it.
    ///
    /// # Panics
    /// When it is not in the area.
    pub fn part(&self, mut offset: u64, mut len: u64) -> Area {
        let mut extents = Vec::new();
        while len > 0 {
            let (gpa, room) = self.at(offset);
            let n = room.min(len);
            extents.push(Extent { gpa, len: n });
            (offset, len) = (offset + n, len - n);
        }
        Area::new(&self.mem, extents)
    }
}
