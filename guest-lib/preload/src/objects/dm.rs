//! Device memory.

#![expect(unsafe_code, reason = "begins as the structure of the header")]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use vnic_verbs::DeviceMemory;

use super::{Mr, Pd, mr, only};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::{Use, Uses, publish, the};
use crate::named::Listed;

/// Device memory.
#[repr(C)]
pub struct Dm {
    base: UnsafeCell<ibv_dm>,
    pub inner: DeviceMemory,
    pub uses: Uses,
    _listed: Option<Listed<(DeviceMemory, Uses)>>,
    _needs: Use,
}

object!(Dm: ibv_dm);

impl Dm {
    /// Allocates device memory, of zeros.
    pub fn alloc(context: &Context, attributes: &ibv_alloc_dm_attr) -> Result<*mut ibv_dm, Errno> {
        only(attributes.comp_mask, 0u32, Errno::INVALID)?;
        if attributes.length == 0 {
            return Err(Errno::INVALID);
        }
        let device = &context.seat.device;
        let inner = device.alloc_dm(attributes.length as u64, attributes.log_align_req)?;
        let mut dm = Dm::new(context, inner.clone(), Uses::default());
        let listed = (inner, dm.uses.same());
        dm._listed = Some(context.seat.named.memories.list(listed.0.number(), listed));
        Ok(publish(dm))
    }

    /// The device memory with a number, under another pointer: it has the users of all its pointers.
    pub fn import(context: &Context, number: u32) -> Result<*mut ibv_dm, Errno> {
        let found = context.seat.named.memories.find(number)?;
        Ok(publish(Dm::new(context, found.0.clone(), found.1.same())))
    }

    fn new(context: &Context, inner: DeviceMemory, uses: Uses) -> Dm {
        Dm {
            base: UnsafeCell::new(ibv_dm {
                context: context.pointer(),
                memcpy_to_dm: Some(copy_to),
                memcpy_from_dm: Some(copy_from),
                comp_mask: 0,
                handle: inner.number(),
            }),
            inner,
            uses,
            _listed: None,
            _needs: context.uses.one(),
        }
    }

    /// Registers a part of the memory. Addresses count from 0.
    pub fn register(&self, pd: &Pd, offset: u64, length: usize, flags: u32) -> Result<*mut ibv_mr, Errno> {
        let access = mr::access(flags)?;
        let inner = pd.inner.register_dm(&self.inner, offset, length as u64, access)?;
        let dm = Some(self.uses.one());
        Ok(publish(Mr::new(pd, std::ptr::null_mut(), length, inner, dm)))
    }
}

/// What hardware copies: whole words of four bytes (mlx5; tests of rdma-core ask for the refusal). Mapped memory has no such rule.
fn words(offset: u64, length: usize) -> Result<(), Errno> {
    match offset.is_multiple_of(4) && length.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Errno::INVALID),
    }
}

operation! {
    /// `ibv_memcpy_to_dm`.
    fn copy_to(dm: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int, as code {
        words(offset, length)?;
        let from = match length {
            0 => &[],
            _ => std::slice::from_raw_parts(from.cast(), length),
        };
        Ok(the::<Dm>(dm).inner.copy_to(offset, from)?)
    }

    /// `ibv_memcpy_from_dm`.
    fn copy_from(into: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int, as code {
        words(offset, length)?;
        let into = match length {
            0 => &mut [],
            _ => std::slice::from_raw_parts_mut(into.cast(), length),
        };
        Ok(the::<Dm>(dm).inner.copy_from(offset, into)?)
    }
}
